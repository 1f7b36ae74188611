//! What a planned sequence costs.

use crate::chain::model::chain::Chain;
use crate::chain::model::sequence::{Action, Op};

/// Makespan and peak of a sequence that a planner made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tally {
    pub(crate) makespan: f64,
    pub(crate) peak: u64,
}

/// Adds up a valid sequence, in one pass.
pub(crate) fn tally(chain: &Chain, ops: &[Op]) -> Tally {
    // Activations that are there by themselves, not as part of a saved set.
    let mut loose = vec![false; chain.len() + 1];
    loose[0] = true;
    let mut held = chain.activation(0) + chain.gradient(chain.len());
    let mut peak = held;
    let mut makespan = 0.0;
    for op in ops {
        let l = op.stage;
        let stage = chain.stage(l);
        let input = chain.activation(l - 1);
        let (made, gone, overhead) = match op.action {
            Action::ForwardCheckpoint => (chain.activation(l), 0, stage.forward_overhead_bytes),
            Action::ForwardNone => (chain.activation(l), input, stage.forward_overhead_bytes),
            Action::ForwardAll => (stage.saved_bytes, 0, stage.saving_overhead()),
            Action::ForwardSave => (stage.saved_bytes, input, stage.saving_overhead()),
            Action::Backward => {
                let consumed = match loose[l - 1] {
                    true => input,
                    false => 0,
                };
                held -= stage.released_bytes;
                let gone = chain.gradient(l) + stage.saved_bytes - stage.released_bytes + consumed;
                let made = chain.gradient(l - 1) + stage.parameter_gradient_bytes;
                (made, gone, stage.backward_overhead_bytes)
            }
        };
        match op.action {
            Action::ForwardCheckpoint => loose[l] = true,
            Action::ForwardNone => (loose[l - 1], loose[l]) = (false, true),
            Action::ForwardAll => {}
            Action::ForwardSave | Action::Backward => loose[l - 1] = false,
        }
        held += made;
        peak = peak.max(held + overhead);
        held -= gone;
        makespan += match op.action {
            Action::Backward => stage.backward_time,
            _ => stage.forward_time,
        };
    }
    Tally { makespan, peak }
}
