//! The five metrics of the Coop paper (section 4.2) for policies in an arena, and the ablation of Coop's modules, as
//! tables.
//!
//! ```console
//! $ cargo run --release -p remat-sim --example coop -- traces/*.zst ../shared/data/dtr-logs/*.log
//! ```
//!
//! Budgets are 20, 30 .. 90% of what each step needs without a limit. A run is given up once as much as the step costs
//! was recomputed. Smallest and cutoff budgets are parts of that memory, to a 512th; fragmentation, the block wanted
//! (both in % of the arena) and search time are means over the budgets in which a policy runs and evicts. Search time
//! is wall time, the least of three runs of each setting. `sar`, which does not search, has a row where a log has
//! attention. With moves, blocks in the way are copied at 10 GB/s where that costs less than evicting.

use remat_core::{Arena, Bytes, Memory, Moves, Partition};
use remat_sim::{Base, Budget, Eviction, Mutations, Program, Setting, Status};
use std::error::Error;
use std::num::NonZeroU32;

const RATIOS: [f64; 8] = [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

/// Policies, and how they place and mutate.
const WAYS: [(&str, &str, Partition, Mutations); 13] = [
    ("coop", "coop", Partition::BySize, Mutations::InPlace),
    ("dte", "dte", Partition::None, Mutations::Recorded),
    ("dte-eq", "dte-eq", Partition::None, Mutations::Recorded),
    ("dtr", "dtr", Partition::None, Mutations::Recorded),
    ("dtr-eq", "dtr-eq", Partition::None, Mutations::Recorded),
    ("dtr-anc", "dtr-anc", Partition::None, Mutations::Recorded),
    (
        "coop, no window",
        "dtr-anc",
        Partition::BySize,
        Mutations::InPlace,
    ),
    (
        "coop, no partition",
        "coop",
        Partition::None,
        Mutations::InPlace,
    ),
    (
        "coop, partition by cost",
        "coop",
        Partition::ByCost,
        Mutations::InPlace,
    ),
    ("coop, copies", "coop", Partition::BySize, Mutations::Copied),
    (
        "coop-sum",
        "coop-sum",
        Partition::BySize,
        Mutations::InPlace,
    ),
    ("coop, moves", "coop", Partition::BySize, Mutations::InPlace),
    ("sar", "sar", Partition::None, Mutations::Recorded),
];

/// A copy by a single core; those of GPUs are faster by far.
const COPIED: Moves = Moves::Copied {
    bytes_per_microsecond: NonZeroU32::new(10_000).unwrap(),
};

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "| log | policy | smallest | cutoff | overhead at 50% | at 70% | fragmentation | wanted | search, us |"
    );
    println!("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for path in std::env::args().skip(1) {
        let program = Program::open(&path)?;
        let base = program.base()?;
        let name = path.rsplit('/').next().unwrap_or(&path);
        for (way, policy, partition, mutations) in WAYS {
            let policy = policy.parse()?;
            if policy == Eviction::Selective && program.check_attention().is_err() {
                continue;
            }
            let setting = Setting {
                policy,
                memory: Memory::Arena(Arena {
                    partition,
                    moves: match way {
                        "coop, moves" => COPIED,
                        _ => Moves::Never,
                    },
                    ..Arena::default()
                }),
                mutations,
                ..Setting::default()
            };
            println!("| {name} | {way} {}", row(&program, &base, &setting)?);
        }
    }
    Ok(())
}

fn row(program: &Program, base: &Base, setting: &Setting) -> Result<String, Box<dyn Error>> {
    let within = Bytes(base.memory.0 / 512);
    let part = |bytes: Option<Bytes>| match bytes {
        Some(bytes) => format!("{:.3}", bytes.0 as f64 / base.memory.0 as f64),
        None => "-".into(),
    };
    let smallest = part(
        program
            .smallest_budget(base, setting, within, |_| {})?
            .works,
    );
    let cutoff = part(program.cutoff_budget(base, setting, within)?);
    let (mut fragmentation, mut wanted, mut latency) = (Vec::new(), Vec::new(), Vec::new());
    let (mut half, mut most) = (String::new(), String::new());
    for ratio in RATIOS {
        let budget = Budget::Ratio(ratio);
        let setting = Setting { budget, ..*setting };
        let outcome = program.run(base, &setting)?;
        let overhead = match outcome.status {
            Status::Ok => format!("{:.3}", outcome.overhead(base)),
            missed => missed.to_string(),
        };
        match ratio {
            0.5 => half = overhead,
            0.7 => most = overhead,
            _ => {}
        }
        if outcome.status == Status::Ok && outcome.counters.shortages > 0 {
            fragmentation.push(outcome.fragmentation().0 * 100.0);
            let counters = &outcome.counters;
            let mean = counters.shortage_bytes as f64 / counters.shortages as f64;
            wanted.push(mean / outcome.budget.0 as f64 * 100.0);
            let mut least = outcome.search_latency();
            for _ in 0..2 {
                least = least.min(program.run(base, &setting)?.search_latency());
            }
            latency.push(least / 1000.0);
        }
    }
    let (fragmentation, wanted) = (mean(&fragmentation), mean(&wanted));
    let latency = mean(&latency);
    Ok(format!(
        "| {smallest} | {cutoff} | {half} | {most} | {fragmentation} | {wanted} | {latency} |"
    ))
}

fn mean(values: &[f64]) -> String {
    match values.len() {
        0 => "-".into(),
        count => format!("{:.1}", values.iter().sum::<f64>() / count as f64),
    }
}
