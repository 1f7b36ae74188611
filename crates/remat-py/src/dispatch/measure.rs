//! Calling an op, timing it and measuring its workspace while its signature is new.

use pyo3::prelude::*;
use remat_core::Bytes;

use super::state::State;
use crate::call::invocation::Invocation;
use crate::call::signature::{SAMPLES, Signature, is_due};
use crate::ffi::errors::as_torch_raises;
use crate::ffi::thread::CallClock;
use crate::tracking::devices::PLACED;

/// An op's result, and its cost in nanoseconds.
type Timed<'py> = (Bound<'py, PyAny>, u64);

/// A measurement of time under way.
pub(super) enum Started {
    /// By the time of the processors that run the op.
    Here(CallClock),
    /// By the clock of the device that runs it: the function that ends the measurement.
    OnDevice(Py<PyAny>),
}

impl Started {
    pub(super) fn of(py: Python<'_>, clock: Option<Py<PyAny>>) -> PyResult<Started> {
        Ok(match clock {
            Some(clock) => Started::OnDevice(clock.call0(py)?),
            None => Started::Here(CallClock::start()),
        })
    }

    /// Nanoseconds since then.
    pub(super) fn elapsed(self, py: Python<'_>) -> PyResult<u64> {
        match self {
            Started::Here(clock) => Ok(clock.nanoseconds()),
            Started::OnDevice(stop) => stop.call0(py)?.extract(py),
        }
    }
}

impl State {
    /// The state of the generators that a random op draws from.
    pub(super) fn rng_state(&mut self, call: &Invocation<'_, '_>) -> PyResult<Py<PyAny>> {
        let py = call.py();
        let rng_state = self.executor.internals.rng_state.clone_ref(py);
        let state = self.lending(py, || rng_state.bind(py).call1((call.args, call.kwargs)))?;
        Ok(state.unbind())
    }

    /// Runs the op and frees the blocks that were kept for it in vain. The first run measures its workspace, and the
    /// next few its time.
    pub(super) fn call<'py>(
        &mut self,
        call: &Invocation<'_, 'py>,
        signature: &mut Signature,
    ) -> PyResult<Timed<'py>> {
        let in_arena = signature.workspace_device == PLACED && self.executor.arena.is_some();
        let forked = self.executor.forked;
        // Neither an arena nor a device tells what one thread took.
        let shared = in_arena || self.executor.has_clock(signature.workspace_device);
        let beside = shared && self.bodies.any();
        let known = signature.measured && (signature.spans || !in_arena || forked);
        let called = if known || beside {
            self.call_timed(call, signature)
        } else if forked {
            self.call_unbounded(call, signature)
        } else {
            match in_arena.then(|| self.start_measuring()).flatten() {
                Some(in_use_before) => self.call_in_arena(call, signature, in_use_before),
                None => self.call_profiled(call, signature),
            }
        };
        self.executor.expect_no_more();
        called
    }

    /// Runs the op for the first time in the child of a fork, where its workspace matters to nobody. Torch's record of
    /// allocations would complain of blocks that the parent made.
    fn call_unbounded<'py>(
        &mut self,
        call: &Invocation<'_, 'py>,
        signature: &mut Signature,
    ) -> PyResult<Timed<'py>> {
        let started = CallClock::start();
        let result = self.lending(call.py(), || call.call())?;
        signature.measured = true;
        signature.cost = started.nanoseconds();
        Ok((result, signature.cost))
    }

    /// Runs the op for the first time in an arena, with its workspace read off it.
    fn call_in_arena<'py>(
        &mut self,
        call: &Invocation<'_, 'py>,
        signature: &mut Signature,
        in_use_before: Bytes,
    ) -> PyResult<Timed<'py>> {
        let started = CallClock::start();
        self.in_use_before = Some(in_use_before);
        let result = self.lending(call.py(), || call.call())?;
        self.in_use_before = None;
        let cost = started.nanoseconds();
        let taken = self.workspace_since(in_use_before);
        let workspace = taken.max(self.span_of_temporaries());
        let workspace = workspace.max(self.rng_bytes(call));
        if signature.measured {
            signature.workspace.0 = signature.workspace.0.max(workspace);
        } else {
            signature.workspace = Bytes(workspace);
            signature.cost = cost;
        }
        (signature.measured, signature.spans) = (true, true);
        Ok((result, cost))
    }

    /// Runs the op for the first time, with its workspace measured by torch's own record of allocations.
    fn call_profiled<'py>(
        &mut self,
        call: &Invocation<'_, 'py>,
        signature: &mut Signature,
    ) -> PyResult<Timed<'py>> {
        let py = call.py();
        let started = Started::of(py, self.executor.clock(py, signature.workspace_device))?;
        let internals = &self.executor.internals;
        let measured_call = internals.measured_call.bind(py);
        let run = || measured_call.call1((&call.func.call, call.args, call.kwargs));
        let (result, workspace): (Bound<'py, PyAny>, Option<u64>) = call
            .within(run)
            .map_err(|e| as_torch_raises(internals.own_frames_dropped.bind(py), e))?
            .extract()?;
        if let Some(workspace) = workspace {
            signature.workspace = Bytes(workspace + self.rng_bytes(call));
            signature.measured = true;
        }
        signature.cost = started.elapsed(py)?;
        Ok((result, signature.cost))
    }

    /// Runs the op, and times it if that is due. A device's own clock does not run on while other programs have the
    /// processor, so the first times of it are as good as any.
    fn call_timed<'py>(
        &mut self,
        call: &Invocation<'_, 'py>,
        signature: &mut Signature,
    ) -> PyResult<Timed<'py>> {
        let py = call.py();
        let clock = self.executor.clock(py, signature.workspace_device);
        let due = match clock {
            Some(_) => signature.calls < SAMPLES,
            None => is_due(signature.calls),
        };
        let started = due.then(|| Started::of(py, clock)).transpose()?;
        let result = self.lending(py, || call.call())?;
        signature.count(started.map(|started| started.elapsed(py)).transpose()?);
        Ok((result, signature.cost))
    }

    /// Bytes that saving and restoring a generator's state takes, if the op draws random numbers.
    fn rng_bytes(&self, call: &Invocation<'_, '_>) -> u64 {
        if call.func.random {
            self.executor.internals.rng_bytes
        } else {
            0
        }
    }
}
