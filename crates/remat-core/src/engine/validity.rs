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
    let mut bytes_of_all = op.workspace.0;
    for output in op.outputs {
        match *output {
            Output::Fresh { bytes, .. } => bytes_of_all = bytes_of_all.saturating_add(bytes.0),
            Output::Alias { of } | Output::InPlace { of } if of >= op.inputs.len() => {
                return Err(Error::Protocol(
                    "an output refers to an input beyond the last",
                ));
            }
            _ => {}
        }
    }
    check_size(bytes_of_all)
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

#[cfg(test)]
mod tests {
    use crate::*;

    #[test]
    fn an_op_whose_sizes_only_together_are_beyond_63_bits_is_refused() {
        let mut engine = Engine::new(Config {
            budgets: vec![Some(Bytes(1 << 20))],
            ..Config::default()
        });
        let weights = engine
            .constant(Bytes(10), DeviceId(0))
            .expect("there is room");
        let large = Output::Fresh {
            bytes: Bytes(1 << 61),
            device: DeviceId(0),
        };
        let mut begin = |outputs: &[Output], workspace| {
            engine.begin(&OpSpec {
                inputs: &[weights],
                outputs,
                workspace: Bytes(workspace),
                workspace_device: DeviceId(0),
                replay: Replay::Allowed,
            })
        };
        assert!(matches!(begin(&[large; 3], 0), Err(Error::Budget { .. })));
        for outputs in [4, 8, 9] {
            assert_eq!(begin(&[large; 9][..outputs], 0), Err(Error::Overflow));
        }
        assert_eq!(begin(&[large], i64::MAX as u64), Err(Error::Overflow));
        assert_eq!(engine.memory(DeviceId(0)), Bytes(10));
    }
}
