//! Colours, markers and dashes: told apart also by the colour-blind, and on paper without colour.

use plotters::style::RGBColor;

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

impl Look {
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
        for (at, one) in LOOKS.iter().enumerate() {
            for other in &LOOKS[at + 1..] {
                assert_ne!(one.colour, other.colour);
                assert_ne!(one.marker, other.marker);
            }
        }
    }
}
