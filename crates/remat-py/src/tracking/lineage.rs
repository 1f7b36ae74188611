//! Where lineage is cut although no op overwrote anything.
//!
//! A program that carries a state from step to step without an in-place update (a recurrent filter, an average kept by
//! hand) would have each state remembered by all the ops since the first step. So that neither memory nor decisions
//! grow with the number of steps, such chains of ops are cut: what the program carries on is pinned, becomes a constant,
//! and the ops behind it are forgotten.
//!
//! Pinned in the middle of a step, that would be every activation; between two steps it is little. The place is found by
//! the bytes that the program holds, evicted or not. Once a chain is [`LONG`], they are watched for as many ops as are
//! remembered; the next time they are about as low as they ever were meanwhile is the place. A single deep step holds
//! more and more while it is watched and comes down to that level only when it has been gone through backwards, so it
//! is not cut in its middle.
//!
//! The rule looks at the order of ops and at sizes alone, never at a clock, so the same program is cut at the same places.

use remat_core::StorageId;

/// Ops in a row from which on a chain is to be cut.
pub const LONG: u32 = 1024;

/// Where the search for the next place is.
#[derive(Clone, Copy, Debug)]
enum Search {
    /// No chain is long.
    Idle,
    /// Looking how low the bytes held go, until so many more ops have run out of `span`.
    Watching { left: u64, span: u64, low: u64 },
    /// Waiting until they are about as low again.
    Waiting { waited: u64, span: u64, low: u64 },
}

/// How low is low enough: an eighth above the lowest seen, and a 64th more for each span waited, since a program may
/// hold a little more with every step.
fn low_enough(held: u64, low: u64, waited: u64, span: u64) -> bool {
    let more = u128::from(low) * u128::from(waited) / (64 * u128::from(span.max(1)));
    u128::from(held) <= u128::from(low + low / 8) + more
}

/// The longest chain of ops behind each storage, and the search for a place to cut.
pub struct Lineage {
    lengths: Vec<u32>,
    search: Search,
}

impl Default for Lineage {
    fn default() -> Lineage {
        Lineage {
            lengths: Vec::new(),
            search: Search::Idle,
        }
    }
}

impl Lineage {
    /// Notes the chain behind a storage; ids are used again, so every new storage is noted.
    pub fn set(&mut self, sid: StorageId, length: u32) {
        if self.lengths.len() <= sid.index() {
            self.lengths.resize(sid.index() + 1, 0);
        }
        self.lengths[sid.index()] = length;
    }

    /// The chain behind a storage, as it was when it was made: ancestors pinned since do not shorten it.
    pub fn of(&self, sid: StorageId) -> u32 {
        self.lengths.get(sid.index()).copied().unwrap_or(0)
    }

    /// Whether to cut now, before an op whose results have a chain of this length; so many ops are remembered and the
    /// program holds so many bytes.
    pub fn is_time(&mut self, length: u32, remembered: usize, held: u64) -> bool {
        self.search = match self.search {
            Search::Idle if length < LONG => Search::Idle,
            Search::Idle => Search::Watching {
                left: remembered as u64,
                span: remembered as u64,
                low: held,
            },
            Search::Watching { left, span, low } => {
                let low = low.min(held);
                match left.checked_sub(1) {
                    Some(left) => Search::Watching { left, span, low },
                    None => Search::Waiting {
                        waited: 0,
                        span,
                        low,
                    },
                }
            }
            Search::Waiting { waited, span, low } => {
                if low_enough(held, low, waited, span) {
                    self.search = Search::Idle;
                    return true;
                }
                Search::Waiting {
                    waited: waited + 1,
                    span,
                    low,
                }
            }
        };
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places at which a program that holds these bytes before its ops is cut; every op makes the chain longer by one.
    fn cuts(held: impl Iterator<Item = u64>) -> Vec<usize> {
        let mut lineage = Lineage::default();
        let mut length = 0;
        let mut found = Vec::new();
        for (op, held) in held.enumerate() {
            length += 1;
            if lineage.is_time(length, length as usize, held) {
                found.push(op);
                length = 0;
            }
        }
        found
    }

    #[test]
    fn steps_are_cut_between_them() {
        let steps = (0..5000u64).map(|op| 100 + 50 * (op % 20));
        let found = cuts(steps);
        assert!(found.len() > 5);
        assert!(found.iter().all(|op| op % 20 == 0), "{found:?}");
    }

    #[test]
    fn a_deep_step_is_not_cut_in_its_middle() {
        let step = (0..10_000u64).chain((0..10_000).rev());
        let found = cuts(step.map(|activations| 100 + activations));
        assert!(found.iter().all(|&op| op > 19_000), "{found:?}");
    }

    #[test]
    fn slow_growth_does_not_stop_it() {
        let steps = (0..50_000u64).map(|op| 1000 + op / 20 + 5000 * (op % 20));
        assert!(cuts(steps).len() > 20);
    }
}
