//! The bytes side by side that an op's temporaries need. Where it lets go of a small one amid the others, a large one
//! may not fit into the gap: then that is more than they take at any time.

use remat_core::pool::{Pool, Side};
use std::collections::HashMap;

use crate::placement::Placement;

/// Allocations and frees that are remembered; ops have some tens.
const MOST: usize = 1024;

enum Event {
    Taken {
        address: u64,
        bytes: u64,
        placement: Placement,
    },
    Given {
        address: u64,
    },
}

/// The allocations and frees since the watch began.
#[derive(Default)]
pub struct Temporaries {
    watching: bool,
    events: Vec<Event>,
}

impl Temporaries {
    /// The watch begins.
    pub fn watch(&mut self) {
        self.watching = true;
        self.events.clear();
    }

    /// A block was taken, and placed so.
    #[inline]
    pub fn taken(&mut self, address: u64, bytes: u64, placement: Placement) {
        if self.watching {
            self.note(Event::Taken {
                address,
                bytes,
                placement,
            });
        }
    }

    /// A block was given back.
    #[inline]
    pub fn given(&mut self, address: u64) {
        if self.watching {
            self.note(Event::Given { address });
        }
    }

    fn note(&mut self, event: Event) {
        self.watching = self.events.len() < MOST;
        if self.watching {
            self.events.push(event);
        }
    }

    /// The watch ends. Returns the bytes that hold all blocks which were taken and given back since it began, beside
    /// one another in an arena of their own; 0 if there were none, or too many events to remember. Blocks that are
    /// still there are results, which have places of their own.
    pub fn span(&mut self, alignment: u64) -> u64 {
        if !std::mem::take(&mut self.watching) {
            return 0;
        }
        let temporary = self.temporary();
        let rounded = |bytes: u64| bytes.max(1).next_multiple_of(alignment);
        let all = self
            .events
            .iter()
            .zip(&temporary)
            .map(|(event, &is)| match event {
                Event::Taken { bytes, .. } if is => rounded(*bytes),
                _ => 0,
            });
        let capacity = all.fold(0, u64::saturating_add);
        let Ok(mut pool) = Pool::new(capacity, alignment) else {
            return 0;
        };
        let (mut low, mut high) = (0, 0);
        let mut places = HashMap::new();
        for (event, is_temporary) in self.events.iter().zip(temporary) {
            match *event {
                Event::Taken {
                    address,
                    bytes,
                    placement,
                } if is_temporary => {
                    let Some(place) = pool.allocate(bytes, placement.fit, placement.side) else {
                        continue; // there is room for all of them at once
                    };
                    match placement.side {
                        Side::Low => low = low.max(place + rounded(bytes)),
                        Side::High => high = high.max(capacity - place),
                    }
                    places.insert(address, place);
                }
                Event::Taken { .. } => {}
                Event::Given { address } => {
                    if let Some(place) = places.remove(&address) {
                        let freed = pool.free(place);
                        debug_assert!(freed.is_ok(), "{freed:?}");
                    }
                }
            }
        }
        low + high
    }

    /// Of each event, whether it took a block that was given back.
    fn temporary(&self) -> Vec<bool> {
        let mut temporary = vec![false; self.events.len()];
        let mut open = HashMap::new();
        for (at, event) in self.events.iter().enumerate() {
            match event {
                Event::Taken { address, .. } => {
                    open.insert(*address, at);
                }
                Event::Given { address } => {
                    if let Some(taken) = open.remove(address) {
                        temporary[taken] = true;
                    }
                }
            }
        }
        temporary
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::{SMALL_BLOCKS, USUAL};

    /// Takes blocks, named by their addresses, and gives them back: 0 bytes.
    fn span_of(events: &[(u64, u64)]) -> u64 {
        let mut temporaries = Temporaries::default();
        temporaries.watch();
        for &(address, bytes) in events {
            match bytes {
                0 => temporaries.given(address),
                _ => temporaries.taken(address, bytes, USUAL),
            }
        }
        temporaries.span(64)
    }

    #[test]
    fn a_large_block_does_not_fit_into_the_gap_of_a_small_one() {
        let small_amid = [(1, 128), (2, 64), (1, 0), (3, 192), (2, 0), (3, 0)];
        assert_eq!(span_of(&small_amid), 384);
        let small_last = [(2, 64), (1, 128), (1, 0), (3, 192), (2, 0), (3, 0)];
        assert_eq!(span_of(&small_last), 256);
    }

    #[test]
    fn results_and_older_blocks_do_not_count() {
        assert_eq!(span_of(&[(7, 0), (1, 128), (2, 64), (1, 0)]), 128);
        assert_eq!(span_of(&[(1, 128), (2, 64)]), 0);
        // An address is taken once more.
        assert_eq!(span_of(&[(1, 100), (1, 0), (1, 64)]), 128);
    }

    #[test]
    fn small_blocks_at_the_other_end_count_too() {
        let mut temporaries = Temporaries::default();
        temporaries.watch();
        temporaries.taken(1, 128, USUAL);
        temporaries.taken(2, 64, SMALL_BLOCKS);
        temporaries.given(2);
        temporaries.given(1);
        assert_eq!(temporaries.span(64), 192);
        assert_eq!(temporaries.span(64), 0, "the watch is over");
    }

    #[test]
    fn too_many_events_say_nothing() {
        let many: Vec<(u64, u64)> = (0..MOST as u64)
            .map(|at| (at / 2, 64 * (1 - at % 2)))
            .collect();
        assert_eq!(span_of(&many), 64);
        let more = [&many[..], &[(MOST as u64, 64)]].concat();
        assert_eq!(span_of(&more), 0);
    }
}
