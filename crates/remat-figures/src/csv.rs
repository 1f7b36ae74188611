//! Tables of comma-separated values (RFC 4180).

use serde::Serialize;

/// A table with a line of names.
#[derive(Clone, Debug, Serialize)]
pub struct Csv(String);

impl Csv {
    /// A table without rows.
    pub fn new(names: &[&str]) -> Csv {
        let mut csv = Csv(String::new());
        csv.row(&names.iter().map(ToString::to_string).collect::<Vec<_>>());
        csv
    }

    /// Adds a row. Cells with commas, quotes or ends of lines are quoted.
    pub fn row(&mut self, cells: &[String]) {
        let quoted = |cell: &String| {
            if cell.contains([',', '"', '\n', '\r']) {
                format!("\"{}\"", cell.replace('"', "\"\""))
            } else {
                cell.clone()
            }
        };
        let cells: Vec<String> = cells.iter().map(quoted).collect();
        self.0 += &(cells.join(",") + "\n");
    }

    /// The whole table.
    pub fn text(&self) -> &str {
        &self.0
    }
}
