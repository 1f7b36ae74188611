//! Time and memory of simulating one step of the linear network of DTR theorem 3.1, forward and backward.
//!
//! ```console
//! $ cargo run --release -p remat-sim --example linear -- 1000000 e-star
//! ```
//!
//! Arguments: layers (1000000), policy (`e-star`), budget in tensors (2 ceil(sqrt N)). One thread. Bytes are the growth
//! of the process's highest resident memory, which Linux tells.

use remat_core::{Bytes, Dealloc, Policy};
use remat_sim::{Budget, Setting, linear};
use std::error::Error;
use std::fs;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let layers: u32 = arguments
        .next()
        .map_or(Ok(1_000_000), |text| text.parse())?;
    let policy: Policy = arguments
        .next()
        .map_or(Ok(Policy::E_STAR), |text| text.parse())?;
    let budget = match arguments.next() {
        Some(text) => Bytes(text.parse()?),
        None => linear::root_budget(layers),
    };
    let before = highest_resident();
    let started = Instant::now();
    let program = linear::program(layers);
    let reading = started.elapsed();
    let between = highest_resident();
    let setting = Setting {
        policy: policy.into(),
        dealloc: Dealloc::Banish,
        budget: Budget::Bytes(budget),
        thrash_limit: 1e3,
        seed: 0,
        ..Setting::default()
    };
    let outcome = program.run(&linear::base(layers), &setting)?;
    let n = f64::from(layers.max(1));
    println!("{layers} layers, {policy}, {} tensors fit", budget.0);
    println!(
        "{}: {} ops ({:.3} a layer), {} evictions, peak {} tensors",
        outcome.status,
        outcome.clock - 1,
        (outcome.clock - 1) as f64 / n,
        outcome.counters.evictions,
        outcome.peak.0
    );
    println!("program made in {:.2} s", reading.as_secs_f64());
    println!("step simulated in {:.2} s", outcome.wall.as_secs_f64());
    if let (Some(before), Some(between), Some(after)) = (before, between, highest_resident()) {
        println!(
            "memory: {:.0} bytes a layer for the program, {:.0} with the engine",
            (between - before) as f64 / n,
            (after - before) as f64 / n
        );
    }
    Ok(())
}

/// The highest resident memory of this process so far, in bytes.
fn highest_resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
