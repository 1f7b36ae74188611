//! Recorded steps inside budgets, decided as a front end's are: lineage is collected, and every order of replays is
//! tried. `remat simulate` follows the DTR paper instead.
//!
//! ```console
//! $ cargo run --release -p remat-sim --example deciding -- dtr-anc 0.9,0.7,0.5,0.45,0.4 traces/gpt.trace.zst
//! ```
//!
//! The budgets are parts of the most that the step holds when nothing is evicted. A line tells how the step ends and
//! what it recomputes; those figures do not depend on the machine. For instructions run it below
//! `valgrind --tool=callgrind`, one budget at a time, and read the inclusive count of `Engine::begin_expecting`.

use remat_core::{Bytes, Config, DeviceId, Error};
use remat_trace::{Event, Replayer};
use std::time::Instant;

const HERE: DeviceId = DeviceId(0);
/// A step is given up once it has recomputed for so many times its own cost.
const MOST: f64 = 20.0;

fn replayer(policy: &str, budget: Option<u64>) -> Result<Replayer, String> {
    Ok(Replayer::new(Config {
        budgets: vec![budget.map(Bytes)],
        policy: policy.parse().map_err(|error| format!("{error}"))?,
        ..Config::default()
    }))
}

/// Tells all events; how the step ended.
fn run(replayer: &mut Replayer, events: &[Event], most: f64) -> Result<&'static str, Error> {
    for event in events {
        match replayer.feed(event) {
            Ok(()) => {}
            Err(Error::Budget { .. } | Error::PlanLimit) => return Ok("refused"),
            Err(error) => return Err(error),
        }
        if replayer.engine().counters().replayed_cost.0 as f64 > most {
            return Ok("thrash");
        }
    }
    Ok("ok")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [policy, ratios, traces @ ..] = &arguments[..] else {
        return Err("give a policy, parts of the peak, and traces".into());
    };
    println!(
        "| trace | ratio | end | recomputed | evictions | replays | peak / budget | cost of a step, us | deciding, us |"
    );
    println!("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    for trace in traces {
        let reader = remat_trace::open(trace)?.with_mutations_in_place();
        let events: Vec<Event> = reader.collect::<Result<_, _>>()?;
        let mut free = replayer(policy, None)?;
        run(&mut free, &events, f64::MAX)?;
        let free = free.engine();
        let (peak, cost) = (free.peak(HERE).0, free.counters().first_cost.0);
        for ratio in ratios.split(',') {
            let part: f64 = ratio.parse()?;
            let budget = (peak as f64 * part) as u64;
            let mut step = replayer(policy, Some(budget))?;
            let started = Instant::now();
            let end = run(&mut step, &events, MOST * cost as f64)?;
            let deciding = started.elapsed();
            let counters = step.engine().counters();
            println!(
                "| {} | {ratio} | {end} | {:.4} | {} | {} | {:.4} | {} | {} |",
                std::path::Path::new(trace)
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .trim_end_matches(".trace.zst"),
                counters.replayed_cost.0 as f64 / cost as f64,
                counters.evictions,
                counters.replays,
                step.engine().peak(HERE).0 as f64 / budget as f64,
                cost / 1000,
                deciding.as_micros(),
            );
        }
    }
    Ok(())
}
