//! An engine that is told a recorded step: each op takes the time that was recorded.

use crate::recorded::{Adopted, Instruction, Mutations, Recorded};
use remat_core::{
    Bytes, Config, Dealloc, Engine, Error, Finished, Lineage, Memory, OpId, Policy, ReplayOrder,
    Step, ThrashLimit,
};
use std::fmt;

/// An error of events that contradict one another. Readers of traces find such faults earlier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsound {
    /// The index of the event; remarks do not count.
    pub event: usize,
    /// The engine's error.
    pub error: Error,
}

impl fmt::Display for Unsound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "event {} cannot be replayed: {}; check the trace with `remat trace check`",
            self.event, self.error
        )
    }
}

impl std::error::Error for Unsound {}

/// The engine set as in the DTR paper: lineage is kept for ever, and replays follow the paper's order only.
pub(crate) fn config(
    policy: Policy,
    dealloc: Dealloc,
    budget: Option<Bytes>,
    thrash: ThrashLimit,
    seed: u64,
) -> Config {
    Config {
        budgets: vec![budget],
        policy,
        dealloc,
        lineage: Lineage::Keep,
        order: ReplayOrder::Dtr,
        thrash,
        seed,
        memory: Memory::Fungible,
        stopwatch: None,
    }
}

/// Tells a fresh engine the step. Returns the engine, and the event and reason of its refusal if there was one.
pub(crate) fn replay(
    step: &Recorded,
    config: Config,
) -> Result<(Engine, Option<(usize, Error)>), Unsound> {
    watched(step, config, Telling::default(), |_, _| {})
}

/// How a step is told.
#[derive(Clone, Copy, Default)]
pub(crate) struct Telling {
    pub(crate) mutations: Mutations,
    pub(crate) adopted: Adopted,
}

/// A moment of a run, shown to a watcher.
pub(crate) enum Seen<'a> {
    /// Steps performed, in order.
    Steps(&'a [Step]),
    /// An op ran for the first time.
    Ran(OpId),
}

/// [`replay`] that shows every step, with the index of the event at which it is performed.
pub(crate) fn watched(
    step: &Recorded,
    config: Config,
    telling: Telling,
    mut watch: impl FnMut(usize, Seen<'_>),
) -> Result<(Engine, Option<(usize, Error)>), Unsound> {
    let mut engine = Engine::new(config);
    for (event, &instruction) in step.instructions.iter().enumerate() {
        let mut watch = |seen: Seen<'_>| watch(event, seen);
        match tell(&mut engine, step, instruction, telling, &mut watch) {
            Ok(()) => {}
            Err(error @ (Error::Budget { .. } | Error::Thrash { .. })) => {
                return Ok((engine, Some((event, error))));
            }
            Err(error) => return Err(Unsound { event, error }),
        }
    }
    Ok((engine, None))
}

pub(crate) fn tell(
    engine: &mut Engine,
    step: &Recorded,
    instruction: Instruction,
    telling: Telling,
    watch: &mut impl FnMut(Seen<'_>),
) -> Result<(), Error> {
    match instruction {
        Instruction::Constant { bytes, device } => engine.constant(bytes, device).map(drop),
        Instruction::Op(op) => {
            let (spec, expected) = step.op(op, telling.mutations);
            let id = engine.begin_expecting(&spec, expected)?;
            watch(Seen::Steps(engine.steps()));
            watch(Seen::Ran(id));
            let cost = expected.cost;
            engine.finish(id, &Finished { cost, bytes: None })
        }
        Instruction::Retain(tensor) => engine.retain(tensor),
        Instruction::Release(tensor) => engine.release(tensor),
        Instruction::Pin(tensor) => engine.pin(tensor),
        Instruction::Ensure { from, to } => engine.ensure(step.tensors(from, to)),
        Instruction::Bring(tensor) => engine.ensure(&[tensor]),
        Instruction::Plan(told) => {
            if telling.adopted == Adopted::Followed {
                step.plan(told).tell(engine);
            }
            return Ok(());
        }
    }?;
    watch(Seen::Steps(engine.steps()));
    Ok(())
}
