//! Memory by slot, with the largest at hand.

/// Numbers by slot: a range can be raised, one be replaced, and the largest be found, in `O(log slots)` each.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    leaves: usize,
    /// Of each node of a binary tree the largest number below it, as long as nothing above it is raised.
    largest: Vec<i64>,
    /// The amount by which all numbers below a node are raised.
    raised: Vec<i64>,
    /// The part of each slot beside its raises.
    own: Vec<i64>,
}

impl Profile {
    pub(crate) fn new(slots: usize) -> Profile {
        let leaves = slots.next_power_of_two();
        Profile {
            leaves,
            largest: vec![0; 2 * leaves],
            raised: vec![0; 2 * leaves],
            own: vec![0; slots],
        }
    }

    /// Raises slots `from..to`.
    pub(crate) fn raise(&mut self, from: usize, to: usize, by: i64) {
        if from >= to || by == 0 {
            return;
        }
        let (mut low, mut high) = (from + self.leaves, to + self.leaves);
        let (first, last) = (low, high - 1);
        while low < high {
            if low & 1 == 1 {
                self.apply(low, by);
                low += 1;
            }
            if high & 1 == 1 {
                high -= 1;
                self.apply(high, by);
            }
            low /= 2;
            high /= 2;
        }
        self.pull(first);
        self.pull(last);
    }

    /// Replaces what a slot has beside its raises. Returns what it had before.
    pub(crate) fn set(&mut self, slot: usize, own: i64) -> i64 {
        let before = std::mem::replace(&mut self.own[slot], own);
        if own != before {
            let leaf = slot + self.leaves;
            self.largest[leaf] += own - before;
            self.pull(leaf);
        }
        before
    }

    fn apply(&mut self, node: usize, by: i64) {
        self.largest[node] += by;
        if node < self.leaves {
            self.raised[node] += by;
        }
    }

    fn pull(&mut self, mut node: usize) {
        while node > 1 {
            node /= 2;
            let below = self.largest[2 * node].max(self.largest[2 * node + 1]);
            self.largest[node] = below + self.raised[node];
        }
    }

    /// The largest number.
    pub(crate) fn largest(&self) -> i64 {
        self.largest[1]
    }

    /// The first slot with the largest number.
    pub(crate) fn place(&self) -> usize {
        let mut node = 1;
        while node < self.leaves {
            node *= 2;
            if self.largest[node + 1] > self.largest[node] {
                node += 1;
            }
        }
        node - self.leaves
    }

    /// The number of a slot.
    pub(crate) fn at(&self, slot: usize) -> i64 {
        let mut node = slot + self.leaves;
        let mut number = self.largest[node];
        while node > 1 {
            node /= 2;
            number += self.raised[node];
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::Profile;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_list(
            slots in 1usize..20,
            changes in prop::collection::vec((any::<bool>(), 0usize..20, 0usize..20, -5i64..9), 0..60),
        ) {
            let (mut profile, mut through, mut own) =
                (Profile::new(slots), vec![0i64; slots], vec![0i64; slots]);
            for (raises, a, b, by) in changes {
                let (from, to) = (a % slots, b % slots + 1);
                if raises {
                    profile.raise(from, to, by);
                    (from..to).for_each(|slot| through[slot] += by);
                } else {
                    profile.set(from, by);
                    own[from] = by;
                }
            }
            let sums: Vec<i64> = through.iter().zip(&own).map(|(a, b)| a + b).collect();
            for (slot, &sum) in sums.iter().enumerate() {
                prop_assert_eq!(profile.at(slot), sum);
            }
            // Slots beyond the last count as 0.
            let largest = sums.iter().copied().max().unwrap_or(0);
            if largest > 0 {
                prop_assert_eq!(profile.largest(), largest);
                prop_assert_eq!(sums[profile.place()], largest);
            }
        }
    }
}
