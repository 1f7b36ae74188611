//! Conversions from logs to events and back.
//!
//! A log becomes a trace without loss (DTR, appendix C.6):
//! - names become ids, counted from 0 in order of definition;
//! - `COPY`, `COPY_FROM` and `RELEASE` become [`Retain`](crate::Event::Retain) and [`Release`](crate::Event::Release);
//! - `MUTATE` becomes an op with a fresh output for each argument that it changes;
//! - lines before the annotation `START` are skipped;
//! - tensors that are referenced at the end are pinned, in order of first appearance: the paper's output condition.
//!
//! A log cannot express everything in a trace. [`Lost`] counts what a conversion leaves out:
//! - workspaces, and the device of each storage, are left out;
//! - in-place outputs become `MUTATE` of a `COPY`: copy-on-write, which needs the bytes of both values. An op that also
//!   has outputs of other kinds becomes a `CALL` whose results have the same sizes;
//! - fresh outputs of an op that cannot be replayed become constants, and its cost is lost;
//! - [`Ensure`](crate::Event::Ensure) and [`Pin`](crate::Event::Pin) are left out; the output condition replaces the
//!   pins at the end.

mod file;
mod from_dtr;
mod lost;
mod to_dtr;

pub use file::{ConvertError, convert};
pub use from_dtr::FromDtr;
pub use lost::Lost;
pub use to_dtr::ToDtr;
