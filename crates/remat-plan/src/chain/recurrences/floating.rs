//! Weakly persistent plans (theorem 4.7), and beyond them plans that keep a stage's saved set without its input.
//!
//! A state is `(s, t, l)`: activation `s - 1` is kept, the backward operations of stages `l` down to `t` are to be
//! done, and nothing is kept afterwards, so that the kept activation may move on up to `t - 1`. The theorem chooses
//! the place `r` to move to, the next checkpoint and the stage to stop at in one step. Here these choices are steps
//! of one stage each: a state with a checkpoint has `l - t` choices instead of a cubic number.
//!
//! A *free* plan may also run `Fsave^q`: the saved set of stage `q` stays, its input goes and is computed again right
//! before `B^q`. A state of a free plan also says whether the saved set of `l` is there in the beginning, and whether
//! that of `t - 1` has to be there in the end.

use crate::chain::model::chain::Chain;
use crate::chain::model::sizes::Sizes;
use crate::chain::recurrences::recurrence::{Choice, Recurrence, Role, Splits, State, Step};
use std::ops::Range;

/// The condition under which a saved set may be kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Inputs {
    /// Only with its input (table 1).
    Kept,
    /// With or without its input.
    Free,
}

/// The recurrence of theorem 4.7, and that of free plans.
pub(crate) struct Floating<'a> {
    chain: &'a Chain,
    sizes: &'a Sizes,
    inputs: Inputs,
    /// By `s - 1`, time of forward operations from `s` on, by how many.
    passes: Vec<Vec<f32>>,
}

/// A state, taken apart.
#[derive(Clone, Copy)]
struct Place {
    s: usize,
    t: usize,
    l: usize,
    /// The saved set of `l` is there.
    saved: bool,
    /// The saved set of `t - 1` has to be there in the end.
    saving: bool,
}

impl<'a> Floating<'a> {
    pub(crate) fn new(chain: &'a Chain, sizes: &'a Sizes, inputs: Inputs) -> Self {
        Floating {
            chain,
            sizes,
            inputs,
            passes: (1..=chain.len()).map(|s| passes(chain, s)).collect(),
        }
    }

    /// Number of states of a chain of so many stages.
    pub(crate) fn count(stages: usize, inputs: Inputs) -> u128 {
        let n = stages as u128;
        n * (n + 1) * (n + 2) / 6 * Self::variants(inputs) as u128
    }

    fn variants(inputs: Inputs) -> usize {
        match inputs {
            Inputs::Kept => 1,
            Inputs::Free => 4,
        }
    }

    fn state(&self, place: Place) -> State {
        let Place { s, t, l, .. } = place;
        let triple = tetrahedron(l - 1) + triangle(t - 1) + s - 1;
        match self.inputs {
            Inputs::Kept => triple,
            Inputs::Free => 4 * triple + 2 * usize::from(place.saved) + usize::from(place.saving),
        }
    }

    /// Families of states that have the pair `s <= b` in common.
    fn family(&self, b: usize, s: usize, saved: bool, saving: bool) -> usize {
        let pair = triangle(b - 1) + s - 1;
        match self.inputs {
            Inputs::Kept => pair,
            Inputs::Free => 4 * pair + 2 * usize::from(saved) + usize::from(saving),
        }
    }

    /// Whether the saved set of the stage before a split is there when the second state begins.
    fn between(&self) -> &'static [bool] {
        match self.inputs {
            Inputs::Kept => &[false],
            Inputs::Free => &[false, true],
        }
    }

    /// Bytes while `F^s` runs, without what it makes.
    fn forward_bytes(&self, s: usize, l: usize, saved: bool) -> u64 {
        let chain = self.chain;
        let saved = if saved { chain.stage(l).saved_bytes } else { 0 };
        chain.beside(l) + saved + chain.activation(s - 1) + chain.stage(s).forward_overhead_bytes
    }

    /// Bytes while `F^s` runs and its saved set is kept.
    fn saving_bytes(&self, s: usize, l: usize, saved: bool) -> u64 {
        let stage = self.chain.stage(s);
        let held = self.forward_bytes(s, l, saved) - stage.forward_overhead_bytes;
        held + stage.saved_bytes + stage.saving_overhead()
    }

    /// Bytes while `B^s` runs.
    fn backward_bytes(&self, s: usize) -> u64 {
        let (taken, gone) = self.chain.backward_bytes(s);
        self.chain.activation(s - 1) + self.chain.stage(s).saved_bytes + taken - gone
    }

    /// Units of a saved set beside the activation in it.
    fn saved_units(&self, s: usize) -> i64 {
        self.sizes.saved(s) - self.sizes.activation(s)
    }

    /// The only stage that is left: `B^s`, and `Fall^s` before it unless its saved set is there.
    fn last(&self, here: Place) -> Choice {
        let Place { s, l, saved, .. } = here;
        let stage = self.chain.stage(s);
        let backward = self.backward_bytes(s);
        let (time, need, step) = if saved {
            (stage.backward_time, backward, Step::Last { s })
        } else {
            let need = backward.max(self.saving_bytes(s, l, saved));
            let time = stage.forward_time + stage.backward_time;
            (time, need, Step::All { s })
        };
        Choice {
            time,
            again: 0.0,
            need: self.sizes.units(need),
            first: None,
            second: None,
            step,
        }
    }

    /// `Fall^s`, the stages behind it, `B^s`.
    fn all(&self, here: Place) -> Choice {
        let Place { s, l, saved, .. } = here;
        let stage = self.chain.stage(s);
        let need = self.backward_bytes(s).max(self.saving_bytes(s, l, saved));
        let next = Place {
            s: s + 1,
            t: s + 1,
            ..here
        };
        let kept = self.sizes.activation(s - 1) + self.saved_units(s);
        Choice {
            time: stage.forward_time + stage.backward_time,
            again: 0.0,
            need: self.sizes.units(need),
            first: Some((self.state(next), kept)),
            second: None,
            step: Step::All { s },
        }
    }

    /// `Fsave^s`.
    fn save(&self, here: Place) -> Choice {
        let Place { s, l, saved, .. } = here;
        let next = Place {
            s: s + 1,
            saving: false,
            ..here
        };
        Choice {
            time: self.chain.stage(s).forward_time,
            again: 0.0,
            need: self.sizes.units(self.saving_bytes(s, l, saved)),
            first: Some((self.state(next), self.saved_units(s))),
            second: None,
            step: Step::Save { s },
        }
    }

    /// `Fnone^s`.
    fn move_on(&self, here: Place) -> Choice {
        let Place { s, l, saved, .. } = here;
        let bytes = self.forward_bytes(s, l, saved) + self.chain.activation(s);
        let next = Place { s: s + 1, ..here };
        Choice {
            time: self.chain.stage(s).forward_time,
            again: 0.0,
            need: self.sizes.units(bytes),
            first: Some((self.state(next), 0)),
            second: None,
            step: Step::Move { s },
        }
    }

    /// A state's triple, and its variant.
    fn variant(&self, state: State) -> (usize, usize) {
        let variants = Self::variants(self.inputs);
        (state / variants, state % variants)
    }

    /// The state of some splits, taken apart: their places go from `t + 1` to `l`.
    fn place_of(&self, splits: &Splits<'_>) -> Place {
        let (triple, variant) = self.variant(splits.state);
        let (t, l) = (splits.places.start - 1, splits.places.end - 1);
        Place {
            s: triple - tetrahedron(l - 1) - triangle(t - 1) + 1,
            t,
            l,
            saved: variant & 2 != 0,
            saving: variant & 1 != 0,
        }
    }

    fn place(&self, state: State) -> Place {
        let (mut rest, variant) = self.variant(state);
        let mut l = (6.0 * rest as f64).cbrt() as usize + 1;
        while tetrahedron(l - 1) > rest {
            l -= 1;
        }
        while tetrahedron(l) <= rest {
            l += 1;
        }
        rest -= tetrahedron(l - 1);
        let mut t = (2.0 * rest as f64).sqrt() as usize + 1;
        while triangle(t - 1) > rest {
            t -= 1;
        }
        while triangle(t) <= rest {
            t += 1;
        }
        Place {
            s: rest - triangle(t - 1) + 1,
            t,
            l,
            saved: variant & 2 != 0,
            saving: variant & 1 != 0,
        }
    }
}

/// Time of forward operations from `s` on, by how many.
fn passes(chain: &Chain, s: usize) -> Vec<f32> {
    let shortest = chain.shortest_forward_time();
    let mut time = 0.0;
    let ends = std::iter::once(0.0).chain(chain.stages()[s - 1..].iter().map(|stage| {
        time += stage.forward_time;
        time
    }));
    ends.map(|time| (time / shortest) as f32).collect()
}

/// Pairs `1 <= s <= t <= n`.
fn triangle(n: usize) -> usize {
    n * (n + 1) / 2
}

/// Triples `1 <= s <= t <= l <= n`.
fn tetrahedron(n: usize) -> usize {
    n * (n + 1) * (n + 2) / 6
}

impl Recurrence for Floating<'_> {
    fn states(&self) -> usize {
        tetrahedron(self.chain.len()) * Self::variants(self.inputs)
    }

    fn root(&self) -> State {
        self.state(Place {
            s: 1,
            t: 1,
            l: self.chain.len(),
            saved: false,
            saving: false,
        })
    }

    fn in_order<E>(&self, mut visit: impl FnMut(State) -> Result<(), E>) -> Result<(), E> {
        let ways: &[(bool, bool)] = match self.inputs {
            Inputs::Kept => &[(false, false)],
            // Saving a set leads on to states that do not.
            Inputs::Free => &[(false, false), (true, false), (false, true), (true, true)],
        };
        for l in 1..=self.chain.len() {
            for s in (1..=l).rev() {
                for t in s..=l {
                    for &(saved, saving) in ways {
                        visit(self.state(Place {
                            s,
                            t,
                            l,
                            saved,
                            saving,
                        }))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn singles(&self, state: State, mut visit: impl FnMut(Choice)) {
        let here = self.place(state);
        let Place { s, t, l, .. } = here;
        if here.saving && s == t {
            return; // The saved set of `t - 1` cannot be made from behind it.
        }
        if s == l {
            visit(self.last(here));
            return;
        }
        if s == t {
            visit(self.all(here));
        }
        if here.saving && s == t - 1 {
            visit(self.save(here));
        }
        if s + usize::from(here.saving) < t {
            visit(self.move_on(here));
        }
    }

    fn splits(&self, state: State, mut visit: impl FnMut(Splits<'_>)) {
        let here = self.place(state);
        let Place {
            s,
            t,
            l,
            saved,
            saving,
        } = here;
        if t == l || (saving && s == t) {
            return;
        }
        for variant in 0..self.between().len() {
            let between = self.between()[variant];
            visit(Splits {
                state,
                variant,
                places: t + 1..l + 1,
                firsts: self.family(l, s + 1, saved, between),
                less: self.sizes.activation(s - 1),
                seconds: self.family(t, s, between, saving),
                // A pass to stage `stop - 1`, or to the one before if that is saved.
                times: &self.passes[s - 1][t + 1 - s - usize::from(between)..][..l - t],
            });
        }
    }

    fn most_splits(&self) -> usize {
        self.chain.len()
    }

    fn kept(&self, state: State) -> i64 {
        self.sizes.activation(self.place(state).s - 1)
    }

    fn split(&self, splits: &Splits<'_>, stop: usize) -> Choice {
        let here = self.place_of(splits);
        let Place { s, l, saved, .. } = here;
        let between = self.between()[splits.variant];
        let next = Place {
            s: s + 1,
            t: stop,
            saving: between,
            ..here
        };
        let before = Place {
            l: stop - 1,
            saved: between,
            ..here
        };
        Choice {
            time: self.chain.stage(s).forward_time,
            again: splits.times[stop - splits.places.start],
            need: self
                .sizes
                .units(self.forward_bytes(s, l, saved) + self.chain.activation(s)),
            first: Some((self.state(next), splits.less)),
            second: Some(self.state(before)),
            step: Step::Checkpoint { s, to: s + 1 },
        }
    }

    /// First states of a family share `s` and `l` and are placed by `t`; second states share `s` and `t` and are
    /// placed by `l + 1`.
    fn families(&self, role: Role) -> Vec<Range<usize>> {
        let n = self.chain.len();
        let pairs = (1..=n).flat_map(|b| (1..=b).map(move |a| (a, b)));
        let family = |(a, b)| match role {
            Role::First => a..b + 1,
            Role::Second => b + 1..n + 2,
        };
        let variants = Self::variants(self.inputs);
        pairs
            .flat_map(|pair| std::iter::repeat_n(family(pair), variants))
            .collect()
    }

    fn member(&self, role: Role, state: State) -> (usize, usize) {
        let Place {
            s,
            t,
            l,
            saved,
            saving,
        } = self.place(state);
        match role {
            Role::First => (self.family(l, s, saved, saving), t),
            Role::Second => (self.family(t, s, saved, saving), l + 1),
        }
    }
}
