//! Which blocks lie where, and which of them are in use at the same time.

use super::block::{Block, Ties};

/// Addresses that a block takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Taken {
    pub(super) from: u64,
    pub(super) to: u64,
    /// The block; of two fellows the one that leads.
    pub(super) block: u32,
}

/// Blocks on their way to addresses. Of two fellows one leads, and the other lies where it does.
pub(super) struct Occupancy {
    /// With sizes that are multiples of the alignment.
    blocks: Vec<Block>,
    /// Of each block the fellow.
    fellows: Vec<u32>,
    /// The blocks that stay where they are.
    fixed: Vec<bool>,
    /// All blocks by their starts, and the place of each in that list.
    by_start: Vec<u32>,
    places: Vec<u32>,
    /// The starts, rising.
    starts: Vec<u32>,
    /// A tree over the list: of each part the latest end of the blocks that are placed; 0 if none is.
    ends: Vec<u32>,
    offsets: Vec<u64>,
    /// Overlaps looked at.
    pub(super) work: u64,
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
        let starts = by_start.iter().map(|&block| blocks[block as usize].start);
        // Where one of two fellows is fixed, so is the other.
        let at = |block: usize| ties.fixed[block].or(ties.fixed[ties.fellows[block] as usize]);
        let at: Vec<Option<u64>> = (0..blocks.len()).map(at).collect();
        let mut occupancy = Occupancy {
            starts: starts.collect(),
            ends: vec![0; 2 * blocks.len().next_power_of_two()],
            offsets: vec![0; blocks.len()],
            fellows: ties.fellows.clone(),
            fixed: at.iter().map(Option::is_some).collect(),
            work: 0,
            blocks,
            by_start,
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
    pub(super) fn least(&self) -> u64 {
        let fixed = (0..self.len() as u32).filter(|&block| self.is_fixed(block));
        let fixed = fixed.map(|block| self.end(block)).max().unwrap_or(0);
        let ends = self.blocks.iter().map(|block| (block.end, block.bytes));
        let mut ends: Vec<(u32, u64)> = ends.collect();
        ends.sort_unstable();
        let mut ends = ends.into_iter().peekable();
        let mut bytes = 0;
        let used = self.by_start.iter().map(|&block| {
            let block = self.blocks[block as usize];
            while let Some((_, gone)) = ends.next_if(|&(end, _)| end <= block.start) {
                bytes -= gone;
            }
            bytes += block.bytes;
            bytes
        });
        used.max().unwrap_or(0).max(fixed)
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
        let end = self.blocks[block as usize].end;
        let mut node = self.ends.len() / 2 + self.places[block as usize] as usize;
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
        let mut node = self.ends.len() / 2 + self.places[block as usize] as usize;
        self.ends[node] = 0;
        while node > 1 {
            node /= 2;
            let end = self.ends[2 * node].max(self.ends[2 * node + 1]);
            if self.ends[node] == end {
                return;
            }
            self.ends[node] = end;
        }
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
        list.sort_unstable();
        list.dedup();
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
        if from >= before || self.ends[node] <= after {
            return;
        }
        if to - from == 1 {
            let block = self.by_start[from];
            list.push(Taken {
                from: self.offsets[block as usize],
                to: self.end(block),
                block: self.leader(block),
            });
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
