//! Room without evicting: where enough bytes are free and no block is large enough, blocks are moved out of the way. The paper's
//! windows (Coop section 3.3) stop at what cannot be evicted; most of that can be copied, and a copy costs less than most replays.

use super::{Arena, NOWHERE};
use crate::pool::{End, NIL};
use crate::state::{State, Stop};
use crate::{Moves, Step, StorageId};

/// Windows tried: those with the fewest bytes to move.
const TRIED: usize = 8;

/// Scratch of searches for moves.
#[derive(Default)]
pub(super) struct Compaction {
    /// The blocks since the last one that stays: slot, bytes, bytes to move.
    run: Vec<(u32, u64, u64)>,
    windows: Vec<Range>,
    holes: Vec<(u64, u64)>,
    /// What the plan found moves, and to where: the largest first.
    moves: Vec<(StorageId, u64, u64)>,
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
    pub(super) fn moves_blocks(&self) -> bool {
        matches!(self.arenas.moves, Moves::Copied { .. }) && !self.unlimited
    }

    /// What moving so many bytes costs, in nanoseconds.
    pub(super) fn cost_of_moving(&self, bytes: u64) -> u64 {
        match self.arenas.moves {
            Moves::Never => u64::MAX,
            Moves::Copied {
                bytes_per_microsecond,
            } => bytes.saturating_mul(1000) / u64::from(bytes_per_microsecond.get()),
        }
    }

    /// Finds moves after which so many bytes are free side by side; how many bytes they move. Nothing is evicted.
    ///
    /// Takes O(n log n) for n blocks, and O(n) for each block moved.
    pub(super) fn find_moves(&mut self, pool: u8, bytes: u64) -> Option<u64> {
        let mut compaction = std::mem::take(&mut self.arenas.compaction);
        let found = self.arenas.get(pool).and_then(|arena| {
            let bytes = bytes.checked_next_multiple_of(arena.pool.alignment())?;
            if arena.pool.free_bytes() < bytes {
                return None;
            }
            self.list_ranges(arena, bytes, &mut compaction);
            let Compaction {
                windows,
                holes,
                moves,
                ..
            } = &mut compaction;
            let packed = windows
                .iter()
                .find(|window| self.pack(arena, window, holes, moves));
            packed.map(|window| window.moved)
        });
        self.arenas.compaction = compaction;
        found
    }

    /// The ranges with the fewest bytes to move, in that order; of equals the lowest.
    fn list_ranges(&self, arena: &Arena, bytes: u64, compaction: &mut Compaction) {
        let Compaction { run, windows, .. } = compaction;
        run.clear();
        windows.clear();
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
                windows.push(Range {
                    moved,
                    first: run[left].0,
                    last: slot,
                });
            }
            slot = next;
        }
        windows.sort_by_key(|window| window.moved);
        windows.truncate(TRIED);
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
    fn pack(
        &self,
        arena: &Arena,
        range: &Range,
        holes: &mut Vec<(u64, u64)>,
        moves: &mut Vec<(StorageId, u64, u64)>,
    ) -> bool {
        holes.clear();
        moves.clear();
        let mut inside = false;
        let mut slot = arena.pool.lowest();
        while slot != NIL {
            let block = arena.pool.block(slot);
            inside |= slot == range.first;
            match (inside, block.taken) {
                (true, true) => {
                    let Some(owner) = arena.owner(slot) else {
                        return false;
                    };
                    moves.push((owner, block.bytes, NOWHERE));
                }
                (false, false) => holes.push((block.bytes, block.address)),
                _ => {}
            }
            inside &= slot != range.last;
            slot = block.above;
        }
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
    pub(super) fn make_moves(&mut self, pool: u8, bytes: u64, end: End) -> Result<u64, Stop> {
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
