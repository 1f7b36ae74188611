//! The best choices found, by peak and time.

use crate::cut::evaluate::choice::Choice;

/// Choices none of which beats another in both memory and time: peaks rise, times fall.
#[derive(Default)]
pub(crate) struct Frontier {
    entries: Vec<Entry>,
}

struct Entry {
    choice: Choice,
    /// All choices that are so many changes away from it have been tried.
    explored: usize,
}

impl Frontier {
    /// Adds a choice, unless one that is there is as good, and drops those that it beats.
    pub(crate) fn insert(&mut self, choice: Choice) {
        let place = self
            .entries
            .partition_point(|entry| entry.choice.peak <= choice.peak);
        if place > 0 && self.entries[place - 1].choice.price() <= choice.price() {
            return;
        }
        let needless = |entry: &Entry| choice.price() <= entry.choice.price();
        let same = self.entries[..place]
            .iter()
            .rposition(|entry| entry.choice.peak < choice.peak)
            .map_or(0, |last| last + 1);
        let after = self.entries[place..]
            .iter()
            .position(|entry| !needless(entry))
            .map_or(self.entries.len(), |length| place + length);
        let entry = Entry {
            choice,
            explored: 0,
        };
        self.entries.splice(same..after, [entry]);
    }

    /// The choices, peaks rising.
    pub(crate) fn choices(&self) -> impl Iterator<Item = &Choice> {
        self.entries.iter().map(|entry| &entry.choice)
    }

    /// The fastest choice of at most this peak.
    pub(crate) fn within(&self, peak: u64) -> Option<&Choice> {
        let count = self
            .entries
            .partition_point(|entry| entry.choice.peak <= peak);
        Some(&self.entries[count.checked_sub(1)?].choice)
    }

    /// A choice around which fewer than `changes` changes have been tried, marked as tried from now on. `turn` picks
    /// one of several.
    pub(crate) fn explore(&mut self, changes: usize, turn: u64) -> Option<Choice> {
        let open: Vec<usize> = (0..self.entries.len())
            .filter(|&k| self.entries[k].explored < changes)
            .collect();
        let entry = &mut self.entries[*open.get(turn as usize % open.len().max(1))?];
        entry.explored = changes;
        Some(entry.choice.clone())
    }

    /// Whether there is a choice around which fewer than `changes` changes have been tried.
    pub(crate) fn is_open(&self, changes: usize) -> bool {
        self.entries.iter().any(|entry| entry.explored < changes)
    }

    /// A choice, picked by `turn`.
    pub(crate) fn any(&self, turn: u64) -> &Choice {
        &self.entries[turn as usize % self.entries.len()].choice
    }
}
