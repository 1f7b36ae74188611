//! Why the engine refuses. After any of these the state is as before the call.

use crate::ids::{Bytes, DeviceId};
use std::fmt;

/// A refusal. The engine's state is unchanged; raise the budget and go on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// No order of evictions and replays fits.
    Budget {
        /// Which device is short.
        device: DeviceId,
        /// Its budget.
        budget: Bytes,
        /// Bytes that must be resident at once for the op itself: inputs, outputs, workspace, and all that is pinned.
        needed: Bytes,
        /// The smallest budget known to work for this op, from this state.
        smallest: Bytes,
    },
    /// More was replayed than the limit allows.
    Thrash {
        /// Cost replayed so far, this plan included.
        replayed: u64,
        /// The limit.
        limit: u64,
    },
    /// Planning took more work than an attempt may (some dozen replays for each op that is remembered). Another order
    /// may fit, or the same one with a larger budget.
    PlanLimit,
    /// The event contradicts the state: an unknown or freed id, a release without a retain, an op begun twice.
    Protocol(&'static str),
    /// Sizes or costs exceed what 63 bits hold, or more than 2^32 - 2 ids are asked for.
    Overflow,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Budget {
                budget,
                needed,
                smallest,
                ..
            } => {
                if needed > budget {
                    write!(f, "needs {needed} at once, the budget is {budget}")?;
                } else {
                    write!(
                        f,
                        "no order tried brings back what it reads within {budget}"
                    )?;
                }
                write!(
                    f,
                    "; the smallest budget known to work here is {smallest} ({} bytes)",
                    smallest.0
                )
            }
            Error::Thrash { replayed, limit } => {
                write!(
                    f,
                    "thrashing: {replayed} ns recomputed, the limit is {limit} ns; raise the budget or the thrash \
                     limit"
                )
            }
            Error::PlanLimit => write!(
                f,
                "no plan was found within the bound on planning work; raise the budget"
            ),
            Error::Protocol(what) => write!(f, "engine protocol: {what}"),
            Error::Overflow => write!(f, "sizes or counts beyond what the engine can hold"),
        }
    }
}

impl std::error::Error for Error {}
