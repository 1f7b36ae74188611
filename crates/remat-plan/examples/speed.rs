//! How long planning takes, and how much memory, by length and strategy: `cargo run --release -p remat-plan --example speed`.
//!
//! With arguments, only these: `speed persistent 339`. Chains are alike to deep residual networks: stages of a few widths, repeated,
//! with times and sizes that vary. The budget is a third of what keeping everything takes. Everything runs on one core;
//! times are those that the processor spent on it, where the system tells, as shared machines let it wait.

use remat_plan::chain::{curve, plan, Chain, Description, Resolution, Stage, Strategy};
use std::ops::ControlFlow;
use std::time::Instant;

const CASES: &[(Strategy, &[usize])] = &[
    (Strategy::Persistent, &[50, 100, 200, 339, 1000]),
    (Strategy::Revolve, &[50, 100, 200, 339]),
    (Strategy::Floating, &[25, 50, 100, 150]),
    (Strategy::Free, &[25, 50, 100]),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let only = |strategy: &Strategy| arguments.is_empty() || arguments[0] == strategy.to_string();
    println!("| strategy | stages | plan s | curve s | points | peak memory MiB |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    for (strategy, lengths) in CASES.iter().filter(|(strategy, _)| only(strategy)) {
        for &length in *lengths {
            if arguments
                .get(1)
                .is_none_or(|wanted| *wanted == length.to_string())
            {
                measure(*strategy, length);
            }
        }
    }
}

fn measure(strategy: Strategy, length: usize) {
    let chain = residual(length);
    let go_on = &mut |_| ControlFlow::Continue(());
    let all = plan(&chain, u64::MAX, Strategy::None, Resolution::Exact, go_on).expect("it fits");
    let slots = Resolution::default();
    let start = Clock::now();
    let planned =
        plan(&chain, all.peak_bytes / 3, strategy, slots, go_on).expect("a third is enough");
    let plan_time = start.seconds();
    let start = Clock::now();
    let points =
        curve(&chain, Some(all.peak_bytes), strategy, slots, go_on).expect("it is feasible");
    let curve_time = start.seconds();
    assert!(planned.peak_bytes <= all.peak_bytes / 3);
    println!(
        "| {strategy} | {length} | {:.3} | {:.3} | {} | {} |",
        plan_time,
        curve_time,
        points.len(),
        peak_memory().map_or("?".into(), |kib| (kib / 1024).to_string()),
    );
}

/// A chain of so many stages, and the loss as the last of them: widths double and resolutions halve three times.
fn residual(length: usize) -> Chain {
    let mut noise = 1u64;
    let mut vary = move || {
        noise = noise
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        0.75 + (noise >> 40) as f64 / f64::from(1 << 25)
    };
    let mut stage = |index: usize| {
        let level = 4 * index / length;
        let bytes = |mib: f64| (mib * 1048576.0 / f64::from(1 << level)) as u64;
        let last = index + 1 == length;
        let time = 1.5 * vary();
        Stage {
            name: String::new(),
            forward_time: if last { 0.01 } else { time },
            backward_time: if last { 0.01 } else { 2.0 * time * vary() },
            activation_bytes: if last { 4 } else { bytes(12.0) },
            saved_bytes: if last { 4096 } else { bytes(60.0 * vary()) },
            gradient_bytes: None,
            forward_overhead_bytes: bytes(4.0 * vary()),
            backward_overhead_bytes: bytes(12.0 * vary()),
            ..Stage::default()
        }
    };
    Chain::new(Description {
        input_bytes: 1 << 20,
        input_gradient_bytes: Some(0),
        stages: (0..length).map(&mut stage).collect(),
        about: serde_json::Value::Null,
    })
    .expect("the chain is sound")
}

/// Time that this thread has had a processor, or has lasted where the system does not say.
struct Clock {
    spent: Option<u64>,
    wall: Instant,
}

impl Clock {
    fn now() -> Clock {
        let wall = Instant::now();
        let spent = spent();
        Clock { spent, wall }
    }

    fn seconds(&self) -> f64 {
        match (self.spent, spent()) {
            (Some(start), Some(end)) => (end - start) as f64 / 1e9,
            _ => self.wall.elapsed().as_secs_f64(),
        }
    }
}

fn spent() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Highest resident memory of the process so far, in KiB, where the system says.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}
