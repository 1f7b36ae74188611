//! All that the engine knows, and how a plan's changes to it are undone.

use crate::arena::blocks::Arenas;
use crate::eviction::candidates::Candidates;
use crate::eviction::components::Components;
use crate::eviction::multi_source::Together;
use crate::eviction::policy::{Draws, Numerator, Rule};
use crate::graph::{Graph, Phase, NONE};
use crate::journal::{Entry, Journal};
use crate::replay::belady::Ahead;
use crate::replay::dtr::Replays;
use crate::{
    Config, Counters, Dealloc, Lineage, OpId, Refused, ReplayOrder, Step, StorageId, TensorId,
    ThrashLimit,
};
use std::fmt;

/// Bytes of one pool, counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    pub(crate) budget: Option<u64>,
    /// Resident and reserved.
    pub(crate) memory: u64,
    pub(crate) peak: u64,
    /// Highest `memory` of the attempt under way.
    pub(crate) high: u64,
    /// Bytes sought by the op under way.
    pub(crate) need: u64,
}

/// Why a plan stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// No candidate is left in this pool.
    Short(u8),
    /// The thrash limit.
    Thrash { replayed: u64, limit: u64 },
    /// The attempt's work bound.
    Work,
    /// A value whose only source was overwritten is asked for.
    Lost,
    /// The clock would run past 63 bits.
    Overflow,
}

/// What the latest call that can be aborted was.
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

/// The engine's state.
pub(crate) struct State {
    pub(crate) graph: Graph,
    pub(crate) pools: Vec<Account>,
    pub(crate) clock: u64,
    pub(crate) counters: Counters,
    pub(crate) candidates: Candidates,
    pub(crate) components: Components,
    pub(crate) draws: Draws,
    pub(crate) journal: Journal,
    pub(crate) steps: Vec<Step>,
    pub(crate) replays: Replays,
    pub(crate) ahead: Ahead,
    pub(crate) arenas: Arenas,
    /// Budgets are not looked at: an attempt is measured.
    pub(crate) unlimited: bool,
    pub(crate) call: Call,
    pub(crate) refused: Option<Refused>,
    /// A numerator was ever computed; else there is none to void.
    pub(crate) scored: bool,
    /// Pinned by a plan that may still be aborted; their lineage is cut once it cannot.
    pub(crate) to_cut: Vec<StorageId>,
    /// Without references, and something computed from them came back: perhaps they can be banished now.
    pub(crate) to_banish: Vec<StorageId>,
    /// Tensors that nobody can ask for any more, to be followed up.
    pub(crate) dead: Vec<TensorId>,
    pub(crate) freed_ops: Vec<OpId>,
    pub(crate) freed_storages: Vec<StorageId>,
    pub(crate) freed_tensors: Vec<TensorId>,
    /// Scratch of walks over storages.
    pub(crate) walk: Vec<StorageId>,
    pub(crate) around: Vec<StorageId>,
    pub(crate) stale: Vec<StorageId>,
    pub(crate) together: Together,
    pub(crate) touched: Vec<u32>,
    pub(crate) rule: Rule,
    /// A storage is as stale as the least stale of its evicted neighbourhood (rule 15 of the reference).
    pub(crate) ages_together: bool,
    /// Announced results count in scores only from when they are next looked for, as in the authors' simulator.
    pub(crate) announces_late: bool,
    /// Ops begun and not yet completed.
    pub(crate) open_ops: u32,
    /// Ops begun so far: the number of the latest announcement.
    pub(crate) announcements: u64,
    pub(crate) dealloc: Dealloc,
    pub(crate) lineage: Lineage,
    pub(crate) order: ReplayOrder,
    pub(crate) thrash: ThrashLimit,
}

impl State {
    pub(crate) fn new(config: Config) -> State {
        let pools = config
            .budgets
            .iter()
            .map(|budget| Account {
                budget: budget.map(|bytes| bytes.0),
                ..Account::default()
            })
            .collect();
        let rule = config.policy.rule();
        State {
            graph: Graph::default(),
            pools,
            clock: 1,
            counters: Counters::default(),
            candidates: Candidates::default(),
            components: Components::default(),
            draws: Draws(config.seed),
            journal: Journal::default(),
            steps: Vec::new(),
            replays: Replays::default(),
            ahead: Ahead::default(),
            arenas: Arenas::new(&config),
            unlimited: false,
            call: Call::Plain,
            refused: None,
            scored: false,
            to_cut: Vec::new(),
            to_banish: Vec::new(),
            dead: Vec::new(),
            freed_ops: Vec::new(),
            freed_storages: Vec::new(),
            freed_tensors: Vec::new(),
            walk: Vec::new(),
            around: Vec::new(),
            stale: Vec::new(),
            together: Together::default(),
            touched: Vec::new(),
            rule,
            ages_together: config.dealloc == Dealloc::Banish
                && rule.numerator == Numerator::Neighbourhood,
            announces_late: config.lineage == Lineage::Keep && rule.numerator.is_exact(),
            open_ops: 0,
            announcements: 0,
            dealloc: config.dealloc,
            lineage: config.lineage,
            order: config.order,
            thrash: config.thrash,
        }
    }

    /// Forgets the call before this one: it can no longer be aborted.
    pub(crate) fn open_call(&mut self) {
        self.steps.clear();
        self.arenas.placements.clear();
        self.arenas.chosen.clear();
        self.journal.clear();
        self.components.sweep();
        self.call = Call::Plain;
    }

    /// The pool's record, made on first mention.
    pub(crate) fn pool(&mut self, pool: u8) -> &mut Account {
        let index = usize::from(pool);
        if index >= self.pools.len() {
            self.pools.resize(index + 1, Account::default());
        }
        &mut self.pools[index]
    }

    pub(crate) fn collects(&self) -> bool {
        self.lineage == Lineage::Collect
    }

    pub(crate) fn counts_components(&self) -> bool {
        self.rule.numerator == Numerator::Components
    }

    /// Goes back to an earlier length of the journal.
    pub(crate) fn undo_to(&mut self, length: usize) {
        while self.journal.entries.len() > length {
            if let Some(entry) = self.journal.entries.pop() {
                self.undo(entry);
            }
        }
        self.void_scored_since();
    }

    /// Goes back to before the plan.
    pub(crate) fn roll_back(&mut self) {
        self.undo_to(0);
        self.journal.clear();
        self.steps.clear();
        self.arenas.placements.clear();
        self.arenas.chosen.clear();
    }

    /// Numerators computed while the journal was on saw what is now undone. Older ones that are still valid saw nothing of
    /// it: what changed around them would have voided them, and so the state they were computed in is back.
    fn void_scored_since(&mut self) {
        while let Some(s) = self.journal.scored.pop() {
            self.void_numerator(s);
        }
    }

    fn undo(&mut self, entry: Entry) {
        match entry {
            Entry::Locked(s) => self.graph.storages[s.index()].locks -= 1,
            Entry::Unlocked(s) => self.graph.storages[s.index()].locks += 1,
            Entry::Listed(s) => self.unlist(s),
            Entry::Delisted(s, place) => self.relist(s, place),
            Entry::Accessed(s, before) => self.set_last_access(s, before),
            Entry::BecameResident(s) => self.graph.storages[s.index()].resident = false,
            Entry::BecameEvicted(s) => self.graph.storages[s.index()].resident = true,
            Entry::Pinned(s) => self.graph.storages[s.index()].pinned = false,
            Entry::Defined(t) => self.graph.tensors[t.index()].defined = false,
            Entry::Undefined(t) => self.graph.tensors[t.index()].defined = true,
            Entry::Memory(pool, before) => self.pool(pool).memory = before,
            Entry::Peak(pool, before) => self.pool(pool).peak = before,
            Entry::Replayed(op) => {
                let cost = self.graph.ops[op.index()].cost;
                self.clock -= cost;
                self.counters.replays -= 1;
                self.counters.replayed_cost.0 -= cost;
            }
            Entry::Searched(evaluations, accesses) => {
                self.counters.evictions -= 1;
                self.counters.searches -= 1;
                self.counters.score_evaluations -= u64::from(evaluations);
                self.counters.metadata_accesses -= accesses;
            }
            Entry::Drew(before) => self.draws = Draws(before),
            Entry::NodeMade(node) => self.components.unmake(node),
            Entry::Joined(child) => self.components.unjoin(child),
            Entry::Worth(root, delta) => self.components.add_worth(root, delta.wrapping_neg()),
            Entry::Looked(s, before) => self.graph.storages[s.index()].looked = before,
            Entry::Told(s, before) => self.graph.storages[s.index()].told = before,
            Entry::Node(s, before) => {
                let now = std::mem::replace(&mut self.graph.storages[s.index()].node, before);
                if now != NONE {
                    self.components.unpoint(now);
                }
                if before != NONE {
                    self.components.point(before);
                }
            }
            Entry::Taken(..)
            | Entry::Freed(..)
            | Entry::Address(..)
            | Entry::Counted
            | Entry::Capacity(..) => self.undo_block(entry),
        }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let graph = &self.graph;
        writeln!(
            f,
            "clock {} {:?} {:?}",
            self.clock, self.counters, self.draws
        )?;
        for (pool, record) in self.pools.iter().enumerate() {
            writeln!(
                f,
                "pool {pool} {:?} {} {}",
                record.budget, record.memory, record.peak
            )?;
        }
        for (id, s) in graph.storages.iter().enumerate().filter(|(_, s)| s.used) {
            let set = (s.node != NONE).then(|| {
                let root = self.components.root(s.node);
                (root, self.components.worth(root))
            });
            writeln!(
                f,
                "storage {id} {}@{} resident {} pinned {} locks {} refs {} live {} access {} cost {} set {set:?}",
                s.bytes, s.pool, s.resident, s.pinned, s.locks, s.refs, s.live_views, s.last_access, s.cost
            )?;
        }
        for (id, t) in graph.tensors.iter().enumerate().filter(|(_, t)| t.used) {
            writeln!(
                f,
                "tensor {id} {:?} {:?} {} {} {} {}",
                t.storage, t.op, t.refs, t.uses, t.defined, t.settled
            )?;
        }
        for (id, op) in graph
            .ops
            .iter()
            .enumerate()
            .filter(|(_, op)| op.phase != Phase::Free)
        {
            writeln!(
                f,
                "op {id} {:?} {:?} {:?} {:?} {}",
                op.phase, op.inputs, op.outputs, op.made, op.cost
            )?;
        }
        writeln!(
            f,
            "candidates {:?} next {}",
            self.candidates.in_order(),
            self.candidates.next_place()
        )?;
        self.arenas.fmt(f)?;
        writeln!(f, "to cut {:?}", self.to_cut)
    }
}
