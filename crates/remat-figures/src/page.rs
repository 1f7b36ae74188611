//! The page that shows all figures: one file that needs no other.

use crate::figure::Figure;
use crate::svg::{LIBRARY, SCRIPTS};

/// The page, with places for its parts.
const FRAME: &str = include_str!("page.html");

/// A page of figures, as HTML. It refers to nothing beside itself.
pub fn html(figures: &[Figure]) -> serde_json::Result<String> {
    // In a script, `<` might begin the tag that ends it.
    let figures = serde_json::to_string(figures)?.replace('<', "\\u003c");
    let parts = [
        ("VERSION", env!("CARGO_PKG_VERSION")),
        ("ECHARTS", LIBRARY),
        ("FIGURES.JS", SCRIPTS[0]),
        ("CHART.JS", SCRIPTS[1]),
        ("FIGURES", &figures),
    ];
    let (mut page, mut rest) = (String::new(), FRAME);
    for (name, part) in parts {
        if let Some((before, after)) = rest.split_once(&format!("{{{{{name}}}}}")) {
            page = page + before + part;
            rest = after;
        }
    }
    Ok(page + rest)
}
