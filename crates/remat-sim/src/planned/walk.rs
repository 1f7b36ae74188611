//! The engine, told a step as a plan has it.

use super::fates::Fate;
use super::plan::{Misfit, MisfitReason, Plan, PlanAction};
use super::shape::{How, Kind, Made, PlannedOp, Shape};
use crate::recorded::{Mutations, Recorded};
use remat_core::{Config, Engine, Error, Finished, Planned, StorageId, TensorId};

/// Why a run ends before the plan does.
pub(super) enum Stopped {
    /// The engine would have to decide for itself.
    Short,
    /// The thrash limit.
    Thrash,
    Misfit(Misfit),
}

/// Which run of an op it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    First,
    Again,
    AgainInPlace,
}

/// A run of a plan so far.
pub(super) struct Walk<'a> {
    pub(super) engine: Engine,
    step: &'a Recorded,
    shape: &'a Shape,
    fates: &'a [Fate],
    plan: &'a Plan,
    /// Addresses of the blocks to come, if blocks have addresses.
    addresses: Option<&'a [u64]>,
    /// Ops that ran for the first time: all before this one.
    ran: usize,
    /// Runs again that the engine was told.
    again: u64,
    /// Storages dropped for the last time that cannot be made again, while what needs them is yet to be overwritten.
    held: Vec<u32>,
    /// Tensors that the program asks for before the next first run, and that were not there yet.
    asked: Vec<TensorId>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        step: &'a Recorded,
        shape: &'a Shape,
        fates: &'a [Fate],
        plan: &'a Plan,
        config: Config,
    ) -> Walk<'a> {
        let arena = plan.arena.as_ref();
        Walk {
            engine: Engine::new(config),
            step,
            shape,
            fates,
            plan,
            addresses: arena.map(|arena| &arena.addresses[..]),
            ran: 0,
            again: 0,
            held: Vec::new(),
            asked: Vec::new(),
        }
    }

    /// Performs all actions.
    pub(super) fn run(&mut self) -> Result<(), Stopped> {
        for (index, &action) in self.plan.actions.iter().enumerate() {
            match action {
                PlanAction::Drop(storage) => self.drop(index, storage)?,
                PlanAction::RunInPlace(op) if op as usize != self.ran => {
                    self.make(index, op, Run::AgainInPlace)?;
                }
                PlanAction::Run(op) | PlanAction::RunInPlace(op) if op as usize == self.ran => {
                    self.meet_asked(index)?;
                    self.make(index, op, Run::First)?;
                    self.asked.clone_from(&self.shape.ops[op as usize].asked);
                }
                PlanAction::Run(op) | PlanAction::RunInPlace(op) => {
                    self.make(index, op, Run::Again)?;
                }
            }
            self.note_asked(index)?;
        }
        self.meet_asked(self.plan.actions.len())
    }

    /// An op runs.
    fn make(&mut self, index: usize, number: u32, run: Run) -> Result<(), Stopped> {
        let op = &self.shape.ops[number as usize];
        let placed = self.place(index, op, run)?;
        match (op.kind, run) {
            (Kind::Constant(bytes, device), Run::First) => {
                let told = self.engine.constant(bytes, device).map(drop);
                self.settle(index, told)?;
            }
            (Kind::Op(id), Run::First) => {
                let (spec, expected) = self.step.op(id.0, Mutations::Recorded);
                let cost = expected.cost;
                let begun = self.engine.begin_expecting(&spec, expected);
                let id = self.settle(index, begun)?;
                let told = self.engine.finish(id, &Finished { cost, bytes: None });
                self.settle(index, told)?;
            }
            // A constant is always there.
            (Kind::Constant(..), _) => {}
            (Kind::Op(id), again) => {
                self.again += 1;
                let action = match again {
                    Run::AgainInPlace => Planned::RunInPlace(id),
                    Run::First | Run::Again => Planned::Run(id),
                };
                let told = self.engine.perform(action);
                self.settle(index, told)?;
            }
        }
        self.ran += usize::from(run == Run::First);
        self.check_placed(&placed)?;
        if run == Run::AgainInPlace {
            for storage in std::mem::take(&mut self.held) {
                self.cut(index, storage)?;
            }
        }
        self.let_go_of_old(index, op, run)
    }

    /// The engine's number of a storage that was made.
    fn storage(&self, storage: u32) -> Option<StorageId> {
        let &(_, tensor) = self.shape.storages[storage as usize].tensors.first()?;
        self.engine.storage(tensor)
    }

    fn is_there(&self, storage: u32) -> bool {
        let known = self.storage(storage);
        known.is_some_and(|storage| self.engine.is_resident(storage))
    }

    /// Tells where the run's blocks lie. Returns the addresses of storages that are not there yet.
    fn place(
        &mut self,
        index: usize,
        op: &PlannedOp,
        run: Run,
    ) -> Result<Vec<(u32, u64)>, Stopped> {
        let Some(addresses) = self.addresses else {
            return Ok(Vec::new());
        };
        let takes = |made: &&Made| match made.how {
            How::View => false,
            How::InPlace(_) if run != Run::Again => false,
            How::Fresh | How::InPlace(_) => self.shape.storages[made.storage as usize].bytes > 0,
        };
        let taken = op.outputs.iter().filter(takes);
        let taken: Vec<u32> = taken.map(|made| made.storage).collect();
        let blocks = taken.len() + usize::from(op.works);
        let (now, later) = addresses
            .split_at_checked(blocks)
            .ok_or_else(|| unfit(index, MisfitReason::NoAddress))?;
        self.addresses = Some(later);
        self.engine.place_next(now);
        let placed = taken.into_iter().zip(now.iter().copied());
        Ok(placed
            .filter(|&(storage, _)| !self.is_there(storage))
            .collect())
    }

    /// Checks that blocks lie where they were planned.
    fn check_placed(&self, placed: &[(u32, u64)]) -> Result<(), Stopped> {
        let there = |&(storage, address): &(u32, u64)| {
            let known = self.storage(storage);
            let lies = known.and_then(|storage| self.engine.address(storage));
            lies.is_none_or(|at| at == address)
        };
        if placed.iter().all(there) {
            Ok(())
        } else {
            Err(Stopped::Short)
        }
    }

    /// Releases the values that an op wrote over, if they are not made again.
    fn let_go_of_old(&mut self, index: usize, op: &PlannedOp, run: Run) -> Result<(), Stopped> {
        for made in &op.outputs {
            if let (How::InPlace(old), Run::First | Run::AgainInPlace) = (made.how, run) {
                if self.fates[old as usize].is_final(index) {
                    self.release(index, old)?;
                }
            }
        }
        Ok(())
    }

    fn drop(&mut self, index: usize, storage: u32) -> Result<(), Stopped> {
        let known = self.storage(storage);
        if self.fates[storage as usize].is_final(index) {
            if known.is_some_and(|known| self.engine.is_pinned(known)) {
                self.cut(index, storage)?;
            }
            self.release(index, storage)?;
            if self.is_there(storage) {
                self.held.push(storage);
            }
            Ok(())
        } else if let Some(known) = known {
            let told = self.engine.perform(Planned::Drop(known));
            self.settle(index, told)
        } else {
            Ok(())
        }
    }

    /// Pins what was computed from a storage that cannot be made again, so that the engine needs it no more.
    fn cut(&mut self, index: usize, storage: u32) -> Result<(), Stopped> {
        let mut gone = vec![storage];
        let mut seen = vec![false; self.shape.storages.len()];
        seen[storage as usize] = true;
        while let Some(storage) = gone.pop() {
            for &reader in &self.shape.storages[storage as usize].readers {
                if reader as usize >= self.ran {
                    continue;
                }
                for made in &self.shape.ops[reader as usize].outputs {
                    let overwritten = self.fates[made.storage as usize].overwritten;
                    if !self.engine.is_defined(made.tensor) {
                        if !std::mem::replace(&mut seen[made.storage as usize], true) {
                            gone.push(made.storage);
                        }
                    } else if !overwritten {
                        let told = self.engine.pin(made.tensor);
                        self.settle(index, told)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Lets go of all tensors of a storage.
    fn release(&mut self, index: usize, storage: u32) -> Result<(), Stopped> {
        for &(op, tensor) in &self.shape.storages[storage as usize].tensors {
            if (op as usize) < self.ran {
                let told = self.engine.release(tensor);
                self.settle(index, told)?;
            }
        }
        Ok(())
    }

    /// Tells the engine what the program reads or pins as soon as it is there: a plan may have it made for that, and
    /// dropped after it, before the next first run.
    fn note_asked(&mut self, index: usize) -> Result<(), Stopped> {
        let mut asked = std::mem::take(&mut self.asked);
        let mut there = Vec::new();
        asked.retain(|&tensor| {
            let defined = self.engine.is_defined(tensor);
            if defined {
                there.push(tensor);
            }
            !defined
        });
        self.asked = asked;
        self.ask(index, &there)
    }

    /// Tells what was never there.
    fn meet_asked(&mut self, index: usize) -> Result<(), Stopped> {
        let asked = std::mem::take(&mut self.asked);
        self.ask(index, &asked)
    }

    fn ask(&mut self, index: usize, tensors: &[TensorId]) -> Result<(), Stopped> {
        for &tensor in tensors {
            let told = self.engine.ensure(&[tensor]);
            self.settle(index, told)?;
        }
        Ok(())
    }

    /// The answer of the engine, if it did as it was told and no more.
    fn settle<T>(&self, index: usize, told: Result<T, Error>) -> Result<T, Stopped> {
        let counters = self.engine.counters();
        let decided = counters.searches + counters.shortages + counters.moved_bytes;
        match told {
            Ok(_) if decided > 0 || counters.replays > self.again => Err(Stopped::Short),
            Ok(told) => Ok(told),
            Err(Error::Budget { .. }) => Err(Stopped::Short),
            Err(Error::Thrash { .. }) => Err(Stopped::Thrash),
            Err(error) => Err(unfit(index, MisfitReason::Engine(error))),
        }
    }
}

fn unfit(action: usize, reason: MisfitReason) -> Stopped {
    Stopped::Misfit(Misfit { action, reason })
}
