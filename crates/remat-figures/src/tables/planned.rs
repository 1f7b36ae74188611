//! Planned steps beside eviction policies, and the bound below both (DTR figure 3 compares with planned steps so).

use super::steps::eager;
use crate::csv::Csv;
use crate::figure::Figure;
use crate::runs::{Runs, Step};
use remat_core::Bytes;
use remat_sim::{Outcome, Status, UnknownEviction};

/// The policies that plans are compared with.
const ONLINE: &str = "dtr dtr-eq dtr-anc lru";

/// A recorded step, planned within budgets.
pub struct Planned<'a> {
    /// The step.
    pub step: Step<'a>,
    /// The outcome of each budget.
    pub points: Vec<Point>,
}

/// A plan within a budget, run in the engine.
pub struct Point {
    /// The budget as a part of the memory without a limit.
    pub ratio: f64,
    /// The budget in bytes.
    pub budget: Bytes,
    /// The run; `None` if no plan was found.
    pub found: Option<Found>,
}

/// The run of a plan.
pub struct Found {
    /// The run.
    pub outcome: Outcome,
    /// Nanoseconds that every schedule within the budget takes at least whose first runs are in program order.
    pub bound_ns: u64,
}

/// A line of the table.
struct Row<'a> {
    step: Step<'a>,
    series: String,
    ratio: f64,
    budget: Bytes,
    status: Status,
    overhead: Option<f64>,
    outcome: Option<&'a Outcome>,
}

/// The figure of policies, plans and bounds against the budget.
pub fn figure(online: &Runs, planned: &[Planned]) -> Result<Figure, UnknownEviction> {
    let mut csv = Csv::new([
        "log",
        "policy",
        "ratio",
        "budget_bytes",
        "status",
        "overhead",
        "remat_cost_ns",
        "peak_bytes",
        "base_memory_bytes",
        "base_cost_ns",
        "const_bytes",
        "bottleneck_bytes",
        "evictions",
        "rematerializations",
    ]);
    for (step, way, ratio, outcome) in online.performed(&eager(ONLINE)?) {
        Row {
            series: way.0.to_string(),
            ..Row::of(step, ratio, outcome)
        }
        .write(&mut csv);
    }
    for Planned { step, points } in planned {
        for point in points {
            Row::of_plan(*step, point).write(&mut csv);
        }
        for point in points {
            if let Some(row) = Row::of_bound(*step, point) {
                row.write(&mut csv);
            }
        }
    }
    Ok(Figure::new("planned", csv))
}

impl<'a> Row<'a> {
    fn of(step: Step<'a>, ratio: f64, outcome: &'a Outcome) -> Row<'a> {
        Row {
            step,
            series: String::new(),
            ratio,
            budget: outcome.budget,
            status: outcome.status,
            overhead: Some(outcome.overhead(step.base)),
            outcome: Some(outcome),
        }
    }

    fn of_plan(step: Step<'a>, point: &'a Point) -> Row<'a> {
        let found = point.found.as_ref().map(|found| &found.outcome);
        Row {
            step,
            series: "plan".into(),
            ratio: point.ratio,
            budget: point.budget,
            status: found.map_or(Status::Oom, |outcome| outcome.status),
            overhead: found.map(|outcome| outcome.overhead(step.base)),
            outcome: found,
        }
    }

    fn of_bound(step: Step<'a>, point: &'a Point) -> Option<Row<'a>> {
        let found = point.found.as_ref()?;
        let cost = step.base.cost.0.max(1) as f64;
        Some(Row {
            step,
            series: "bound".into(),
            ratio: point.ratio,
            budget: point.budget,
            status: Status::Ok,
            overhead: Some(found.bound_ns as f64 / cost),
            outcome: None,
        })
    }

    fn write(&self, csv: &mut Csv) {
        let base = self.step.base;
        let of = |value: fn(&Outcome) -> u64| {
            let value = self.outcome.map(value);
            value.map_or(String::new(), |value| value.to_string())
        };
        csv.row([
            self.step.name.into(),
            self.series.clone(),
            self.ratio.to_string(),
            self.budget.0.to_string(),
            self.status.to_string(),
            self.overhead
                .map_or(String::new(), |overhead| overhead.to_string()),
            of(|outcome| outcome.counters.replayed_cost.0),
            of(|outcome| outcome.peak.0),
            base.memory.0.to_string(),
            base.cost.0.to_string(),
            base.constants.0.to_string(),
            base.bottleneck.0.to_string(),
            of(|outcome| outcome.counters.evictions),
            of(|outcome| outcome.counters.replays),
        ]);
    }
}
