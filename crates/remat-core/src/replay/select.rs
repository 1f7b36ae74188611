//! Finding an order of replays that fits ([`ReplayOrder::Fit`]): DTR's own first, then orders that hold less, down to one
//! that keeps nothing it does not need this moment. The peak of the last kind does not depend on the budget, so it is
//! measured without one; the smallest such peak is what a refusal names.

use crate::graph::Made;
use crate::replay::dtr::{Goal, Hold, InputOrder, Style, Thrift, Walk, DTR};
use crate::transaction::state::{State, Stop};
use crate::{Bytes, Error, OpId, PoolId, Refused, ReplayOrder, Step, TensorId};

const fn style(hold: Hold, order: InputOrder, thrift: Thrift) -> Style {
    Style {
        walk: Walk::Nested,
        hold,
        order,
        thrift,
        bound: 0,
    }
}

const fn once(order: InputOrder, thrift: Thrift) -> Style {
    Style {
        walk: Walk::Once,
        hold: Hold::Targets,
        order,
        thrift,
        bound: 0,
    }
}

/// The order with foresight, weighed against DTR's own.
const FORESIGHT: Style = once(InputOrder::HungriestFirst, Thrift::None);

/// Orders whose evictions the policy chooses.
const LEAN: [Style; 3] = [
    style(Hold::Nothing, InputOrder::HungriestFirst, Thrift::None),
    style(Hold::Targets, InputOrder::HungriestFirst, Thrift::Clear),
    style(Hold::Nothing, InputOrder::HungriestFirst, Thrift::Clear),
];

/// Orders that keep nothing beyond need.
const BARE: [Style; 6] = [
    once(InputOrder::HungriestFirst, Thrift::Bare),
    once(InputOrder::Given, Thrift::Bare),
    style(Hold::Targets, InputOrder::HungriestFirst, Thrift::Bare),
    style(Hold::Targets, InputOrder::HungriestLast, Thrift::Bare),
    style(Hold::Nothing, InputOrder::HungriestFirst, Thrift::Bare),
    style(Hold::Nothing, InputOrder::HungriestLast, Thrift::Bare),
];

/// How far beyond the budgets an order would go.
struct Excess {
    pools: usize,
    bytes: u64,
    pool: u8,
    peak: u64,
}

impl State {
    /// Lays out all steps to the goal, or refuses and leaves no trace.
    pub(crate) fn plan(&mut self, goal: &Goal) -> Result<(), Error> {
        let bound = match self.order {
            ReplayOrder::Dtr => DTR.bound,
            ReplayOrder::Fit => 20 * self.graph.live_ops as u64 + 10_000,
        };
        let dtr = Style { bound, ..DTR };
        let tried = self.try_order(goal, dtr);
        if self.order == ReplayOrder::Fit {
            match &tried {
                Ok(()) if self.replays_planned() => return self.plan_cheapest(goal, dtr),
                Err(Stop::Short(_) | Stop::Work) => {
                    for style in [FORESIGHT, self.ahead_style()] {
                        if self.try_order(goal, style).is_ok() {
                            return Ok(());
                        }
                    }
                }
                _ => {}
            }
        }
        match tried {
            Ok(()) => Ok(()),
            Err(Stop::Short(_) | Stop::Work) if self.order == ReplayOrder::Fit => {
                self.plan_lean(goal, dtr)
            }
            Err(Stop::Short(_)) => match self.measure(goal, dtr)? {
                Some(excess) if excess.pools == 0 && self.try_measured(goal, dtr).is_ok() => Ok(()),
                Some(excess) => Err(self.refusal(goal, &excess)),
                None => Err(error(Stop::Work)),
            },
            Err(stop) => Err(error(stop)),
        }
    }

    /// DTR's own order is laid out, with replays. Lays out three more plans: the order with foresight, and both orders with
    /// victims chosen as if all were equally stale (amid a long replay everything untouched is stale, whatever it is
    /// worth). Keeps the plan that costs least; of equals the first.
    fn plan_cheapest(&mut self, goal: &Goal, dtr: Style) -> Result<(), Error> {
        let own = self.rule.form;
        let mut best = (self.planned_cost(), own, dtr);
        self.roll_back();
        let ageless = own.without_staleness();
        for (form, style) in [(own, FORESIGHT), (ageless, dtr), (ageless, FORESIGHT)] {
            if form == own && style == dtr {
                continue;
            }
            self.rule.form = form;
            if self.try_order(goal, style).is_ok() {
                let cost = self.planned_cost();
                if cost < best.0 {
                    best = (cost, form, style);
                }
                self.roll_back();
            }
        }
        self.rule.form = best.1;
        let result = self.try_order(goal, best.2).map_err(error);
        self.rule.form = own;
        result
    }

    fn replays_planned(&self) -> bool {
        self.steps
            .iter()
            .any(|step| matches!(step, Step::Recompute { .. }))
    }

    /// What the plan costs, amortized: with what is missing for a potential, a replay is paid for by what it brings back,
    /// and what remains is what the plan evicts, each at the cost that the policy counted when it chose it.
    fn planned_cost(&self) -> i64 {
        if self.arenas.any() {
            return self.cost_of_evicted();
        }
        let storages = &self.graph.storages;
        self.steps.iter().fold(0, |sum: i64, step| match *step {
            Step::Evict(s) if storages[s.index()].live_views > 0 => {
                sum.saturating_add(storages[s.index()].numerator)
            }
            _ => sum,
        })
    }

    fn plan_lean(&mut self, goal: &Goal, dtr: Style) -> Result<(), Error> {
        let bound = dtr.bound;
        for style in LEAN {
            if self.try_order(goal, Style { bound, ..style }).is_ok() {
                return Ok(());
            }
        }
        let mut least: Option<Excess> = None;
        let mut stopped = Stop::Work;
        for style in BARE
            .map(|style| Style { bound, ..style })
            .into_iter()
            .chain([dtr])
        {
            let Some(excess) = self.measure(goal, style)? else {
                continue;
            };
            if excess.pools == 0 {
                match self.try_measured(goal, style) {
                    Ok(()) => return Ok(()),
                    Err(stop) => stopped = stop,
                }
                continue;
            }
            if least
                .as_ref()
                .is_none_or(|least| (excess.pools, excess.bytes) < (least.pools, least.bytes))
            {
                least = Some(excess);
            }
        }
        Err(match least {
            Some(mut least) => {
                self.tighten(goal, &mut least);
                self.refusal(goal, &least)
            }
            None => error(stopped),
        })
    }

    /// One attempt inside the budgets; without trace if it fails.
    fn try_order(&mut self, goal: &Goal, style: Style) -> Result<(), Stop> {
        self.journal.start();
        let result = self.attempt(goal, style);
        if result.is_err() {
            if style.hold == Hold::All {
                self.note_refused();
            }
            self.roll_back();
        } else {
            self.journal.mark();
        }
        result
    }

    /// [`try_order`](Self::try_order) of what was measured and fits: in arenas placed as it was then.
    fn try_measured(&mut self, goal: &Goal, style: Style) -> Result<(), Stop> {
        self.arenas.from_below = true;
        let result = self.try_order(goal, style);
        self.arenas.from_below = false;
        result
    }

    /// Remembers where a plan got stuck, before it is rolled back.
    pub(crate) fn note_refused(&mut self) {
        self.refused = Some(Refused {
            clock: self.clock,
            counters: self.counters,
            peak: Bytes(self.pools.first().map_or(0, |pool| pool.peak)),
        });
    }

    /// Nothing held for later, victims chosen by when the plan reads them next; for a few replays an op.
    fn ahead_style(&self) -> Style {
        Style {
            walk: Walk::Ahead,
            hold: Hold::Nothing,
            order: InputOrder::HungriestFirst,
            thrift: Thrift::None,
            bound: 10 * self.graph.live_ops as u64 + 500,
        }
    }

    /// Looks for a smaller budget that will do, by bisection between the one in force and the smallest known.
    fn tighten(&mut self, goal: &Goal, least: &mut Excess) {
        const ROUNDS: u32 = 6;
        let pool = usize::from(least.pool);
        let Some(budget) = self.pools[pool].budget.filter(|_| least.pools == 1) else {
            return;
        };
        let mut short = budget.max(self.needed(goal, least.pool).saturating_sub(1));
        for _ in 0..ROUNDS {
            let middle = short + least.peak.saturating_sub(short) / 2;
            if middle <= short {
                break;
            }
            self.set_limit(pool, middle);
            if self.try_order(goal, self.ahead_style()).is_ok() {
                self.roll_back();
                least.peak = middle;
            } else {
                short = middle;
            }
        }
        self.set_limit(pool, budget);
    }

    /// How far beyond the budgets an order goes, whatever it replays; `None` when it takes too long.
    ///
    /// # Errors
    /// What no budget helps against.
    fn measure(&mut self, goal: &Goal, style: Style) -> Result<Option<Excess>, Error> {
        self.journal.start();
        self.lift_limits();
        let result = self.attempt(goal, style);
        let mut excess = Excess {
            pools: 0,
            bytes: 0,
            pool: 0,
            peak: 0,
        };
        for (index, pool) in self.pools.iter().enumerate().rev() {
            let over = pool.high.saturating_sub(pool.budget.unwrap_or(u64::MAX));
            if over > 0 {
                excess = Excess {
                    pools: excess.pools + 1,
                    bytes: excess.bytes.saturating_add(over),
                    pool: index as u8,
                    peak: pool.high,
                };
            }
        }
        self.roll_back();
        self.restore_limits();
        match result {
            Ok(()) => Ok(Some(excess)),
            Err(Stop::Short(_) | Stop::Work) => Ok(None),
            Err(stop) => Err(error(stop)),
        }
    }

    /// A refusal for want of bytes in the pool that the leanest order found exceeds.
    fn refusal(&self, goal: &Goal, least: &Excess) -> Error {
        let budget = self.pools[usize::from(least.pool)].budget;
        let budget = budget.unwrap_or(u64::MAX);
        let needed = self.needed(goal, least.pool);
        // An arena in which all would fit were it placed otherwise.
        let beside = budget.saturating_add(needed);
        Error::Budget {
            pool: PoolId(least.pool),
            budget: Bytes(budget),
            needed: Bytes(needed),
            smallest: Bytes(if least.pools == 0 { beside } else { least.peak }),
        }
    }

    /// Bytes of a pool that must be there at once for the goal itself: what is pinned, targets, outputs, workspace.
    fn needed(&self, goal: &Goal, pool: u8) -> u64 {
        let graph = &self.graph;
        let mut held: Vec<_> = goal
            .targets
            .iter()
            .map(|&target| graph.storage_of(target))
            .collect();
        held.sort_unstable();
        held.dedup();
        let pinned = graph
            .storages
            .iter()
            .filter(|storage| storage.used && storage.pinned);
        let inputs = held
            .iter()
            .map(|s| &graph.storages[s.index()])
            .filter(|storage| !storage.pinned);
        let there = pinned.chain(inputs).filter(|storage| storage.pool == pool);
        let mut sum = there.fold(0u64, |sum, storage| sum.saturating_add(storage.bytes));
        if let Some(op) = goal.op.map(|op| &graph.ops[op.index()]) {
            for (output, made) in op.outputs.iter().zip(&op.made) {
                let storage = &graph.storages[graph.storage_of(*output).index()];
                if *made == Made::Fresh && storage.pool == pool {
                    sum = sum.saturating_add(storage.bytes);
                }
            }
            if op.workspace_pool == pool {
                sum = sum.saturating_add(op.workspace);
            }
        }
        sum
    }

    /// Estimates, for every missing ancestor's op, the bytes that bringing its outputs back takes beyond what is there:
    /// Sethi and Ullman's numbering, exact on trees.
    pub(crate) fn estimate_needs(&mut self, targets: &[TensorId]) {
        let stamp = self.graph.new_stamp();
        self.replays.estimate_stamp = stamp;
        let mut stack = std::mem::take(&mut self.replays.estimated);
        stack.clear();
        stack.extend(
            targets
                .iter()
                .filter_map(|&target| self.missing_source(target))
                .map(|op| (op, false)),
        );
        while let Some((op, inputs_done)) = stack.pop() {
            if inputs_done {
                let estimate = self.estimate(op);
                self.graph.ops[op.index()].estimate = estimate;
            } else if std::mem::replace(&mut self.graph.ops[op.index()].stamp, stamp) != stamp {
                self.graph.ops[op.index()].estimate = 0;
                stack.push((op, true));
                for &input in &self.graph.ops[op.index()].inputs {
                    if let Some(source) = self.missing_source(input) {
                        if self.graph.ops[source.index()].stamp != stamp {
                            stack.push((source, false));
                        }
                    }
                }
            }
        }
        self.replays.estimated = stack;
    }

    /// The op that must run for a tensor that is not there.
    fn missing_source(&self, tensor: TensorId) -> Option<OpId> {
        let tensor = &self.graph.tensors[tensor.index()];
        if tensor.defined {
            None
        } else {
            tensor.op
        }
    }

    fn estimate(&mut self, op: OpId) -> u64 {
        let mut hunger = std::mem::take(&mut self.replays.hunger);
        hunger.clear();
        let record = &self.graph.ops[op.index()];
        for &input in &record.inputs {
            if !self.graph.is_defined(input) {
                hunger.push((
                    self.hunger(input),
                    self.graph.storages[self.graph.storage_of(input).index()].bytes,
                ));
            }
        }
        hunger.sort_unstable_by(|a, b| b.cmp(a));
        let (mut held, mut peak) = (0u64, 0u64);
        for &(beyond, bytes) in &hunger {
            peak = peak.max(held.saturating_add(beyond).saturating_add(bytes));
            held = held.saturating_add(bytes);
        }
        let mut own = record.workspace;
        for (output, made) in record.outputs.iter().zip(&record.made) {
            if *made != Made::Alias {
                own = own.saturating_add(
                    self.graph.storages[self.graph.storage_of(*output).index()].bytes,
                );
            }
        }
        self.replays.hunger = hunger;
        peak.max(held.saturating_add(own))
    }

    /// Bytes that bringing a tensor back takes beyond its own.
    pub(crate) fn hunger(&self, tensor: TensorId) -> u64 {
        let Some(op) = self.missing_source(tensor) else {
            return 0;
        };
        let op = &self.graph.ops[op.index()];
        if op.stamp != self.replays.estimate_stamp {
            return 0;
        }
        op.estimate
            .saturating_sub(self.graph.storages[self.graph.storage_of(tensor).index()].bytes)
    }
}

/// What the caller is told of a stop that no other order helps against.
pub(crate) fn error(stop: Stop) -> Error {
    match stop {
        Stop::Thrash { replayed, limit } => Error::Thrash { replayed, limit },
        Stop::Lost => Error::Protocol("a tensor whose value was overwritten for good is asked for"),
        Stop::Overflow => Error::Overflow,
        Stop::Short(_) | Stop::Work => Error::Protocol("the plan took more work than its bound"),
    }
}
