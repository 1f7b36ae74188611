//! Planning time against the length of the chain (Rotor, figure 5).

use super::axis::{Axis, Scale};
use super::csv::Csv;
use super::notes::Notes;
use super::plot::{Key, Panel, Plot, Series};
use super::sheet::{Drawing, Sheet};
use super::style::{Look, Marker};
use super::timing::{Growth, PARTS};
use crate::failure::Failure;
use remat_plan::chain::Strategy;

const STRATEGIES: [Strategy; 2] = [Strategy::Persistent, Strategy::Floating];

/// Times planning, each strategy for at most so many seconds.
pub(super) fn sheet(limit: f64) -> Result<Sheet, Failure> {
    let growths = STRATEGIES
        .into_iter()
        .map(|strategy| Growth::measure(strategy, limit))
        .collect::<Result<Vec<Growth>, Failure>>()?;
    Ok(Sheet {
        name: "growth",
        title: "Planning time against the length of the chain",
        caption: format!(
            "Seconds to make one plan, tables and sequence, on one core (Beaumont et al. 2024, figure 5): synthetic chains in the form \
             of a deep residual network, 500 slots, budgets of a third, a half and two thirds of what keeping everything takes. \
             Points are medians over the budgets, bars reach from the shortest to the longest. L to the power that is given is the \
             straight line through the longer half of the points, by least squares on the logarithms. A strategy is not tried on \
             lengths that might make it spend more than {limit} s in all."
        ),
        drawing: Drawing::Plot(plot(&growths)),
        numbers: numbers(&growths),
    })
}

fn plot(growths: &[Growth]) -> Plot {
    let series: Vec<Series> = growths.iter().flat_map(lines).collect();
    let lengths = growths.iter().flat_map(|growth| &growth.timings);
    let panel = Panel {
        title: "time to plan a chain of L stages".into(),
        x: Axis::around(
            "stages L",
            lengths.map(|timing| timing.stages as f64),
            Scale::Log,
        ),
        y: Axis::around(
            "planning time (s)",
            series.iter().flat_map(Series::values),
            Scale::Log,
        ),
        bands: Vec::new(),
        series,
        notes: Notes::default(),
    };
    Plot {
        columns: 1,
        panels: vec![panel],
        legend: growths.iter().map(key).collect(),
    }
}

/// The medians, and a bar for each of them.
fn lines(growth: &Growth) -> Vec<Series> {
    let look = Look::of_strategy(growth.strategy);
    let bar = Look {
        marker: Marker::None,
        ..look
    };
    let medians = growth.timings.iter().map(|timing| {
        let [_, median, _] = timing.seconds();
        (timing.stages as f64, median)
    });
    let bars = growth.timings.iter().map(|timing| {
        let ([least, _, most], at) = (timing.seconds(), timing.stages as f64);
        Series::through(bar, [(at, least), (at, most)])
    });
    bars.chain([Series::through(look, medians)]).collect()
}

fn key(growth: &Growth) -> (Key, String) {
    let slope = growth.slope();
    let power = slope.map_or(String::new(), |slope| {
        format!(", about L to the power {slope:.1}")
    });
    let look = Look::of_strategy(growth.strategy);
    (Key::Series(look), format!("{}{power}", growth.strategy))
}

fn numbers(growths: &[Growth]) -> Csv {
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
