//! Finding an order of replays that fits ([`ReplayOrder::Fit`]): DTR's own first, then orders that hold less, down to
//! one that keeps nothing it does not need this moment. The peak of the last kind does not depend on the budget, so it
//! is measured without one; the smallest such peak is what a refusal names.

use super::dtr::DTR;
use super::goal::{EarlyEviction, Goal, Hold, InputOrder, Order, Strategy};
use super::planner::Planner;
use super::refusal::{Excess, error, needed};
use crate::config::ReplayOrder;
use crate::error::Error;
use crate::op::Step;
use crate::transaction::{State, Stop};

const fn dtr(hold: Hold, inputs: InputOrder, early: EarlyEviction) -> Strategy {
    Strategy {
        hold,
        inputs,
        early,
        ..DTR
    }
}

const fn sethi_ullman(inputs: InputOrder, early: EarlyEviction) -> Strategy {
    Strategy {
        order: Order::SethiUllman,
        hold: Hold::Targets,
        inputs,
        early,
        bound: u64::MAX,
    }
}

/// The order that is weighed against DTR's own.
const FORESIGHT: Strategy = sethi_ullman(InputOrder::LargestNeedFirst, EarlyEviction::None);

/// Orders whose evictions the policy chooses.
const LEAN: [Strategy; 3] = {
    use {EarlyEviction as Early, InputOrder::LargestNeedFirst as Largest};
    [
        dtr(Hold::Nothing, Largest, Early::None),
        dtr(Hold::Targets, Largest, Early::AtStart),
        dtr(Hold::Nothing, Largest, Early::AtStart),
    ]
};

/// Orders that keep nothing beyond need.
const BARE: [Strategy; 6] = {
    use EarlyEviction::Always;
    use InputOrder::{Given, LargestNeedFirst as Largest, SmallestNeedFirst as Smallest};
    [
        sethi_ullman(Largest, Always),
        sethi_ullman(Given, Always),
        dtr(Hold::Targets, Largest, Always),
        dtr(Hold::Targets, Smallest, Always),
        dtr(Hold::Nothing, Largest, Always),
        dtr(Hold::Nothing, Smallest, Always),
    ]
};

/// Nothing held for later, victims chosen by when the plan reads them next; for a few replays an op.
fn belady(state: &State) -> Strategy {
    Strategy {
        order: Order::Belady,
        hold: Hold::Nothing,
        inputs: InputOrder::LargestNeedFirst,
        early: EarlyEviction::None,
        bound: 10 * state.graph.live_ops as u64 + 500,
    }
}

impl Planner {
    /// Lays out all steps to the goal, or refuses and leaves no trace.
    pub(crate) fn plan(&mut self, state: &mut State, goal: &Goal) -> Result<(), Error> {
        if state.reach_at_once(goal) {
            return Ok(());
        }
        state.plan_timed(|state| match self.order {
            ReplayOrder::Dtr => self.plan_dtr(state, goal),
            ReplayOrder::Fit => self.plan_fitting(state, goal),
        })
    }

    /// DTR's own order and no other.
    fn plan_dtr(&mut self, state: &mut State, goal: &Goal) -> Result<(), Error> {
        match self.try_order(state, goal, DTR) {
            Ok(()) => Ok(()),
            Err(Stop::Short(_)) => match self.measure(state, goal, DTR)? {
                Some(excess)
                    if excess.devices == 0 && self.try_measured(state, goal, DTR).is_ok() =>
                {
                    Ok(())
                }
                Some(excess) => Err(excess.refusal(state, goal)),
                None => Err(error(Stop::Work)),
            },
            Err(stop) => Err(error(stop)),
        }
    }

    fn plan_fitting(&mut self, state: &mut State, goal: &Goal) -> Result<(), Error> {
        let dtr = Strategy {
            bound: 20 * state.graph.live_ops as u64 + 10_000,
            ..DTR
        };
        match self.try_order(state, goal, dtr) {
            Ok(()) if replays(state) => self.plan_cheapest(state, goal, dtr),
            Ok(()) => Ok(()),
            Err(Stop::Short(_) | Stop::Work) => {
                for strategy in [FORESIGHT, belady(state)] {
                    if self.try_order(state, goal, strategy).is_ok() {
                        return Ok(());
                    }
                }
                self.plan_lean(state, goal, dtr)
            }
            Err(stop) => Err(error(stop)),
        }
    }

    /// DTR's own order is laid out, with replays. Where it evicts anything that costs, lays out three more plans: the
    /// order with foresight, and both orders with victims chosen as if all were equally stale (amid a long replay every
    /// untouched storage is stale, whatever it is worth). Keeps the plan that costs least; of equals the first. A plan
    /// is given up as soon as it costs as much as the best.
    fn plan_cheapest(
        &mut self,
        state: &mut State,
        goal: &Goal,
        dtr: Strategy,
    ) -> Result<(), Error> {
        let own = state.eviction.candidates.form;
        let ageless = own.without_staleness();
        let mut ways = vec![(own, FORESIGHT)];
        if ageless != own {
            ways.extend([(ageless, dtr), (ageless, FORESIGHT)]);
        }
        let mut best = (own, dtr);
        let mut laid_out = Some(best);
        state.demand.most = Some(state.demand.cost());
        for way in ways {
            if state.demand.most == Some(0) {
                break;
            }
            if laid_out.is_some() {
                state.roll_back();
            }
            laid_out = None;
            state.eviction.candidates.form = way.0;
            if self.try_order(state, goal, way.1).is_ok() {
                // It costs less than the best so far, or it would have been given up.
                state.demand.most = Some(state.demand.cost());
                best = way;
                laid_out = Some(way);
            }
        }
        state.demand.most = None;
        state.eviction.candidates.form = best.0;
        let result = if laid_out == Some(best) {
            Ok(())
        } else {
            if laid_out.is_some() {
                state.roll_back();
            }
            self.try_order(state, goal, best.1).map_err(error)
        };
        state.eviction.candidates.form = own;
        result
    }

    fn plan_lean(&mut self, state: &mut State, goal: &Goal, dtr: Strategy) -> Result<(), Error> {
        let bounded = |strategy| Strategy {
            bound: dtr.bound,
            ..strategy
        };
        for strategy in LEAN.map(bounded) {
            if self.try_order(state, goal, strategy).is_ok() {
                return Ok(());
            }
        }
        let mut least: Option<Excess> = None;
        let mut stopped = Stop::Work;
        for strategy in BARE.map(bounded).into_iter().chain([dtr]) {
            let Some(excess) = self.measure(state, goal, strategy)? else {
                continue;
            };
            if excess.devices == 0 {
                match self.try_measured(state, goal, strategy) {
                    Ok(()) => return Ok(()),
                    Err(stop) => stopped = stop,
                }
            } else if least
                .as_ref()
                .is_none_or(|least| excess.is_less_than(least))
            {
                least = Some(excess);
            }
        }
        let Some(mut least) = least else {
            return Err(error(stopped));
        };
        self.tighten(state, goal, &mut least);
        Err(least.refusal(state, goal))
    }

    /// Looks for a smaller budget that will do, by bisection between the one in force and the smallest known.
    fn tighten(&mut self, state: &mut State, goal: &Goal, least: &mut Excess) {
        const ROUNDS: u32 = 6;
        let device = least.device;
        let budget = state.accounts.get(device).budget;
        let Some(budget) = budget.filter(|_| least.devices == 1) else {
            return;
        };
        let mut short = budget.max(needed(state, goal, device).saturating_sub(1));
        for _ in 0..ROUNDS {
            let middle = short + least.peak.saturating_sub(short) / 2;
            if middle <= short {
                break;
            }
            state.set_limit(device, middle);
            if self.try_order(state, goal, belady(state)).is_ok() {
                state.roll_back();
                least.peak = middle;
            } else {
                short = middle;
            }
        }
        state.set_limit(device, budget);
    }
}

fn replays(state: &State) -> bool {
    let mut steps = state.steps.iter();
    steps.any(|step| matches!(step, Step::Recompute { .. }))
}
