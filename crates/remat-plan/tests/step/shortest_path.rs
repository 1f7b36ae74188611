//! The best order of all whose first runs are in program order: a shortest path over the states of memory.

use crate::numbered::{Made, Numbered, Request};
use remat_plan::step::Action;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// The state of memory after some actions. Sets are masks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct State {
    /// Ops that ran for the first time: all before this one.
    ran: usize,
    /// Storages in memory.
    present: u32,
    /// Storages that must stay.
    pinned: u32,
    /// Views made since their storage came into memory.
    views: u64,
    /// Requests before the next first run that were met since the last one.
    met: u64,
}

/// The cheapest actions within a budget, and the nanoseconds of their runs again.
#[derive(Debug)]
pub(crate) struct Best {
    pub(crate) recompute_ns: u64,
    pub(crate) actions: Vec<Action>,
}

/// The best order of a step within a budget, if there is one (Dijkstra's algorithm).
pub(crate) fn best_order(step: &Numbered, budget: u64) -> Option<Best> {
    assert!(step.storages.len() <= 32 && step.tensors.len() <= 64 && step.requests.len() <= 64);
    let memory = Memory { step, budget };
    let mut known: HashMap<State, (u64, Option<(State, Action)>)> = HashMap::new();
    let mut open = BinaryHeap::from([Reverse((0, State::default()))]);
    known.insert(State::default(), (0, None));
    while let Some(Reverse((cost, state))) = open.pop() {
        if known[&state].0 < cost {
            continue;
        }
        if memory.may_end(state) {
            let mut actions = Vec::new();
            let mut at = state;
            while let Some((before, action)) = known[&at].1 {
                actions.push(action);
                at = before;
            }
            actions.reverse();
            return Some(Best {
                recompute_ns: cost,
                actions,
            });
        }
        for (action, next, more) in memory.moves(state) {
            let better = known.get(&next).is_none_or(|&(old, _)| cost + more < old);
            if better {
                known.insert(next, (cost + more, Some((state, action))));
                open.push(Reverse((cost + more, next)));
            }
        }
    }
    None
}

/// The rules by which memory changes.
struct Memory<'a> {
    step: &'a Numbered,
    budget: u64,
}

impl Memory<'_> {
    fn moves(&self, state: State) -> Vec<(Action, State, u64)> {
        let mut moves = Vec::new();
        if state.ran < self.step.ops.len() {
            let next = self.first_run(state);
            moves.extend(next.map(|next| (Action::Run(state.ran as u32), next, 0)));
        }
        for op in (0..state.ran).filter(|&op| self.step.ops[op].repeatable) {
            for in_place in [false, true] {
                let action = if in_place {
                    Action::RunInPlace(op as u32)
                } else {
                    Action::Run(op as u32)
                };
                let next = self.run_again(state, op, in_place);
                moves.extend(next.map(|next| (action, next, self.step.ops[op].cost)));
            }
        }
        for storage in 0..self.step.storages.len() {
            let free = State {
                present: state.present & !(1 << storage),
                pinned: state.pinned & !(1 << storage),
                views: state.views & !self.views_of(storage),
                ..state
            };
            let there = state.present >> storage & 1 == 1;
            if there && !self.step.storages[storage].constant && !self.stays(state, storage) {
                moves.push((Action::Free(storage as u32), free, 0));
            }
        }
        moves
    }

    fn first_run(&self, state: State) -> Option<State> {
        let mut next = self.meet_requests(state)?;
        self.make(&mut next, state.ran, true)?;
        next.ran += 1;
        next.met = 0;
        for (index, request) in self.requests(next) {
            next.met |= u64::from(self.is_defined(next, request.tensor)) << index;
        }
        Some(next)
    }

    fn run_again(&self, state: State, op: usize, in_place: bool) -> Option<State> {
        let outputs = &self.step.ops[op].outputs;
        if in_place {
            let mut writes = 0;
            for &output in outputs {
                let tensor = self.step.tensors[output];
                if let Made::InPlace(old) = tensor.made {
                    writes += 1;
                    if state.present >> tensor.storage & 1 == 1 || self.stays(state, old) {
                        return None;
                    }
                }
            }
            (writes > 0).then_some(())?;
        }
        let mut next = state;
        self.make(&mut next, op, in_place)?;
        for (index, request) in self.requests(state) {
            let storage = self.step.tensors[request.tensor].storage;
            let made = outputs.contains(&request.tensor) && next.present >> storage & 1 == 1;
            next.met |= u64::from(made) << index;
        }
        Some(next)
    }

    /// Runs an op, if its inputs are there and its outputs fit.
    fn make(&self, state: &mut State, number: usize, in_place: bool) -> Option<()> {
        let op = &self.step.ops[number];
        let mut inputs = op.inputs.iter();
        inputs
            .all(|&input| self.is_defined(*state, input))
            .then_some(())?;
        let mut during = self.bytes(state.present) + op.workspace;
        for &output in &op.outputs {
            let tensor = self.step.tensors[output];
            match tensor.made {
                Made::View => continue,
                Made::InPlace(old) if in_place => {
                    state.present &= !(1 << old);
                    state.pinned &= !(1 << old);
                    state.views &= !self.views_of(old);
                }
                _ => during += self.step.storages[tensor.storage].bytes,
            }
            state.present |= 1 << tensor.storage;
        }
        for &output in &op.outputs {
            let tensor = self.step.tensors[output];
            if tensor.made == Made::View && state.present >> tensor.storage & 1 == 1 {
                state.views |= 1 << output;
            }
        }
        (during <= self.budget).then_some(())
    }

    fn may_end(&self, state: State) -> bool {
        let mut left = self.step.left.iter();
        state.ran == self.step.ops.len()
            && self.meet_requests(state).is_some()
            && left.all(|&tensor| self.is_defined(state, tensor))
    }

    /// Requests before the next first run.
    fn requests(&self, state: State) -> impl Iterator<Item = (usize, Request)> + '_ {
        let requests = self.step.requests.iter().copied().enumerate();
        requests.filter(move |(_, request)| request.before == state.ran)
    }

    fn meet_requests(&self, state: State) -> Option<State> {
        let mut next = state;
        for (index, request) in self.requests(state) {
            let storage = self.step.tensors[request.tensor].storage;
            if request.pins && !self.is_released(state, storage) {
                self.is_defined(state, request.tensor).then_some(())?;
                next.pinned |= 1 << storage;
            } else {
                let met = state.met >> index & 1 == 1;
                (met || (request.pins && self.is_defined(state, request.tensor))).then_some(())?;
            }
        }
        Some(next)
    }

    fn is_released(&self, state: State, storage: usize) -> bool {
        let released = self.step.storages[storage].released;
        released.is_some_and(|ops| ops <= state.ran)
    }

    fn stays(&self, state: State, storage: usize) -> bool {
        state.pinned >> storage & 1 == 1 && !self.is_released(state, storage)
    }

    fn is_defined(&self, state: State, tensor: usize) -> bool {
        let made = self.step.tensors[tensor];
        state.present >> made.storage & 1 == 1
            && (made.made != Made::View || state.views >> tensor & 1 == 1)
    }

    fn views_of(&self, storage: usize) -> u64 {
        let tensors = self.step.tensors.iter().enumerate();
        tensors
            .filter(|(_, tensor)| tensor.storage == storage && tensor.made == Made::View)
            .map(|(number, _)| 1 << number)
            .sum()
    }

    fn bytes(&self, present: u32) -> u64 {
        let storages = self.step.storages.iter().enumerate();
        storages
            .filter(|(number, _)| present >> number & 1 == 1)
            .map(|(_, storage)| storage.bytes)
            .sum()
    }
}
