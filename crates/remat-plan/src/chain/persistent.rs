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
        let forward = chain.beside(l) + stage.saving_overhead();
        let (backward, gone) = chain.backward_bytes(s);
        let kept = sizes.activation(s - 1) + sizes.saved(s) - sizes.activation(s);
        Some(Choice {
            time: stage.forward_time + stage.backward_time,
            need: sizes.units((input + forward).max(input + backward - gone)),
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
            need: self.sizes.units(pass.bytes + self.chain.beside(l)),
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

    /// A tile of states is under way together, successive `s` by successive `l`: each row that they add is read once for a side of the
    /// tile. For stages between those of the tile, rows of the tile itself are added, state by state.
    fn rounds<E>(&self, mut visit: impl FnMut(Round) -> Result<(), E>) -> Result<(), E> {
        let n = self.chain.len();
        let mut high = n;
        while high > 0 {
            // Stages `high` down to `low`.
            let low = high.saturating_sub(TILE.0 - 1).max(1);
            let passes: Vec<Vec<Pass>> = (low..=high).map(|s| self.passes(s)).collect();
            let offer = |lane, s: usize, l, to: usize| {
                let choice = self.checkpoint(s, l, to, &passes[s - low][to - s - 1]);
                Round::Offer { lane, choice }
            };
            for s in (low..=high).rev() {
                for l in s..=high {
                    self.finish(0, (s, l), s + 1..l + 1, offer, &mut visit)?;
                }
            }
            for begin in (high + 1..=n).step_by(TILE.1) {
                let end = (begin + TILE.1).min(n + 1);
                let lane = |s, l| (s - low) * TILE.1 + l - begin;
                for to in apart(high + 1..begin + 1) {
                    for s in low..=high {
                        for l in begin..end {
                            visit(offer(lane(s, l), s, l, to))?;
                        }
                    }
                }
                for s in (low..=high).rev() {
                    for l in begin..end {
                        let rest = (s + 1..high + 1).chain(begin + 1..l + 1);
                        self.finish(lane(s, l), (s, l), rest, offer, &mut visit)?;
                    }
                }
            }
            high = low - 1;
        }
        Ok(())
    }
}

impl Persistent<'_> {
    /// The choices of a state that are left, the next checkpoint at these places.
    fn finish<E>(
        &self,
        lane: usize,
        (s, l): (usize, usize),
        places: impl Iterator<Item = usize>,
        offer: impl Fn(usize, usize, usize, usize) -> Round,
        visit: &mut impl FnMut(Round) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(choice) = self.all(s, l) {
            visit(Round::Offer { lane, choice })?;
        }
        for to in places {
            visit(offer(lane, s, l, to))?;
        }
        let state = self.state(s, l);
        visit(Round::Done { lane, state })
    }
}

/// Sides of a tile of states, by `s` and by `l`.
const TILE: (usize, usize) = (8, 8);
const _: () = assert!(TILE.0 * TILE.1 <= LANES);

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
