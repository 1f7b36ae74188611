//! Blocks moved to the places that a plan has for them.

use crate::graph::NOWHERE;
use crate::ids::StorageId;
use crate::op::Step;
use crate::pool::Side;
use crate::transaction::State;

impl State {
    /// Moves storages to these addresses, as far as they are free, or become so by these moves. What cannot be moved
    /// stays. Takes time quadratic in the number of moves at worst, times the number of free blocks where all have to
    /// step aside.
    pub(crate) fn move_to_places(&mut self, moves: &[(StorageId, u64)]) {
        if moves.is_empty() || !self.arenas.moves_blocks() {
            return;
        }
        let mut left = moves.to_vec();
        left.retain(|&(s, _)| self.can_settle(s));
        let mut aside: Vec<StorageId> = Vec::new();
        loop {
            let before = left.len();
            left.retain(|&(s, to)| !self.move_to(s, to));
            if left.len() < before {
                continue;
            }
            // Each stands in the way of the next in a ring: one steps aside, and each does so once.
            let in_the_way = |&&(s, _): &&(StorageId, u64)| {
                !aside.contains(&s) && left.iter().any(|&(other, to)| self.covers(s, other, to))
            };
            let Some(&(s, _)) = left.iter().find(in_the_way) else {
                return;
            };
            aside.push(s);
            self.move_aside(s, &left);
        }
    }

    /// Whether a storage lies where another is to lie.
    fn covers(&self, s: StorageId, other: StorageId, to: u64) -> bool {
        let (here, there) = (&self.graph[s], &self.graph[other]);
        here.device == there.device
            && here.address < to.saturating_add(there.bytes)
            && to < here.address.saturating_add(here.bytes)
    }

    fn can_settle(&self, s: StorageId) -> bool {
        let storage = &self.graph[s];
        storage.resident && !storage.fixed && storage.address != NOWHERE
    }

    /// Moves a storage to an address, if that is free.
    fn move_to(&mut self, s: StorageId, to: u64) -> bool {
        let (device, bytes) = (self.graph[s].device, self.graph[s].bytes);
        let free = self.take_block_at(device, to, bytes).is_some();
        if free {
            self.note_move(s, to);
        }
        free
    }

    /// Moves a storage where none of these moves lead, or else anywhere.
    fn move_aside(&mut self, s: StorageId, moves: &[(StorageId, u64)]) {
        let (device, bytes) = (self.graph[s].device, self.graph[s].bytes);
        let out_of_the_way = self.out_of_the_way(device, bytes, moves);
        let taken = out_of_the_way.and_then(|to| self.take_block_at(device, to, bytes));
        if let Some(to) = taken.or_else(|| self.take_block(device, bytes, Side::High)) {
            self.note_move(s, to);
        }
    }

    /// A high address of so many free bytes where none of these moves lead.
    fn out_of_the_way(&self, device: u8, bytes: u64, moves: &[(StorageId, u64)]) -> Option<u64> {
        let pool = &self.arenas.get(device)?.pool;
        let here = moves
            .iter()
            .filter(|&&(s, _)| self.graph[s].device == device);
        let mut wanted: Vec<(u64, u64)> = here
            .map(|&(s, to)| (to, to.saturating_add(self.graph[s].bytes)))
            .collect();
        wanted.sort_unstable();
        let free: Vec<(u64, u64)> = pool
            .blocks()
            .filter(|&(_, size, taken)| !taken && size >= bytes)
            .map(|(address, size, _)| (address, address + size))
            .collect();
        free.iter().rev().find_map(|&(from, mut to)| {
            // From the top down, below each place that is wanted.
            for &(wanted_from, wanted_to) in wanted.iter().rev() {
                let at = aligned_below(to, bytes, pool.alignment())?;
                if wanted_to <= at || at < from {
                    break;
                }
                to = to.min(wanted_from);
            }
            aligned_below(to, bytes, pool.alignment()).filter(|&at| at >= from)
        })
    }

    /// The storage is copied into a block that was just taken.
    fn note_move(&mut self, storage: StorageId, address: u64) {
        let record = &self.graph[storage];
        let (device, bytes, from) = (record.device, record.bytes, record.address);
        self.journal.write_counters(self.counters);
        self.counters.moved_bytes = self.counters.moved_bytes.saturating_add(bytes);
        self.push_step(Step::Move { storage, address });
        self.set_address(storage, address);
        self.free_block(device, from);
    }
}

/// The last multiple of an alignment, a power of two, at which so many bytes end before an address.
fn aligned_below(end: u64, bytes: u64, alignment: u64) -> Option<u64> {
    Some(end.checked_sub(bytes)? & !(alignment - 1))
}
