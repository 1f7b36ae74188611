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

static KEPT: Mutex<Option<(Knowledge, Vec<Device>)>> = Mutex::new(None);

/// More signatures than this are not kept: a program whose shapes never repeat must not grow for ever.
const LIMIT: usize = 200_000;

impl Knowledge {
    /// The knowledge that earlier sessions left, if `devices` (the devices with budgets) come first in its list of
    /// devices. Device ids in signatures are positions in that list, so the session takes over the list too.
    pub fn take(devices: &mut Vec<Device>) -> Knowledge {
        let Some(kept) = KEPT.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Knowledge::default();
        };
        let (knowledge, known_devices) = kept;
        let fits = known_devices.len() >= devices.len()
            && known_devices
                .iter()
                .zip(devices.iter())
                .all(|(a, b)| a.name == b.name);
        if !fits {
            return Knowledge::default();
        }
        *devices = known_devices;
        knowledge
    }

    /// Leaves the knowledge for the next session.
    pub fn put_back(&mut self, py: Python<'_>, devices: &[Device]) {
        let mut mine = std::mem::take(self);
        if mine.signatures.len() > LIMIT {
            mine.signatures.clear();
        }
        let devices = devices
            .iter()
            .map(|p| Device {
                name: p.name.clone(),
                device: p.device.clone_ref(py),
            })
            .collect();
        *KEPT.lock().unwrap_or_else(PoisonError::into_inner) = Some((mine, devices));
    }
}
