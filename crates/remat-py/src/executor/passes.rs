//! Which of an op's allocations are its results. An op may take temporaries of the same size first, such as a
//! convolution that reorders its input, and these must not get the places of results.

use std::collections::HashMap;

/// For each kind of op and output, the allocations of the output's size that come before it.
#[derive(Default)]
pub struct Passes {
    known: HashMap<(u64, u32), Passed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passed {
    /// It comes after so many.
    Known(u32),
    /// It was not seen, and is looked for after so many.
    Guessed(u32),
    /// It is looked for no more.
    Unknown,
}

impl Passes {
    /// The allocations that come before the one of an output.
    pub(super) fn of(&self, kind: u64, output: u32) -> u32 {
        match self.known.get(&(kind, output)) {
            Some(&(Passed::Known(passes) | Passed::Guessed(passes))) => passes,
            Some(Passed::Unknown) | None => 0,
        }
    }

    /// The output lies elsewhere than was wanted. It came after so many allocations of its size; `Err` if it was not
    /// among those seen, with their number.
    pub(super) fn missed(&mut self, kind: u64, output: u32, seen: Result<u32, u32>) {
        let known = self.known.entry((kind, output));
        let before = known.or_insert(Passed::Guessed(0));
        *before = match (seen, *before) {
            (Ok(passes), _) => Passed::Known(passes),
            (Err(passes), Passed::Guessed(guess)) if passes != guess => Passed::Guessed(passes),
            (Err(_), _) => Passed::Unknown,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_wanted_where_it_was_seen() {
        let mut passes = Passes::default();
        passes.missed(7, 1, Ok(2));
        assert_eq!(
            (passes.of(7, 1), passes.of(7, 0), passes.of(8, 1)),
            (2, 0, 0)
        );
    }

    #[test]
    fn an_output_that_was_not_seen_is_looked_for_later_until_that_is_in_vain() {
        let mut passes = Passes::default();
        let mut seen = |seen| {
            passes.missed(7, 0, seen);
            passes.of(7, 0)
        };
        assert_eq!(
            [Err(1), Err(2), Err(2), Err(3), Ok(4)].map(&mut seen),
            [1, 2, 0, 0, 4]
        );
    }
}
