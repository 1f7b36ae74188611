//! How a step is learned: found among the ops that the engine is told of, and recorded as it comes again.

use super::guides::{Guides, Learning};
use super::recorder::{Departed, Recorder};
use super::repeats::{Moment, Period, Repeats, Sought};
use super::signature::OriginsAt;
use crate::counters::Counters;
use crate::graph::Graph;
use crate::ids::{Cost, DeviceId};

/// Steps that are recorded; beyond, none is learned.
const MOST_STEPS: usize = 16;

/// After so many ops in a row that guides expect, none is learned from. A loop amid a step may be taken for a step; it
/// does not go on for so long.
const ENOUGH: u64 = 1 << 13;

impl Guides {
    /// An op is about to be announced: what repeats is found, and a step that is to be recorded is.
    pub(super) fn learn(&mut self, graph: &Graph, counters: &Counters, device: DeviceId) {
        for hash in self.follower.take_outdated() {
            self.known.retain(|&known| known != hash);
            self.kinds.forget(hash);
        }
        if self.repeats.seeks(Sought::Whole) && counters.replays > 0 {
            self.learn_replayed();
        }
        let earliest = std::mem::replace(&mut self.earliest, u64::MAX);
        let begins = std::mem::take(&mut self.begins);
        match std::mem::replace(&mut self.learning, Learning::Seeking) {
            Learning::Recording(recorder) if recorder.is_whole() => {
                let hash = recorder.hash();
                self.recorded = recorder.finish();
                if self.recorded.is_some() {
                    self.left.forget(hash);
                    self.follower.recorded(hash);
                    self.kinds.recorded(hash);
                } else {
                    self.seek_again(hash);
                }
            }
            Learning::Waiting(period) if period.ahead == 0 => {
                return self.record(graph, device, period.signatures, Cost(period.replayed));
            }
            Learning::Waiting(period) => {
                let ahead = period.ahead - 1;
                self.learning = Learning::Waiting(Period { ahead, ..period });
                return;
            }
            Learning::Seeking => {}
            recording => {
                self.learning = recording;
                return;
            }
        }
        if let Some((signatures, replayed)) = self.beginning(begins) {
            return self.record(graph, device, signatures, replayed);
        }
        while let Some(hash) = self.left.take_returned(self.announced) {
            self.seek_again(hash);
        }
        if self.recorded.is_some() || self.knows_most() || self.in_a_row > ENOUGH {
            // Ops before a gap are not followed by those after it.
            self.repeats.clear();
            return;
        }
        if self.follower.is_lost() {
            // The program does something else now, perhaps without a replay.
            self.repeats.seek(Sought::All);
        }
        let moment = Moment {
            signature: self.signature.whole,
            referenced: self.referenced,
            count: self.count,
            replayed: counters.replayed_cost.0,
            back: self.announced.saturating_sub(earliest),
        };
        let found = self.repeats.push(moment, &self.known);
        self.taken_in = true;
        if let Some(period) = found.filter(|period| self.is_step(period)) {
            self.wait_for(period);
        }
    }

    /// The step with these ops is recorded, from the one on that is being announced.
    fn record(&mut self, graph: &Graph, device: DeviceId, signatures: Vec<u64>, replayed: Cost) {
        let at = OriginsAt {
            origins: &self.origins,
            first: self.announced,
            ops: signatures.len() as u64,
        };
        let recorder = Recorder::new(graph, device, signatures, replayed, at);
        self.learning = Learning::Recording(Box::new(recorder));
        // Ops before a gap are not followed by those after it.
        self.repeats.clear();
    }

    /// The ops of a step that begins with the one being announced and is to be recorded, and the cost of its replays
    /// without a plan. `begins` tells whether one of the program's may begin with it.
    fn beginning(&mut self, begins: bool) -> Option<(Vec<u64>, Cost)> {
        if self.recorded.is_some() {
            return None;
        }
        let again = self.follower.begin_again();
        again.or_else(|| {
            let whole = self.signature.whole;
            let kind = begins.then(|| self.kinds.beginning_with(whole)).flatten()?;
            Some((kind.signatures, Cost(kind.replayed)))
        })
    }

    /// Whether what was found to repeat is a step: where the program says where its steps begin, those are the steps,
    /// and where it has several kinds in no order, a period that is one of these by chance may begin anywhere.
    fn is_step(&self, period: &Period) -> bool {
        let is_kind =
            self.kinds.are_several() && self.repeats.has_border_amid(period.signatures.len());
        !self.marked && !is_kind
    }

    /// A step of the program begins with the op that is announced next.
    pub(crate) fn mark_step(&mut self) {
        self.marked = true;
        if matches!(self.learning, Learning::Seeking) && !self.gap {
            if let Some(period) = self.repeats.mark(&self.known) {
                return self.wait_for(period);
            }
        }
        self.end_stretch();
    }

    /// A step of the program may begin with the op that is announced next.
    pub(crate) fn may_begin_step(&mut self) {
        if !self.marked {
            self.end_stretch();
        }
    }

    /// Of several kinds of step in no order, another one may have ended.
    fn end_stretch(&mut self) {
        if self.gap {
            return;
        }
        self.begins = true;
        if self.device.is_none() || !matches!(self.learning, Learning::Seeking) {
            return;
        }
        let Some((from, hash, moment)) = self.repeats.border() else {
            return;
        };
        let moment = (!self.marked).then_some(moment);
        if !self.kinds.note(hash, moment) || self.knows_most() {
            return;
        }
        let Some(step) = self.repeats.step_from(from) else {
            return;
        };
        // A plan of the same ops may begin amid them, and be left whenever another kind comes next.
        let is_known = self.known.contains(&step.hash)
            && !self.follower.has(step.hash)
            && !self.left.is_away(step.hash);
        if !is_known && !self.kinds.found(step.hash) && !self.follower.follows(&step.signatures) {
            self.left.forget(step.hash);
            self.seek_again(step.hash);
            self.known.push(step.hash);
            self.kinds.wait_for(step);
        }
    }

    /// From now on steps are learned in which something is replayed. One that is learned was found without.
    fn learn_replayed(&mut self) {
        self.repeats = Repeats::default();
        match &self.learning {
            Learning::Seeking => {}
            Learning::Waiting(period) => self.seek_again(period.hash),
            Learning::Recording(recorder) => self.seek_again(recorder.hash()),
        }
    }

    fn wait_for(&mut self, period: Period) {
        self.known.push(period.hash);
        self.learning = Learning::Waiting(period);
        self.repeats.clear();
    }

    /// Tells the recording, which ends where it cannot follow.
    pub(super) fn tell(&mut self, told: impl FnOnce(&mut Recorder) -> Result<(), Departed>) {
        if let Learning::Recording(recorder) = &mut self.learning {
            if told(recorder).is_err() {
                let (hash, ops) = (recorder.hash(), recorder.ops());
                self.seek_again(hash);
                self.put_off(hash, ops);
            }
        }
    }

    /// The step of so many ops was left while it was recorded. It may be a loop amid a step, which would be found again
    /// and again before the step comes twice: each time it counts as known for longer.
    fn put_off(&mut self, hash: u64, ops: u64) {
        // Kinds of step that begin alike are left in turn.
        if !self.known.contains(&hash) && !self.kinds.found(hash) {
            self.left.note(hash, ops, self.announced);
            self.known.push(hash);
        }
    }

    /// Whether no more steps are learned.
    fn knows_most(&self) -> bool {
        self.known.len().saturating_sub(self.left.away()) >= MOST_STEPS
    }

    /// The step of this hash was not recorded after all.
    fn seek_again(&mut self, hash: u64) {
        if !self.follower.has(hash) {
            self.known.retain(|&known| known != hash);
        }
        self.learning = Learning::Seeking;
    }
}
