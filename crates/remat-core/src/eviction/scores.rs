//! Keeping scores valid: the changes that void a cached numerator.

use super::candidates::Candidates;
use super::components::Components;
use super::neighbourhood::Announced;
use super::next_use::NextUses;
use super::numerator::{Counted, Numerators};
use super::policy::{Numerator, Reach, Rule, Summed};
use crate::graph::{Graph, Way};
use crate::ids::StorageId;
use crate::journal::{Entry, Journal};
use crate::random::Draws;

/// Which storage goes first: the candidates, and all that their scores are made of.
pub(crate) struct Eviction {
    pub(crate) candidates: Candidates,
    pub(crate) components: Components,
    pub(crate) next_uses: NextUses,
    pub(crate) draws: Draws,
    pub(super) numerators: Numerators,
    pub(super) bounds: Bounds,
    ages: Ages,
    /// A numerator was ever computed; else there is none to void.
    pub(super) scored: bool,
    /// The number of the latest announcement of an op.
    announcements: u64,
    /// Scratch of walks.
    stack: Vec<StorageId>,
    pub(super) around: Vec<StorageId>,
    pub(super) watchers: Vec<u32>,
    pub(super) stale: Vec<StorageId>,
    pub(super) counted: Vec<(StorageId, Counted)>,
}

/// Choices of the engine's configuration that scores depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// Storages without references are banished (DTR appendix C.5).
    pub(crate) banishes: bool,
    /// Ops are remembered for ever, as in the authors' simulator.
    pub(crate) keeps_lineage: bool,
}

/// Lower bounds of numerators.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bounds {
    /// Bounds are made of so many ancestors; `None`: there are none.
    pub(super) ancestors: Option<u64>,
    /// Numerators of candidates may be bounds.
    pub(super) any: bool,
}

/// How stale a storage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ages {
    Alone,
    /// As its evicted neighbourhood's least stale (rule 15 of the reference).
    WithNeighbourhood,
}

/// A change of a storage that scores around it may count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It was evicted.
    Evicted,
    /// It came back, or was computed for the first time.
    Back,
    /// Its cost, its last access, or whether it counts at all.
    Other,
}

impl Eviction {
    pub(crate) fn new(rule: &Rule, seed: u64, reference: Reference) -> Eviction {
        let evicted = rule.numerator.evicted();
        let exact = evicted.is_some_and(|evicted| {
            (evicted.reach, evicted.sum) == (Reach::Neighbourhood, Summed::Cost)
        });
        let announced = if reference.keeps_lineage && evicted.is_some() {
            Announced::CountsOnceSeen
        } else {
            Announced::Counts
        };
        let ages = if reference.banishes && exact {
            Ages::WithNeighbourhood
        } else {
            Ages::Alone
        };
        Eviction {
            candidates: Candidates::new(rule.form),
            components: Components::default(),
            next_uses: NextUses::default(),
            draws: Draws(seed),
            numerators: Numerators::new(rule.numerator, announced),
            bounds: Bounds {
                // Bounds of costs are none of ages.
                ancestors: evicted
                    .and_then(|evicted| evicted.bound)
                    .filter(|_| ages == Ages::Alone),
                any: false,
            },
            ages,
            scored: false,
            announcements: 0,
            stack: Vec::new(),
            around: Vec::new(),
            watchers: Vec::new(),
            stale: Vec::new(),
            counted: Vec::new(),
        }
    }

    /// Whether scores count evicted storages around, one by one.
    pub(crate) fn counts_neighbourhoods(&self) -> bool {
        self.numerators.kind.evicted().is_some()
    }

    /// Whether scores count the adjacent evicted components.
    pub(crate) fn counts_components(&self) -> bool {
        self.numerators.kind == Numerator::Components
    }

    /// Whether announced results count at once, or only in the scores of storages that have seen the announcement.
    pub(crate) fn announced(&self) -> Announced {
        self.numerators.announced
    }

    /// Whether a numerator was ever computed; else there is none to void.
    #[inline]
    pub(crate) fn has_scored(&self) -> bool {
        self.scored
    }

    /// Forgets all numerators. As long as none is known, nothing has to be voided: where plans say what goes, nobody
    /// searches, and keeping scores valid would take longer than counting them afresh when somebody does.
    pub(crate) fn forget_scores(&mut self, graph: &mut Graph) {
        if std::mem::take(&mut self.scored) {
            let storages = graph.storages.iter_mut();
            storages.for_each(|storage| storage.scored = false);
            self.candidates.void_all();
        }
    }

    /// Numbers the announcement of an op.
    pub(crate) fn announce(&mut self) -> u64 {
        self.announcements += 1;
        self.announcements
    }

    pub(super) fn ages_with_neighbourhood(&self) -> bool {
        self.ages == Ages::WithNeighbourhood
    }

    pub(crate) fn set_last_access(
        &mut self,
        graph: &mut Graph,
        journal: &mut Journal,
        s: StorageId,
        time: u64,
    ) {
        graph[s].last_access = time;
        self.candidates.set_last_access(graph, s, time);
        if self.ages_with_neighbourhood() {
            if graph[s].resident {
                self.candidates.void(graph, s);
            } else {
                self.void_neighbourhood(graph, journal, s, Change::Other);
            }
        }
    }

    /// Voids the cached numerators that count `s`: those of the resident storages that reach it through evicted ones.
    pub(crate) fn void_neighbourhood(
        &mut self,
        graph: &mut Graph,
        journal: &mut Journal,
        s: StorageId,
        change: Change,
    ) {
        let Some(evicted) = self.numerators.kind.evicted() else {
            return;
        };
        let latest = self.announce_to_ancestors(graph, journal, s, evicted.reach, change);
        if !self.scored && latest.is_none() {
            return;
        }
        self.candidates.void(graph, s);
        if change != Change::Other && graph[s].refs > 0 {
            self.void_discounts(graph, s);
        }
        if evicted.reach == Reach::Neighbourhood {
            self.void_that_way(graph, journal, s, Way::Ancestors, latest);
        }
        // A score that counts ancestors only is one of a descendant.
        self.void_that_way(graph, journal, s, Way::Descendants, None);
    }

    /// `s`, to which the program refers, is missing from now on, or no longer is: what it is made from counts for more,
    /// or for less.
    pub(crate) fn void_discounts(&mut self, graph: &mut Graph, s: StorageId) {
        let evicted = self.numerators.kind.evicted();
        if !self.scored || evicted.is_none_or(|evicted| evicted.unreferenced.is_none()) {
            return;
        }
        self.stack.clear();
        let stamp = graph.new_stamp();
        graph[s].stamp = stamp;
        graph.step(s, Way::Ancestors, stamp, &mut self.stack);
        while let Some(made_from) = self.stack.pop() {
            if graph[made_from].scored && graph[made_from].refs == 0 {
                self.candidates.void(graph, made_from);
            }
        }
    }

    /// Voids the numerators that count `s` of the storages one way. The walk stops where nothing valid is left to void.
    fn void_that_way(
        &mut self,
        graph: &mut Graph,
        journal: &mut Journal,
        s: StorageId,
        way: Way,
        latest: Option<u64>,
    ) {
        self.stack.clear();
        let stamp = graph.new_stamp();
        graph[s].stamp = stamp;
        graph.step(s, way, stamp, &mut self.stack);
        while let Some(next) = self.stack.pop() {
            let storage = &mut graph[next];
            if storage.unreachable() {
                continue;
            }
            if storage.resident {
                if storage.scored {
                    self.candidates.void(graph, next);
                }
                if let Some(latest) = latest {
                    see_until(graph, journal, next, latest);
                }
                continue;
            }
            let propagated = latest.is_none_or(|latest| storage.propagated_announcement >= latest);
            if std::mem::replace(&mut storage.unobserved[way as usize], true) && propagated {
                continue;
            }
            if let Some(latest) = latest.filter(|_| !propagated) {
                journal.write(Entry::Propagated(next, storage.propagated_announcement));
                storage.propagated_announcement = latest;
            }
            graph.step(next, way, stamp, &mut self.stack);
        }
    }

    /// A storage changes: the announcements that its ancestors count from now on, if those are others.
    fn announce_to_ancestors(
        &self,
        graph: &mut Graph,
        journal: &mut Journal,
        s: StorageId,
        reach: Reach,
        change: Change,
    ) -> Option<u64> {
        let announced = self.numerators.announced;
        if announced == Announced::Counts || graph.open_ops == 0 || reach == Reach::Ancestors {
            return None;
        }
        match change {
            Change::Back => {
                see_until(graph, journal, s, self.announcements);
                Some(self.announcements)
            }
            Change::Evicted => {
                Some(announced.seen_by(&graph[s])).filter(|&seen| seen == self.announcements)
            }
            Change::Other => None,
        }
    }
}

/// From now on the announcements up to the latest count in the storage's score.
fn see_until(graph: &mut Graph, journal: &mut Journal, s: StorageId, latest: u64) {
    let before = graph[s].seen_announcement;
    if before < latest {
        journal.write(Entry::Saw(s, before));
        graph[s].seen_announcement = latest;
    }
}
