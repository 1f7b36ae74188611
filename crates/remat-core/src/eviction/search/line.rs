//! Reciprocals of scores as lines over time, and the spans of time in which one line lies above another.

/// The reciprocal of a candidate's score over time: `rate * (now - since)`, not above 0 for an infinite score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    /// Size by numerator, within 1e-15 of it. 0 for size 0, infinite for numerators that are not above 0.
    pub(super) rate: f64,
    /// The last access.
    pub(super) since: u64,
}

/// Clocks from one to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: u64,
    pub(super) until: u64,
}

impl Span {
    pub(super) const ALWAYS: Span = Span {
        from: 0,
        until: u64::MAX,
    };
    pub(super) const NEVER: Span = Span { from: 1, until: 0 };

    #[inline]
    pub(super) fn holds(self, clock: u64) -> bool {
        self.from <= clock && clock <= self.until
    }

    #[inline]
    pub(super) fn and(self, other: Span) -> Span {
        Span {
            from: self.from.max(other.from),
            until: self.until.min(other.until),
        }
    }
}

/// Two lines stay this far apart within a span, as a share of the higher: ten times what rounded scores need to differ.
const APART: f64 = 1e-13;

/// The share of the way to where two lines come close on which they are surely apart.
const SURE: f64 = 1.0 - 1e-6;

impl Line {
    #[inline]
    pub(super) fn at(self, clock: u64) -> f64 {
        // Times are below 2^63.
        self.rate * (clock as i64).wrapping_sub(self.since as i64) as f64
    }

    /// The clocks around `clock` at which this line is clearly the higher one and above 0; `None` if it is not so now, or
    /// the lower line has an infinite rate.
    ///
    /// Errors of doubles: a rate is off by 4e-16 of itself, a value by 6e-16, so a lead by 2e-15 of the higher value. The
    /// errors of the rates add up on the way to less than 1e-15 of the higher value then, or of the way itself: both are
    /// within `APART` and `SURE`.
    #[inline]
    pub(super) fn above(self, low: Line, clock: u64) -> Option<Span> {
        let (top, bottom) = (self.at(clock), low.at(clock));
        let near = top * APART;
        let spare = (top - bottom - near) * SURE;
        // Infinite rates make infinities and NaN here, which fail.
        if !(top > 0.0 && spare > 0.0 && spare < f64::INFINITY) {
            return None;
        }
        let gain = low.rate - self.rate;
        let closing = gain + APART * self.rate;
        let from = self.since + 1;
        Some(Span {
            from: if gain < 0.0 {
                from.max(clock.saturating_sub((spare / -gain) as u64))
            } else {
                from
            },
            until: if closing > 0.0 {
                clock.saturating_add((spare / closing) as u64)
            } else {
                u64::MAX
            },
        })
    }
}
