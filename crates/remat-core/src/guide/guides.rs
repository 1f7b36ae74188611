//! All that is known of steps that repeat, told what the engine is told.

use super::before::Before;
use super::follower::{Actions, Follower, Guided, StepMark, Tally};
use super::kinds::Kinds;
use super::left::Left;
use super::places::Origin;
use super::plan::{Guide, StepCosts};
use super::recorder::{Departed, Recorded, Recorder, Told};
use super::repeats::{Period, Repeats, Sought};
use super::signature::{Origins, OriginsAt, Signature};
use crate::counters::Counters;
use crate::graph::{Graph, Made, NOWHERE};
use crate::ids::{Bytes, DeviceId, OpId, StorageId, TensorId};
use crate::op::{Finished, OpSpec, Step};
use std::collections::HashMap;

/// How far the next step is learned.
pub(super) enum Learning {
    /// Ops are compared with those before.
    Seeking,
    /// A period was found; its next start is so many ops ahead.
    Waiting(Period),
    Recording(Box<Recorder>),
}

/// Steps that are learned and followed.
pub(crate) struct Guides {
    /// The device for whose memory steps are learned, if they are.
    pub(super) device: Option<DeviceId>,
    pub(super) origins: Origins,
    pub(super) repeats: Repeats,
    /// Whether these took in the op announced last.
    pub(super) taken_in: bool,
    pub(super) learning: Learning,
    pub(super) kinds: Kinds,
    /// Whether a step may begin with the op that is announced next.
    pub(super) begins: bool,
    pub(super) follower: Follower,
    pub(super) recorded: Option<Recorded>,
    /// Whether the program marks its steps; then no others are sought.
    pub(super) marked: bool,
    /// Hashes of the periods recorded, whichever op comes first.
    pub(super) known: Vec<u64>,
    /// Periods that were left while they were recorded. Those that stay away are among the known ones.
    pub(super) left: Left,
    /// Ops announced.
    pub(super) announced: u64,
    /// Of each op the number of those announced up to it, by its id.
    pub(super) numbers: Vec<u64>,
    /// The number of the earliest op that was replayed since the latest announcement, of those that count.
    pub(super) earliest: u64,
    /// Bytes of the storages that the program refers to, evicted ones too.
    pub(super) referenced: u64,
    /// Their number.
    pub(super) count: u64,
    /// Searches for victims when a planned step ended last.
    pub(super) searches: u64,
    /// Ops since one came that no guide expects.
    pub(super) in_a_row: u64,
    /// Ops since one came that a guide expects, or a guide was added.
    unmet: u64,
    /// Whether ops ran since the latest announcement of which nothing was told.
    pub(super) gap: bool,
    /// The signature of the op being announced.
    pub(super) signature: Signature,
    /// The number of its form, 0 if it has none.
    pub(super) form: u64,
    /// Whether ops may go without records.
    pub(super) forgoing: bool,
    /// Blocks moved, all in all.
    pub(super) moves: u64,
    pub(super) unkept: Vec<StorageId>,
    /// The guide's actions before the op being announced, and places.
    pub(crate) before: Before,
}

impl Guides {
    /// Of an engine that holds this. Nothing is learned yet.
    pub(crate) fn new(graph: &Graph) -> Guides {
        let storages = graph.storages.iter();
        let referenced = storages.filter(|storage| storage.used && storage.refs > 0);
        let (mut bytes, mut count) = (0, 0);
        for storage in referenced {
            bytes += storage.bytes;
            count += 1;
        }
        Guides {
            device: None,
            origins: Origins::default(),
            repeats: Repeats::default(),
            taken_in: false,
            learning: Learning::Seeking,
            kinds: Kinds::default(),
            begins: false,
            follower: Follower::default(),
            recorded: None,
            marked: false,
            known: Vec::new(),
            left: Left::default(),
            announced: 0,
            numbers: Vec::new(),
            earliest: u64::MAX,
            referenced: bytes,
            count,
            searches: u64::MAX,
            in_a_row: 0,
            unmet: 0,
            gap: false,
            signature: Signature::default(),
            form: 0,
            forgoing: false,
            moves: 0,
            unkept: Vec::new(),
            before: Before::default(),
        }
    }

    /// Learns steps from now on, for the memory of a device.
    pub(crate) fn learn_for(&mut self, device: DeviceId) {
        self.device = Some(device);
    }

    /// The same, for steps too in which nothing is replayed.
    pub(crate) fn learn_all_for(&mut self, device: DeviceId) {
        self.device = Some(device);
        self.repeats.seek(Sought::All);
    }

    /// The same, for whole steps and until something is replayed; then only steps with replays are learned.
    pub(crate) fn learn_all_until_replayed(&mut self, device: DeviceId) {
        self.device = Some(device);
        self.repeats.seek(Sought::Whole);
    }

    /// Forgets steps and plans.
    pub(crate) fn forget(&mut self) {
        self.follower.forget();
        self.repeats.clear();
        self.learning = Learning::Seeking;
        self.kinds = Kinds::default();
        self.recorded = None;
        self.known.clear();
        self.left = Left::default();
    }

    pub(crate) fn counts(&self) -> Guided {
        self.follower.counts
    }

    pub(crate) fn take_recorded(&mut self) -> Option<Recorded> {
        self.recorded.take()
    }

    pub(crate) fn follow(&mut self, guide: Guide) {
        let hash = guide.hash();
        if !self.known.contains(&hash) {
            self.known.push(hash);
        }
        self.follower.add(guide);
        self.unmet = 0;
    }

    /// Whether no step is recorded or followed, and none is about to be. A plan that was given is to be followed
    /// whenever its step comes; steps are not `learned` then.
    pub(crate) fn are_idle(&self, learned: bool) -> bool {
        (learned || self.device.is_some())
            && matches!(self.learning, Learning::Seeking)
            && self.follower.is_away()
            && self.unmet >= 2 * self.follower.longest()
    }

    /// Ops run of which nothing is told. Those before them are not followed by those after them.
    pub(crate) fn note_gap(&mut self) {
        if !self.gap {
            self.gap = true;
            self.begins = false;
            self.repeats.forget();
            self.earliest = u64::MAX;
            self.in_a_row = 0;
        }
    }

    pub(crate) fn took(&mut self, hash: u64, nanoseconds: u64) {
        self.follower.took(hash, nanoseconds);
    }

    pub(crate) fn take_mark(&mut self) -> Option<StepMark> {
        self.follower.mark.take()
    }

    /// An op is about to be announced: the step before it ends, and what a guide has happen is looked up.
    pub(crate) fn announce(&mut self, graph: &Graph, counters: &Counters, spec: &OpSpec<'_>) {
        self.announced += 1;
        self.taken_in = false;
        self.gap = false;
        self.signature = self.origins.signature(graph, self.announced, spec);
        self.before.clear();
        let now = tally(counters, self.moves);
        let follows =
            self.follower.has_guides() && self.follower.meet(self.signature, now, &mut self.before);
        if follows {
            self.settle(graph);
        }
        self.unkeep(graph);
        self.in_a_row = if follows { self.in_a_row + 1 } else { 0 };
        self.unmet = if follows { 0 } else { self.unmet + 1 };
        if let Some(device) = self.device {
            self.learn(graph, counters, device);
        }
    }

    /// Finds what is there, and does not lie where the step that begins has it or is not known there.
    fn settle(&mut self, graph: &Graph) {
        let ops = self.follower.step_len();
        let Some(places) = self.follower.settles(&mut self.before) else {
            return;
        };
        let wanted: HashMap<Origin, u64> = places.there().iter().copied().collect();
        let origins = OriginsAt {
            origins: &self.origins,
            first: self.announced,
            ops,
        };
        for (s, storage) in (0..).map(StorageId).zip(&graph.storages) {
            if !storage.used || storage.address == NOWHERE {
                continue;
            }
            if storage.refs == 0 && !storage.pinned {
                self.before.drops.push(s);
                continue;
            }
            let Some(&to) = wanted.get(&origins.of(graph, s)) else {
                continue;
            };
            let at_twin = self.before.twins.contains(&(to, storage.address));
            if to != storage.address && !at_twin {
                self.before.moves.push((s, to));
            }
        }
    }

    /// Nobody refers any more to some of what plans kept that the program has ended or left: that goes.
    fn unkeep(&mut self, graph: &Graph) {
        for s in self.follower.take_unkept() {
            self.unkept.push(s);
            let storage = &graph[s];
            if storage.used && storage.resident && storage.refs == 0 {
                self.before.drops.push(s);
            }
        }
    }

    /// Results that plans kept before the op being announced, and keep no more.
    pub(crate) fn take_unkept(&mut self) -> std::vec::Drain<'_, StorageId> {
        self.unkept.drain(..)
    }

    /// Results of the op announced last that a plan keeps after the program let go of them.
    pub(crate) fn kept_results(&self) -> &[StorageId] {
        self.follower.kept_now()
    }

    /// Steps were laid out.
    pub(crate) fn note_steps(&mut self, steps: &[Step]) {
        for step in steps {
            let moved = u64::from(matches!(step, Step::Move { .. }));
            self.moves = self.moves.wrapping_add(moved);
            if let Step::Recompute { op, .. } = *step {
                let number = self.numbers.get(op.index()).copied().unwrap_or(0);
                if self.repeats.counts(self.announced - number) {
                    self.earliest = self.earliest.min(number);
                }
                self.tell(|recorder| {
                    recorder.replayed(number);
                    Ok(())
                });
            }
        }
    }

    /// The op was announced.
    pub(crate) fn begun(&mut self, graph: &Graph, op: OpId, spec: &OpSpec<'_>) {
        let record = &graph[op];
        if self.numbers.len() <= op.index() {
            self.numbers.resize(op.index() + 1, 0);
        }
        self.numbers[op.index()] = self.announced;
        let unrecorded = self.forgoes(graph, spec) && !self.origins.makes_constants(graph, spec);
        self.origins
            .note(self.announced, &record.outputs, unrecorded);
        let form = std::mem::take(&mut self.form);
        self.follower.begun(graph, op, form, self.signature.outputs);
        for &output in &record.outputs {
            self.refer(graph, graph.storage_of(output), Sign::Plus);
        }
        let signature = self.signature.whole;
        self.tell(|recorder| recorder.begun(op, &record.outputs, spec, signature));
    }

    /// Ops may go without records.
    pub(crate) fn forgo_records(&mut self) {
        self.forgoing = true;
    }

    /// Whether the op being announced needs no record: the plan that is followed says so, no step is recorded, and the
    /// op overwrites nothing that could come back.
    pub(crate) fn forgoes(&self, graph: &Graph, spec: &OpSpec<'_>) -> bool {
        let is_pinned = |tensor| graph[graph.storage_of(tensor)].pinned;
        self.forgoing
            && matches!(self.learning, Learning::Seeking)
            && self.follower.forgoes()
            && spec.overwritten().all(is_pinned)
    }

    /// The program holds more than the plan has it: the rest of the step is recorded.
    pub(crate) fn record_rest(&mut self) {
        self.follower.record_rest();
    }

    /// The op that is announced next is of this form; the numbers of forms are the front end's.
    pub(crate) fn note_form(&mut self, form: u64) {
        self.form = form;
    }

    /// Whether an op of this form needs no record: the plan that is followed has it next, and no step is recorded.
    pub(crate) fn may_pass(&self, form: u64) -> bool {
        self.forgoing && matches!(self.learning, Learning::Seeking) && self.follower.may_pass(form)
    }

    /// The form of the op that comes next, if nobody need take note of its results either.
    #[inline]
    pub(crate) fn next_transient(&self) -> Option<u64> {
        let forgoes = self.forgoing && matches!(self.learning, Learning::Seeking);
        self.follower.next_transient().filter(|_| forgoes)
    }

    /// Results of the op that passed with a number are noted.
    pub(crate) fn note_left(&mut self, op: u64, results: Option<u32>) {
        self.follower
            .note_left(self.announced.saturating_sub(op), results);
    }

    /// One of these is there no more, and no record read it.
    pub(crate) fn note_gone(&mut self, op: u64) {
        self.follower.note_gone(self.announced.saturating_sub(op));
    }

    /// A result was asked for of which nobody took note.
    pub(crate) fn note_asked(&mut self) {
        self.follower.note_asked();
    }

    /// The most bytes that results without records take at a time in the step that is followed, if its plan says so.
    #[inline]
    pub(crate) fn unrecorded_most(&self) -> Option<Bytes> {
        self.follower.unrecorded_most()
    }

    /// That op runs, and has so many results. Returns its number, whether a planned step ends with it, and whether no
    /// victim was sought then since the one before ended.
    pub(crate) fn pass(&mut self, outputs: usize, counters: &Counters) -> (u64, bool, bool) {
        self.announced += 1;
        self.in_a_row += 1;
        self.begins = false;
        self.earliest = u64::MAX;
        // Ops before a gap are not followed by those after it.
        self.repeats.clear();
        let moves = self.moves;
        let ended = self.follower.pass(outputs, || tally(counters, moves));
        (self.announced, ended, ended && self.is_unsought(counters))
    }

    /// A constant that an op without a record made.
    pub(crate) fn constant_of(&mut self, graph: &Graph, tensor: TensorId, op: u64, output: u32) {
        self.constant(graph, tensor);
        self.origins.note_unrecorded(op, output, tensor);
    }

    /// A constant is known by its size alone from now on, as if a record had made it and it had been pinned.
    pub(crate) fn note_constant(&mut self, tensor: TensorId) {
        self.origins.note_kept(tensor);
    }

    /// Whether an op without a record made a tensor.
    pub(crate) fn is_unrecorded(&self, tensor: TensorId) -> bool {
        self.origins.is_unrecorded(tensor)
    }

    /// An op without a record overwrote a constant.
    pub(crate) fn note_overwritten(&mut self, constant: TensorId, op: u64, output: u32) {
        if self.origins.is_unrecorded(constant) {
            self.origins.note_unrecorded(op, output, constant);
        }
    }

    /// The program is not where the plan has it.
    pub(crate) fn lose_place(&mut self) {
        self.follower.depart();
    }

    /// The op was not announced after all.
    pub(crate) fn refused(&mut self) {
        self.form = 0;
        self.follower.refused();
        self.tell(|_| Err(Departed));
    }

    /// The guide's actions were not possible.
    pub(crate) fn count_refused(&mut self) {
        self.follower.counts.refused += 1;
        self.follower.unsettle();
    }

    /// So many blocks moved to their places.
    pub(crate) fn count_settled(&mut self, moves: u64) {
        self.follower.counts.settled += moves;
        // They are noted with the other steps.
        self.moves = self.moves.wrapping_sub(moves);
    }

    /// The op was announced: blocks that a guide has places for lie there or elsewhere.
    pub(crate) fn count_places(&mut self, placed: u64, displaced: u64) {
        self.follower.counts.placed += placed;
        self.follower.counts.displaced += displaced;
        if displaced > 0 {
            self.follower.unsettle();
        }
    }

    /// An op is about to be reported.
    pub(crate) fn finish(&mut self, graph: &Graph, op: OpId, report: &Finished<'_>) {
        let record = &graph[op];
        let sizes = report.bytes.unwrap_or_default().iter();
        for ((&output, &made), bytes) in record.outputs.iter().zip(&record.made).zip(sizes) {
            let storage = &graph[graph.storage_of(output)];
            if made == Made::Fresh && storage.refs > 0 {
                self.referenced = self
                    .referenced
                    .wrapping_add(bytes.0)
                    .wrapping_sub(storage.bytes);
            }
        }
        self.tell(|recorder| {
            recorder.finished(op, report);
            Ok(())
        });
    }

    /// Storages were pinned.
    pub(crate) fn note_pinned(&mut self, graph: &Graph, storages: &[StorageId]) {
        for &storage in storages {
            if let Some(&view) = graph[storage].views.first() {
                self.pinned(view);
            }
        }
    }

    /// An op ran. Returns whether a planned step ended with it, and no victim was sought since the one before ended.
    pub(crate) fn finished(&mut self, graph: &Graph, op: OpId, counters: &Counters) -> bool {
        // Results that cannot be made again were pinned.
        for &output in &graph[op].outputs {
            if graph[graph.storage_of(output)].pinned {
                self.pinned(output);
            }
        }
        let now = tally(counters, self.moves);
        let ended = self.follower.end_step(now);
        ended && self.is_unsought(counters)
    }

    /// Whether no victim was sought since the planned step before the one that ended.
    fn is_unsought(&mut self, counters: &Counters) -> bool {
        std::mem::replace(&mut self.searches, counters.searches) == counters.searches
    }

    /// An op was announced and did not run. It may come again, as one of an arena does that found no room: if it was
    /// the latest, the step goes on from before it.
    pub(crate) fn cancel(&mut self, graph: &Graph, op: OpId, actions: Actions) {
        for &output in &graph[op].outputs {
            self.refer(graph, graph.storage_of(output), Sign::Minus);
        }
        if self.numbers.get(op.index()) != Some(&self.announced) {
            self.follower.depart();
            self.tell(|_| Err(Departed));
            return;
        }
        self.follower.take_back(op, actions);
        self.announced -= 1;
        if std::mem::take(&mut self.taken_in) {
            self.repeats.take_back();
        }
        self.learning = match std::mem::replace(&mut self.learning, Learning::Seeking) {
            Learning::Seeking => Learning::Seeking,
            Learning::Waiting(period) => Learning::Waiting(Period {
                ahead: period.ahead + 1,
                ..period
            }),
            // What is there when the step begins is listed anew.
            Learning::Recording(recorder) if recorder.is_at_first() => {
                Learning::Waiting(recorder.into_period())
            }
            recording => recording,
        };
        self.tell(|recorder| recorder.take_back(op));
    }

    pub(crate) fn constant(&mut self, graph: &Graph, tensor: TensorId) {
        self.origins.note_constant(tensor);
        let storage = graph.storage_of(tensor);
        self.refer(graph, storage, Sign::Plus);
        let record = &graph[storage];
        let (bytes, device) = (Bytes(record.bytes), DeviceId(record.device));
        self.tell(|recorder| {
            recorder.constant(tensor, bytes, device);
            Ok(())
        });
    }

    pub(crate) fn retained(&mut self, graph: &Graph, tensor: TensorId) {
        self.refer(graph, graph.storage_of(tensor), Sign::Plus);
        self.tell(|recorder| recorder.told(Told::Retain, tensor));
    }

    /// A reference is about to go.
    pub(crate) fn release(&mut self, graph: &Graph, tensor: TensorId) {
        self.refer(graph, graph.storage_of(tensor), Sign::Minus);
        self.tell(|recorder| recorder.told(Told::Release, tensor));
    }

    pub(crate) fn pinned(&mut self, tensor: TensorId) {
        self.tell(|recorder| recorder.told(Told::Pin, tensor));
    }

    pub(crate) fn ensured(&mut self, tensors: &[TensorId]) {
        self.tell(|recorder| recorder.ensured(tensors));
    }

    /// Ids were freed.
    pub(crate) fn freed(&mut self, ops: &[OpId], storages: &[StorageId]) {
        if self.follower.has_guides() {
            self.follower.freed(ops, storages);
        }
    }

    /// Counts a storage whose only reference came or goes.
    fn refer(&mut self, graph: &Graph, storage: StorageId, sign: Sign) {
        let record = &graph[storage];
        if record.refs != 1 {
            return;
        }
        let (bytes, one) = match sign {
            Sign::Plus => (record.bytes, 1),
            Sign::Minus => (record.bytes.wrapping_neg(), 1u64.wrapping_neg()),
        };
        self.referenced = self.referenced.wrapping_add(bytes);
        self.count = self.count.wrapping_add(one);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    Plus,
    Minus,
}

fn tally(counters: &Counters, moves: u64) -> Tally {
    Tally {
        costs: costs(counters),
        searches: counters.searches,
        moves,
    }
}

fn costs(counters: &Counters) -> StepCosts {
    StepCosts {
        first: counters.first_cost,
        replayed: counters.replayed_cost,
    }
}
