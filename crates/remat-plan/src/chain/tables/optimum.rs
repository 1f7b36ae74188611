//! The optimum of a class of plans: tables filled, plans read off them and counted in bytes.

use crate::chain::model::chain::Chain;
use crate::chain::model::cost::{Cost, Costed, cost_of};
use crate::chain::model::error::PlanError;
use crate::chain::model::progress::{Pace, Progress};
use crate::chain::model::sequence::Op;
use crate::chain::model::sizes::Sizes;
use crate::chain::model::strategy::Resolution;
use crate::chain::recurrences::program::{Class, Program};
use crate::chain::recurrences::recurrence::Recurrence;
use crate::chain::tables::exact::Exact;
use crate::chain::tables::slots::Slots;
use crate::chain::tables::smallest::Smallest;
use crate::chain::tables::table::{Table, sequence};

/// Bytes that tables may take.
const TABLE_BYTES: u64 = 4 << 30;

/// Bytes of a row of an exact table, as a low estimate for chains whose sizes differ.
const EXACT_ROW: u128 = 1 << 10;

/// The memory that a plan by the table of the least memory may take.
#[derive(Clone, Copy)]
enum Room {
    /// The budget.
    All,
    /// No more than it needs.
    Least,
}

/// A chain to plan, within a budget and a class of plans.
pub(crate) struct Problem<'a> {
    pub(crate) chain: &'a Chain,
    /// The largest budget, in bytes.
    pub(crate) budget: u64,
    pub(crate) class: Class,
    pub(crate) resolution: Resolution,
    /// Name of the strategy.
    pub(crate) name: &'a str,
}

impl Problem<'_> {
    /// The best plan within the budget.
    pub(crate) fn best(&self, progress: &mut Progress) -> Result<Costed, PlanError> {
        if let Some(fastest) = self.fastest() {
            return Ok(fastest);
        }
        self.check_size()?;
        match self.resolution {
            Resolution::Exact => self.best_exact(progress),
            Resolution::Slots(count) => self.best_by_slots(count.get(), progress),
        }
    }

    /// Costs of plans for all budgets up to the largest, from one table.
    pub(crate) fn curve(&self, progress: &mut Progress) -> Result<Vec<Cost>, PlanError> {
        self.check_size()?;
        let fastest = self.fastest().into_iter();
        let mut costs: Vec<Cost> = fastest.map(|(_, cost)| cost).collect();
        match self.resolution {
            Resolution::Exact => self.curve_exact(&mut costs, progress)?,
            Resolution::Slots(count) => self.curve_by_slots(count.get(), &mut costs, progress)?,
        }
        costs.push(self.smallest(progress, Room::Least)?.1);
        Ok(costs)
    }

    /// The plan that no memory makes faster, if it fits.
    fn fastest(&self) -> Option<Costed> {
        let costed = self.costed(self.class.fastest(self.chain.len()));
        (costed.1.peak <= self.budget).then_some(costed)
    }

    fn costed(&self, ops: Vec<Op>) -> Costed {
        let cost = cost_of(self.chain, &ops);
        (ops, cost)
    }

    fn check_size(&self) -> Result<(), PlanError> {
        let states = self.class.states(self.chain.len());
        let needed = match self.resolution {
            Resolution::Exact => Smallest::bytes(states).max(states * EXACT_ROW),
            Resolution::Slots(count) => {
                Slots::bytes(states, count.get()).max(Smallest::bytes(states))
            }
        };
        if needed <= u128::from(TABLE_BYTES) {
            return Ok(());
        }
        let fitting = (1..=500).rev().find(|&slots| {
            Slots::bytes(states, slots).max(Smallest::bytes(states)) <= TABLE_BYTES.into()
        });
        Err(PlanError::TooLarge {
            strategy: self.name.to_owned(),
            stages: self.chain.len(),
            needed,
            limit: TABLE_BYTES,
            slots: fitting.filter(|&slots| slots >= 20),
        })
    }

    fn best_exact(&self, progress: &mut Progress) -> Result<Costed, PlanError> {
        let best = self.exactly(progress, |program, table| {
            sequence(program, table, as_units(self.budget))
        })?;
        match best {
            Some(ops) => Ok(self.costed(ops)),
            None => self.smallest(progress, Room::All),
        }
    }

    fn curve_exact(&self, costs: &mut Vec<Cost>, progress: &mut Progress) -> Result<(), PlanError> {
        self.exactly(progress, |program, table| {
            let corners = table.row(program.root()).iter();
            costs.extend(corners.map(|corner| Cost {
                makespan: corner.time,
                peak: corner.bytes as u64,
            }));
            Ok(())
        })
    }

    /// Fills a table by exact bytes and reads something off it.
    fn exactly<T>(
        &self,
        progress: &mut Progress,
        read: impl FnOnce(&Program, &Exact) -> Result<T, PlanError>,
    ) -> Result<T, PlanError> {
        let sizes = Sizes::new(self.chain, 1);
        let program = self.class.program(self.chain, &sizes);
        let most = as_units(self.budget).saturating_add(sizes.excess());
        let table = Exact::fill(&program, most, &mut Pace::new(progress, program.states()))?;
        read(&program, &table)
    }

    /// The best plan by slots. Sizes in slots are rounded up, so that a plan takes less than the table says, and a
    /// plan of more slots than the budget has may fit. The table therefore goes on beyond the budget, and its plans
    /// are counted in bytes.
    fn best_by_slots(&self, count: usize, progress: &mut Progress) -> Result<Costed, PlanError> {
        let mut best: Option<Costed> = None;
        self.by_slots(count, progress, |program, table, sizes| {
            // From the slots that fit in the budget when rounded up, to the end of the table.
            let (mut low, mut high) = (sizes.whole_units(self.budget), table.top());
            while low <= high {
                let x = low + (high - low) / 2;
                match sequence(program, table, x)?.map(|ops| self.costed(ops)) {
                    None => low = x + 1,
                    Some(plan) if plan.1.peak > self.budget => high = x - 1,
                    Some(plan) => {
                        low = x + 1;
                        let better = |best: &Costed| plan.1.makespan < best.1.makespan;
                        if best.as_ref().is_none_or(better) {
                            best = Some(plan);
                        }
                    }
                }
            }
            Ok(())
        })?;
        match best {
            Some(best) => Ok(best),
            None => self.smallest(progress, Room::All),
        }
    }

    fn curve_by_slots(
        &self,
        count: usize,
        costs: &mut Vec<Cost>,
        progress: &mut Progress,
    ) -> Result<(), PlanError> {
        self.by_slots(count, progress, |program, table, _| {
            let mut before = f64::INFINITY;
            for x in 0..=table.top() {
                let time = table.time(program.root(), x);
                if time < before {
                    before = time;
                    let ops = sequence(program, table, x)?;
                    costs.extend(ops.map(|ops| cost_of(self.chain, &ops)));
                }
            }
            Ok(())
        })
    }

    /// Fills a table by slots and reads something off it.
    fn by_slots<T>(
        &self,
        count: usize,
        progress: &mut Progress,
        read: impl FnOnce(&Program, &Slots, &Sizes) -> Result<T, PlanError>,
    ) -> Result<T, PlanError> {
        let (sizes, top) = self.slots(count);
        let program = self.class.program(self.chain, &sizes);
        let table = Slots::fill(&program, top, &mut Pace::new(progress, program.states()))?;
        read(&program, &table, &sizes)
    }

    /// Sizes in slots, and the number of slots to plan for: those of the budget, and those that rounding up adds to
    /// all saved sets.
    fn slots(&self, count: usize) -> (Sizes, usize) {
        let unit = self.budget.div_ceil(count as u64).max(1);
        let (mut bytes, mut rounded) = (0u128, 0u128);
        for stage in self.chain.stages() {
            bytes += u128::from(stage.saved_bytes);
            rounded += u128::from(stage.saved_bytes.div_ceil(unit)) * u128::from(unit);
        }
        let wider = u128::from(self.budget) * rounded / bytes.max(1);
        let wider = wider
            .min(2 * u128::from(self.budget))
            .max(u128::from(self.budget));
        let unit = u64::try_from(wider.div_ceil(count as u128))
            .unwrap_or(u64::MAX)
            .max(1);
        let top = wider.div_ceil(unit.into()) as usize;
        (Sizes::new(self.chain, unit), top)
    }

    /// A plan by the table of the least memory, if that is within the budget.
    fn smallest(&self, progress: &mut Progress, room: Room) -> Result<Costed, PlanError> {
        let sizes = Sizes::new(self.chain, 1);
        let program = self.class.program(self.chain, &sizes);
        let table = Smallest::fill(&program, &mut Pace::new(progress, program.states()))?;
        let least = table.least(program.root());
        let budget = as_units(self.budget);
        let x = match room {
            Room::All => budget,
            Room::Least => budget.min(least),
        };
        match sequence(&program, &table, x)? {
            Some(ops) => Ok(self.costed(ops)),
            None => Err(PlanError::Infeasible {
                strategy: self.name.to_owned(),
                budget: self.budget,
                smallest: least as u64,
            }),
        }
    }
}

fn as_units(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
