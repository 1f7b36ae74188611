//! Blocks of known sizes and lifetimes, placed side by side in as few bytes as possible.
//!
//! Large blocks are placed first and searched on, then smaller ones among them: what decides is mostly how a few large
//! blocks lie, and a search among them alone takes little time. MiniMalloc (Moffitt, ASPLOS 2023) and TelaMalloc (Maas
//! et al., ASPLOS 2022) solve the same problem for accelerators.

use super::addresses::Addresses;
use super::block::{Block, Ties};
use super::ejection::Search;
use super::occupancy::Occupancy;

/// How long a packing is sought, and what is good enough.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Overlaps that the search looks at, at most; each block is placed once in any case.
    pub(crate) most_work: u64,
    /// A packing of so few bytes is not improved.
    pub(crate) enough: u64,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort {
            most_work: 200_000_000,
            enough: 0,
        }
    }
}

/// Within a 256th of the least bytes, little is left to gain: the search goes on for a tenth of its effort at most.
const NEAR: u64 = 256;

/// Blocks of so large parts of the least bytes are placed before smaller ones: a 64th, a 512th, a 4096th.
const LEVELS: [u64; 3] = [64, 512, 4096];

/// Places blocks at multiples of an alignment, a power of two, in few bytes. The same seed gives the same addresses.
///
/// To place each block once takes time linear in the pairs of blocks in use at the same time, up to a logarithm. The
/// search after it ends with `effort`.
pub(crate) fn pack(
    blocks: &[Block],
    ties: &Ties,
    alignment: u64,
    seed: u64,
    effort: Effort,
) -> Addresses {
    let occupancy = Occupancy::new(blocks, ties, alignment);
    let least = occupancy.least();
    let levels = levels(&occupancy, least);
    let mut search = Search::new(occupancy, alignment, seed);
    let near = effort.enough.max(least + least / NEAR);
    for (number, level) in (1..).zip(&levels) {
        search.add(level);
        search.improve(near, effort.most_work / levels.len() as u64 * number);
    }
    let more = search.work() + effort.most_work / 10;
    search.improve(effort.enough.max(least), more.min(effort.most_work));
    let (bytes, offsets) = search.best();
    Addresses {
        bytes,
        alignment,
        offsets,
    }
}

/// The movable blocks, large ones first; of each level in the order in which they are placed. None is empty.
fn levels(occupancy: &Occupancy, least: u64) -> Vec<Vec<u32>> {
    // By bytes, and a little by how long they are in use. Square roots are the same on every machine.
    let rank = |&block: &u32| {
        let block = occupancy.block(block);
        block.bytes as f64 * f64::from(block.long()).sqrt().sqrt()
    };
    let mut levels: Vec<Vec<u32>> = vec![Vec::new(); LEVELS.len() + 1];
    for block in occupancy.movable() {
        let bytes = occupancy.block(block).bytes;
        let level = LEVELS.iter().position(|part| bytes >= least / part);
        levels[level.unwrap_or(LEVELS.len())].push(block);
    }
    levels.retain(|level| !level.is_empty());
    for level in &mut levels {
        level.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::super::occupancy::lowest;
    use super::*;
    use proptest::prelude::*;

    fn block(bytes: u64, start: u32, end: u32) -> Block {
        Block { bytes, start, end }
    }

    fn packed(blocks: &[Block], alignment: u64) -> Addresses {
        pack(blocks, &Ties::none(blocks), alignment, 0, Effort::default())
    }

    fn least(blocks: &[Block], alignment: u64) -> u64 {
        Occupancy::new(blocks, &Ties::none(blocks), alignment).least()
    }

    /// The fewest bytes, found by all orders: in one of them it is best to take the lowest address each time.
    fn fewest(blocks: &[Block]) -> u64 {
        fn extend(occupancy: &mut Occupancy, order: &mut Vec<u32>, best: &mut u64) {
            let ends = order.iter().map(|&block| occupancy.end(block));
            if order.len() == occupancy.len() {
                *best = (*best).min(ends.max().unwrap_or(0));
                return;
            }
            for next in 0..occupancy.len() as u32 {
                if !order.contains(&next) {
                    let mut beside = Vec::new();
                    occupancy.list_beside(next, &mut beside);
                    occupancy.put(next, lowest(&beside, occupancy.block(next).bytes));
                    order.push(next);
                    extend(occupancy, order, best);
                    order.pop();
                    occupancy.take(next);
                }
            }
        }
        let mut occupancy = Occupancy::new(blocks, &Ties::none(blocks), 1);
        let mut best = u64::MAX;
        extend(&mut occupancy, &mut Vec::new(), &mut best);
        best
    }

    proptest! {
        #[test]
        fn no_two_blocks_overlap_and_none_ends_beyond(
            drawn in prop::collection::vec((1u64..100, 0u32..40, 1u32..20), 1..60),
            alignment in 0u32..7,
        ) {
            let blocks: Vec<Block> = drawn.iter().map(|&(bytes, start, long)| block(bytes, start, start + long)).collect();
            let placed = packed(&blocks, 1 << alignment);
            for (at, one) in blocks.iter().enumerate() {
                let offset = placed.offsets[at];
                prop_assert_eq!(offset % placed.alignment, 0);
                prop_assert!(offset + one.bytes <= placed.bytes);
                for (other, two) in blocks.iter().enumerate().skip(at + 1) {
                    let together = one.start < two.end && two.start < one.end;
                    let apart = offset + one.bytes <= placed.offsets[other]
                        || placed.offsets[other] + two.bytes <= offset;
                    prop_assert!(!together || apart);
                }
            }
            prop_assert!(placed.bytes >= least(&blocks, 1 << alignment));
            prop_assert_eq!(packed(&blocks, 1 << alignment), placed);
        }

        #[test]
        fn few_blocks_take_the_fewest_bytes(
            drawn in prop::collection::vec((1u64..10, 0u32..8, 1u32..6), 1..7),
        ) {
            let blocks: Vec<Block> = drawn.iter().map(|&(bytes, start, long)| block(bytes, start, start + long)).collect();
            prop_assert_eq!(packed(&blocks, 1).bytes, fewest(&blocks));
        }
    }

    #[test]
    fn blocks_are_placed_again_until_they_fit() {
        // By size alone the block of 3 bytes lies in the middle of what the one of 4 needs later.
        let blocks = [
            block(4, 0, 2),
            block(3, 1, 3),
            block(4, 2, 4),
            block(1, 0, 4),
            block(3, 3, 4),
        ];
        assert_eq!(packed(&blocks, 1).bytes, least(&blocks, 1));
    }

    #[test]
    fn no_blocks_take_no_bytes() {
        assert_eq!(packed(&[], 64).bytes, 0);
    }

    #[test]
    fn fellows_lie_at_one_address_and_what_is_fixed_stays() {
        // What lives at the end lies where its like did at the start, beside a block in the middle of the arena.
        let blocks = [
            block(4, 0, 2),
            block(8, 0, 9),
            block(4, 5, 9),
            block(2, 1, 7),
        ];
        let mut ties = Ties::none(&blocks);
        ties.fixed[1] = Some(6);
        (ties.fellows[0], ties.fellows[2]) = (2, 0);
        let placed = pack(&blocks, &ties, 1, 0, Effort::default());
        assert_eq!(placed.offsets, [0, 6, 0, 4]);
        assert_eq!(placed.bytes, 14);
    }
}
