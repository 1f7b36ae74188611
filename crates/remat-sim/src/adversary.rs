//! The adversary of DTR theorem 3.2 (appendix B). It draws a graph while a policy decides, and always asks next for a
//! tensor that the policy has evicted.
//!
//! A constant t0 has as many children as the budget has bytes. t0 itself takes one byte, so at any time some path from
//! t0 has no resident node. The adversary adds the next node at the end of such a path, and the whole path must be
//! recomputed. N nodes cost any policy at least N^2 / (2B) ops; a static order, path after path, takes N.
//!
//! ```
//! use remat_core::Policy;
//! use remat_sim::adversary;
//!
//! let forced = adversary::run(Policy::default(), 200, 10)?;
//! assert!(forced.ops >= 200 * 200 / (2 * 10));
//! assert_eq!(forced.ops, forced.paths.iter().map(|length| length * (length + 1) / 2).sum::<u64>());
//! # Ok::<(), remat_core::Error>(())
//! ```

use crate::drive;
use remat_core::{
    Bytes, Cost, Dealloc, DeviceId, Engine, Error, Finished, OpSpec, Output, Policy, Replay, Step,
    TensorId, ThrashLimit,
};

/// The work that an adversary forced on a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forced {
    /// Ops run, first computations and replays.
    pub ops: u64,
    /// Nodes of each path from t0 (t0 not counted).
    pub paths: Vec<u64>,
}

/// Draws a graph of `nodes` nodes against a policy with a budget of `budget` bytes. Each node takes one byte, and so
/// does t0.
///
/// Of several paths without a resident node the adversary prolongs the shortest, and of equally short ones the first.
/// Ops beyond N^2 / (2B) then come from the paths that the policy keeps, not from the adversary's choice.
///
/// # Errors
/// [`Error::Budget`] for fewer than 3 bytes: t0, an op's input and its output.
pub fn run(policy: Policy, nodes: u32, budget: u32) -> Result<Forced, Error> {
    let config = drive::config(
        policy,
        Dealloc::Eager,
        Some(Bytes(u64::from(budget))),
        ThrashLimit::Never,
        0,
    );
    let mut graph = Graph {
        engine: Engine::new(config),
        paths: Vec::new(),
        path_of: Vec::new(),
    };
    let root = graph.engine.constant(Bytes(1), DeviceId(0))?;
    for node in 0..nodes {
        if node < budget {
            graph.begin_path(root)?;
        } else {
            graph.prolong()?;
        }
    }
    Ok(Forced {
        ops: graph.engine.clock() - 1,
        paths: graph.paths.iter().map(|path| path.nodes).collect(),
    })
}

struct Graph {
    engine: Engine,
    paths: Vec<Path>,
    /// For each op, the path of the one node that it makes.
    path_of: Vec<usize>,
}

struct Path {
    end: TensorId,
    nodes: u64,
    resident: u64,
}

impl Graph {
    fn begin_path(&mut self, root: TensorId) -> Result<(), Error> {
        self.paths.push(Path {
            end: root,
            nodes: 0,
            resident: 0,
        });
        self.add(self.paths.len() - 1)
    }

    /// Adds a node at the end of a path without a resident node.
    fn prolong(&mut self) -> Result<(), Error> {
        let evicted = |(_, path): &(usize, &Path)| path.resident == 0;
        let paths = self.paths.iter().enumerate().filter(evicted);
        let path = paths.min_by_key(|(_, path)| path.nodes);
        let none = Error::Protocol("more paths are resident than the budget holds");
        self.add(path.ok_or(none)?.0)
    }

    fn add(&mut self, path: usize) -> Result<(), Error> {
        let cost = Cost(1);
        let id = self.engine.begin_expecting(
            &OpSpec {
                inputs: &[self.paths[path].end],
                outputs: &[Output::Fresh {
                    bytes: Bytes(1),
                    device: DeviceId(0),
                }],
                workspace: Bytes(0),
                workspace_device: DeviceId(0),
                replay: Replay::Allowed,
            },
            cost,
        )?;
        for step in self.engine.steps() {
            match *step {
                // t0 has the first storage and is never evicted.
                Step::Evict(storage) => self.paths[self.path_of[storage.index() - 1]].resident -= 1,
                Step::Recompute { op, .. } => self.paths[self.path_of[op.index()]].resident += 1,
                Step::Move { .. } => {}
            }
        }
        self.engine.finish(id, &Finished { cost, bytes: None })?;
        self.path_of.push(path);
        let path = &mut self.paths[path];
        path.end = self.engine.outputs(id)[0];
        path.nodes += 1;
        path.resident += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_forced_to_the_bound_of_theorem_3_2() {
        for name in remat_core::names() {
            let policy: Policy = name.parse().unwrap();
            for (nodes, budget) in [(10, 3), (60, 4), (300, 10), (301, 25)] {
                let forced = run(policy, nodes, budget).unwrap();
                let (n, b) = (u64::from(nodes), u64::from(budget));
                assert_eq!(forced.paths.len() as u64, b);
                assert_eq!(forced.paths.iter().sum::<u64>(), n);
                assert!(forced.ops * 2 * b >= n * n, "{name}: {}", forced.ops);
                let whole: u64 = forced.paths.iter().map(|&l| l * (l + 1) / 2).sum();
                assert_eq!(forced.ops, whole, "{name}: each node recomputes its path");
            }
        }
    }

    #[test]
    fn three_bytes_are_the_least() {
        let refused = run(Policy::LRU, 10, 2);
        assert!(matches!(refused, Err(Error::Budget { .. })), "{refused:?}");
        assert_eq!(run(Policy::LRU, 0, 3).unwrap().ops, 0);
    }
}
