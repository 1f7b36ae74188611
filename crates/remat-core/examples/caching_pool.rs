//! Time of a caching pool's operations as the number of blocks grows.
//!
//! ```console
//! $ cargo run --release -p remat-core --example caching_pool
//! ```
//!
//! Argument: the largest number of taken blocks (100000). Blocks are of 32 KiB to 4 MiB, as they are of tensors. One at
//! random is freed and another size is taken; one step is a free and an allocation. *Ample*: all pages may be kept.
//! *Tight*: as many as the blocks have, and a hundredth more, so that pages are given back in most steps; *given back*
//! is how many a step. One thread; times are means of wall time.

use remat_core::pool::{CachingPool, PoolError};
use std::time::Instant;

const STEPS: u32 = 50_000;
const PAGE: u64 = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let largest: usize = std::env::args()
        .nth(1)
        .map_or(Ok(100_000), |text| text.parse())?;
    println!("| taken blocks | ample, ns | tight, ns | given back, pages |");
    println!("| ---: | ---: | ---: | ---: |");
    let mut blocks = 100;
    while blocks <= largest {
        let (ample, _) = churn(blocks, |_| u64::MAX)?;
        let (tight, pages) = churn(blocks, |taken| taken + taken / 100)?;
        println!("| {blocks} | {ample:.0} | {tight:.0} | {pages:.0} |");
        blocks *= 10;
    }
    Ok(())
}

/// Nanoseconds a step, and pages given back in it, within a limit that depends on the bytes that are taken.
fn churn(blocks: usize, limit: impl Fn(u64) -> u64) -> Result<(f64, f64), PoolError> {
    let mut random = Random(1);
    let mut pool = CachingPool::new(1 << 42, 64, PAGE)?;
    let mut nothing = |_, _| {};
    let mut taken = Vec::new();
    while taken.len() < blocks {
        taken.extend(pool.allocate(random.bytes(), u64::MAX, &mut nothing));
    }
    let mut returned = 0;
    let mut note = |_, bytes| returned += bytes;
    let started = Instant::now();
    for _ in 0..STEPS {
        let limit = limit(pool.taken());
        let which = random.next() as usize % taken.len();
        pool.free(taken[which], limit, &mut note)?;
        // There are more addresses than blocks take, by far.
        let next = pool.allocate(random.bytes(), limit, &mut note);
        taken[which] = next.unwrap_or(u64::MAX);
    }
    let time = started.elapsed().as_nanos() as f64 / f64::from(STEPS);
    let pages = returned as f64 / PAGE as f64 / f64::from(STEPS);
    Ok((time, pages))
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

    /// Small ones as often as large ones.
    fn bytes(&mut self) -> u64 {
        let draw = self.next();
        ((32 << 10) << (draw % 7)) + (draw >> 8) % 512 * 64
    }
}
