//! For how long a comparison of two lines holds.

use super::Line;

/// Clocks from one to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) until: u64,
}

impl Span {
    pub(crate) const ALWAYS: Span = Span {
        from: 0,
        until: u64::MAX,
    };
    pub(crate) const NEVER: Span = Span { from: 1, until: 0 };

    #[inline]
    pub(crate) fn holds(self, clock: u64) -> bool {
        self.from <= clock && clock <= self.until
    }

    #[inline]
    pub(crate) fn and(self, other: Span) -> Span {
        Span {
            from: self.from.max(other.from),
            until: self.until.min(other.until),
        }
    }
}

/// How far apart, as a share of the higher, two lines stay within a span: ten times what rounded scores need to differ.
const APART: f64 = 1e-13;

/// Of the way to where two lines come close, the share that is surely still apart.
const SURE: f64 = 1.0 - 1e-6;

/// The clocks around `clock` at which one line is clearly the higher one and above 0; `None` if it is not so now, or the
/// lower line is no line.
///
/// Errors of doubles: a rate is off by 4e-16 of itself, a value by 6e-16, so a lead by 2e-15 of the higher value. What the rates'
/// errors add up to on the way is below 1e-15 of the higher value then, or of the way itself: both within `APART` and `SURE`.
#[inline]
pub(crate) fn lines_part(high: Line, low: Line, clock: u64) -> Option<Span> {
    let (top, bottom) = (high.at(clock), low.at(clock));
    let near = top * APART;
    let spare = (top - bottom - near) * SURE;
    // Infinite rates make infinities and NaN here, which fail.
    if !(top > 0.0 && spare > 0.0 && spare < f64::INFINITY) {
        return None;
    }
    let gain = low.rate - high.rate;
    let closing = gain + APART * high.rate;
    let from = high.since + 1;
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
