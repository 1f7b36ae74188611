//! The walk that looks ahead: missing ancestors are replayed in the order of [`once`](crate::replay::sethi_ullman), but nothing is held
//! for its uses to come. When room is short, the storage goes that the plan reads last (Belady's rule, on the uses that the
//! plan knows); what was dropped too early is brought back by a line of its own. It finds room where the other walks
//! find none, at the price of replays: asked only when they fail.
//!
//! Lines wait on one stack, the next op on top, so that the uses of a storage are a stack as well: the latest registered
//! comes first. Time: a scan of the candidates for each eviction.

use crate::graph::NONE;
use crate::journal::Entry;
use crate::replay::dtr::{Goal, InputOrder, Style, Thrift};
use crate::transaction::state::{State, Stop};
use crate::{OpId, StorageId, TensorId};

/// An op that is to be replayed, or the goal.
#[derive(Clone, Copy)]
struct Waiting {
    /// `None`: the goal.
    replay: Option<(OpId, TensorId)>,
    /// Where its uses begin.
    uses: usize,
    /// What it and all below it cost.
    cost: u64,
}

#[derive(Clone, Copy)]
struct Use {
    storage: StorageId,
    /// The entry of the stack that reads the storage.
    reader: u32,
    /// The storage's use after this one.
    next: u32,
}

/// Stacks of the plan, kept from one to the next.
#[derive(Default)]
pub(crate) struct Ahead {
    /// A plan is being laid out this way: victims are chosen by the uses to come.
    pub(crate) on: bool,
    waiting: Vec<Waiting>,
    uses: Vec<Use>,
    /// The next use of each storage, by index.
    next: Vec<u32>,
    missing: Vec<TensorId>,
}

impl State {
    /// Lays out the plan; on failure the caller rolls back.
    pub(crate) fn attempt_ahead(&mut self, goal: &Goal, style: Style) -> Result<(), Stop> {
        for &input in &goal.targets[goal.inputs_from..] {
            self.touch(self.graph.storage_of(input));
        }
        self.pools
            .iter_mut()
            .for_each(|pool| pool.high = pool.memory);
        self.estimate_needs(&goal.targets);
        let ahead = &mut self.ahead;
        while let Some(old) = ahead.uses.pop() {
            ahead.next[old.storage.index()] = NONE;
        }
        ahead.waiting.clear();
        ahead.next.resize(self.graph.storages.len(), NONE);
        ahead.on = true;
        self.await_turn(None, &goal.targets);
        let result = self.run_ahead(goal, style);
        self.ahead.on = false;
        result?;
        self.make_room_for_op(goal.op)
    }

    fn run_ahead(&mut self, goal: &Goal, style: Style) -> Result<(), Stop> {
        let first = self.counters.replays;
        while let Some(&entry) = self.ahead.waiting.last() {
            match entry.replay {
                Some((op, _)) if !self.is_wanted_now(op) => self.take_turn(),
                _ if self.line_up_missing(entry, goal, style.order)? => {
                    if self.counters.replays - first >= style.bound {
                        return Err(Stop::Work);
                    }
                }
                Some((op, requested)) => {
                    self.take_turn();
                    self.replay_ahead(op, requested)?;
                }
                None => {
                    self.take_turn();
                    for &target in &goal.targets {
                        self.lock(self.graph.storage_of(target));
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether an output of the op is missing that the plan still reads.
    fn is_wanted_now(&self, op: OpId) -> bool {
        self.graph.ops[op.index()].outputs.iter().any(|&output| {
            let s = self.graph.storage_of(output);
            self.ahead.next[s.index()] != NONE && !self.graph.is_defined(output)
        })
    }

    /// Puts the ops that bring back what an entry misses on top of it; whether there were any.
    fn line_up_missing(
        &mut self,
        entry: Waiting,
        goal: &Goal,
        order: InputOrder,
    ) -> Result<bool, Stop> {
        let mut missing = std::mem::take(&mut self.ahead.missing);
        missing.clear();
        let inputs = match entry.replay {
            Some((op, _)) => &self.graph.ops[op.index()].inputs,
            None => &goal.targets,
        };
        missing.extend(
            inputs
                .iter()
                .filter(|&&input| !self.graph.is_defined(input)),
        );
        let result = self.line_up_ahead(&missing, order);
        self.ahead.missing = missing;
        result
    }

    fn line_up_ahead(&mut self, missing: &[TensorId], order: InputOrder) -> Result<bool, Stop> {
        if missing.is_empty() {
            return Ok(false);
        }
        let mut line = std::mem::take(&mut self.replays.line);
        let result = self.order_missing(&mut line, missing, order);
        for &(op, requested) in line.order.iter().rev() {
            let inputs = std::mem::take(&mut self.graph.ops[op.index()].inputs);
            self.await_turn(Some((op, requested)), &inputs);
            self.graph.ops[op.index()].inputs = inputs;
        }
        self.replays.line = line;
        result.map(|()| true)
    }

    fn await_turn(&mut self, replay: Option<(OpId, TensorId)>, inputs: &[TensorId]) {
        let reader = self.ahead.waiting.len() as u32;
        let below = self.ahead.waiting.last().map_or(0, |entry| entry.cost);
        let cost = replay.map_or(0, |(op, _)| self.graph.ops[op.index()].cost);
        let ahead = &mut self.ahead;
        ahead.waiting.push(Waiting {
            replay,
            uses: ahead.uses.len(),
            cost: below.saturating_add(cost),
        });
        for &input in inputs {
            let storage = self.graph.storage_of(input);
            let next = &mut ahead.next[storage.index()];
            ahead.uses.push(Use {
                storage,
                reader,
                next: *next,
            });
            *next = ahead.uses.len() as u32 - 1;
        }
    }

    /// Takes the top entry off, and its uses.
    fn take_turn(&mut self) {
        let ahead = &mut self.ahead;
        let Some(entry) = ahead.waiting.pop() else {
            return;
        };
        while ahead.uses.len() > entry.uses {
            if let Some(used) = ahead.uses.pop() {
                ahead.next[used.storage.index()] = used.next;
            }
        }
    }

    /// Replays an op whose inputs are all there. Those that the plan reads again are held meanwhile, so that the op does
    /// not consume them.
    fn replay_ahead(&mut self, op: OpId, requested: TensorId) -> Result<(), Stop> {
        let count = self.graph.ops[op.index()].inputs.len();
        for place in 0..count {
            let s = self.input_storage(op, place);
            self.touch(s);
            self.lock(s);
            if self.ahead.next[s.index()] != NONE {
                self.lock(s);
            }
        }
        self.replay(op, requested, Thrift::None)?;
        for place in 0..count {
            let s = self.input_storage(op, place);
            if self.ahead.next[s.index()] != NONE {
                self.unlock(s);
            }
        }
        Ok(())
    }

    fn input_storage(&self, op: OpId, place: usize) -> StorageId {
        self.graph
            .storage_of(self.graph.ops[op.index()].inputs[place])
    }

    /// The candidate that is read last. What the plan does not read at all is read after it, the later the staler.
    pub(crate) fn victim_ahead(&mut self, pool: u8) -> Option<StorageId> {
        let top = self.ahead.waiting.last().map_or(0, |entry| entry.cost);
        let mut best: Option<(bool, u64, u64, StorageId)> = None;
        let mut count = 0;
        for (place, s) in self.candidates.of(pool) {
            count += 1;
            let storage = &self.graph.storages[s.index()];
            let away = match self.ahead.next[s.index()] {
                NONE => top.saturating_add(self.clock.saturating_sub(storage.last_access)),
                next => {
                    let reader = self.ahead.uses[next as usize].reader;
                    top - self.ahead.waiting[reader as usize].cost
                }
            };
            let candidate = (storage.bytes > 0, away, place, s);
            if best.is_none_or(|best| candidate > best) {
                best = Some(candidate);
            }
        }
        self.journal.write(Entry::Searched(count, u64::from(count)));
        self.counters.searches += 1;
        self.counters.score_evaluations += u64::from(count);
        self.counters.metadata_accesses += u64::from(count);
        best.map(|(.., s)| s)
    }
}
