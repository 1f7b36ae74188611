//! Checks of the ids, indices and sizes that a front end tells.

use crate::error::Error;
use crate::graph::Phase;
use crate::ids::TensorId;
use crate::op::{OpSpec, Output};
use crate::transaction::State;

pub(super) fn check_spec(state: &State, op: &OpSpec<'_>) -> Result<(), Error> {
    op.inputs
        .iter()
        .try_for_each(|&input| check_input(state, input))?;
    check_size(op.workspace.0)?;
    for output in op.outputs {
        match *output {
            Output::Fresh { bytes, .. } => check_size(bytes.0)?,
            Output::Alias { of } | Output::InPlace { of } if of >= op.inputs.len() => {
                return Err(Error::Protocol(
                    "an output refers to an input beyond the last",
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A tensor that can be read: known, wanted, and there or computable.
pub(super) fn check_input(state: &State, tensor: TensorId) -> Result<(), Error> {
    check_tensor(state, tensor)?;
    let record = &state.graph[tensor];
    let source = record.op.map(|op| state.graph[op].phase);
    match source {
        _ if state.graph[record.storage].lost => Err(Error::Protocol(LOST)),
        _ if record.defined => Ok(()),
        Some(Phase::Done) => Ok(()),
        Some(_) => Err(Error::Protocol(
            "the op that makes this tensor has not finished",
        )),
        None => Err(Error::Protocol(LOST)),
    }
}

pub(super) fn check_tensor(state: &State, tensor: TensorId) -> Result<(), Error> {
    let known = state
        .graph
        .tensors
        .get(tensor.index())
        .is_some_and(|record| record.used);
    if known && (!state.collection.collects() || state.graph.is_wanted(tensor)) {
        Ok(())
    } else {
        Err(Error::Protocol("unknown or freed tensor"))
    }
}

const LOST: &str = "the only value of this tensor was overwritten";

/// Sizes and times stay below 2^63, so that their sums and differences are sound.
pub(super) fn check_size(value: u64) -> Result<(), Error> {
    if value <= i64::MAX as u64 {
        Ok(())
    } else {
        Err(Error::Overflow)
    }
}
