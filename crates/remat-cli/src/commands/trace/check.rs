//! `remat trace check`.

use crate::failure::Failure;
use crate::progress::Shown;
use crate::terminal::plain;
use std::io::{self, Write};
use std::path::Path;

pub(crate) fn run(file: &Path) -> Result<(), Failure> {
    let mut events = 0u64;
    for event in Shown::new(remat_trace::open(file)?, file) {
        event?;
        events += 1;
    }
    let name = plain(&file.display().to_string());
    writeln!(io::stdout(), "{name}: valid, {events} events").map_err(Failure::output)
}
