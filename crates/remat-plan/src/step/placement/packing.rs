//! Blocks of known sizes and lifetimes, placed side by side in as few bytes as possible.
//!
//! What decides is mostly how a few large blocks lie at the few moments when nearly all bytes are in use, and a search
//! among those alone takes little time. So blocks of such moments are placed first, large ones before small ones, and
//! then the others, each time with a search for fewer bytes. MiniMalloc (Moffitt, ASPLOS 2023) and TelaMalloc (Maas
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
            most_work: 300_000_000,
            enough: 0,
        }
    }
}

/// Within a 256th of the least bytes, little is left to gain: the search goes on for a tenth of its effort at most.
const NEAR: u64 = 256;

/// Blocks of so large parts of the least bytes are placed before smaller ones: a 64th, a 512th, a 4096th.
const PARTS: [u64; 3] = [64, 512, 4096];

/// The searches that are begun, at most, of which the best goes on; fewer where each would have less work than this.
const STARTS: u64 = 4;
const START_WORK: u64 = 20_000_000;

/// Nearly all bytes are in use from this part of the least bytes on.
const CROWDED: f64 = 0.9;

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
    let load = occupancy.load();
    let least = occupancy.least(&load);
    let levels = Levels::of(&occupancy, &load, least);
    let near = effort.enough.max(least + least / NEAR);
    let (mut search, work_of_others) =
        best_start(&levels.crowded, near, effort.most_work / 2, |number| {
            let seed = seed.wrapping_add(number << 32);
            Search::new(occupancy.clone(), alignment, seed)
        });
    let most_work = effort.most_work.saturating_sub(work_of_others);
    for level in &levels.others {
        search.add(level);
        search.improve(near, search.work().midpoint(most_work));
    }
    search.improve(near, most_work);
    let more = search.work() + effort.most_work / 10;
    search.improve(effort.enough.max(least), more.min(most_work));
    let (bytes, offsets) = search.best();
    Addresses {
        bytes,
        alignment,
        offsets,
    }
}

/// Places blocks level by level in several searches, which share the work, and takes the one that needs the fewest
/// bytes: whether the large blocks lie well is settled early, and a search that has them lie badly seldom mends it.
/// Returns the work of the others as well.
fn best_start(
    levels: &[Vec<u32>],
    near: u64,
    most_work: u64,
    start: impl Fn(u64) -> Search,
) -> (Search, u64) {
    let starts = (most_work / START_WORK).clamp(1, STARTS);
    let begun = |number: u64| {
        let mut search = start(number);
        for level in levels {
            search.add(level);
            search.improve(near, search.work().midpoint(most_work / starts));
        }
        search.improve(near, most_work / starts);
        search
    };
    let (mut best, mut work_of_others) = (begun(0), 0);
    for number in 1..starts {
        if best.bytes() <= near {
            break;
        }
        let mut other = begun(number);
        if other.bytes() < best.bytes() {
            std::mem::swap(&mut best, &mut other);
        }
        work_of_others += other.work();
    }
    (best, work_of_others)
}

/// The movable blocks by levels, large blocks first, each level in the order in which they are placed. None is empty.
struct Levels {
    /// Blocks that are in use at moments when nearly all bytes are.
    crowded: Vec<Vec<u32>>,
    others: Vec<Vec<u32>>,
}

impl Levels {
    fn of(occupancy: &Occupancy, load: &[(u32, u64)], least: u64) -> Levels {
        let moments = Crowded::new(load, (least as f64 * CROWDED) as u64);
        let crowded = |&block: &u32| {
            let both = [block, occupancy.fellow(block)];
            both.iter().any(|&one| moments.meet(occupancy.block(one)))
        };
        let (crowded, others) = occupancy.movable().partition(crowded);
        Levels {
            crowded: by_size(occupancy, crowded, least),
            others: by_size(occupancy, others, least),
        }
    }
}

fn by_size(occupancy: &Occupancy, blocks: Vec<u32>, least: u64) -> Vec<Vec<u32>> {
    // By bytes, and less by how long they are in use. Square roots are the same on every machine.
    let rank = |&block: &u32| {
        let block = occupancy.block(block);
        block.bytes as f64 * f64::from(block.long()).sqrt()
    };
    let mut levels: Vec<Vec<u32>> = vec![Vec::new(); PARTS.len() + 1];
    for block in blocks {
        let bytes = occupancy.block(block).bytes;
        let level = PARTS.iter().position(|part| bytes >= least / part);
        levels[level.unwrap_or(PARTS.len())].push(block);
    }
    levels.retain(|level| !level.is_empty());
    for level in &mut levels {
        level.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
    }
    levels
}

/// The moments when so many bytes are in use.
struct Crowded {
    /// Moments, rising, at which the bytes in use change.
    moments: Vec<u32>,
    /// Of each the crowded ones before it, and of all at last.
    before: Vec<u32>,
}

impl Crowded {
    fn new(load: &[(u32, u64)], bytes: u64) -> Crowded {
        let mut before = Vec::with_capacity(load.len() + 1);
        let mut count = 0;
        for &(_, used) in load {
            before.push(count);
            count += u32::from(used >= bytes);
        }
        before.push(count);
        Crowded {
            moments: load.iter().map(|&(moment, _)| moment).collect(),
            before,
        }
    }

    /// A block is in use at one of them.
    fn meet(&self, block: Block) -> bool {
        let before = |end: u32| self.before[self.moments.partition_point(|&moment| moment < end)];
        before(block.end) > before(block.start)
    }
}

#[cfg(test)]
mod tests {
    use super::super::occupancy::lowest;
    use super::*;
    use crate::step::search::rng::Rng;
    use proptest::prelude::*;

    fn block(bytes: u64, start: u32, end: u32) -> Block {
        Block { bytes, start, end }
    }

    fn together(one: &Block, two: &Block) -> bool {
        one.start < two.end && two.start < one.end
    }

    /// No two blocks that are in use together overlap.
    fn are_apart(blocks: &[Block], offsets: &[u64]) -> bool {
        let placed: Vec<(&Block, &u64)> = blocks.iter().zip(offsets).collect();
        let apart = |&(one, &at): &(&Block, &u64), &(two, &other): &(&Block, &u64)| {
            !together(one, two) || at + one.bytes <= other || other + two.bytes <= at
        };
        let pairs = |k: usize| placed[k + 1..].iter().all(|two| apart(&placed[k], two));
        (0..placed.len()).all(pairs)
    }

    fn packed(blocks: &[Block], alignment: u64) -> Addresses {
        pack(blocks, &Ties::none(blocks), alignment, 0, Effort::default())
    }

    fn least(blocks: &[Block], alignment: u64) -> u64 {
        let occupancy = Occupancy::new(blocks, &Ties::none(blocks), alignment);
        occupancy.least(&occupancy.load())
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
            }
            prop_assert!(are_apart(&blocks, &placed.offsets));
            prop_assert!(placed.bytes >= least(&blocks, 1 << alignment));
            prop_assert_eq!(packed(&blocks, 1 << alignment), placed);
        }

        #[test]
        fn fixed_blocks_stay_and_fellows_lie_together_wherever_others_are_pushed(
            drawn in prop::collection::vec((1u64..100, 0u32..40, 1u32..20, any::<[bool; 2]>()), 1..60),
        ) {
            let drawn_block = |&(bytes, start, long, _): &(u64, u32, u32, _)| block(bytes, start, start + long);
            let mut blocks: Vec<Block> = drawn.iter().map(drawn_block).collect();
            let mut ties = Ties::none(&blocks);
            for pair in 0..blocks.len() / 2 {
                let (first, second) = (2 * pair, 2 * pair + 1);
                if drawn[first].3[0] && !together(&blocks[first], &blocks[second]) {
                    blocks[second].bytes = blocks[first].bytes;
                    (ties.fellows[first], ties.fellows[second]) = (second as u32, first as u32);
                }
            }
            let effort = Effort { most_work: 50_000, enough: 0 };
            let before = pack(&blocks, &ties, 1, 0, effort);
            for at in (0..blocks.len()).filter(|&at| drawn[at].3[1]) {
                ties.fixed[at] = Some(before.offsets[at]);
            }
            let placed = pack(&blocks, &ties, 1, 1, effort);
            prop_assert!(are_apart(&blocks, &placed.offsets));
            for (at, &offset) in placed.offsets.iter().enumerate() {
                prop_assert_eq!(offset, ties.fixed[at].unwrap_or(offset));
                prop_assert_eq!(offset, placed.offsets[ties.fellows[at] as usize]);
            }
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
    fn large_blocks_of_short_lives_lie_well_among_small_ones_of_long_lives() {
        // The bytes in use are near their most at few moments only, as in a step of many small ops.
        let mut rng = Rng::new(7);
        let mut draw = |sizes: &[u64], longest: f64| {
            let bytes = sizes[rng.below(sizes.len())];
            let start = rng.below(4000) as u32;
            let long = longest.powf(rng.unit()) as u32;
            block(bytes, start, start + long.max(1))
        };
        let small = (0..12000).map(|_| draw(&[256, 256, 256, 512, 768], 3000.0));
        let mut blocks: Vec<Block> = small.collect();
        blocks.extend((0..1000).map(|_| draw(&[16384, 33536, 98304], 300.0)));
        let effort = Effort {
            most_work: 5_000_000,
            enough: 0,
        };
        let packed = pack(&blocks, &Ties::none(&blocks), 64, 0, effort);
        let least = least(&blocks, 64);
        assert!(
            packed.bytes <= least + least / NEAR,
            "{} of {least}",
            packed.bytes
        );
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
