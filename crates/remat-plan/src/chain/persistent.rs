//! Persistent plans (theorem 4.8): what was kept is kept until its backward operation.
//!
//! A state is `(s, l)`: activation `s - 1` is kept, the backward operations of stages `l` down to `s` are to be done.

use super::model::Chain;
use super::recurrence::{apart, Choice, Recurrence, Round, State, Step, LANES};
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
        let forward = chain.gradient(l) + stage.forward_overhead_bytes;
        let backward = chain.gradient(s) + chain.gradient(s - 1) + stage.backward_overhead_bytes;
        let kept = sizes.activation(s - 1) + sizes.saved(s) - sizes.activation(s);
        Some(Choice {
            time: stage.forward_time + stage.backward_time,
            need: sizes.units(input + forward.max(backward)),
            first: (s < l).then(|| (self.state(s + 1, l), kept)),
            second: None,
            step: Step::All { s },
        })
    }

    /// `Fck^s` and on to where the next checkpoint is kept, by that place less `s + 1`.
    fn passes(&self, s: usize) -> Vec<Pass> {
        let chain = self.chain;
        let mut pass = Pass {
            time: 0.0,
            bytes: 0,
        };
        let next = |to: usize| {
            let stage = chain.stage(to - 1);
            let from = match to - 1 == s {
                true => 0,
                false => chain.activation(to - 2),
            };
            let here = from + chain.activation(to - 1) + stage.forward_overhead_bytes;
            pass.time += stage.forward_time;
            pass.bytes = pass.bytes.max(chain.activation(s - 1) + here);
            pass
        };
        (s + 1..=chain.len()).map(next).collect()
    }

    fn checkpoint(&self, s: usize, l: usize, to: usize, pass: &Pass) -> Choice {
        Choice {
            time: pass.time,
            need: self.sizes.units(pass.bytes + self.chain.gradient(l)),
            first: Some((self.state(to, l), self.sizes.activation(s - 1))),
            second: Some(self.state(s, to - 1)),
            step: Step::Checkpoint { s, to },
        }
    }
}

/// What forward operations up to a checkpoint take.
#[derive(Clone, Copy)]
struct Pass {
    time: f64,
    /// Without the gradient.
    bytes: u64,
}

impl Recurrence for Persistent<'_> {
    fn states(&self) -> usize {
        self.chain.len() * (self.chain.len() + 1) / 2
    }

    fn root(&self) -> State {
        self.state(1, self.chain.len())
    }

    fn in_order<E>(&self, mut visit: impl FnMut(State) -> Result<(), E>) -> Result<(), E> {
        let n = self.chain.len();
        for s in (1..=n).rev() {
            for l in s..=n {
                visit(self.state(s, l))?;
            }
        }
        Ok(())
    }

    fn choices(&self, state: State, mut visit: impl FnMut(Choice)) {
        let (s, l) = self.place(state);
        self.all(s, l).into_iter().for_each(&mut visit);
        for (to, pass) in (s + 1..=l).zip(&self.passes(s)) {
            visit(self.checkpoint(s, l, to, pass));
        }
    }

    /// States of one `s` and successive `l` are under way together: each row that they add, `(s, to - 1)`, is read once for all of
    /// them, and the others, `(to, l)`, lie side by side.
    fn rounds<E>(&self, mut visit: impl FnMut(Round) -> Result<(), E>) -> Result<(), E> {
        let n = self.chain.len();
        for s in (1..=n).rev() {
            let passes = self.passes(s);
            let offer = |lane, l, to: usize| {
                let choice = self.checkpoint(s, l, to, &passes[to - s - 1]);
                Round::Offer { lane, choice }
            };
            for begin in (s..=n).step_by(LANES) {
                let end = (begin + LANES).min(n + 1);
                for (lane, l) in (begin..end).enumerate() {
                    if let Some(choice) = self.all(s, l) {
                        visit(Round::Offer { lane, choice })?;
                    }
                }
                for to in apart(s + 1..begin + 1) {
                    for (lane, l) in (begin..end).enumerate() {
                        visit(offer(lane, l, to))?;
                    }
                }
                for (lane, l) in (begin..end).enumerate() {
                    for to in begin + 1..=l {
                        visit(offer(lane, l, to))?;
                    }
                    let state = self.state(s, l);
                    visit(Round::Done { lane, state })?;
                }
            }
        }
        Ok(())
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
            let mut offers = vec![0; LANES];
            let walked: Result<(), ()> = program.rounds(|round| {
                match round {
                    Round::Offer { lane, choice } => {
                        offers[lane] += 1;
                        assert!(choice.first.is_none_or(|(state, _)| done[state]));
                        assert!(choice.second.is_none_or(|state| done[state]));
                    }
                    Round::Done { lane, state } => {
                        let (s, l) = program.place(state);
                        assert_eq!(program.state(s, l), state);
                        assert!(!std::mem::replace(&mut done[state], true));
                        assert_eq!(std::mem::take(&mut offers[lane]), l - s + 1);
                    }
                }
                Ok(())
            });
            assert_eq!(walked, Ok(()));
            assert!(done.into_iter().all(|done| done));
        }
    }
}
