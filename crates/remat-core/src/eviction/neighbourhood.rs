//! Neighbours of a storage, and the exact evicted neighbourhood `e*` (DTR appendix C.2): evicted ancestors and
//! descendants reachable through evicted storages.

use crate::eviction::multi_source::WIDTH;
use crate::eviction::policy::Numerator;
use crate::graph::{Graph, Storage, NONE};
use crate::journal::Entry;
use crate::transaction::state::State;
use crate::StorageId;

/// Which way a walk goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Ancestors,
    Descendants,
}

impl Way {
    pub(crate) fn back(self) -> Way {
        match self {
            Way::Ancestors => Way::Descendants,
            Way::Descendants => Way::Ancestors,
        }
    }
}

/// Storages that [`Numerator::NearAncestors`] looks at, at most.
const NEAR: u64 = 256;

/// Under [`Numerator::NearAncestors`] a storage that the program let go counts this much less: what it is there for is to
/// recompute others, and a replay brings back more of that kind than will be asked for again.
const LET_GO: i64 = 32;

impl Graph {
    /// Names the storages next to `s` one way, some more than once, and lends all storages along.
    pub(crate) fn each_next(
        &mut self,
        s: StorageId,
        way: Way,
        mut name: impl FnMut(&mut [Storage], StorageId),
    ) {
        let known = self.storages[s.index()].only_next[way as usize];
        if known != NONE && known != s.0 {
            #[cfg(debug_assertions)]
            self.each_listed(s, way, |_, next| {
                debug_assert!(next == s || next.0 == known, "{s:?} has only {known}");
            });
            return name(&mut self.storages, StorageId(known));
        }
        let mut only = NONE;
        self.each_listed(s, way, |storages, next| {
            if next != s && only != next.0 {
                only = if only == NONE { next.0 } else { s.0 };
            }
            name(storages, next);
        });
        self.storages[s.index()].only_next[way as usize] = if only == NONE { s.0 } else { only };
    }

    /// [`each_next`](Self::each_next), read off the ops.
    fn each_listed(
        &mut self,
        s: StorageId,
        way: Way,
        mut name: impl FnMut(&mut [Storage], StorageId),
    ) {
        let Graph {
            storages,
            tensors,
            ops,
            ..
        } = self;
        match way {
            Way::Ancestors => {
                for place in 0..storages[s.index()].views.len() {
                    let view = storages[s.index()].views[place];
                    if let Some(op) = tensors[view.index()].op {
                        for input in &ops[op.index()].inputs {
                            name(storages, tensors[input.index()].storage);
                        }
                    }
                }
            }
            Way::Descendants => {
                for place in 0..storages[s.index()].readers.len() {
                    let reader = storages[s.index()].readers[place];
                    for output in &ops[reader.op.index()].outputs {
                        name(storages, tensors[output.index()].storage);
                    }
                }
            }
        }
    }

    /// Appends the storages next to `s` one way that do not bear the stamp, and stamps them.
    fn step(&mut self, s: StorageId, way: Way, stamp: u32, into: &mut Vec<StorageId>) {
        self.each_next(s, way, |storages, next| {
            if std::mem::replace(&mut storages[next.index()].stamp, stamp) != stamp {
                into.push(next);
            }
        });
    }
}

impl State {
    /// The storages that `s` is computed from and those computed from it, each once, without itself and the dead.
    pub(crate) fn neighbours(&mut self, s: StorageId, into: &mut Vec<StorageId>) {
        into.clear();
        let stamp = self.graph.new_stamp();
        self.graph.storages[s.index()].stamp = stamp;
        self.graph.step(s, Way::Ancestors, stamp, into);
        self.graph.step(s, Way::Descendants, stamp, into);
        into.retain(|neighbour| !self.graph.storages[neighbour.index()].gone());
    }

    /// The numerator of a storage's score, computed afresh, and how many other storages were looked at.
    pub(crate) fn numerator(&mut self, s: StorageId) -> Counted {
        self.numerator_of_few(s, u64::MAX)
    }

    /// The numerator, or where it counts ancestors, a lower bound of it from so many of them: costs are not negative, and the first that a
    /// walk looks at are the same however far it goes. A bound if as many were looked at.
    pub(crate) fn numerator_of_few(&mut self, s: StorageId, most: u64) -> Counted {
        let cost = self.graph.storages[s.index()].cost as i64;
        self.scored = true;
        let storage = &self.graph.storages[s.index()];
        if storage.gone() {
            // Nobody can ask for it, and so nothing tells it of changes around it: it costs nothing to drop.
            return Counted::alone(0);
        }
        match self.rule.numerator {
            Numerator::One => Counted::alone(1),
            Numerator::Cost => Counted::alone(cost),
            Numerator::Components => self.adjacent_worth(s, cost),
            Numerator::Neighbourhood | Numerator::Count => {
                let up = self.evicted(s, Way::Ancestors, u64::MAX);
                let down = self.evicted(s, Way::Descendants, u64::MAX);
                self.around(s, &up, &down)
            }
            Numerator::Ancestors | Numerator::NearAncestors => {
                let up = self.evicted(s, Way::Ancestors, most);
                self.around(s, &up, &Sum::default())
            }
        }
    }

    /// The numerators of at most [`WIDTH`](crate::eviction::multi_source::WIDTH) storages under a policy that looks at the whole
    /// neighbourhood.
    pub(crate) fn numerators(
        &mut self,
        of: &[StorageId],
        mut tell: impl FnMut(&mut State, StorageId, Counted),
    ) {
        self.scored = true;
        let up = self.evicted_together(of, Way::Ancestors);
        let down = match self.rule.numerator {
            Numerator::Ancestors => [Sum::default(); WIDTH],
            _ => self.evicted_together(of, Way::Descendants),
        };
        for (&s, (up, down)) in of.iter().zip(up.iter().zip(&down)) {
            let counted = match self.graph.storages[s.index()].gone() {
                true => Counted::alone(0),
                false => self.around(s, up, down),
            };
            tell(self, s, counted);
        }
    }

    /// What the sums over a storage's evicted ancestors and descendants say of it.
    fn around(&self, s: StorageId, up: &Sum, down: &Sum) -> Counted {
        let storage = &self.graph.storages[s.index()];
        let cost = (storage.cost as i64)
            .wrapping_add(up.cost)
            .wrapping_add(down.cost);
        Counted {
            numerator: match self.rule.numerator {
                Numerator::Count => up.count + down.count,
                Numerator::NearAncestors if storage.refs == 0 => cost / LET_GO,
                _ => cost,
            },
            latest: up.latest.max(down.latest),
            seen: up.seen + down.seen,
        }
    }

    /// Own cost and the worth of each distinct adjacent component; watches those.
    fn adjacent_worth(&mut self, s: StorageId, cost: i64) -> Counted {
        let mut around = std::mem::take(&mut self.around);
        let mut roots = std::mem::take(&mut self.touched);
        self.neighbours(s, &mut around);
        roots.clear();
        let evicted = around
            .iter()
            .map(|neighbour| &self.graph.storages[neighbour.index()]);
        for neighbour in evicted.filter(|neighbour| !neighbour.resident && neighbour.node != NONE) {
            roots.push(self.components.root(neighbour.node));
        }
        roots.sort_unstable();
        roots.dedup();
        let mut sum = cost;
        for &root in &roots {
            sum = sum.wrapping_add(self.components.worth(root));
            self.components.watch(root, s.0);
        }
        let seen = around.len() as u64;
        roots.clear();
        self.around = around;
        self.touched = roots;
        Counted {
            numerator: sum,
            latest: 0,
            seen,
        }
    }

    /// Sums over the evicted storages reachable one way through evicted ones; stops when it has looked at so many or counted enough.
    fn evicted(&mut self, s: StorageId, way: Way, most: u64) -> Sum {
        let most = match self.rule.numerator {
            Numerator::NearAncestors => most.min(NEAR),
            _ => most,
        };
        let looked = self.looked(s);
        let mut sum = Sum::default();
        self.walk_evicted(s, way, |state, next| {
            let storage = &mut state.graph.storages[next.index()];
            sum.seen += 1;
            storage.quiet[way.back() as usize] = false;
            if !storage.resident && storage.announced <= looked {
                sum.count(storage);
            }
            sum.seen < most
        });
        sum
    }

    /// Voids the cached numerators that count `s`: those of the resident storages that reach it through evicted ones.
    pub(crate) fn void_neighbourhood(&mut self, s: StorageId, change: Change) {
        let looked = self.look_again(s, change);
        if !self.scored && looked.is_none() {
            return;
        }
        self.void_numerator(s);
        // A score that counts ancestors only is one of a descendant.
        let ways = match self.rule.numerator {
            Numerator::Ancestors | Numerator::NearAncestors => &[Way::Descendants][..],
            _ => &[Way::Ancestors, Way::Descendants],
        };
        for &way in ways {
            self.void_that_way(s, way, looked.filter(|_| way == Way::Ancestors));
        }
    }

    /// Voids the numerators that count `s` of the storages one way. Where nothing valid is left to void the walk stops.
    fn void_that_way(&mut self, s: StorageId, way: Way, looked: Option<u64>) {
        let mut walk = std::mem::take(&mut self.walk);
        walk.clear();
        let stamp = self.graph.new_stamp();
        self.graph.storages[s.index()].stamp = stamp;
        self.graph.step(s, way, stamp, &mut walk);
        while let Some(next) = walk.pop() {
            let storage = &mut self.graph.storages[next.index()];
            if storage.gone() {
                continue;
            }
            if storage.resident {
                if storage.scored {
                    self.void_numerator(next);
                }
                if let Some(latest) = looked {
                    self.look_until(next, latest);
                }
                continue;
            }
            let told = looked.is_none_or(|latest| storage.told >= latest);
            if std::mem::replace(&mut storage.quiet[way as usize], true) && told {
                continue;
            }
            if let Some(latest) = looked.filter(|_| !told) {
                self.journal.write(Entry::Told(next, storage.told));
                storage.told = latest;
            }
            self.graph.step(next, way, stamp, &mut walk);
        }
        self.walk = walk;
    }

    /// The announcements up to this one count in the storage's score, all of them unless the engine is told to do as the
    /// authors' simulator does: that keeps the evicted descendants of each storage and looks for them anew only when one of
    /// them comes back; what is evicted is added with the descendants that it had itself. A result that is announced and
    /// not yet computed so counts only from when it is next looked for.
    pub(crate) fn looked(&self, s: StorageId) -> u64 {
        match self.announces_late {
            true => self.graph.storages[s.index()].looked,
            false => u64::MAX,
        }
    }

    /// A storage changes: the announcements that its ancestors count from now on, if those are others.
    fn look_again(&mut self, s: StorageId, change: Change) -> Option<u64> {
        match change {
            _ if !self.announces_late || self.open_ops == 0 => None,
            _ if self.rule.numerator == Numerator::Ancestors => None,
            Change::Back => {
                self.look_until(s, self.announcements);
                Some(self.announcements)
            }
            Change::Evicted => Some(self.looked(s)).filter(|&looked| looked == self.announcements),
            Change::Other => None,
        }
    }

    fn look_until(&mut self, s: StorageId, latest: u64) {
        let before = self.graph.storages[s.index()].looked;
        if before < latest {
            self.journal.write(Entry::Looked(s, before));
            self.graph.storages[s.index()].looked = latest;
        }
    }

    /// Visits every storage reachable from `s` one way, going on through evicted ones only, as long as the visitor likes.
    fn walk_evicted(
        &mut self,
        s: StorageId,
        way: Way,
        mut visit: impl FnMut(&mut State, StorageId) -> bool,
    ) {
        let mut walk = std::mem::take(&mut self.walk);
        walk.clear();
        let stamp = self.graph.new_stamp();
        self.graph.storages[s.index()].stamp = stamp;
        self.graph.step(s, way, stamp, &mut walk);
        while let Some(next) = walk.pop() {
            let storage = &self.graph.storages[next.index()];
            if storage.gone() {
                continue;
            }
            if !storage.resident {
                self.graph.step(next, way, stamp, &mut walk);
            }
            if !visit(self, next) {
                break;
            }
        }
        self.walk = walk;
    }
}

/// What a walk sums up.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum {
    /// Cost of the evicted storages.
    cost: i64,
    /// Their number.
    count: i64,
    /// The latest access to one of them.
    latest: u64,
    /// Storages looked at.
    pub(crate) seen: u64,
}

impl Sum {
    pub(crate) fn count(&mut self, storage: &Storage) {
        self.cost = self.cost.wrapping_add(storage.cost as i64);
        self.count += 1;
        self.latest = self.latest.max(storage.last_access);
    }

    pub(crate) fn add(&mut self, other: &Sum) {
        self.cost = self.cost.wrapping_add(other.cost);
        self.count += other.count;
        self.latest = self.latest.max(other.latest);
        self.seen += other.seen;
    }
}

/// What happened to a storage that scores around it may count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It was evicted.
    Evicted,
    /// It came back, or was computed for the first time.
    Back,
    /// Its cost, its last access, or whether it counts at all.
    Other,
}

/// What a storage's surroundings say of it.
pub(crate) struct Counted {
    pub(crate) numerator: i64,
    /// The latest access to the evicted storages counted, 0 where the policy does not ask.
    pub(crate) latest: u64,
    /// Other storages looked at.
    pub(crate) seen: u64,
}

impl Counted {
    fn alone(numerator: i64) -> Counted {
        Counted {
            numerator,
            latest: 0,
            seen: 0,
        }
    }
}
