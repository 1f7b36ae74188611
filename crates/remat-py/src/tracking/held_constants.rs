//! The bytes of constants that are kept alive only because recorded ops read them.

/// Bytes held for records, and when to search among them for constants that the program has dropped.
#[derive(Default)]
pub struct HeldConstants {
    bytes: u64,
    /// Ops since the last search.
    ops: usize,
}

impl HeldConstants {
    /// Notes a constant that is held from now on.
    pub fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Notes a constant that is not held any more.
    pub fn sub(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Whether to search before the next op: more than a sixteenth of the budget is held, and so many ops came since
    /// the last search that one which looks at `known` storages and records adds a constant time to each.
    pub fn are_to_be_searched(&mut self, budget: Option<u64>, known: usize) -> bool {
        self.ops += 1;
        budget.is_some_and(|budget| self.ops > known / 8 && self.bytes > budget / 16)
    }

    /// Notes that the held constants are being searched now.
    pub fn note_search(&mut self) {
        self.ops = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_due_where_much_is_held_and_enough_ops_came() {
        let mut held = HeldConstants::default();
        held.add(16);
        assert!(!held.are_to_be_searched(Some(256), 0) && !held.are_to_be_searched(None, 0));
        held.add(1);
        assert!(held.are_to_be_searched(Some(256), 0));
        held.note_search();
        let due = [(); 4].map(|()| held.are_to_be_searched(Some(256), 24));
        assert_eq!(due, [false, false, false, true]);
        held.sub(1);
        assert!(!held.are_to_be_searched(Some(256), 0));
    }
}
