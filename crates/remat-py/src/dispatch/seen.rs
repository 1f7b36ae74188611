//! Told to a timeline of an op before it runs: whether autograd runs it, and at its first sight the module
//! and the line that asked for it.

use std::time::Instant;

use pyo3::prelude::*;
use remat_core::OpSpec;

use super::state::State;
use crate::ffi::autograd;
use crate::timeline::{Coming, Looked, MemoryKind, Site};

/// A site as Python tells it: module, file, line, function, and in backward passes the number of autograd's node.
type ToldSite = (String, String, u32, String, Option<u64>);

impl State {
    /// Tells the timeline of an op that is about to be announced. Called where there is one.
    ///
    /// # Errors
    /// An interrupt that comes while Python looks for the line: the op is not announced.
    pub(super) fn look(&self, py: Python<'_>, spec: &OpSpec<'_>) -> PyResult<()> {
        let executor = &self.executor;
        let Some(timeline) = &executor.storages.timeline else {
            return Ok(());
        };
        let looked = Looked {
            backward: autograd::in_backward() == Some(true),
            next_node: autograd::next_node(),
            planned: executor.engine.guided().steps,
        };
        let name = executor.current.as_str();
        let come = || timeline.tell(|recorder| recorder.come(name, spec, &looked));
        let mut coming = come();
        if coming == Coming::Unsure {
            let optimizers = timeline.has_optimizers.bind(py).call0()?.is_truthy()?;
            timeline.tell(|recorder| recorder.manual(!optimizers));
            coming = come();
        }
        if coming == Coming::Seen {
            return Ok(());
        }
        let asked = Instant::now();
        let told = timeline.site.bind(py).call1((looked.backward,))?;
        let (module, file, line, function, node): ToldSite = told.extract()?;
        let site = Site {
            module,
            file,
            line,
            function,
        };
        let took = asked.elapsed().as_nanos() as u64;
        timeline.tell(|recorder| recorder.learn(name, site, node, &looked, took));
        Ok(())
    }

    /// Tells the timeline what the storage of a tensor is for.
    pub(super) fn note_kind(&self, tensor: &Bound<'_, PyAny>, kind: MemoryKind) {
        let storages = &self.executor.storages;
        let known = storages
            .timeline
            .as_ref()
            .and_then(|_| self.live_of(tensor));
        if let Some(id) = known {
            storages.note_kind(id, kind);
        }
    }
}
