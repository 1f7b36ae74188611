//! Ops that run unwatched: nobody but the allocator takes note of them.
//!
//! A run that needs far less than its budget evicts nothing, so nothing needs to be known of its ops. What they take is
//! counted block by block ([`counted`]), and is one constant to the engine. Ops are watched again from the first one on
//! whose block takes the run above three fifths of its budget, and that one may not exceed the budget.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pyo3::prelude::*;
use remat_core::{Bytes, DeviceId};

use super::state::State;
use crate::call::arity::Arity;
use crate::call::stacked::Stacked;
use crate::ffi::boxed::{Item, Tensor, Value, storage_bytes};
use crate::ffi::caching;
use crate::ffi::counted;
use crate::ffi::dispatcher::Torch;
use crate::ffi::gil::Attach;
use crate::ffi::watch;

/// Inputs that are so small a part of the budget make no step larger than those before it.
const SMALL_PART: u64 = 256;

/// The storages that an op reads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Inputs {
    /// Bytes of them all.
    pub(super) bytes: u64,
    /// Whether the bytes of each are counted, or known to the session.
    pub(super) counted: bool,
}

/// Looks at the storages among the arguments of a call.
///
/// # Safety
/// The values are alive, on the stack of a call in progress.
#[inline]
pub(super) unsafe fn look(torch: &Torch, values: &[Value]) -> Inputs {
    let mut inputs = Inputs {
        bytes: 0,
        counted: true,
    };
    for value in values {
        // SAFETY: as the caller promises; lists keep their items alive.
        unsafe {
            match torch.boxed.read(value) {
                Item::Tensor(tensor) => inputs.add(torch, tensor),
                Item::List(items) => {
                    for value in items {
                        if let Item::Tensor(tensor) = torch.boxed.read(value) {
                            inputs.add(torch, tensor);
                        }
                    }
                }
                _ => {}
            }
        }
    }
    inputs
}

impl Inputs {
    /// # Safety
    /// The tensor is alive.
    #[inline]
    unsafe fn add(&mut self, torch: &Torch, tensor: Tensor) {
        let boxed = torch.boxed;
        // SAFETY: as the caller promises: the tensor owns its storage.
        unsafe {
            let storage = tensor.storage(boxed);
            if storage == 0 {
                self.counted = false;
            } else if !tensor.wraps(boxed) {
                self.bytes += storage_bytes(boxed, storage);
                self.counted &= is_accounted_for(torch, storage);
            }
        }
    }

    /// Whether they are no reason to expect that the op takes more memory than others before it.
    pub(super) fn are_usual(self, arity: &Arity) -> bool {
        let few = FEW.load(Ordering::Relaxed);
        self.bytes <= few.max(and_a_quarter(arity.seen.read()))
    }
}

/// A quarter more. Where memory grows by the square of the inputs, a step whose inputs are that much larger fits still,
/// for it needed three fifths of the budget at most.
fn and_a_quarter(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 4)
}

/// Bytes that a usual call of an op may take; the largest number there is for an op that was never watched.
pub(super) fn expected(arity: &Arity) -> u64 {
    and_a_quarter(arity.seen.taken())
}

/// Whether ops of this run may come to run unwatched.
static POSSIBLE: AtomicBool = AtomicBool::new(false);

/// Whether the inputs of ops are to be looked at: memory may be plentiful.
#[inline]
pub(super) fn is_possible() -> bool {
    POSSIBLE.load(Ordering::Relaxed)
}

/// A run begins, or has another budget.
pub(super) fn hope() {
    POSSIBLE.store(true, Ordering::Relaxed);
    FEW.store(0, Ordering::Relaxed); // that of another budget
}

/// So many bytes of inputs are always usual.
static FEW: AtomicU64 = AtomicU64::new(0);

/// Whether a storage's bytes, if it has any, are counted where they are.
///
/// # Safety
/// The storage is alive.
#[inline]
unsafe fn is_counted(torch: &Torch, storage: usize) -> bool {
    let boxed = torch.boxed;
    // SAFETY: as the caller promises; the deleter lies behind the place of the bytes.
    unsafe {
        storage_bytes(boxed, storage) == 0 || boxed.deleter(storage) == caching::counted_deleter()
    }
}

/// Whether a storage's bytes are counted where they are, or known to the session.
///
/// # Safety
/// The storage is alive.
#[inline]
unsafe fn is_accounted_for(torch: &Torch, storage: usize) -> bool {
    // SAFETY: as the caller promises.
    unsafe { watch::tells(storage) || is_counted(torch, storage) }
}

/// The bytes of a storage that are counted where they are, and nowhere else; `None` if it is watched or another's.
///
/// # Safety
/// The storage is alive.
#[inline]
pub(super) unsafe fn bytes_counted_alone(torch: &Torch, storage: usize) -> Option<u64> {
    // SAFETY: as the caller promises.
    unsafe {
        let alone = !watch::tells(storage) && is_counted(torch, storage);
        alone.then(|| storage_bytes(torch.boxed, storage))
    }
}

impl State {
    /// Three fifths of the budget and all of it, if the run never needed more than the former, in main memory alone,
    /// and nothing else wants to see its ops.
    fn plenty(&self) -> Option<(u64, u64)> {
        let executor = &self.executor;
        let device = executor.budget_device;
        // Devices of earlier runs are known too.
        let mut others = (0..executor.devices.len() as u8).map(DeviceId);
        let unused = |&id: &DeviceId| executor.given(id).is_none() && executor.ledger.peak(id) == 0;
        let alone =
            others.all(|id| id == device || unused(&id)) && self.is_main_memory(device, &[]);
        let unseen = executor.trace.is_none()
            && executor.storages.timeline.is_none()
            && executor.measured.is_none()
            && executor.arena.is_none();
        if !alone || !unseen || executor.forked || !caching::counts() {
            return None;
        }
        let budget = executor.engine.budget(device)?.0;
        let stop = Bytes(budget).plentiful().0;
        (executor.ledger.peak(device) <= stop).then_some((stop, budget))
    }

    /// Lets ops run unwatched from this one on, if memory is plentiful: this one may take so many bytes. Its arguments
    /// are counted from here on, if they were not.
    ///
    /// # Safety
    /// The values that `stacked` names are alive, on the stack of the call.
    pub(super) unsafe fn let_run_unwatched(
        &mut self,
        gil: impl Attach,
        torch: &Torch,
        stacked: &Stacked,
        expected: u64,
    ) -> PyResult<bool> {
        if expected == u64::MAX || self.ops < self.always_recorded {
            return Ok(false);
        }
        if self.plenty().is_none() {
            POSSIBLE.store(false, Ordering::Relaxed); // no reason for that ever goes, but with a larger budget
            return Ok(false);
        }
        self.executor.drain_deaths(gil)?;
        if !self.forgets_all(gil)? {
            return Ok(false);
        }
        for at in 0..stacked.storages.len() {
            // SAFETY: as the caller promises.
            unsafe {
                if !is_accounted_for(torch, stacked.storages[at])
                    && self.resolve_at(gil, torch, stacked, at as u32)?.is_none()
                {
                    return Ok(false);
                }
            }
        }
        // An argument may be the first view of much memory.
        let Some((stop, budget)) = self.plenty() else {
            return Ok(false);
        };
        let used = self.executor.ledger.used(self.executor.budget_device);
        if used.saturating_add(expected) > stop {
            return Ok(false);
        }
        let others = self.executor.counted_by_itself();
        self.executor.engine.note_gap();
        FEW.store(budget / SMALL_PART, Ordering::Relaxed);
        counted::begin(others, stop, budget);
        Ok(true)
    }
}

impl State {
    /// Whether the engine remembers no op. Where results stay for long it always remembers theirs: once a run is
    /// steady and nothing was ever evicted, all that is there becomes constant.
    fn forgets_all(&mut self, gil: impl Attach) -> PyResult<bool> {
        if self.executor.engine.is_idle() {
            return Ok(true);
        }
        let peak = self.executor.ledger.peak(self.executor.budget_device);
        let steady = self.steady.look(peak, self.ops, self.always_recorded);
        if !steady || self.executor.engine.counters().evictions > 0 {
            return Ok(false);
        }
        self.executor.make_all_constant(gil)?;
        self.steady.begin_anew(self.ops); // where there is more to it, the next attempt is far off
        Ok(self.executor.engine.is_idle())
    }
}
