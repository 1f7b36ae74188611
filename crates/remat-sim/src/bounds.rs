//! The smallest feasible budget and the cutoff budget of a step, by bisection.

use crate::drive::Unsound;
use crate::{Base, Budget, Program, Setting, Status};
use remat_core::Bytes;

/// The result of a search for the smallest budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Smallest {
    /// A budget in which the step runs; `None` if it does not run in four times its memory.
    pub works: Option<Bytes>,
    /// The largest smaller budget that failed, or 0.
    pub fails: Bytes,
    /// Runs of the search.
    pub runs: u32,
}

/// One run of a bisection.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// The budget tried.
    pub budget: Bytes,
    /// How the run ended.
    pub status: Status,
    /// Storages evicted to make room.
    pub evictions: u64,
}

/// Budgets that a search begins with, in multiples of the step's memory.
const FROM: [u64; 3] = [1, 2, 4];

impl Program {
    /// Searches the smallest budget by bisection, to within `within` bytes (at least 1). A budget works if the run ends
    /// [`Ok`](Status::Ok) under the setting's thrash limit.
    ///
    /// A policy may fail in one budget and succeed in a smaller one. So the search promises this much: the step runs in
    /// the budget returned, and fails in a budget at most `within` bytes below. A smaller budget that works may exist.
    ///
    /// # Errors
    /// [`Unsound`] if the events contradict one another.
    pub fn smallest_budget(
        &self,
        base: &Base,
        setting: &Setting,
        within: Bytes,
        mut seen: impl FnMut(Probe),
    ) -> Result<Smallest, Unsound> {
        let mut runs = 0;
        let found = bisect(base.memory.0, within.0, |budget| {
            let probe = self.probe(base, setting, budget)?;
            runs += 1;
            seen(probe);
            Ok(probe.status == Status::Ok)
        })?;
        Ok(Smallest {
            works: found.holds.map(Bytes),
            fails: Bytes(found.fails),
            runs,
        })
    }

    /// Searches the cutoff budget by bisection (Coop section 4.2): the engine evicts to make room in it, and evicts
    /// nothing in a budget at most `within` bytes above. `None` if it evicts in four times the step's memory; 0 if it
    /// never evicts.
    ///
    /// # Errors
    /// [`Unsound`] if the events contradict one another.
    pub fn cutoff_budget(
        &self,
        base: &Base,
        setting: &Setting,
        within: Bytes,
    ) -> Result<Option<Bytes>, Unsound> {
        let found = bisect(base.memory.0, within.0, |budget| {
            let probe = self.probe(base, setting, budget)?;
            Ok(probe.status == Status::Ok && probe.evictions == 0)
        })?;
        Ok(found.holds.map(|_| Bytes(found.fails)))
    }

    fn probe(&self, base: &Base, setting: &Setting, budget: u64) -> Result<Probe, Unsound> {
        let budget = Bytes(budget);
        let setting = Setting {
            budget: Budget::Bytes(budget),
            ..*setting
        };
        let outcome = self.run(base, &setting)?;
        Ok(Probe {
            budget,
            status: outcome.status,
            evictions: outcome.counters.evictions,
        })
    }
}

/// Two neighbouring budgets between which a condition turns.
struct Turn {
    /// The condition does not hold here, or this is 0.
    fails: u64,
    /// The condition holds here.
    holds: Option<u64>,
}

/// A budget in which a condition holds, and one at most `within` below in which it does not. The search begins at
/// `memory`.
fn bisect(
    memory: u64,
    within: u64,
    mut holds: impl FnMut(u64) -> Result<bool, Unsound>,
) -> Result<Turn, Unsound> {
    let (mut low, mut high) = (0, None);
    for times in FROM {
        let budget = memory.max(1).saturating_mul(times);
        if holds(budget)? {
            high = Some(budget);
            break;
        }
        low = budget;
    }
    let Some(high) = high else {
        return Ok(Turn {
            fails: low,
            holds: None,
        });
    };
    let (fails, high) = narrow(low, high, within, holds)?;
    Ok(Turn {
        fails,
        holds: Some(high),
    })
}

/// Brings a budget that fails and one that holds together, until they are `within` so many bytes of each other.
pub(crate) fn narrow(
    mut fails: u64,
    mut holds: u64,
    within: u64,
    mut does: impl FnMut(u64) -> Result<bool, Unsound>,
) -> Result<(u64, u64), Unsound> {
    while holds - fails > within.max(1) {
        let middle = fails + (holds - fails) / 2;
        if does(middle)? {
            holds = middle;
        } else {
            fails = middle;
        }
    }
    Ok((fails, holds))
}
