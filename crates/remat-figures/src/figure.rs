//! Figures as data: panels of series over two axes, one legend for all of them, and the numbers behind them.

use crate::csv::Csv;
use crate::look::Look;
use serde::Serialize;

/// A figure, ready to be drawn.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Name of its files, without the ending.
    pub name: &'static str,
    /// Heading on the page.
    pub title: &'static str,
    /// Explanation on the page.
    pub caption: String,
    /// Panels a row, where there is room.
    pub columns: usize,
    /// Plots, from left to right, then downwards.
    pub panels: Vec<Panel>,
    /// Legend below the panels.
    pub legend: Vec<Entry>,
    /// The numbers behind the figure.
    pub csv: Csv,
}

/// A line of the legend; it stands for all series, marks or shades of its name.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// The name that is shown.
    pub name: String,
    /// The drawing beside it.
    pub key: Key,
}

/// The drawing beside a name in the legend.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Key {
    /// A line with a marker.
    Series(Look),
    /// The mark of a run without a value.
    Miss(Miss),
    /// A shaded range.
    Shade(Shade),
}

/// One pair of axes.
#[derive(Clone, Debug, Serialize)]
pub struct Panel {
    /// Heading above the panel.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Ranges of x that are shaded, from 0 up to a value.
    pub bands: Vec<(f64, Shade)>,
    /// Lines of points.
    pub series: Vec<Series>,
    /// Remarks above the plot.
    pub notes: Notes,
    /// Bars of a map.
    pub spans: Vec<Span>,
    /// An x that divides the plot, and a text for it.
    pub rule: Option<(f64, String)>,
}

/// An axis over a range of values.
#[derive(Clone, Debug, Serialize)]
pub struct Axis {
    label: String,
    from: f64,
    to: f64,
    scale: Scale,
}

/// The map from values to places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Scale {
    Linear,
    Log,
}

/// The meaning of a shaded range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shade {
    /// Constants alone take so much.
    Constants,
    /// The largest op takes so much.
    Bottleneck,
}

/// A line of points.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Name in the legend and under the pointer.
    pub name: String,
    /// Colour, marker and stroke.
    pub look: Look,
    /// The line between two points.
    pub join: Join,
    /// In order of x. A line ends where a point has no value.
    pub points: Vec<Point>,
}

/// The line between two points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Join {
    /// Straight, each point with a marker.
    Straight,
    /// The value of a point up to the next one; crowded points go without a marker.
    Stairs,
}

/// A point of a series.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Place on the horizontal axis.
    pub x: f64,
    /// Place on the vertical axis.
    pub y: Value,
    /// Lines shown under the pointer, beside name and place.
    pub told: String,
}

/// A point's value, or why it has none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A value. One that is not finite is not drawn.
    At(f64),
    /// No value.
    Missed(Miss),
}

/// The reason why a run has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Miss {
    /// The budget cannot be met.
    Oom,
    /// The run was given up: it recomputed too much.
    Thrash,
}

/// Remarks above a plot: a heading and a line for each of some series.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Notes {
    /// Heading of the lines.
    pub heading: &'static str,
    /// From above.
    pub lines: Vec<Note>,
}

/// A remark on a series.
#[derive(Clone, Debug, Serialize)]
pub struct Note {
    /// The series.
    pub name: String,
    /// Its look.
    pub look: Look,
    /// The place on the x axis that the remark is about, if any.
    pub at: Option<f64>,
    /// The remark.
    pub text: String,
}

/// A bar of a map: a row, and from which column up to which.
#[derive(Clone, Debug, Serialize)]
pub struct Span {
    /// The legend's name for it.
    pub name: &'static str,
    /// The row, from 0.
    pub row: usize,
    /// First column.
    pub from: usize,
    /// The column after the last.
    pub to: usize,
}

impl Entry {
    /// An entry for a series.
    pub fn series(name: impl Into<String>, look: Look) -> Entry {
        Entry {
            name: name.into(),
            key: Key::Series(look),
        }
    }

    /// Entries for the misses that occur.
    pub fn misses(panels: &[Panel]) -> impl Iterator<Item = Entry> + '_ {
        let occurs = |miss| {
            let mut points = panels
                .iter()
                .flat_map(|panel| &panel.series)
                .flat_map(|series| &series.points);
            points.any(|point| point.y == Value::Missed(miss))
        };
        let all = [
            (Miss::Oom, "budget cannot be met"),
            (Miss::Thrash, "given up: thrashing"),
        ];
        let occurring = all.into_iter().filter(move |&(miss, _)| occurs(miss));
        occurring.map(|(miss, name)| Entry {
            name: name.into(),
            key: Key::Miss(miss),
        })
    }
}

impl Panel {
    /// A panel of series.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis, series: Vec<Series>) -> Panel {
        Panel {
            title: title.into(),
            x,
            y,
            series,
            bands: Vec::new(),
            notes: Notes::default(),
            spans: Vec::new(),
            rule: None,
        }
    }
}

impl Series {
    /// A straight line through points.
    pub fn of(name: impl Into<String>, look: Look, points: Vec<Point>) -> Series {
        Series {
            name: name.into(),
            look,
            join: Join::Straight,
            points,
        }
    }

    /// A straight line through places.
    pub fn through(
        name: impl Into<String>,
        look: Look,
        places: impl IntoIterator<Item = (f64, f64)>,
    ) -> Series {
        let at = |(x, y)| Point {
            x,
            y: Value::At(y),
            told: String::new(),
        };
        Series::of(name, look, places.into_iter().map(at).collect())
    }

    /// The values that there are.
    pub fn values(&self) -> impl Iterator<Item = f64> + '_ {
        self.points.iter().filter_map(|point| match point.y {
            Value::At(value) => Some(value),
            Value::Missed(_) => None,
        })
    }
}

impl Axis {
    /// An axis over exactly this range; one without a width is given some.
    pub fn over(label: impl Into<String>, from: f64, to: f64, scale: Scale) -> Axis {
        let least = if scale == Scale::Log {
            f64::MIN_POSITIVE
        } else {
            f64::NEG_INFINITY
        };
        let from = from.max(least);
        let to = if to > from {
            to
        } else {
            from + from.abs().max(1.0)
        };
        Axis {
            label: label.into(),
            from,
            to,
            scale,
        }
    }

    /// An axis that holds all these values with a little air; of a log axis those above 0.
    pub fn around(
        label: impl Into<String>,
        values: impl IntoIterator<Item = f64>,
        scale: Scale,
    ) -> Axis {
        let fits = |value: &f64| value.is_finite() && (scale == Scale::Linear || *value > 0.0);
        let (mut from, mut to) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.into_iter().filter(fits) {
            (from, to) = (from.min(value), to.max(value));
        }
        if from > to {
            (from, to) = (1.0, 10.0);
        }
        match scale {
            Scale::Log => Axis::over(label, from / 1.3, to * 1.3, scale),
            Scale::Linear => {
                let air = (to - from) * 0.04;
                Axis::over(label, from - air, to + air, scale)
            }
        }
    }
}
