//! Calls for measurements and tests of the search.

use super::contract::Engine;
use crate::ids::{DeviceId, StorageId};
use crate::transaction::State;

impl Engine {
    /// Below so many candidates of a device a victim is found by an exhaustive scan, which picks the same, and windows
    /// are compared by whole costs at once: for measurements and tests.
    #[doc(hidden)]
    pub fn search_exhaustively_below(&mut self, candidates: usize) {
        self.state.eviction.search_exhaustively_below(candidates);
    }

    /// Brings up to date what a search goes by, as the next search would: for measurements.
    #[doc(hidden)]
    pub fn prepare_search(&mut self, device: DeviceId) {
        let State {
            graph,
            journal,
            eviction,
            ..
        } = &mut self.state;
        eviction.prepare_search(graph, journal, device.0);
    }

    /// The storage that would go first if room had to be made now: for measurements and tests.
    #[doc(hidden)]
    pub fn next_victim(&mut self, device: DeviceId) -> Option<StorageId> {
        self.prepare_search(device);
        let eviction = &mut self.state.eviction;
        let listed = eviction.candidates.has(device.0);
        listed
            .then(|| eviction.candidates.best(device.0, self.state.clock, 0))
            .flatten()
    }
}
