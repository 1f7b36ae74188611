//! An order in which the nodes of a graph can run.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::adjacency::Adjacency;

/// The nodes in an order in which they can run: as numbered where possible, but results of an op of several results
/// directly after the op. The error is a circle of nodes that read one another, if there is one.
///
/// Of all nodes that could be next, the first is: Kahn's algorithm with a heap, `O(edges + nodes log nodes)`.
pub(crate) fn order(
    inputs: &Adjacency,
    users: &Adjacency,
    part_of: &[Option<u32>],
) -> Result<Vec<u32>, Vec<u32>> {
    let count = part_of.len();
    let mut missing: Vec<u32> = (0..count).map(|id| inputs.of(id).len() as u32).collect();
    // A part is as early as what it is a part of.
    let key = |id: u32| Reverse((part_of[id as usize].unwrap_or(id), id));
    let free = (0..count as u32).filter(|&id| missing[id as usize] == 0);
    let mut ready: BinaryHeap<Reverse<(u32, u32)>> = free.map(key).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(Reverse((_, id))) = ready.pop() {
        order.push(id);
        for &user in users.of(id as usize) {
            missing[user as usize] -= 1;
            if missing[user as usize] == 0 {
                ready.push(key(user));
            }
        }
    }
    if order.len() == count {
        Ok(order)
    } else {
        Err(circle(inputs, &missing))
    }
}

/// A circle among the nodes that miss inputs: each reads the one before it, the first reads the last.
fn circle(inputs: &Adjacency, missing: &[u32]) -> Vec<u32> {
    let stuck = |&id: &u32| missing[id as usize] > 0;
    let mut walk: Vec<u32> = Vec::new();
    let mut met = vec![None; missing.len()];
    let mut next = (0..missing.len() as u32).find(stuck);
    while let Some(id) = next {
        if let Some(start) = met[id as usize] {
            walk.drain(..start);
            break;
        }
        met[id as usize] = Some(walk.len());
        walk.push(id);
        // A node that misses an input reads a node that misses one.
        next = inputs.of(id as usize).iter().copied().find(|id| stuck(id));
    }
    walk[1..].reverse();
    walk
}
