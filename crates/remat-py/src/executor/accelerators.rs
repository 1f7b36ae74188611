//! The executor's care for devices that work beside the processor: it orders their streams, and leaves room in their
//! budgets for the bytes that their allocators give out beside the session's storages.

use std::hash::Hasher;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use remat_core::{Bytes, DeviceId, Error, OpSpec, Output};
use rustc_hash::FxHasher;

use super::state::Executor;
use crate::ffi::gil::Attach;
use crate::tracking::accelerators::Accelerator;
use crate::tracking::live::LiveId;
use crate::tracking::slack::{lent, slack};

/// Blocks larger than this may be larger than what was asked for, by as much: the rule of torch's caching allocators.
const LARGE: u64 = 1 << 20;

/// With each op, the bytes that are kept fall by this part of the difference to those that are needed: allocations of
/// the same sizes come again, and may get larger blocks again.
const DECAY: u64 = 64;

/// A number of bytes that falls towards another one.
fn decayed(bytes: u64, towards: u64) -> u64 {
    bytes - bytes.saturating_sub(towards).div_ceil(DECAY)
}

/// Bytes of an op's results in storages of their own, on the device of its workspace.
pub fn fresh<'a>(spec: &'a OpSpec<'_>) -> impl Iterator<Item = u64> + 'a {
    spec.outputs.iter().filter_map(|output| match output {
        Output::Fresh { bytes, device } if *device == spec.workspace_device => Some(bytes.0),
        _ => None,
    })
}

impl Executor {
    /// A hash of the devices of a call's storages; of the current one for a call without any, which may go by it.
    pub fn devices_of(&self, py: Python<'_>, lives: &[LiveId]) -> PyResult<u64> {
        let mut hash = FxHasher::default();
        for &id in lives {
            let live = self.storages.live(id);
            hash.write_u8(live.map_or(u8::MAX, |live| live.device.0));
        }
        if let Some(current) = self
            .accelerators
            .current_index
            .as_ref()
            .filter(|_| lives.is_empty())
        {
            hash.write_i64(current.bind(py).call0()?.extract()?);
        }
        Ok(hash.finish())
    }

    /// Whether a device has a clock of its own: the processor has none.
    pub fn has_clock(&self, device: DeviceId) -> bool {
        self.accelerators.find(device).is_some()
    }

    /// The clock of a device; `None` for the processor itself.
    pub fn clock(&self, py: Python<'_>, device: DeviceId) -> Option<Py<PyAny>> {
        let accelerator = self.accelerators.find(device)?;
        Some(accelerator.clock.clone_ref(py))
    }

    /// Looks at the accelerators before an op: their streams, and the bytes beside the session's storages.
    #[inline]
    pub fn look_at_accelerators(&mut self, gil: impl Attach) -> PyResult<()> {
        let all_met = self.accelerators.met == self.devices.len();
        if all_met && self.accelerators.here.is_empty() {
            return Ok(());
        }
        gil.attach(|py| self.meet_and_look(py))
    }

    fn meet_and_look(&mut self, py: Python<'_>) -> PyResult<()> {
        while self.accelerators.met < self.devices.len() {
            let at = self.accelerators.met;
            let device = self.devices[at].device.clone_ref(py);
            self.accelerators
                .meet(device.bind(py), DeviceId(at as u8))?;
            self.accelerators.met += 1;
        }
        if self.accelerators.here.is_empty() {
            return Ok(());
        }
        let streams = self.accelerators.streams.bind(py);
        streams.call_method0(pyo3::intern!(py, "note"))?;
        for at in 0..self.accelerators.here.len() {
            self.look_beside(py, at)?;
        }
        Ok(())
    }

    /// Fits a device's budget to the bytes that its allocator gave out beside the session's storages.
    fn look_beside(&mut self, py: Python<'_>, at: usize) -> PyResult<()> {
        let Accelerator {
            id,
            allocated,
            beside,
            ..
        } = &self.accelerators.here[at];
        let (id, kept) = (*id, *beside);
        let (Some(given), Some(allocated)) = (self.given(id), allocated) else {
            return Ok(());
        };
        let allocated: u64 = allocated.bind(py).call0()?.extract()?;
        let now = allocated.saturating_sub(self.ledger.used_or_held(id));
        let accelerator = &mut self.accelerators.here[at];
        let rise = now - now.min(accelerator.seen.replace(now).unwrap_or(now));
        accelerator.rise = rise.max(decayed(accelerator.rise, 0));
        let keep = (now + accelerator.rise).max(decayed(kept, now));
        if keep == kept {
            return Ok(());
        }
        let left = Bytes((given - slack(given)).saturating_sub(keep));
        let changed = self.engine.set_budget(id, Some(left));
        changed.map_err(|e| self.refusal(py, &e))?;
        self.accelerators.here[at].beside = keep;
        self.perform(py)?;
        self.collect();
        Ok(())
    }

    /// Checks that bytes which are about to be allocated fit into a device's budget, as its allocator sees it. Storages
    /// that were brought back since the plan was made may lie in larger blocks than their first ones.
    ///
    /// # Errors
    /// A `RuntimeError` where they do not fit. The plan is then made anew, with room for such blocks.
    pub fn check_blocks(&mut self, py: Python<'_>, bytes: Bytes, on: DeviceId) -> PyResult<()> {
        let given = self.given(on);
        let here = &mut self.accelerators.here;
        let Some(accelerator) = here.iter_mut().find(|accelerator| accelerator.id == on) else {
            return Ok(());
        };
        let (Some(given), Some(allocated)) = (given, &accelerator.allocated) else {
            return Ok(());
        };
        let allocated: u64 = allocated.bind(py).call0()?.extract()?;
        let short = (allocated + bytes.0).saturating_sub(given);
        if short == 0 {
            return Ok(());
        }
        accelerator.rise += short;
        accelerator.short = true;
        Err(PyRuntimeError::new_err(
            "remat: blocks are larger than planned",
        ))
    }

    /// Whether the last check found blocks too large; the next asks anew.
    pub fn take_short(&mut self) -> bool {
        let mut here = self.accelerators.here.iter_mut();
        here.any(|accelerator| std::mem::take(&mut accelerator.short))
    }

    /// The part of a device's budget that is for the session's storages and ops.
    pub fn left_of(&self, budget: u64, device: DeviceId) -> Bytes {
        Bytes((budget - slack(budget)).saturating_sub(self.beside(device)))
    }

    /// Gives ops what is lent of the slack of a budget that refused one, from now on. Returns whether they had it not
    /// yet. Accelerators keep theirs: their allocators give out larger blocks than asked for.
    pub fn lend_slack(&mut self, refusal: &Error) -> bool {
        let Error::Budget { device, budget, .. } = *refusal else {
            return false;
        };
        let Some(given) = self.given(device).filter(|_| self.arena.is_none()) else {
            return false;
        };
        let most = Bytes(given - slack(given) + lent(given));
        self.accelerators.find(device).is_none()
            && most > budget
            && self.engine.set_budget(device, Some(most)).is_ok()
    }

    /// Bytes that a device's allocator gave out beside the session's storages, as far as they are kept free.
    pub(super) fn beside(&self, device: DeviceId) -> u64 {
        self.accelerators.find(device).map_or(0, |a| a.beside)
    }

    /// The workspace of an op, with what the blocks of its results may be larger than asked for.
    pub fn workspace_in_blocks(&self, spec: &OpSpec<'_>) -> Bytes {
        let accelerator = self.accelerators.find(spec.workspace_device);
        if accelerator.is_none_or(|accelerator| accelerator.allocated.is_none()) {
            return spec.workspace;
        }
        let large = fresh(spec).filter(|&bytes| bytes > LARGE).count() as u64;
        let blocks = large + u64::from(spec.workspace.0 > LARGE);
        Bytes(spec.workspace.0 + blocks * LARGE)
    }

    /// Has the streams of each accelerator wait for one another, because memory changes hands.
    pub(super) fn order_streams(&self, py: Python<'_>) -> PyResult<()> {
        if self.accelerators.here.is_empty() {
            return Ok(());
        }
        let streams = self.accelerators.streams.bind(py);
        streams.call_method0(pyo3::intern!(py, "order")).map(|_| ())
    }
}
