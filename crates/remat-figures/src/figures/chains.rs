//! Throughput against memory of chains, by strategy (Rotor, figures 6 to 8).

use super::axis::{Axis, Scale};
use super::csv::Csv;
use super::curves::{Curve, Planned};
use super::join::Join;
use super::memory::Unit;
use super::notes::{Note, Notes};
use super::plot::{Key, Panel, Plot, Point, Series};
use super::sheet::{Drawing, Sheet};
use super::style::Look;
use remat_core::Bytes;
use remat_plan::chain::{overhead, Chain, Strategy};

/// The figure of all chains.
pub(super) fn sheet(chains: &[Planned<'_>]) -> Sheet {
    Sheet {
        name: "chains",
        title: "Throughput against memory of chains, by strategy",
        caption: "Each chain of stages within budgets, by how it is planned (Beaumont et al. 2024, figures 6 to 8): the throughput of \
            the best plan, 1 being that of a step that recomputes nothing, against the peak of its activations, gradients of \
            activations and workspace, as the planner counts them. A plan holds up to the next step of its line; on lines that \
            have many, not every plan has a marker. Where strategies have the same plans, one shows through the others. Above each \
            plot: the smallest budget in which each strategy has a plan, or why it is left out. Memory is planned in 500 slots of \
            what keeping everything takes, of a half of it, a quarter and so on; the smallest budgets are planned to the byte."
            .into(),
        drawing: Drawing::Plot(Plot {
            columns: 2,
            panels: chains.iter().map(panel).collect(),
            legend: legend(chains),
        }),
        numbers: numbers(chains),
    }
}

fn legend(chains: &[Planned<'_>]) -> Vec<(Key, String)> {
    let curves = chains.iter().flat_map(|planned| &planned.curves);
    let mut drawn: Vec<Strategy> = Vec::new();
    for curve in curves.filter(|curve| curve.points.is_ok()) {
        if !drawn.contains(&curve.strategy) {
            drawn.push(curve.strategy);
        }
    }
    let key = |strategy: Strategy| {
        (
            Key::Series(Look::of_strategy(strategy)),
            strategy.to_string(),
        )
    };
    drawn.into_iter().map(key).collect()
}

fn panel(planned: &Planned<'_>) -> Panel {
    let peaks = || {
        let points = planned.curves.iter().flat_map(|curve| curve.points.iter());
        points.flatten().map(|point| point.peak_bytes)
    };
    let least = peaks().min().unwrap_or(planned.everything);
    let unit = Unit::of(middle(least, planned.everything));
    let series: Vec<Series> = planned
        .curves
        .iter()
        .map(|curve| line(planned.chain, curve, unit))
        .collect();
    let lowest = series.iter().flat_map(Series::values).fold(1.0, f64::min);
    Panel {
        title: format!("{} ({})", planned.title, stages(planned.chain)),
        x: unit.axis("peak memory", peaks()),
        y: Axis::over(
            "throughput (1: nothing recomputed)",
            (lowest - 0.05).max(0.0),
            1.03,
            Scale::Linear,
        ),
        bands: Vec::new(),
        notes: notes(planned, unit),
        series,
    }
}

fn stages(chain: &Chain) -> String {
    match chain.len() {
        1 => "1 stage".into(),
        more => format!("{more} stages"),
    }
}

/// The geometric mean.
fn middle(a: u64, b: u64) -> u64 {
    (a as f64 * b as f64).sqrt() as u64
}

fn line(chain: &Chain, curve: &Curve, unit: Unit) -> Series {
    let points = curve.points.iter().flatten().map(|point| {
        let throughput = Point::At(throughput(chain, point.makespan));
        (unit.count(point.peak_bytes), throughput)
    });
    Series {
        join: Join::Stairs,
        ..Series::of(Look::of_strategy(curve.strategy), points.collect())
    }
}

/// Steps in the time that one takes which recomputes nothing.
fn throughput(chain: &Chain, makespan: f64) -> f64 {
    1.0 / overhead(chain, makespan)
}

fn notes(planned: &Planned<'_>, unit: Unit) -> Notes {
    let note = |curve: &Curve| {
        let smallest = curve.smallest();
        Note {
            look: Look::of_strategy(curve.strategy),
            name: curve.strategy.to_string(),
            at: smallest.map(|bytes| unit.count(bytes)),
            text: smallest.map_or("left out".into(), |bytes| Bytes(bytes).to_string()),
        }
    };
    Notes {
        heading: "smallest feasible budget",
        lines: planned.curves.iter().map(note).collect(),
    }
}

fn numbers(chains: &[Planned<'_>]) -> Csv {
    let mut csv = Csv::new(&[
        "chain",
        "stages",
        "strategy",
        "status",
        "smallest_bytes",
        "budget_bytes",
        "makespan",
        "overhead",
        "throughput",
    ]);
    for planned in chains {
        for curve in &planned.curves {
            rows(planned, curve).iter().for_each(|row| csv.row(row));
        }
    }
    csv
}

fn rows(planned: &Planned<'_>, curve: &Curve) -> Vec<[String; 9]> {
    let chain = planned.chain;
    let smallest = curve
        .smallest()
        .map_or(String::new(), |bytes| bytes.to_string());
    let row = |status: &str, numbers: [String; 4]| {
        let [budget, makespan, overhead, throughput] = numbers;
        [
            planned.name.to_owned(),
            chain.len().to_string(),
            curve.strategy.to_string(),
            status.to_owned(),
            smallest.clone(),
            budget,
            makespan,
            overhead,
            throughput,
        ]
    };
    match &curve.points {
        Ok(points) => points
            .iter()
            .map(|point| {
                let numbers = [
                    point.makespan,
                    overhead(chain, point.makespan),
                    throughput(chain, point.makespan),
                ]
                .map(|number| number.to_string());
                let [makespan, overhead, throughput] = numbers;
                row(
                    "ok",
                    [point.peak_bytes.to_string(), makespan, overhead, throughput],
                )
            })
            .collect(),
        Err(reason) => vec![row(&format!("left out: {reason}"), Default::default())],
    }
}
