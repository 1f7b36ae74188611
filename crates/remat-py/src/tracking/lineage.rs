//! The places at which lineage is cut although no op overwrote anything.
//!
//! A program may carry a state from step to step without an in-place update (a recurrent filter, an average kept by
//! hand). Each state then depends on all ops since the first step. Such chains of ops are cut, so that neither memory
//! nor decisions grow with the number of steps: the tensors that the program carries on are pinned and become
//! constants, and the ops behind them are forgotten.
//!
//! In the middle of a step the program carries every activation; between two steps it carries little. The bytes that
//! the program holds, evicted or not, show the place. Once a chain is [`LONG`], they are watched for as many ops as are
//! remembered. The chain is cut the next time they are about as low as their lowest then. A single deep step holds more
//! and more while it is watched, and comes down to that level only at the end of its backward pass, so it is not cut in
//! its middle.
//!
//! The rule reads the order of ops and their sizes, never a clock, so the same program is cut at the same places.

use remat_core::StorageId;

/// Number of ops in a row from which on a chain is to be cut.
pub const LONG: u32 = 1024;

/// The state of the search for the next place.
#[derive(Clone, Copy, Debug)]
enum Search {
    /// No chain is long.
    Idle,
    /// Watching how low the bytes held go, for `left` more of `span` ops.
    Watching { left: u64, span: u64, low: u64 },
    /// Waiting until the bytes held are about as low again.
    Waiting { waited: u64, span: u64, low: u64 },
}

/// Whether the bytes held are low enough to cut: at most an eighth above the lowest seen, and a 64th more for each span
/// waited, since a program may hold a little more with every step.
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
    /// Notes the length of the chain behind a storage. Ids are used again, so every new storage is noted.
    pub fn set(&mut self, sid: StorageId, length: u32) {
        if self.lengths.len() <= sid.index() {
            self.lengths.resize(sid.index() + 1, 0);
        }
        self.lengths[sid.index()] = length;
    }

    /// The length of the chain behind a storage when it was made; ancestors pinned since do not shorten it.
    pub fn of(&self, sid: StorageId) -> u32 {
        self.lengths.get(sid.index()).copied().unwrap_or(0)
    }

    /// Whether to cut now, before an op whose results have a chain of `length`. The session remembers `remembered` ops,
    /// and the program holds `held` bytes.
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

    /// The ops before which a program is cut that holds these bytes before each op. Every op lengthens the chain by
    /// one.
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
        let steps = (0..20_000u64).map(|op| 100 + 50 * (op % 20));
        let found = cuts(steps);
        assert!(found.len() > 5);
        assert!(found.iter().all(|op| op % 20 == 0), "{found:?}");
    }

    #[test]
    fn a_deep_step_is_not_cut_in_its_middle() {
        let step = (0..10_000u64).chain((0..10_000).rev());
        let found = cuts(step.map(|activations| 100 + activations));
        assert_eq!(found.len(), 1);
        assert!(found[0] > 18_000, "{found:?}");
    }

    #[test]
    fn slow_growth_does_not_stop_it() {
        let steps = (0..50_000u64).map(|op| 1000 + op / 20 + 5000 * (op % 20));
        assert!(cuts(steps).len() > 20);
    }
}
