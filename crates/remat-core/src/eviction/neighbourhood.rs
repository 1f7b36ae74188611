//! Walks over the exact evicted neighbourhood `e*` (DTR appendix C.2): evicted ancestors and descendants reachable
//! through evicted storages.

use crate::graph::{Graph, Storage, Way};
use crate::ids::StorageId;

/// A sum over evicted storages.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum {
    pub(crate) cost: i64,
    /// Their number.
    pub(crate) count: i64,
    /// The latest access to one of them.
    pub(crate) latest: u64,
    /// Storages looked at, resident ones included.
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

/// Whether a result that was announced and is not computed yet counts in the scores around it.
///
/// The authors' simulator keeps the evicted descendants of each storage, and looks for them anew only when one of them
/// comes back; what is evicted is added with the descendants that it had itself. So such a result counts only from when
/// it is next looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announced {
    /// At once.
    Counts,
    /// In the scores of storages that have seen the announcement.
    CountsOnceSeen,
}

impl Announced {
    /// The announcements up to this one count in the storage's score.
    #[inline]
    pub(crate) fn seen_by(self, storage: &Storage) -> u64 {
        match self {
            Announced::Counts => u64::MAX,
            Announced::CountsOnceSeen => storage.seen_announcement,
        }
    }
}

/// How far to count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    /// So many other storages were looked at.
    pub(crate) seen: u64,
    /// The count is as large as this.
    pub(crate) enough: i64,
}

impl Until {
    /// To the end.
    pub(crate) const END: Until = Until::seen(u64::MAX);

    pub(crate) const fn seen(seen: u64) -> Until {
        Until {
            seen,
            enough: i64::MAX,
        }
    }
}

/// A walk from one storage.
pub(crate) struct Walk {
    pub(crate) from: StorageId,
    pub(crate) way: Way,
    /// How far it goes; `enough` is a cost of evicted storages.
    pub(crate) until: Until,
    /// The sum is compared and not kept, so the storages on the way stay as unobserved as they were.
    pub(crate) peeks: bool,
}

/// Sums over the evicted storages that the walk reaches through evicted ones. `stack` is scratch.
pub(crate) fn sum_evicted(
    graph: &mut Graph,
    walk: &Walk,
    announced: Announced,
    stack: &mut Vec<StorageId>,
) -> Sum {
    let seen = announced.seen_by(&graph[walk.from]);
    let mut sum = Sum::default();
    stack.clear();
    let stamp = graph.new_stamp();
    graph[walk.from].stamp = stamp;
    graph.step(walk.from, walk.way, stamp, stack);
    while let Some(next) = stack.pop() {
        let storage = &graph[next];
        if storage.unreachable() {
            continue;
        }
        if !storage.resident {
            graph.step(next, walk.way, stamp, stack);
        }
        let storage = &mut graph[next];
        sum.seen += 1;
        storage.unobserved[walk.way.back() as usize] &= walk.peeks;
        if !storage.resident && storage.announced <= seen {
            sum.count(storage);
        }
        if sum.seen >= walk.until.seen || sum.cost >= walk.until.enough {
            break;
        }
    }
    sum
}
