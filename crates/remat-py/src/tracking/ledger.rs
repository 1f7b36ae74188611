//! The session's own account of bytes, kept apart from the engine's: it follows the allocations themselves.

use remat_core::DeviceId;

/// Bytes in use and their highest number so far, for each device.
#[derive(Default)]
pub struct Ledger {
    used: Vec<u64>,
    peak: Vec<u64>,
    /// Bytes that ops of other threads may be using, which are no storages yet.
    held: Vec<u64>,
}

impl Ledger {
    fn entry(&mut self, device: DeviceId) -> usize {
        let i = device.0 as usize;
        if self.used.len() <= i {
            self.used.resize(i + 1, 0);
            self.peak.resize(i + 1, 0);
            self.held.resize(i + 1, 0);
        }
        i
    }

    /// Adds bytes that were allocated.
    pub fn add(&mut self, device: DeviceId, bytes: u64) {
        let i = self.entry(device);
        self.used[i] += bytes;
        self.peak[i] = self.peak[i].max(self.used[i] + self.held[i]);
    }

    /// Counts bytes of an op that runs while others may, as long as it does. Alone they make no peak: what it took is
    /// told once it has run.
    pub fn hold(&mut self, device: DeviceId, bytes: u64) {
        let i = self.entry(device);
        self.held[i] += bytes;
    }

    /// Counts bytes that were held no longer.
    pub fn let_go(&mut self, device: DeviceId, bytes: u64) {
        let i = self.entry(device);
        self.held[i] -= bytes;
    }

    /// Subtracts bytes that were freed.
    pub fn sub(&mut self, device: DeviceId, bytes: u64) {
        let i = self.entry(device);
        self.used[i] = self.used[i].saturating_sub(bytes);
    }

    /// Notes that a part of the bytes in use is another one now. The highest use is told apart.
    pub fn change(&mut self, device: DeviceId, before: u64, now: u64) {
        let i = self.entry(device);
        self.used[i] = self.used[i].saturating_sub(before) + now;
    }

    /// Notes how many bytes were in use at a time.
    pub fn note_peak(&mut self, device: DeviceId, bytes: u64) {
        let i = self.entry(device);
        self.peak[i] = self.peak[i].max(bytes);
    }

    /// Counts bytes that were allocated for a while, beside all in use now.
    pub fn spike(&mut self, device: DeviceId, bytes: u64) {
        let i = self.entry(device);
        self.peak[i] = self.peak[i].max(self.used[i] + self.held[i] + bytes);
    }

    /// Bytes in use or held.
    pub fn used_or_held(&self, device: DeviceId) -> u64 {
        let held = self.held.get(device.0 as usize).copied().unwrap_or(0);
        self.used(device) + held
    }

    /// Bytes in use.
    pub fn used(&self, device: DeviceId) -> u64 {
        self.used.get(device.0 as usize).copied().unwrap_or(0)
    }

    /// Highest use so far.
    pub fn peak(&self, device: DeviceId) -> u64 {
        self.peak.get(device.0 as usize).copied().unwrap_or(0)
    }
}
