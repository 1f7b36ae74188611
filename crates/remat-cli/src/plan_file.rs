//! The files of planning: chains, joint graphs and plans, as text.

use crate::failure::Failure;
use remat_core::Bytes;
use remat_plan::chain::Chain;
use remat_plan::cut::JointGraph;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;

/// Reads a chain.
pub(crate) fn chain(path: &Path) -> Result<Chain, Failure> {
    parsed(path)
}

/// Reads a joint graph.
pub(crate) fn graph(path: &Path) -> Result<JointGraph, Failure> {
    parsed(path)
}

fn parsed<T: FromStr<Err: Display>>(path: &Path) -> Result<T, Failure> {
    let parsed = text(path)?.parse();
    parsed.map_err(|error| Failure::Input(format!("{}: {error}", path.display())))
}

/// The text of a file, or of standard input for `-`.
pub(crate) fn text(path: &Path) -> Result<String, Failure> {
    const LONGEST: u64 = 256 << 20;
    let place = path.display();
    let unreadable = |error: io::Error| {
        Failure::Input(format!(
            "{place}: cannot be read: {error}; check the path and that it is UTF-8 text"
        ))
    };
    let mut text = String::new();
    let read = if path == Path::new("-") {
        io::stdin()
            .lock()
            .take(LONGEST + 1)
            .read_to_string(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text))
    };
    if read.map_err(unreadable)? as u64 > LONGEST {
        let most = Bytes(LONGEST);
        return Err(Failure::Input(format!(
            "{place}: longer than {most}; chains and plans are not that long"
        )));
    }
    Ok(text)
}
