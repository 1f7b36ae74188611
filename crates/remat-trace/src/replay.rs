//! Feeding a trace to an engine.

use crate::{Event, TraceOutput};
use remat_core::{
    Bytes, Config, Cost, DeviceId, Engine, Error, Finished, OpSpec, Output, Replay, TensorId,
};
use std::collections::HashMap;

/// An engine that is told the events of a trace. Nothing is computed: each step that the engine asks for counts as
/// performed at once, and every op takes the time that was recorded.
///
/// ```no_run
/// use remat_core::{Bytes, Config, DeviceId};
/// use remat_trace::{open, Replayer};
///
/// let mut replayer = Replayer::new(Config { budgets: vec![Some(Bytes(6 << 30))], ..Config::default() });
/// for event in open("step.trace.zst")? {
///     replayer.feed(&event?)?;
/// }
/// println!("{} replays", replayer.engine().counters().replays);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Replayer {
    engine: Engine,
    tensors: HashMap<u64, Held>,
}

/// A tensor that the trace still refers to. After its last release the engine may use its id again.
struct Held {
    id: TensorId,
    references: u32,
}

impl Replayer {
    /// A replayer with a fresh engine.
    pub fn new(config: Config) -> Self {
        Replayer {
            engine: Engine::new(config),
            tensors: HashMap::new(),
        }
    }

    /// The engine as the events so far left it.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The engine, to be told what no trace tells.
    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Gives up all references that the trace still holds, in the order of its tensors. After that the same events can
    /// be fed again, as another step of the same program.
    ///
    /// # Errors
    /// The engine's, which no valid trace brings about.
    pub fn release_all(&mut self) -> Result<(), Error> {
        let mut left: Vec<(u64, Held)> = self.tensors.drain().collect();
        left.sort_unstable_by_key(|(tensor, _)| *tensor);
        for (_, Held { id, references }) in left {
            for _ in 0..references {
                self.engine.release(id)?;
            }
        }
        self.engine.collected();
        Ok(())
    }

    /// Tells the engine the next event.
    ///
    /// # Errors
    /// The engine's refusal ([`Error::Budget`], [`Error::Thrash`]), or [`Error::Protocol`] if the trace is not valid.
    pub fn feed(&mut self, event: &Event) -> Result<(), Error> {
        self.feed_watched(event, &mut |_| ())
    }

    /// [`feed`](Replayer::feed) that shows the engine to `watch` after each answer, while the answer's steps can still
    /// be read.
    ///
    /// # Errors
    /// As [`feed`](Replayer::feed).
    pub fn feed_watched(
        &mut self,
        event: &Event,
        watch: &mut impl FnMut(&Engine),
    ) -> Result<(), Error> {
        match event {
            Event::Constant {
                tensor,
                bytes,
                device,
            } => {
                let id = self.engine.constant(Bytes(*bytes), DeviceId(*device))?;
                self.hold(*tensor, id);
            }
            Event::Op { .. } => self.op(event, watch)?,
            Event::Retain { tensor } => self.retain(*tensor)?,
            Event::Release { tensor } => self.release(*tensor)?,
            Event::Pin { tensor } => {
                let id = self.held(*tensor)?.id;
                self.engine.pin(id)?;
            }
            Event::Ensure { tensors } => {
                let ids = self.ids(tensors)?;
                self.engine.ensure(&ids)?;
            }
            Event::Plan(told) => told.tell(&mut self.engine),
            Event::Mark { .. } => return Ok(()),
        }
        watch(&self.engine);
        // No memory stands behind the ids, so the engine may use collected ones again at once.
        self.engine.collected();
        Ok(())
    }

    fn op(&mut self, event: &Event, watch: &mut impl FnMut(&Engine)) -> Result<(), Error> {
        let Event::Op {
            inputs,
            outputs,
            workspace,
            workspace_device,
            cost,
            replay,
            ..
        } = event
        else {
            return Ok(());
        };
        let ids = self.ids(inputs)?;
        let made: Vec<Output> = outputs.iter().map(|output| output.kind.into()).collect();
        let spec = OpSpec {
            inputs: &ids,
            outputs: &made,
            workspace: Bytes(*workspace),
            workspace_device: DeviceId(*workspace_device),
            replay: if *replay {
                Replay::Allowed
            } else {
                Replay::Forbidden
            },
        };
        self.run(&spec, outputs, Cost(*cost), watch)
    }

    fn retain(&mut self, tensor: u64) -> Result<(), Error> {
        let held = self.held(tensor)?;
        held.references = held.references.checked_add(1).ok_or(Error::Overflow)?;
        let id = held.id;
        self.engine.retain(id)
    }

    fn release(&mut self, tensor: u64) -> Result<(), Error> {
        let held = self.held(tensor)?;
        held.references -= 1;
        let Held { id, references } = *held;
        if references == 0 {
            self.tensors.remove(&tensor);
        }
        self.engine.release(id)
    }

    fn run(
        &mut self,
        spec: &OpSpec<'_>,
        outputs: &[TraceOutput],
        cost: Cost,
        watch: &mut impl FnMut(&Engine),
    ) -> Result<(), Error> {
        let op = self.engine.begin_expecting(spec, cost)?;
        watch(&self.engine);
        let ids = self.engine.outputs(op).to_vec();
        self.engine.finish(op, &Finished { cost, bytes: None })?;
        for (output, id) in outputs.iter().zip(ids) {
            self.hold(output.tensor, id);
        }
        Ok(())
    }

    fn hold(&mut self, tensor: u64, id: TensorId) {
        self.tensors.insert(tensor, Held { id, references: 1 });
    }

    fn held(&mut self, tensor: u64) -> Result<&mut Held, Error> {
        self.tensors.get_mut(&tensor).ok_or(Error::Protocol(
            "the trace names a tensor that it does not hold",
        ))
    }

    fn ids(&mut self, tensors: &[u64]) -> Result<Vec<TensorId>, Error> {
        tensors
            .iter()
            .map(|&tensor| Ok(self.held(tensor)?.id))
            .collect()
    }
}
