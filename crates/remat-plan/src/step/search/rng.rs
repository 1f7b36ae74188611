//! Random numbers from a seed.

use remat_core::Draws;

/// The engine's draws as numbers: the same seed gives the same ones on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Rng(Draws);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(Draws(seed))
    }

    /// From 0 up to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.0.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From 0 up to `end`, which is above 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.unit() * end as f64) as usize
    }
}
