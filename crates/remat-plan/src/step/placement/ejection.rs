//! A search for packings of fewer bytes: blocks that do not fit push others out.
//!
//! The search aims at a few bytes less than the best packing, takes out what ends beyond them, and puts each of these
//! blocks where those in its way are cheapest to move. They in turn go elsewhere, or push out others. A block that is
//! hard to place costs more each time, so the search does not go round in circles. This is how Nagata and Bräysy save
//! vehicles ("A powerful route minimization heuristic for the vehicle routing problem with time windows", Operations
//! Research Letters 37, 2009).

use super::occupancy::{Occupancy, Taken, lowest, tightest};
use super::radix_sort::radix_sort;
use crate::step::search::rng::Rng;

/// So small a part of what the best packing takes beyond enough is to be saved next.
const PART: u64 = 256;

/// The search aims at less after so many moves for each block, and this many more, without a better packing.
const PATIENCE: usize = 100;
const LEAST_PATIENCE: usize = 1000;

/// The search begins from the best packing again after so many moves without a better one.
const ASTRAY: usize = 4000;

/// A block that was placed less than so many moves ago costs more to push out.
const LATELY: u64 = 5;

/// A block costs at most so many times what it does at first, and this many times that if it was placed lately.
const MOST_TIMES: u64 = 1 << 16;
const LATELY_TIMES: u64 = 4;

/// The cost of a place is multiplied by a number drawn from this one on, which is one of so many.
const LEAST_NOISE: u64 = 8;
const NOISE: usize = 5;

/// The costs of pushing out all blocks at first sum up to less than 2 to this.
const COST_BITS: u32 = 42;

/// The sum, over blocks up to an address, of the costs of pushing them out.
#[derive(Clone, Copy)]
struct Sum {
    address: u64,
    cost: u64,
    /// Blocks that cannot be pushed out.
    fixed: u32,
}

/// Blocks, the best packing of them, and those that still have to be placed.
pub(super) struct Search {
    occupancy: Occupancy,
    alignment: u64,
    /// Where the last of the fixed blocks ends.
    fixed_end: u64,
    rng: Rng,
    /// The blocks that take part.
    blocks: Vec<u32>,
    /// The fewest bytes in which all of them lay, and where.
    bytes: u64,
    offsets: Vec<u64>,
    unplaced: Vec<u32>,
    /// The costs of pushing out each block at first.
    costs: Vec<u64>,
    /// How often each block did not fit, and the move in which it was placed last.
    times: Vec<u64>,
    placed_in: Vec<u64>,
    moves: u64,
    /// Blocks in use at the same time as the one that is placed, and the sums of their costs by their first addresses
    /// and by their ends.
    beside: Vec<Taken>,
    begun: Vec<Sum>,
    ended: Vec<Sum>,
    spare: Vec<Sum>,
    pushed: Vec<u32>,
}

impl Search {
    pub(super) fn new(occupancy: Occupancy, alignment: u64, seed: u64) -> Search {
        let all = occupancy.len();
        let fixed = (0..all as u32).filter(|&block| occupancy.is_fixed(block));
        let fixed_end = fixed.map(|block| occupancy.end(block)).max().unwrap_or(0);
        Search {
            bytes: fixed_end,
            fixed_end,
            offsets: occupancy.offsets().to_vec(),
            costs: costs(&occupancy),
            occupancy,
            alignment,
            rng: Rng::new(seed),
            blocks: Vec::new(),
            unplaced: Vec::new(),
            times: vec![1; all],
            placed_in: vec![0; all],
            moves: LATELY,
            beside: Vec::new(),
            begun: Vec::new(),
            ended: Vec::new(),
            spare: Vec::new(),
            pushed: Vec::new(),
        }
    }

    /// The fewest bytes that were found, and the address of each block.
    pub(super) fn best(self) -> (u64, Vec<u64>) {
        (self.bytes, self.offsets)
    }

    /// Places more blocks, each at the lowest address where it overlaps none.
    pub(super) fn add(&mut self, blocks: &[u32]) {
        for &block in blocks {
            self.occupancy.list_beside(block, &mut self.beside);
            let bytes = self.occupancy.block(block).bytes;
            let offset = lowest(&self.beside, bytes);
            self.occupancy.put(block, offset);
            self.bytes = self.bytes.max(offset + bytes);
        }
        self.blocks.extend_from_slice(blocks);
        self.offsets.copy_from_slice(self.occupancy.offsets());
    }

    /// The fewest bytes that were found.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Overlaps looked at so far.
    pub(super) fn work(&self) -> u64 {
        self.occupancy.work
    }

    /// Seeks packings of fewer bytes, until one of so few is found that they are enough, none is found for long, or so
    /// many overlaps were looked at since the beginning. All blocks lie as in the best packing then.
    pub(super) fn improve(&mut self, enough: u64, most_work: u64) {
        let patience = LEAST_PATIENCE + PATIENCE * self.blocks.len();
        let (mut part, mut idle) = (PART, 0);
        let mut end = self.aim(enough, part);
        while self.bytes > enough && self.occupancy.work < most_work {
            if self.unplaced.is_empty() {
                self.keep();
                idle = 0;
                end = self.aim(enough, part);
            } else if idle == patience {
                // So few bytes may not be enough, where a little more are.
                let least_saved = self.bytes - end <= self.alignment;
                self.restore();
                if least_saved {
                    return;
                }
                (part, idle) = (part.saturating_mul(PART), 0);
                end = self.aim(enough, part);
            } else {
                idle += 1;
                if idle % ASTRAY == 0 {
                    self.restore();
                    end = self.aim(enough, part);
                }
                self.place_one(end);
            }
        }
        // The last move may have completed one.
        if self.unplaced.is_empty() {
            self.keep();
        }
        self.restore();
    }

    /// The packing is the best one.
    fn keep(&mut self) {
        let ends = self.blocks.iter().map(|&block| self.occupancy.end(block));
        self.bytes = ends.max().unwrap_or(0).max(self.fixed_end);
        self.offsets.copy_from_slice(self.occupancy.offsets());
    }

    /// Back to the best packing.
    fn restore(&mut self) {
        for &block in &self.blocks {
            self.occupancy.take(block);
        }
        for &block in &self.blocks {
            self.occupancy.put(block, self.offsets[block as usize]);
        }
        self.unplaced.clear();
    }

    /// Chooses how many bytes less are sought next, and takes out what ends beyond them. Returns where blocks have to
    /// end.
    fn aim(&mut self, enough: u64, part: u64) -> u64 {
        let saved = (self.bytes.saturating_sub(enough) / part).max(self.alignment);
        let end = self.bytes.saturating_sub(saved).max(enough) & !(self.alignment - 1);
        for &block in &self.blocks {
            if self.occupancy.end(block) > end {
                self.occupancy.take(block);
                self.unplaced.push(block);
            }
        }
        end
    }

    /// Places one of the blocks that are not placed. What is in its way goes elsewhere, or is not placed then.
    fn place_one(&mut self, end: u64) {
        self.moves += 1;
        self.occupancy.work += 1;
        let any = self.rng.below(self.unplaced.len());
        let block = self.unplaced.swap_remove(any);
        let bytes = self.occupancy.block(block).bytes;
        self.occupancy.list_beside(block, &mut self.beside);
        let offset = lowest(&self.beside, bytes);
        if offset + bytes <= end {
            self.put(block, offset);
            return;
        }
        let times = &mut self.times[block as usize];
        *times = (*times + 1).min(MOST_TIMES);
        let Some(offset) = self.cheapest(bytes, end) else {
            self.unplaced.push(block);
            return;
        };
        self.pushed.clear();
        let in_the_way = |taken: &&Taken| taken.from < offset + bytes && taken.to > offset;
        let blocks = self.beside.iter().filter(in_the_way);
        self.pushed.extend(blocks.map(|taken| taken.block));
        for &other in &self.pushed {
            self.occupancy.take(other);
        }
        self.put(block, offset);
        let long = self.occupancy.block(block).long();
        let mut pushed = std::mem::take(&mut self.pushed);
        pushed.sort_by_key(|&other| std::cmp::Reverse(self.costs[other as usize]));
        for &other in &pushed {
            // What is in use for about as long seldom fits elsewhere, and to find that out takes the longest.
            if self.occupancy.block(other).long() < long / 2 {
                self.place_elsewhere(other, end);
            } else {
                self.unplaced.push(other);
            }
        }
        self.pushed = pushed;
    }

    /// Places a block that was pushed out, if it fits anywhere.
    fn place_elsewhere(&mut self, block: u32, end: u64) {
        let bytes = self.occupancy.block(block).bytes;
        self.occupancy.list_beside(block, &mut self.beside);
        let offset = if self.rng.below(2) == 0 {
            Some(lowest(&self.beside, bytes)).filter(|offset| offset + bytes <= end)
        } else {
            tightest(&self.beside, bytes, end)
        };
        match offset {
            Some(offset) => self.occupancy.put(block, offset),
            None => self.unplaced.push(block),
        }
    }

    fn put(&mut self, block: u32, offset: u64) {
        self.occupancy.put(block, offset);
        self.placed_in[block as usize] = self.moves;
    }

    /// The address below an end at which it costs about the least to push out the blocks beside that are in the way of
    /// so many bytes; none if something fixed is everywhere.
    fn cheapest(&mut self, bytes: u64, end: u64) -> Option<u64> {
        let last = end.checked_sub(bytes)?;
        self.sum_costs();
        let (begun, ended) = (&self.begun, &self.ended);
        let (mut least, mut best) = (u64::MAX, None);
        // In the way are the blocks that begin below the end of the address range, without those that end below it.
        let mut consider = |address: u64, begin: usize, end: usize| {
            let (all, below) = (first(begun, begin), first(ended, end));
            let cost = all.cost - below.cost;
            if all.fixed > below.fixed || cost >= least / LEAST_NOISE {
                return;
            }
            // A fifth more or less, so that the same blocks do not go back and forth.
            let cost = cost * (LEAST_NOISE + self.rng.below(NOISE) as u64);
            if cost < least {
                (least, best) = (cost, Some(address));
            }
        };
        // The best addresses are those next to another block, or to an end of the arena.
        let mut begin = 0;
        for end in 0..=ended.len() {
            let address = end.checked_sub(1).map_or(0, |last| ended[last].address);
            if address > last {
                break;
            }
            if ended.get(end).is_none_or(|next| next.address > address) {
                let below = |sum: &&Sum| sum.address < address + bytes;
                begin += begun[begin..].iter().take_while(below).count();
                consider(address, begin, end);
            }
        }
        let mut end = 0;
        for begin in 0..=begun.len() {
            let address = begun.get(begin).map_or(last + bytes, |sum| sum.address);
            let again = begin > 0 && begun[begin - 1].address == address;
            if let (Some(address), false) = (address.checked_sub(bytes), again) {
                let below = |sum: &&Sum| sum.address <= address;
                end += ended[end..].iter().take_while(below).count();
                consider(address, begin, end);
            }
        }
        best
    }

    /// Sums up what the blocks beside cost, by their first addresses and by their ends.
    fn sum_costs(&mut self) {
        self.begun.clear();
        self.ended.clear();
        for taken in &self.beside {
            let (fixed, block) = (self.occupancy.is_fixed(taken.block), taken.block as usize);
            let lately = self.placed_in[block] + LATELY > self.moves;
            let times = self.times[block] * if lately { LATELY_TIMES } else { 1 };
            let sum = |address: u64| Sum {
                address,
                cost: times * self.costs[block],
                fixed: u32::from(fixed),
            };
            self.begun.push(sum(taken.from));
            self.ended.push(sum(taken.to));
        }
        radix_sort(&mut self.ended, &mut self.spare, |sum| sum.address);
        for sums in [&mut self.begun, &mut self.ended] {
            let (mut cost, mut fixed) = (0, 0);
            for sum in sums {
                cost += sum.cost;
                fixed += sum.fixed;
                (sum.cost, sum.fixed) = (cost, fixed);
            }
        }
    }
}

/// The costs of pushing out each block at first: blocks that are in use for long have fewer places to go to, and so
/// have large ones, though less so. The power 3/4 of the bytes served best on recorded steps.
fn costs(occupancy: &Occupancy) -> Vec<u64> {
    let cost = |block: u32| {
        let block = occupancy.block(block);
        let bytes = u128::from(block.bytes / block.bytes.isqrt().isqrt().max(1));
        bytes * u128::from(block.long())
    };
    let blocks = 0..occupancy.len() as u32;
    let sum: u128 = blocks.clone().map(cost).sum();
    let shift = (u128::BITS - sum.leading_zeros()).saturating_sub(COST_BITS);
    blocks
        .map(|block| (cost(block) >> shift).max(1) as u64)
        .collect()
}

/// The sum of the first ones.
fn first(sums: &[Sum], count: usize) -> Sum {
    let none = Sum {
        address: 0,
        cost: 0,
        fixed: 0,
    };
    count.checked_sub(1).map_or(none, |last| sums[last])
}
