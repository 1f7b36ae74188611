//! Tables of two columns, and numbers as people read them.

use crate::failure::Failure;
use crate::terminal::plain;
use remat_core::Bytes;
use std::io::{self, Write};

/// A name and what is told of it.
pub(crate) type Row = (&'static str, String);

/// Prints rows with their second column aligned.
pub(crate) fn print<N: AsRef<str>>(rows: &[(N, String)]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text(rows).as_bytes())
        .and_then(|()| out.flush())
        .map_err(Failure::output)
}

/// Rows as lines, with their second column aligned.
pub(crate) fn text<N: AsRef<str>>(rows: &[(N, String)]) -> String {
    let plain_row = |(left, right): &(N, String)| (plain(left.as_ref()), plain(right));
    let rows: Vec<(String, String)> = rows.iter().map(plain_row).collect();
    let width = rows
        .iter()
        .map(|(left, _)| left.chars().count())
        .max()
        .unwrap_or(0);
    let line = |(left, right): &(String, String)| format!("{left:width$}  {right}\n");
    rows.iter().map(line).collect()
}

/// Bytes as people read them, and all digits.
pub(crate) fn bytes(bytes: u64) -> String {
    format!("{} ({bytes} bytes)", Bytes(bytes))
}

/// Nanoseconds in the largest unit that leaves a digit before the point.
pub(crate) fn duration(nanoseconds: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    for (unit, size) in UNITS {
        if nanoseconds >= size {
            return format!("{:.2} {unit}", nanoseconds as f64 / size as f64);
        }
    }
    format!("{nanoseconds} ns")
}

/// A time in the chain's unit.
pub(crate) fn time(time: f64) -> String {
    let text = format!("{time:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Width of the longest name of a policy.
pub(crate) const POLICY: usize = 24;
