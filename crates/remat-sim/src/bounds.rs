//! How far a budget can go down.

use crate::{Base, Budget, Program, Setting, Status, Unsound};
use remat_core::Bytes;

/// What the search for the smallest budget found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Smallest {
    /// The step runs in this budget; `None` if not even in four times its memory.
    pub works: Option<Bytes>,
    /// The largest budget below it that was tried and did not do, or 0.
    pub fails: Bytes,
    /// Runs that it took.
    pub runs: u32,
}

/// One run of a bisection.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// The budget that was tried.
    pub budget: Bytes,
    /// How the run ended.
    pub status: Status,
    /// Storages evicted to make room.
    pub evictions: u64,
}

/// Times the step's memory: budgets that a search begins with.
const FROM: [u64; 3] = [1, 2, 4];

impl Program {
    /// Looks for the smallest budget by bisection, to within so many bytes (at least 1). A budget does if the run ends
    /// [`Ok`](Status::Ok) under the setting's thrash limit.
    ///
    /// Feasibility need not be monotone: a policy may fail in a budget and succeed in a smaller one. So what holds is: the step
    /// runs in the budget given back, and does not run in one at most `within` bytes below it. Smaller ones that do may exist.
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

    /// Looks for the cutoff budget (Coop section 4.2) by bisection: something is evicted in it, to make room, and nothing in a budget at most
    /// `within` bytes above. `None` if something is evicted in four times the step's memory, 0 if nothing ever is.
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

/// Where a condition on budgets turns.
struct Turn {
    /// It does not hold here, or this is 0.
    fails: u64,
    /// It holds here.
    holds: Option<u64>,
}

/// A budget in which a condition holds and one at most `within` below in which it does not. `memory` is where the search begins.
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
    let Some(mut high) = high else {
        return Ok(Turn {
            fails: low,
            holds: None,
        });
    };
    while high - low > within.max(1) {
        let middle = low + (high - low) / 2;
        match holds(middle)? {
            true => high = middle,
            false => low = middle,
        }
    }
    Ok(Turn {
        fails: low,
        holds: Some(high),
    })
}
