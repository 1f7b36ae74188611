//! The formats that traces come in, and the version of Remat's own.

use std::path::Path;

/// The version of the trace format that this crate writes and reads.
pub const VERSION: u64 = 1;

/// The formats that traces come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Remat's own.
    Remat,
    /// The [logs of the DTR paper's authors](crate::dtr).
    Dtr,
}

impl Format {
    /// The format that a file's name asks for: `.log` and `.dtr` mean DTR, with or without `.gz` or `.zst` behind.
    ///
    /// ```
    /// use remat_trace::Format;
    /// assert_eq!(Format::of_name("unet.log.zst"), Format::Dtr);
    /// assert_eq!(Format::of_name("unet.trace"), Format::Remat);
    /// ```
    pub fn of_name(path: impl AsRef<Path>) -> Format {
        let name = path.as_ref().to_string_lossy();
        let name = name
            .strip_suffix(".zst")
            .or_else(|| name.strip_suffix(".gz"))
            .unwrap_or(&name);
        if name.ends_with(".log") || name.ends_with(".dtr") {
            Format::Dtr
        } else {
            Format::Remat
        }
    }
}
