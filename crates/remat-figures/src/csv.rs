//! Tables of comma-separated values (RFC 4180).

use serde::Serialize;

/// A table with a line of names.
#[derive(Clone, Debug, Serialize)]
pub struct Csv(String);

impl Csv {
    /// A table without rows.
    pub fn new<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Csv {
        let mut csv = Csv(String::new());
        csv.row(names.into_iter().map(Into::into));
        csv
    }

    /// Adds a row. Cells with commas, quotes or ends of lines are quoted.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        for (place, cell) in cells.into_iter().enumerate() {
            if place > 0 {
                self.0.push(',');
            }
            if cell.contains([',', '"', '\n', '\r']) {
                self.0 += &format!("\"{}\"", cell.replace('"', "\"\""));
            } else {
                self.0 += &cell;
            }
        }
        self.0.push('\n');
    }

    /// The whole table.
    pub fn text(&self) -> &str {
        &self.0
    }
}
