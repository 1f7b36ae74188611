//! Persistent plans (theorem 4.8): what was kept is kept until its backward operation.
//!
//! A state is `(s, l)`: activation `s - 1` is kept, the backward operations of stages `l` down to `s` are to be done.

use crate::chain::model::chain::Chain;
use crate::chain::model::sizes::Sizes;
use crate::chain::recurrences::recurrence::{Choice, Recurrence, Role, Splits, State, Step};
use std::ops::Range;

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
    /// By `s - 1`.
    passes: Vec<Passes>,
}

/// `Fck^s` and on to where the next checkpoint is kept, by that place less `s + 1`.
#[derive(Default)]
struct Passes {
    times: Vec<f64>,
    again: Vec<f32>,
    /// Highest memory, without the gradient.
    bytes: Vec<u64>,
}

impl<'a> Persistent<'a> {
    pub(crate) fn new(chain: &'a Chain, sizes: &'a Sizes, saving: Saving) -> Self {
        let shortest = chain.shortest_forward_time();
        Persistent {
            chain,
            sizes,
            saving,
            passes: (1..=chain.len())
                .map(|s| Passes::new(chain, s, shortest))
                .collect(),
        }
    }

    /// Number of states of a chain of so many stages.
    pub(crate) fn count(stages: usize) -> u128 {
        stages as u128 * (stages as u128 + 1) / 2
    }

    /// Rows of one `s` lie side by side.
    fn state(&self, s: usize, l: usize) -> State {
        self.first(s) + l - s
    }

    /// The state `(s, s)`.
    fn first(&self, s: usize) -> State {
        let before = s - 1;
        before * self.chain.len() - before * before.saturating_sub(1) / 2
    }

    fn place(&self, state: State) -> (usize, usize) {
        let (mut low, mut high) = (1, self.chain.len());
        while low < high {
            let s = (low + high).div_ceil(2);
            match self.first(s) <= state {
                true => low = s,
                false => high = s - 1,
            }
        }
        (low, low + state - self.first(low))
    }

    /// `Fall^s`, what is behind, `B^s`; if the strategy has it.
    fn all(&self, s: usize, l: usize) -> Option<Choice> {
        if s < l && self.saving == Saving::JustBefore {
            return None;
        }
        let (chain, sizes) = (self.chain, self.sizes);
        let stage = chain.stage(s);
        let input = chain.activation(s - 1) + stage.saved_bytes;
        let forward = chain.beside(l) + stage.saving_overhead();
        let (backward, gone) = chain.backward_bytes(s);
        let kept = sizes.activation(s - 1) + sizes.saved(s) - sizes.activation(s);
        Some(Choice {
            time: stage.forward_time + stage.backward_time,
            again: 0.0,
            need: sizes.units((input + forward).max(input + backward - gone)),
            first: (s < l).then(|| (self.state(s + 1, l), kept)),
            second: None,
            step: Step::All { s },
        })
    }
}

impl Passes {
    fn new(chain: &Chain, s: usize, shortest: f64) -> Passes {
        let mut passes = Passes::default();
        let (mut time, mut bytes) = (0.0, 0);
        for l in s..chain.len() {
            let stage = chain.stage(l);
            let from = if l == s { 0 } else { chain.activation(l - 1) };
            let here = from + chain.activation(l) + stage.forward_overhead_bytes;
            time += stage.forward_time;
            bytes = bytes.max(chain.activation(s - 1) + here);
            passes.times.push(time);
            passes.again.push((time / shortest) as f32);
            passes.bytes.push(bytes);
        }
        passes
    }
}

/// So many successive `s` go along `l` side by side: what is read for one is there for the others.
const ABREAST: usize = 16;

impl Recurrence for Persistent<'_> {
    fn states(&self) -> usize {
        self.chain.len() * (self.chain.len() + 1) / 2
    }

    fn root(&self) -> State {
        self.state(1, self.chain.len())
    }

    fn in_order<E>(&self, mut visit: impl FnMut(State) -> Result<(), E>) -> Result<(), E> {
        let n = self.chain.len();
        for high in (1..=n).rev().step_by(ABREAST) {
            let low = high.saturating_sub(ABREAST - 1).max(1);
            for l in low..=n {
                for s in (low..=high.min(l)).rev() {
                    visit(self.state(s, l))?;
                }
            }
        }
        Ok(())
    }

    fn singles(&self, state: State, visit: impl FnMut(Choice)) {
        let (s, l) = self.place(state);
        self.all(s, l).into_iter().for_each(visit);
    }

    fn splits(&self, state: State, mut visit: impl FnMut(Splits<'_>)) {
        let (s, l) = self.place(state);
        visit(Splits {
            state,
            variant: 0,
            places: s + 1..l + 1,
            firsts: l - 1,
            less: self.sizes.activation(s - 1),
            seconds: s - 1,
            times: &self.passes[s - 1].again[..l - s],
        });
    }

    fn most_splits(&self) -> usize {
        self.chain.len()
    }

    fn kept(&self, state: State) -> i64 {
        self.sizes.activation(self.place(state).0 - 1)
    }

    fn split(&self, splits: &Splits<'_>, to: usize) -> Choice {
        let (s, l) = (splits.seconds + 1, splits.firsts + 1);
        let bytes = self.passes[s - 1].bytes[to - s - 1] + self.chain.beside(l);
        Choice {
            time: self.passes[s - 1].times[to - s - 1],
            again: splits.times[to - s - 1],
            need: self.sizes.units(bytes),
            first: Some((self.state(to, l), splits.less)),
            second: Some(self.state(s, to - 1)),
            step: Step::Checkpoint { s, to },
        }
    }

    /// First states of a family have `l` in common and are placed by `s`; second ones have `s` in common and are placed by `l + 1`.
    fn families(&self, role: Role) -> Vec<Range<usize>> {
        let n = self.chain.len();
        let family = |at| match role {
            Role::First => 1..at + 1,
            Role::Second => at + 1..n + 2,
        };
        (1..=n).map(family).collect()
    }

    fn member(&self, role: Role, state: State) -> (usize, usize) {
        let (s, l) = self.place(state);
        match role {
            Role::First => (l - 1, s),
            Role::Second => (s - 1, l + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_a_place_of_its_own_and_comes_after_what_it_leads_to() {
        for stages in 1..20 {
            let json = format!(
                r#"{{"input_bytes": 1, "stages": [{}]}}"#,
                vec![r#"{"forward_time": 1, "backward_time": 1, "activation_bytes": 1, "saved_bytes": 1}"#; stages].join(",")
            );
            let chain: Chain = json.parse().unwrap();
            let sizes = Sizes::new(&chain, 1);
            let program = Persistent::new(&chain, &sizes, Saving::Ahead);
            let mut done = vec![false; program.states()];
            let walked: Result<(), ()> = program.in_order(|state| {
                let (s, l) = program.place(state);
                assert_eq!(program.state(s, l), state);
                let mut choices = 0;
                program.choices(state, |choice| {
                    choices += 1;
                    assert!(choice.first.is_none_or(|(state, _)| done[state]));
                    assert!(choice.second.is_none_or(|state| done[state]));
                });
                assert_eq!(choices, l - s + 1);
                assert!(!std::mem::replace(&mut done[state], true));
                Ok(())
            });
            assert_eq!(walked, Ok(()));
            assert!(done.into_iter().all(|done| done));
        }
    }
}
