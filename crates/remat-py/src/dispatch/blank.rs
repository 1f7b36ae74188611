//! Memory that was allocated and not written to, and the op that gives it its first value.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use remat_core::{Bytes, Finished, OpSpec, Output, Replay};

use super::State;
use crate::arguments::Walk;
use crate::func::Func;
use crate::record::{Record, BLANK};
use crate::signature::Signature;
use crate::storages::{Buffer, LiveId};

impl State {
    /// If the op overwrites all of a blank storage, that input. Blank storages touched otherwise stay pinned:
    /// something may have written to them by raw pointer.
    pub(super) fn filled(
        &mut self,
        py: Python<'_>,
        func: &Func,
        walked: &Walk,
    ) -> PyResult<Option<u32>> {
        let mut filled = None;
        for (i, &id) in walked.lives.iter().enumerate() {
            let Some(live) = self.core.storages.live_mut(id).filter(|live| live.blank) else {
                continue;
            };
            live.blank = false;
            let bytes = live.bytes;
            let mut views = walked.views.iter().filter(|v| v.input == i as u32);
            if let (true, [written], Some(view), None) =
                (func.fills, &walked.written[..], views.next(), views.next())
            {
                let mut covered: u64 = view.dtype.bind(py).getattr("itemsize")?.extract()?;
                for size in view.shape.bind(py).try_iter()? {
                    covered *= size?.extract::<u64>()?;
                }
                if *written == i as u32 && covered == bytes && bytes > self.tiny {
                    filled = Some(*written);
                }
            }
        }
        Ok(filled)
    }

    /// Runs an op that gives a blank storage its first value: to the engine, an op with a fresh output.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn fill(
        &mut self,
        py: Python<'_>,
        func: &Func,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
        walked: &mut Walk,
        signature: &mut Signature,
        grad: bool,
        filled: u32,
    ) -> PyResult<Py<PyAny>> {
        let id = walked.lives.remove(filled as usize);
        walked.inputs.remove(filled as usize);
        for view in &mut walked.views {
            match view.input.cmp(&filled) {
                std::cmp::Ordering::Equal => view.input = BLANK,
                std::cmp::Ordering::Greater => view.input -= 1,
                std::cmp::Ordering::Less => {}
            }
        }
        let Some((old, bytes, pool)) = self
            .core
            .storages
            .live(id)
            .map(|l| (l.tensor, l.bytes, l.pool))
        else {
            return Ok(func.call.bind(py).call(args, kwargs)?.unbind());
        };
        self.core.sync(py)?;
        // The blank constant gives way to the op's output, byte for byte.
        let old_sid = self.core.engine.storage(old);
        self.core.storages.set_buffer(old_sid, Buffer::Empty);
        self.core.release(py, old)?;
        let outputs = [Output::Fresh {
            bytes: Bytes(bytes),
            pool,
        }];
        let spec = OpSpec {
            inputs: &walked.inputs,
            outputs: &outputs,
            workspace: signature.room(),
            workspace_pool: signature.workspace_pool,
            replay: Replay::Allowed,
        };
        let rng = if func.random {
            Some(self.draw_from(py, args, kwargs)?)
        } else {
            None
        };
        let chain = self.core.chain(&walked.inputs);
        // Its bytes are there already: no block is kept for them.
        let run = match self.begin_filled(py, &spec) {
            Ok(op) => match self.call(py, func, args, kwargs, signature) {
                Ok((result, cost)) => Ok((op, result, cost)),
                Err(e) => self.core.cancel(py, op).and(Err(e)),
            },
            Err(e) => Err(e),
        };
        let (op, result, cost) = match run {
            Ok(done) => done,
            Err(e) => {
                self.readopt(py, id)?;
                return Err(e);
            }
        };
        let made = self.core.engine.outputs(op).to_vec();
        if let Some(tracing) = &mut self.core.tracing {
            let (workspace, workspace_pool) = (signature.workspace.0, signature.workspace_pool);
            tracing.op(
                &func.name,
                &walked.inputs,
                &outputs,
                &made,
                workspace,
                workspace_pool,
                cost,
                true,
                None,
            )?;
        }
        let finished = self.core.engine.finish(
            op,
            &Finished {
                cost: remat_core::Cost(cost),
                bytes: None,
            },
        );
        self.core.perform(py)?;
        finished.map_err(|e| self.core.refusal(py, &e))?;
        let sid = self.core.engine.storage(made[0]);
        if let Some(live) = self.core.storages.live_mut(id) {
            live.tensor = made[0];
        }
        self.core.storages.set_buffer(sid, Buffer::Live(id));
        if let Some(arena) = &mut self.core.arena {
            arena.stale = true; // it is where the blank storage was, not where the engine would have it
        }
        let record = Record {
            written: Vec::new(),
            results: vec![Some(0)],
            blank: Some((bytes, pool)),
            ..Record::of(func, walked, signature, grad, rng)
        };
        self.core.keep(py, op, record, &walked.lives)?;
        self.core.note_chain(&made, chain);
        self.core.collect();
        Ok(result.unbind())
    }

    /// Takes a storage back in as a constant, after the op that was to fill it did not run.
    pub(super) fn readopt(&mut self, py: Python<'_>, id: LiveId) -> PyResult<()> {
        if let Some(live) = self.core.storages.forget(id) {
            self.core.uncount(py, &live)?;
            if let Some(object) = live.upgrade(py)? {
                self.core.constant(&object, live.pool)?;
            }
        }
        Ok(())
    }
}
