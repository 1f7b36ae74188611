//! Colours, markers and dashes: told apart also by the colour-blind, and on paper without colour.

use remat_plan::chain::Strategy;
use serde::Serialize;

/// Okabe and Ito's palette (Color Universal Design, 2008) without yellow, which is too pale for lines on white. The chart's
/// script owns the shades: on a dark page black is white.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Colour {
    Blue,
    Vermillion,
    Green,
    Purple,
    Sky,
    Orange,
    Black,
    Grey,
    Brown,
    Pale,
}

/// The shape at each point of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Marker {
    None,
    Disc,
    Square,
    Diamond,
    Up,
    Down,
    Ring,
    Box,
    Cross,
    Plus,
}

/// The stroke of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Dash {
    Solid,
    Dashed,
    Dotted,
}

/// A series' colour, marker and stroke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Look {
    /// Of line and marker.
    pub colour: Colour,
    /// At each point.
    pub marker: Marker,
    /// Of the line.
    pub dash: Dash,
}

const LOOKS: [Look; 8] = [
    look(Colour::Blue, Marker::Disc, Dash::Solid),
    look(Colour::Vermillion, Marker::Square, Dash::Solid),
    look(Colour::Green, Marker::Diamond, Dash::Solid),
    look(Colour::Purple, Marker::Up, Dash::Solid),
    look(Colour::Sky, Marker::Down, Dash::Dashed),
    look(Colour::Orange, Marker::Box, Dash::Dashed),
    look(Colour::Black, Marker::Ring, Dash::Dashed),
    look(Colour::Grey, Marker::Plus, Dash::Dotted),
];

pub(crate) const fn look(colour: Colour, marker: Marker, dash: Dash) -> Look {
    Look {
        colour,
        marker,
        dash,
    }
}

/// Policies with a look of their own, in the order of [`LOOKS`].
const POLICIES: [&str; 8] = [
    "dtr",
    "dtr-eq",
    "dtr-anc",
    "dtr-local",
    "lru",
    "size",
    "msps",
    "random",
];

/// The look of `e-star`, which is never shown beside `random`.
const E_STAR: Look = look(Colour::Brown, Marker::Plus, Dash::Solid);

impl Look {
    /// The look of a strategy for chains, whatever its number of segments. Persistent, floating and free plans are often the
    /// same: their strokes let a line show through those drawn over it.
    pub fn of_strategy(strategy: Strategy) -> Look {
        match strategy {
            Strategy::Persistent => look(Colour::Blue, Marker::Disc, Dash::Solid),
            Strategy::Floating => look(Colour::Vermillion, Marker::Box, Dash::Dashed),
            Strategy::Free => look(Colour::Green, Marker::Diamond, Dash::Dotted),
            Strategy::Revolve => look(Colour::Purple, Marker::Up, Dash::Solid),
            Strategy::Periodic(_) => look(Colour::Sky, Marker::Down, Dash::Solid),
            Strategy::ChenSqrt => look(Colour::Brown, Marker::Plus, Dash::Solid),
            Strategy::ChenGreedy => look(Colour::Orange, Marker::Square, Dash::Dashed),
            Strategy::Treeverse => look(Colour::Grey, Marker::Ring, Dash::Solid),
            Strategy::None => look(Colour::Black, Marker::Cross, Dash::Solid),
        }
    }

    /// The look of a policy: the same in every figure that compares policies.
    pub fn of_policy(name: &str) -> Look {
        let place = POLICIES.iter().position(|policy| *policy == name);
        place.map_or(E_STAR, Look::of)
    }

    /// The look of the series at this place; after eight they begin anew.
    pub fn of(place: usize) -> Look {
        LOOKS[place % LOOKS.len()]
    }

    /// The same with another stroke.
    pub fn dashed(self, dash: Dash) -> Look {
        Look { dash, ..self }
    }

    /// The same without a marker.
    pub fn unmarked(self) -> Look {
        Look {
            marker: Marker::None,
            ..self
        }
    }
}
