//! All that the engine knows.

use super::accounts::Accounts;
use crate::StorageId;
use crate::arena::{Arenas, Demand};
use crate::config::{Config, Dealloc, Lineage};
use crate::counters::{Counters, Refused};
use crate::eviction::{Eviction, Reference};
use crate::graph::{Collection, Graph, NONE, Phase};
use crate::ids::{Bytes, OpId, TensorId};
use crate::journal::Journal;
use crate::op::Step;
use std::fmt;

/// Why a plan stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// No candidate is left on this device.
    Short(u8),
    /// The thrash limit.
    Thrash { replayed: u64, limit: u64 },
    /// The attempt's work bound.
    Work,
    /// Another plan costs no more.
    Dear,
    /// A value whose only source was overwritten is asked for.
    Lost,
    /// The clock would run past 63 bits.
    Overflow,
}

/// The latest call, as far as it can be aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Nothing to abort.
    Plain,
    /// A `begin`; aborting it cancels the op.
    Begin(OpId),
    /// A plan without an op.
    Plan,
    /// A `set_budget`; the budget before.
    Budget(u8, Option<u64>),
    /// A `constant`.
    Constant(TensorId),
}

/// The engine's state: the parts that own the data, and the plan under way.
pub(crate) struct State {
    pub(crate) graph: Graph,
    pub(crate) eviction: Eviction,
    pub(crate) arenas: Arenas,
    /// Blocks sought by the op under way.
    pub(crate) demand: Demand,
    pub(crate) accounts: Accounts,
    pub(crate) collection: Collection,
    pub(crate) journal: Journal,
    /// The plan.
    pub(crate) steps: Vec<Step>,
    pub(crate) clock: u64,
    pub(crate) counters: Counters,
    pub(crate) call: Call,
    pub(crate) refused: Option<Refused>,
    pub(crate) dealloc: Dealloc,
    /// Storages without references of which a dependent came back: perhaps they can be banished now.
    pub(super) to_banish: Vec<StorageId>,
}

impl State {
    pub(crate) fn new(config: &Config) -> State {
        let rule = config.policy.rule();
        let reference = Reference {
            banishes: config.dealloc == Dealloc::Banish,
            keeps_lineage: config.lineage == Lineage::Keep,
        };
        let budgets = config.budgets.iter();
        State {
            graph: Graph::default(),
            eviction: Eviction::new(&rule, config.seed, reference),
            arenas: Arenas::new(config, rule.gaps),
            demand: Demand::new(config, rule.window),
            accounts: Accounts::new(budgets.map(|budget| budget.map(|bytes| bytes.0))),
            collection: Collection::new(config.lineage),
            journal: Journal::default(),
            steps: Vec::new(),
            clock: 1,
            counters: Counters::default(),
            call: Call::Plain,
            refused: None,
            dealloc: config.dealloc,
            to_banish: Vec::new(),
        }
    }

    /// Forgets the call before this one: it can no longer be aborted.
    pub(crate) fn open_call(&mut self) {
        self.forget_plan();
        self.demand.turn_planned();
        self.collection.pinned.clear();
        self.eviction.components.sweep();
        self.call = Call::Plain;
    }

    /// The steps laid out so far are not performed.
    pub(super) fn forget_plan(&mut self) {
        self.steps.clear();
        self.demand.forget_plan();
        self.journal.clear();
    }

    /// Remembers where a plan got stuck, before it is rolled back.
    pub(crate) fn note_refused(&mut self) {
        self.refused = Some(Refused {
            clock: self.clock,
            counters: self.counters,
            peak: Bytes(self.accounts.get(0).peak),
        });
    }

    fn write_graph(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let graph = &self.graph;
        let components = &self.eviction.components;
        for (id, s) in graph.storages.iter().enumerate().filter(|(_, s)| s.used) {
            let set = (s.node != NONE).then(|| {
                let root = components.root(s.node);
                (root, components.cost(root))
            });
            writeln!(
                f,
                "storage {id} {}@{} resident {} pinned {} kept {} locks {} refs {} live {} access {} cost {} \
                 set {set:?}",
                s.bytes,
                s.device,
                s.resident,
                s.pinned,
                s.kept,
                s.locks,
                s.refs,
                s.live_views,
                s.last_access,
                s.cost
            )?;
        }
        for (id, t) in graph.tensors.iter().enumerate().filter(|(_, t)| t.used) {
            writeln!(
                f,
                "tensor {id} {:?} {:?} {} {} {} {}",
                t.storage, t.op, t.refs, t.uses, t.defined, t.settled
            )?;
        }
        let ops = graph.ops.iter().enumerate();
        for (id, op) in ops.filter(|(_, op)| op.phase != Phase::Free) {
            writeln!(
                f,
                "op {id} {:?} {:?} {:?} {:?} {}",
                op.phase, op.inputs, op.outputs, op.made, op.cost
            )?;
        }
        Ok(())
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let eviction = &self.eviction;
        writeln!(
            f,
            "clock {} {:?} {:?}",
            self.clock, self.counters, eviction.draws
        )?;
        for (device, account) in self.accounts.all().iter().enumerate() {
            writeln!(
                f,
                "device {device} {:?} {} {}",
                account.budget, account.memory, account.peak
            )?;
        }
        self.write_graph(f)?;
        writeln!(
            f,
            "candidates {:?} next {}",
            eviction.candidates.in_order(),
            eviction.candidates.next_place()
        )?;
        self.arenas.fmt(f)?;
        writeln!(f, "to cut {:?}", self.collection.to_cut)
    }
}
