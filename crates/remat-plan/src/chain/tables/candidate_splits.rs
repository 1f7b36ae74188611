//! Times of the choices of a state in all slots, and the lowest of them.

use crate::chain::tables::bounds::STRETCH;

/// A stretch of times.
type Line = [f32; STRETCH];

/// Times of a state.
#[derive(Clone, Copy)]
pub(crate) struct Times<'a> {
    /// As they are in the table.
    pub(crate) times: &'a [f32],
    /// The slot of the first of them. Slots before it have no plan either; slots behind the last take as long as the
    /// last.
    pub(crate) before: i64,
}

impl Times<'_> {
    /// Nothing to do.
    pub(crate) const NONE: Times<'static> = Times {
        times: &[0.0; STRETCH],
        before: 0,
    };

    /// The time with memory `x`.
    #[inline]
    pub(crate) fn at(&self, x: i64) -> f32 {
        self.line(x)[0]
    }

    /// The times with memory `x` and in the slots behind.
    #[inline]
    fn line(&self, x: i64) -> &Line {
        let at = (x - self.before).clamp(0, (self.times.len() - STRETCH) as i64);
        match self.times[at as usize..].first_chunk() {
            Some(line) => line,
            None => &[f32::INFINITY; STRETCH], // There is a stretch at least.
        }
    }
}

/// The times of a choice: a sum of its own and of those of two states, the first of which is read so many slots lower.
pub(crate) struct Candidate<'a> {
    pub(crate) again: f32,
    pub(crate) need: i64,
    pub(crate) first: Times<'a>,
    pub(crate) less: i64,
    pub(crate) second: Times<'a>,
}

impl Candidate<'_> {
    /// The time with memory `x`.
    pub(crate) fn at(&self, x: i64) -> f32 {
        if x < self.need {
            return f32::INFINITY;
        }
        self.again + (self.first.at(x - self.less) + self.second.at(x))
    }

    /// Lowers the times of a stretch from slot `x` on.
    #[inline]
    pub(crate) fn lower(&self, lowest: &mut Lowest, x: i64) {
        if self.need >= x + STRETCH as i64 {
            return;
        }
        let (first, second) = (self.first.line(x - self.less), self.second.line(x));
        let times = lowest.line(x);
        if self.need <= x {
            *times = lowered(times, self.again, first, second);
            return;
        }
        (0..STRETCH as i64)
            .filter(|i| self.need <= x + i)
            .map(|i| i as usize)
            .for_each(|i| times[i] = lower(times[i], self.again + (first[i] + second[i])));
    }
}

/// The lowest times that are known for a state, from a stretch before slot 0 to one behind the last.
pub(crate) struct Lowest {
    times: Vec<f32>,
}

impl Lowest {
    pub(crate) fn new(width: usize) -> Lowest {
        Lowest {
            times: vec![f32::INFINITY; width + 2 * STRETCH],
        }
    }

    pub(crate) fn clear(&mut self) {
        self.times.fill(f32::INFINITY);
    }

    #[inline]
    pub(crate) fn at(&self, x: i64) -> f32 {
        self.times[(x + STRETCH as i64) as usize]
    }

    /// The times of the stretch that begins in slot `x`.
    #[inline]
    fn line(&mut self, x: i64) -> &mut Line {
        let line = self.times[(x + STRETCH as i64) as usize..].first_chunk_mut();
        // A stretch holds at least one of the `width` slots, so that -STRETCH < x < width: it begins and ends within
        // `width + 2 * STRETCH` times.
        line.expect("there is a stretch before and behind")
    }

    /// The times of the slots.
    pub(crate) fn times(&self) -> &[f32] {
        &self.times[STRETCH..self.times.len() - STRETCH]
    }
}

/// A stretch of times, lowered to a sum; of fixed length, so that it becomes a few vector instructions.
#[inline]
fn lowered(times: &Line, time: f32, first: &Line, second: &Line) -> Line {
    std::array::from_fn(|i| lower(times[i], time + (first[i] + second[i])))
}

/// The lower of two times; unlike `f32::min` one instruction, as there are no NaNs.
#[inline]
fn lower(a: f32, b: f32) -> f32 {
    if b < a { b } else { a }
}
