//! When a plan makes each storage for the last time, and whether a run again writes over it.

use super::plan::{Misfit, MisfitReason, PlanAction};
use super::shape::{How, Shape};

/// The end of a storage in a plan; actions by their indices.
#[derive(Clone, Copy, Default)]
pub(super) struct Fate {
    /// The last run that makes it.
    pub(super) made: usize,
    /// A run again takes its block after that.
    pub(super) overwritten: bool,
}

impl Fate {
    /// Whether no later action than this one makes it.
    pub(super) fn is_final(&self, action: usize) -> bool {
        self.made <= action
    }
}

/// The fate of each storage. Checks the numbers of ops and storages, and the order of first runs.
pub(super) fn fates(shape: &Shape, actions: &[PlanAction]) -> Result<Vec<Fate>, Misfit> {
    let mut fates = vec![Fate::default(); shape.storages.len()];
    let mut ran = 0;
    for (index, &action) in actions.iter().enumerate() {
        let unfit = |reason| Misfit {
            action: index,
            reason,
        };
        let (op, in_place) = match action {
            PlanAction::Drop(storage) if (storage as usize) < fates.len() => continue,
            PlanAction::Drop(_) => return Err(unfit(MisfitReason::NoSuchStorage(fates.len()))),
            PlanAction::Run(op) => (op as usize, false),
            PlanAction::RunInPlace(op) => (op as usize, true),
        };
        let ops = &shape.ops;
        let planned = ops
            .get(op)
            .ok_or(unfit(MisfitReason::NoSuchOp(ops.len())))?;
        if op > ran {
            return Err(unfit(MisfitReason::NotYet(ran)));
        }
        let first = op == ran;
        ran += usize::from(first);
        for made in &planned.outputs {
            match made.how {
                How::View => continue,
                How::InPlace(old) if in_place && !first => {
                    fates[old as usize].overwritten = true;
                }
                How::Fresh | How::InPlace(_) => {}
            }
            fates[made.storage as usize] = Fate {
                made: index,
                overwritten: false,
            };
        }
    }
    match ran {
        all if all == shape.ops.len() => Ok(fates),
        ran => Err(Misfit {
            action: actions.len(),
            reason: MisfitReason::NotYet(ran),
        }),
    }
}
