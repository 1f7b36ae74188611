//! The linear network of DTR theorem 3.1 (appendix A): N layers in a row, forward and backward, every tensor of one
//! byte and every op of one nanosecond.
//!
//! ```text
//! t1 = f1();  t2 = f2(t1);  ...  tN = fN(tN-1);
//! gN = bN(tN-1);  gN-1 = bN-1(tN-2, gN);  ...  g2 = b2(t1, g3);  g1 = b1(g2);
//! ```
//!
//! Each tensor is released after its last use. Tensors are made in the order above, so the engine's ids of t1 to tN are
//! 0 to N-1, and those of gN to g1 are N to 2N-1. The last gradient is the step's result, and is pinned at the end.
//!
//! ```
//! use remat_core::{Dealloc, Policy};
//! use remat_sim::{linear, Budget, Setting};
//!
//! let (program, base) = (linear::program(400), linear::base(400));
//! let setting = Setting {
//!     policy: Policy::E_STAR.into(),
//!     dealloc: Dealloc::Banish,
//!     budget: Budget::Bytes(linear::root_budget(400)),
//!     thrash_limit: 1e3,
//!     seed: 0,
//!     ..Setting::default()
//! };
//! let outcome = program.run(&base, &setting)?;
//! assert!(outcome.clock - 1 < 4 * 400); // without a limit: 2 * 400 ops
//! # Ok::<(), remat_sim::Unsound>(())
//! ```

use crate::drive::{self, Seen, Telling, Unsound};
use crate::{Base, Program};
use remat_core::{Bytes, Cost, Dealloc, Policy, Step, ThrashLimit};
use remat_trace::{Event, TraceOutput, TraceOutputKind};
use std::convert::Infallible;

/// `2 * ceil(sqrt(layers))` bytes, the budget of the theorem.
///
/// ```
/// use remat_core::Bytes;
/// use remat_sim::linear::root_budget;
///
/// assert_eq!([200, 225, 1_000_000].map(root_budget), [30, 30, 2000].map(Bytes));
/// ```
pub fn root_budget(layers: u32) -> Bytes {
    Bytes(2 * ceil_root(u64::from(layers)))
}

/// The smallest whole number whose square is not below `value`.
pub(crate) fn ceil_root(value: u64) -> u64 {
    let square = |root: u64| u128::from(root) * u128::from(root);
    let value = u128::from(value);
    // A double is off by one at most.
    let mut root = (value as f64).sqrt() as u64;
    while square(root) < value {
        root += 1;
    }
    while root > 0 && square(root - 1) >= value {
        root -= 1;
    }
    root
}

/// The events of one step of a network with `layers` layers; fewer than 2^31, so that tensors can be numbered.
pub fn events(layers: u32) -> impl Iterator<Item = Event> {
    let n = u64::from(layers);
    let forward = (1..=n).map(move |layer| op((layer > 1).then_some(layer - 1), None, layer));
    let backward = (1..=n).rev().flat_map(move |layer| {
        let (below, above) = (
            (layer > 1).then_some(layer - 1),
            (layer < n).then_some(gradient(n, layer + 1)),
        );
        let done = [below, above].into_iter().flatten();
        std::iter::once(op(below, above, gradient(n, layer)))
            .chain(done.map(|tensor| Event::Release { tensor }))
    });
    let output = Event::Release { tensor: n };
    let result = Event::Pin {
        tensor: gradient(n, 1),
    };
    let some = move |event| (n > 0).then_some(event);
    forward
        .chain(some(output))
        .chain(backward)
        .chain(some(result))
}

/// The trace's id of a layer's gradient.
fn gradient(layers: u64, layer: u64) -> u64 {
    2 * layers + 1 - layer
}

fn op(first: Option<u64>, second: Option<u64>, output: u64) -> Event {
    Event::Op {
        name: "op".into(),
        inputs: first.into_iter().chain(second).collect(),
        outputs: vec![TraceOutput {
            tensor: output,
            kind: TraceOutputKind::Fresh {
                bytes: 1,
                device: 0,
            },
        }],
        workspace: 0,
        workspace_device: 0,
        cost: 1,
        replay: true,
    }
}

/// One step of a network with `layers` layers, ready to be replayed.
pub fn program(layers: u32) -> Program {
    match Program::read(events(layers).map(Ok::<_, Infallible>)) {
        Ok(program) => program,
        Err(never) => match never {},
    }
}

/// The run of that step without a limit, known without simulating it: N tensors at once, 2N ops.
pub fn base(layers: u32) -> Base {
    let n = u64::from(layers);
    Base {
        memory: Bytes(n),
        cost: Cost(2 * n),
        constants: Bytes(0),
        bottleneck: Bytes(n.min(3)),
    }
}

/// The contents of memory while the step runs inside a budget (DTR figure 5; figure 4 of the preprint).
#[derive(Clone, Debug)]
pub struct Picture {
    /// Layers.
    pub layers: u32,
    /// One column after every op performed, replays included. A column has an entry a layer, the first layer first.
    pub columns: Vec<Vec<Held>>,
    /// The column of the first gradient.
    pub backward: usize,
}

/// The tensor of a layer that is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Neither its result nor its gradient.
    Nothing,
    /// Its result.
    Result,
    /// Its gradient.
    Gradient,
}

impl Picture {
    /// Runs the step under banishing; `None` if the budget cannot be met.
    ///
    /// # Errors
    /// [`Unsound`] if the engine finds the events contradictory, which would be a fault of this crate.
    pub fn take(layers: u32, budget: Bytes, policy: Policy) -> Result<Option<Picture>, Unsound> {
        let config = drive::config(policy, Dealloc::Banish, Some(budget), ThrashLimit::Never, 0);
        let mut picture = Picture {
            layers,
            columns: Vec::new(),
            backward: 0,
        };
        let mut now = vec![Held::Nothing; layers as usize];
        let (_, stopped) = drive::watched(
            program(layers).recorded(),
            config,
            Telling::default(),
            |_, seen| match seen {
                Seen::Steps(steps) => steps.iter().for_each(|&step| picture.step(step, &mut now)),
                Seen::Ran(op) => picture.made(op.index(), &mut now),
            },
        )?;
        Ok(stopped.is_none().then_some(picture))
    }

    fn step(&mut self, step: Step, now: &mut [Held]) {
        match step {
            Step::Evict(storage) => {
                let (row, held) = self.place(storage.index());
                if now.get(row) == Some(&held) {
                    now[row] = Held::Nothing;
                }
            }
            Step::Recompute { op, .. } => self.made(op.index(), now),
            Step::Move { .. } => {}
        }
    }

    fn made(&mut self, op: usize, now: &mut [Held]) {
        let (row, held) = self.place(op);
        if op == self.layers as usize {
            self.backward = self.columns.len();
        }
        if let Some(row) = now.get_mut(row) {
            *row = held;
        }
        self.columns.push(now.to_vec());
    }

    /// The layer of an op or storage by its number. Both are numbered alike: results first to last, gradients last to
    /// first.
    fn place(&self, number: usize) -> (usize, Held) {
        let layers = self.layers as usize;
        if number < layers {
            (number, Held::Result)
        } else {
            ((2 * layers).saturating_sub(number + 1), Held::Gradient)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Budget, Outcome, Setting, Status};

    fn run(layers: u32, budget: Bytes, policy: Policy) -> Outcome {
        let setting = Setting {
            policy: policy.into(),
            dealloc: Dealloc::Banish,
            budget: Budget::Bytes(budget),
            thrash_limit: 1e6,
            seed: 0,
            ..Setting::default()
        };
        program(layers).run(&base(layers), &setting).unwrap()
    }

    #[test]
    fn roots_are_rounded_up() {
        for root in [1u64, 2, 3, 1000, 94_906_267, u64::from(u32::MAX)] {
            let square = root * root;
            let around = [square - 1, square, square + 1].map(ceil_root);
            let below = if root == 1 { 0 } else { root };
            assert_eq!(around, [below, root, root + 1]);
        }
    }

    #[test]
    fn the_base_is_what_a_run_without_a_limit_gives() {
        for layers in [0, 1, 2, 3, 7, 100] {
            assert_eq!(program(layers).base().unwrap(), base(layers), "{layers}");
        }
    }

    #[test]
    fn theorem_3_1_ops_stay_linear() {
        for layers in [16, 100, 333, 1000, 4096, 10_000] {
            let outcome = run(layers, root_budget(layers), Policy::E_STAR);
            assert_eq!(outcome.status, Status::Ok);
            assert!(outcome.peak <= root_budget(layers));
            let (ops, n) = (outcome.clock - 1, u64::from(layers));
            assert!(ops <= 4 * n, "{ops} ops for {layers} layers");
        }
    }

    #[test]
    fn forward_needs_no_replay_and_two_bytes() {
        let budget = Bytes(3);
        let picture = Picture::take(50, budget, Policy::E_STAR).unwrap().unwrap();
        // All that comes before the first gradient is the forward pass and the replay of t49.
        assert!(picture.backward >= 50);
        let held = |column: &Vec<Held>| column.iter().filter(|&&h| h != Held::Nothing).count();
        assert!(picture.columns.iter().all(|column| held(column) <= 3));
    }

    #[test]
    fn the_picture_shows_every_op_and_no_more_than_the_budget() {
        let budget = root_budget(200);
        let picture = Picture::take(200, budget, Policy::E_STAR).unwrap().unwrap();
        let outcome = run(200, budget, Policy::E_STAR);
        assert_eq!(picture.columns.len() as u64, outcome.clock - 1);
        let held = |column: &[Held]| column.iter().filter(|&&h| h != Held::Nothing).count() as u64;
        let most = picture.columns.iter().map(|column| held(column)).max();
        assert!(most <= Some(budget.0), "{most:?}");
        let last = &picture.columns[picture.columns.len() - 1];
        assert_eq!(last[0], Held::Gradient);
        assert_eq!(picture.columns[199][198], Held::Result);
        assert_eq!(picture.columns[picture.backward][199], Held::Gradient);
    }

    #[test]
    fn a_budget_that_cannot_be_met_has_no_picture() {
        assert!(
            Picture::take(10, Bytes(1), Policy::E_STAR)
                .unwrap()
                .is_none()
        );
    }
}
