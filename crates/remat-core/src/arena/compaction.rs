//! Room without evicting: where enough bytes are free and no block is large enough, blocks are moved out of the way.
//! The paper's windows (Coop section 3.3) stop at blocks that cannot be evicted; most of them can be copied, and a copy
//! costs less than most replays.

use super::blocks::Arena;
use crate::graph::{Graph, NOWHERE};
use crate::ids::StorageId;
use crate::pool::NIL;

/// Ranges tried: those with the fewest bytes to move.
const TRIED: usize = 8;

/// Blocks that may be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Movable {
    All,
    /// Room is made while an op runs: its inputs stay where they are.
    Unlocked,
}

/// The result of a search for moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Moves that make room.
    Moves,
    /// More bytes than asked for would have to be moved, wherever room is made.
    Dearer,
    /// Too few bytes are free, or a block in the way fits nowhere else.
    Nothing,
}

/// Scratch of searches for moves.
#[derive(Default)]
pub(crate) struct Compaction {
    /// The blocks since the last one that stays: slot, bytes, bytes to move.
    run: Vec<(u32, u64, u64)>,
    ranges: Vec<Range>,
    /// The free blocks: address, bytes.
    free: Vec<(u64, u64)>,
    /// Those outside of a range, and what is left of them: bytes, address.
    holes: Vec<(u64, u64)>,
    /// The moves found, the largest first: whose bytes, how many, to where.
    pub(crate) moves: Vec<(StorageId, u64, u64)>,
}

/// A run of blocks that would make room, emptied.
#[derive(Clone, Copy, Debug)]
struct Range {
    moved: u64,
    first: u32,
    last: u32,
}

impl Compaction {
    /// Finds moves of at most so many bytes (`most`) after which so many are free side by side. Nothing is evicted.
    ///
    /// Takes O(n) for n blocks, and for each block moved O(log m + h) for m of them and h free blocks.
    pub(crate) fn find(
        &mut self,
        arena: &Arena,
        graph: &Graph,
        movable: Movable,
        bytes: u64,
        most: u64,
    ) -> Found {
        let Some(bytes) = bytes.checked_next_multiple_of(arena.pool.alignment()) else {
            return Found::Nothing;
        };
        if arena.pool.free_bytes() < bytes {
            return Found::Nothing;
        }
        self.list_ranges(arena, graph, movable, bytes);
        for index in 0..self.ranges.len() {
            let range = self.ranges[index];
            if range.moved > most {
                break;
            }
            if self.pack(arena, &range) {
                return Found::Moves;
            }
        }
        match self.ranges.first() {
            Some(range) if range.moved > most => Found::Dearer,
            _ => Found::Nothing,
        }
    }

    /// The ranges with the fewest bytes to move, in that order, of equals the lowest; and what is free.
    fn list_ranges(&mut self, arena: &Arena, graph: &Graph, movable: Movable, bytes: u64) {
        let Compaction {
            run, ranges, free, ..
        } = self;
        run.clear();
        ranges.clear();
        free.clear();
        let (mut left, mut room, mut moved) = (0, 0u64, 0u64);
        let mut slot = arena.pool.lowest();
        while slot != NIL {
            let block = arena.pool.block(slot);
            let last = slot;
            slot = block.above;
            if block.taken && !can_move(arena, graph, movable, last) {
                run.clear();
                (left, room, moved) = (0, 0, 0);
                continue;
            }
            if !block.taken {
                free.push((block.address, block.bytes));
            }
            let moves = if block.taken { block.bytes } else { 0 };
            run.push((last, block.bytes, moves));
            room += block.bytes;
            moved += moves;
            while room - run[left].1 >= bytes {
                room -= run[left].1;
                moved -= run[left].2;
                left += 1;
            }
            if room >= bytes {
                let place = ranges.partition_point(|range| range.moved <= moved);
                if place < TRIED {
                    ranges.truncate(TRIED - 1);
                    let first = run[left].0;
                    ranges.insert(place, Range { moved, first, last });
                }
            }
        }
    }

    /// Finds a hole outside of a range for each block in it, the largest first, each in the smallest hole that holds
    /// it.
    fn pack(&mut self, arena: &Arena, range: &Range) -> bool {
        let Compaction {
            free, holes, moves, ..
        } = self;
        moves.clear();
        let mut slot = range.first;
        loop {
            let block = arena.pool.block(slot);
            if block.taken {
                let Some(owner) = arena.owner(slot) else {
                    return false;
                };
                moves.push((owner, block.bytes, NOWHERE));
            }
            if slot == range.last {
                break;
            }
            slot = block.above;
        }
        let (first, last) = (arena.pool.block(range.first), arena.pool.block(range.last));
        let inside = first.address..=last.address;
        let outside = free
            .iter()
            .filter(|(address, _)| !inside.contains(address))
            .map(|&(address, bytes)| (bytes, address));
        holes.clear();
        holes.extend(outside);
        moves.sort_by_key(|&(_, bytes, _)| std::cmp::Reverse(bytes));
        for (_, bytes, to) in moves.iter_mut() {
            let fitting = holes.iter_mut().filter(|hole| hole.0 >= *bytes);
            let Some(hole) = fitting.min() else {
                return false;
            };
            *to = hole.1;
            hole.0 -= *bytes;
            hole.1 += *bytes;
        }
        true
    }
}

/// Whether a taken block may be copied elsewhere now.
fn can_move(arena: &Arena, graph: &Graph, movable: Movable, slot: u32) -> bool {
    arena.owner(slot).is_some_and(|s| {
        let storage = &graph[s];
        let in_use = storage.locks > 0 && movable == Movable::Unlocked;
        storage.resident && !storage.fixed && !in_use
    })
}
