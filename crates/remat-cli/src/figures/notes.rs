//! Lines above a plot, each with a mark on the x axis of the plot and words beside it.

use super::draw::Axes;
use super::pen::{Drawn, Lie, Pen};
use super::style::{Dash, Look, PALE};
use plotters::prelude::DrawingBackend;

/// Height of a line and of its letters, and what is between the lines and the plot.
const LINE: f64 = 14.0;
const LETTERS: f64 = 10.5;
const GAP: f64 = 7.0;
const MARKER: f64 = 3.2;
/// From a mark to its words.
const BESIDE: f64 = 8.0;

/// What a panel says above its plot: a heading, and a line for each of some things.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    pub(super) heading: &'static str,
    pub(super) lines: Vec<Note>,
}

/// A line above a plot.
#[derive(Clone, Debug)]
pub(super) struct Note {
    pub(super) look: Look,
    /// What it is about.
    pub(super) name: String,
    /// Where on the x axis that is, if anywhere.
    pub(super) at: Option<f64>,
    /// What it says.
    pub(super) text: String,
}

impl Notes {
    /// Pixels that the lines take.
    pub(super) fn height(&self) -> f64 {
        match self.lines.len() {
            0 => 0.0,
            lines => (lines + 1) as f64 * LINE + GAP,
        }
    }

    /// Draws the lines from here downwards.
    pub(super) fn draw<DB: DrawingBackend>(
        &self,
        pen: &Pen<'_, DB>,
        axes: &Axes<'_>,
        top: f64,
    ) -> Drawn<DB> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let middle = (axes.left + axes.right) / 2.0;
        pen.text(
            (middle, top + 0.3 * LINE),
            self.heading,
            LETTERS,
            Lie::Middle,
        )?;
        for (place, line) in self.lines.iter().enumerate() {
            line.draw(pen, axes, top + (place as f64 + 1.5) * LINE)?;
        }
        Ok(())
    }
}

impl Note {
    fn draw<DB: DrawingBackend>(&self, pen: &Pen<'_, DB>, axes: &Axes<'_>, y: f64) -> Drawn<DB> {
        pen.line(&[(axes.left, y), (axes.right, y)], PALE, 0.5, Dash::Solid)?;
        pen.text((axes.left - 5.0, y), &self.name, LETTERS, Lie::Right)?;
        let Some(part) = self.at.and_then(|at| axes.x.place(at)) else {
            return pen.text((axes.left + BESIDE, y), &self.text, LETTERS, Lie::Left);
        };
        let x = axes.x(part);
        pen.marker((x, y), self.look.marker, MARKER, self.look.colour)?;
        let (at, lie) = match x + BESIDE + pen.width(&self.text, LETTERS) < axes.right {
            true => (x + BESIDE, Lie::Left),
            false => (x - BESIDE, Lie::Right),
        };
        pen.text((at, y), &self.text, LETTERS, lie)
    }
}
