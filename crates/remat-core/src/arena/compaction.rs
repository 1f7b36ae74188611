//! Room without evicting: where enough bytes are free and no block is large enough, blocks are moved out of the way. The paper's
//! windows (Coop section 3.3) stop at what cannot be evicted; most of that can be copied, and a copy costs less than most replays.

use super::blocks::{Arena, NOWHERE};
use crate::pool::{End, NIL};
use crate::transaction::state::{State, Stop};
use crate::{Moves, Step, StorageId};

/// Ranges tried: those with the fewest bytes to move.
const TRIED: usize = 8;

/// What a search for moves found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Moves that make room.
    Moves,
    /// More bytes than asked for would have to be moved, wherever room is made.
    Dearer,
    /// Too few bytes are free, or what is in the way has nowhere to go.
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
    /// What the plan found moves, and to where: the largest first.
    pub(crate) moves: Vec<(StorageId, u64, u64)>,
}

/// A run of blocks that would make room, emptied.
#[derive(Clone, Copy, Debug)]
struct Range {
    moved: u64,
    first: u32,
    last: u32,
}

impl State {
    /// Whether blocks may be moved in this pool.
    pub(crate) fn moves_blocks(&self) -> bool {
        matches!(self.arenas.moves, Moves::Copied { .. }) && !self.unlimited
    }

    /// How many bytes can be moved in so many nanoseconds.
    pub(crate) fn bytes_moved_in(&self, nanoseconds: u64) -> u64 {
        match self.arenas.moves {
            Moves::Never => 0,
            Moves::Copied {
                bytes_per_microsecond,
            } => {
                let bytes = u128::from(nanoseconds) * u128::from(bytes_per_microsecond.get());
                u64::try_from(bytes / 1000).unwrap_or(u64::MAX)
            }
        }
    }

    /// Finds moves of at most so many bytes (`most`) after which so many are free side by side. Nothing is evicted.
    ///
    /// Takes O(n) for n blocks, and for each block moved O(log m + h) for m of them and h free blocks.
    pub(crate) fn find_moves(&mut self, pool: u8, bytes: u64, most: u64) -> Found {
        let mut compaction = std::mem::take(&mut self.arenas.compaction);
        let found = self.arenas.get(pool).and_then(|arena| {
            let bytes = bytes.checked_next_multiple_of(arena.pool.alignment())?;
            if arena.pool.free_bytes() < bytes {
                return None;
            }
            self.list_ranges(arena, bytes, &mut compaction);
            let ranges = std::mem::take(&mut compaction.ranges);
            let fitting = |range: &&Range| range.moved <= most;
            let packed = ranges
                .iter()
                .take_while(fitting)
                .find(|range| self.pack(arena, range, &mut compaction));
            let found = match (packed, ranges.first()) {
                (Some(_), _) => Found::Moves,
                (None, Some(range)) if range.moved > most => Found::Dearer,
                _ => Found::Nothing,
            };
            compaction.ranges = ranges;
            Some(found)
        });
        self.arenas.compaction = compaction;
        found.unwrap_or(Found::Nothing)
    }

    /// The ranges with the fewest bytes to move, in that order, of equals the lowest; and what is free.
    fn list_ranges(&self, arena: &Arena, bytes: u64, compaction: &mut Compaction) {
        let Compaction {
            run, ranges, free, ..
        } = compaction;
        run.clear();
        ranges.clear();
        free.clear();
        let (mut left, mut room, mut moved) = (0, 0u64, 0u64);
        let mut slot = arena.pool.lowest();
        while slot != NIL {
            let block = arena.pool.block(slot);
            let next = block.above;
            if block.taken && !self.can_move(arena, slot) {
                run.clear();
                (left, room, moved) = (0, 0, 0);
                slot = next;
                continue;
            }
            if !block.taken {
                free.push((block.address, block.bytes));
            }
            let moves = if block.taken { block.bytes } else { 0 };
            run.push((slot, block.bytes, moves));
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
                    let (first, last) = (run[left].0, slot);
                    ranges.insert(place, Range { moved, first, last });
                }
            }
            slot = next;
        }
    }

    /// Whether a taken block may be copied elsewhere now.
    fn can_move(&self, arena: &Arena, slot: u32) -> bool {
        arena.owner(slot).is_some_and(|s| {
            let storage = &self.graph.storages[s.index()];
            let in_use = storage.locks > 0 && self.arenas.in_op;
            storage.resident && !storage.fixed && !in_use
        })
    }

    /// Finds a hole outside of a range for each block in it, the largest first, each in the smallest hole that holds it.
    fn pack(&self, arena: &Arena, range: &Range, compaction: &mut Compaction) -> bool {
        let Compaction {
            free, holes, moves, ..
        } = compaction;
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

    /// Performs the moves found last, and takes a block of so many bytes where they made room.
    pub(crate) fn make_moves(&mut self, pool: u8, bytes: u64, end: End) -> Result<u64, Stop> {
        let moves = std::mem::take(&mut self.arenas.compaction.moves);
        for &(s, bytes, to) in &moves {
            self.push_step(Step::Move {
                storage: s,
                address: to,
            });
            let from = self.graph.storages[s.index()].address;
            self.take_block_at(pool, to, bytes);
            self.set_address(s, to);
            self.free_block(pool, from);
            self.counters.moved_bytes = self.counters.moved_bytes.saturating_add(bytes);
        }
        self.arenas.compaction.moves = moves;
        let arena = self.arenas.arena(pool).ok_or(Stop::Short(pool))?;
        let address = arena.pool.allocate(bytes, crate::pool::Fit::First, end);
        let address = address.ok_or(Stop::Short(pool))?;
        self.note_taken(pool, address);
        Ok(address)
    }
}
