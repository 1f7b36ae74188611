//! Planning time against the length of the chain (Rotor, figure 5).

use crate::csv::Csv;
use crate::figure::{Axis, Entry, Figure, Panel, Point, Scale, Series, Value};
use crate::look::Look;
use remat_plan::chain::Strategy;

/// Budgets, in parts of what keeping everything takes.
pub const PARTS: [f64; 3] = [1.0 / 3.0, 1.0 / 2.0, 2.0 / 3.0];

/// The time that planning a chain took.
pub struct Timing {
    /// Stages of the chain.
    pub stages: usize,
    /// Budgets in bytes and seconds for a plan, by [`PARTS`].
    pub runs: [(u64, f64); PARTS.len()],
}

impl Timing {
    /// The seconds of its plans, in order: the shortest, the median, the longest.
    pub fn seconds(&self) -> [f64; PARTS.len()] {
        let mut seconds = self.runs.map(|(_, seconds)| seconds);
        seconds.sort_by(f64::total_cmp);
        seconds
    }
}

/// A strategy on chains of rising length.
pub struct Growth {
    /// The strategy.
    pub strategy: Strategy,
    /// By length.
    pub timings: Vec<Timing>,
}

impl Growth {
    /// The power of the length that planning time grows with: the slope of the straight line through the logarithms of the longer
    /// half of the lengths, by least squares; `None` of fewer than two lengths.
    pub fn slope(&self) -> Option<f64> {
        let log = |timing: &Timing| {
            let [_, median, _] = timing.seconds();
            ((timing.stages as f64).ln(), median.max(1e-9).ln())
        };
        let logs: Vec<(f64, f64)> = self.timings[self.timings.len() / 2..]
            .iter()
            .map(log)
            .collect();
        let count = logs.len() as f64;
        let mean_x = logs.iter().map(|(x, _)| x).sum::<f64>() / count;
        let mean_y = logs.iter().map(|(_, y)| y).sum::<f64>() / count;
        let spread: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        let common: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
        (logs.len() > 1).then_some(common / spread)
    }
}

/// The figure of strategies, each timed for at most `limit` seconds.
pub fn figure(growths: &[Growth], limit: f64) -> Figure {
    let series: Vec<Series> = growths.iter().flat_map(lines).collect();
    let lengths = growths.iter().flat_map(|growth| &growth.timings);
    let x = Axis::around(
        "stages L",
        lengths.map(|timing| timing.stages as f64),
        Scale::Log,
    );
    let y = Axis::around(
        "planning time (s)",
        series.iter().flat_map(Series::values),
        Scale::Log,
    );
    Figure {
        name: "growth",
        title: "Planning time against the length of the chain",
        caption: format!(
            "Seconds to make one plan, tables and sequence, on one core (Beaumont et al. 2024, figure 5): synthetic chains in the form \
             of a deep residual network, 500 slots, budgets of a third, a half and two thirds of what keeping everything takes. \
             Points are medians over the budgets, bars reach from the shortest to the longest. L to the power that is given is the \
             straight line through the longer half of the points, by least squares on the logarithms. A strategy is not tried on \
             lengths that might make it spend more than {limit} s in all."
        ),
        columns: 1,
        panels: vec![Panel::new("time to plan a chain of L stages", x, y, series)],
        legend: growths.iter().map(|growth| Entry::series(name(growth), Look::of_strategy(growth.strategy))).collect(),
        csv: table(growths),
    }
}

fn name(growth: &Growth) -> String {
    let power = growth
        .slope()
        .map(|slope| format!(", about L to the power {slope:.1}"));
    format!("{}{}", growth.strategy, power.unwrap_or_default())
}

/// The medians, and a bar for each of them.
fn lines(growth: &Growth) -> Vec<Series> {
    let look = Look::of_strategy(growth.strategy);
    let medians = growth.timings.iter().map(|timing| {
        let [least, median, most] = timing.seconds();
        let told = format!("{least:.2e} to {most:.2e} s over the budgets");
        Point {
            x: timing.stages as f64,
            y: Value::At(median),
            told,
        }
    });
    let bars = growth.timings.iter().map(|timing| {
        let ([least, _, most], at) = (timing.seconds(), timing.stages as f64);
        Series::through(name(growth), look.unmarked(), [(at, least), (at, most)])
    });
    bars.chain([Series::of(name(growth), look, medians.collect())])
        .collect()
}

fn table(growths: &[Growth]) -> Csv {
    let mut csv = Csv::new(&[
        "strategy",
        "stages",
        "budget_part",
        "budget_bytes",
        "seconds",
        "slope",
    ]);
    for growth in growths {
        let slope = growth
            .slope()
            .map_or(String::new(), |slope| slope.to_string());
        for timing in &growth.timings {
            for (part, (budget, seconds)) in PARTS.iter().zip(timing.runs) {
                csv.row(&[
                    growth.strategy.to_string(),
                    timing.stages.to_string(),
                    part.to_string(),
                    budget.to_string(),
                    seconds.to_string(),
                    slope.clone(),
                ]);
            }
        }
    }
    csv
}
