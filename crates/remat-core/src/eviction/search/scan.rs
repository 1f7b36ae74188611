//! The exhaustive search: the fastest among few candidates, and the rule that every other search keeps to.

use super::order::{Entrant, Order};

/// The slot of the entrant that goes first, in one pass.
pub(super) fn scan<O: Order>(
    order: &O,
    mut entrants: impl Iterator<Item = Entrant>,
) -> Option<u32> {
    let mut best = entrants.next()?;
    let mut standing = order.standing(best);
    let mut floor = order.floor(order.value(best));
    for entrant in entrants {
        let value = order.value(entrant);
        if value < floor {
            continue;
        }
        let other = order.standing(entrant);
        if other.before(standing) {
            (best, standing, floor) = (entrant, other, order.floor(value));
        }
    }
    Some(best.slot)
}
