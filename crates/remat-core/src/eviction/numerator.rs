//! The numerators of scores, counted afresh.

use super::components::Components;
use super::multi_source::{MultiSource, WIDTH};
use super::neighbourhood::{Announced, Sum, Until, Walk, sum_evicted};
use super::policy::{Evicted, Numerator, Reach, Summed};
use crate::graph::{Graph, NONE, Way};
use crate::ids::StorageId;

/// A storage's numerator, and what it took to count it.
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

/// Counts numerators of one kind.
pub(crate) struct Numerators {
    pub(crate) kind: Numerator,
    pub(crate) announced: Announced,
    /// Numerators are compared with cached ones and not kept: counting them leaves no trace.
    pub(crate) peeks: bool,
    multi_source: MultiSource,
    /// Scratch of walks.
    stack: Vec<StorageId>,
    around: Vec<StorageId>,
    roots: Vec<u32>,
}

impl Numerators {
    pub(crate) fn new(kind: Numerator, announced: Announced) -> Numerators {
        Numerators {
            kind,
            announced,
            peeks: false,
            multi_source: MultiSource::default(),
            stack: Vec::new(),
            around: Vec::new(),
            roots: Vec::new(),
        }
    }

    /// The numerator, or where it counts ancestors, a lower bound of it: costs are not negative, and a walk looks at
    /// the same storages first however far it goes.
    pub(crate) fn count(
        &mut self,
        graph: &mut Graph,
        components: &mut Components,
        s: StorageId,
        until: Until,
    ) -> Counted {
        let storage = &graph[s];
        let cost = storage.cost as i64;
        if storage.unreachable() {
            // Nothing tells it of changes around it; it costs nothing to drop.
            return Counted::alone(0);
        }
        match self.kind {
            Numerator::One => Counted::alone(1),
            Numerator::Cost => Counted::alone(cost),
            Numerator::Components => self.count_components(graph, components, s, cost),
            Numerator::Evicted(evicted) => self.count_evicted(graph, &evicted, s, until),
        }
    }

    fn count_evicted(
        &mut self,
        graph: &mut Graph,
        evicted: &Evicted,
        s: StorageId,
        until: Until,
    ) -> Counted {
        let until = match evicted.reach {
            Reach::Ancestors => among_ancestors(until, graph, evicted, s),
            Reach::Neighbourhood => Until::seen(evicted.limit),
        };
        let (announced, peeks, stack) = (self.announced, self.peeks, &mut self.stack);
        let mut sum = |way| {
            let walk = Walk {
                from: s,
                way,
                until,
                peeks,
            };
            sum_evicted(graph, &walk, announced, stack)
        };
        let up = sum(Way::Ancestors);
        let down = match evicted.reach {
            Reach::Ancestors => Sum::default(),
            Reach::Neighbourhood => sum(Way::Descendants),
        };
        around(graph, evicted, s, &up, &down)
    }

    /// The whole numerators of at most [`WIDTH`] storages, by walks that share a pass.
    pub(crate) fn count_many(
        &mut self,
        graph: &mut Graph,
        evicted: &Evicted,
        of: &[StorageId],
        mut tell: impl FnMut(&mut Graph, StorageId, Counted),
    ) {
        let announced = self.announced;
        let up = self.multi_source.sums(graph, of, Way::Ancestors, announced);
        let down = match evicted.reach {
            Reach::Ancestors => [Sum::default(); WIDTH],
            Reach::Neighbourhood => self
                .multi_source
                .sums(graph, of, Way::Descendants, announced),
        };
        for (&s, (up, down)) in of.iter().zip(up.iter().zip(&down)) {
            let counted = if graph[s].unreachable() {
                Counted::alone(0)
            } else {
                around(graph, evicted, s, up, down)
            };
            tell(graph, s, counted);
        }
    }

    /// Own cost and that of each distinct adjacent component; watches those.
    fn count_components(
        &mut self,
        graph: &mut Graph,
        components: &mut Components,
        s: StorageId,
        cost: i64,
    ) -> Counted {
        let Numerators { around, roots, .. } = self;
        graph.neighbours(s, around);
        roots.clear();
        let evicted = around.iter().map(|&neighbour| &graph[neighbour]);
        for neighbour in evicted.filter(|neighbour| !neighbour.resident && neighbour.node != NONE) {
            roots.push(components.root(neighbour.node));
        }
        roots.sort_unstable();
        roots.dedup();
        let mut sum = cost;
        for &root in roots.iter() {
            sum = sum.wrapping_add(components.cost(root));
            components.watch(root, s.0);
        }
        Counted {
            numerator: sum,
            latest: 0,
            seen: around.len() as u64,
        }
    }
}

/// How far a walk over ancestors goes that counts a numerator so far.
fn among_ancestors(until: Until, graph: &Graph, evicted: &Evicted, s: StorageId) -> Until {
    let enough = until.enough.saturating_mul(discount(graph, evicted, s));
    Until {
        seen: until.seen.min(evicted.limit),
        enough: enough.saturating_sub(graph[s].cost as i64),
    }
}

/// The numerator that the sums over a storage's evicted ancestors and descendants make.
fn around(graph: &Graph, evicted: &Evicted, s: StorageId, up: &Sum, down: &Sum) -> Counted {
    let storage = &graph[s];
    let cost = (storage.cost as i64)
        .wrapping_add(up.cost)
        .wrapping_add(down.cost);
    Counted {
        numerator: match evicted.sum {
            Summed::Number => up.count + down.count,
            Summed::Cost => cost / discount(graph, evicted, s),
        },
        latest: up.latest.max(down.latest),
        seen: up.seen + down.seen,
    }
}

/// The sum is divided by this.
fn discount(graph: &Graph, evicted: &Evicted, s: StorageId) -> i64 {
    match evicted.unreferenced {
        Some(discounts) if graph[s].refs == 0 => {
            if graph.makes_what_is_missing(s, evicted.limit) {
                discounts.while_needed
            } else {
                discounts.otherwise
            }
        }
        _ => 1,
    }
}
