//! Banishing constants that only the lineage still needs: the nearest referenced tensors computed from them are to be
//! pinned instead (DTR appendix C.5, at the front end's wish).

use super::links::Graph;
use super::records::Phase;
use crate::ids::{Bytes, StorageId, TensorId};

/// The price and the gain of banishing constants, see [`Engine::plan_banish`](crate::Engine::plan_banish).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BanishPlan {
    /// So many of the constants asked about, from the first on, are worth banishing together.
    pub constants: usize,
    /// Tensors to pin first.
    pub tensors: Vec<TensorId>,
    /// Bytes of those constants.
    pub freed: Bytes,
    /// Bytes of the storages of those tensors.
    pub pinned: Bytes,
}

/// A walk from constants to the nearest referenced tensors computed from them.
struct Walk {
    stamp: u32,
    /// Storages that are lost with the constants, whose dependents are yet to be seen.
    lost: Vec<StorageId>,
    tensors: Vec<TensorId>,
    pinned: u64,
}

impl Graph {
    /// The first constants that free most beyond what has to be pinned for them; where several free as much, the most
    /// of them. Linear in what hangs on them.
    pub(crate) fn plan_banish(&mut self, constants: &[TensorId]) -> BanishPlan {
        let mut walk = Walk {
            stamp: self.new_stamp(),
            lost: Vec::new(),
            tensors: Vec::new(),
            pinned: 0,
        };
        let mut best = BanishPlan::default();
        let (mut freed, mut kept) = (0u64, 0);
        for (before, &constant) in constants.iter().enumerate() {
            let root = self.storage_of(constant);
            freed = freed.saturating_add(self[root].bytes);
            walk.lost.push(root);
            if self.follow(&mut walk).is_err() {
                break;
            }
            let gain = freed.checked_sub(walk.pinned);
            if gain.is_some_and(|gain| gain >= best.freed.0 - best.pinned.0) {
                best = BanishPlan {
                    constants: before + 1,
                    tensors: Vec::new(),
                    freed: Bytes(freed),
                    pinned: Bytes(walk.pinned),
                };
                kept = walk.tensors.len();
            }
        }
        walk.tensors.truncate(kept);
        best.tensors = walk.tensors;
        best
    }

    /// Goes on from what is lost to what has to be pinned, unless an op under way reads what is lost.
    fn follow(&mut self, walk: &mut Walk) -> Result<(), UnderWay> {
        while let Some(s) = walk.lost.pop() {
            for place in 0..self[s].readers.len() {
                let reader = self[s].readers[place].op;
                if self[reader].phase != Phase::Done {
                    return Err(UnderWay);
                }
                for index in 0..self[reader].outputs.len() {
                    self.reach(self.output(reader, index), walk);
                }
            }
        }
        Ok(())
    }

    fn reach(&mut self, dependent: StorageId, walk: &mut Walk) {
        let storage = &mut self[dependent];
        let seen = std::mem::replace(&mut storage.stamp, walk.stamp) == walk.stamp;
        if seen || storage.pinned || storage.lost || storage.unreachable() {
            return;
        }
        if storage.refs == 0 {
            walk.lost.push(dependent);
            return;
        }
        walk.pinned = walk.pinned.saturating_add(storage.bytes);
        let views = self[dependent].views.iter().copied();
        walk.tensors
            .extend(views.filter(|&view| self[view].refs > 0));
    }
}

/// An op under way reads a value that was to be lost.
struct UnderWay;
