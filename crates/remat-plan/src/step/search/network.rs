//! The network of a moment: the storages that are in memory or not, and the ops that could run again.
//!
//! A storage that is in memory at the moment and read only later is held at a price by the byte, or made again after
//! it. Its op reads others, which are held or made again in turn. For a price, a minimum cut is the cheapest choice.

use crate::flow::push_relabel::Flow;
use crate::step::model::step::{NONE, Step};
use crate::step::timeline::moment::Moment;
use crate::step::timeline::schedule::Schedule;

/// The sum to which capacities are scaled.
const SUM: f64 = (1u64 << 52) as f64;
/// The capacity of an edge that is not cut.
const ENDLESS: u64 = 1 << 61;
/// The number of an op that never runs again, for storages that can only be held.
const NEVER: u32 = NONE;

/// A moment, and the slots up to which later uses count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) run: Moment,
    pub(super) until: u32,
}

/// A network of storages and ops, by their places in it. Its room is used again for the next one.
#[derive(Debug)]
pub(super) struct Network {
    /// The place of each storage and each op of the step, or `NONE`.
    storage_at: Vec<u32>,
    op_at: Vec<u32>,
    storages: Vec<u32>,
    bytes: Vec<u64>,
    ops: Vec<u32>,
    /// Nanoseconds of a run of each op, infinite where it cannot run again.
    costs: Vec<f64>,
    /// The op that makes each storage.
    made_by: Vec<u32>,
    /// The slot in which each storage is needed.
    needed: Vec<u32>,
    /// Whether each storage can be held: nothing ends its value before it is needed.
    holdable: Vec<bool>,
    /// Ops and storages that they read.
    reads: Vec<(u32, u32)>,
    /// The first storages, which must be there later.
    wanted: u32,
    /// Those and the next ones, which may be asked for at a price.
    asked: u32,
    /// Bytes in memory at the moment that its slot does not read.
    droppable: u64,
    edges: Vec<(u32, u32, u64)>,
}

/// Prices beside the one by the byte, in nanoseconds; storages beyond the ends of the lists have none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prices<'a> {
    /// Of a byte that is held.
    pub(super) byte: f64,
    /// Of each storage that is held.
    pub(super) holding: &'a [f64],
    /// Of each storage that is asked for and not there later.
    pub(super) lacking: &'a [f64],
}

/// The cheapest choice at some prices.
#[derive(Debug)]
pub(super) struct Choice {
    /// At most the cost of the runs together with the prices.
    pub(super) least: f64,
    /// Of each vertex whether it is on the side of the sink.
    beyond: Vec<bool>,
}

impl Network {
    pub(super) fn new(step: &Step) -> Network {
        Network {
            storage_at: vec![NONE; step.storages.len()],
            op_at: vec![NONE; step.ops.len()],
            storages: Vec::new(),
            bytes: Vec::new(),
            ops: Vec::new(),
            costs: Vec::new(),
            made_by: Vec::new(),
            needed: Vec::new(),
            holdable: Vec::new(),
            reads: Vec::new(),
            wanted: 0,
            asked: 0,
            droppable: 0,
            edges: Vec::new(),
        }
    }

    /// Gathers what is in memory at the moment and used first in a later slot of the window, what is `asked` for
    /// beside it, and what could make it again at such costs.
    pub(super) fn gather(
        &mut self,
        schedule: &Schedule<'_>,
        Window { run, until }: Window,
        asked: &[u32],
        mut cost: impl FnMut(u32) -> f64,
    ) {
        self.clear();
        for storage in 0..schedule.step.storages.len() as u32 {
            let Some(next) = next_if_in_question(schedule, storage, run) else {
                continue;
            };
            self.droppable += schedule.step.storages[storage as usize].bytes;
            if next.slot() <= until {
                self.take_in(schedule, storage, run, next.slot());
            }
        }
        self.wanted = self.storages.len() as u32;
        for &storage in asked {
            self.place_of(schedule, storage, run, until);
        }
        self.asked = self.storages.len() as u32;
        let mut done = 0;
        while let Some(&storage) = self.storages.get(done) {
            let slot = self.needed[done];
            done += 1;
            if !schedule.may_be_made(storage, run.slot() + 1) {
                self.made_by.push(self.ops.len() as u32);
                self.ops.push(NEVER);
                self.costs.push(f64::INFINITY);
                continue;
            }
            let op = schedule.step.storages[storage as usize].producer;
            if self.op_at[op as usize] == NONE {
                self.op_at[op as usize] = self.ops.len() as u32;
                self.ops.push(op);
                self.costs.push(cost(op));
                self.follow(schedule, op, run, slot);
            }
            self.made_by.push(self.op_at[op as usize]);
        }
    }

    /// Lets every storage be held. A value that an op wrote into may have been made again before the moment.
    pub(super) fn hold_all(&mut self) {
        self.holdable.fill(true);
    }

    fn clear(&mut self) {
        for &storage in &self.storages {
            self.storage_at[storage as usize] = NONE;
        }
        for &op in self.ops.iter().filter(|&&op| op != NEVER) {
            self.op_at[op as usize] = NONE;
        }
        self.storages.clear();
        self.bytes.clear();
        self.ops.clear();
        self.costs.clear();
        self.made_by.clear();
        self.needed.clear();
        self.holdable.clear();
        self.reads.clear();
        self.droppable = 0;
    }

    fn take_in(&mut self, schedule: &Schedule<'_>, storage: u32, run: Moment, slot: u32) {
        self.storage_at[storage as usize] = self.storages.len() as u32;
        self.storages.push(storage);
        self.bytes
            .push(schedule.step.storages[storage as usize].bytes);
        self.needed.push(slot);
        let since = schedule.lives(storage).at(run).map(|life| life.start);
        let mut kills = schedule.step.kills.of(storage as usize).iter();
        let ends = kills.any(|&killer| {
            killer < slot && since.is_none_or(|since| since < Moment::first(killer))
        });
        self.holdable.push(!ends);
    }

    /// The place of a storage, which is taken in, unless it is in memory anyway.
    fn place_of(
        &mut self,
        schedule: &Schedule<'_>,
        storage: u32,
        run: Moment,
        slot: u32,
    ) -> Option<u32> {
        if self.storage_at[storage as usize] == NONE {
            let there = schedule.lives(storage).at(run).is_some();
            if there && next_if_in_question(schedule, storage, run).is_none() {
                return None;
            }
            self.take_in(schedule, storage, run, slot);
        }
        Some(self.storage_at[storage as usize])
    }

    /// Takes in what an op reads that runs again in a slot.
    fn follow(&mut self, schedule: &Schedule<'_>, op: u32, run: Moment, slot: u32) {
        let place = self.ops.len() as u32 - 1;
        if self.costs[place as usize].is_infinite() {
            return;
        }
        for &read in schedule.step.reads.of(op as usize) {
            if let Some(read) = self.place_of(schedule, read, run, slot) {
                self.reads.push((place, read));
            }
        }
    }

    /// Nanoseconds of all runs that could be made again, at least 1.
    pub(super) fn all_costs(&self) -> f64 {
        let finite = self.costs.iter().filter(|cost| cost.is_finite());
        finite.sum::<f64>().max(1.0)
    }

    /// Bytes that are in memory at the moment, and used only in later slots.
    pub(super) fn droppable(&self) -> u64 {
        self.droppable
    }

    /// Whether nothing in question must be there later.
    pub(super) fn is_empty(&self) -> bool {
        self.wanted == 0
    }

    /// The storages by place.
    pub(super) fn storages(&self) -> &[u32] {
        &self.storages
    }

    /// Bytes of the storage at a place.
    pub(super) fn bytes_of(&self, place: u32) -> u64 {
        self.bytes[place as usize]
    }

    /// The place of a storage that may be asked for at a price.
    pub(super) fn asked_at(&self, storage: u32) -> Option<u32> {
        let place = self.storage_at[storage as usize];
        (self.wanted..self.asked).contains(&place).then_some(place)
    }

    // Vertices: source, sink, ops, then storages that need not be there. A wanted storage is one with the source.
    fn op_vertex(&self, op: u32) -> u32 {
        2 + op
    }

    fn storage_vertex(&self, storage: u32) -> u32 {
        match storage.checked_sub(self.wanted) {
            None => 0,
            Some(place) => 2 + self.ops.len() as u32 + place,
        }
    }

    /// The cheapest choice at some prices.
    pub(super) fn choose(&mut self, prices: Prices<'_>) -> Choice {
        // A price above that of all runs is as good as that.
        let most = 2.0 * self.all_costs() + 1.0;
        let of = |list: &[f64], place: u32| list.get(place as usize).copied().unwrap_or(0.0);
        let held = |place: u32| {
            let bytes = self.bytes[place as usize] as f64;
            (prices.byte.min(1e18) * bytes + of(prices.holding, place)).min(most)
        };
        let storages = self.storages.len() as u32;
        let lacking = |place: u32| of(prices.lacking, place).min(most);
        let mut whole = self.all_costs();
        for place in 0..storages {
            whole += held(place) + lacking(place);
        }
        let scale = SUM / whole;
        let mut edges = std::mem::take(&mut self.edges);
        edges.clear();
        for (place, &cost) in (0..).zip(&self.costs) {
            let capacity = if cost.is_finite() {
                (cost * scale) as u64
            } else {
                ENDLESS
            };
            edges.push((self.op_vertex(place), 1, capacity));
        }
        for place in 0..storages {
            let capacity = if self.holdable[place as usize] {
                (held(place) * scale) as u64
            } else {
                ENDLESS
            };
            let op = self.op_vertex(self.made_by[place as usize]);
            edges.push((self.storage_vertex(place), op, capacity));
        }
        for place in self.wanted..self.asked {
            let capacity = (lacking(place) * scale) as u64;
            edges.push((0, self.storage_vertex(place), capacity));
        }
        for &(op, storage) in self.reads.iter().filter(|read| read.1 >= self.wanted) {
            edges.push((self.op_vertex(op), self.storage_vertex(storage), ENDLESS));
        }
        let vertices = 2 + self.ops.len() as u32 + storages - self.wanted;
        let mut flow = Flow::new(vertices, &edges);
        flow.maximize();
        let choice = Choice {
            least: flow.value() as f64 / scale,
            beyond: flow.reaches_sink(),
        };
        drop(flow);
        self.edges = edges;
        choice
    }

    fn runs(&self, choice: &Choice, op: u32) -> bool {
        !choice.beyond[self.op_vertex(op) as usize]
    }

    /// Whether a storage is there later: held, or made again.
    pub(super) fn is_there(&self, choice: &Choice, place: u32) -> bool {
        place < self.wanted || !choice.beyond[self.storage_vertex(place) as usize]
    }

    /// Whether a storage is held.
    pub(super) fn is_held(&self, choice: &Choice, place: u32) -> bool {
        self.is_there(choice, place) && !self.runs(choice, self.made_by[place as usize])
    }

    /// Bytes that are held.
    pub(super) fn held(&self, choice: &Choice) -> u64 {
        let places = 0..self.storages.len() as u32;
        let held = places.filter(|&place| self.is_held(choice, place));
        held.map(|place| self.bytes[place as usize]).sum()
    }

    /// The ops that run again.
    pub(super) fn again(&self, choice: &Choice) -> Vec<u32> {
        let again = (0..self.ops.len() as u32).filter(|&op| self.runs(choice, op));
        again.map(|op| self.ops[op as usize]).collect()
    }
}

/// The next use of a storage that is in memory at a run, if that is in a later slot and it can be made again for it.
fn next_if_in_question(schedule: &Schedule<'_>, storage: u32, run: Moment) -> Option<Moment> {
    let life = schedule.lives(storage).at(run)?;
    if life.start >= run || life.end <= run {
        return None;
    }
    let read = schedule.step.reads.of(run.op() as usize);
    if !schedule.may_be_made(storage, run.slot() + 1) || read.binary_search(&storage).is_ok() {
        return None;
    }
    schedule
        .next_use(storage, run)
        .filter(|next| next.slot() > run.slot())
}
