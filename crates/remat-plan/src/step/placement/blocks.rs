//! The blocks that a plan takes, and how long each is in use.

use super::block::Block;
use crate::step::plan::step_plan::Action;
use remat_trace::{Event, TraceOutputKind};
use std::collections::HashMap;

/// A storage that an op makes: its bytes on device 0, and the storage whose block it writes into.
struct Made {
    storage: usize,
    bytes: u64,
    old: Option<usize>,
}

/// An op or a constant, by its number in plans.
#[derive(Default)]
struct Op {
    results: Vec<Made>,
    workspace: u64,
}

/// The blocks of a plan.
pub(crate) struct Blocks {
    /// In the order in which the plan's steps take them; of one step the results in order, and then the workspace.
    pub(crate) blocks: Vec<Block>,
    /// Where those of each step begin, and where the last ones end.
    pub(crate) starts: Vec<usize>,
    /// Of each storage the block in which it lies at the end.
    pub(crate) at_end: Vec<Option<usize>>,
}

/// The blocks of a valid plan. Those of fewer than `smallest` bytes are left out.
pub(crate) fn blocks(events: &[Event], actions: &[Action], smallest: u64) -> Blocks {
    let ops = ops(events);
    let storages = ops.iter().map(|op| op.results.len()).sum();
    // Of each storage the block in which it lies.
    let mut lies: Vec<Option<usize>> = vec![None; storages];
    let mut blocks: Vec<Block> = Vec::new();
    let mut starts = Vec::with_capacity(actions.len() + 1);
    let (mut ran, end) = (0, actions.len() as u32);
    for (now, action) in (0..).zip(actions) {
        starts.push(blocks.len());
        let (number, first, takes) = match *action {
            Action::Run(op) => (op as usize, op as usize == ran, op as usize == ran),
            Action::RunInPlace(op) => (op as usize, false, true),
            Action::Free(storage) => {
                if let Some(block) = lies[storage as usize].take() {
                    blocks[block].end = now;
                }
                continue;
            }
        };
        ran += usize::from(first);
        for result in &ops[number].results {
            if let Some(old) = result.old.filter(|_| takes) {
                lies[result.storage] = lies[old].take();
                continue;
            }
            if result.bytes < smallest {
                continue;
            }
            // One that is there already is taken a second time while the op runs.
            let again = lies[result.storage].is_some();
            let block = blocks.len();
            blocks.push(Block {
                bytes: result.bytes,
                start: now,
                end: if again { now + 1 } else { end },
            });
            if !again {
                lies[result.storage] = Some(block);
            }
        }
        if ops[number].workspace >= smallest {
            blocks.push(Block {
                bytes: ops[number].workspace,
                start: now,
                end: now + 1,
            });
        }
    }
    starts.push(blocks.len());
    Blocks {
        blocks,
        starts,
        at_end: lies,
    }
}

/// The ops of a recording without faults.
fn ops(events: &[Event]) -> Vec<Op> {
    let mut ops: Vec<Op> = Vec::new();
    let (mut bytes, mut storage_of): (Vec<u64>, HashMap<u64, usize>) = Default::default();
    let on_device = |bytes: u64, device: u8| if device == 0 { bytes } else { 0 };
    for event in events {
        match event {
            Event::Constant {
                tensor,
                bytes: size,
                device,
            } => {
                storage_of.insert(*tensor, bytes.len());
                bytes.push(on_device(*size, *device));
                ops.push(Op {
                    results: vec![Made {
                        storage: bytes.len() - 1,
                        bytes: on_device(*size, *device),
                        old: None,
                    }],
                    workspace: 0,
                });
            }
            Event::Op {
                inputs,
                outputs,
                workspace,
                workspace_device,
                ..
            } => {
                let mut op = Op {
                    results: Vec::new(),
                    workspace: on_device(*workspace, *workspace_device),
                };
                let read: Vec<Option<usize>> = inputs
                    .iter()
                    .map(|input| storage_of.get(input).copied())
                    .collect();
                for output in outputs {
                    let (size, old) = match output.kind {
                        TraceOutputKind::Alias { of } => {
                            if let Some(storage) = read.get(of).copied().flatten() {
                                storage_of.insert(output.tensor, storage);
                            }
                            continue;
                        }
                        TraceOutputKind::Fresh { bytes, device } => {
                            (on_device(bytes, device), None)
                        }
                        TraceOutputKind::InPlace { of } => {
                            let old = read.get(of).copied().flatten();
                            (old.map_or(0, |old| bytes[old]), old)
                        }
                    };
                    storage_of.insert(output.tensor, bytes.len());
                    op.results.push(Made {
                        storage: bytes.len(),
                        bytes: size,
                        old,
                    });
                    bytes.push(size);
                }
                ops.push(op);
            }
            _ => {}
        }
    }
    ops
}
