//! The runs of recorded steps that figures are made of.

use crate::csv::Csv;
use crate::figure::{Miss, Point, Value};
use crate::titles;
use remat_core::{Bytes, Dealloc};
use remat_sim::{Base, Budget, Eviction, Job, Outcome, Program, Setting, Status, UnknownEviction};

/// A run is given up once this many times the cost of the step was recomputed (the paper's "thrashing").
const THRASH_LIMIT: f64 = 1.0;

/// A recorded step.
#[derive(Clone, Copy)]
pub struct Step<'a> {
    /// Name of its file.
    pub name: &'a str,
    /// Its ops.
    pub program: &'a Program,
    /// Its run without a limit.
    pub base: &'a Base,
}

/// A policy's name, and what happens to a tensor that the program lets go of.
pub(crate) type Way = (&'static str, Dealloc);

/// Steps, and a run of each in every way wanted and at every ratio.
pub struct Runs<'a> {
    pub(crate) steps: Vec<Step<'a>>,
    pub(crate) titles: Vec<String>,
    /// In ascending order.
    pub(crate) ratios: Vec<f64>,
    ways: Vec<Way>,
    memory: Memory,
    /// By step, way and ratio; empty where a step cannot be run in a way.
    outcomes: Vec<Vec<Outcome>>,
}

/// What a budget is: a count of bytes, or an arena with addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Counted,
    Arena,
}

/// A row of the table of runs.
struct Row<'a> {
    step: Step<'a>,
    way: Way,
    ratio: f64,
    outcome: &'a Outcome,
}

type Column = (&'static str, fn(&Row) -> String);

const COLUMNS: [Column; 18] = [
    ("log", |row| row.step.name.into()),
    ("policy", |row| row.way.0.into()),
    ("dealloc", |row| dealloc(row.way.1).into()),
    ("ratio", |row| row.ratio.to_string()),
    ("budget_bytes", |row| row.outcome.budget.0.to_string()),
    ("status", |row| row.outcome.status.to_string()),
    ("overhead", |row| {
        row.outcome.overhead(row.step.base).to_string()
    }),
    ("clock_ns", |row| row.outcome.clock.to_string()),
    ("remat_cost_ns", |row| {
        row.outcome.counters.replayed_cost.0.to_string()
    }),
    ("peak_bytes", |row| row.outcome.peak.0.to_string()),
    ("base_memory_bytes", |row| {
        row.step.base.memory.0.to_string()
    }),
    ("base_cost_ns", |row| row.step.base.cost.0.to_string()),
    ("const_bytes", |row| row.step.base.constants.0.to_string()),
    ("bottleneck_bytes", |row| {
        row.step.base.bottleneck.0.to_string()
    }),
    ("evictions", |row| {
        row.outcome.counters.evictions.to_string()
    }),
    ("rematerializations", |row| {
        row.outcome.counters.replays.to_string()
    }),
    ("score_evaluations", |row| {
        row.outcome.counters.score_evaluations.to_string()
    }),
    ("metadata_accesses", |row| {
        row.outcome.counters.metadata_accesses.to_string()
    }),
];

/// Columns of a run in an arena, beside the others.
const ARENA_COLUMNS: [Column; 7] = [
    ("shortages", |row| {
        row.outcome.counters.shortages.to_string()
    }),
    ("searches", |row| row.outcome.counters.searches.to_string()),
    ("search_ns_mean", |row| {
        row.outcome.search_latency().to_string()
    }),
    ("fragmentation_mean", |row| {
        row.outcome.fragmentation().0.to_string()
    }),
    ("fragmentation_max", |row| {
        row.outcome.fragmentation().1.to_string()
    }),
    ("evicted_bytes", |row| {
        row.outcome.counters.evicted_bytes.to_string()
    }),
    ("unused_evicted_bytes", |row| {
        row.outcome.counters.unused_evicted_bytes.to_string()
    }),
];

fn dealloc(dealloc: Dealloc) -> &'static str {
    match dealloc {
        Dealloc::Eager => "eager",
        Dealloc::Banish => "banish",
        Dealloc::Ignore => "ignore",
    }
}

impl<'a> Runs<'a> {
    /// Runs that are still to be performed: each way once.
    pub(crate) fn wanted(
        steps: &[Step<'a>],
        ratios: &[f64],
        wanted: &[Way],
        memory: Memory,
    ) -> Runs<'a> {
        let mut ways: Vec<Way> = Vec::new();
        for way in wanted {
            if !ways.contains(way) {
                ways.push(*way);
            }
        }
        let mut ratios = ratios.to_vec();
        ratios.sort_by(f64::total_cmp);
        ratios.dedup();
        let titles = titles::of(steps.iter().map(|step| step.name));
        Runs {
            steps: steps.to_vec(),
            titles,
            ratios,
            ways,
            memory,
            outcomes: Vec::new(),
        }
    }

    /// The runs' jobs, in the order in which [`fill`](Self::fill) wants their outcomes. `setting` says what a policy is given
    /// for memory. Selective recomputation is left out for steps without attention.
    pub fn jobs(
        &self,
        setting: impl Fn(Eviction) -> Setting,
    ) -> Result<Vec<Job<'a>>, UnknownEviction> {
        let mut jobs = Vec::new();
        for (step, way) in self.cases() {
            let policy = way.0.parse()?;
            if !applies(&step, policy) {
                continue;
            }
            jobs.extend(self.ratios.iter().map(|&ratio| Job {
                program: step.program,
                base: step.base,
                setting: Setting {
                    dealloc: way.1,
                    budget: Budget::Ratio(ratio),
                    thrash_limit: THRASH_LIMIT,
                    seed: 0,
                    ..setting(policy)
                },
            }));
        }
        Ok(jobs)
    }

    /// Takes the outcomes of the [`jobs`](Self::jobs).
    pub fn fill(&mut self, outcomes: impl IntoIterator<Item = Outcome>) {
        let mut outcomes = outcomes.into_iter();
        let each = |(step, way): (Step, Way)| match way.0.parse() {
            Ok(policy) if applies(&step, policy) => {
                outcomes.by_ref().take(self.ratios.len()).collect()
            }
            _ => Vec::new(),
        };
        self.outcomes = self.cases().map(each).collect();
    }

    fn cases(&self) -> impl Iterator<Item = (Step<'a>, Way)> + '_ {
        self.steps
            .iter()
            .flat_map(|step| self.ways.iter().map(move |way| (*step, *way)))
    }

    /// The runs of a step in one way, with their ratios; none of a way that was not wanted or that the step does not allow.
    pub(crate) fn of(&self, step: usize, way: Way) -> impl Iterator<Item = (f64, &Outcome)> {
        let place = self.ways.iter().position(|other| *other == way);
        let runs = place.and_then(|place| self.outcomes.get(step * self.ways.len() + place));
        self.ratios
            .iter()
            .copied()
            .zip(runs.map_or(&[][..], Vec::as_slice))
    }

    /// The points of a step's runs in one way.
    pub(crate) fn points(
        &self,
        step: usize,
        way: Way,
        value: impl Fn(&Outcome) -> f64,
    ) -> Vec<Point> {
        let point = |(ratio, outcome): (f64, &Outcome)| Point {
            x: ratio,
            y: self::value(outcome, &value),
            told: told(outcome),
        };
        self.of(step, way).map(point).collect()
    }

    /// A table of all runs in these ways.
    pub(crate) fn table(&self, ways: &[Way]) -> Csv {
        let mut columns = COLUMNS.to_vec();
        if self.memory == Memory::Arena {
            columns.extend(ARENA_COLUMNS);
        }
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let mut csv = Csv::new(&names);
        for (at, &step) in self.steps.iter().enumerate() {
            for &way in ways {
                for (ratio, outcome) in self.of(at, way) {
                    let row = Row {
                        step,
                        way,
                        ratio,
                        outcome,
                    };
                    csv.row(
                        &columns
                            .iter()
                            .map(|(_, cell)| cell(&row))
                            .collect::<Vec<_>>(),
                    );
                }
            }
        }
        csv
    }
}

/// Whether a step can be run so.
fn applies(step: &Step, policy: Eviction) -> bool {
    policy != Eviction::Selective || step.program.check_attention().is_ok()
}

/// The value of a run that came to its end.
pub(crate) fn value(outcome: &Outcome, value: impl Fn(&Outcome) -> f64) -> Value {
    match outcome.status {
        Status::Ok => Value::At(value(outcome)),
        Status::Oom => Value::Missed(Miss::Oom),
        Status::Thrash => Value::Missed(Miss::Thrash),
    }
}

fn told(outcome: &Outcome) -> String {
    let (Bytes(budget), counters) = (outcome.budget, &outcome.counters);
    format!(
        "budget {} ({budget} bytes), peak {}\n{} evictions, {} rematerializations",
        outcome.budget, outcome.peak, counters.evictions, counters.replays
    )
}
