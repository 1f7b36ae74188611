//! A search for packings of fewer bytes: blocks that do not fit push others out.
//!
//! The search aims at a few bytes less than the best packing, takes out what ends beyond them, and puts each of these
//! blocks where those in its way are cheapest to move. They in turn go elsewhere, or push out others. A block that is
//! hard to place costs more each time, so the search does not go round in circles. This is how Nagata and Bräysy save
//! vehicles ("A powerful route minimization heuristic for the vehicle routing problem with time windows", Operations
//! Research Letters 37, 2009).

use super::occupancy::{Occupancy, Taken, lowest, tightest};
use crate::step::search::rng::Rng;

/// So small a part of what the best packing takes beyond enough is to be saved next.
const PART: u64 = 16;

/// The search aims at less after so many moves for each block, and this many more, without a better packing.
const PATIENCE: usize = 100;
const LEAST_PATIENCE: usize = 1000;

/// A block that was placed less than so many moves ago costs more to push out.
const LATELY: u64 = 5;

/// A block costs at most so many times what it does at first.
const MOST_TIMES: u64 = 1 << 16;

/// The sum, over blocks up to an address, of the costs of pushing them out.
#[derive(Clone, Copy)]
struct Sum {
    address: u64,
    cost: u128,
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
    /// How often each block did not fit, and the move in which it was placed last.
    times: Vec<u64>,
    placed_in: Vec<u64>,
    moves: u64,
    /// Blocks in use at the same time as the one that is placed, and the sums of their costs by their first addresses
    /// and by their ends.
    beside: Vec<Taken>,
    begun: Vec<Sum>,
    ended: Vec<Sum>,
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
        self.times.fill(1);
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
        let mut pushed = std::mem::take(&mut self.pushed);
        pushed.sort_by_key(|&other| std::cmp::Reverse(area(&self.occupancy, other)));
        for &other in &pushed {
            self.place_elsewhere(other, end);
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
        // The best addresses are those next to another block, or to an end.
        let after = self.ended.iter().map(|sum| sum.address);
        let before = self.begun.iter().map(|sum| sum.address.checked_sub(bytes));
        let addresses = after.chain(before.flatten()).chain([0, last]);
        let (mut best, mut seen) = (None, None);
        for address in addresses {
            if address > last || seen == Some(address) {
                continue;
            }
            seen = Some(address);
            let begun = at(&self.begun, |sum| sum.address < address + bytes);
            let ended = at(&self.ended, |sum| sum.address <= address);
            if begun.fixed > ended.fixed {
                continue;
            }
            // A fifth more or less, so that the same blocks do not go back and forth.
            let cost = (begun.cost - ended.cost) * (8 + self.rng.below(5) as u128);
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, address));
            }
        }
        best.map(|(_, address)| address)
    }

    /// Sums up what the blocks beside cost, by their first addresses and by their ends.
    fn sum_costs(&mut self) {
        self.begun.clear();
        self.ended.clear();
        for taken in &self.beside {
            let (fixed, block) = (self.occupancy.is_fixed(taken.block), taken.block as usize);
            let lately = self.placed_in[block] + LATELY > self.moves;
            let times = self.times[block] * if lately { 4 } else { 1 };
            let sum = |address: u64| Sum {
                address,
                cost: u128::from(times) * area(&self.occupancy, taken.block),
                fixed: u32::from(fixed),
            };
            self.begun.push(sum(taken.from));
            self.ended.push(sum(taken.to));
        }
        self.ended.sort_unstable_by_key(|sum| sum.address);
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

/// The cost of pushing out a block at first: large ones that are in use for long have fewer places to go to.
fn area(occupancy: &Occupancy, block: u32) -> u128 {
    let block = occupancy.block(block);
    u128::from(block.bytes) * u128::from(block.long())
}

/// The sum of the costs of all that meets a condition, which the first ones do.
fn at(sums: &[Sum], meets: impl Fn(&Sum) -> bool) -> Sum {
    let none = Sum {
        address: 0,
        cost: 0,
        fixed: 0,
    };
    let all = sums.partition_point(meets);
    if all == 0 { none } else { sums[all - 1] }
}
