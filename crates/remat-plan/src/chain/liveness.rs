//! Sequences as a framework runs them that differentiates by itself, such as PyTorch's autograd: an activation is
//! dropped once nothing reads it any more (liveness).
//!
//! Definition 3.4 of the paper keeps an activation until an operation of table 1 consumes it, and has the gradient of
//! the last one there from the start. A run does not: after each forward operation it drops the activations that no
//! later operation reads before they are made again, and the first gradient comes with the first backward operation.
//! It never takes more than definition 3.4 says. The chain's input is the caller's, and stays. The saved set of a
//! stage holds the stage's input.

use crate::chain::model::chain::Chain;
use crate::chain::model::error::Fault;
use crate::chain::model::sequence::{Action, Op};
use std::collections::BTreeSet;

/// For each operation the activations that a later one reads before they are made again.
///
/// Backward operations read no activation: the saved set of their stage holds it.
///
/// ```
/// use remat_plan::chain::{needed_later, Action::*, Op};
///
/// let ops = [(ForwardCheckpoint, 1), (ForwardAll, 2), (Backward, 2), (ForwardAll, 1), (Backward, 1)];
/// let ops = ops.map(|(action, stage)| Op { action, stage });
/// let needed: Vec<Vec<usize>> = needed_later(&ops).into_iter().map(Vec::from_iter).collect();
/// assert_eq!(needed, [vec![0, 1], vec![0], vec![0], vec![], vec![]]);
/// ```
pub fn needed_later(ops: &[Op]) -> Vec<BTreeSet<usize>> {
    let mut needed = BTreeSet::new();
    let mut before: Vec<BTreeSet<usize>> = Vec::with_capacity(ops.len());
    for op in ops.iter().rev() {
        before.push(needed.clone());
        if op.action != Action::Backward {
            needed.remove(&op.stage);
            needed.insert(op.stage.saturating_sub(1));
        }
    }
    before.reverse();
    before
}

/// The most bytes of activations, saved sets and gradients at once when a framework runs the sequence.
///
/// The sequence is refused unless a framework can run it: first every forward operation in order, the loss (the last
/// stage) saved; then every backward operation once, the last stage first, with forward operations in between; none
/// reads what was given up before. `Fsave` is refused, as a framework's saved sets hold their inputs. Takes time `O(k
/// n)` for `k` operations on `n` stages.
pub fn peak_of_run(chain: &Chain, ops: &[Op]) -> Result<u64, Fault> {
    check_order(chain.len(), ops)?;
    let mut memory = Memory::new(chain);
    for (index, (&op, later)) in ops.iter().zip(needed_later(ops)).enumerate() {
        let performed = match op.action {
            Action::Backward => memory.backward(op.stage),
            _ => memory.forward(op, &later),
        };
        performed.map_err(|reason| fault(index, op, reason))?;
    }
    Ok(memory.peak)
}

fn fault(index: usize, op: Op, reason: String) -> Fault {
    Fault {
        position: index + 1,
        op: Some(op),
        reason,
    }
}

/// The order in which a framework calls stages and walks back through them.
fn check_order(stages: usize, ops: &[Op]) -> Result<(), Fault> {
    let mut backward = (1..=stages).rev();
    for (index, &op) in ops.iter().enumerate() {
        let refuse = |reason: String| Err(fault(index, op, reason));
        if !(1..=stages).contains(&op.stage) || op.action == Action::ForwardSave {
            return refuse(format!("no operation on a chain of {stages} stages"));
        }
        if index < stages && (op.stage != index + 1 || op.action == Action::Backward) {
            return refuse("a run begins with every stage's forward operation in order".into());
        }
        if index + 1 == stages && op.action != Action::ForwardAll {
            return refuse("the loss must be run once, saving all".into());
        }
        if op.action == Action::Backward && backward.next() != Some(op.stage) {
            return refuse("every stage has one backward operation, last stage first".into());
        }
    }
    match backward.next() {
        None if ops.len() >= stages => Ok(()),
        missing => Err(Fault {
            position: ops.len() + 1,
            op: None,
            reason: match missing {
                Some(stage) if ops.len() >= stages => format!("B{stage} is missing"),
                _ => "a run begins with every stage's forward operation in order".into(),
            },
        }),
    }
}

/// Values of a run that are in memory.
struct Memory<'a> {
    chain: &'a Chain,
    /// Activations that a later operation reads, the chain's input at 0.
    live: Vec<bool>,
    /// Activations that no operation gave up; those of saved sets are not among them.
    kept: Vec<bool>,
    /// Saved sets by stage; nothing at 0 and behind the last.
    saved: Vec<bool>,
    /// Bytes of the gradient that the last backward operation made.
    gradient: u64,
    /// Bytes of the gradients of parameters.
    parameters: u64,
    peak: u64,
}

impl<'a> Memory<'a> {
    fn new(chain: &'a Chain) -> Memory<'a> {
        let mut live = vec![false; chain.len() + 1];
        live[0] = true;
        Memory {
            chain,
            kept: live.clone(),
            live,
            saved: vec![false; chain.len() + 2],
            gradient: 0,
            parameters: 0,
            peak: chain.activation(0),
        }
    }

    /// Bytes of all values but gradients of activations. An activation that is part of a saved set counts there.
    fn held(&self) -> u64 {
        let stages = 1..=self.chain.len();
        let sets = stages.filter(|&l| self.saved[l]);
        let sets: u64 = sets.map(|l| self.chain.stage(l).saved_bytes).sum();
        let loose =
            (0..self.live.len()).filter(|&l| !self.saved[l] && (self.live[l] || self.saved[l + 1]));
        let loose: u64 = loose.map(|l| self.chain.activation(l)).sum();
        self.parameters + sets + loose
    }

    fn forward(&mut self, op: Op, later: &BTreeSet<usize>) -> Result<(), String> {
        let (l, stage) = (op.stage, self.chain.stage(op.stage));
        if !self.kept[l - 1] && !self.saved[l - 1] {
            return Err(format!("activation {} is not there", l - 1));
        }
        let held = self.held() + self.gradient;
        if op.action == Action::ForwardNone {
            self.kept[l - 1] = false;
        }
        self.kept[l] = op.action != Action::ForwardAll;
        let made = if op.action == Action::ForwardAll {
            self.saved[l] = true;
            stage.saved_bytes + stage.saving_overhead()
        } else {
            self.chain.activation(l) + stage.forward_overhead_bytes
        };
        self.peak = self.peak.max(held + made);
        self.live[l] = true;
        for (activation, live) in self.live.iter_mut().enumerate().skip(1) {
            *live &= later.contains(&activation);
        }
        Ok(())
    }

    fn backward(&mut self, l: usize) -> Result<(), String> {
        if !self.saved[l] {
            return Err(format!("the saved set of stage {l} is not there"));
        }
        let stage = self.chain.stage(l);
        let made = self.chain.gradient(l - 1);
        let both = self.gradient + made + stage.backward_overhead_bytes;
        let running = stage
            .backward_bytes
            .map_or(both, |bytes| bytes.max(self.gradient).max(made));
        let held = self.held() + stage.parameter_gradient_bytes - stage.released_bytes;
        self.peak = self.peak.max(held + running);
        self.parameters += stage.parameter_gradient_bytes;
        self.saved[l] = false;
        self.gradient = made;
        Ok(())
    }
}
