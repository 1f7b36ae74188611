//! The runs of recorded steps that figures are made of.

use crate::csv::Csv;
use remat_core::Dealloc;
use remat_sim::{Base, Budget, Eviction, Job, Outcome, Program, Setting};

/// A run is given up once this many times the cost of the step was recomputed (the paper's "thrashing").
pub const THRASH_LIMIT: f64 = 1.0;

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

/// A policy, and what happens to a tensor that the program lets go of.
pub(crate) type Way = (Eviction, Dealloc);

/// Runs of steps: each in every way wanted and at every ratio.
pub struct Runs<'a> {
    memory: Memory,
    runs: Vec<Run<'a>>,
    outcomes: Vec<Outcome>,
}

/// A kind of budget: a count of bytes, or an arena with addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Counted,
    Arena,
}

struct Run<'a> {
    /// Its place among the steps.
    place: usize,
    step: Step<'a>,
    way: Way,
    ratio: f64,
}

/// A row of the table of runs.
struct Row<'a> {
    run: &'a Run<'a>,
    outcome: &'a Outcome,
}

type Column = (&'static str, fn(&Row) -> String);

const COLUMNS: [Column; 18] = [
    ("log", |row| row.run.step.name.into()),
    ("policy", |row| row.run.way.0.to_string()),
    ("dealloc", |row| dealloc(row.run.way.1).into()),
    ("ratio", |row| row.run.ratio.to_string()),
    ("budget_bytes", |row| row.outcome.budget.0.to_string()),
    ("status", |row| row.outcome.status.to_string()),
    ("overhead", |row| {
        row.outcome.overhead(row.run.step.base).to_string()
    }),
    ("clock_ns", |row| row.outcome.clock.to_string()),
    ("remat_cost_ns", |row| {
        row.outcome.counters.replayed_cost.0.to_string()
    }),
    ("peak_bytes", |row| row.outcome.peak.0.to_string()),
    ("base_memory_bytes", |row| {
        row.run.step.base.memory.0.to_string()
    }),
    ("base_cost_ns", |row| row.run.step.base.cost.0.to_string()),
    ("const_bytes", |row| {
        row.run.step.base.constants.0.to_string()
    }),
    ("bottleneck_bytes", |row| {
        row.run.step.base.bottleneck.0.to_string()
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
    /// Runs that are still to be performed. Selective recomputation is left out for steps without attention.
    pub(crate) fn wanted(
        steps: &[Step<'a>],
        ratios: &[f64],
        ways: &[Way],
        memory: Memory,
    ) -> Runs<'a> {
        let mut ratios = ratios.to_vec();
        ratios.sort_by(f64::total_cmp);
        ratios.dedup();
        let mut runs = Vec::new();
        for (place, &step) in steps.iter().enumerate() {
            let attention = step.program.check_attention().is_ok();
            for (at, &way) in ways.iter().enumerate() {
                let applies = attention || way.0 != Eviction::Selective;
                if applies && !ways[..at].contains(&way) {
                    runs.extend(ratios.iter().map(|&ratio| Run {
                        place,
                        step,
                        way,
                        ratio,
                    }));
                }
            }
        }
        Runs {
            memory,
            runs,
            outcomes: Vec::new(),
        }
    }

    /// The runs' jobs. `setting` says what a policy is given for memory.
    pub fn jobs(&self, setting: impl Fn(Eviction) -> Setting) -> Vec<Job<'a>> {
        let job = |run: &Run<'a>| Job {
            program: run.step.program,
            base: run.step.base,
            setting: Setting {
                dealloc: run.way.1,
                budget: Budget::Ratio(run.ratio),
                thrash_limit: THRASH_LIMIT,
                seed: 0,
                ..setting(run.way.0)
            },
        };
        self.runs.iter().map(job).collect()
    }

    /// Takes the outcomes of the [`jobs`](Self::jobs), in their order.
    pub fn fill(&mut self, outcomes: Vec<Outcome>) {
        self.outcomes = outcomes;
    }

    /// The runs in these ways that were performed: by step, way and ratio.
    pub(crate) fn performed<'s>(
        &'s self,
        ways: &[Way],
    ) -> impl Iterator<Item = (Step<'a>, Way, f64, &'s Outcome)> + use<'a, 's> {
        let place = |way: &Way| ways.iter().position(|other| other == way);
        let performed = self.runs.iter().zip(&self.outcomes);
        let mut runs: Vec<(&Run<'a>, &Outcome)> = performed
            .filter(|(run, _)| place(&run.way).is_some())
            .collect();
        runs.sort_by_key(|(run, _)| (run.place, place(&run.way)));
        let told =
            |(run, outcome): (&Run<'a>, &'s Outcome)| (run.step, run.way, run.ratio, outcome);
        runs.into_iter().map(told)
    }

    /// A table of all runs in these ways: by step, way and ratio.
    pub(crate) fn table(&self, ways: &[Way]) -> Csv {
        let arena: &[Column] = match self.memory {
            Memory::Counted => &[],
            Memory::Arena => &ARENA_COLUMNS,
        };
        let columns = || COLUMNS.iter().chain(arena);
        let place = |way: &Way| ways.iter().position(|other| other == way);
        let performed = self.runs.iter().zip(&self.outcomes);
        let mut rows: Vec<Row> = performed
            .map(|(run, outcome)| Row { run, outcome })
            .collect();
        rows.retain(|row| place(&row.run.way).is_some());
        rows.sort_by_key(|row| (row.run.place, place(&row.run.way)));
        let mut csv = Csv::new(columns().map(|(name, _)| *name));
        for row in &rows {
            csv.row(columns().map(|(_, cell)| cell(row)));
        }
        csv
    }
}
