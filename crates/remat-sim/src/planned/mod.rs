//! A recorded step run in the engine as a plan says, action by action.
//!
//! | file | concept |
//! | --- | --- |
//! | `plan` | plans, and why one does not fit a step |
//! | `shape` | the ops of a step as plans number them, and what is asked for between them |
//! | `fates` | when each storage is made and let go for the last time |
//! | `walk` | the engine, told the step as the plan has it |
//!
//! The plan decides when a storage is let go of, and the program's own references do not. So references move, as with
//! [selective recomputation](crate::Eviction::Selective): a storage is released where the plan drops it for the last
//! time. What cannot be made again goes once all that was computed from it and is there is pinned.

mod fates;
mod plan;
mod shape;
mod walk;

pub use plan::{Misfit, MisfitReason, Plan, PlanAction, PlannedArena};

use crate::run::Side;
use crate::{Base, Outcome, Program, Status};
use remat_core::{
    Arena, Bytes, Config, Cost, Dealloc, Lineage, Memory, Policy, ReplayOrder, ThrashLimit,
};
use std::time::Instant;
use walk::{Stopped, Walk};

impl Program {
    /// Runs the step in the engine as a plan says. The run is [`Ok`](Status::Ok) if the engine performed the plan to
    /// the letter: nothing else was evicted, run again, moved or placed elsewhere. Else it ends as
    /// [`Oom`](Status::Oom) where the engine would have to decide for itself, or as [`Thrash`](Status::Thrash) where
    /// more was recomputed than `thrash_limit` times [`Base::cost`].
    ///
    /// ```
    /// use remat_core::Bytes;
    /// use remat_sim::{Plan, PlanAction, Program, Status};
    /// use remat_trace::{Event, TraceOutput, TraceOutputKind};
    ///
    /// // Two results of 60 bytes each; the first is read again at the end.
    /// let op = |input, tensor| Event::Op {
    ///     name: "op".into(),
    ///     inputs: vec![input],
    ///     outputs: vec![TraceOutput { tensor, kind: TraceOutputKind::Fresh { bytes: 60, device: 0 } }],
    ///     workspace: 0, workspace_device: 0, cost: 5, replay: true,
    /// };
    /// let events = [
    ///     Event::Constant { tensor: 0, bytes: 10, device: 0 },
    ///     op(0, 1),
    ///     op(0, 2),
    ///     Event::Release { tensor: 2 },
    ///     Event::Pin { tensor: 1 },
    /// ];
    /// let program: Program = events.iter().collect();
    /// let actions = vec![
    ///     PlanAction::Run(0), PlanAction::Run(1), PlanAction::Drop(1), PlanAction::Run(2), PlanAction::Drop(2),
    ///     PlanAction::Run(1),
    /// ];
    /// let plan = Plan { budget: Bytes(70), actions, arena: None };
    /// let outcome = program.run_plan(&program.base()?, &plan, 1.0)?;
    /// assert_eq!((outcome.status, outcome.counters.replays, outcome.peak), (Status::Ok, 1, Bytes(70)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Misfit`] for a plan of another step.
    pub fn run_plan(&self, base: &Base, plan: &Plan, thrash_limit: f64) -> Result<Outcome, Misfit> {
        let started = Instant::now();
        let limit = Cost(crate::run::scaled(base.cost.0, thrash_limit));
        let budget = plan.memory();
        let config = config(plan, budget, limit);
        let shape = shape::Shape::of(self.recorded());
        let fates = fates::fates(&shape, &plan.actions)?;
        let mut walk = Walk::new(self.recorded(), &shape, &fates, plan, config);
        let status = match walk.run() {
            Ok(()) => Status::Ok,
            Err(Stopped::Short) => Status::Oom,
            Err(Stopped::Thrash) => Status::Thrash,
            Err(Stopped::Misfit(misfit)) => return Err(misfit),
        };
        let end = Side::of(&walk.engine, status);
        Ok(Outcome {
            status,
            budget,
            clock: end.clock,
            peak: end.peak,
            counters: end.counters,
            wall: started.elapsed(),
            search_time: 0,
        })
    }
}

/// The engine's setting. The policy is never asked in a run that is as planned.
fn config(plan: &Plan, budget: Bytes, limit: Cost) -> Config {
    Config {
        budgets: vec![Some(budget)],
        policy: Policy::LRU,
        dealloc: Dealloc::Eager,
        lineage: Lineage::Collect,
        order: ReplayOrder::Dtr,
        thrash: ThrashLimit::Total(limit),
        seed: 0,
        memory: match &plan.arena {
            None => Memory::Fungible,
            Some(planned) => Memory::Arena(Arena {
                alignment: planned.alignment,
                ..Arena::default()
            }),
        },
        stopwatch: None,
    }
}
