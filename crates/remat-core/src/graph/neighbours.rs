//! The storages next to a storage: those it is computed from, and those computed from it.

use super::links::Graph;
use super::records::{Storage, Way};
use crate::ids::{StorageId, TensorId};

impl Graph {
    /// Names the other storages next to `s` one way, some more than once, and lends all storages along.
    #[inline]
    pub(crate) fn each_next(
        &mut self,
        s: StorageId,
        way: Way,
        mut name: impl FnMut(&mut [Storage], StorageId),
    ) {
        if !self.next[s.index()][way as usize].known {
            self.read_next(s, way);
        }
        #[cfg(debug_assertions)]
        self.check_next(s, way);
        for &next in &self.next[s.index()][way as usize].list {
            name(&mut self.storages, next);
        }
    }

    /// Reads the storages next to `s` one way off the ops.
    fn read_next(&mut self, s: StorageId, way: Way) {
        let mut next = std::mem::take(&mut self.next[s.index()][way as usize]);
        next.list.clear();
        match way {
            Way::Ancestors => {
                let ops = self[s].views.iter().filter_map(|&view| self[view].op);
                for op in ops {
                    self.list_next(s, &self[op].inputs, &mut next.list);
                }
            }
            Way::Descendants => {
                for reader in &self[s].readers {
                    self.list_next(s, &self[reader.op].outputs, &mut next.list);
                }
            }
        }
        next.known = true;
        self.next[s.index()][way as usize] = next;
    }

    /// The list is that of the ops: each time in a small graph, in every eighth walk through a large one.
    #[cfg(debug_assertions)]
    fn check_next(&mut self, s: StorageId, way: Way) {
        // Random programs of tests make small ones; more would make debug runs crawl.
        const SMALL: usize = 500;
        if self.next.len() > SMALL && self.stamp % 8 != 0 {
            return;
        }
        let list = self.next[s.index()][way as usize].list.clone();
        self.read_next(s, way);
        debug_assert_eq!(list, self.next[s.index()][way as usize].list, "{s:?}");
    }

    /// Appends the storages of tensors, without `s` and those listed just before: views of one storage are many.
    fn list_next(&self, s: StorageId, tensors: &[TensorId], list: &mut Vec<StorageId>) {
        const LATEST: usize = 8;
        for &tensor in tensors {
            let next = self.storage_of(tensor);
            let latest = list.iter().rev().take(LATEST);
            if next != s && !latest.into_iter().any(|&listed| listed == next) {
                list.push(next);
            }
        }
    }

    /// Appends the storages next to `s` one way that do not bear the stamp, and stamps them.
    pub(crate) fn step(&mut self, s: StorageId, way: Way, stamp: u32, into: &mut Vec<StorageId>) {
        self.each_next(s, way, |storages, next| {
            if std::mem::replace(&mut storages[next.index()].stamp, stamp) != stamp {
                into.push(next);
            }
        });
    }

    /// Collects the storages that `s` is computed from and those computed from it, each once, without itself and the
    /// unreachable.
    pub(crate) fn neighbours(&mut self, s: StorageId, into: &mut Vec<StorageId>) {
        into.clear();
        let stamp = self.new_stamp();
        self[s].stamp = stamp;
        self.step(s, Way::Ancestors, stamp, into);
        self.step(s, Way::Descendants, stamp, into);
        into.retain(|&neighbour| !self[neighbour].unreachable());
    }

    /// Whether something made from `s` is missing that is referred to from outside: the program may ask for it. Looks
    /// at no more results than `limit`.
    pub(crate) fn makes_what_is_missing(&self, s: StorageId, limit: u64) -> bool {
        let results = self[s]
            .readers
            .iter()
            .flat_map(|reader| &self[reader.op].outputs);
        let mut made = results
            .take(limit as usize)
            .map(|&result| self.storage_of(result));
        made.any(|made| made != s && !self[made].resident && self[made].refs > 0)
    }
}
