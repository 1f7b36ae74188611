//! The session's own account of bytes, kept apart from the engine's: it follows the allocations themselves.

use remat_core::PoolId;

/// Bytes in use and their highest number so far, for each pool.
#[derive(Default)]
pub struct Ledger {
    used: Vec<u64>,
    peak: Vec<u64>,
}

impl Ledger {
    fn entry(&mut self, pool: PoolId) -> usize {
        let i = pool.0 as usize;
        if self.used.len() <= i {
            self.used.resize(i + 1, 0);
            self.peak.resize(i + 1, 0);
        }
        i
    }

    /// Adds bytes that were allocated.
    pub fn add(&mut self, pool: PoolId, bytes: u64) {
        let i = self.entry(pool);
        self.used[i] += bytes;
        self.peak[i] = self.peak[i].max(self.used[i]);
    }

    /// Subtracts bytes that were freed.
    pub fn sub(&mut self, pool: PoolId, bytes: u64) {
        let i = self.entry(pool);
        self.used[i] = self.used[i].saturating_sub(bytes);
    }

    /// Counts bytes that were allocated for a while, beside all in use now.
    pub fn spike(&mut self, pool: PoolId, bytes: u64) {
        let i = self.entry(pool);
        self.peak[i] = self.peak[i].max(self.used[i] + bytes);
    }

    /// Bytes in use.
    pub fn used(&self, pool: PoolId) -> u64 {
        self.used.get(pool.0 as usize).copied().unwrap_or(0)
    }

    /// Highest use so far.
    pub fn peak(&self, pool: PoolId) -> u64 {
        self.peak.get(pool.0 as usize).copied().unwrap_or(0)
    }
}
