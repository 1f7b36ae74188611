//! A plot, drawn.

use super::axis::Axis;
use super::pen::{Drawn, Lie, Pen, BODY, SMALL};
use super::plot::{Key, Miss, Panel, Plot, Point, Series, Shade};
use super::style::{Dash, Marker, BLACK, PALE};
use plotters::prelude::DrawingBackend;
use plotters::style::{Color, RGBAColor};

/// A panel with all that is around it, in pixels: across, across where there is one only, down.
const PANEL: f64 = 430.0;
const ONLY: f64 = 700.0;
const DOWN: f64 = 330.0;
/// From the edges of a panel to its axes: left, above, right, below.
const LEFT: f64 = 70.0;
const ABOVE: f64 = 34.0;
const RIGHT: f64 = 16.0;
const BELOW: f64 = 52.0;
/// Height of a lane of missed points, and what is between the lanes and the plot.
const LANE: f64 = 8.0;
const LANE_GAP: f64 = 5.0;
/// Legend: height of a line, length of a sample, space after a name.
const LINE: f64 = 22.0;
const SAMPLE: f64 = 34.0;
const AFTER: f64 = 26.0;
const MARKER: f64 = 3.6;

impl Plot {
    fn columns(&self) -> usize {
        self.columns.clamp(1, self.panels.len().max(1))
    }

    /// Height of what is between the titles and the plots.
    fn lanes(&self) -> f64 {
        self.panels.iter().map(Panel::above).fold(0.0, f64::max)
    }

    /// Pixels across and down.
    pub(super) fn size(&self) -> (f64, f64) {
        let (width, panels) = self.panels_size();
        (width, panels + self.legend_rows(width) as f64 * LINE + 14.0)
    }

    fn panels_size(&self) -> (f64, f64) {
        let rows = self.panels.len().max(1).div_ceil(self.columns());
        let height = DOWN + self.lanes();
        (self.columns() as f64 * self.across(), rows as f64 * height)
    }

    fn across(&self) -> f64 {
        match self.columns() {
            1 => ONLY,
            _ => PANEL,
        }
    }

    /// Lines of the legend, by a width of names that no font exceeds.
    fn legend_rows(&self, width: f64) -> usize {
        let cell = self.cell();
        let columns = ((width - LEFT) / cell).floor().max(1.0) as usize;
        self.legend.len().div_ceil(columns)
    }

    fn cell(&self) -> f64 {
        let longest = self.legend.iter().map(|(_, name)| name.chars().count());
        SAMPLE + AFTER + longest.max().unwrap_or(0) as f64 * SMALL * 0.5
    }

    /// Draws panels and legend.
    pub(super) fn draw<DB: DrawingBackend>(&self, pen: &Pen<'_, DB>) -> Drawn<DB> {
        let height = DOWN + self.lanes();
        for (place, panel) in self.panels.iter().enumerate() {
            let (row, column) = (place / self.columns(), place % self.columns());
            let corner = (column as f64 * self.across(), row as f64 * height);
            panel.draw(pen, corner, self.across(), self.lanes())?;
        }
        self.draw_legend(pen)
    }

    fn draw_legend<DB: DrawingBackend>(&self, pen: &Pen<'_, DB>) -> Drawn<DB> {
        let (width, top) = self.panels_size();
        let cell = self.cell();
        let columns = ((width - LEFT) / cell).floor().max(1.0) as usize;
        for (place, (key, name)) in self.legend.iter().enumerate() {
            let x = LEFT * 0.6 + (place % columns) as f64 * cell;
            let y = top + 12.0 + (place / columns) as f64 * LINE;
            draw_key(pen, *key, (x, y))?;
            pen.text((x + SAMPLE, y), name, SMALL, Lie::Left)?;
        }
        Ok(())
    }
}

fn draw_key<DB: DrawingBackend>(pen: &Pen<'_, DB>, key: Key, (x, y): (f64, f64)) -> Drawn<DB> {
    let (end, middle) = ((x + SAMPLE - 8.0, y), (x + (SAMPLE - 8.0) / 2.0, y));
    match key {
        Key::Series(look) => {
            pen.line(&[(x, y), end], look.colour, 1.6, look.dash)?;
            pen.marker(middle, look.marker, MARKER, look.colour)
        }
        Key::Mark(miss) => pen.marker(middle, mark(miss), MARKER, BLACK),
        Key::Shade(shade) => pen.fill((x, y - 6.0), (end.0, y + 6.0), colour(shade)),
    }
}

fn mark(miss: Miss) -> Marker {
    match miss {
        Miss::Oom => Marker::Cross,
        Miss::Thrash => Marker::Down,
    }
}

fn colour(shade: Shade) -> RGBAColor {
    match shade {
        Shade::Constants => BLACK.mix(0.30),
        Shade::Bottleneck => BLACK.mix(0.11),
    }
}

/// Where the axes are, in pixels.
pub(super) struct Axes<'a> {
    pub(super) x: &'a Axis,
    pub(super) y: &'a Axis,
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl Axes<'_> {
    pub(super) fn x(&self, part: f64) -> f64 {
        self.left + part * (self.right - self.left)
    }

    pub(super) fn y(&self, part: f64) -> f64 {
        self.bottom - part * (self.bottom - self.top)
    }

    fn place(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        Some((self.x(self.x.place(x)?), self.y(self.y.place(y)?)))
    }
}

impl Panel {
    /// Series of which points are missed, each of which gets a lane above the plot.
    fn lanes(&self) -> impl Iterator<Item = &Series> {
        let missed = |series: &&Series| series.misses().next().is_some();
        self.series.iter().filter(missed)
    }

    fn above(&self) -> f64 {
        let lanes = match self.lanes().count() {
            0 => 0.0,
            lanes => lanes as f64 * LANE + LANE_GAP,
        };
        lanes + self.notes.height()
    }

    fn draw<DB: DrawingBackend>(
        &self,
        pen: &Pen<'_, DB>,
        corner: (f64, f64),
        across: f64,
        lanes: f64,
    ) -> Drawn<DB> {
        let axes = Axes {
            x: &self.x,
            y: &self.y,
            left: corner.0 + LEFT,
            top: corner.1 + ABOVE + lanes,
            right: corner.0 + across - RIGHT,
            bottom: corner.1 + lanes + DOWN - BELOW,
        };
        let middle = (axes.left + axes.right) / 2.0;
        pen.bold((middle, corner.1 + 18.0), &self.title, BODY, Lie::Middle)?;
        self.draw_bands(pen, &axes)?;
        draw_axes(pen, &axes)?;
        for series in &self.series {
            series.draw(pen, &axes)?;
        }
        let (from, to) = ((axes.left, axes.top), (axes.right, axes.bottom));
        pen.frame(from, to, BLACK)?;
        for (place, series) in self.lanes().enumerate() {
            let y = corner.1 + ABOVE + (place as f64 + 0.5) * LANE;
            series.draw_misses(pen, &axes, y)?;
        }
        self.notes.draw(pen, &axes, corner.1 + ABOVE)
    }

    fn draw_bands<DB: DrawingBackend>(&self, pen: &Pen<'_, DB>, axes: &Axes<'_>) -> Drawn<DB> {
        for &(from, to, shade) in &self.bands {
            let (from, to) = (axes.x.clamped(from), axes.x.clamped(to));
            let corners = ((axes.x(from), axes.top), (axes.x(to), axes.bottom));
            pen.fill(corners.0, corners.1, colour(shade))?;
        }
        Ok(())
    }
}

pub(super) fn draw_axes<DB: DrawingBackend>(pen: &Pen<'_, DB>, axes: &Axes<'_>) -> Drawn<DB> {
    for (value, label) in axes.x.ticks() {
        let x = axes.x(axes.x.clamped(value));
        pen.line(&[(x, axes.top), (x, axes.bottom)], PALE, 0.5, Dash::Solid)?;
        pen.line(
            &[(x, axes.bottom), (x, axes.bottom + 4.0)],
            BLACK,
            0.75,
            Dash::Solid,
        )?;
        pen.text((x, axes.bottom + 13.0), &label, SMALL, Lie::Middle)?;
    }
    for (value, label) in axes.y.ticks() {
        let y = axes.y(axes.y.clamped(value));
        pen.line(&[(axes.left, y), (axes.right, y)], PALE, 0.5, Dash::Solid)?;
        pen.line(
            &[(axes.left - 4.0, y), (axes.left, y)],
            BLACK,
            0.75,
            Dash::Solid,
        )?;
        pen.text((axes.left - 7.0, y), &label, SMALL, Lie::Right)?;
    }
    let middle = (
        (axes.left + axes.right) / 2.0,
        (axes.top + axes.bottom) / 2.0,
    );
    pen.text(
        (middle.0, axes.bottom + 33.0),
        &axes.x.label,
        SMALL,
        Lie::Middle,
    )?;
    pen.text((axes.left - 52.0, middle.1), &axes.y.label, SMALL, Lie::Up)
}

impl Series {
    fn draw<DB: DrawingBackend>(&self, pen: &Pen<'_, DB>, axes: &Axes<'_>) -> Drawn<DB> {
        let look = self.look;
        let places: Vec<Option<(f64, f64)>> = self
            .points
            .iter()
            .map(|&(x, point)| match point {
                Point::At(y) => axes.place(x, y),
                Point::Missed(_) => None,
            })
            .collect();
        for run in places.split(Option::is_none) {
            let run: Vec<_> = run.iter().copied().flatten().collect();
            if run.len() > 1 {
                pen.line(&self.join.line(&run), look.colour, 1.4, look.dash)?;
            }
            for place in self.join.marked(&run) {
                pen.marker(place, look.marker, MARKER, look.colour)?;
            }
        }
        Ok(())
    }

    /// Marks above the plot: one lane a series, so that no mark hides another.
    fn draw_misses<DB: DrawingBackend>(
        &self,
        pen: &Pen<'_, DB>,
        axes: &Axes<'_>,
        y: f64,
    ) -> Drawn<DB> {
        pen.line(&[(axes.left, y), (axes.right, y)], PALE, 0.5, Dash::Solid)?;
        pen.marker(
            (axes.left - 9.0, y),
            self.look.marker,
            2.8,
            self.look.colour,
        )?;
        pen.line(
            &[(axes.left - 15.0, y), (axes.left - 3.0, y)],
            self.look.colour,
            1.0,
            Dash::Solid,
        )?;
        for (x, miss) in self.misses() {
            if let Some(part) = axes.x.place(x) {
                pen.marker((axes.x(part), y), mark(miss), 2.8, self.look.colour)?;
            }
        }
        Ok(())
    }
}
