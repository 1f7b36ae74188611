//! Time of the 300 runs of the DTR paper's comparison, beside what the authors' simulator took for them.
//!
//! ```console
//! $ cargo run --release -p remat-sim --example speed -- ../shared/data
//! ```
//!
//! The directory holds `dtr-logs/` and `dtr-reference/` (whose rows carry `wall_s`). One thread; parsing a log and its
//! run without a limit are counted on a line of their own. With a second argument `rows`, every run's time.

use remat_core::{Dealloc, Policy};
use remat_sim::{Budget, Program, Setting};
use serde_json::Value;
use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

const LOGS: [&str; 5] = ["inceptionv4", "resnet32", "transformer", "treelstm", "unet"];

/// Our name, and theirs.
const POLICIES: [(&str, &str); 6] = [
    ("dtr", "DTR"),
    ("dtr-eq", "DTREqClass"),
    ("dtr-local", "DTRLocal"),
    ("lru", "LRU"),
    ("size", "LargestStorage"),
    ("msps", "MSPS"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let data = PathBuf::from(arguments.next().unwrap_or_else(|| "../shared/data".into()));
    let rows = arguments.next().as_deref() == Some("rows");
    let started = Instant::now();
    let mut programs = Vec::new();
    for log in LOGS {
        let program = Program::open(data.join(format!("dtr-logs/{log}.log")))?;
        let base = program.base()?;
        programs.push((log, program, base));
    }
    let reading = started.elapsed().as_secs_f64();
    println!("| policy | runs | here, s | reference, s | ratio |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    let mut sum = (0, 0.0, 0.0);
    for (policy, heuristic) in POLICIES {
        let policy: Policy = policy.parse()?;
        let (mut runs, mut here, mut there) = (0, 0.0, 0.0);
        for (log, program, base) in &programs {
            let name = format!("dtr-reference/{log}-{heuristic}-RuntimeV2EagerOptimized.json");
            let reference: Value = serde_json::from_slice(&std::fs::read(data.join(name))?)?;
            for row in reference["results"].as_array().ok_or("no results")? {
                let ratio = row["ratio"].as_f64().ok_or("no ratio")?;
                let setting = Setting {
                    policy: policy.into(),
                    dealloc: Dealloc::Eager,
                    budget: Budget::Ratio(ratio),
                    thrash_limit: 1.0,
                    seed: 0,
                    ..Setting::default()
                };
                let wall = program.run(base, &setting)?.wall.as_secs_f64();
                runs += 1;
                here += wall;
                there += row["wall_s"].as_f64().ok_or("no wall_s")?;
                if rows {
                    println!("{log} {policy} {ratio} {wall:.4}");
                }
            }
        }
        println!(
            "| {policy} | {runs} | {here:.3} | {there:.1} | {:.0} |",
            there / here
        );
        sum = (sum.0 + runs, sum.1 + here, sum.2 + there);
    }
    let (runs, here, there) = sum;
    println!(
        "| all | {runs} | {here:.3} | {there:.1} | {:.0} |",
        there / here
    );
    println!("\nreading the logs and their runs without a limit: {reading:.3} s");
    Ok(())
}
