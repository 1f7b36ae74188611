//! Colours, markers and dashes: told apart also by the colour-blind, and on paper without colour.

use plotters::style::RGBColor;
use remat_plan::chain::Strategy;

/// Okabe and Ito's palette (Color Universal Design, 2008), yellow left out: it is too pale for lines on white.
pub(super) const BLUE: RGBColor = RGBColor(0, 114, 178);
pub(super) const VERMILLION: RGBColor = RGBColor(213, 94, 0);
pub(super) const GREEN: RGBColor = RGBColor(0, 158, 115);
pub(super) const PURPLE: RGBColor = RGBColor(204, 121, 167);
pub(super) const SKY: RGBColor = RGBColor(86, 180, 233);
pub(super) const ORANGE: RGBColor = RGBColor(230, 159, 0);
pub(super) const BLACK: RGBColor = RGBColor(0, 0, 0);
pub(super) const GREY: RGBColor = RGBColor(120, 120, 120);
pub(super) const BROWN: RGBColor = RGBColor(110, 60, 15);
pub(super) const PALE: RGBColor = RGBColor(222, 222, 222);
pub(super) const WHITE: RGBColor = RGBColor(255, 255, 255);

/// The shape at each point of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
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

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dash {
    Solid,
    Dashed,
    Dotted,
}

/// What tells a series from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) colour: RGBColor,
    pub(super) marker: Marker,
    pub(super) dash: Dash,
}

const LOOKS: [Look; 8] = [
    look(BLUE, Marker::Disc, Dash::Solid),
    look(VERMILLION, Marker::Square, Dash::Solid),
    look(GREEN, Marker::Diamond, Dash::Solid),
    look(PURPLE, Marker::Up, Dash::Solid),
    look(SKY, Marker::Down, Dash::Dashed),
    look(ORANGE, Marker::Box, Dash::Dashed),
    look(BLACK, Marker::Ring, Dash::Dashed),
    look(GREY, Marker::Plus, Dash::Dotted),
];

pub(super) const fn look(colour: RGBColor, marker: Marker, dash: Dash) -> Look {
    Look {
        colour,
        marker,
        dash,
    }
}

/// Policies that have a look of their own, in the order of [`LOOKS`].
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

/// `e-star`; it is nowhere beside `random`.
const E_STAR: Look = look(BROWN, Marker::Plus, Dash::Solid);

/// Strategies for chains. Persistent, floating and free plans are often the same: a line shows through those drawn over it.
const STRATEGIES: [(Strategy, Look); 9] = [
    (Strategy::Persistent, look(BLUE, Marker::Disc, Dash::Solid)),
    (
        Strategy::Floating,
        look(VERMILLION, Marker::Box, Dash::Dashed),
    ),
    (Strategy::Free, look(GREEN, Marker::Diamond, Dash::Dotted)),
    (Strategy::Revolve, look(PURPLE, Marker::Up, Dash::Solid)),
    (
        Strategy::Periodic(None),
        look(SKY, Marker::Down, Dash::Solid),
    ),
    (Strategy::ChenSqrt, look(BROWN, Marker::Plus, Dash::Solid)),
    (
        Strategy::ChenGreedy,
        look(ORANGE, Marker::Square, Dash::Dashed),
    ),
    (Strategy::Treeverse, look(GREY, Marker::Ring, Dash::Solid)),
    (Strategy::None, look(BLACK, Marker::Cross, Dash::Solid)),
];

impl Look {
    /// The look of a strategy for chains; any number of segments looks as the best one.
    pub(super) fn of_strategy(strategy: Strategy) -> Look {
        let wanted = match strategy {
            Strategy::Periodic(_) => Strategy::Periodic(None),
            other => other,
        };
        let known = STRATEGIES.iter().find(|(known, _)| *known == wanted);
        known.map_or(E_STAR, |(_, look)| *look)
    }

    /// The look of a policy: the same in every figure that compares policies.
    pub(super) fn of_policy(name: &str) -> Look {
        match POLICIES.iter().position(|policy| *policy == name) {
            Some(place) => Look::of(place),
            None => E_STAR,
        }
    }

    /// The look of the series at this place; after eight they begin anew.
    pub(super) fn of(place: usize) -> Look {
        LOOKS[place % LOOKS.len()]
    }

    pub(super) fn dashed(self, dash: Dash) -> Look {
        Look { dash, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_colours_nor_markers_repeat() {
        let strategies = Strategy::ALL.map(Look::of_strategy);
        for looks in [&LOOKS[..], &strategies[..]] {
            for (at, one) in looks.iter().enumerate() {
                for other in &looks[at + 1..] {
                    assert_ne!(one.colour, other.colour);
                    assert_ne!(one.marker, other.marker);
                }
            }
        }
    }
}
