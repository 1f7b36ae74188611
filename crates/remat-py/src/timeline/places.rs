//! Ops at their places in a step. An op's module and line are asked for where its place is seen for the first time, and
//! are those of its forward op where autograd runs it backward.

use std::hash::Hasher;

use remat_core::{OpSpec, Output};
use rustc_hash::{FxHashMap, FxHasher};

/// An index of a place.
pub(super) type PlaceId = u32;

/// The place of what no op made.
pub(super) const NOWHERE: PlaceId = 0;

/// Places by the ops before them that are known at most; others go by the op alone.
const MOST_PREFIXES: usize = 1 << 18;

/// Places at most that are told apart.
const MOST_PLACES: usize = 1 << 16;

/// Asking may take so many ticks, and one in so many of the run's.
const FREE: u64 = 5_000_000;
const SHARE: u64 = 50;

/// The part of a step that an op belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Phase {
    /// The forward pass, and all else.
    #[default]
    Forward,
    /// The backward pass.
    Backward,
    /// An optimizer's step.
    Update,
}

/// The names of phases, in their order.
pub(super) const PHASES: [&str; 3] = ["forward", "backward", "update"];

/// Where in the program an op was called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Site {
    /// The module, by its name within the outermost one, and its class.
    pub module: String,
    pub file: String,
    pub line: u32,
    pub function: String,
}

/// An op at a place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// An index into the names of ops.
    pub(super) name: u32,
    /// An index into the sites.
    pub(super) site: u32,
    pub(super) phase: Phase,
}

/// The sums of ops at a place in the whole run. Times are ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub(super) ops: u64,
    pub(super) took: u64,
    pub(super) replays: u64,
    pub(super) replayed: u64,
    /// Bytes that replays brought back.
    pub(super) returned: u64,
    pub(super) evictions: u64,
    /// Bytes of results that were dropped.
    pub(super) evicted: u64,
}

/// A list of distinct values.
pub(super) struct Distinct<T> {
    pub(super) all: Vec<T>,
    known: FxHashMap<T, u32>,
}

impl<T: Clone + Default + Eq + std::hash::Hash> Distinct<T> {
    fn new() -> Distinct<T> {
        let mut list = Distinct {
            all: Vec::new(),
            known: FxHashMap::default(),
        };
        list.index(T::default());
        list
    }

    fn index(&mut self, value: T) -> u32 {
        if let Some(&index) = self.known.get(&value) {
            return index;
        }
        let index = self.all.len() as u32;
        self.all.push(value.clone());
        self.known.insert(value, index);
        index
    }
}

/// All places of a run.
pub(super) struct Places {
    by_prefix: FxHashMap<u64, PlaceId>,
    by_op: FxHashMap<u64, PlaceId>,
    pub(super) names: Distinct<String>,
    pub(super) sites: Distinct<Site>,
    pub(super) places: Distinct<Place>,
    pub(super) costs: Vec<Cost>,
    /// A hash of the ops of the step so far.
    prefix: u64,
    /// Hash of the op that comes, beside its prefix.
    op: u64,
    /// Of the step's ops that have nodes the number of autograd's next node, and the site.
    forward: Vec<(u64, u32)>,
    /// Ticks that asking took.
    asked: u64,
    /// Ops whose site is that of a like op, because asking would take too long.
    pub(super) guessed: u64,
}

impl Places {
    pub(super) fn new() -> Places {
        Places {
            by_prefix: FxHashMap::default(),
            by_op: FxHashMap::default(),
            names: Distinct::new(),
            sites: Distinct::new(),
            places: Distinct::new(),
            costs: vec![Cost::default()],
            prefix: 0,
            op: 0,
            forward: Vec::new(),
            asked: 0,
            guessed: 0,
        }
    }

    /// An op comes. Its place; `None` if its site has to be asked for.
    pub(super) fn come(
        &mut self,
        name: &str,
        spec: &OpSpec<'_>,
        phase: Phase,
        now: u64,
    ) -> Option<PlaceId> {
        let mut hash = FxHasher::default();
        hash.write(name.as_bytes());
        hash.write_u8(phase as u8);
        // Inputs and what is written in place are announced otherwise once a form is known.
        for output in spec.outputs {
            if let Output::Fresh { bytes, .. } = *output {
                hash.write_u64(bytes.0);
            }
        }
        self.op = hash.finish();
        hash.write_u64(self.prefix);
        self.prefix = hash.finish();
        if let Some(&place) = self.by_prefix.get(&self.prefix) {
            return Some(place);
        }
        let may_ask = self.asked <= FREE + now / SHARE && self.by_prefix.len() < MOST_PREFIXES;
        if may_ask {
            return None;
        }
        self.guessed += 1;
        if let Some(&place) = self.by_op.get(&self.op) {
            return Some(place);
        }
        Some(self.place(name, 0, phase))
    }

    /// The site of the op that came was asked for, which took so many ticks.
    pub(super) fn learn(&mut self, name: &str, site: Site, phase: Phase, took: u64) -> PlaceId {
        self.asked += took;
        let site = self.sites.index(site);
        self.learn_site(name, site, phase)
    }

    /// The same of an op of the backward pass: autograd runs the node of this number.
    pub(super) fn learn_backward(
        &mut self,
        name: &str,
        node: u64,
        site: Site,
        took: u64,
    ) -> PlaceId {
        let at = self.forward.partition_point(|&(next, _)| next <= node);
        match self.forward.get(at) {
            Some(&(_, site)) => {
                self.asked += took;
                self.learn_site(name, site, Phase::Backward)
            }
            None => self.learn(name, site, Phase::Backward, took),
        }
    }

    fn learn_site(&mut self, name: &str, site: u32, phase: Phase) -> PlaceId {
        let place = self.place(name, site, phase);
        self.by_prefix.insert(self.prefix, place);
        self.by_op.insert(self.op, place);
        place
    }

    fn place(&mut self, name: &str, site: u32, phase: Phase) -> PlaceId {
        if self.places.all.len() >= MOST_PLACES {
            return NOWHERE;
        }
        let name = self.names.index(name.to_owned());
        let place = self.places.index(Place { name, site, phase });
        if self.costs.len() <= place as usize {
            self.costs.push(Cost::default());
        }
        place
    }

    /// An op runs, after which autograd's next node has this number. Where that is as before, it has no node.
    pub(super) fn note_forward(&mut self, next: u64, place: PlaceId) {
        let site = self.places.all[place as usize].site;
        match self.forward.last() {
            Some(&(last, _)) if last >= next => {}
            _ => self.forward.push((next, site)),
        }
    }

    /// A step begins.
    pub(super) fn turn(&mut self) {
        self.prefix = 0;
        self.forward.clear();
    }

    /// A hash of the step's ops.
    pub(super) fn hash(&self) -> u64 {
        self.prefix
    }

    pub(super) fn cost(&mut self, place: PlaceId) -> &mut Cost {
        &mut self.costs[place as usize]
    }
}
