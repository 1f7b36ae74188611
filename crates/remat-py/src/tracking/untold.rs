//! The storages that the engine was not told of, in the order in which they came.

/// A storage: its id, which others have after it, and its serial number, which no other has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: u32,
    pub(super) serial: u64,
}

/// The list. What was told of or died stays on it for a while: it is never longer than twice what is there.
#[derive(Default)]
pub(super) struct Untold {
    count: usize,
    bytes: u64,
    listed: Vec<Entry>,
}

impl Untold {
    /// Adds a storage. `is_there` says whether one that was added before is still there, and not told of.
    pub(super) fn add(&mut self, entry: Entry, bytes: u64, is_there: impl Fn(Entry) -> bool) {
        self.count += 1;
        self.bytes += bytes;
        if self.listed.len() > 2 * self.count + 64 {
            self.listed.retain(|&listed| is_there(listed));
        }
        self.listed.push(entry);
    }

    /// A storage was told of, or died.
    pub(super) fn leave(&mut self, bytes: u64) {
        self.count -= 1;
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// The storage at a place of the list, in the order in which they came.
    pub(super) fn at(&self, place: usize) -> Option<Entry> {
        self.listed.get(place).copied()
    }

    /// All that are listed were told of.
    pub(super) fn clear(&mut self) {
        self.listed.clear();
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, Untold};

    /// One storage lives on while others come and go under one id.
    #[test]
    fn the_list_stays_short_where_ids_are_used_again() {
        let mut untold = Untold::default();
        let mut serials = [0, 0];
        let first = Entry { id: 0, serial: 0 };
        untold.add(first, 8, |_| true);
        for serial in 1..10_000 {
            let there = |entry: Entry| serials[entry.id as usize] == entry.serial;
            untold.add(Entry { id: 1, serial }, 4, there);
            serials[1] = serial;
            assert!(untold.listed.len() <= 2 * untold.count + 65);
            untold.leave(4);
        }
        assert_eq!((untold.count, untold.bytes()), (1, 8));
        assert_eq!(untold.at(0), Some(first));
    }
}
