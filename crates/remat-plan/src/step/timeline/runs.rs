//! Runs again.

/// The runs again of a schedule, by op and by slot.
#[derive(Clone, Debug)]
pub(crate) struct Runs {
    /// The slots in which each op runs again, rising.
    slots: Vec<Vec<u32>>,
    /// The ops that run again in each slot, rising.
    ops: Vec<Vec<u32>>,
}

impl Runs {
    /// No op runs again.
    pub(super) fn new(ops: usize) -> Runs {
        Runs {
            slots: vec![Vec::new(); ops],
            ops: vec![Vec::new(); ops],
        }
    }

    /// The slots in which an op runs again, rising.
    pub(crate) fn of(&self, op: u32) -> &[u32] {
        &self.slots[op as usize]
    }

    /// The ops that run again in a slot, rising; none after the last op.
    pub(crate) fn within(&self, slot: u32) -> &[u32] {
        self.ops.get(slot as usize).map_or(&[], Vec::as_slice)
    }

    /// The number of slots, which is that of ops.
    pub(crate) fn slots(&self) -> u32 {
        self.ops.len() as u32
    }

    /// Adds a run. Returns whether it is new.
    pub(super) fn add(&mut self, op: u32, slot: u32) -> bool {
        let (slots, ops) = (&mut self.slots[op as usize], &mut self.ops[slot as usize]);
        match (slots.binary_search(&slot), ops.binary_search(&op)) {
            (Err(run), Err(place)) => {
                slots.insert(run, slot);
                ops.insert(place, op);
                true
            }
            _ => false,
        }
    }

    /// Takes a run out. Returns whether it was there.
    pub(super) fn remove(&mut self, op: u32, slot: u32) -> bool {
        let (slots, ops) = (&mut self.slots[op as usize], &mut self.ops[slot as usize]);
        match (slots.binary_search(&slot), ops.binary_search(&op)) {
            (Ok(run), Ok(place)) => {
                slots.remove(run);
                ops.remove(place);
                true
            }
            _ => false,
        }
    }
}
