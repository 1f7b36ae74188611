//! Blocks of known sizes and lifetimes, placed side by side in as few bytes as possible.
//!
//! Blocks are placed one after the other, each at the lowest address where it overlaps none that is in use at the same
//! time. The order decides. Large blocks first does well; then the blocks that reach highest are placed earlier, again
//! and again, as in iterated greedy searches for packings. MiniMalloc (Moffitt, ASPLOS 2023) and TelaMalloc (Maas et
//! al., ASPLOS 2022) solve the same problem for accelerators.

use super::addresses::Addresses;
use crate::step::search::rng::Rng;

/// A block that is in use from one step of a plan up to another, which is not part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) bytes: u64,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Block {
    /// The steps for which it is in use.
    fn long(&self) -> u32 {
        self.end - self.start
    }
}

/// How long a packing is sought, and what is good enough.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Overlaps that all passes together look at, at most; the first pass is made in any case.
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

/// The ties of blocks to one another, and to an arena that is in use.
#[derive(Clone, Debug)]
pub(crate) struct Ties {
    /// The address of each block that stays where it is.
    pub(crate) fixed: Vec<Option<u64>>,
    /// Of each block another that lies at the same address at other times; itself if there is none.
    pub(crate) fellows: Vec<u32>,
}

impl Ties {
    /// None at all.
    pub(crate) fn none(blocks: &[Block]) -> Ties {
        Ties {
            fixed: vec![None; blocks.len()],
            fellows: (0..blocks.len() as u32).collect(),
        }
    }
}

/// Passes without a better packing after which the search ends.
const PATIENCE: u32 = 150;

/// A packing may be larger than the best one by up to this part, and be searched on from.
const SLACK: f64 = 0.02;

/// Places blocks at multiples of an alignment, a power of two, in few bytes. The same seed gives the same addresses.
///
/// Takes time linear in the pairs of blocks in use at the same time, up to a logarithm, for each of a few hundred
/// passes at most.
pub(crate) fn pack(
    blocks: &[Block],
    ties: &Ties,
    alignment: u64,
    seed: u64,
    effort: Effort,
) -> Addresses {
    let mut packing = Packing::new(blocks, ties, alignment);
    let least = packing.least().max(effort.enough);
    let fullest = packing.fullest();
    let end = blocks.iter().map(|block| block.end).max().unwrap_or(0);
    let mut rng = Rng::new(seed);
    let mut best = Placed {
        bytes: u64::MAX,
        offsets: Vec::new(),
    };
    for (searches, key) in (1..).zip(KEYS) {
        let mut order: Vec<u32> = (0..blocks.len() as u32).collect();
        order.sort_by_key(|&block| {
            let at = block as usize;
            std::cmp::Reverse(key(&packing.blocks[at], fullest[at], end))
        });
        let most = effort.most_work / KEYS.len() as u64 * searches;
        packing.improve(order, least, most, &mut rng, &mut best);
        if best.bytes <= least || packing.work > effort.most_work {
            break;
        }
    }
    Addresses {
        bytes: best.bytes,
        alignment,
        offsets: best.offsets,
    }
}

/// A packing.
struct Placed {
    bytes: u64,
    offsets: Vec<u64>,
}

/// Blocks for which it is larger are placed first.
type Key = fn(&Block, u64, u32) -> (bool, u128);

/// Blocks that are placed first, given the most bytes in use while they are, and the end of the plan: large ones; those
/// that take much for long; those in use for half of the plan, and large ones of these and of the others; those in use
/// when most is (the contention of TelaMalloc), in use for half of the plan or not.
const KEYS: [Key; 5] = [
    |block, _, _| {
        (
            false,
            u128::from(block.bytes) << 32 | u128::from(block.long()),
        )
    },
    |block, _, _| (false, u128::from(block.bytes) * u128::from(block.long())),
    |block, _, end| (block.long() > end / 2, u128::from(block.bytes)),
    |block, fullest, _| (false, u128::from(fullest) << 64 | u128::from(block.bytes)),
    |block, fullest, end| {
        (
            block.long() > end / 2,
            u128::from(fullest) << 64 | u128::from(block.bytes),
        )
    },
];

/// Blocks on their way to addresses.
struct Packing {
    /// With sizes that are multiples of the alignment.
    blocks: Vec<Block>,
    /// All blocks by their starts, and the place of each in that list.
    by_start: Vec<u32>,
    places: Vec<u32>,
    /// The starts, rising.
    starts: Vec<u32>,
    /// A tree over the list: of each part the latest end of the blocks that were placed; 0 if none was.
    ends: Vec<u32>,
    offsets: Vec<u64>,
    /// Of each block the fellow.
    fellows: Vec<u32>,
    /// The blocks that stay where they are.
    fixed: Vec<(u32, u64)>,
    /// Of each block the pass in which it was placed last.
    placed_in: Vec<u64>,
    pass: u64,
    /// The ranges of addresses that are taken where a block is placed.
    taken: Vec<(u64, u64)>,
    /// Overlaps looked at.
    work: u64,
}

impl Packing {
    fn new(blocks: &[Block], ties: &Ties, alignment: u64) -> Packing {
        let aligned = blocks.iter().map(|&block| Block {
            bytes: block.bytes.next_multiple_of(alignment),
            ..block
        });
        let blocks: Vec<Block> = aligned.collect();
        let mut by_start: Vec<u32> = (0..blocks.len() as u32).collect();
        by_start.sort_by_key(|&block| blocks[block as usize].start);
        let mut places = vec![0; blocks.len()];
        for (place, &block) in (0..).zip(&by_start) {
            places[block as usize] = place;
        }
        let starts = by_start.iter().map(|&block| blocks[block as usize].start);
        Packing {
            starts: starts.collect(),
            ends: vec![0; 2 * blocks.len().next_power_of_two()],
            offsets: vec![0; blocks.len()],
            fellows: ties.fellows.clone(),
            fixed: (0..)
                .zip(&ties.fixed)
                .filter_map(|(block, at)| Some((block, (*at)?)))
                .collect(),
            placed_in: vec![0; blocks.len()],
            pass: 0,
            taken: Vec::new(),
            work: 0,
            blocks,
            by_start,
            places,
        }
    }

    /// The bytes in use when each block has begun to be, in the order of their starts.
    fn used(&self) -> Vec<u64> {
        let ends = self.blocks.iter().map(|block| (block.end, block.bytes));
        let mut ends: Vec<(u32, u64)> = ends.collect();
        ends.sort_unstable();
        let mut ends = ends.into_iter().peekable();
        let mut bytes = 0;
        let each = self.by_start.iter().map(|&block| {
            let block = self.blocks[block as usize];
            while let Some((_, gone)) = ends.next_if(|&(end, _)| end <= block.start) {
                bytes -= gone;
            }
            bytes += block.bytes;
            bytes
        });
        each.collect()
    }

    /// The most bytes in use at a time: no packing takes less.
    fn least(&self) -> u64 {
        self.used().into_iter().max().unwrap_or(0)
    }

    /// Of each block the most bytes in use at a time while it is.
    fn fullest(&self) -> Vec<u64> {
        let used = self.used();
        let size = used.len().next_power_of_two();
        let mut most = vec![0; 2 * size];
        most[size..size + used.len()].copy_from_slice(&used);
        for node in (1..size).rev() {
            most[node] = most[2 * node].max(most[2 * node + 1]);
        }
        let range = |from: usize, to: usize| {
            let (mut from, mut to, mut best) = (from + size, to + size, 0);
            while from < to {
                if from % 2 == 1 {
                    best = best.max(most[from]);
                    from += 1;
                }
                if to % 2 == 1 {
                    to -= 1;
                    best = best.max(most[to]);
                }
                from /= 2;
                to /= 2;
            }
            best
        };
        let each = self.blocks.iter().zip(&self.places);
        each.map(|(block, &place)| {
            let to = self.starts.partition_point(|&start| start < block.end);
            range(place as usize, to)
        })
        .collect()
    }

    /// Packs in this order, and in others that place earlier what reaches highest, until none is better for a while.
    fn improve(
        &mut self,
        mut order: Vec<u32>,
        least: u64,
        most_work: u64,
        rng: &mut Rng,
        best: &mut Placed,
    ) {
        let mut current = self.pack(&order);
        let mut spilled = self.spilled(least);
        let mut idle = 0;
        loop {
            if current < best.bytes {
                best.bytes = current;
                best.offsets.clone_from(&self.offsets);
                idle = 0;
            }
            if current <= least || idle == PATIENCE || self.work > most_work {
                return;
            }
            idle += 1;
            let next = self.raised(&order, least, rng);
            let before = self.offsets.clone();
            let bytes = self.pack(&next);
            let now = (bytes, self.spilled(least));
            if now <= (current, spilled)
                || (bytes as f64) < best.bytes as f64 * (1.0 + SLACK * rng.unit())
            {
                spilled = now.1;
                (current, order) = (bytes, next);
            } else {
                self.offsets = before;
            }
        }
    }

    /// Places all blocks in this order. Returns the bytes that they take.
    fn pack(&mut self, order: &[u32]) -> u64 {
        self.ends.fill(0);
        self.pass += 1;
        let mut most = 0;
        for index in 0..self.fixed.len() {
            let (block, offset) = self.fixed[index];
            most = most.max(self.put(block, offset));
        }
        for &block in order {
            if self.placed_in[block as usize] == self.pass {
                continue;
            }
            let fellow = self.fellows[block as usize];
            let bytes = self.blocks[block as usize].bytes;
            self.taken.clear();
            self.list_beside(block);
            if fellow != block {
                self.list_beside(fellow);
            }
            self.work += 1 + self.taken.len() as u64;
            self.taken.sort_unstable();
            let mut offset = 0;
            for &(from, to) in &self.taken {
                if from >= offset + bytes {
                    break;
                }
                offset = offset.max(to);
            }
            most = most.max(self.put(block, offset));
            if fellow != block {
                self.put(fellow, offset);
            }
        }
        most
    }

    /// Places a block; returns where it ends.
    fn put(&mut self, block: u32, offset: u64) -> u64 {
        let Block { bytes, end, .. } = self.blocks[block as usize];
        self.offsets[block as usize] = offset;
        self.placed_in[block as usize] = self.pass;
        self.note(self.places[block as usize] as usize, end);
        offset + bytes
    }

    /// Lists the addresses of placed blocks that are in use while a block is.
    fn list_beside(&mut self, block: u32) {
        let Block { start, end, .. } = self.blocks[block as usize];
        let before = self.starts.partition_point(|&other| other < end);
        self.list(1, 0, self.ends.len() / 2, before, start);
    }

    /// Lists the addresses of placed blocks in this part of the tree that are among the first in the list and end after
    /// a moment.
    fn list(&mut self, node: usize, from: usize, to: usize, before: usize, after: u32) {
        if from >= before || self.ends[node] <= after {
            return;
        }
        if to - from == 1 {
            let block = self.by_start[from] as usize;
            let offset = self.offsets[block];
            self.taken.push((offset, offset + self.blocks[block].bytes));
            return;
        }
        let middle = from.midpoint(to);
        self.list(2 * node, from, middle, before, after);
        self.list(2 * node + 1, middle, to, before, after);
    }

    /// A block was placed.
    fn note(&mut self, place: usize, end: u32) {
        let mut node = self.ends.len() / 2 + place;
        while node > 0 {
            self.ends[node] = self.ends[node].max(end);
            node /= 2;
        }
    }

    /// Bytes beyond an address, of all blocks.
    fn spilled(&self, beyond: u64) -> u128 {
        let ends = self.offsets.iter().zip(&self.blocks);
        let over = ends.map(|(&offset, block)| (offset + block.bytes).saturating_sub(beyond));
        over.map(u128::from).sum()
    }

    /// An order in which the blocks that end beyond an address come earlier.
    fn raised(&self, order: &[u32], beyond: u64, rng: &mut Rng) -> Vec<u32> {
        let end = |block: u32| self.offsets[block as usize] + self.blocks[block as usize].bytes;
        let part = rng.unit();
        let mut ranks: Vec<(f64, u32)> = (0..).map(f64::from).zip(order.iter().copied()).collect();
        for (rank, block) in &mut ranks {
            if end(*block) > beyond && rng.unit() < part {
                *rank *= rng.unit();
            }
        }
        // Now and then two others change places too.
        let any = rng.below(ranks.len());
        ranks[any].0 *= rng.unit();
        ranks.sort_by(|a, b| a.0.total_cmp(&b.0));
        ranks.into_iter().map(|(_, block)| block).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(bytes: u64, start: u32, end: u32) -> Block {
        Block { bytes, start, end }
    }

    fn packed(blocks: &[Block], alignment: u64) -> Addresses {
        pack(blocks, &Ties::none(blocks), alignment, 0, Effort::default())
    }

    /// The fewest bytes, found by all orders: in one of them first fit is best.
    fn fewest(blocks: &[Block]) -> u64 {
        fn extend(packing: &mut Packing, order: &mut Vec<u32>, best: &mut u64) {
            let all = packing.blocks.len();
            if order.len() == all {
                *best = (*best).min(packing.pack(order));
                return;
            }
            for next in 0..all as u32 {
                if !order.contains(&next) {
                    order.push(next);
                    extend(packing, order, best);
                    order.pop();
                }
            }
        }
        let (mut best, mut packing) = (u64::MAX, Packing::new(blocks, &Ties::none(blocks), 1));
        extend(&mut packing, &mut Vec::new(), &mut best);
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
            let least = Packing::new(&blocks, &Ties::none(&blocks), 1 << alignment).least();
            prop_assert!(placed.bytes >= least);
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
        let least = Packing::new(&blocks, &Ties::none(&blocks), 1).least();
        assert_eq!(packed(&blocks, 1).bytes, least);
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
