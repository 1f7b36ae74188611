//! The page that shows all figures.

use super::curves::Planned;
use super::runs::Runs;
use super::sheet::Sheet;
use crate::table;
use remat_core::Bytes;
use std::fmt::Write;

const STYLE: &str = "body{font:16px/1.5 sans-serif;max-width:82rem;margin:2rem auto;padding:0 1rem;color:#111;background:#fff}\
table{border-collapse:collapse;font-size:14px}td,th{padding:.2rem .8rem;text-align:right;border-bottom:1px solid #ccc}\
td:first-child,th:first-child{text-align:left}figure{margin:0 0 3rem}img{max-width:100%;height:auto}\
figcaption{max-width:60rem;font-size:14px}h2{margin-bottom:.3rem}";

/// What was drawn.
#[derive(Default)]
pub(super) struct Page {
    /// What the figures are of, as HTML.
    pub(super) tables: Vec<String>,
    pub(super) sheets: Vec<Sheet>,
}

impl Page {
    /// The page, as HTML. It refers to files beside it and to nothing else.
    pub(super) fn html(&self) -> String {
        let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Remat: figures</title>\n<style>{STYLE}</style>\n\
         </head>\n<body>\n<h1>Recomputation inside budgets</h1>\n\
         <p>Recorded steps, replayed through Remat's engine with a virtual clock, and chains of stages, planned ahead \
         (<code>remat figures</code>, version {}). Each figure links to itself as SVG and PNG and to the numbers behind it.</p>\n",
        env!("CARGO_PKG_VERSION")
    );
        page.push_str(&self.tables.concat());
        for sheet in &self.sheets {
            page.push_str(&figure(sheet));
        }
        page.push_str("</body>\n</html>\n");
        page
    }
}

/// What is known of chains: how long they are, and the smallest budget of each strategy.
pub(super) fn chains(chains: &[Planned<'_>]) -> String {
    let mut text = String::from("<h2>Chains</h2>\n");
    for planned in chains {
        let _ = write!(
            text,
            "<table>\n<tr><th>{}, smallest feasible budgets</th><th>bytes</th><th></th></tr>\n",
            escaped(planned.name),
        );
        for curve in &planned.curves {
            let (bytes, words) = match (curve.smallest(), &curve.points) {
                (Some(bytes), _) => (bytes.to_string(), Bytes(bytes).to_string()),
                (None, Err(reason)) => (String::new(), format!("left out: {reason}")),
                (None, Ok(_)) => Default::default(),
            };
            let strategy = curve.strategy;
            let words = escaped(&words);
            let _ = writeln!(
                text,
                "<tr><td>{strategy}</td><td>{bytes}</td><td>{words}</td></tr>"
            );
        }
        text += "</table>\n";
    }
    text
}

/// What is known of logs.
pub(super) fn logs(runs: &Runs<'_>) -> String {
    let mut text = String::from(
        "<table>\n<tr><th>log</th><th>events</th><th>peak without a limit</th><th>cost</th><th>constants</th><th>largest op</th></tr>\n",
    );
    for log in runs.logs {
        let base = &log.base;
        let _ = writeln!(
            text,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(&log.name),
            log.program.len(),
            base.memory,
            table::duration(base.cost.0),
            base.constants,
            base.bottleneck,
        );
    }
    text + "</table>\n"
}

fn figure(sheet: &Sheet) -> String {
    let (name, title) = (sheet.name, escaped(sheet.title));
    format!(
        "<h2 id=\"{name}\">{title}</h2>\n<figure>\n<a href=\"{name}.svg\"><img src=\"{name}.svg\" alt=\"{title}\"></a>\n\
         <figcaption>{} <a href=\"{name}.svg\">SVG</a>, <a href=\"{name}.png\">PNG</a>, <a href=\"{name}.csv\">CSV</a></figcaption>\n\
         </figure>\n",
        escaped(&sheet.caption)
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
