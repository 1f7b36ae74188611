//! Lower bounds on times, laid out such that the bounds of all splits of a state are side by side.
//!
//! Times never rise with memory, so that the last time of a stretch of slots is a lower bound for the whole stretch.

use crate::chain::recurrences::recurrence::{Recurrence, Role, Splits, State};
use std::ops::Range;

/// Slots of a stretch.
pub(crate) const STRETCH: usize = 16;

/// For each family, stretch and place, in this order, the last time of the stretch.
struct Bounds {
    role: Role,
    stretches: usize,
    /// Places of the members of each family, and where it begins among `lasts`.
    families: Vec<(Range<usize>, usize)>,
    lasts: Vec<f32>,
}

impl Bounds {
    fn new(recurrence: &impl Recurrence, role: Role, stretches: usize) -> Bounds {
        let mut end = 0;
        let mut begin = |places: Range<usize>| {
            let begin = end;
            end += places.len() * stretches;
            (places, begin)
        };
        let families = recurrence.families(role).into_iter();
        Bounds {
            families: families.map(&mut begin).collect(),
            role,
            stretches,
            lasts: vec![f32::INFINITY; end],
        }
    }

    /// Records the last times of all stretches of a state.
    fn note(
        &mut self,
        recurrence: &impl Recurrence,
        state: State,
        lasts: impl Iterator<Item = f32>,
    ) {
        let (family, place) = recurrence.member(self.role, state);
        let (places, begin) = &self.families[family];
        let here = self.lasts[begin + place - places.start..].iter_mut();
        let here = here.step_by(places.len()).take(self.stretches);
        here.zip(lasts).for_each(|(here, last)| *here = last);
    }

    /// The last times of a stretch of members of a family.
    fn of(&self, family: usize, stretch: usize, members: &Range<usize>) -> &[f32] {
        let (places, begin) = &self.families[family];
        let row = &self.lasts[begin + stretch * places.len()..][..places.len()];
        &row[members.start - places.start..members.end - places.start]
    }
}

/// Stretches of a state. The first one begins before slot 0, so that a stretch, less the slots that the state keeps,
/// is a stretch of the states that keep nothing.
#[derive(Clone, Copy)]
pub(crate) struct Grid {
    kept: i64,
    before: i64,
}

impl Grid {
    pub(crate) fn new(kept: i64) -> Grid {
        let before = (-kept).rem_euclid(STRETCH as i64);
        Grid { kept, before }
    }

    /// The first slot of a stretch.
    pub(crate) fn begin(self, stretch: usize) -> i64 {
        (stretch * STRETCH) as i64 - self.before
    }

    /// The stretch of a slot.
    pub(crate) fn stretch(self, x: i64) -> usize {
        (x + self.before) as usize / STRETCH
    }

    /// The stretch of a state that keeps nothing, for the slots that are left beside the kept ones.
    fn left(self, stretch: usize) -> Option<usize> {
        let left = self.begin(stretch) - self.kept;
        usize::try_from(left / STRETCH as i64)
            .ok()
            .filter(|_| left >= 0)
    }
}

/// Stretches for so many slots, wherever the first one begins.
pub(crate) fn stretches(slots: usize) -> usize {
    slots.div_ceil(STRETCH) + 1
}

/// Lower bounds on the times of splits.
pub(crate) struct SplitBounds {
    firsts: Bounds,
    seconds: Bounds,
}

/// Splits whose bounds are looked at together.
const GROUP: usize = 8;

impl SplitBounds {
    pub(crate) fn new(recurrence: &impl Recurrence, slots: usize) -> SplitBounds {
        let bounds = |role| Bounds::new(recurrence, role, stretches(slots));
        SplitBounds {
            firsts: bounds(Role::First),
            seconds: bounds(Role::Second),
        }
    }

    /// Records the bounds of a state, given its times by slots.
    pub(crate) fn note(&mut self, recurrence: &impl Recurrence, state: State, times: &[f32]) {
        let lasts = |grid: Grid| {
            let slot =
                move |stretch| (grid.begin(stretch + 1) - 1).clamp(0, times.len() as i64 - 1);
            (0..stretches(times.len())).map(move |stretch| times[slot(stretch) as usize])
        };
        self.firsts.note(recurrence, state, lasts(Grid::new(0)));
        let grid = Grid::new(recurrence.kept(state));
        self.seconds.note(recurrence, state, lasts(grid));
    }

    /// Visits the splits that may take less than so long somewhere in a stretch, each by its place less the first of
    /// them.
    pub(crate) fn below(
        &self,
        splits: &Splits<'_>,
        stretch: usize,
        limit: f32,
        mut visit: impl FnMut(usize),
    ) {
        let Some(left) = Grid::new(splits.less).left(stretch) else {
            return;
        };
        // Beyond, the step alone takes as long.
        let near = splits.times.partition_point(|&time| time < limit);
        let places = splits.places.start..splits.places.start + near;
        let firsts = self.firsts.of(splits.firsts, left, &places);
        let seconds = self.seconds.of(splits.seconds, stretch, &places);
        let groups = firsts.chunks(GROUP).zip(seconds.chunks(GROUP));
        let groups = splits.times[..near].chunks(GROUP).zip(groups);
        for (group, (times, (firsts, seconds))) in groups.enumerate() {
            let sum = |i: usize| times[i] + (firsts[i] + seconds[i]);
            if !any_below(times, firsts, seconds, limit) {
                continue;
            }
            for i in 0..times.len() {
                if sum(i) < limit {
                    visit(group * GROUP + i);
                }
            }
        }
    }
}

/// Whether a sum is below a limit; of fixed length, so that it becomes a few vector instructions.
#[inline]
fn any_below(times: &[f32], firsts: &[f32], seconds: &[f32], limit: f32) -> bool {
    match (
        times.first_chunk::<GROUP>(),
        firsts.first_chunk::<GROUP>(),
        seconds.first_chunk::<GROUP>(),
    ) {
        (Some(times), Some(firsts), Some(seconds)) => {
            let mut least = [f32::INFINITY; GROUP];
            for i in 0..GROUP {
                least[i] = times[i] + (firsts[i] + seconds[i]);
            }
            least.iter().fold(false, |any, &sum| any | (sum < limit))
        }
        _ => true,
    }
}
