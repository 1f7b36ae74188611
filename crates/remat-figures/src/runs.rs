//! The runs that figures of logs are made of.

use super::csv::Csv;
use super::plot::{Miss, Point};
use super::titles;
use crate::arguments::{Deallocation, PoolOptions};
use crate::failure::Failure;
use crate::pool;
use crate::simulate::Log;
use indicatif::ProgressBar;
use remat_core::Policy;
use remat_sim::{sweep, Budget, Eviction, Job, Outcome, Setting, Status};
use std::ops::ControlFlow;

/// A run is given up once this many times the cost of the step was recomputed (the paper's "thrashing").
pub(super) const THRASH_LIMIT: f64 = 1.0;

/// A policy, by name, and what happens to what the program lets go of.
pub(super) type Way = (&'static str, Deallocation);

/// Logs, and a run of each in every way wanted and at every ratio.
pub(super) struct Runs<'a> {
    pub(super) logs: &'a [Log],
    /// What the logs are called in titles.
    pub(super) titles: Vec<String>,
    /// In ascending order.
    pub(super) ratios: &'a [f64],
    ways: Vec<Way>,
    in_arena: bool,
    /// By log and way, where its outcomes begin; none for selective recomputation of a step without attention.
    from: Vec<Option<usize>>,
    /// By ratio in turn.
    outcomes: Vec<Outcome>,
}

/// Columns of a row of [`Runs::row`].
const COLUMNS: [&str; 18] = [
    "log",
    "policy",
    "dealloc",
    "ratio",
    "budget_bytes",
    "status",
    "overhead",
    "clock_ns",
    "remat_cost_ns",
    "peak_bytes",
    "base_memory_bytes",
    "base_cost_ns",
    "const_bytes",
    "bottleneck_bytes",
    "evictions",
    "rematerializations",
    "score_evaluations",
    "metadata_accesses",
];

/// What a row has more of a run in an arena.
const ARENA_COLUMNS: [&str; 7] = [
    "shortages",
    "searches",
    "search_ns_mean",
    "fragmentation_mean",
    "fragmentation_max",
    "evicted_bytes",
    "unused_evicted_bytes",
];

/// The runs before they are run.
pub(super) struct Plan<'a> {
    logs: &'a [Log],
    ratios: &'a [f64],
    ways: Vec<Way>,
    /// Memory with addresses.
    arena: Option<PoolOptions>,
}

impl<'a> Plan<'a> {
    /// Each way once.
    pub(super) fn new(logs: &'a [Log], ratios: &'a [f64], wanted: &[Way]) -> Plan<'a> {
        let mut ways: Vec<Way> = Vec::new();
        for way in wanted {
            if !ways.contains(way) {
                ways.push(*way);
            }
        }
        Plan {
            logs,
            ratios,
            ways,
            arena: None,
        }
    }

    /// The same in an arena.
    pub(super) fn in_arena(self) -> Plan<'a> {
        Plan {
            arena: Some(PoolOptions::arena()),
            ..self
        }
    }

    /// The jobs, in the order in which [`done`](Self::done) wants their outcomes.
    pub(super) fn jobs(&self) -> Result<Vec<Job<'a>>, Failure> {
        let mut jobs = Vec::new();
        for log in self.logs {
            for &(policy, dealloc) in &self.ways {
                let policy = eviction(policy)?;
                if !applies(log, policy) {
                    continue;
                }
                let memory = match &self.arena {
                    Some(options) => pool::setting(options, policy),
                    None => Setting {
                        policy,
                        ..Setting::default()
                    },
                };
                jobs.extend(self.ratios.iter().map(|&ratio| Job {
                    program: &log.program,
                    base: &log.base,
                    setting: Setting {
                        dealloc: dealloc.into(),
                        budget: Budget::Ratio(ratio),
                        thrash_limit: THRASH_LIMIT,
                        seed: 0,
                        ..memory
                    },
                }));
            }
        }
        Ok(jobs)
    }

    pub(super) fn done(self, outcomes: Vec<Outcome>) -> Runs<'a> {
        let mut next = (0..).step_by(self.ratios.len());
        let from = self.logs.iter().flat_map(|log| {
            self.ways
                .iter()
                .map(|way| eviction(way.0).is_ok_and(|policy| applies(log, policy)))
        });
        Runs {
            from: from
                .map(|applies| applies.then(|| next.next()).flatten())
                .collect(),
            titles: titles::of(self.logs.iter().map(|log| log.name.as_str())),
            logs: self.logs,
            ratios: self.ratios,
            ways: self.ways,
            in_arena: self.arena.is_some(),
            outcomes,
        }
    }
}

/// Whether a step can be run so.
fn applies(log: &Log, policy: Eviction) -> bool {
    policy != Eviction::Selective || log.program.check_attention().is_ok()
}

/// What is evicted, by a name that this program gives itself.
fn eviction(name: &str) -> Result<Eviction, Failure> {
    name.parse()
        .map_err(|unknown: remat_sim::UnknownEviction| Failure::Input(unknown.to_string()))
}

/// A policy that this program names itself.
pub(super) fn named(policy: &str) -> Result<Policy, Failure> {
    policy
        .parse()
        .map_err(|unknown: remat_core::UnknownPolicy| Failure::Input(unknown.to_string()))
}

/// Runs jobs and counts them on the bar; outcomes come in the order of the jobs.
pub(super) fn perform(
    jobs: &[Job<'_>],
    threads: usize,
    bar: &ProgressBar,
) -> Result<Vec<Outcome>, Failure> {
    let mut outcomes = Vec::with_capacity(jobs.len());
    let ended = sweep(jobs, threads, |_, outcome| {
        bar.inc(1);
        match outcome {
            Ok(outcome) => {
                outcomes.push(outcome);
                ControlFlow::Continue(())
            }
            Err(unsound) => ControlFlow::Break(Failure::Input(unsound.to_string())),
        }
    });
    match ended {
        ControlFlow::Continue(()) => Ok(outcomes),
        ControlFlow::Break(failure) => Err(failure),
    }
}

impl Runs<'_> {
    /// The runs of a log in one way, with their ratios; none for a way that was not wanted or that the step does not allow.
    pub(super) fn of(&self, log: usize, way: Way) -> impl Iterator<Item = (f64, &Outcome)> {
        let each = self.ratios.len();
        let place = self.ways.iter().position(|other| *other == way);
        let runs = place.and_then(|place| {
            let from = self.from[log * self.ways.len() + place]?;
            self.outcomes.get(from..from + each)
        });
        let ratios = self.ratios.iter().copied();
        ratios.zip(runs.unwrap_or_default())
    }

    /// The points of a log's runs in one way.
    pub(super) fn points(
        &self,
        log: usize,
        way: Way,
        value: impl Fn(&Outcome) -> f64,
    ) -> Vec<(f64, Point)> {
        let point = |(ratio, outcome): (f64, &Outcome)| (ratio, point(outcome, &value));
        self.of(log, way).map(point).collect()
    }

    /// A table of all runs in these ways.
    pub(super) fn numbers(&self, ways: &[Way]) -> Csv {
        let more: &[&str] = if self.in_arena { &ARENA_COLUMNS } else { &[] };
        let mut csv = Csv::new(&[&COLUMNS, more].concat());
        for log in 0..self.logs.len() {
            for &way in ways {
                for (ratio, outcome) in self.of(log, way) {
                    csv.row(&self.row(log, way, ratio, outcome));
                }
            }
        }
        csv
    }

    fn row(&self, log: usize, way: Way, ratio: f64, outcome: &Outcome) -> Vec<String> {
        let (base, counters) = (&self.logs[log].base, &outcome.counters);
        let mut row = vec![
            self.logs[log].name.clone(),
            way.0.into(),
            way.1.name().into(),
            ratio.to_string(),
            outcome.budget.0.to_string(),
            outcome.status.to_string(),
            outcome.overhead(base).to_string(),
            outcome.clock.to_string(),
            counters.replayed_cost.0.to_string(),
            outcome.peak.0.to_string(),
            base.memory.0.to_string(),
            base.cost.0.to_string(),
            base.constants.0.to_string(),
            base.bottleneck.0.to_string(),
            counters.evictions.to_string(),
            counters.replays.to_string(),
            counters.score_evaluations.to_string(),
            counters.metadata_accesses.to_string(),
        ];
        if self.in_arena {
            let (mean, most) = outcome.fragmentation();
            row.extend([
                counters.shortages.to_string(),
                counters.searches.to_string(),
                outcome.search_latency().to_string(),
                mean.to_string(),
                most.to_string(),
                counters.evicted_bytes.to_string(),
                counters.unused_evicted_bytes.to_string(),
            ]);
        }
        row
    }
}

/// The value of a run that came to its end.
pub(super) fn point(outcome: &Outcome, value: impl Fn(&Outcome) -> f64) -> Point {
    match outcome.status {
        Status::Ok => Point::At(value(outcome)),
        Status::Oom => Point::Missed(Miss::Oom),
        Status::Thrash => Point::Missed(Miss::Thrash),
    }
}
