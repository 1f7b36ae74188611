//! An op of a known form between its announcement and its results.

use std::sync::Arc;

use remat_core::{Bytes, DeviceId, OpId, Replay, TensorId};

use super::costs::Completed;
use super::forms::Known;
use crate::call::global_state::StateNumber;
use crate::call::random::RandomState;
use crate::call::stacked::Stacked;
use crate::ffi::generator;
use crate::tracking::live::LiveId;
use crate::tracking::owner::Owner;

/// The number of a call's form for the engine.
pub(super) fn form_number(stacked: &Stacked) -> u64 {
    stacked.key.max(1)
}

/// A call of a known form that the session let run.
pub(super) enum Begun {
    /// The engine was told of it.
    Told(Box<Running>),
    /// It leaves no record. The number is the engine's for it, or 0.
    Unrecorded(Arc<Known>, u64),
}

impl Begun {
    /// Its form.
    pub(super) fn known(&self) -> &Known {
        match self {
            Begun::Told(running) => &running.known,
            Begun::Unrecorded(known, _) => known,
        }
    }
}

/// An op of a known form between its announcement and its results.
pub(super) struct Running {
    pub(super) known: Arc<Known>,
    pub(super) op: OpId,
    pub(super) inputs: Inputs,
    pub(super) chain: u32,
    pub(super) state: StateNumber,
    pub(super) replay: Replay,
    /// State of the default random generator before the op drew from it.
    pub(super) rng: Option<RandomState>,
    /// The blank memory that the op gives its first value.
    pub(super) blank: Option<Blank>,
}

impl Running {
    /// An op of a known form that was announced. The state of the random generator is noted here if a replay needs it.
    pub(super) fn of(
        known: Arc<Known>,
        op: OpId,
        inputs: Inputs,
        chain: u32,
        state: StateNumber,
        replay: Replay,
    ) -> Running {
        let recorded = known.func.random && replay == Replay::Allowed;
        let rng = recorded.then(generator::read).flatten();
        Running {
            known,
            op,
            inputs,
            chain,
            state,
            replay,
            rng: rng.map(RandomState::Default),
            blank: None,
        }
    }

    /// The same in the box of the call before, if there is one: it is handed from one function to the next a dozen
    /// times, and is large.
    pub(super) fn boxed(self, spare: &mut Option<Box<Running>>) -> Box<Running> {
        match spare.take() {
            Some(mut spare) => {
                *spare = self;
                spare
            }
            None => Box::new(self),
        }
    }

    /// The call as the engine and the trace are told of it, once it ran. Its cost is that of its form.
    pub(super) fn completed<'a>(
        &'a self,
        made: &'a [TensorId],
        sizes: Option<&'a [Bytes]>,
    ) -> Completed<'a> {
        Completed {
            op: self.op,
            inputs: &self.inputs.tensors,
            outputs: &self.known.outputs,
            made,
            signature: &self.known.signature,
            announced: None,
            replay: self.replay,
            cost: self.known.cost.nanoseconds(),
            sizes,
        }
    }
}

/// The inputs of a call, in the order of its form.
#[derive(Default)]
pub(super) struct Inputs {
    pub(super) tensors: Vec<TensorId>,
    pub(super) lives: Vec<LiveId>,
    /// Keeps their storages until the op is recorded, where the call does not keep its tensors.
    pub(super) kept: Vec<Owner>,
}

impl Inputs {
    /// Lets go of the inputs, and keeps the buffers.
    pub(super) fn clear(&mut self) {
        self.tensors.clear();
        self.lives.clear();
        self.kept.clear();
    }
}

/// A blank storage that is being filled.
#[derive(Clone, Copy)]
pub(super) struct Blank {
    pub(super) id: LiveId,
    pub(super) bytes: u64,
    pub(super) device: DeviceId,
    /// Whether its bytes were taken away until the op runs.
    pub(super) lifted: bool,
}
