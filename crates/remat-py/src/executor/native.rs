//! Replays of ops that came to the session natively: the template of the form is called, and no Python.

use pyo3::prelude::*;
use remat_core::{Mutation, OpId, StorageId};
use smallvec::SmallVec;

use super::replay::Source;
use super::state::Executor;
use crate::call::random::RandomState;
use crate::call::record::{GradMode, Record};
use crate::call::template::{Differing, Template};
use crate::call::view::BLANK;
use crate::ffi::boxed::storage_bytes;
use crate::ffi::dispatcher::Torch;
use crate::ffi::generator;
use crate::ffi::owned::grad_mode;
use crate::ffi::shell::{BlankMaker, Copier};
use crate::ffi::watch::Strong;
use crate::tracking::owner::Owner;

/// Sizes of storages that can be made or copied at once; a program whose shapes never repeat must not grow for ever.
const MOST_SIZES: usize = 1024;

impl Executor {
    /// Replays an op by the template of its form. Returns whether it could: what is unusual takes the way through
    /// Python.
    pub(super) fn replay_natively(
        &mut self,
        py: Python<'_>,
        op: OpId,
        record: &Record,
        mutation: Mutation,
    ) -> PyResult<bool> {
        let template = record.form.template.get().and_then(Option::as_ref);
        let (Some(template), Some(torch)) = (template, Torch::get()) else {
            return Ok(false);
        };
        let drawn = match &record.context.rng {
            None => None,
            Some(RandomState::Default(state)) => Some(state),
            Some(RandomState::Listed(_)) => return Ok(false),
        };
        // Another session of the process may be amid a replay of this form.
        let Ok(mut template) = template.try_lock() else {
            return Ok(false);
        };
        let sids = self.storages_of(self.engine.inputs(op));
        let Some(mut storages) = self.strong_inputs(py, &sids)? else {
            return Ok(false);
        };
        if mutation == Mutation::Copy {
            for &input in &record.form.written {
                let written = &mut storages[input as usize];
                let Some(copied) = self.copied(py, torch, sids[input as usize], written)? else {
                    return Ok(false);
                };
                *written = copied;
            }
        }
        if let Some((bytes, _)) = record.blank {
            let Some(blank) = self.blank(py, torch, bytes)? else {
                return Ok(false);
            };
            storages.push(blank);
        }
        let rewound = match drawn.map(|state| generator::rewind(state)) {
            Some(None) => return Ok(false),
            other => other,
        };
        let _allowed = drawn.map(|_| torch.dispatcher.allow_random());
        let called = self.call_template(py, torch, &mut template, record, &storages);
        drop(rewound);
        let Some(mut results) = called? else {
            return Ok(false);
        };
        let outputs = self.storages_of(self.engine.outputs(op));
        for (&input, &target) in record.form.written.iter().zip(&outputs) {
            let moved = self.moved(sids[input as usize], mutation);
            let source = source(torch, record, storages[input as usize].copy());
            self.install(py, target, source, moved)?;
        }
        self.install_results(py, record, &outputs, |i| {
            let storage = results.get_mut(i).and_then(Option::take);
            Ok(storage.map(|storage| source(torch, record, storage)))
        })?;
        self.ledger.spike(record.workspace_device, record.workspace);
        Ok(true)
    }

    /// A copy of a storage; `None` where it must be made through Python.
    fn copied(
        &mut self,
        py: Python<'_>,
        torch: &Torch,
        sid: StorageId,
        storage: &Strong,
    ) -> PyResult<Option<Strong>> {
        // SAFETY: the reference owns the storage.
        let bytes = unsafe { storage_bytes(torch.boxed, storage.address()) };
        let copier = match self.copiers.remove(&bytes) {
            Some(copier) => copier,
            None => match self.copier(py, torch, sid, bytes)? {
                Some(copier) => copier,
                None => return Ok(None),
            },
        };
        // SAFETY: the copier was made for storages of so many bytes.
        let copied = unsafe { copier.copy(py, torch, storage) };
        Ok(copied.map(|(copier, copied)| {
            if self.copiers.len() >= MOST_SIZES {
                self.copiers.clear();
            }
            self.copiers.insert(bytes, copier);
            copied
        }))
    }

    /// A new storage of so many bytes; `None` where it must be made through Python.
    fn blank(&mut self, py: Python<'_>, torch: &Torch, bytes: u64) -> PyResult<Option<Strong>> {
        // SAFETY: the reference owns the storage.
        let fits = |made: &Strong| unsafe { storage_bytes(torch.boxed, made.address()) } == bytes;
        if let Some(maker) = self.blank_makers.get(&bytes) {
            return Ok(maker.make(py, torch).filter(fits));
        }
        let like = self.internals.blank_like.bind(py).call1((bytes,))?;
        // SAFETY: `like` owns the tensor, which lies in main memory.
        let maker = unsafe { BlankMaker::of(torch, like.getattr("_cdata")?.extract()?) };
        let Some(maker) = maker else {
            return Ok(None);
        };
        let made = maker.make(py, torch).filter(fits);
        if self.blank_makers.len() >= MOST_SIZES {
            self.blank_makers.clear();
        }
        self.blank_makers.insert(bytes, maker);
        Ok(made)
    }

    /// A copier of storages like this one, of so many bytes.
    fn copier(
        &self,
        py: Python<'_>,
        torch: &Torch,
        sid: StorageId,
        bytes: u64,
    ) -> PyResult<Option<Copier>> {
        let Some(object) = self.storages.object(py, sid)? else {
            return Ok(None);
        };
        let byte = py.import("torch")?.getattr("uint8")?;
        let view = self.internals.view.bind(py);
        let all = view.call1((&*object, byte, 0, (bytes,), (1,), false, false))?;
        let address = all.getattr("_cdata")?.extract()?;
        // SAFETY: `all` owns the tensor.
        Ok(unsafe { Copier::of(py, torch, address) })
    }

    /// The storages of a replay's inputs; `None` if one is not in memory.
    fn strong_inputs(&self, py: Python<'_>, sids: &[StorageId]) -> PyResult<Option<Vec<Strong>>> {
        let storages = sids.iter().map(|&sid| self.storages.strong(py, sid));
        storages.collect()
    }

    /// Calls the template in the grad mode and under the settings of the op's first run. A blank storage is the last.
    fn call_template(
        &mut self,
        py: Python<'_>,
        torch: &Torch,
        template: &mut Template,
        record: &Record,
        storages: &[Strong],
    ) -> PyResult<Option<Vec<Option<Strong>>>> {
        let last = storages.len().saturating_sub(1) as u32;
        let place = |&input: &u32| if input == BLANK { last } else { input };
        let inputs: SmallVec<[u32; 8]> = record.form.inputs.iter().map(place).collect();
        let differing = Differing {
            inputs: &inputs,
            storages,
            offsets: &record.offsets,
            numbers: &record.numbers,
        };
        let _grad = grad_mode(torch, record.context.grad == GradMode::On);
        let state = record.context.state;
        self.global_state.under(py, state, || {
            // SAFETY: the first run had these views of these storages, whose sizes do not change between versions.
            let called = unsafe { template.call(py, &differing) };
            let called = called.transpose();
            called.map_err(|exception| exception.into_error(py))
        })
    }
}

/// A storage as the source of bytes, on the device of the op.
fn source(torch: &Torch, record: &Record, storage: Strong) -> Source {
    Source {
        // SAFETY: the reference owns the storage.
        bytes: unsafe { storage_bytes(torch.boxed, storage.address()) },
        owner: Owner::Storage(storage),
        device: Some(record.workspace_device),
    }
}
