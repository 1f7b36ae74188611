//! Which of two candidates goes first. A rounded value tells most pairs apart; scores that are close are compared as the
//! reference computes them: doubles rounded once, of equals the last place, of zeros the first, which win over everything.

use super::quotient::quotient;
use super::span::{lines_part, Span};
use super::{Candidate, Line};
use crate::random::mix;

/// Values this close, as a share of the higher, are not told apart by their rounded quotients: more than three times the
/// roundings of two values and two scores.
const CLOSE: f64 = 1e-14;

/// A candidate in a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Entrant {
    pub(crate) line: Line,
    pub(crate) slot: u32,
}

/// What decides between any two: the score to the last rounding, then the place.
#[derive(Clone, Copy)]
pub(crate) struct Standing {
    score: f64,
    place: u64,
}

impl Standing {
    #[inline]
    pub(crate) fn before(self, other: Standing) -> bool {
        match (self.score == 0.0, other.score == 0.0) {
            (true, true) => self.place < other.place,
            (true, false) => true,
            (false, true) => false,
            (false, false) => {
                self.score < other.score || (self.score == other.score && self.place > other.place)
            }
        }
    }
}

/// A total order of candidates at one moment.
pub(crate) trait Order {
    /// About the reciprocal of the score, or anything else that is higher for the better candidate.
    fn value(&self, entrant: Entrant) -> f64;

    /// A candidate of lower value than this cannot go before one of that value.
    fn floor(&self, value: f64) -> f64 {
        if value > 0.0 {
            value * (1.0 - CLOSE)
        } else {
            f64::NEG_INFINITY
        }
    }

    /// The score to the last rounding.
    fn score(&self, entrant: Entrant) -> f64;

    fn candidates(&self) -> &[Candidate];

    /// Whether `a` goes before `b`.
    #[inline]
    fn before(&self, a: Entrant, b: Entrant) -> bool {
        let (high, low) = (self.value(a), self.value(b));
        if low < self.floor(high) {
            return true;
        }
        if high < self.floor(low) {
            return false;
        }
        self.before_closely(a, b)
    }

    #[cold]
    fn before_closely(&self, a: Entrant, b: Entrant) -> bool {
        self.standing(a).before(self.standing(b))
    }

    #[inline]
    fn standing(&self, entrant: Entrant) -> Standing {
        Standing {
            score: self.score(entrant),
            place: self.candidates()[entrant.slot as usize].place,
        }
    }

    /// The clocks, now among them, at which the winner of now surely goes before the loser.
    fn span(&self, _winner: Entrant, _loser: Entrant) -> Span {
        Span::ALWAYS
    }
}

/// By quotient with staleness.
pub(crate) struct Aging<'a> {
    pub(crate) candidates: &'a [Candidate],
    pub(crate) size: bool,
    pub(crate) clock: u64,
}

impl Aging<'_> {
    /// The size by which scores are divided, and the numerator.
    fn fraction(&self, entrant: Entrant) -> (u64, i64) {
        let candidate = &self.candidates[entrant.slot as usize];
        let size = if self.size { candidate.bytes } else { 1 };
        (size, candidate.numerator)
    }

    /// Where the two are not simply lines of which one lies clearly above.
    #[cold]
    fn close_span(&self, winner: Entrant, loser: Entrant) -> Span {
        let clock = self.clock;
        let ((size, numerator), (other_size, other)) =
            (self.fraction(winner), self.fraction(loser));
        let (since, other_since) = (winner.line.since, loser.line.since);
        // A score is infinite up to the last access, for size 0 at all times.
        let infinite_until = |size: u64, since: u64| if size == 0 { u64::MAX } else { since };
        if infinite_until(size, since) >= clock {
            return Span {
                from: 0,
                until: infinite_until(size, since).min(infinite_until(other_size, other_since)),
            };
        }
        if infinite_until(other_size, other_since) >= clock {
            let for_good = other_size == 0 || (other > 0 && numerator <= 0);
            return Span {
                from: since + 1,
                until: if for_good { u64::MAX } else { other_since },
            };
        }
        let from = since.max(other_since) + 1;
        let until = u64::MAX;
        let same =
            i128::from(size) * i128::from(other) == i128::from(other_size) * i128::from(numerator);
        if numerator == 0 || (numerator < 0 && other > 0) || (same && since == other_since) {
            return Span { from, until };
        }
        if numerator < 0 && other < 0 {
            // Of scores below 0 the steeper one is behind.
            let line = |size: u64, numerator: i64, since| Line {
                rate: size as f64 / numerator.unsigned_abs() as f64,
                since,
            };
            let (behind, ahead) = (
                line(other_size, other, other_since),
                line(size, numerator, since),
            );
            if let Some(span) = lines_part(behind, ahead, clock) {
                return Span {
                    from: span.from.max(from),
                    until: span.until,
                };
            }
        }
        Span {
            from: clock,
            until: clock,
        }
    }
}

impl Order for Aging<'_> {
    #[inline]
    fn value(&self, entrant: Entrant) -> f64 {
        entrant.line.at(self.clock)
    }

    #[inline]
    fn candidates(&self) -> &[Candidate] {
        self.candidates
    }

    fn score(&self, entrant: Entrant) -> f64 {
        let (size, numerator) = self.fraction(entrant);
        let stale = self.clock.saturating_sub(entrant.line.since);
        quotient(numerator, u128::from(size) * u128::from(stale))
    }

    #[inline]
    fn span(&self, winner: Entrant, loser: Entrant) -> Span {
        lines_part(winner.line, loser.line, self.clock)
            .unwrap_or_else(|| self.close_span(winner, loser))
    }
}

/// By quotient without staleness.
pub(crate) struct Ageless<'a> {
    pub(crate) candidates: &'a [Candidate],
    pub(crate) size: bool,
}

impl Order for Ageless<'_> {
    #[inline]
    fn value(&self, entrant: Entrant) -> f64 {
        entrant.line.rate
    }

    #[inline]
    fn candidates(&self) -> &[Candidate] {
        self.candidates
    }

    fn score(&self, entrant: Entrant) -> f64 {
        let candidate = &self.candidates[entrant.slot as usize];
        let size = if self.size { candidate.bytes } else { 1 };
        quotient(candidate.numerator, u128::from(size))
    }
}

/// By last access.
pub(crate) struct LastAccess<'a> {
    pub(crate) candidates: &'a [Candidate],
}

impl Order for LastAccess<'_> {
    #[inline]
    fn value(&self, entrant: Entrant) -> f64 {
        -(entrant.line.since as i64 as f64)
    }

    #[inline]
    fn floor(&self, value: f64) -> f64 {
        value
    }

    #[inline]
    fn candidates(&self) -> &[Candidate] {
        self.candidates
    }

    fn score(&self, entrant: Entrant) -> f64 {
        entrant.line.since as f64
    }
}

/// By lot.
pub(crate) struct Draw<'a> {
    pub(crate) candidates: &'a [Candidate],
    pub(crate) salt: u64,
}

impl Order for Draw<'_> {
    #[inline]
    fn value(&self, entrant: Entrant) -> f64 {
        -self.score(entrant)
    }

    #[inline]
    fn floor(&self, value: f64) -> f64 {
        value
    }

    #[inline]
    fn candidates(&self) -> &[Candidate] {
        self.candidates
    }

    #[inline]
    fn score(&self, entrant: Entrant) -> f64 {
        let place = self.candidates[entrant.slot as usize].place;
        (mix(self.salt ^ place) >> 11) as f64 + 1.0
    }
}
