//! Where in a planned step the program is.

use super::before::{Before, Planned};
use super::in_force::InForce;
use super::places::Places;
use super::plan::{Guide, GuideAction, StepCosts};
use super::signature::Signature;
use super::so_far::SoFar;
use super::trial::Verdict;
use super::unrecorded::Forms;
use crate::graph::{Graph, Made};
use crate::ids::{Bytes, Cost, OpId, StorageId};

/// Counts of planned steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Guided {
    /// Steps that were followed from their first op to their last.
    pub steps: u64,
    /// Ops that came as a guide says.
    pub ops: u64,
    /// Those of them that left no record.
    pub unrecorded: u64,
    /// Steps that were left after some ops, before their last.
    pub departures: u64,
    /// Ops before which a guide's actions were not possible.
    pub refused: u64,
    /// Cost of first runs in whole steps.
    pub cost: Cost,
    /// Cost of replays in whole steps.
    pub replayed: Cost,
    /// Blocks that were taken where a guide has them, in an arena.
    pub placed: u64,
    /// Blocks of which the place was not free; they were taken elsewhere.
    pub displaced: u64,
    /// Blocks moved to their places as a planned step began.
    pub settled: u64,
    /// Blocks moved otherwise, in whole steps.
    pub moves: u64,
    /// Searches for what to evict, in whole steps.
    pub searches: u64,
    /// Guides in force.
    pub guides: u64,
    /// Guides that were given up, because they replayed more than is replayed without them, or their steps
    /// [took longer](crate::Engine::step_took).
    pub given_up: u64,
}

/// How far what a guide has happen before an op was performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Actions {
    /// All of it.
    Performed,
    /// Some of it, and the rest is not done.
    CutShort,
}

/// Ops in a row that begin several kinds of step, or come elsewhere too.
const FEW: usize = 32;

/// Steps in a row that may replay more than without a guide, or be refused.
const STRIKES: u32 = 2;

/// A planned step that the program began, ended or left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepMark {
    /// The first op of the step of a guide came, which is known by its [hash](Guide::hash).
    Begun(u64),
    /// The step that was begun goes on as that of another guide, which begins alike.
    Became(u64),
    /// The last op of that step ran.
    Ended(u64),
    /// The program went on otherwise.
    Left,
}

/// Counts since the engine was made.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) costs: StepCosts,
    /// Searches for what to evict.
    pub(super) searches: u64,
    /// Blocks moved.
    pub(super) moves: u64,
}

/// The guides, and the place of the program in one of them.
#[derive(Default)]
pub(super) struct Follower {
    guides: Vec<InForce>,
    /// The guide that is followed, and the place of the op that comes next.
    at: Option<(usize, usize)>,
    /// The step so far.
    so_far: SoFar,
    /// Of its storages those that the plan keeps, by their places.
    kept: Vec<u32>,
    /// Those of the op announced last.
    kept_now: Vec<StorageId>,
    /// Results that a plan kept which the program has ended or left.
    unkept: Vec<StorageId>,
    /// The guide and the place of an op that was announced and did not run, after the actions before it were performed.
    acted: Option<(usize, usize)>,
    /// Counts since the engine was made, when the step began.
    since: Tally,
    /// The places of what is there when a step begins are to be seen to.
    unsettled: bool,
    /// An op of the step left no record, or was announced without one.
    passed: bool,
    /// The rest of the step is recorded.
    records: bool,
    /// The hash of the guide whose step ended last.
    latest: Option<u64>,
    /// Hashes of guides that were given up and may be learned anew.
    outdated: Vec<u64>,
    /// Planned steps that were left since one was followed to its end.
    left: u32,
    /// The last thing that the program did.
    pub(super) mark: Option<StepMark>,
    pub(super) counts: Guided,
}

impl Follower {
    /// Follows a guide too. One of the same ops makes way when its step begins the next time: the rest of a step that
    /// began by one plan is not as another one has it. One that begins elsewhere in the same step is given up.
    pub(super) fn add(&mut self, guide: Guide) {
        let same = |other: &InForce| other.guide.signatures() == guide.signatures();
        match self.guides.iter().position(same) {
            Some(at) => self.guides[at].next = Some(guide),
            None => {
                let guide = InForce::of(guide);
                let turned = self
                    .guides
                    .iter()
                    .position(|other| other.hash == guide.hash);
                if let Some(at) = turned {
                    self.remove(at);
                }
                self.guides.push(guide);
                self.counts.guides += 1;
                self.unsettled = true;
            }
        }
    }

    /// The step of a guide that ended last took so many nanoseconds.
    pub(super) fn took(&mut self, hash: u64, nanoseconds: u64) {
        let Some(at) = self.guides.iter().position(|guide| guide.hash == hash) else {
            return;
        };
        let Some(trial) = &mut self.guides[at].trial else {
            return;
        };
        match trial.ended(nanoseconds) {
            Verdict::Open => {}
            Verdict::Stays => {
                self.guides[at].trial = None;
                self.guides[at].proven = true;
            }
            Verdict::Falls => self.remove(at),
        }
    }

    /// Gives a guide up, unless it makes way for another one anyway.
    fn remove(&mut self, at: usize) {
        if self.guides[at].next.is_some() {
            return;
        }
        if self.at.is_some_and(|(guide, _)| guide == at) {
            self.stop_keeping();
        }
        // The places in the others' steps are theirs, and this one's is lost.
        self.at = match self.at {
            Some((guide, _)) if guide == at => None,
            Some((guide, place)) if guide > at => Some((guide - 1, place)),
            other => other,
        };
        self.guides.remove(at);
        self.counts.guides -= 1;
        self.counts.given_up += 1;
    }

    /// Forgets all guides.
    pub(super) fn forget(&mut self) {
        self.forget_step();
        self.guides.clear();
        (self.at, self.acted) = (None, None);
        self.counts.guides = 0;
    }

    /// Whether the program is in no planned step.
    pub(super) fn is_away(&self) -> bool {
        self.at.is_none()
    }

    /// The ops of the longest step for which there is a guide.
    pub(super) fn longest(&self) -> u64 {
        let ops = self.guides.iter().map(|own| own.guide.len() as u64);
        ops.max().unwrap_or(0)
    }

    pub(super) fn has_guides(&self) -> bool {
        !self.guides.is_empty()
    }

    /// An op of this signature is about to be announced. Appends to `before` what is to happen first. Returns
    /// whether a guide is followed.
    pub(super) fn meet(&mut self, signature: Signature, now: Tally, before: &mut Before) -> bool {
        self.at = match self.at {
            Some((guide, place)) if self.is_at(guide, place, signature) => Some((guide, place)),
            Some((guide, place)) => self.leave(guide, place, signature.whole),
            None => None,
        };
        if self.at.is_none() {
            // Of several that begin alike the one that ended last: autograd comes to add gradients in place, and what
            // was recorded before that comes no more.
            let starts = |guide: &InForce| guide.guide.is_at(0, signature.whole);
            let latest = |guide: &InForce| starts(guide) && self.latest == Some(guide.hash);
            let found = self.guides.iter().position(latest);
            let found = found.or_else(|| self.guides.iter().position(starts));
            self.at = found.map(|guide| (guide, 0));
        }
        self.acted = self.acted.filter(|_| self.acted == self.at);
        let Some((guide, place)) = self.at else {
            return false;
        };
        if place == 0 {
            self.forget_step();
            self.unsettled |= self.guides[guide].turn();
            self.passed = false;
            self.records = false;
            self.since = now;
            self.mark = Some(StepMark::Begun(self.guides[guide].hash));
        }
        if self.guides[guide].rests() {
            return true;
        }
        if place == 0 {
            self.guides[guide].forms.begin();
        }
        self.counts.ops += 1;
        let plan = &self.guides[guide].guide;
        let actions = match self.acted {
            Some(_) => &[],
            None => plan.before(place),
        };
        for (number, action) in actions.iter().enumerate() {
            let found = match *action {
                GuideAction::Drop { op, output } => {
                    self.so_far.storage(op, output).map(Planned::Drop)
                }
                GuideAction::Run(op) => self.so_far.op(op).map(Planned::Run),
                GuideAction::RunInPlace(op) => self.so_far.op(op).map(Planned::RunInPlace),
            };
            if let Some(planned) = found {
                let blocks = plan.blocks_of(place, Some(number));
                before.addresses.extend_from_slice(blocks);
                before.actions.push((planned, before.addresses.len()));
            }
        }
        before
            .addresses
            .extend_from_slice(plan.blocks_of(place, None));
        true
    }

    /// Whether the op at a place has this signature. Amid ops without records, others read results of which the engine
    /// does not know where they come from.
    fn is_at(&self, guide: usize, place: usize, signature: Signature) -> bool {
        let own = &self.guides[guide];
        own.guide.is_at(place, signature.whole)
            || self.passed && own.forms.makes(place, signature.outputs)
    }

    /// The rest of the step is recorded. Where that is so again and again, whole steps are from now on: records keep
    /// what they read that has no record, and autograd adds to a gradient in place only if nobody else keeps it.
    pub(super) fn record_rest(&mut self) {
        let again = std::mem::replace(&mut self.records, true);
        if let Some((guide, _)) = self.at.filter(|_| !again) {
            self.guides[guide].forms.interrupt();
        }
    }

    /// Whether the op met last needs no record.
    pub(super) fn forgoes(&self) -> bool {
        self.at.is_some_and(|(guide, place)| {
            let own = &self.guides[guide];
            own.forms.forgo(place) && !own.rests() && !self.records
        })
    }

    /// Whether the op that comes next, of this form, needs no record.
    #[inline]
    pub(super) fn may_pass(&self, form: u64) -> bool {
        self.at.is_some_and(|(guide, place)| {
            let own = &self.guides[guide];
            own.forms.pass(place, form) && !own.rests() && !self.records
        })
    }

    /// The form of the op that comes next, if nobody need take note of its results.
    #[inline]
    pub(super) fn next_transient(&self) -> Option<u64> {
        let (guide, place) = self.at?;
        let own = &self.guides[guide];
        let form = own.forms.transient(place)?;
        (!own.rests() && !self.records).then_some(form)
    }

    /// Results of the op that passed so many ops ago are noted.
    pub(super) fn note_left(&mut self, ago: u64, results: Option<u32>) {
        if let Some((forms, place)) = self.passed_at(ago) {
            forms.note_left(place, results);
        }
    }

    /// One of these is there no more, and no record read it.
    pub(super) fn note_gone(&mut self, ago: u64) {
        if let Some((forms, place)) = self.passed_at(ago) {
            forms.note_gone(place);
        }
    }

    /// A result was asked for of which nobody took note.
    pub(super) fn note_asked(&mut self) {
        if let Some((guide, _)) = self.at {
            self.guides[guide].forms.note_asked();
        }
    }

    /// The place of the op that came so many ops ago, if that was in this step.
    fn passed_at(&mut self, ago: u64) -> Option<(&mut Forms, usize)> {
        let (guide, next) = self.at?;
        let place = next.checked_sub(1 + usize::try_from(ago).ok()?)?;
        Some((&mut self.guides[guide].forms, place))
    }

    /// The most bytes that results without records take at a time in the step that is followed, if its plan says so.
    #[inline]
    pub(super) fn unrecorded_most(&self) -> Option<Bytes> {
        let (guide, _) = self.at?;
        self.guides[guide].guide.unrecorded_most()
    }

    /// That op runs, without a record, and has so many results. Returns whether a followed step ends with it.
    #[inline]
    pub(super) fn pass(&mut self, outputs: usize, now: impl FnOnce() -> Tally) -> bool {
        let Some((guide, place)) = self.at else {
            return false;
        };
        self.passed = true;
        self.kept_now.clear();
        self.counts.ops += 1;
        self.counts.unrecorded += 1;
        self.so_far.push_unrecorded(outputs);
        self.at = Some((guide, place + 1));
        place + 1 == self.guides[guide].guide.len() && self.end_step(now())
    }

    /// The places of what is there, if the op met last begins a step with places and these are to be seen to.
    pub(super) fn settles(&mut self, before: &mut Before) -> Option<&Places> {
        let (guide, place) = self.at?;
        let own = &self.guides[guide];
        let places = own.guide.places().filter(|_| place == 0 && !own.rests())?;
        before.twins.clear();
        before.twins.extend_from_slice(places.twins());
        let unsettled = std::mem::replace(&mut self.unsettled, false);
        unsettled.then_some(places)
    }

    /// The ops of the step that is followed.
    pub(super) fn step_len(&self) -> u64 {
        self.at
            .map_or(0, |(guide, _)| self.guides[guide].guide.len() as u64)
    }

    /// Blocks may lie elsewhere than planned.
    pub(super) fn unsettle(&mut self) {
        self.unsettled = true;
    }

    /// The program goes on otherwise than a guide. Returns the guide that it follows now, and the place in it.
    fn leave(&mut self, guide: usize, place: usize, signature: u64) -> Option<(usize, usize)> {
        self.stop_keeping();
        if let Some(other) = self.other(guide, place, signature) {
            self.go_over(guide, other, place);
            return Some((other, place));
        }
        self.counts.departures += u64::from(place >= FEW);
        self.left += u32::from(place >= FEW);
        self.mark = Some(StepMark::Left);
        self.unsettled = true;
        let back = self.guides[guide].guide.fall_back(place, signature)?;
        self.so_far.drop_first(place - back);
        Some((guide, back))
    }

    /// The step is that of another guide, which has the same ops up to a place.
    fn go_over(&mut self, from: usize, to: usize, place: usize) {
        let met = self.guides[from].forms.hand_over(place);
        let own = &mut self.guides[to];
        self.unsettled |= own.turn();
        own.forms.begin_amid(met);
        self.mark = Some(StepMark::Became(own.hash));
    }

    /// Another guide that starts as this one up to a place, and has an op of this signature there.
    fn other(&self, guide: usize, place: usize, signature: u64) -> Option<usize> {
        let own = &self.guides[guide].guide;
        self.guides.iter().position(|other| {
            other.guide.is_at(place, signature) && other.guide.starts_like(own, place)
        })
    }

    /// The step that begins with the op met last, if it is to be recorded again: its ops, and what online replays of
    /// it would take.
    pub(super) fn begin_again(&mut self) -> Option<(Vec<u64>, Cost)> {
        let (guide, place) = self.at?;
        let own = &mut self.guides[guide];
        if place > 0 || own.rests() || !own.drift.is_due() {
            return None;
        }
        let signatures = own.guide.signatures().to_vec();
        Some((signatures, own.guide.online_at(own.drift.first())))
    }

    /// The step with this hash was recorded.
    pub(super) fn recorded(&mut self, hash: u64) {
        for own in self.guides.iter_mut().filter(|own| own.hash == hash) {
            own.drift.recorded();
        }
    }

    /// Whether a guide of just these ops is in force.
    pub(super) fn follows(&self, signatures: &[u64]) -> bool {
        let mut guides = self.guides.iter();
        guides.any(|own| own.guide.signatures() == signatures)
    }

    /// Whether a guide is in force, by its hash.
    pub(super) fn has(&self, hash: u64) -> bool {
        self.guides.iter().any(|own| own.hash == hash)
    }

    /// Whether planned steps are left again and again, and none is followed to its end.
    pub(super) fn is_lost(&self) -> bool {
        self.left > STRIKES
    }

    /// The op met last was announced.
    pub(super) fn begun(&mut self, graph: &Graph, op: OpId, form: u64, outputs: u64) {
        self.passed |= self.forgoes();
        self.kept_now.clear();
        let Some((guide, place)) = self.at else {
            return;
        };
        self.guides[guide].forms.see(place, form, outputs);
        let record = &graph[op];
        let own = &self.guides[guide];
        if !own.rests() {
            let first = self.so_far.next_storage();
            for output in own.guide.kept_of(place) {
                let is_fresh = record.made.get(output as usize) != Some(&Made::Alias);
                let made = record.outputs.get(output as usize).filter(|_| is_fresh);
                if let Some(&made) = made {
                    self.kept.push(first + output);
                    self.kept_now.push(graph.storage_of(made));
                }
            }
        }
        self.so_far.push(graph, op);
        self.at = Some((guide, place + 1));
    }

    /// An op ran. If it is the last of a step that was followed, the guide is judged. Returns whether it is.
    pub(super) fn end_step(&mut self, now: Tally) -> bool {
        let Some((guide, place)) = self.at else {
            return false;
        };
        let own = &mut self.guides[guide];
        if place < own.guide.len() {
            return false;
        }
        (self.at, self.acted) = (None, None);
        self.left = 0;
        self.latest = Some(own.hash);
        self.mark = Some(StepMark::Ended(own.hash));
        self.stop_keeping();
        let own = &mut self.guides[guide];
        if own.rests() {
            self.unsettled = true;
            return false;
        }
        if !self.records {
            own.forms.complete();
        }
        // In an arena blocks are placed as ops are announced.
        if own.guide.places().is_none() {
            let acts = |place: usize| !own.guide.before(place).is_empty();
            own.forms.end(place, own.guide.unrecorded(), acts);
        }
        let since = self.since;
        let step = StepCosts {
            first: Cost(now.costs.first.0 - since.costs.first.0),
            replayed: Cost(now.costs.replayed.0 - since.costs.replayed.0),
        };
        self.counts.searches += now.searches - since.searches;
        self.counts.moves += now.moves.wrapping_sub(since.moves);
        self.counts.steps += 1;
        self.counts.cost.0 += step.first.0;
        self.counts.replayed.0 += step.replayed.0;
        if own.guide.is_beaten(step) {
            let (hash, online) = (own.hash, own.guide.online());
            self.strike(guide);
            if online.replayed == Cost(0) && !self.has(hash) {
                // Nothing was replayed in the step that was planned: memory is shorter now.
                self.outdated.push(hash);
            }
        } else {
            own.strikes = 0;
            own.drift.ended(step);
        }
        true
    }

    /// The plan has no use any more for what it kept.
    fn stop_keeping(&mut self) {
        self.kept_now.clear();
        for place in self.kept.drain(..) {
            self.unkept.extend(self.so_far.storage_at(place));
        }
    }

    /// Results of the op announced last that the plan keeps after the program let go of them.
    pub(super) fn kept_now(&self) -> &[StorageId] {
        &self.kept_now
    }

    /// Results that plans kept which the program ended or left since the last call. An id may have been freed since.
    pub(super) fn take_unkept(&mut self) -> std::vec::Drain<'_, StorageId> {
        self.unkept.drain(..)
    }

    /// Hashes of guides that were given up since the last call, and may be learned anew.
    pub(super) fn take_outdated(&mut self) -> std::vec::Drain<'_, u64> {
        self.outdated.drain(..)
    }

    /// The program is in no planned step.
    pub(super) fn depart(&mut self) {
        self.stop_keeping();
        self.unsettled = true;
        self.acted = None;
        let place = self.at.take().map_or(0, |(_, place)| place);
        self.mark = Some(StepMark::Left);
        self.counts.departures += u64::from(place >= FEW);
    }

    /// The op begun last did not run; it may come again. `actions` tells how far those before it were performed.
    pub(super) fn take_back(&mut self, op: OpId, actions: Actions) {
        let Some((guide, place)) = self.at.filter(|_| self.so_far.is_latest(op)) else {
            return self.depart();
        };
        self.at = Some((guide, place - 1));
        if actions == Actions::Performed {
            self.acted = self.at;
        }
        self.unsettled |= actions == Actions::CutShort;
        self.counts.ops -= u64::from(!self.guides[guide].rests());
        let from = self.so_far.pop();
        self.kept.retain(|&place| place < from);
        self.unkept.append(&mut self.kept_now);
    }

    /// An op of a planned step was refused.
    pub(super) fn refused(&mut self) {
        let at = self.at;
        self.depart();
        if let Some((guide, _)) = at.filter(|_| self.passed) {
            self.guides[guide].forms.give_up();
        }
        if let Some((guide, _)) = at.filter(|&(guide, _)| !self.guides[guide].rests()) {
            self.strike(guide);
        }
    }

    fn strike(&mut self, guide: usize) {
        self.guides[guide].strikes += 1;
        if self.guides[guide].strikes > STRIKES {
            self.remove(guide);
        }
    }

    /// Ids were freed, and will be used again.
    pub(super) fn freed(&mut self, ops: &[OpId], storages: &[StorageId]) {
        self.so_far.freed(ops, storages);
    }

    fn forget_step(&mut self) {
        self.stop_keeping();
        self.so_far.clear();
    }
}
