//! Sizes in the unit that a table counts in: bytes, or slots.

use crate::chain::model::chain::Chain;

/// What is kept and what is needed, in units of a table.
pub(crate) struct Sizes {
    /// `w_a[0..=n]`.
    activation: Vec<i64>,
    /// `w_abar[1..=n]`; nothing at 0.
    saved: Vec<i64>,
    unit: u64,
}

impl Sizes {
    /// Sizes in units of so many bytes, each rounded up: what fits in units fits in bytes.
    pub(crate) fn new(chain: &Chain, unit: u64) -> Sizes {
        let n = chain.len();
        let saved = |l: usize| match l {
            0 => 0,
            _ => chain.stage(l).saved_bytes,
        };
        Sizes {
            activation: (0..=n).map(|l| up(chain.activation(l), unit)).collect(),
            saved: (0..=n).map(|l| up(saved(l), unit)).collect(),
            unit,
        }
    }

    pub(crate) fn activation(&self, l: usize) -> i64 {
        self.activation[l]
    }

    pub(crate) fn saved(&self, l: usize) -> i64 {
        self.saved[l]
    }

    /// Units that so many bytes take.
    pub(crate) fn units(&self, bytes: u64) -> i64 {
        up(bytes, self.unit)
    }

    /// Units that so many bytes have room for.
    pub(crate) fn whole_units(&self, bytes: u64) -> i64 {
        i64::try_from(bytes / self.unit).unwrap_or(i64::MAX)
    }

    /// How far a lookup may lie above the root's: a stage saved in less than its output takes.
    pub(crate) fn excess(&self) -> i64 {
        let stages = self.activation.iter().zip(&self.saved).skip(1);
        stages.map(|(a, saved)| a - saved).max().unwrap_or(0).max(0)
    }
}

fn up(bytes: u64, unit: u64) -> i64 {
    // Chains add up to less than 2^63 bytes.
    bytes.div_ceil(unit) as i64
}
