//! Ops that are not torch's own. The session is unlocked while one runs: its code is the program's, and may wait for a
//! thread that calls ops of its own.
//!
//! To the engine the op is open meanwhile: its inputs stay, and its room is nobody else's. Its results are constants.
//! Arguments are pinned, but for ops of `torch.library.custom_op`, whose results share no memory with them. Whether
//! such an op keeps one shows in how many references there are to it.

use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use remat_core::{Bytes, OpId, OpSpec, Replay, TensorId};

use super::bodies::{Company, Writes};
use super::costs::Completed;
use super::lock::{Held, SessionLock, Within};
use super::measure::Started;
use super::op::Announced;
use super::placed::{ATTEMPTS, repeatable};
use super::state::State;
use super::stats::Unseen;
use crate::call::arguments::Walk;
use crate::call::form::kind_of;
use crate::call::func::Func;
use crate::call::invocation::{Invocation, Surroundings};
use crate::call::record::GradMode;
use crate::call::signature::{SAMPLES, Signature, is_due};
use crate::ffi::errors::as_torch_raises;
use crate::tracking::devices::PLACED;
use crate::tracking::live::LiveId;

/// A foreign op whose arguments were looked at.
pub(super) struct Foreign {
    func: Arc<Func>,
    surroundings: Surroundings,
    walked: Walk,
    /// The use of running statistics that its run will show, and their bytes before, if it is not known.
    statistics: Option<(Unseen, Py<PyAny>)>,
    signature: Option<Signature>,
    /// Storages that it declares to write, by address. To the engine they were written before it ran.
    writing: Vec<usize>,
    /// Lists it among those that write, until it is done.
    _writes: Option<Writes>,
    internals: Internals,
}

/// Functions of torch internals.
struct Internals {
    predict: Py<PyAny>,
    measured_call: Py<PyAny>,
    own_frames_dropped: Py<PyAny>,
    /// Where no argument is pinned: counts references to them.
    references: Option<Py<PyAny>>,
    /// Where lazy conjugates were seen: has those within the op handled, and ends that.
    lazy: Option<(Py<PyAny>, Py<PyAny>)>,
}

/// The preparations for one run of the op.
struct Given {
    /// The op, as the engine knows it. While it is open its inputs stay.
    op: OpId,
    /// Bytes of its room that nobody else is given.
    room: u64,
    /// Whether torch's record of allocations is to measure the workspace.
    profiled: bool,
    /// Bytes in use in the arena, where the workspace is to be read off it.
    in_use_before: Option<Bytes>,
    /// The other ops under way.
    company: Company,
    /// Whether the run is timed.
    timed: bool,
    /// The clock of the op's device.
    clock: Option<Py<PyAny>>,
}

/// A run of the op that returned.
struct Called<'py> {
    result: Bound<'py, PyAny>,
    /// Bytes beyond the result, if they were measured.
    workspace: Option<u64>,
    /// In nanoseconds, if it was timed.
    cost: Option<u64>,
}

/// Runs a foreign op that was [prepared](State::prepare_foreign).
pub(super) fn run<'py>(
    lock: &SessionLock,
    foreign: Foreign,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = args.py();
    let Some((handle_lazy, exclude_again)) = &foreign.internals.lazy else {
        return run_unlocked(lock, foreign, args, kwargs);
    };
    let exclude_again = exclude_again.clone_ref(py);
    let excluded = handle_lazy.call0(py)?;
    let outcome = run_unlocked(lock, foreign, args, kwargs);
    exclude_again.call1(py, (excluded,))?;
    outcome
}

fn run_unlocked<'py>(
    lock: &SessionLock,
    mut foreign: Foreign,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = args.py();
    let func = foreign.func.clone();
    let call = Invocation {
        func: &func,
        args,
        kwargs,
        surroundings: foreign.surroundings,
    };
    let known = foreign.signature.take();
    let (mut signature, told) = match known {
        Some(known) => (known, None),
        None => {
            let predict = foreign.internals.predict.bind(py);
            let within = Within::an_op(foreign.writing.clone());
            let found = predict.call1((&func.overload, args, kwargs))?;
            drop(within);
            enter(lock, py)?.state.signature_of(&found)?
        }
    };
    let mut runs = 0;
    loop {
        let given = {
            let mut held = enter(lock, py)?;
            let state = &mut *held.state;
            let given = state.give_room(py, &mut foreign, &signature);
            match state.executor.ended(py, given) {
                Ok(given) => given,
                Err(refusal) => {
                    state.keep_knowledge(py, &foreign, signature, told.as_ref())?;
                    return Err(refusal);
                }
            }
        };
        let (called, kept) = {
            let _within = Within::an_op(foreign.writing.clone());
            let before = foreign.references(&call);
            let called = foreign.call(&call, &given);
            let kept = foreign.kept(&call, before, &called);
            (called, kept)
        };
        runs += 1;
        let mut held = enter(lock, py)?;
        let state = &mut *held.state;
        state.executor.running = Some(given.op);
        state.set_current(&func.name);
        let pinned = kept.and_then(|kept| state.pin_kept(py, &kept));
        state.end_run(&signature, &given);
        let ran = pinned.and_then(|()| match called {
            Ok(called) => {
                let taken_in =
                    state.take_in_foreign(&call, &mut foreign, &mut signature, &given, &called);
                taken_in.map(|()| Some(called.result))
            }
            Err(error) => state.try_again(&call, &foreign, &mut signature, &given, error, runs),
        });
        let outcome = match state.executor.ended(py, ran) {
            Ok(None) => continue,
            Ok(Some(result)) => Ok(result),
            Err(error) => Err(error),
        };
        state.keep_knowledge(py, &foreign, signature, told.as_ref())?;
        let result = outcome?;
        state.pin_results(&func, &result)?;
        return Ok(result);
    }
}

/// The state, between two pieces of foreign code.
fn enter<'a>(lock: &'a SessionLock, py: Python<'_>) -> PyResult<Held<'a>> {
    let within = || PyRuntimeError::new_err("remat: the session is at work on this very thread");
    lock.enter(py).ok_or_else(within)
}

/// The storages of tensors, and how many references there are to each tensor in C++ and in Python.
type References<'py> = Vec<(Bound<'py, PyAny>, u64, u64)>;

impl Foreign {
    /// References to the arguments; to none where they are pinned.
    fn references<'py>(&self, call: &Invocation<'_, 'py>) -> PyResult<References<'py>> {
        let Some(references) = &self.internals.references else {
            return Ok(Vec::new());
        };
        let found = references.bind(call.py()).call1((call.args, call.kwargs))?;
        found.extract()
    }

    /// The storages of arguments to which there are more references than there were. Those of Python say nothing where
    /// an error was raised, which holds the variables of the body.
    fn kept<'py>(
        &self,
        call: &Invocation<'_, 'py>,
        before: PyResult<References<'py>>,
        called: &PyResult<Called<'py>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let (before, after) = (before?, self.references(call)?);
        let mut kept = Vec::new();
        for ((storage, owners, references), (_, owners_now, references_now)) in
            before.into_iter().zip(after)
        {
            if owners_now > owners || (called.is_ok() && references_now > references) {
                kept.push(storage);
            }
        }
        Ok(kept)
    }

    /// Runs the op.
    fn call<'py>(&self, call: &Invocation<'_, 'py>, given: &Given) -> PyResult<Called<'py>> {
        let py = call.py();
        let clock = given.clock.as_ref().map(|clock| clock.clone_ref(py));
        let started = given.timed.then(|| Started::of(py, clock)).transpose()?;
        let (result, workspace) = if given.profiled {
            let measured_call = self.internals.measured_call.bind(py);
            let run = || measured_call.call1((&call.func.call, call.args, call.kwargs));
            let own_frames_dropped = self.internals.own_frames_dropped.bind(py);
            let ran = call.within(run);
            ran.map_err(|error| as_torch_raises(own_frames_dropped, error))?
                .extract()?
        } else {
            (call.call()?, None)
        };
        let cost = started.map(|started| started.elapsed(py)).transpose()?;
        Ok(Called {
            result,
            workspace,
            cost,
        })
    }
}

impl State {
    /// Pins arguments that a foreign op may keep, and makes tensors that were computed from what it declares to write
    /// independent of it.
    pub(super) fn prepare_foreign(
        &mut self,
        call: &Invocation<'_, '_>,
        mut walked: Walk,
        unseen: Option<Unseen>,
    ) -> PyResult<Foreign> {
        let py = call.py();
        let (grad, _) = self.sign(call, &mut walked)?;
        self.write_aliases(&mut walked);
        if walked.parameters && grad == GradMode::On {
            self.pin_parameters(call)?;
        }
        // In an arena another thread's op may move what is not pinned.
        let in_arena = self.executor.arena.is_some();
        let may_keep = call.func.keeps_arguments || walked.opaque || !walked.parts.is_empty();
        let pins = may_keep || in_arena;
        if pins {
            self.pin_all_in_place(py, &walked.lives)?;
        }
        let chain = self.executor.chain(&walked.inputs);
        self.executor.cut_chains(py, chain)?;
        self.pin_all_in_place(py, &walked.parts)?;
        let written = walked.written.iter();
        let mut overwritten: Vec<LiveId> = written.map(|&i| walked.lives[i as usize]).collect();
        let storages = &self.executor.storages;
        let living = overwritten.iter().filter_map(|&id| storages.live(id));
        let writing: Vec<_> = living.map(|live| live.imp.address()).collect();
        let writes = (!overwritten.is_empty()).then(|| self.bodies.will_write(overwritten.clone()));
        overwritten.extend_from_slice(&walked.stats);
        if !overwritten.is_empty() {
            self.overwrite(py, "remat.overwrite", &overwritten, 0)?;
        }
        let before = self.stats_before(call, unseen.as_ref())?;
        if grad == GradMode::On {
            self.executor.storages.note_forward();
        }
        self.executor
            .note_called(|| kind_of(call.func.overload.as_ptr() as usize, &walked.views));
        let signature = self.knowledge.signatures.get(&walked.signature).cloned();
        let internals = &self.executor.internals;
        let lazy = self.torch.complex_seen.then(|| {
            let (handle, exclude) = (&internals.handle_lazy, &internals.exclude_again);
            (handle.clone_ref(py), exclude.clone_ref(py))
        });
        Ok(Foreign {
            func: call.func.clone(),
            surroundings: call.surroundings,
            walked,
            statistics: unseen.zip(before.map(Bound::unbind)),
            signature,
            writing,
            _writes: writes,
            internals: Internals {
                predict: internals.predict.clone_ref(py),
                measured_call: internals.measured_call.clone_ref(py),
                own_frames_dropped: internals.own_frames_dropped.clone_ref(py),
                references: (!pins).then(|| internals.references.clone_ref(py)),
                lazy,
            },
        })
    }

    /// Makes room for a run of a foreign op, and holds it.
    fn give_room(
        &mut self,
        py: Python<'_>,
        foreign: &mut Foreign,
        signature: &Signature,
    ) -> PyResult<Given> {
        self.set_current(&foreign.func.name);
        self.executor.drain_deaths(py)?;
        let device = signature.workspace_device;
        let in_arena = device == PLACED && self.executor.arena.is_some();
        let bytes = signature.taken();
        self.look_again(&foreign.walked.lives, &mut foreign.walked.inputs);
        let op = self.begin(
            py,
            &OpSpec {
                inputs: &foreign.walked.inputs,
                outputs: &[],
                workspace: Bytes(bytes),
                workspace_device: device,
                replay: Replay::Forbidden,
            },
        )?;
        self.executor.running = None; // others may run meanwhile
        let room = if in_arena { 0 } else { bytes }; // in an arena nobody gets more than there is
        self.executor.ledger.hold(device, room);
        let company = self.bodies.begin(self.ops);
        let forked = self.executor.forked;
        let measures = !forked && !(signature.measured && (signature.spans || !in_arena));
        let in_use_before = if measures && in_arena {
            self.start_measuring()
        } else {
            None
        };
        let clock = self.executor.clock(py, device);
        let few = signature.calls < SAMPLES;
        Ok(Given {
            op,
            room,
            profiled: measures && in_use_before.is_none(),
            in_use_before,
            company,
            timed: measures || few || (clock.is_none() && is_due(signature.calls)),
            clock,
        })
    }

    /// Keeps what is known of a call for those after it.
    fn keep_knowledge(
        &mut self,
        py: Python<'_>,
        foreign: &Foreign,
        signature: Signature,
        told: Option<&Py<PyAny>>,
    ) -> PyResult<()> {
        if let (Some(told), true) = (told, signature.measured) {
            told.call1(py, (signature.workspace.0,))?;
        }
        if !foreign.func.data_dependent {
            let key = foreign.walked.signature;
            self.knowledge.remember(key, signature);
        }
        Ok(())
    }

    /// Pins arguments that the op keeps. It is open still, so they are there.
    fn pin_kept(&mut self, py: Python<'_>, kept: &[Bound<'_, PyAny>]) -> PyResult<()> {
        for storage in kept {
            if let Some(id) = self.executor.storages.find(storage) {
                self.executor.pin_in_place(py, id)?;
            }
        }
        Ok(())
    }

    /// A run has ended, well or not.
    fn end_run(&mut self, signature: &Signature, given: &Given) {
        let device = signature.workspace_device;
        self.executor.ledger.let_go(device, given.room);
        self.executor.expect_no_more();
        self.bodies.end();
    }

    /// Takes in what a foreign op made, and what it took.
    fn take_in_foreign(
        &mut self,
        call: &Invocation<'_, '_>,
        foreign: &mut Foreign,
        signature: &mut Signature,
        given: &Given,
        called: &Called<'_>,
    ) -> PyResult<()> {
        let py = call.py();
        self.measured(signature, given, called);
        let results = self.sort_results(&called.result, &Announced::nothing(), signature)?;
        // Some may be gone, or have other values.
        let lives = foreign.walked.lives.iter();
        let living = lives.filter_map(|&id| self.executor.storages.live(id));
        let inputs: Vec<TensorId> = living.map(|live| live.tensor).collect();
        let walked = &foreign.walked;
        // A trace has the results in the room of the op, and as constants after it.
        let device = signature.workspace_device;
        let with_results = Signature {
            outputs: Vec::new(),
            workspace: Bytes(signature.taken()),
            leaves: Bytes(0),
            ..*signature
        };
        let completed = Completed {
            op: given.op,
            inputs: &inputs,
            outputs: &[],
            made: &[],
            signature: &with_results,
            announced: None,
            replay: Replay::Forbidden,
            cost: signature.cost,
            sizes: None,
        };
        let finished = self.tell_engine(py, &completed)?;
        finished.map_err(|e| self.executor.refusal(py, &e))?;
        let mut left = results.parts.bytes;
        self.take_in_parts(py, results.parts)?;
        // In an arena others may have had the room when the op did not need it any more.
        let alone = self.bodies.was_alone(given.company, self.ops);
        if signature.measured && (given.room > 0 || alone) {
            let workspace = signature.workspace.0;
            self.executor.ledger.spike(device, workspace);
        }
        for &input in &walked.written {
            let grown = self.check_size(py, walked.lives[input as usize])?;
            left += grown.unwrap_or(0);
        }
        signature.leave(left);
        let statistics = foreign.statistics.take();
        self.learn_stats_use(
            call,
            statistics.map(|(unseen, before)| (unseen, before.into_bound(py))),
        )?;
        self.executor.collect();
        self.check_foreign(py, call.func, &foreign.walked, Some(&called.result))
    }

    /// Takes in the measurements of a run.
    fn measured(&mut self, signature: &mut Signature, given: &Given, called: &Called<'_>) {
        let alone = self.bodies.was_alone(given.company, self.ops);
        let taken = match given.in_use_before {
            // Neither an arena nor a device tells what one thread took.
            Some(_) if !alone => None,
            None if !alone && given.clock.is_some() => None,
            Some(before) => {
                let taken = self.workspace_since(before);
                signature.spans = true;
                Some(taken.max(self.span_of_temporaries()))
            }
            None => called.workspace,
        };
        let Some(taken) = taken else {
            return signature.count(called.cost);
        };
        if signature.measured {
            signature.workspace.0 = signature.workspace.0.max(taken);
        } else {
            signature.workspace = Bytes(taken);
            signature.cost = called.cost.unwrap_or(0);
            signature.measured = true;
        }
    }

    /// A foreign op raised an error. `None` if the op found no room in the arena and may be run again with more, after
    /// so many runs.
    fn try_again<'py>(
        &mut self,
        call: &Invocation<'_, 'py>,
        foreign: &Foreign,
        signature: &mut Signature,
        given: &Given,
        error: PyErr,
        runs: u32,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, walked) = (call.py(), &foreign.walked);
        self.executor.cancel(py, given.op)?;
        self.check_foreign(py, call.func, walked, None)?;
        self.in_use_before = given.in_use_before;
        if !self.learn_from(py, &error, signature) {
            return Err(error);
        }
        if runs == ATTEMPTS || !repeatable(call.func, &walked.written) {
            return Err(self.executor.no_block(py));
        }
        Ok(None)
    }
}
