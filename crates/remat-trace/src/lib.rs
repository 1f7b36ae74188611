//! Recorded training steps.
//!
//! A *trace* records a training step: its constants, its ops with their tensors and costs, and the moments at which
//! references were taken and dropped. The engine can replay its decisions from a trace, without the model, the
//! framework or the device. This crate reads and writes traces, and decides nothing.
//!
//! ```
//! use remat_trace::{open, Event, TraceOutput, TraceOutputKind, TraceWriter};
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("step.trace.zst");
//!
//! let mut writer = TraceWriter::create(&path)?;
//! writer.write(&Event::Constant { tensor: 1, bytes: 4096, device: 0 })?;
//! writer.write(&Event::Op {
//!     name: "relu".into(),
//!     inputs: vec![1],
//!     outputs: vec![TraceOutput { tensor: 2, kind: TraceOutputKind::Fresh { bytes: 4096, device: 0 } }],
//!     workspace: 0,
//!     workspace_device: 0,
//!     cost: 1500,
//!     replay: true,
//! })?;
//! writer.finish()?;
//!
//! for event in open(&path)? {
//!     println!("{:?}", event?);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The format, version 1
//!
//! UTF-8 text, one JSON object a line; plain, or packed with zstd or gzip. Readers look at the first bytes, not at the
//! name. Blank lines are skipped.
//!
//! ```text
//! {"remat-trace":1,"created_by":"remat 0.1.0","pools":["cuda:0"]}        the header
//! {"const":{"t":1,"b":4096}}                                             a constant
//! {"op":{"n":"mm","i":[1,1],"o":[{"t":2,"b":4096}],"w":64,"c":1500}}     an op with a fresh output
//! {"op":{"n":"t","i":[2],"o":[{"t":3,"view":0}],"c":90}}                 ... with a view of its input 0
//! {"op":{"n":"relu_","i":[2],"o":[{"t":4,"into":0}],"c":700}}            ... written into its input 0
//! {"ret":{"t":2}}                                                        one reference more
//! {"rel":{"t":2}}                                                        one reference less
//! {"ens":{"ts":[4]}}                                                     read outside any op
//! {"pin":{"t":4}}                                                        resident from here on
//! {"plan":{"follow":{"v":1,"s":"...","a":[[2,"run",0]],"c":[9,3,9,2]}}}  a plan of a step adopted
//! {"mark":{"n":"backward"}}                                              a remark
//! {"end":{"events":10}}                                                  the end record
//! ```
//!
//! - **Header**: `remat-trace` is the version; readers refuse others. `created_by`, `devices` (names by index) and
//!   `about` (an object of strings) may be missing; other keys are skipped.
//! - **Events**: the keys of each are listed at [`Event`]. Unknown events and keys are errors. Sizes are bytes, costs
//!   nanoseconds; `p` and `wp` are devices (0 if missing), `w` the workspace, `"r":false` says that an op must not be
//!   replayed. Numbers are at most 2^53, sums of sizes and of costs at most 2^62.
//! - **Ids** are unique for the file. A tensor starts with one reference; an event may name it only while it has one.
//!   An op's `view` and `into` are indices into its `i`.
//! - **Plans** of steps that repeat ([`Planning`]) have a version of their own. Traces that were written before plans
//!   were recorded have none, and read as ever.
//! - **End record**: counts the events. A file without it was cut off; nothing may follow it.
//!
//! Readers also take the [logs of the DTR paper's authors](dtr), told apart by the first line.
//!
//! # Modules
//!
//! | module | it holds |
//! | --- | --- |
//! | [`Event`] | one thing that happened in a step |
//! | [`TraceWriter`], [`open`] | a writer of Remat's own format, and a reader of both |
//! | [`Planning`] | one thing that an engine was told about planned steps |
//! | [`Validator`] | a check that each event can follow those before it |
//! | [`dtr`], [`mod@convert`] | the DTR log format, and conversions from and to it |
//! | [`Summary`] | counts of what a trace holds |
//! | [`Replayer`] | an engine that is told a trace's events |
//! | [`Rerun`] | an op that ran again, and where |
//! | [`Destination`] | the place of a file that is written, which has its name once it is whole |
//! | [`parse_bytes`] | a parser of byte counts as people write them |

#![forbid(unsafe_code)]

mod bytes;
pub mod convert;
mod destination;
pub mod dtr;
mod error;
mod event;
mod file;
mod format;
mod guide_line;
mod planning;
mod reader;
mod replay;
mod rerun;
mod summary;
mod validate;
mod writer;

pub use bytes::{ParseBytesError, ParseBytesReason, parse_bytes};
pub use convert::convert;
pub use destination::{Destination, Unfinished};
pub use error::{Problem, TraceError};
pub use event::{Event, TraceOutput, TraceOutputKind};
pub use file::Limits;
pub use format::{Format, VERSION};
pub use guide_line::GuideLine;
pub use planning::{ADOPTED_PLAN_VERSION, Planning};
pub use reader::{TraceReader, open, open_with};
pub use replay::Replayer;
pub use rerun::Rerun;
pub use summary::Summary;
pub use validate::{LARGEST_NUMBER, LARGEST_SUM, Validator, Violation};
pub use writer::{Header, TraceWriter};

/// The README's program, so that the compiler checks it.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
