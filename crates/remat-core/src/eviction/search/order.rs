//! The order of candidates. A rounded value tells most pairs apart; scores that are close are compared as the reference
//! computes them: as doubles rounded once. Of equal scores the last place goes first. Scores of 0 go before all others,
//! and of these the first place.

use super::quotient::quotient;
use crate::StorageId;
use crate::random::mix;
use std::cmp::Ordering;

/// Values this close, as a share of the higher, are not told apart by their rounded quotients: more than three times
/// the roundings of two values and two scores.
const CLOSE: f64 = 1e-14;

/// An evictable storage and the parts of its score.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// When it last became evictable.
    pub(crate) place: u64,
    pub(crate) bytes: u64,
    pub(crate) numerator: i64,
    pub(crate) storage: StorageId,
    /// The numerator must be computed again.
    pub(crate) stale: bool,
}

impl Candidate {
    /// The size by which its score is divided.
    fn size(&self, by_size: bool) -> u64 {
        if by_size { self.bytes } else { 1 }
    }
}

/// The reciprocal of a candidate's score over time: `rate * (now - since)`, not above 0 for an infinite score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    /// Size by numerator, within 1e-15 of it. 0 for size 0, infinite for numerators that are not above 0.
    pub(super) rate: f64,
    /// The last access.
    pub(super) since: u64,
}

impl Line {
    #[inline]
    fn at(self, clock: u64) -> f64 {
        // Times are below 2^63.
        self.rate * (clock as i64).wrapping_sub(self.since as i64) as f64
    }
}

/// A candidate in a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Entrant {
    pub(super) line: Line,
    pub(super) slot: u32,
}

/// The score to the last rounding, then the place: decides between any two. The lesser goes first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    score: f64,
    place: u64,
}

impl Standing {
    #[inline]
    pub(super) fn before(self, other: Standing) -> bool {
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

impl Ord for Standing {
    #[inline]
    fn cmp(&self, other: &Standing) -> Ordering {
        if self.before(*other) {
            Ordering::Less
        } else if other.before(*self) {
            Ordering::Greater
        } else {
            Ordering::Equal
        }
    }
}

impl PartialOrd for Standing {
    #[inline]
    fn partial_cmp(&self, other: &Standing) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Standing {
    #[inline]
    fn eq(&self, other: &Standing) -> bool {
        self.score == other.score && self.place == other.place
    }
}

impl Eq for Standing {}

/// A total order of candidates at one moment.
pub(super) trait Order {
    fn candidates(&self) -> &[Candidate];

    /// About the reciprocal of the score, or anything else that is higher for the better candidate.
    fn value(&self, entrant: Entrant) -> f64;

    /// A candidate of lower value than this cannot go before one of that value.
    #[inline]
    fn floor(&self, value: f64) -> f64 {
        if value > 0.0 {
            value * (1.0 - CLOSE)
        } else {
            f64::NEG_INFINITY
        }
    }

    /// The score to the last rounding.
    fn score(&self, entrant: Entrant) -> f64;

    #[inline]
    fn standing(&self, entrant: Entrant) -> Standing {
        Standing {
            score: self.score(entrant),
            place: self.candidates()[entrant.slot as usize].place,
        }
    }
}

/// By quotient with staleness.
pub(super) struct Aging<'a> {
    pub(super) candidates: &'a [Candidate],
    pub(super) by_size: bool,
    pub(super) clock: u64,
}

impl Order for Aging<'_> {
    #[inline]
    fn candidates(&self) -> &[Candidate] {
        self.candidates
    }

    #[inline]
    fn value(&self, entrant: Entrant) -> f64 {
        entrant.line.at(self.clock)
    }

    #[inline]
    fn score(&self, entrant: Entrant) -> f64 {
        let candidate = &self.candidates[entrant.slot as usize];
        let stale = self.clock.saturating_sub(entrant.line.since);
        let size = u128::from(candidate.size(self.by_size));
        quotient(candidate.numerator, size * u128::from(stale))
    }
}

/// By quotient without staleness.
pub(super) struct Ageless<'a> {
    pub(super) candidates: &'a [Candidate],
    pub(super) by_size: bool,
}

impl Order for Ageless<'_> {
    #[inline]
    fn candidates(&self) -> &[Candidate] {
        self.candidates
    }

    #[inline]
    fn value(&self, entrant: Entrant) -> f64 {
        entrant.line.rate
    }

    #[inline]
    fn score(&self, entrant: Entrant) -> f64 {
        let candidate = &self.candidates[entrant.slot as usize];
        quotient(candidate.numerator, candidate.size(self.by_size).into())
    }
}

/// By last access.
pub(super) struct LastAccess<'a> {
    pub(super) candidates: &'a [Candidate],
}

impl Order for LastAccess<'_> {
    #[inline]
    fn candidates(&self) -> &[Candidate] {
        self.candidates
    }

    #[inline]
    fn value(&self, entrant: Entrant) -> f64 {
        -(entrant.line.since as i64 as f64)
    }

    #[inline]
    fn floor(&self, value: f64) -> f64 {
        value
    }

    #[inline]
    fn score(&self, entrant: Entrant) -> f64 {
        entrant.line.since as f64
    }
}

/// By lot.
pub(super) struct Draw<'a> {
    pub(super) candidates: &'a [Candidate],
    pub(super) salt: u64,
}

impl Order for Draw<'_> {
    #[inline]
    fn candidates(&self) -> &[Candidate] {
        self.candidates
    }

    #[inline]
    fn value(&self, entrant: Entrant) -> f64 {
        -self.score(entrant)
    }

    #[inline]
    fn floor(&self, value: f64) -> f64 {
        value
    }

    #[inline]
    fn score(&self, entrant: Entrant) -> f64 {
        let place = self.candidates[entrant.slot as usize].place;
        (mix(self.salt ^ place) >> 11) as f64 + 1.0
    }
}
