//! Many evicted neighbourhoods in one pass: multi-source search (MS-BFS, Then et al., VLDB 2014). An eviction often
//! changes what hundreds of candidates have around them, and their neighbourhoods are mostly the same storages. 128
//! walks share one pass: a word a storage says which of them reach it.

use super::neighbourhood::{Announced, Sum};
use crate::graph::{Graph, Way};
use crate::ids::StorageId;

/// A set of the walks that share a pass.
type Walks = u128;

/// Walks that share a pass.
pub(crate) const WIDTH: usize = Walks::BITS as usize;

/// Below so many, walks on their own are faster.
pub(crate) const WORTH_SHARING: usize = 3;

/// Scratch of a pass; all words are 0 between passes.
#[derive(Default)]
pub(crate) struct MultiSource {
    /// For each storage, the walks that reached it and have not gone on from it.
    waiting: Vec<Walks>,
    /// For each storage, the walks that went on from it, or began there.
    passed: Vec<Walks>,
    /// Storages whose words are not 0.
    touched: Vec<StorageId>,
    /// A bit for each storage with walks waiting.
    queue: Vec<u64>,
    queued: usize,
    /// Where the queue is looked at next.
    cursor: usize,
}

impl MultiSource {
    fn prepare(&mut self, storages: usize) {
        if self.waiting.len() < storages {
            self.waiting.resize(storages, 0);
            self.passed.resize(storages, 0);
            self.queue.resize(storages.div_ceil(64), 0);
        }
    }

    fn begin_at(&mut self, s: StorageId, walk: usize) {
        self.touched.push(s);
        self.passed[s.index()] |= 1 << walk;
    }

    /// These walks reach the storage.
    #[inline]
    fn reach(&mut self, s: StorageId, walks: Walks, way: Way) {
        let index = s.index();
        let new = walks & !(self.waiting[index] | self.passed[index]);
        if new == 0 {
            return;
        }
        if self.waiting[index] == 0 {
            self.touched.push(s);
            let word = index / 64;
            self.queue[word] |= 1 << (index % 64);
            self.cursor = match way {
                _ if self.queued == 0 => word,
                // Ancestors mostly have lower ids: the highest first, so that most are gone on from once for all walks.
                Way::Ancestors => self.cursor.max(word),
                Way::Descendants => self.cursor.min(word),
            };
            self.queued += 1;
        }
        self.waiting[index] |= new;
    }

    /// The next storage to go on from, and the walks that do.
    fn next(&mut self, way: Way) -> Option<(StorageId, Walks)> {
        if self.queued == 0 {
            return None;
        }
        while self.queue[self.cursor] == 0 {
            match way {
                Way::Ancestors => self.cursor -= 1,
                Way::Descendants => self.cursor += 1,
            }
        }
        let word = self.queue[self.cursor];
        let bit = match way {
            Way::Ancestors => 63 - word.leading_zeros(),
            Way::Descendants => word.trailing_zeros(),
        };
        self.queue[self.cursor] &= !(1 << bit);
        self.queued -= 1;
        let index = self.cursor * 64 + bit as usize;
        let walks = std::mem::take(&mut self.waiting[index]);
        self.passed[index] |= walks;
        Some((StorageId(index as u32), walks))
    }

    fn clear(&mut self) {
        for s in self.touched.drain(..) {
            self.passed[s.index()] = 0;
        }
    }

    /// Each walk reaches the storages next to where it begins.
    fn begin(&mut self, graph: &mut Graph, from: &[StorageId], way: Way) {
        self.prepare(graph.storages.len());
        for (walk, &s) in from.iter().enumerate() {
            self.begin_at(s, walk);
        }
        for (walk, &s) in from.iter().enumerate() {
            graph.each_next(s, way, |_, next| self.reach(next, 1 << walk, way));
        }
    }

    /// For each of at most [`WIDTH`] storages the sum that a walk of its own would make.
    pub(crate) fn sums(
        &mut self,
        graph: &mut Graph,
        from: &[StorageId],
        way: Way,
        announced: Announced,
    ) -> [Sum; WIDTH] {
        let mut sums = [Sum::default(); WIDTH];
        self.begin(graph, from, way);
        let mut shared = Shared::default();
        while let Some((s, walks)) = self.next(way) {
            let storage = &mut graph[s];
            storage.unobserved[way.back() as usize] = false;
            if storage.unreachable() {
                continue;
            }
            if !storage.resident {
                graph.each_next(s, way, |_, next| self.reach(next, walks, way));
            }
            if shared.walks != walks {
                shared.settle(&mut sums);
                shared.walks = walks;
            }
            shared.sum.seen += 1;
            let storage = &graph[s];
            if storage.resident {
                continue;
            }
            if storage.announced == 0 {
                shared.sum.count(storage);
                continue;
            }
            each(walks, |walk| {
                if storage.announced <= announced.seen_by(&graph[from[walk]]) {
                    sums[walk].count(storage);
                }
            });
        }
        shared.settle(&mut sums);
        self.clear();
        sums
    }
}

/// Names the walks of a set.
#[inline]
fn each(mut walks: Walks, mut name: impl FnMut(usize)) {
    while walks != 0 {
        name(walks.trailing_zeros() as usize);
        walks &= walks - 1;
    }
}

/// A sum over storages that the same walks reached, not yet added to theirs.
#[derive(Default)]
struct Shared {
    walks: Walks,
    sum: Sum,
}

impl Shared {
    fn settle(&mut self, sums: &mut [Sum]) {
        let walks = std::mem::take(&mut self.walks);
        each(walks, |walk| sums[walk].add(&self.sum));
        self.sum = Sum::default();
    }
}
