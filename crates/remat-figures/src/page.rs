//! The page that shows all figures: one file that needs no other.

use crate::figure::Figure;
use crate::svg::{CHART, LIBRARY};

/// The page's frame, with places for its parts.
const FRAME: &str = include_str!("page.html");

/// Tables and figures that make up a page.
#[derive(Default)]
pub struct Page {
    /// Tables of what the figures are of.
    pub tables: Vec<Table>,
    /// The figures, in order.
    pub figures: Vec<Figure>,
}

/// A table: its first row names the columns.
pub struct Table {
    /// Heading above it.
    pub heading: String,
    /// Rows of cells.
    pub rows: Vec<Vec<String>>,
}

impl Page {
    /// The page, as HTML. It refers to nothing beside itself.
    pub fn html(&self) -> serde_json::Result<String> {
        // In a script, `<` might begin the tag that ends it.
        let figures = serde_json::to_string(&self.figures)?.replace('<', "\\u003c");
        let tables: String = self.tables.iter().map(Table::html).collect();
        let parts = [
            ("VERSION", env!("CARGO_PKG_VERSION")),
            ("TABLES", &tables),
            ("LIBRARY", LIBRARY),
            ("CHART", CHART),
            ("FIGURES", &figures),
        ];
        Ok(filled(FRAME, &parts))
    }
}

/// The frame with its `{{PARTS}}`, each of which occurs once, in this order.
fn filled(frame: &str, parts: &[(&str, &str)]) -> String {
    let (mut page, mut rest) = (String::new(), frame);
    for (name, part) in parts {
        if let Some((before, after)) = rest.split_once(&format!("{{{{{name}}}}}")) {
            page += before;
            page += part;
            rest = after;
        }
    }
    page + rest
}

impl Table {
    fn html(&self) -> String {
        let row = |(at, cells): (usize, &Vec<String>)| {
            let tag = if at == 0 { "th" } else { "td" };
            let cell = |cell: &String| format!("<{tag}>{}</{tag}>", escaped(cell));
            format!("<tr>{}</tr>\n", cells.iter().map(cell).collect::<String>())
        };
        let rows: String = self.rows.iter().enumerate().map(row).collect();
        format!(
            "<h2>{}</h2>\n<div class=\"wide\"><table>\n{rows}</table></div>\n",
            escaped(&self.heading)
        )
    }
}

fn escaped(text: &str) -> String {
    let pairs = [
        ('&', "&amp;"),
        ('<', "&lt;"),
        ('>', "&gt;"),
        ('"', "&quot;"),
    ];
    pairs
        .iter()
        .fold(text.to_owned(), |text, (letter, entity)| {
            text.replace(*letter, entity)
        })
}
