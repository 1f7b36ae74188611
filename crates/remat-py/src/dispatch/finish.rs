//! The end of an op: the engine is told its true sizes and cost, and its results are taken in.

use pyo3::prelude::*;
use remat_core::{Bytes, Cost, Error, Finished, Output, TensorId};

use super::costs::Completed;
use super::op::{Announced, Prepared, Ran, sizes_of};
use super::sizes::Parts;
use super::state::State;
use crate::call::arguments::Registry;
use crate::call::signature::Signature;
use crate::ffi::fastcall::call_one;
use crate::ffi::gil::Attach;
use crate::ffi::layout::Impl;
use crate::tracking::live::{Contents, LiveId};
use crate::tracking::trace::{RanOp, Rooms};

/// The storages of an op's results.
pub(super) struct Results<'py> {
    /// True sizes of the announced outputs; 0 for those that were not returned.
    sizes: Vec<Bytes>,
    /// Storages of fresh outputs, with the index of the output.
    fresh: Vec<(u32, Bound<'py, PyAny>)>,
    /// Further storages, which become constants.
    pub(super) parts: Parts<'py>,
    /// Whether every result has a storage of its own.
    dense: bool,
}

impl Results<'_> {
    /// Fresh outputs that were announced and not returned.
    fn missing<'a>(&'a self, outputs: &'a [Output]) -> impl Iterator<Item = usize> + 'a {
        let returned = |k: usize| self.fresh.iter().any(|(fresh, _)| *fresh == k as u32);
        let fresh = outputs.iter().enumerate();
        fresh
            .filter(|(_, output)| matches!(output, Output::Fresh { .. }))
            .map(|(k, _)| k)
            .filter(move |&k| !returned(k))
    }
}

impl Completed<'_> {
    /// Bytes beyond inputs and outputs, as a trace has them.
    pub(super) fn room(&self, rooms: Rooms) -> u64 {
        let taken = self.signature.room();
        match (rooms, self.announced) {
            (Rooms::Announced, Some(announced)) => {
                announced.max(taken).0 + self.outputs_in_excess()
            }
            _ => taken.0,
        }
    }

    /// Bytes by which the outputs were announced larger than they are.
    fn outputs_in_excess(&self) -> u64 {
        let announced = sizes_of(self.outputs).zip(self.sizes.unwrap_or_default());
        announced
            .map(|(announced, size)| announced.0.saturating_sub(size.0))
            .sum()
    }
}

impl State {
    /// Tells the engine the results of an op, and takes them in. Returns whether every result has a storage of its own.
    pub(super) fn finish(
        &mut self,
        prepared: &mut Prepared,
        announced: &mut Announced,
        ran: &Ran<'_>,
    ) -> PyResult<bool> {
        let py = ran.result.py();
        // Sizes first: the engine must know them before storages are looked up again.
        let results = self.sort_results(&ran.result, announced, &mut prepared.signature)?;
        let completed = Completed {
            op: ran.op,
            inputs: &prepared.walked.inputs,
            outputs: &announced.outputs,
            made: &ran.made,
            signature: &prepared.signature,
            announced: Some(prepared.room),
            replay: ran.replay,
            cost: ran.cost,
            sizes: Some(&results.sizes),
        };
        let finished = self.tell_engine(py, &completed)?;
        self.take_in_fresh(announced, &results, &ran.made)?;
        let Prepared {
            walked, signature, ..
        } = prepared;
        if signature.measured {
            let (device, bytes) = (signature.workspace_device, signature.workspace.0);
            self.executor.ledger.spike(device, bytes);
        }
        self.executor.check_outputs(py, ran.op);
        for (k, &input) in walked.written.iter().enumerate() {
            self.supersede(py, walked.lives[input as usize], ran.made[k])?;
        }
        self.executor.keep_results();
        for k in results.missing(&announced.outputs) {
            self.executor.release(py, ran.made[k])?;
        }
        let missing: Vec<usize> = results.missing(&announced.outputs).collect();
        announced.forget(&missing);
        finished.map_err(|e| self.executor.refusal(py, &e))?;
        let mut left = results.parts.bytes;
        self.take_in_parts(py, results.parts)?;
        for &input in &walked.written {
            let grown = self.check_size(py, walked.lives[input as usize])?;
            left += grown.unwrap_or(0);
        }
        signature.leave(left);
        Ok(results.dense)
    }

    /// Sorts the storages of a result into announced outputs and others, and corrects the signature by their sizes.
    pub(super) fn sort_results<'py>(
        &mut self,
        result: &Bound<'py, PyAny>,
        announced: &Announced,
        signature: &mut Signature,
    ) -> PyResult<Results<'py>> {
        let py = result.py();
        let flat = self.flatten(result, announced.results.len())?;
        let mut results = Results {
            sizes: announced.sizes(),
            fresh: Vec::with_capacity(flat.len()),
            parts: Parts::default(),
            dense: true,
        };
        for (i, tensor) in flat.iter().enumerate() {
            let Some(tensor) = tensor else { continue };
            let Ok(storage) = call_one(&self.torch.untyped_storage, tensor) else {
                results.dense = false;
                self.list_parts(tensor, &mut results.parts)?;
                continue;
            };
            let seen = self.executor.storages.find(&storage).is_some()
                || results.fresh.iter().any(|(_, s)| s.is(&storage));
            if seen {
                continue;
            }
            let nbytes = storage.call_method0(pyo3::intern!(py, "nbytes"))?;
            let size = Bytes(nbytes.extract()?);
            if self.is_nothing(&storage, size)? {
                signature.learn(i, Bytes(0));
                continue;
            }
            if let Some(k) = announced.results.get(i).copied().flatten() {
                results.sizes[k as usize] = size;
                signature.learn(i, size);
                results.fresh.push((k, storage));
            } else {
                if let Some(device) = self.executor.device_of(&storage)? {
                    signature.discover(i, size, device);
                }
                results.parts.strangers.push(storage);
            }
        }
        let missing: Vec<usize> = results.missing(&announced.outputs).collect();
        for k in missing {
            results.sizes[k] = Bytes(0);
        }
        Ok(results)
    }

    /// Whether a new storage is a tensor of zeros that torch does not allocate. Such results count as not returned.
    fn is_nothing(&mut self, storage: &Bound<'_, PyAny>, size: Bytes) -> PyResult<bool> {
        Ok(
            self.executor.is_hollow(storage, size.0)?
                && self.executor.device_of(storage)?.is_some(),
        )
    }

    /// Takes an op back that raised an error as it ran, given the storages of its inputs. What it overwrites may hold a
    /// part of what it was to write: that value came by no op that could run again, so it is a constant.
    pub(super) fn take_back_raised(
        &mut self,
        py: Python<'_>,
        raised: &Completed<'_>,
        lives: &[LiveId],
    ) -> PyResult<()> {
        let overwrites = |output: &Output| matches!(output, Output::InPlace { .. });
        if !raised.outputs.iter().any(overwrites) || !self.executor.engine.is_open(raised.op) {
            return self.executor.cancel(py, raised.op);
        }
        self.executor.running = None;
        let finished = self.tell_engine(py, raised)?;
        for (output, &made) in raised.outputs.iter().zip(raised.made) {
            match *output {
                Output::InPlace { of } => {
                    self.supersede(py, lives[of], made)?;
                    self.executor.pin(py, lives[of])?;
                }
                _ => self.executor.release(py, made)?,
            }
        }
        finished.map_err(|e| self.executor.refusal(py, &e))
    }

    /// Tells the trace and the engine that an op ran, and performs the engine's steps. Returns the engine's verdict,
    /// which the caller looks at once it has taken in what the op made: the op ran, whatever the verdict is.
    pub(super) fn tell_engine(
        &mut self,
        gil: impl Attach,
        completed: &Completed<'_>,
    ) -> PyResult<Result<(), Error>> {
        let cost = self.costs.of(&self.executor.engine, completed);
        let executor = &mut self.executor;
        if let Some(trace) = &mut executor.trace {
            trace.op(&RanOp {
                name: &executor.current,
                inputs: completed.inputs,
                outputs: completed.outputs,
                made: completed.made,
                workspace: completed.room(trace.rooms),
                workspace_device: completed.signature.workspace_device,
                cost,
                replay: completed.replay,
                sizes: completed.sizes,
            });
        }
        if let Some(timeline) = &executor.storages.timeline {
            let signature = completed.signature;
            let workspace = if signature.measured {
                signature.workspace.0
            } else {
                0
            };
            timeline.tell(|recorder| recorder.ran(completed.op, workspace));
        }
        let report = Finished {
            cost: Cost(cost),
            bytes: completed.sizes,
        };
        let finished = executor.engine.finish(completed.op, &report);
        executor.note_pinned();
        executor.tend_plans();
        executor.perform(gil)?;
        Ok(finished)
    }

    /// Takes in the storages of fresh outputs.
    fn take_in_fresh(
        &mut self,
        announced: &Announced,
        results: &Results<'_>,
        made: &[TensorId],
    ) -> PyResult<()> {
        let executor = &mut self.executor;
        for (k, storage) in &results.fresh {
            let k = *k as usize;
            let device = match announced.outputs[k] {
                Output::Fresh { device, .. } => device,
                _ => executor.budget_device,
            };
            let (tensor, bytes) = (made[k], results.sizes[k].0);
            executor.ledger.add(device, bytes);
            let id = executor.storages.insert(
                storage,
                Impl::of(storage)?,
                Contents {
                    tensor,
                    sid: executor.storage_of(tensor),
                    bytes,
                    device,
                },
            )?;
            executor.note_if_unrecorded(id, tensor);
        }
        Ok(())
    }

    /// Registers storages that were not announced as constants, and pins known ones that sparse results share.
    pub(super) fn take_in_parts(&mut self, py: Python<'_>, parts: Parts<'_>) -> PyResult<()> {
        for storage in parts.strangers {
            self.executor.resolve(&storage)?;
        }
        for id in parts.shared {
            self.executor.pin_in_place(py, id)?;
        }
        Ok(())
    }
}
