//! The logs of the DTR paper's authors (appendix C.6), as their modified PyTorch writes them.
//!
//! Every line is a JSON object whose key `INSTRUCTION` says which of the eight instructions it is, or `ANNOTATE`.
//! Names are strings; sizes, costs and alias indices are decimal numbers *in strings*.
//!
//! ```text
//! {"INSTRUCTION":"ANNOTATE","ANNOTATION":"START"}
//! {"INSTRUCTION":"CONSTANT","NAME":"x1"}
//! {"INSTRUCTION":"MEMORY","NAME":"x1","MEMORY":"64"}
//! {"INSTRUCTION":"CALL","NAME":"relu","ARGS":["x1"],"RESULT":["x2"],"TIME":"1500"}
//! {"INSTRUCTION":"MEMORY","NAME":"x2","MEMORY":"64"}
//! {"INSTRUCTION":"ALIAS","NAME":"x2","ALIAS":"-1"}
//! {"INSTRUCTION":"MUTATE","NAME":"add_","ARGS":["x2","x1"],"MUTATE":[0],"TIME":"900"}
//! {"INSTRUCTION":"COPY","DST":"x3","SRC":"x2"}
//! {"INSTRUCTION":"COPY_FROM","DST":"x3","SRC":"x1"}
//! {"INSTRUCTION":"RELEASE","NAME":"x2"}
//! ```

use crate::TraceError;
use crate::file::{Limits, Lines, Output};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::path::Path;

/// A line of a log.
///
/// ```
/// use remat_trace::dtr::Instruction;
///
/// let line = r#"{"INSTRUCTION":"MEMORY","NAME":"x1","MEMORY":"64"}"#;
/// let memory = Instruction::Memory { name: "x1".into(), bytes: 64 };
/// assert_eq!(serde_json::from_str::<Instruction>(line).unwrap(), memory);
/// assert_eq!(serde_json::to_string(&memory).unwrap(), line);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "INSTRUCTION", rename_all = "UPPERCASE")]
pub enum Instruction {
    /// A remark. Lines before the remark `START` are not part of the step.
    Annotate {
        /// The remark.
        #[serde(rename = "ANNOTATION")]
        annotation: String,
    },
    /// A new constant; its `MEMORY` follows.
    Constant {
        /// The new name.
        #[serde(rename = "NAME")]
        name: String,
    },
    /// The size of a constant or a result. A view counts 0 bytes, whatever its `MEMORY` states.
    Memory {
        /// The constant or result.
        #[serde(rename = "NAME")]
        name: String,
        /// Its size in bytes.
        #[serde(rename = "MEMORY", with = "number_in_string")]
        bytes: u64,
    },
    /// The argument that a result is a view of.
    Alias {
        /// The result.
        #[serde(rename = "NAME")]
        name: String,
        /// Index into the call's arguments; `None` (written `-1`) if it has a storage of its own.
        #[serde(rename = "ALIAS", with = "index_in_string")]
        of: Option<usize>,
    },
    /// `results = op(args)`; a `MEMORY` and an `ALIAS` for each result follow.
    Call {
        /// The op.
        #[serde(rename = "NAME")]
        op: String,
        /// Names of the tensors it reads.
        #[serde(rename = "ARGS")]
        args: Vec<String>,
        /// New names for its results.
        #[serde(rename = "RESULT")]
        results: Vec<String>,
        /// Time it took, in nanoseconds.
        #[serde(rename = "TIME", with = "number_in_string")]
        cost: u64,
    },
    /// `op(args)`, which changes some of its arguments.
    Mutate {
        /// The op.
        #[serde(rename = "NAME")]
        op: String,
        /// Names of the tensors it reads.
        #[serde(rename = "ARGS")]
        args: Vec<String>,
        /// Indices of the arguments it changes.
        #[serde(rename = "MUTATE")]
        mutated: Vec<usize>,
        /// Time it took, in nanoseconds.
        #[serde(rename = "TIME", with = "number_in_string")]
        cost: u64,
    },
    /// A new name for the same tensor.
    Copy {
        /// The new name.
        #[serde(rename = "DST")]
        target: String,
        /// A name that the tensor has already.
        #[serde(rename = "SRC")]
        source: String,
    },
    /// A known name is given to another tensor. (The paper writes `COPYFROM`; the reader takes both.)
    #[serde(rename = "COPY_FROM", alias = "COPYFROM")]
    CopyFrom {
        /// The name that changes its tensor.
        #[serde(rename = "DST")]
        target: String,
        /// A name of the tensor it takes.
        #[serde(rename = "SRC")]
        source: String,
    },
    /// The program drops a name.
    Release {
        /// The name.
        #[serde(rename = "NAME")]
        name: String,
    },
}

/// The instructions of a log, in order.
#[derive(Debug)]
pub struct LogReader {
    lines: Lines,
    done: bool,
}

impl LogReader {
    /// Opens a log; `-` is standard input. The first bytes tell the compression.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: impl AsRef<Path>, limits: Limits) -> Result<Self, TraceError> {
        Ok(LogReader {
            lines: Lines::open(path.as_ref(), limits)?,
            done: false,
        })
    }

    fn step(&mut self) -> Result<Option<Instruction>, TraceError> {
        if self.lines.advance()? {
            parse(&self.lines).map(Some)
        } else {
            Ok(None)
        }
    }
}

impl Iterator for LogReader {
    type Item = Result<Instruction, TraceError>;

    /// The next instruction. An error ends the iterator.
    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let step = self.step().transpose();
        self.done = !matches!(step, Some(Ok(_)));
        step
    }
}

/// The instruction on the current line.
pub(crate) fn parse(lines: &Lines) -> Result<Instruction, TraceError> {
    serde_json::from_slice(lines.text()).map_err(|error| lines.syntax(&error))
}

/// Whether a file with this first line is a log.
pub(crate) fn is_log(first_line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct AnyInstruction {
        #[serde(rename = "INSTRUCTION")]
        _instruction: String,
    }
    serde_json::from_slice::<AnyInstruction>(first_line).is_ok()
}

/// Writes a log. Packing and naming of the file follow [`TraceWriter`](crate::TraceWriter).
#[derive(Debug)]
pub struct LogWriter {
    output: Output,
}

impl LogWriter {
    /// Starts a log.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(LogWriter {
            output: Output::create(path.as_ref())?,
        })
    }

    /// Writes the next instruction.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, instruction: &Instruction) -> io::Result<()> {
        let mut line = serde_json::to_vec(instruction)?;
        line.push(b'\n');
        self.output.write_all(&line)
    }

    /// Writes out what is buffered and gives the file its name.
    ///
    /// # Errors
    /// The file cannot be written or renamed.
    pub fn finish(self) -> io::Result<()> {
        self.output.finish()
    }
}

mod number_in_string {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|_| {
            D::Error::custom(format_args!("{text:?} is not a whole number of 64 bits"))
        })
    }
}

mod index_in_string {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(
        value: &Option<usize>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(index) => serializer.collect_str(index),
            None => serializer.serialize_str("-1"),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<usize>, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "-1" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| D::Error::custom(format_args!("{text:?} is neither an index nor -1"))),
        }
    }
}
