//! Addresses of a plan's blocks, checked one block after the other.

use super::fault::Reason;
use crate::step::placement::Addresses;
use std::collections::BTreeMap;

/// The blocks in use, by their addresses.
pub(super) struct Arena<'a> {
    addresses: &'a Addresses,
    /// Blocks taken so far.
    taken: usize,
    /// The end of each block in use, by its address.
    ends: BTreeMap<u64, u64>,
}

impl<'a> Arena<'a> {
    pub(super) fn new(addresses: &'a Addresses) -> Arena<'a> {
        Arena {
            addresses,
            taken: 0,
            ends: BTreeMap::new(),
        }
    }

    /// Takes the next block.
    pub(super) fn take(&mut self, bytes: u64) -> Result<u64, Reason> {
        let block = self.taken;
        let &offset = self
            .addresses
            .offsets
            .get(block)
            .ok_or(Reason::NoAddress(block))?;
        self.taken += 1;
        if offset % self.addresses.alignment != 0 {
            return Err(Reason::NotAligned(block));
        }
        let end = offset
            .checked_add(bytes)
            .filter(|&end| end <= self.addresses.bytes);
        let end = end.ok_or(Reason::BeyondTheArena(block))?;
        let below = self.ends.range(..end).next_back();
        if below.is_some_and(|(_, &other)| other > offset) {
            return Err(Reason::Overlaps(block));
        }
        self.ends.insert(offset, end);
        Ok(offset)
    }

    /// Gives a block back.
    pub(super) fn give(&mut self, offset: u64) {
        self.ends.remove(&offset);
    }

    /// Checks that no address is left.
    pub(super) fn end(&self) -> Result<(), Reason> {
        match self.addresses.offsets.len() {
            all if all == self.taken => Ok(()),
            _ => Err(Reason::NoSuchBlock(self.taken)),
        }
    }
}
