//! Persistent plans (theorem 4.8): what was kept is kept until its backward operation.
//!
//! A state is `(s, l)`: activation `s - 1` is kept, the backward operations of stages `l` down to `s` are to be done.

use super::model::Chain;
use super::recurrence::{Choice, Recurrence, State, Step};
use super::sizes::Sizes;

/// When the saved set of a stage may be kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Saving {
    /// At any time.
    Ahead,
    /// Right before the stage's backward operation only, as in the model of automatic differentiation (Revolve).
    JustBefore,
}

/// The recurrence of theorem 4.8.
pub(crate) struct Persistent<'a> {
    chain: &'a Chain,
    sizes: &'a Sizes,
    saving: Saving,
}

impl<'a> Persistent<'a> {
    pub(crate) fn new(chain: &'a Chain, sizes: &'a Sizes, saving: Saving) -> Self {
        Persistent {
            chain,
            sizes,
            saving,
        }
    }

    /// Number of states of a chain of so many stages.
    pub(crate) fn count(stages: usize) -> u128 {
        stages as u128 * (stages as u128 + 1) / 2
    }

    /// Rows of one `l` lie side by side.
    fn state(&self, s: usize, l: usize) -> State {
        l * (l - 1) / 2 + s - 1
    }

    fn place(&self, state: State) -> (usize, usize) {
        let mut l = ((2.0 * state as f64 + 0.25).sqrt() + 0.5) as usize;
        while l * (l - 1) / 2 > state {
            l -= 1;
        }
        while l * (l + 1) / 2 <= state {
            l += 1;
        }
        (state - l * (l - 1) / 2 + 1, l)
    }
}

impl Recurrence for Persistent<'_> {
    fn states(&self) -> usize {
        self.chain.len() * (self.chain.len() + 1) / 2
    }

    fn root(&self) -> State {
        self.state(1, self.chain.len())
    }

    fn in_order<E>(&self, mut visit: impl FnMut(State) -> Result<(), E>) -> Result<(), E> {
        for l in 1..=self.chain.len() {
            for s in (1..=l).rev() {
                visit(self.state(s, l))?;
            }
        }
        Ok(())
    }

    fn choices(&self, state: State, mut visit: impl FnMut(Choice)) {
        let (s, l) = self.place(state);
        let (chain, sizes) = (self.chain, self.sizes);
        let stage = chain.stage(s);
        let input = chain.activation(s - 1);
        let forward = input + chain.gradient(l) + stage.saved_bytes + stage.forward_overhead_bytes;
        let backward = input
            + chain.gradient(s)
            + chain.gradient(s - 1)
            + stage.saved_bytes
            + stage.backward_overhead_bytes;
        if s == l || self.saving == Saving::Ahead {
            let kept = sizes.activation(s - 1) + sizes.saved(s) - sizes.activation(s);
            visit(Choice {
                time: stage.forward_time + stage.backward_time,
                need: sizes.units(forward.max(backward)),
                first: (s < l).then(|| (self.state(s + 1, l), kept)),
                second: None,
                step: Step::All { s },
            });
        }
        let mut time = 0.0;
        let mut need = 0;
        for to in s + 1..=l {
            let passed = chain.stage(to - 1);
            let from = match to - 1 == s {
                true => 0,
                false => chain.activation(to - 2),
            };
            let here = input
                + chain.gradient(l)
                + from
                + chain.activation(to - 1)
                + passed.forward_overhead_bytes;
            time += passed.forward_time;
            need = here.max(need);
            visit(Choice {
                time,
                need: sizes.units(need),
                first: Some((self.state(to, l), sizes.activation(s - 1))),
                second: Some(self.state(s, to - 1)),
                step: Step::Checkpoint { s, to },
            });
        }
    }
}
