//! What a plot shows: panels of series over two axes, and one legend for all of them.

use super::axis::Axis;
use super::join::Join;
use super::notes::Notes;
use super::style::Look;

/// Panels beside and below one another, and a legend under them.
#[derive(Clone, Debug)]
pub(super) struct Plot {
    /// Panels a row.
    pub(super) columns: usize,
    pub(super) panels: Vec<Panel>,
    /// What the looks mean.
    pub(super) legend: Vec<(Key, String)>,
}

/// What a line of the legend explains.
#[derive(Clone, Copy, Debug)]
pub(super) enum Key {
    Series(Look),
    Mark(Miss),
    Shade(Shade),
}

/// One pair of axes.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    /// Ranges of x that are shaded.
    pub(super) bands: Vec<(f64, f64, Shade)>,
    pub(super) series: Vec<Series>,
    /// Lines above the plot.
    pub(super) notes: Notes,
}

/// What a shaded range says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shade {
    /// Constants alone take so much.
    Constants,
    /// The largest op takes so much.
    Bottleneck,
}

/// A line of points.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) look: Look,
    /// In order of x. A line ends where a point is missed.
    pub(super) points: Vec<(f64, Point)>,
    pub(super) join: Join,
}

/// What is known at an x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Point {
    At(f64),
    Missed(Miss),
}

/// Why there is no point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// The budget cannot be met.
    Oom,
    /// The run was given up.
    Thrash,
}

impl Series {
    /// A line from point to point, in order of x.
    pub(super) fn of(look: Look, points: Vec<(f64, Point)>) -> Series {
        Series {
            look,
            points,
            join: Join::Straight,
        }
    }

    /// A line through all these points.
    pub(super) fn through(look: Look, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
        let at = |(x, y)| (x, Point::At(y));
        Series::of(look, points.into_iter().map(at).collect())
    }

    /// The values that there are.
    pub(super) fn values(&self) -> impl Iterator<Item = f64> + '_ {
        self.points.iter().filter_map(|&(_, point)| match point {
            Point::At(value) => Some(value),
            Point::Missed(_) => None,
        })
    }

    pub(super) fn misses(&self) -> impl Iterator<Item = (f64, Miss)> + '_ {
        self.points.iter().filter_map(|&(x, point)| match point {
            Point::At(_) => None,
            Point::Missed(miss) => Some((x, miss)),
        })
    }
}

/// Legend lines for the misses that occur.
pub(super) fn misses(panels: &[Panel]) -> Vec<(Key, String)> {
    let occurs = |miss| {
        let mut series = panels.iter().flat_map(|panel| &panel.series);
        series.any(|series| series.misses().any(|(_, other)| other == miss))
    };
    [
        (Miss::Oom, "budget cannot be met"),
        (Miss::Thrash, "given up: thrashing"),
    ]
    .into_iter()
    .filter(|&(miss, _)| occurs(miss))
    .map(|(miss, name)| (Key::Mark(miss), name.to_owned()))
    .collect()
}
