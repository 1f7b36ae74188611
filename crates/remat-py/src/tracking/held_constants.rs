//! The bytes of constants that are kept alive only because recorded ops read them.

/// Bytes held for records, and when to search among them for constants that the program has dropped.
#[derive(Default)]
pub struct HeldConstants {
    bytes: u64,
    searched_at: u64,
}

impl HeldConstants {
    /// Notes a constant that is held from now on.
    pub fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Notes a constant that is not held any more.
    pub fn sub(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.searched_at = self.searched_at.min(self.bytes);
    }

    /// Whether a sixteenth of the budget has come to be held since the last search.
    pub fn are_many(&self, budget: Option<u64>) -> bool {
        budget.is_some_and(|budget| self.bytes - self.searched_at > budget / 16)
    }

    /// Notes that the held constants are being searched now.
    pub fn note_search(&mut self) {
        self.searched_at = self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_due_each_time_a_sixteenth_of_the_budget_has_come() {
        let mut held = HeldConstants::default();
        held.add(16);
        assert!(!held.are_many(Some(256)) && !held.are_many(None));
        held.add(1);
        assert!(held.are_many(Some(256)));
        held.note_search();
        assert!(!held.are_many(Some(256)));
        held.sub(10);
        held.add(16);
        assert!(!held.are_many(Some(256)));
        held.add(1);
        assert!(held.are_many(Some(256)));
    }
}
