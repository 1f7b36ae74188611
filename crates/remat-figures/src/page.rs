//! The page that shows all figures: one file that needs no other.

use crate::figure::Figure;
use crate::svg::{LIBRARY, SCRIPTS};

/// The page of figures, with places for its parts.
const FRAME: &str = include_str!("page.html");

/// The page of a timeline, and the scripts that read it and draw it.
const TIMELINE: &str = include_str!("timeline/page.html");
const READ: &str = include_str!("timeline/read.js");
const DRAW: &str = include_str!("timeline/draw.js");

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
    Ok(filled(FRAME, &parts))
}

/// The page of a run's timeline, as HTML; the run is JSON text, as `remat run --timeline` records it. It refers to
/// nothing beside itself.
pub fn timeline(told: &str) -> String {
    let told = told.replace('<', "\\u003c");
    filled(
        TIMELINE,
        &[
            ("VERSION", env!("CARGO_PKG_VERSION")),
            ("ECHARTS", LIBRARY),
            ("READ.JS", READ),
            ("DRAW.JS", DRAW),
            ("RUN", &told),
        ],
    )
}

/// A page with its parts, which come in the order of their places.
fn filled(frame: &str, parts: &[(&str, &str)]) -> String {
    let (mut page, mut rest) = (String::new(), frame);
    for (name, part) in parts {
        if let Some((before, after)) = rest.split_once(&format!("{{{{{name}}}}}")) {
            page = page + before + part;
            rest = after;
        }
    }
    page + rest
}
