//! Signatures and their measurements, kept from one session to the next within the process.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use super::signature::Signature;
use crate::tracking::devices::Device;

/// The use that an op makes of the running statistics among its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsUse {
    /// It reads them, as any other argument.
    Read,
    /// It updates them, and its results do not depend on them.
    Updated,
    /// It does neither.
    Ignored,
}

/// Signatures by hash. A later session starts with what an earlier one measured.
#[derive(Default)]
pub struct Knowledge {
    /// By the hash of the call's signature.
    pub signatures: FxHashMap<u64, Signature>,
    /// The use of running statistics, by op and flags.
    pub stats: FxHashMap<u64, StatsUse>,
}

/// Knowledge of earlier sessions, each with its list of devices: device ids in signatures are positions in that list.
static KEPT: Mutex<Vec<(Knowledge, Vec<Device>)>> = Mutex::new(Vec::new());

/// Signatures that are known at once: a program whose shapes never repeat must not grow for ever.
const LIMIT: usize = 200_000;

/// As many lists of devices are kept. Of more, the one left first goes.
const LISTS: usize = 8;

impl Knowledge {
    /// The knowledge that an earlier session left whose list of devices begins with `devices` (those with budgets).
    /// The session takes over that list too.
    pub fn take(devices: &mut Vec<Device>) -> Knowledge {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = kept.iter().rposition(|(_, known)| {
            known.len() >= devices.len()
                && known.iter().zip(&*devices).all(|(a, b)| a.name == b.name)
        });
        let Some(position) = fits else {
            return Knowledge::default();
        };
        let (knowledge, known_devices) = kept.remove(position);
        *devices = known_devices;
        knowledge
    }

    /// Keeps a signature by the hash of its call. All others are forgotten where there are too many.
    pub fn remember(&mut self, key: u64, signature: Signature) {
        if self.signatures.len() >= LIMIT {
            self.signatures.clear();
        }
        self.signatures.insert(key, signature);
    }

    /// Leaves the knowledge for the next session.
    pub fn put_back(&mut self, py: Python<'_>, devices: &[Device]) {
        let mine = std::mem::take(self);
        let devices = devices
            .iter()
            .map(|p| Device {
                name: p.name.clone(),
                device: p.device.clone_ref(py),
            })
            .collect::<Vec<_>>();
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(_, known)| {
            !known
                .iter()
                .map(|d| &d.name)
                .eq(devices.iter().map(|d| &d.name))
        });
        if kept.len() == LISTS {
            kept.remove(0);
        }
        kept.push((mine, devices));
    }
}

#[cfg(test)]
mod tests {
    use remat_core::{Bytes, DeviceId};

    use super::{Knowledge, LIMIT};
    use crate::call::signature::Signature;

    #[test]
    fn signatures_that_never_repeat_are_forgotten() {
        let signature = Signature {
            outputs: Vec::new(),
            workspace: Bytes(0),
            leaves: Bytes(0),
            left: true,
            workspace_device: DeviceId(0),
            measured: true,
            spans: true,
            calls: 0,
            cost: 0,
        };
        let mut knowledge = Knowledge::default();
        for key in 0..2 * LIMIT as u64 + 1 {
            knowledge.remember(key, signature.clone());
            assert!(knowledge.signatures.len() <= LIMIT);
            assert!(knowledge.signatures.contains_key(&key), "the latest stays");
        }
    }
}
