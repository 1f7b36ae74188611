//! Recording a run as a trace: ids of the engine, which are reused, become ids that never are.

use std::path::Path;

use pyo3::prelude::*;
use remat_core::{Bytes, Output, PoolId, TensorId};
use remat_trace::{Event, Header, TraceOutput, TraceOutputKind, TraceWriter};

/// A trace being written.
pub struct Tracing {
    writer: TraceWriter,
    names: Vec<u64>,
    next: u64,
}

impl Tracing {
    /// Starts a trace file.
    pub fn create(path: &Path, pools: &[String]) -> PyResult<Tracing> {
        let header = Header {
            pools: pools.to_vec(),
            ..Header::default()
        };
        let writer = TraceWriter::create_with(path, &header).map_err(|e| {
            pyo3::exceptions::PyOSError::new_err(format!(
                "cannot write the trace {}: {e}",
                path.display()
            ))
        })?;
        Ok(Tracing {
            writer,
            names: Vec::new(),
            next: 1,
        })
    }

    fn fresh(&mut self, tensor: TensorId) -> u64 {
        let i = tensor.index();
        if self.names.len() <= i {
            self.names.resize(i + 1, 0);
        }
        self.names[i] = self.next;
        self.next += 1;
        self.names[i]
    }

    fn name(&self, tensor: TensorId) -> u64 {
        self.names.get(tensor.index()).copied().unwrap_or(0)
    }

    /// A constant came to be.
    pub fn constant(&mut self, tensor: TensorId, bytes: u64, pool: PoolId) -> PyResult<()> {
        let tensor = self.fresh(tensor);
        Ok(self.writer.write(&Event::Constant {
            tensor,
            bytes,
            pool: pool.0,
        })?)
    }

    /// A storage was pinned.
    pub fn pin(&mut self, tensor: TensorId) -> PyResult<()> {
        Ok(self.writer.write(&Event::Pin {
            tensor: self.name(tensor),
        })?)
    }

    /// A reference went.
    pub fn release(&mut self, tensor: TensorId) -> PyResult<()> {
        Ok(self.writer.write(&Event::Release {
            tensor: self.name(tensor),
        })?)
    }

    /// A name for what follows.
    pub fn mark(&mut self, name: &str) -> PyResult<()> {
        Ok(self.writer.write(&Event::Mark {
            name: name.to_owned(),
        })?)
    }

    /// An op ran. `bytes` are the true sizes of fresh outputs.
    #[allow(clippy::too_many_arguments)]
    pub fn op(
        &mut self,
        name: &str,
        inputs: &[TensorId],
        outputs: &[Output],
        made: &[TensorId],
        workspace: u64,
        workspace_pool: PoolId,
        cost: u64,
        replay: bool,
        bytes: Option<&[Bytes]>,
    ) -> PyResult<()> {
        let inputs = inputs.iter().map(|&t| self.name(t)).collect();
        let outputs = outputs
            .iter()
            .zip(made)
            .enumerate()
            .map(|(k, (output, &tensor))| TraceOutput {
                tensor: self.fresh(tensor),
                kind: match *output {
                    Output::Fresh {
                        bytes: announced,
                        pool,
                    } => TraceOutputKind::Fresh {
                        bytes: bytes.and_then(|b| b.get(k)).map_or(announced.0, |b| b.0),
                        pool: pool.0,
                    },
                    Output::Alias { of } => TraceOutputKind::Alias { of },
                    Output::InPlace { of } => TraceOutputKind::InPlace { of },
                },
            })
            .collect();
        Ok(self.writer.write(&Event::Op {
            name: name.to_owned(),
            inputs,
            outputs,
            workspace,
            workspace_pool: workspace_pool.0,
            cost,
            replay,
        })?)
    }

    /// Completes the file.
    pub fn finish(self) -> PyResult<()> {
        Ok(self.writer.finish()?)
    }
}
