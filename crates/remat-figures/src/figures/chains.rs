//! Throughput against memory of chains, by strategy (Rotor, figures 6 to 8).

use crate::csv::Csv;
use crate::figure::{Axis, Entry, Figure, Join, Note, Notes, Panel, Point, Scale, Series, Value};
use crate::look::Look;
use remat_core::Bytes;
use remat_plan::chain::{self, overhead, Chain, Strategy};

/// A chain and its curves.
pub struct Planned<'a> {
    /// Name of its file.
    pub name: &'a str,
    /// Short name.
    pub title: String,
    /// The chain.
    pub chain: &'a Chain,
    /// Bytes of a step that keeps everything.
    pub everything: u64,
    /// By strategy, in the order in which they are listed.
    pub curves: Vec<Curve>,
}

/// Memory against time of a strategy.
pub struct Curve {
    /// The strategy.
    pub strategy: Strategy,
    /// Peaks rise, makespans fall, and the first peak is the smallest feasible budget; or why there are none.
    pub points: Result<Vec<chain::Point>, String>,
}

impl Curve {
    /// The smallest feasible budget, in bytes.
    pub fn smallest(&self) -> Option<u64> {
        Some(self.points.as_ref().ok()?.first()?.peak_bytes)
    }
}

/// The figure of all chains.
pub fn figure(chains: &[Planned]) -> Figure {
    Figure {
        name: "chains",
        title: "Throughput against memory of chains, by strategy",
        caption: "Each chain of stages within budgets, by how it is planned (Beaumont et al. 2024, figures 6 to 8): the throughput of \
            the best plan, 1 being that of a step that recomputes nothing, against the peak of its activations, gradients of \
            activations and workspace, as the planner counts them. A plan holds up to the next step of its line; on lines that \
            have many, not every plan has a marker. Where strategies have the same plans, one shows through the others. Above each \
            plot: the smallest budget in which each strategy has a plan, or why it is left out. Memory is planned in 500 slots of \
            what keeping everything takes, of a half of it, a quarter and so on; the smallest budgets are planned to the byte."
            .into(),
        columns: 2,
        panels: chains.iter().map(panel).collect(),
        legend: legend(chains),
        csv: table(chains),
    }
}

fn legend(chains: &[Planned]) -> Vec<Entry> {
    let mut drawn: Vec<Strategy> = Vec::new();
    for curve in chains.iter().flat_map(|planned| &planned.curves) {
        if curve.points.is_ok() && !drawn.contains(&curve.strategy) {
            drawn.push(curve.strategy);
        }
    }
    let key = |strategy: Strategy| Entry::series(strategy.to_string(), Look::of_strategy(strategy));
    drawn.into_iter().map(key).collect()
}

/// A unit that bytes are counted in.
struct Unit(&'static str, u64);

impl Unit {
    /// The largest unit of which there is one, or bytes.
    fn of(bytes: u64) -> Unit {
        let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        let fits = units.into_iter().find(|(_, shift)| bytes >> shift > 0);
        fits.map_or(Unit("bytes", 1), |(name, shift)| Unit(name, 1 << shift))
    }

    fn count(&self, bytes: u64) -> f64 {
        bytes as f64 / self.1 as f64
    }
}

fn panel(planned: &Planned) -> Panel {
    let points = planned
        .curves
        .iter()
        .flat_map(|curve| curve.points.iter())
        .flatten();
    let peaks: Vec<u64> = points.map(|point| point.peak_bytes).collect();
    let least = peaks.iter().min().copied().unwrap_or(planned.everything);
    // The geometric mean.
    let unit = Unit::of((least as f64 * planned.everything as f64).sqrt() as u64);
    let series: Vec<Series> = planned
        .curves
        .iter()
        .map(|curve| line(planned.chain, curve, &unit))
        .collect();
    let lowest = series.iter().flat_map(Series::values).fold(1.0, f64::min);
    let x = Axis::around(
        format!("peak memory ({})", unit.0),
        peaks.iter().map(|&bytes| unit.count(bytes)),
        Scale::Log,
    );
    let y = Axis::over(
        "throughput (1: nothing recomputed)",
        (lowest - 0.05).max(0.0),
        1.03,
        Scale::Linear,
    );
    let stages = match planned.chain.len() {
        1 => "1 stage".into(),
        more => format!("{more} stages"),
    };
    let lines = planned
        .curves
        .iter()
        .map(|curve| note(curve, &unit))
        .collect();
    Panel {
        notes: Notes {
            heading: "smallest feasible budget",
            lines,
        },
        ..Panel::new(format!("{} ({stages})", planned.title), x, y, series)
    }
}

fn line(chain: &Chain, curve: &Curve, unit: &Unit) -> Series {
    let point = |point: &chain::Point| Point {
        x: unit.count(point.peak_bytes),
        y: Value::At(throughput(chain, point.makespan)),
        told: format!(
            "peak {} bytes, makespan {:.4}",
            point.peak_bytes, point.makespan
        ),
    };
    let points = curve.points.iter().flatten().map(point).collect();
    Series {
        join: Join::Stairs,
        ..Series::of(
            curve.strategy.to_string(),
            Look::of_strategy(curve.strategy),
            points,
        )
    }
}

fn note(curve: &Curve, unit: &Unit) -> Note {
    let smallest = curve.smallest();
    Note {
        name: curve.strategy.to_string(),
        look: Look::of_strategy(curve.strategy),
        at: smallest.map(|bytes| unit.count(bytes)),
        text: smallest.map_or("left out".into(), |bytes| Bytes(bytes).to_string()),
    }
}

/// Steps in the time of one step that recomputes nothing.
fn throughput(chain: &Chain, makespan: f64) -> f64 {
    1.0 / overhead(chain, makespan)
}

fn table(chains: &[Planned]) -> Csv {
    let names = [
        "chain",
        "stages",
        "strategy",
        "status",
        "smallest_bytes",
        "budget_bytes",
        "makespan",
        "overhead",
        "throughput",
    ];
    let mut csv = Csv::new(&names);
    for planned in chains {
        let chain = planned.chain;
        for curve in &planned.curves {
            let smallest = curve
                .smallest()
                .map_or(String::new(), |bytes| bytes.to_string());
            let mut row = |status: &str, numbers: [String; 4]| {
                let beginning = [
                    planned.name,
                    &chain.len().to_string(),
                    &curve.strategy.to_string(),
                    status,
                    &smallest,
                ];
                let cells = beginning.map(str::to_owned).into_iter().chain(numbers);
                csv.row(&cells.collect::<Vec<_>>());
            };
            match &curve.points {
                Ok(points) => points.iter().for_each(|point| {
                    let makespan = point.makespan;
                    let numbers = [
                        makespan,
                        overhead(chain, makespan),
                        throughput(chain, makespan),
                    ];
                    let [makespan, overhead, throughput] = numbers.map(|number| number.to_string());
                    row(
                        "ok",
                        [point.peak_bytes.to_string(), makespan, overhead, throughput],
                    );
                }),
                Err(reason) => row(&format!("left out: {reason}"), Default::default()),
            }
        }
    }
    csv
}
