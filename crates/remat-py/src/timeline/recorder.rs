//! The recorder of a timeline: the session tells it what it does, and it splits that into steps.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use remat_core::{DeviceId, OpId, OpSpec};

use super::blocks::Blocks;
use super::event::{Detail, Event, TICK};
use super::level::sum;
use super::places::{NOWHERE, Phase, PlaceId, Places, Site};
use super::steps::{Line, Steps};

/// A step with more ops, or more events, is cut in parts.
const MOST_OPS: u64 = 1 << 16;
const MOST_EVENTS: usize = 1 << 17;

/// To be done before an op is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coming {
    /// Nothing.
    Seen,
    /// Its site is asked for, and [learned](Recorder::learn).
    New,
    /// Whether the program has optimizers is asked for, and [told](Recorder::manual); then it comes again.
    Unsure,
}

/// Where an op comes from, as the session sees it.
#[derive(Clone, Copy, Debug)]
pub struct Looked {
    /// Whether autograd runs it.
    pub backward: bool,
    /// The number of autograd's next node, if that is known.
    pub next_node: Option<u64>,
    /// Steps that ran as planned so far.
    pub planned: u64,
}

/// Whether steps end with a backward pass, for want of optimizers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manual {
    Unknown,
    Yes,
    No,
}

/// Records a run.
pub struct Recorder {
    started: Instant,
    /// Microseconds since 1970 when the run began.
    pub(super) unix: u64,
    /// The device whose budget is reported.
    pub(super) device: DeviceId,
    pub(super) blocks: Blocks,
    pub(super) places: Places,
    pub(super) steps: Steps,
    pub(super) detail: Detail,
    /// When the step began.
    began: u64,
    /// Ops in it.
    ops: u64,
    /// The time of the latest event.
    pub(super) now: u64,
    pub(super) phase: Phase,
    /// Whether an optimizer's step runs.
    updating: bool,
    /// The place of the op that comes or ran last, and when it began.
    pub(super) place: PlaceId,
    pub(super) at: u64,
    /// The replay that runs, as an index of its event.
    pub(super) replay: Option<usize>,
    /// The places of ops that may be replayed, by op.
    made_at: Vec<PlaceId>,
    /// Whether an optimizer ran in the step, or autograd.
    updated: bool,
    went_back: bool,
    manual: Manual,
    /// Whether the program marks its steps.
    marked: bool,
    /// Steps that ran as planned when the step began.
    planned: u64,
    planned_now: u64,
    outside: i64,
    pub(super) outside_now: i64,
}

impl Default for Recorder {
    fn default() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        Recorder {
            started: Instant::now(),
            unix: unix.map_or(0, |since| since.as_micros() as u64),
            device: DeviceId(0),
            blocks: Blocks::default(),
            places: Places::new(),
            steps: Steps::default(),
            detail: Detail::default(),
            began: 0,
            ops: 0,
            now: 0,
            phase: Phase::Forward,
            updating: false,
            place: NOWHERE,
            at: 0,
            replay: None,
            made_at: Vec::new(),
            updated: false,
            went_back: false,
            manual: Manual::Unknown,
            marked: false,
            planned: 0,
            planned_now: 0,
            outside: 0,
            outside_now: 0,
        }
    }
}

// Ops.
impl Recorder {
    pub(super) fn tick(&mut self) -> u64 {
        // Two ops do not begin in one tick: results are known by the time at which their op began.
        let now = self.started.elapsed().as_nanos() as u64 / TICK;
        self.now = now.max(self.now + 1);
        self.now
    }

    /// An op is about to be announced.
    pub fn come(&mut self, name: &str, spec: &OpSpec<'_>, looked: &Looked) -> Coming {
        if !looked.backward && !self.updating {
            if self.went_back && !self.updated && !self.marked && self.manual == Manual::Unknown {
                return Coming::Unsure;
            }
            let ends = self.updated || (self.went_back && self.manual == Manual::Yes);
            if ends && !self.marked {
                self.end_step();
            }
        }
        if self.ops >= MOST_OPS || self.detail.events.len() >= MOST_EVENTS {
            self.end_step();
        }
        self.planned_now = looked.planned;
        self.went_back |= looked.backward;
        self.phase = match (looked.backward, self.updating) {
            (true, _) => Phase::Backward,
            (false, true) => Phase::Update,
            (false, false) => Phase::Forward,
        };
        match self.places.come(name, spec, self.phase, self.now) {
            Some(place) => {
                self.place = place;
                self.note_forward(looked);
                Coming::Seen
            }
            None => Coming::New,
        }
    }

    /// The site of the op that comes, which took so many nanoseconds to find. In a backward pass also the number of the
    /// node that autograd runs.
    pub fn learn(
        &mut self,
        name: &str,
        site: Site,
        node: Option<u64>,
        looked: &Looked,
        nanoseconds: u64,
    ) {
        let took = nanoseconds / TICK;
        self.place = match node {
            Some(node) if self.phase == Phase::Backward => {
                self.places.learn_backward(name, node, site, took)
            }
            _ => self.places.learn(name, site, self.phase, took),
        };
        self.note_forward(looked);
    }

    fn note_forward(&mut self, looked: &Looked) {
        // Ops of a forward pass may run in an optimizer's step, or again in the backward pass.
        if let Some(next) = looked.next_node {
            self.places.note_forward(next, self.place);
        }
    }

    /// Whether steps end with a backward pass, because the program has no optimizer.
    pub fn manual(&mut self, is: bool) {
        self.manual = if is { Manual::Yes } else { Manual::No };
    }

    /// The op that came runs now.
    pub fn begun(&mut self) {
        self.at = self.tick();
        if self.steps.count == 0 && self.ops == 0 {
            self.began = self.at; // what came before, such as imports, is no part of the first step
        }
    }

    /// It ran.
    pub fn ran(&mut self, op: OpId, workspace: u64) {
        let now = self.tick();
        let took = ticks(self.at, now);
        let cost = self.places.cost(self.place);
        cost.ops += 1;
        cost.took += u64::from(took);
        self.ops += 1;
        if self.made_at.len() <= op.index() {
            self.made_at.resize(op.index() + 1, NOWHERE);
        }
        self.made_at[op.index()] = self.place;
        self.detail.events.push(Event::Op {
            at: self.at,
            took,
            place: self.place,
            workspace,
        });
    }

    /// A recorded op is about to run again.
    pub fn replaying(&mut self, op: OpId, workspace: u64) {
        let at = self.tick();
        let place = self.made_at.get(op.index()).copied().unwrap_or(NOWHERE);
        self.places.cost(place).replays += 1;
        self.replay = Some(self.detail.events.len());
        self.detail.events.push(Event::Replay {
            at,
            took: 0,
            place,
            workspace,
        });
    }

    /// It ran.
    pub fn replayed(&mut self) {
        let now = self.tick();
        let running = self.replay.take();
        if let Some(Event::Replay {
            at, took, place, ..
        }) = running.and_then(|at| self.detail.events.get_mut(at))
        {
            *took = ticks(*at, now);
            self.places.cost(*place).replayed += u64::from(*took);
        }
    }
}

// Steps.
impl Recorder {
    /// A step of the program begins with the op that comes next.
    pub fn mark_step(&mut self) {
        self.marked = true;
        self.end_step();
    }

    /// An optimizer's step begins, or ended.
    pub fn updating(&mut self, begins: bool) {
        self.updating = begins;
        self.updated |= !begins;
        self.manual = Manual::No;
    }

    /// Ends the recording's last step, unless it is no more than a few ops after the one before, such as those of the
    /// loss that is printed.
    pub(super) fn end(&mut self) {
        let before = self
            .steps
            .lines
            .last()
            .map_or(0, |line| line.sum.ops / line.count);
        let acted = |event: &Event| matches!(event, Event::Evicted { .. } | Event::Replay { .. });
        let few = self.ops * 20 < before && !self.went_back;
        if few && !self.detail.events.iter().any(acted) {
            return;
        }
        self.end_step();
    }

    /// Ends the step, if any op ran in it.
    fn end_step(&mut self) {
        (self.updated, self.went_back) = (false, false);
        if self.ops == 0 {
            return;
        }
        let now = self.tick();
        self.detail.blocks.clone_from(&self.blocks.all);
        self.detail.outside = self.outside;
        let sum = sum(&self.detail, self.device);
        let (kind, is_new) = self.steps.kind(self.places.hash());
        let line = Line {
            number: self.steps.count + 1,
            count: 1,
            began: self.began,
            ended: now,
            sum,
            kind,
            planned: self.planned_now.saturating_sub(self.planned).min(1),
        };
        let detail = std::mem::take(&mut self.detail);
        self.detail = self.steps.add(line, is_new, detail);
        self.began = now;
        self.ops = 0;
        self.planned = self.planned_now;
        self.outside = self.outside_now;
        self.replay = None;
        self.blocks.turn();
        self.places.turn();
    }
}

fn ticks(from: u64, to: u64) -> u32 {
    u32::try_from(to - from).unwrap_or(u32::MAX)
}
