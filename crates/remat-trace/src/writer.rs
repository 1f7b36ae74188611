//! Writing Remat's own traces.

use crate::file::Output;
use crate::{Event, VERSION};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

/// The first line of a trace.
///
/// Keys that a reader does not know are skipped, so that later versions of Remat may add some.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the format.
    #[serde(rename = "remat-trace")]
    pub version: u64,
    /// The program that recorded the trace.
    #[serde(default)]
    pub created_by: String,
    /// Names of the devices, by index (`"cpu"`, `"cuda:0"`); devices beyond the list have no name.
    #[serde(default, rename = "pools")]
    pub devices: Vec<String>,
    /// Further facts by name, such as the model, the batch size, the framework's version.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub about: BTreeMap<String, String>,
}

impl Default for Header {
    /// This version, by this program, on one device called `cpu`.
    fn default() -> Self {
        Header {
            version: VERSION,
            created_by: concat!("remat ", env!("CARGO_PKG_VERSION")).into(),
            devices: vec!["cpu".into()],
            about: BTreeMap::new(),
        }
    }
}

/// The last line of a trace: `{"end":{"events":7}}`. A file without it is cut off.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum EndRecord {
    #[serde(rename = "end")]
    End { events: u64 },
}

/// Writes a trace, line by line.
///
/// The file's ending selects the packing (`.zst`, `.gz`, else plain); `-` is standard output. The file is called
/// `PATH.partial` until [`finish`](TraceWriter::finish), with a number where there is a file of that name; a writer
/// dropped earlier leaves it under that name. Links are followed, and devices and pipes written into
/// ([`Destination`](crate::Destination)). The writer does not check events, because recording delays the training
/// step; [`Validator`](crate::Validator) checks them.
///
/// ```
/// use remat_trace::{open, Event, TraceWriter};
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("step.trace.zst");
/// let mut writer = TraceWriter::create(&path)?;
/// writer.write(&Event::Constant { tensor: 1, bytes: 64, device: 0 })?;
/// writer.finish()?;
/// assert_eq!(open(&path)?.count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TraceWriter {
    output: Output,
    events: u64,
    line: Vec<u8>,
}

impl TraceWriter {
    /// Starts a trace with the [default header](Header::default).
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        TraceWriter::create_with(path, &Header::default())
    }

    /// Starts a trace with the given header.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub fn create_with(path: impl AsRef<Path>, header: &Header) -> io::Result<Self> {
        let mut writer = TraceWriter {
            output: Output::create(path.as_ref())?,
            events: 0,
            line: Vec::new(),
        };
        writer.write_line(header)?;
        Ok(writer)
    }

    /// Writes the next event.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, event: &Event) -> io::Result<()> {
        self.write_line(event)?;
        self.events += 1;
        Ok(())
    }

    /// Writes the end record and gives the file its name.
    ///
    /// # Errors
    /// The file cannot be written or renamed; `PATH.partial` stays.
    pub fn finish(mut self) -> io::Result<()> {
        self.write_line(&EndRecord::End {
            events: self.events,
        })?;
        self.output.finish()
    }

    fn write_line(&mut self, value: &impl Serialize) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, value)?;
        self.line.push(b'\n');
        self.output.write_all(&self.line)
    }
}
