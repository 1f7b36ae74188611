//! The best choices found, by peak and time.

use super::worth::Choice;

/// Choices none of which is better than another in both memory and time: peaks rise, times fall.
#[derive(Default)]
pub(super) struct Frontier {
    entries: Vec<Entry>,
}

struct Entry {
    choice: Choice,
    /// What is one step away from it has been tried.
    explored: bool,
}

/// What is better if memory is the same: less time, then fewer bytes read and written.
fn price(choice: &Choice) -> (u64, u64) {
    (choice.recompute_ns, choice.cost)
}

impl Frontier {
    /// Takes a choice in, unless one that is there is as good, and drops those that it makes needless.
    pub(super) fn offer(&mut self, choice: Choice) {
        let place = self
            .entries
            .partition_point(|entry| entry.choice.peak <= choice.peak);
        if place > 0 && price(&self.entries[place - 1].choice) <= price(&choice) {
            return;
        }
        let needless = |entry: &Entry| price(&choice) <= price(&entry.choice);
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
            explored: false,
        };
        self.entries.splice(same..after, [entry]);
    }

    /// The choices, peaks rising.
    pub(super) fn choices(&self) -> impl Iterator<Item = &Choice> {
        self.entries.iter().map(|entry| &entry.choice)
    }

    /// The fastest choice of at most this peak.
    pub(super) fn within(&self, peak: u64) -> Option<&Choice> {
        let count = self
            .entries
            .partition_point(|entry| entry.choice.peak <= peak);
        Some(&self.entries[count.checked_sub(1)?].choice)
    }

    /// A choice that has not been explored yet; `turn` says which of them.
    pub(super) fn explore(&mut self, turn: u64) -> Option<Choice> {
        let open: Vec<usize> = (0..self.entries.len())
            .filter(|&k| !self.entries[k].explored)
            .collect();
        let entry = &mut self.entries[*open.get((turn % open.len().max(1) as u64) as usize)?];
        entry.explored = true;
        Some(entry.choice.clone())
    }
}
