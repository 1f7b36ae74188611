//! Events, one a line of a trace.

use crate::Planning;
use remat_core::{Bytes, DeviceId, Output};
use serde::{Deserialize, Serialize};

/// One thing that happened in a recorded step.
///
/// Tensor ids are unique for the whole trace: an id is never used again, not even after its last release. A tensor
/// starts with one reference ([`Retain`](Event::Retain) adds one, [`Release`](Event::Release) drops one) and may be
/// named by later events only while it has one.
///
/// In a file each event is one line of JSON with short keys; values that are 0 or empty, and `"r":true`, are left out.
///
/// ```
/// use remat_trace::{Event, TraceOutput, TraceOutputKind};
///
/// let relu = Event::Op {
///     name: "relu".into(),
///     inputs: vec![1],
///     outputs: vec![TraceOutput { tensor: 2, kind: TraceOutputKind::Fresh { bytes: 4096, device: 0 } }],
///     workspace: 0,
///     workspace_device: 0,
///     cost: 1500,
///     replay: true,
/// };
/// let line = r#"{"op":{"n":"relu","i":[1],"o":[{"t":2,"b":4096}],"c":1500}}"#;
/// assert_eq!(serde_json::to_string(&relu).unwrap(), line);
/// assert_eq!(serde_json::from_str::<Event>(line).unwrap(), relu);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Event {
    /// `{"const":{"t":1,"b":4096,"p":0}}`: a tensor that existed before (a weight, data) and cannot be recomputed.
    #[serde(rename = "const")]
    Constant {
        /// The new tensor.
        #[serde(rename = "t")]
        tensor: u64,
        /// Size of its storage in bytes.
        #[serde(rename = "b")]
        bytes: u64,
        /// Device memory that it lives in.
        #[serde(rename = "p", default, skip_serializing_if = "is_zero")]
        device: u8,
    },
    /// `{"op":{"n":"mm","i":[1,2],"o":[{"t":3,"b":4096}],"w":64,"wp":0,"c":1500,"r":true}}`: an op ran.
    #[serde(rename = "op")]
    Op {
        /// The framework's name of the op.
        #[serde(rename = "n")]
        name: String,
        /// Tensors it read; repeated ones are allowed.
        #[serde(rename = "i", default, skip_serializing_if = "Vec::is_empty")]
        inputs: Vec<u64>,
        /// Tensors it made.
        #[serde(rename = "o", default, skip_serializing_if = "Vec::is_empty")]
        outputs: Vec<TraceOutput>,
        /// Bytes it needed while it ran, beyond inputs and outputs.
        #[serde(rename = "w", default, skip_serializing_if = "is_zero")]
        workspace: u64,
        /// The device that the workspace was taken from.
        #[serde(rename = "wp", default, skip_serializing_if = "is_zero")]
        workspace_device: u8,
        /// Time it took, in nanoseconds.
        #[serde(rename = "c", default, skip_serializing_if = "is_zero")]
        cost: u64,
        /// Whether it can be run again with the same result; if not, its outputs are constants.
        #[serde(rename = "r", default = "yes", skip_serializing_if = "is_yes")]
        replay: bool,
    },
    /// `{"ret":{"t":3}}`: one more reference.
    #[serde(rename = "ret")]
    Retain {
        /// The tensor referred to.
        #[serde(rename = "t")]
        tensor: u64,
    },
    /// `{"rel":{"t":3}}`: one reference less.
    #[serde(rename = "rel")]
    Release {
        /// The tensor referred to until now.
        #[serde(rename = "t")]
        tensor: u64,
    },
    /// `{"pin":{"t":3}}`: from here on the tensor must be resident (a result, a gradient handed out).
    #[serde(rename = "pin")]
    Pin {
        /// The tensor to keep.
        #[serde(rename = "t")]
        tensor: u64,
    },
    /// `{"ens":{"ts":[3,4]}}`: the tensors were read outside any op, and had to be resident at this moment.
    #[serde(rename = "ens")]
    Ensure {
        /// The tensors read.
        #[serde(rename = "ts")]
        tensors: Vec<u64>,
    },
    /// `{"mark":{"n":"backward"}}`: a remark on the part of the step that follows.
    #[serde(rename = "mark")]
    Mark {
        /// The remark.
        #[serde(rename = "n")]
        name: String,
    },
    /// `{"plan":...}`: the run's engine was told about planned steps.
    #[serde(rename = "plan")]
    Plan(Planning),
}

impl Event {
    /// How many times the event names a tensor, or an op by its signature.
    pub(crate) fn names(&self) -> u64 {
        match self {
            Event::Op {
                inputs, outputs, ..
            } => inputs.len() as u64 + outputs.len() as u64,
            Event::Ensure { tensors } => tensors.len() as u64,
            Event::Mark { .. } => 0,
            Event::Plan(told) => told.len(),
            Event::Constant { .. }
            | Event::Retain { .. }
            | Event::Release { .. }
            | Event::Pin { .. } => 1,
        }
    }
}

/// A tensor that an op made: `{"t":3,"b":4096,"p":0}`, `{"t":3,"view":0}` or `{"t":3,"into":0}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "OutputLine", into = "OutputLine")]
pub struct TraceOutput {
    /// The new tensor.
    pub tensor: u64,
    /// Where its bytes come from.
    pub kind: TraceOutputKind,
}

/// Where the bytes of an op's output come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceOutputKind {
    /// A storage of its own.
    Fresh {
        /// Size of the new storage in bytes.
        bytes: u64,
        /// Device memory that it lives in.
        device: u8,
    },
    /// A view of the storage of an input.
    Alias {
        /// Index into the op's inputs.
        of: usize,
    },
    /// A new value written into the storage of an input.
    InPlace {
        /// Index into the op's inputs.
        of: usize,
    },
}

impl From<TraceOutputKind> for Output {
    /// The same output in the engine's terms.
    fn from(kind: TraceOutputKind) -> Self {
        match kind {
            TraceOutputKind::Fresh { bytes, device } => Output::Fresh {
                bytes: Bytes(bytes),
                device: DeviceId(device),
            },
            TraceOutputKind::Alias { of } => Output::Alias { of },
            TraceOutputKind::InPlace { of } => Output::InPlace { of },
        }
    }
}

/// [`TraceOutput`] as a line of the file holds it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputLine {
    t: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    b: Option<u64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    p: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    view: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    into: Option<usize>,
}

impl From<TraceOutput> for OutputLine {
    fn from(output: TraceOutput) -> Self {
        let mut line = OutputLine {
            t: output.tensor,
            b: None,
            p: 0,
            view: None,
            into: None,
        };
        match output.kind {
            TraceOutputKind::Fresh { bytes, device } => (line.b, line.p) = (Some(bytes), device),
            TraceOutputKind::Alias { of } => line.view = Some(of),
            TraceOutputKind::InPlace { of } => line.into = Some(of),
        }
        line
    }
}

impl TryFrom<OutputLine> for TraceOutput {
    type Error = &'static str;

    fn try_from(line: OutputLine) -> Result<Self, Self::Error> {
        let kind = match (line.b, line.view, line.into) {
            (Some(bytes), None, None) => TraceOutputKind::Fresh {
                bytes,
                device: line.p,
            },
            (None, Some(of), None) => TraceOutputKind::Alias { of },
            (None, None, Some(of)) => TraceOutputKind::InPlace { of },
            _ => return Err("an output needs exactly one of `b` (bytes), `view` and `into`"),
        };
        Ok(TraceOutput {
            tensor: line.t,
            kind,
        })
    }
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn yes() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}
