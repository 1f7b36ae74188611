//! Time of a pool's operations as the number of blocks grows, beside log2 of it.
//!
//! ```console
//! $ cargo run --release -p remat-core --example pool
//! ```
//!
//! Argument: the largest number of taken blocks (1000000). The arena is filled with blocks of sizes spread over three
//! orders of magnitude and half of them are freed at random, so that holes are everywhere. Then, for each fit and end
//! in turn, a block drawn at random is freed and another size is taken; one step is a free and an allocation. One
//! thread; times are means of wall time.

use remat_core::pool::{Fit, Pool, PoolError, Side};
use std::time::Instant;

const STEPS: u32 = 200_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let largest: u64 = std::env::args()
        .nth(1)
        .map_or(Ok(1_000_000), |text| text.parse())?;
    println!(
        "| taken blocks | all blocks | first fit low, ns | first fit high, ns | best fit low, ns | best fit high, ns | mean / log2 n, ns |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let mut blocks = 100;
    while blocks <= largest {
        row(blocks)?;
        blocks *= 10;
    }
    Ok(())
}

fn row(blocks: u64) -> Result<(), PoolError> {
    let mut random = Random(1);
    let mut pool = Pool::new(blocks * 2 * 65_536, 64)?;
    let mut taken = Vec::new();
    while (taken.len() as u64) < 2 * blocks {
        taken.extend(pool.allocate(random.bytes(), Fit::First, Side::Low));
    }
    while taken.len() as u64 > blocks {
        let which = random.below(taken.len());
        pool.free(taken.swap_remove(which))?;
    }
    print!("| {blocks} | {} ", pool.blocks().count());
    let mut sum = 0.0;
    for fit in [Fit::First, Fit::Best] {
        for side in [Side::Low, Side::High] {
            let time = time(&mut pool, &mut taken, &mut random, fit, side)?;
            print!("| {time:.0} ");
            sum += time;
        }
    }
    println!("| {:.1} |", sum / 4.0 / (blocks as f64).log2());
    Ok(())
}

/// Nanoseconds a step.
fn time(
    pool: &mut Pool,
    taken: &mut [u64],
    random: &mut Random,
    fit: Fit,
    side: Side,
) -> Result<f64, PoolError> {
    let started = Instant::now();
    for _ in 0..STEPS {
        let which = random.below(taken.len());
        pool.free(taken[which])?;
        // The arena is twice as large as all blocks, so that there is always room.
        taken[which] = pool.allocate(random.bytes(), fit, side).unwrap_or(u64::MAX);
    }
    Ok(started.elapsed().as_nanos() as f64 / f64::from(STEPS))
}

/// A linear congruential generator: the same draws on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    /// From 64 bytes to 64 KiB, small ones as often as large ones.
    fn bytes(&mut self) -> u64 {
        64 << (self.next() % 11)
    }
}
