//! Which blocks lie where, and which of them are in use at the same time.

use super::block::{Block, Ties};
use super::radix_sort::radix_sort;

/// Addresses that a block takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) from: u64,
    pub(super) to: u64,
    /// The block; of two fellows the one that leads.
    pub(super) block: u32,
}

/// Where a block lies, and until when.
#[derive(Clone, Copy)]
struct Slot {
    /// 0 if the block is not placed.
    end: u32,
    taken: Taken,
}

/// Slots that are looked at one by one, below the tree.
const BUCKET: usize = 16;

/// Blocks on their way to addresses. Of two fellows one leads, and the other lies where it does.
#[derive(Clone)]
pub(super) struct Occupancy {
    /// With sizes that are multiples of the alignment.
    blocks: Vec<Block>,
    /// Of each block the fellow.
    fellows: Vec<u32>,
    /// The blocks that stay where they are.
    fixed: Vec<bool>,
    /// All blocks by their starts, and the place of each in that list.
    slots: Vec<Slot>,
    places: Vec<u32>,
    /// The starts, rising.
    starts: Vec<u32>,
    /// A tree over buckets of slots: of each part the latest end of the blocks that are placed; 0 if none is.
    ends: Vec<u32>,
    offsets: Vec<u64>,
    /// Overlaps looked at.
    pub(super) work: u64,
    /// Of each block the last list that it was in, and the number of that list; none where no block has a fellow.
    listed: Vec<u64>,
    lists: u64,
    spare: Vec<Taken>,
}

impl Occupancy {
    /// Places what is fixed.
    pub(super) fn new(blocks: &[Block], ties: &Ties, alignment: u64) -> Occupancy {
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
        let slot = |&block: &u32| Slot {
            end: 0,
            taken: Taken {
                from: 0,
                to: 0,
                block: block.min(ties.fellows[block as usize]),
            },
        };
        let start = |&block: &u32| blocks[block as usize].start;
        // Where one of two fellows is fixed, so is the other.
        let at = |block: usize| ties.fixed[block].or(ties.fixed[ties.fellows[block] as usize]);
        let at: Vec<Option<u64>> = (0..blocks.len()).map(at).collect();
        let tied = (0..)
            .zip(&ties.fellows)
            .any(|(block, &fellow)| block != fellow);
        let buckets = blocks.len().div_ceil(BUCKET);
        let mut occupancy = Occupancy {
            starts: by_start.iter().map(start).collect(),
            slots: by_start.iter().map(slot).collect(),
            ends: vec![0; 2 * buckets.next_power_of_two()],
            offsets: vec![0; blocks.len()],
            fellows: ties.fellows.clone(),
            fixed: at.iter().map(Option::is_some).collect(),
            work: 0,
            listed: vec![0; if tied { blocks.len() } else { 0 }],
            lists: 0,
            spare: Vec::new(),
            blocks,
            places,
        };
        for (block, address) in (0..).zip(at) {
            if let Some(address) = address {
                occupancy.put_one(block, address);
            }
        }
        occupancy
    }

    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// A block, with a multiple of the alignment as its bytes.
    pub(super) fn block(&self, block: u32) -> Block {
        self.blocks[block as usize]
    }

    /// The blocks to be placed; of two fellows the one that leads.
    pub(super) fn movable(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.len() as u32).filter(|&block| self.leader(block) == block && !self.is_fixed(block))
    }

    pub(super) fn is_fixed(&self, block: u32) -> bool {
        self.fixed[block as usize]
    }

    /// No packing takes less: the most bytes in use at a time, and the end of what is fixed.
    pub(super) fn least(&self, load: &[(u32, u64)]) -> u64 {
        let fixed = (0..self.len() as u32).filter(|&block| self.is_fixed(block));
        let fixed = fixed.map(|block| self.end(block)).max().unwrap_or(0);
        let used = load.iter().map(|&(_, bytes)| bytes);
        used.max().unwrap_or(0).max(fixed)
    }

    /// The moments at which blocks start or end, rising, and the bytes in use from each of them on.
    pub(super) fn load(&self) -> Vec<(u32, u64)> {
        let starts = self.blocks.iter().map(|block| (block.start, block.bytes));
        let ends = self
            .blocks
            .iter()
            .map(|block| (block.end, block.bytes.wrapping_neg()));
        let mut changes: Vec<(u32, u64)> = starts.chain(ends).collect();
        changes.sort_unstable();
        let mut used = 0u64;
        for (_, bytes) in &mut changes {
            used = used.wrapping_add(*bytes);
            *bytes = used;
        }
        // Of several changes at a moment the last one counts.
        changes.reverse();
        changes.dedup_by_key(|(moment, _)| *moment);
        changes.reverse();
        changes
    }

    /// The fellow of a block; the block itself if it has none.
    pub(super) fn fellow(&self, block: u32) -> u32 {
        self.fellows[block as usize]
    }

    /// Where blocks lie; of those that are not placed, where they last lay.
    pub(super) fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// The address at which a block ends.
    pub(super) fn end(&self, block: u32) -> u64 {
        self.offsets[block as usize] + self.blocks[block as usize].bytes
    }

    /// Places a block that leads, and its fellow.
    pub(super) fn put(&mut self, block: u32, offset: u64) {
        self.put_one(block, offset);
        let fellow = self.fellows[block as usize];
        if fellow != block {
            self.put_one(fellow, offset);
        }
    }

    fn put_one(&mut self, block: u32, offset: u64) {
        self.offsets[block as usize] = offset;
        let Block { bytes, end, .. } = self.blocks[block as usize];
        let place = self.places[block as usize] as usize;
        let slot = &mut self.slots[place];
        slot.end = end;
        (slot.taken.from, slot.taken.to) = (offset, offset + bytes);
        let mut node = self.ends.len() / 2 + place / BUCKET;
        while node > 0 && self.ends[node] < end {
            self.ends[node] = end;
            node /= 2;
        }
    }

    /// Takes away a block that leads, and its fellow.
    pub(super) fn take(&mut self, block: u32) {
        self.take_one(block);
        let fellow = self.fellows[block as usize];
        if fellow != block {
            self.take_one(fellow);
        }
    }

    fn take_one(&mut self, block: u32) {
        let place = self.places[block as usize] as usize;
        self.slots[place].end = 0;
        let bucket = place / BUCKET;
        let mut end = self.latest(bucket);
        let mut node = self.ends.len() / 2 + bucket;
        while self.ends[node] != end {
            self.ends[node] = end;
            if node == 1 {
                return;
            }
            end = self.ends[node].max(self.ends[node ^ 1]);
            node /= 2;
        }
    }

    /// The latest end of the placed blocks of a bucket.
    fn latest(&self, bucket: usize) -> u32 {
        let slots = self.slots[bucket * BUCKET..].iter().take(BUCKET);
        slots.map(|slot| slot.end).max().unwrap_or(0)
    }

    /// Lists the addresses, rising, of placed blocks that are in use while a block or its fellow is.
    pub(super) fn list_beside(&mut self, block: u32, list: &mut Vec<Taken>) {
        list.clear();
        self.list_lifetime(block, list);
        let fellow = self.fellows[block as usize];
        if fellow != block {
            self.list_lifetime(fellow, list);
        }
        self.work += 1 + list.len() as u64;
        if !self.listed.is_empty() {
            // A block that is in use with both of two fellows is listed once, and so are two fellows.
            self.lists += 1;
            let (listed, number) = (&mut self.listed, self.lists);
            list.retain(|taken| {
                std::mem::replace(&mut listed[taken.block as usize], number) != number
            });
        }
        radix_sort(list, &mut self.spare, |taken| taken.from);
    }

    fn list_lifetime(&self, block: u32, list: &mut Vec<Taken>) {
        let Block { start, end, .. } = self.blocks[block as usize];
        let before = self.starts.partition_point(|&other| other < end);
        self.list(1, 0, self.ends.len() / 2, before, start, list);
    }

    /// Lists what is placed in this part of the tree, among the first in the list of starts, and ends after a moment.
    fn list(
        &self,
        node: usize,
        from: usize,
        to: usize,
        before: usize,
        after: u32,
        list: &mut Vec<Taken>,
    ) {
        if from * BUCKET >= before || self.ends[node] <= after {
            return;
        }
        if to - from == 1 {
            let slots = &self.slots[from * BUCKET..before.min(to * BUCKET)];
            let beside = slots.iter().filter(|slot| slot.end > after);
            list.extend(beside.map(|slot| slot.taken));
            return;
        }
        let middle = from.midpoint(to);
        self.list(2 * node, from, middle, before, after, list);
        self.list(2 * node + 1, middle, to, before, after, list);
    }

    /// Of two fellows the first, of others the block itself.
    fn leader(&self, block: u32) -> u32 {
        block.min(self.fellows[block as usize])
    }
}

/// The lowest address at which so many bytes are free.
pub(super) fn lowest(taken: &[Taken], bytes: u64) -> u64 {
    let mut offset = 0;
    for range in taken {
        if range.from >= offset + bytes {
            break;
        }
        offset = offset.max(range.to);
    }
    offset
}

/// The address of the smallest free range below an end that has so many bytes.
pub(super) fn tightest(taken: &[Taken], bytes: u64, end: u64) -> Option<u64> {
    let (mut best, mut offset) = (None, 0);
    let ends = taken.iter().map(|range| (range.from.min(end), range.to));
    for (from, to) in ends.chain([(end, end)]) {
        if from >= offset + bytes {
            let spare = from - offset - bytes;
            if best.is_none_or(|(least, _)| spare < least) {
                best = Some((spare, offset));
            }
        }
        offset = offset.max(to);
    }
    best.map(|(_, offset)| offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_fellows_beside_a_block_the_one_that_leads_is_listed_once() {
        let block = |start, end| Block {
            bytes: 1,
            start,
            end,
        };
        let blocks = [
            block(0, 2),
            block(5, 7),
            block(1, 3),
            block(4, 6),
            block(1, 6),
        ];
        let mut ties = Ties::none(&blocks);
        ties.fellows = vec![1, 0, 3, 2, 4];
        let mut occupancy = Occupancy::new(&blocks, &ties, 1);
        occupancy.put(0, 8);
        occupancy.put(4, 9);
        let mut list = Vec::new();
        occupancy.list_beside(2, &mut list);
        let beside: Vec<(u64, u32)> = list.iter().map(|taken| (taken.from, taken.block)).collect();
        assert_eq!(beside, [(8, 0), (9, 4)]);
    }
}
