//! Tables of comma-separated values (RFC 4180).

/// A table with a line of names.
#[derive(Clone, Debug)]
pub(super) struct Csv(String);

impl Csv {
    /// A table without rows.
    pub(super) fn new(names: &[&str]) -> Csv {
        let mut csv = Csv(String::new());
        csv.row(&names.iter().map(ToString::to_string).collect::<Vec<_>>());
        csv
    }

    /// One more row.
    pub(super) fn row(&mut self, cells: &[String]) {
        for (place, cell) in cells.iter().enumerate() {
            if place > 0 {
                self.0.push(',');
            }
            match cell.contains([',', '"', '\n', '\r']) {
                true => {
                    self.0.push('"');
                    self.0.push_str(&cell.replace('"', "\"\""));
                    self.0.push('"');
                }
                false => self.0.push_str(cell),
            }
        }
        self.0.push('\n');
    }

    /// The whole table.
    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_and_quotes_are_quoted() {
        let mut csv = Csv::new(&["a", "b"]);
        csv.row(&["x,\"y\"".into(), "z".into()]);
        assert_eq!(csv.text(), "a,b\n\"x,\"\"y\"\"\",z\n");
    }
}
