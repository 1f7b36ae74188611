//! The trace of a run. The engine uses ids again; the trace gives each tensor a number of its own.

use std::io;
use std::path::{Path, PathBuf};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use remat_core::{Bytes, DeviceId, Output, Replay, TensorId};
use remat_trace::{Event, Header, Planning, TraceOutput, TraceOutputKind, TraceWriter};

/// An op that ran, as the engine knows it.
pub struct RanOp<'a> {
    /// Its name.
    pub name: &'a str,
    /// Tensors that it read.
    pub inputs: &'a [TensorId],
    /// Its outputs, as they were announced.
    pub outputs: &'a [Output],
    /// The tensors that the engine made for the outputs.
    pub made: &'a [TensorId],
    /// Bytes that it needed while it ran, beyond inputs and outputs.
    pub workspace: u64,
    /// The device of the workspace.
    pub workspace_device: DeviceId,
    /// Nanoseconds that it took.
    pub cost: u64,
    /// Whether it could be replayed.
    pub replay: Replay,
    /// True sizes of the outputs, if they may differ from the announced ones.
    pub sizes: Option<&'a [Bytes]>,
}

/// The bytes beyond inputs and outputs that a trace has for an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rooms {
    /// Those that it took.
    Taken,
    /// Those that were kept for it: where its kind ran for the first time an estimate.
    Announced,
}

/// A trace being written. Where something cannot be written, nothing more is: the run goes on as if it could.
pub struct Trace {
    /// Bytes that it has for the workspace of ops.
    pub rooms: Rooms,
    /// Ops that may still come; `None` for no limit.
    left: Option<u64>,
    path: PathBuf,
    /// `None` once the file is complete, or cannot be written.
    writer: Option<TraceWriter>,
    /// The first error of writing.
    failed: Option<io::Error>,
    /// Whether an op has [raised](Self::tell_failure) it.
    told: bool,
    names: Vec<u64>,
    next: u64,
}

impl Trace {
    /// Starts a trace file.
    pub fn create(path: &Path, devices: &[String]) -> PyResult<Trace> {
        let header = Header {
            devices: devices.to_vec(),
            ..Header::default()
        };
        let writer = TraceWriter::create_with(path, &header);
        let writer = writer.map_err(|error| cannot_write(path, &error))?;
        Ok(Trace {
            rooms: Rooms::Taken,
            left: None,
            path: path.to_owned(),
            writer: Some(writer),
            failed: None,
            told: false,
            names: Vec::new(),
            next: 1,
        })
    }

    /// Records bytes as `rooms` says, and so many ops at most.
    pub fn bound(&mut self, rooms: Rooms, ops: u64) {
        self.rooms = rooms;
        self.left = Some(ops);
    }

    /// Whether no more ops may come.
    pub fn is_full(&self) -> bool {
        self.left == Some(0)
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

    fn write(&mut self, event: &Event) {
        let Some(writer) = &mut self.writer else {
            return;
        };
        if let Err(error) = writer.write(event) {
            self.writer = None;
            self.failed = Some(error);
        }
    }

    /// Records a new constant.
    pub fn constant(&mut self, tensor: TensorId, bytes: u64, device: DeviceId) {
        let tensor = self.fresh(tensor);
        self.write(&Event::Constant {
            tensor,
            bytes,
            device: device.0,
        });
    }

    /// Records that a storage was pinned.
    pub fn pin(&mut self, tensor: TensorId) {
        let tensor = self.name(tensor);
        self.write(&Event::Pin { tensor });
    }

    /// Records that tensors were brought back before the op that reads them.
    pub fn ensure(&mut self, tensors: &[TensorId]) {
        let tensors = tensors.iter().map(|&tensor| self.name(tensor)).collect();
        self.write(&Event::Ensure { tensors });
    }

    /// Records that a reference was dropped.
    pub fn release(&mut self, tensor: TensorId) {
        let tensor = self.name(tensor);
        self.write(&Event::Release { tensor });
    }

    /// Records what the engine was told of planned steps.
    pub fn plan(&mut self, told: Planning) {
        self.write(&Event::Plan(told));
    }

    /// Records a name for the events that follow.
    pub fn mark(&mut self, name: &str) {
        let name = name.to_owned();
        self.write(&Event::Mark { name });
    }

    /// Records an op that ran.
    pub fn op(&mut self, op: &RanOp<'_>) {
        self.left = self.left.map(|left| left.saturating_sub(1));
        let inputs = op.inputs.iter().map(|&t| self.name(t)).collect();
        let sizes = op.sizes;
        let outputs = op
            .outputs
            .iter()
            .zip(op.made)
            .enumerate()
            .map(|(k, (output, &tensor))| TraceOutput {
                tensor: self.fresh(tensor),
                kind: match *output {
                    Output::Fresh {
                        bytes: announced,
                        device,
                    } => TraceOutputKind::Fresh {
                        bytes: sizes
                            .and_then(|sizes| sizes.get(k))
                            .map_or(announced.0, |b| b.0),
                        device: device.0,
                    },
                    Output::Alias { of } => TraceOutputKind::Alias { of },
                    Output::InPlace { of } => TraceOutputKind::InPlace { of },
                },
            })
            .collect();
        self.write(&Event::Op {
            name: op.name.to_owned(),
            inputs,
            outputs,
            workspace: op.workspace,
            workspace_device: op.workspace_device.0,
            cost: op.cost,
            replay: op.replay == Replay::Allowed,
        });
    }

    /// Raises that the file cannot be written. Once: the first op that has ended since tells it.
    ///
    /// # Errors
    /// `OSError`, which names the file.
    pub fn tell_failure(&mut self) -> PyResult<()> {
        match &self.failed {
            Some(error) if !self.told => {
                self.told = true;
                Err(cannot_write(&self.path, error))
            }
            _ => Ok(()),
        }
    }

    /// Completes the file. Returns whether all of it was written.
    pub fn complete(&mut self) -> bool {
        if let Some(writer) = self.writer.take() {
            self.failed = writer.finish().err();
        }
        self.failed.is_none()
    }

    /// Completes the file.
    ///
    /// # Errors
    /// `OSError` as the system tells it if something could not be written, whether an op raised that before or not.
    pub fn finish(mut self) -> PyResult<()> {
        self.complete();
        Ok(self.failed.map_or(Ok(()), Err)?)
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> PyErr {
    PyOSError::new_err(format!(
        "cannot write the trace {}: {error}",
        path.display()
    ))
}
