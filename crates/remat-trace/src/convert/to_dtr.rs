//! The conversion from events to a log's instructions.

use super::Lost;
use crate::dtr::Instruction;
use crate::{Event, Planning, TraceOutput, TraceOutputKind, Violation};
use std::collections::HashMap;

/// Turns events into the instructions of a log, one by one.
///
/// Tensor 7 is called `x7`, further references to it `x7_1`, `x7_2` and so on.
#[derive(Debug, Default)]
pub struct ToDtr {
    tensors: HashMap<u64, References>,
    lost: Lost,
}

#[derive(Debug)]
struct References {
    /// Size of the storage that the tensor views.
    storage_bytes: u64,
    names: Vec<String>,
    /// References made so far, those released included.
    made: u64,
}

impl ToDtr {
    /// The instruction that every log begins with.
    pub fn start(&mut self, instructions: &mut Vec<Instruction>) {
        instructions.push(Instruction::Annotate {
            annotation: "START".into(),
        });
    }

    /// Converts the next event and appends its instructions to `instructions`.
    ///
    /// # Errors
    /// The event names a tensor or an input that does not exist.
    pub fn push(
        &mut self,
        event: &Event,
        instructions: &mut Vec<Instruction>,
    ) -> Result<(), Violation> {
        match event {
            Event::Constant {
                tensor,
                bytes,
                device,
            } => {
                self.lost.devices += u64::from(*device != 0);
                self.constant(*tensor, *bytes, instructions);
            }
            Event::Op {
                name,
                inputs,
                outputs,
                workspace,
                cost,
                replay,
                ..
            } => {
                self.lost.workspaces += u64::from(*workspace > 0);
                let op = Recorded {
                    name,
                    inputs,
                    cost: *cost,
                };
                self.push_op(op, outputs, *replay, instructions)?;
            }
            Event::Retain { tensor } => self.retain(*tensor, instructions)?,
            Event::Release { tensor } => self.release(*tensor, instructions)?,
            Event::Pin { .. } => self.lost.pins += 1,
            Event::Ensure { .. } => self.lost.ensures += 1,
            Event::Plan(told) => {
                self.lost.plans += u64::from(matches!(told, Planning::Follow(_)));
            }
            Event::Mark { name } => instructions.push(Instruction::Annotate {
                annotation: name.clone(),
            }),
        }
        Ok(())
    }

    /// Counts of what the log could not express so far.
    pub fn lost(&self) -> Lost {
        self.lost
    }

    fn retain(
        &mut self,
        tensor: u64,
        instructions: &mut Vec<Instruction>,
    ) -> Result<(), Violation> {
        let references = self.references(tensor)?;
        let target = format!("x{tensor}_{}", references.made);
        let source = references.name().to_owned();
        references.made += 1;
        references.names.push(target.clone());
        instructions.push(Instruction::Copy { target, source });
        Ok(())
    }

    fn release(
        &mut self,
        tensor: u64,
        instructions: &mut Vec<Instruction>,
    ) -> Result<(), Violation> {
        let references = self.references(tensor)?;
        if let Some(name) = references.names.pop() {
            instructions.push(Instruction::Release { name });
        }
        if references.names.is_empty() {
            self.tensors.remove(&tensor);
        }
        Ok(())
    }

    fn push_op(
        &mut self,
        op: Recorded<'_>,
        outputs: &[TraceOutput],
        replay: bool,
        instructions: &mut Vec<Instruction>,
    ) -> Result<(), Violation> {
        let in_place = outputs
            .iter()
            .filter(|output| matches!(output.kind, TraceOutputKind::InPlace { .. }))
            .count();
        self.lost.in_place += in_place as u64;
        if replay && in_place > 0 && in_place == outputs.len() {
            return self.mutate(op, outputs, instructions);
        }
        if replay {
            return self.call(op, outputs, instructions);
        }
        self.lost.unreplayable += 1;
        let is_view = |output: &&TraceOutput| matches!(output.kind, TraceOutputKind::Alias { .. });
        for output in outputs.iter().filter(|output| !is_view(output)) {
            let bytes = self.storage_bytes(output, op.inputs)?;
            self.constant(output.tensor, bytes, instructions);
        }
        let views: Vec<TraceOutput> = outputs.iter().filter(is_view).copied().collect();
        if views.is_empty() {
            return Ok(());
        }
        self.call(op, &views, instructions)
    }

    fn constant(&mut self, tensor: u64, bytes: u64, instructions: &mut Vec<Instruction>) {
        let name = self.define(tensor, bytes);
        instructions.push(Instruction::Constant { name: name.clone() });
        instructions.push(Instruction::Memory { name, bytes });
    }

    fn call(
        &mut self,
        op: Recorded<'_>,
        outputs: &[TraceOutput],
        instructions: &mut Vec<Instruction>,
    ) -> Result<(), Violation> {
        let args = self.names(op.inputs)?;
        let mut details = Vec::new();
        let mut results = Vec::new();
        for output in outputs {
            let storage_bytes = self.storage_bytes(output, op.inputs)?;
            let (bytes, of) = match output.kind {
                TraceOutputKind::Alias { of } => (0, Some(of)),
                TraceOutputKind::Fresh { .. } | TraceOutputKind::InPlace { .. } => {
                    (storage_bytes, None)
                }
            };
            let name = self.define(output.tensor, storage_bytes);
            details.push(Instruction::Memory {
                name: name.clone(),
                bytes,
            });
            details.push(Instruction::Alias {
                name: name.clone(),
                of,
            });
            results.push(name);
        }
        instructions.push(Instruction::Call {
            op: op.name.to_owned(),
            args,
            results,
            cost: op.cost,
        });
        instructions.append(&mut details);
        Ok(())
    }

    /// `MUTATE` takes the changed name away from the old value; an event does not. So the instruction is given a copy
    /// of the name.
    fn mutate(
        &mut self,
        op: Recorded<'_>,
        outputs: &[TraceOutput],
        instructions: &mut Vec<Instruction>,
    ) -> Result<(), Violation> {
        let mut args = self.names(op.inputs)?;
        let mut mutated = Vec::new();
        for output in outputs {
            let TraceOutputKind::InPlace { of } = output.kind else {
                continue;
            };
            let storage_bytes = self.storage_bytes(output, op.inputs)?;
            let target = self.define(output.tensor, storage_bytes);
            // `storage_bytes` has checked that the input exists.
            let source = std::mem::replace(&mut args[of], target.clone());
            instructions.push(Instruction::Copy { target, source });
            mutated.push(of);
        }
        instructions.push(Instruction::Mutate {
            op: op.name.to_owned(),
            args,
            mutated,
            cost: op.cost,
        });
        Ok(())
    }

    fn define(&mut self, tensor: u64, storage_bytes: u64) -> String {
        let name = format!("x{tensor}");
        self.tensors.insert(
            tensor,
            References {
                storage_bytes,
                names: vec![name.clone()],
                made: 1,
            },
        );
        name
    }

    /// Size of the storage that an output views; counts the storage if it lies outside device 0.
    fn storage_bytes(&mut self, output: &TraceOutput, inputs: &[u64]) -> Result<u64, Violation> {
        match output.kind {
            TraceOutputKind::Fresh { bytes, device } => {
                self.lost.devices += u64::from(device != 0);
                Ok(bytes)
            }
            TraceOutputKind::Alias { of } | TraceOutputKind::InPlace { of } => {
                let no_such_input = Violation::NoSuchInput {
                    output: output.tensor,
                    of,
                    inputs: inputs.len(),
                };
                let input = inputs.get(of).ok_or(no_such_input)?;
                Ok(self.references(*input)?.storage_bytes)
            }
        }
    }

    fn names(&mut self, tensors: &[u64]) -> Result<Vec<String>, Violation> {
        tensors
            .iter()
            .map(|&tensor| Ok(self.references(tensor)?.name().to_owned()))
            .collect()
    }

    fn references(&mut self, tensor: u64) -> Result<&mut References, Violation> {
        self.tensors
            .get_mut(&tensor)
            .ok_or(Violation::Unknown(tensor))
    }
}

impl References {
    /// One of the tensor's names. The first one lives longest; a tensor that has lost its last name is removed at once.
    fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }
}

/// The parts of an op that a log expresses in the same way.
#[derive(Clone, Copy)]
struct Recorded<'a> {
    name: &'a str,
    inputs: &'a [u64],
    cost: u64,
}
