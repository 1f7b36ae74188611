//! Lists of neighbours, all in one flat array.

/// For each of `len()` items a list of others.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Adjacency {
    start: Vec<u32>,
    others: Vec<u32>,
}

impl Adjacency {
    /// From pairs of an item and an other; each list keeps the order of the pairs. Takes time `O(items + pairs)`.
    pub(crate) fn new(items: usize, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> Adjacency {
        let mut start = vec![0u32; items + 1];
        for (item, _) in pairs.clone() {
            start[item as usize + 1] += 1;
        }
        for item in 0..items {
            start[item + 1] += start[item];
        }
        let mut next = start.clone();
        let mut others = vec![0; start[items] as usize];
        for (item, other) in pairs {
            others[next[item as usize] as usize] = other;
            next[item as usize] += 1;
        }
        Adjacency { start, others }
    }

    /// The list of an item.
    pub(crate) fn of(&self, item: usize) -> &[u32] {
        &self.others[self.start[item] as usize..self.start[item + 1] as usize]
    }
}
