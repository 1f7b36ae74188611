//! How long planning takes, and how much memory, by length and strategy: `cargo run --release -p remat-plan --example
//! speed`.
//!
//! With arguments, only these: `speed residual`, `speed residual persistent 339`. Chains are of three forms:
//! `residual` are alike to deep residual networks, stages of a few widths, repeated, with times and sizes that vary;
//! in `random` ones neighbours have nothing in common; in `uniform` ones all stages are the same. The budget is a
//! third of what keeping everything takes. Everything runs on one core; times are those that the processor spent on
//! it, where the system tells, as shared machines let it wait.

use remat_plan::chain::{Chain, Description, Resolution, Stage, Strategy, curve, plan};
use std::ops::ControlFlow;
use std::time::Instant;

const CASES: &[(Strategy, &[usize])] = &[
    (Strategy::Persistent, &[50, 100, 200, 339, 1000]),
    (Strategy::Revolve, &[339]),
    (Strategy::Floating, &[25, 50, 100]),
    (Strategy::Free, &[25, 50]),
];

/// Kinds of chains.
#[derive(Clone, Copy, Debug)]
enum Form {
    Residual,
    Random,
    Uniform,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |at: usize, name: String| arguments.get(at).is_none_or(|wanted| *wanted == name);
    println!("| form | strategy | stages | plan s | curve s | points | peak memory MiB |");
    println!("| --- | --- | ---: | ---: | ---: | ---: | ---: |");
    for form in [Form::Residual, Form::Random, Form::Uniform] {
        let name = format!("{form:?}").to_lowercase();
        for (strategy, lengths) in CASES {
            for &length in *lengths {
                if wanted(0, name.clone())
                    && wanted(1, strategy.to_string())
                    && wanted(2, length.to_string())
                {
                    measure(form, *strategy, length);
                }
            }
        }
    }
}

fn measure(form: Form, strategy: Strategy, length: usize) {
    let chain = chain(form, length);
    let go_on = &mut |_| ControlFlow::Continue(());
    let all = plan(&chain, u64::MAX, Strategy::None, Resolution::Exact, go_on).expect("it fits");
    let slots = Resolution::default();
    let start = Clock::now();
    let planned =
        plan(&chain, all.peak_bytes / 3, strategy, slots, go_on).expect("a third is enough");
    let plan_time = start.seconds();
    let start = Clock::now();
    let points = curve(&chain, None, strategy, slots, go_on).expect("it is feasible");
    let curve_time = start.seconds();
    assert!(planned.peak_bytes <= all.peak_bytes / 3);
    println!(
        "| {} | {strategy} | {length} | {:.3} | {:.3} | {} | {} |",
        format!("{form:?}").to_lowercase(),
        plan_time,
        curve_time,
        points.len(),
        peak_memory().map_or("?".into(), |kib| (kib / 1024).to_string()),
    );
}

/// A chain of so many stages, and the loss as the last of them.
fn chain(form: Form, length: usize) -> Chain {
    let mut noise = 1u64;
    // From 0.75 to 1.25.
    let mut vary = move || {
        noise = noise
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        0.75 + (noise >> 40) as f64 / f64::from(1 << 25)
    };
    let mut stage = |index: usize| match form {
        Form::Residual => residual(4 * index / length, &mut vary),
        Form::Random => random(&mut vary),
        Form::Uniform => residual(0, &mut || 1.0),
    };
    let mut stages: Vec<Stage> = (1..length).map(&mut stage).collect();
    stages.push(Stage {
        name: String::new(),
        forward_time: 0.01,
        backward_time: 0.01,
        activation_bytes: 4,
        saved_bytes: 4096,
        gradient_bytes: None,
        forward_overhead_bytes: 0,
        backward_overhead_bytes: 0,
        ..Stage::default()
    });
    Chain::new(Description {
        input_bytes: 1 << 20,
        input_gradient_bytes: Some(0),
        stages,
        about: serde_json::Value::Null,
    })
    .expect("the chain is sound")
}

/// A stage of a residual network: with each level widths double and resolutions halve.
fn residual(level: usize, vary: &mut impl FnMut() -> f64) -> Stage {
    let bytes = |mib: f64| (mib * 1048576.0 / f64::from(1 << level)) as u64;
    let time = 1.5 * vary();
    Stage {
        name: String::new(),
        forward_time: time,
        backward_time: 2.0 * time * vary(),
        activation_bytes: bytes(12.0),
        saved_bytes: bytes(60.0 * vary()),
        gradient_bytes: None,
        forward_overhead_bytes: bytes(4.0 * vary()),
        backward_overhead_bytes: bytes(12.0 * vary()),
        ..Stage::default()
    }
}

/// A stage like no other: times and sizes differ by up to a factor of 16, each by itself.
fn random(vary: &mut impl FnMut() -> f64) -> Stage {
    let mut spread = |most: f64| most * 16f64.powf(2.0 * vary() - 2.5);
    let mut bytes = |mib: f64| (spread(mib) * 1048576.0) as u64;
    let activation = bytes(24.0);
    Stage {
        name: String::new(),
        activation_bytes: activation,
        saved_bytes: activation + bytes(96.0),
        gradient_bytes: None,
        forward_overhead_bytes: bytes(8.0),
        backward_overhead_bytes: bytes(24.0),
        forward_time: spread(4.0),
        backward_time: spread(8.0),
        ..Stage::default()
    }
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
