//! The evictable storages of each device.
//!
//! A candidate's place is the time it last became evictable. Of equal scores the last wins, but the first candidate
//! that scores exactly 0 wins at once (the reference's rule). Places are numbers, so the lists need no order.
//! Numerators are cached in the storages and copied to where the search looks.

use super::policy::Form;
use super::search::{Candidate, List, MANY};
use crate::graph::{Graph, NONE};
use crate::ids::StorageId;

/// A candidate with so many times the score of the latest victim is much dearer. (With 1, 2 and 4 the instructions
/// differ by 3%.)
const MUCH: f64 = 2.0;

/// So many storages at least may be listed as stale, and twice as many as there are candidates.
const FEW: usize = 256;

/// The candidates of all devices.
pub(crate) struct Candidates {
    devices: Vec<List>,
    /// For each device, the storages whose candidates went stale; some stand twice, some are no candidates any more.
    stale: Vec<Vec<StorageId>>,
    next_place: u64,
    /// Of the latest best candidate, what its score was made by and its reciprocal.
    latest: Option<(Form, f64)>,
    /// How a numerator becomes a score.
    pub(crate) form: Form,
    /// Fewer candidates of a device than this are scanned.
    pub(crate) many: usize,
}

impl Candidates {
    pub(crate) fn new(form: Form) -> Candidates {
        Candidates {
            devices: Vec::new(),
            stale: Vec::new(),
            next_place: 0,
            latest: None,
            form,
            many: MANY,
        }
    }

    /// Whether a candidate was ever listed there.
    pub(crate) fn has(&self, device: u8) -> bool {
        usize::from(device) < self.devices.len()
    }

    pub(crate) fn count(&self, device: u8) -> usize {
        self.devices.get(usize::from(device)).map_or(0, List::len)
    }

    /// Every candidate, in no order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Candidate> {
        self.devices.iter().flat_map(List::candidates)
    }

    /// The candidates of one device, in no order.
    pub(crate) fn of(&self, device: u8) -> &[Candidate] {
        let list = self.devices.get(usize::from(device));
        list.map_or(&[], List::candidates)
    }

    /// Every candidate's place and storage, in order of place.
    pub(crate) fn in_order(&self) -> Vec<(u64, StorageId)> {
        let all = self.all();
        let mut all: Vec<_> = all
            .map(|candidate| (candidate.place, candidate.storage))
            .collect();
        all.sort_unstable();
        all
    }

    pub(crate) fn next_place(&self) -> u64 {
        self.next_place
    }

    /// Appends a storage that is not a candidate. It is scored by so many bytes.
    pub(crate) fn append(&mut self, graph: &mut Graph, s: StorageId, bytes: u64) {
        let place = self.next_place;
        self.next_place += 1;
        self.relist(graph, s, place, bytes);
    }

    /// Undoes the latest [`append`](Self::append).
    pub(crate) fn unlist(&mut self, graph: &mut Graph, s: StorageId) {
        self.remove(graph, s);
        self.next_place -= 1;
    }

    /// Puts a storage back at a place that it had.
    pub(crate) fn relist(&mut self, graph: &mut Graph, s: StorageId, place: u64, bytes: u64) {
        let storage = &mut graph[s];
        let device = usize::from(storage.device);
        if device >= self.devices.len() {
            self.devices.resize_with(device + 1, List::default);
            self.stale.resize_with(device + 1, Vec::new);
        }
        let candidate = Candidate {
            place,
            bytes,
            numerator: 0,
            storage: s,
            stale: true,
        };
        storage.slot = self.devices[device].push(candidate, storage.last_access);
        self.list_stale(device, s);
    }

    /// Lists a storage whose candidate went stale. Where nothing is ever searched, nobody takes the list: those that
    /// are no candidates any more leave it, in time constant on average.
    fn list_stale(&mut self, device: usize, s: StorageId) {
        let (list, stale) = (&self.devices[device], &mut self.stale[device]);
        stale.push(s);
        if stale.len() > FEW + 2 * list.len() {
            stale.clear();
            let left = list.candidates().iter().filter(|known| known.stale);
            stale.extend(left.map(|known| known.storage));
        }
    }

    /// Takes a candidate off; returns its place.
    pub(crate) fn remove(&mut self, graph: &mut Graph, s: StorageId) -> u64 {
        let storage = &mut graph[s];
        let list = &mut self.devices[usize::from(storage.device)];
        let slot = std::mem::replace(&mut storage.slot, NONE);
        let (removed, moved) = list.remove(slot);
        if let Some(moved) = moved {
            graph[moved].slot = slot;
        }
        removed.place
    }

    /// The search goes by another time of the last access.
    pub(crate) fn set_last_access(&mut self, graph: &Graph, s: StorageId, time: u64) {
        let storage = &graph[s];
        if storage.slot != NONE {
            self.devices[usize::from(storage.device)].set_last_access(storage.slot, time);
        }
    }

    /// The search goes by another size.
    pub(crate) fn set_bytes(&mut self, graph: &Graph, s: StorageId, bytes: u64) {
        let storage = &graph[s];
        if storage.slot != NONE {
            let list = &mut self.devices[usize::from(storage.device)];
            list.set_bytes(storage.slot, bytes, self.form);
        }
    }

    /// The cached numerator is valid: the search goes by it.
    pub(crate) fn copy_numerator(&mut self, graph: &Graph, s: StorageId) {
        let storage = &graph[s];
        let list = &mut self.devices[usize::from(storage.device)];
        list.set_numerator(storage.slot, storage.numerator, self.form);
    }

    /// The cached numerator is valid no more.
    pub(crate) fn void(&mut self, graph: &mut Graph, s: StorageId) {
        let storage = &mut graph[s];
        storage.scored = false;
        if storage.slot != NONE {
            let device = usize::from(storage.device);
            let candidate = self.devices[device].candidate(storage.slot);
            if !std::mem::replace(&mut candidate.stale, true) {
                self.list_stale(device, s);
            }
        }
    }

    /// No cached numerator is valid any more; the caller says so in the storages.
    pub(crate) fn void_all(&mut self) {
        for (list, stale) in self.devices.iter_mut().zip(&mut self.stale) {
            stale.clear();
            for slot in 0..list.len() as u32 {
                let candidate = list.candidate(slot);
                candidate.stale = true;
                stale.push(candidate.storage);
            }
        }
    }

    /// Hands over the storages whose candidates went stale, some more than once.
    pub(crate) fn take_stale(&mut self, device: u8) -> Vec<StorageId> {
        std::mem::take(&mut self.stale[usize::from(device)])
    }

    /// Takes the buffer of [`take_stale`](Self::take_stale) back, emptied.
    pub(crate) fn give_back_stale(&mut self, device: u8, buffer: Vec<StorageId>) {
        debug_assert!(buffer.is_empty() && self.stale[usize::from(device)].is_empty());
        self.stale[usize::from(device)] = buffer;
    }

    /// Whether the storage is a candidate there whose numerator the search does not know.
    pub(crate) fn is_stale(&mut self, graph: &Graph, s: StorageId, device: u8) -> bool {
        let storage = &graph[s];
        storage.slot != NONE
            && storage.device == device
            && self.devices[usize::from(device)]
                .candidate(storage.slot)
                .stale
    }

    /// The candidate with the smallest score. All numerators are valid.
    pub(crate) fn best(&mut self, device: u8, clock: u64, salt: u64) -> Option<StorageId> {
        let list = &mut self.devices[usize::from(device)];
        let slot = list.best(self.form, clock, salt, self.many)?;
        self.latest = Some((self.form, list.worth(slot, self.form, clock)));
        Some(list.candidate(slot).storage)
    }

    /// The numerator from which on a candidate is much dearer than the latest one that was the best.
    pub(crate) fn dear(&self, graph: &Graph, s: StorageId, clock: u64) -> i64 {
        let Some((_, worth)) = self.latest.filter(|&(form, _)| form == self.form) else {
            return i64::MAX;
        };
        let storage = &graph[s];
        let list = &self.devices[usize::from(storage.device)];
        list.numerator_for(storage.slot, self.form, clock, worth / MUCH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Bytes, DeviceId};

    #[test]
    fn once_all_are_void_each_candidate_is_counted_afresh() {
        let mut graph = Graph::default();
        let form = Form::Quotient {
            size: true,
            stale: true,
        };
        let mut candidates = Candidates::new(form);
        let storages: Vec<StorageId> = (0..3)
            .map(|_| graph.add_storage(Bytes(8), DeviceId(0)).expect("few"))
            .collect();
        for &s in &storages {
            candidates.append(&mut graph, s, 8);
        }
        for s in candidates.take_stale(0) {
            candidates.copy_numerator(&graph, s);
            assert!(!candidates.is_stale(&graph, s, 0));
        }
        candidates.void_all();
        assert!(storages.iter().all(|&s| candidates.is_stale(&graph, s, 0)));
        assert_eq!(candidates.take_stale(0), storages);
    }
}
