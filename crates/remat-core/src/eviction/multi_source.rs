//! Many evicted neighbourhoods in one pass. An eviction often changes what hundreds of candidates have around them, and their
//! neighbourhoods are mostly the same storages. 128 walks share one pass: a word a storage says which of them reach it.

use crate::eviction::neighbourhood::{Sum, Way};
use crate::transaction::state::State;
use crate::StorageId;

/// A set of the walks that share a pass.
type Walks = u128;

/// Walks that share a pass.
pub(crate) const WIDTH: usize = Walks::BITS as usize;

/// Below so many, walks on their own are faster.
pub(crate) const WORTH_SHARING: usize = 3;

/// Scratch of a pass; all words are 0 between passes.
#[derive(Default)]
pub(crate) struct Together {
    /// For each storage, the walks that reached it and have not gone on from it.
    waiting: Vec<Walks>,
    /// For each storage, the walks that went on from it, or began there.
    gone_through: Vec<Walks>,
    /// Storages whose words are not 0.
    touched: Vec<StorageId>,
    /// A bit for each storage with walks waiting.
    queue: Vec<u64>,
    queued: usize,
    /// Where the queue is looked at next.
    cursor: usize,
}

impl Together {
    fn prepare(&mut self, storages: usize) {
        if self.waiting.len() < storages {
            self.waiting.resize(storages, 0);
            self.gone_through.resize(storages, 0);
            self.queue.resize(storages.div_ceil(64), 0);
        }
    }

    fn begin_at(&mut self, s: StorageId, walk: usize) {
        self.touched.push(s);
        self.gone_through[s.index()] |= 1 << walk;
    }

    /// These walks reach the storage.
    #[inline]
    fn reach(&mut self, s: StorageId, walks: Walks, way: Way) {
        let index = s.index();
        let new = walks & !(self.waiting[index] | self.gone_through[index]);
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
        self.gone_through[index] |= walks;
        Some((StorageId(index as u32), walks))
    }

    fn clear(&mut self) {
        for s in self.touched.drain(..) {
            self.gone_through[s.index()] = 0;
        }
    }
}

/// What was seen by the same walks and is not yet added to their sums.
#[derive(Default)]
struct Shared {
    walks: Walks,
    sum: Sum,
}

impl Shared {
    fn settle(&mut self, sums: &mut [Sum]) {
        let mut walks = std::mem::take(&mut self.walks);
        while walks != 0 {
            sums[walks.trailing_zeros() as usize].add(&self.sum);
            walks &= walks - 1;
        }
        self.sum = Sum::default();
    }
}

impl State {
    /// For each of at most [`WIDTH`] storages what a walk of its own would sum up.
    pub(crate) fn evicted_together(&mut self, from: &[StorageId], way: Way) -> [Sum; WIDTH] {
        let mut sums = [Sum::default(); WIDTH];
        let mut together = std::mem::take(&mut self.together);
        together.prepare(self.graph.storages.len());
        for (walk, &s) in from.iter().enumerate() {
            together.begin_at(s, walk);
        }
        for (walk, &s) in from.iter().enumerate() {
            self.graph
                .each_next(s, way, |_, next| together.reach(next, 1 << walk, way));
        }
        let mut shared = Shared::default();
        while let Some((s, mut walks)) = together.next(way) {
            let storage = &mut self.graph.storages[s.index()];
            storage.quiet[way.back() as usize] = false;
            if storage.gone() {
                continue;
            }
            if !storage.resident {
                self.graph
                    .each_next(s, way, |_, next| together.reach(next, walks, way));
            }
            if shared.walks != walks {
                shared.settle(&mut sums);
                shared.walks = walks;
            }
            shared.sum.seen += 1;
            let storage = &self.graph.storages[s.index()];
            if storage.resident {
                continue;
            }
            if storage.announced == 0 {
                shared.sum.count(storage);
                continue;
            }
            while walks != 0 {
                let walk = walks.trailing_zeros() as usize;
                walks &= walks - 1;
                if storage.announced <= self.looked(from[walk]) {
                    sums[walk].count(storage);
                }
            }
        }
        shared.settle(&mut sums);
        together.clear();
        self.together = together;
        sums
    }
}
