//! The step that is planned, and its budgets.

use crate::arguments::PlanStep;
use crate::failure::Failure;
use crate::log;
use remat_core::Bytes;
use remat_sim::{Base, Budget, Program};
use remat_trace::Event;
use std::fmt::Display;
use std::path::Path;

/// A recorded step, as planners and as the engine take it.
pub(super) struct Recorded {
    pub(super) name: String,
    pub(super) events: Vec<Event>,
    pub(super) program: Program,
    pub(super) base: Base,
}

/// A budget, and the part of the memory without a limit that it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Asked {
    pub(super) bytes: Bytes,
    pub(super) ratio: f64,
}

/// The ratios of a curve.
const CURVE: [f64; 8] = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2];

impl Recorded {
    pub(super) fn read(path: &Path) -> Result<Recorded, Failure> {
        let name = path.display().to_string();
        let events = log::events(path)?;
        let program: Program = events.iter().collect();
        match program.base() {
            Ok(base) => Ok(Recorded {
                name,
                events,
                program,
                base,
            }),
            Err(unsound) => Err(Failure::Input(format!("{name}: {unsound}"))),
        }
    }

    /// A fault of this step.
    pub(super) fn fault(&self, reason: impl Display) -> Failure {
        Failure::Input(format!("{}: {reason}", self.name))
    }

    /// The budgets asked for, falling, each once.
    pub(super) fn budgets(&self, wanted: &PlanStep) -> Vec<Asked> {
        let ratios = match wanted.ratios.as_slice() {
            [] => &CURVE[..],
            given => given,
        };
        let of = |&ratio: &f64| Asked {
            bytes: Budget::Ratio(ratio).bytes(&self.base),
            ratio,
        };
        let mut budgets: Vec<Asked> = match wanted.budget {
            None => ratios.iter().map(of).collect(),
            Some(bytes) => vec![Asked {
                bytes,
                ratio: bytes.0 as f64 / self.base.memory.0.max(1) as f64,
            }],
        };
        budgets.sort_by_key(|budget| std::cmp::Reverse(budget.bytes));
        budgets.dedup_by_key(|budget| budget.bytes);
        budgets
    }
}
