//! Chains, by strategy: throughput against memory (Rotor, figures 6 to 8), and planning time against length (figure
//! 5).

use crate::csv::Csv;
use crate::figure::Figure;
use remat_plan::chain::{Chain, Growth, PARTS, Point, Strategy, overhead};

/// A chain and its curves.
pub struct Planned<'a> {
    /// Name of its file.
    pub name: &'a str,
    /// The chain.
    pub chain: &'a Chain,
    /// By strategy, in the order in which they are listed.
    pub curves: Vec<Curve>,
}

/// Memory against time of a strategy.
pub struct Curve {
    /// The strategy.
    pub strategy: Strategy,
    /// Peaks rise, makespans fall, and the first peak is the smallest feasible budget; or why there are none.
    pub points: Result<Vec<Point>, String>,
}

impl Curve {
    /// The smallest feasible budget, in bytes.
    pub fn smallest(&self) -> Option<u64> {
        Some(self.points.as_ref().ok()?.first()?.peak_bytes)
    }
}

/// The figure of chains: a row a point.
pub fn figure(chains: &[Planned]) -> Figure {
    let mut csv = Csv::new([
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
            rows(planned, curve, &mut csv);
        }
    }
    Figure::new("chains", csv)
}

fn rows(planned: &Planned, curve: &Curve, csv: &mut Csv) {
    let smallest = curve
        .smallest()
        .map_or(String::new(), |bytes| bytes.to_string());
    let mut row = |status: String, numbers: [String; 4]| {
        let stages = planned.chain.len().to_string();
        let strategy = curve.strategy.to_string();
        let about = [
            planned.name.into(),
            stages,
            strategy,
            status,
            smallest.clone(),
        ];
        csv.row(about.into_iter().chain(numbers));
    };
    match &curve.points {
        Ok(points) => points.iter().for_each(|point| {
            let over = overhead(planned.chain, point.makespan);
            let peak = point.peak_bytes.to_string();
            let [makespan, over, throughput] =
                [point.makespan, over, 1.0 / over].map(|number| number.to_string());
            row("ok".into(), [peak, makespan, over, throughput]);
        }),
        Err(reason) => row(format!("left out: {reason}"), Default::default()),
    }
}

/// The figure of strategies, each timed for at most `limit` seconds: a row a plan.
pub fn growth(growths: &[Growth], limit: f64) -> Figure {
    let names = [
        "strategy",
        "stages",
        "budget_part",
        "budget_bytes",
        "seconds",
        "slope",
    ];
    let mut csv = Csv::new(names);
    for growth in growths {
        let slope = growth
            .slope()
            .map_or(String::new(), |slope| slope.to_string());
        for timing in &growth.timings {
            for (part, (budget, seconds)) in PARTS.iter().zip(timing.runs) {
                let numbers = [timing.stages as f64, *part, budget as f64, seconds];
                let numbers = numbers.map(|number| number.to_string());
                let strategy = [growth.strategy.to_string()];
                csv.row(strategy.into_iter().chain(numbers).chain([slope.clone()]));
            }
        }
    }
    Figure::new("growth", csv).told("limit", limit)
}
