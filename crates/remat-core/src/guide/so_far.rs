//! The ops of a planned step so far and the storages that they made: their ids, by their places in the step.

use crate::graph::{Graph, Made, NONE};
use crate::ids::{OpId, StorageId};

/// A planned step so far.
#[derive(Default)]
pub(super) struct SoFar {
    ops: Ids,
    /// Where the storages of each op start, and where the next op's will.
    starts: Vec<u32>,
    /// The storage that each output made; none for views.
    storages: Ids,
}

impl SoFar {
    /// The step begins.
    pub(super) fn clear(&mut self) {
        self.ops.truncate(0);
        self.storages.truncate(0);
        self.starts.clear();
        self.starts.push(0);
    }

    /// An op was announced.
    pub(super) fn push(&mut self, graph: &Graph, op: OpId) {
        self.ops.push(op.0);
        let record = &graph[op];
        for (&output, &made) in record.outputs.iter().zip(&record.made) {
            self.storages.push(match made {
                Made::Alias => NONE,
                Made::Fresh | Made::InPlace(_) => graph.storage_of(output).0,
            });
        }
        self.starts.push(self.next_storage());
    }

    /// An op without a record runs, with so many results.
    pub(super) fn push_unrecorded(&mut self, outputs: usize) {
        self.ops.push(NONE);
        (0..outputs).for_each(|_| self.storages.push(NONE));
        self.starts.push(self.next_storage());
    }

    /// The latest op is none of the step after all. Returns the place of its first storage.
    pub(super) fn pop(&mut self) -> u32 {
        self.ops.truncate(self.ops.ids.len().saturating_sub(1));
        self.starts.pop();
        let from = self.starts.last().copied().unwrap_or(0);
        self.storages.truncate(from as usize);
        from
    }

    /// The step began so many ops later.
    pub(super) fn drop_first(&mut self, ops: usize) {
        let from = self.starts[ops];
        self.ops.drop_first(ops);
        self.storages.drop_first(from as usize);
        self.starts.drain(..ops);
        self.starts.iter_mut().for_each(|start| *start -= from);
    }

    /// Ids were freed, and will be used again.
    pub(super) fn freed(&mut self, ops: &[OpId], storages: &[StorageId]) {
        ops.iter().for_each(|op| self.ops.void(op.index()));
        storages
            .iter()
            .for_each(|storage| self.storages.void(storage.index()));
    }

    /// Whether this op was announced last.
    pub(super) fn is_latest(&self, op: OpId) -> bool {
        self.ops.ids.last() == Some(&op.0)
    }

    /// The op at a place, unless it left no record or was freed.
    pub(super) fn op(&self, place: u32) -> Option<OpId> {
        self.ops.at(place).map(OpId)
    }

    /// The storage that an output of the op at a place made, unless it was freed.
    pub(super) fn storage(&self, op: u32, output: u32) -> Option<StorageId> {
        self.storage_at(self.starts[op as usize].checked_add(output)?)
    }

    /// The storage at a place among all of them.
    pub(super) fn storage_at(&self, place: u32) -> Option<StorageId> {
        self.storages.at(place).map(StorageId)
    }

    /// The place of the storage that comes next.
    pub(super) fn next_storage(&self) -> u32 {
        self.storages.ids.len() as u32
    }
}

/// Ids by their places, and the places by the ids.
#[derive(Default)]
struct Ids {
    /// `NONE` where there is none, or it was freed.
    ids: Vec<u32>,
    places: Vec<u32>,
}

impl Ids {
    fn at(&self, place: u32) -> Option<u32> {
        let id = self.ids.get(place as usize).copied();
        id.filter(|&id| id != NONE)
    }

    fn push(&mut self, id: u32) {
        if id != NONE {
            let index = id as usize;
            if self.places.len() <= index {
                self.places.resize(index + 1, NONE);
            }
            self.places[index] = self.ids.len() as u32;
        }
        self.ids.push(id);
    }

    fn void(&mut self, id: usize) {
        let place = self.places.get(id).copied().unwrap_or(NONE);
        if place != NONE {
            self.ids[place as usize] = NONE;
            self.places[id] = NONE;
        }
    }

    fn truncate(&mut self, len: usize) {
        for &id in self.ids[len..].iter().filter(|&&id| id != NONE) {
            self.places[id as usize] = NONE;
        }
        self.ids.truncate(len);
    }

    fn drop_first(&mut self, count: usize) {
        for id in self.ids.drain(..count).filter(|&id| id != NONE) {
            self.places[id as usize] = NONE;
        }
        for (place, &id) in (0..).zip(&self.ids) {
            if id != NONE {
                self.places[id as usize] = place;
            }
        }
    }
}
