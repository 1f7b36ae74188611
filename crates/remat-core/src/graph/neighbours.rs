//! The storages next to a storage: those it is computed from, and those computed from it.

use super::links::Graph;
use super::records::{Storage, Way, NONE};
use crate::ids::StorageId;

impl Graph {
    /// Names the storages next to `s` one way, some more than once, and lends all storages along.
    pub(crate) fn each_next(
        &mut self,
        s: StorageId,
        way: Way,
        mut name: impl FnMut(&mut [Storage], StorageId),
    ) {
        let known = self[s].only_next[way as usize];
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
        self[s].only_next[way as usize] = if only == NONE { s.0 } else { only };
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
}
