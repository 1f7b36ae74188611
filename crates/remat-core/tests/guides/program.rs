//! A program of layers and their gradients, that repeats.

use remat_core::*;

pub const DEVICE: DeviceId = DeviceId(0);
pub const LAYERS: usize = 40;

/// An engine that learns steps, and a program that tells it of ops.
pub struct Program {
    pub engine: Engine,
    pub weights: TensorId,
    /// Each op is announced twice before: it does not run then, and then its steps are not performed.
    pub hesitates: bool,
    /// The time that each op takes.
    pub cost: Cost,
    /// The ops of this step, in order.
    pub ops: Vec<OpId>,
    /// Replays in this step: the op, by its place, and the place of the op before which it ran again.
    pub replays: Vec<(u32, u32)>,
}

impl Program {
    pub fn new(budget: u64) -> Program {
        let mut engine = Engine::new(Config {
            budgets: vec![Some(Bytes(budget))],
            ..Config::default()
        });
        engine.learn_steps(DEVICE);
        let weights = engine.constant(Bytes(10), DEVICE).expect("room");
        Program {
            engine,
            weights,
            hesitates: false,
            cost: Cost(10),
            ops: Vec::new(),
            replays: Vec::new(),
        }
    }

    /// An op that can be replayed.
    pub fn op(&mut self, inputs: &[TensorId], output: Output) -> Result<TensorId, Error> {
        self.run(inputs, output, Replay::Allowed, None)
    }

    /// An op; its result's true size may be known only then.
    pub fn run(
        &mut self,
        inputs: &[TensorId],
        output: Output,
        replay: Replay,
        bytes: Option<Bytes>,
    ) -> Result<TensorId, Error> {
        let op = self.begin(inputs, output, replay)?;
        let bytes = bytes.map(|bytes| [bytes]);
        let report = Finished {
            cost: self.cost,
            bytes: bytes.as_ref().map(|bytes| &bytes[..]),
        };
        self.engine.finish(op, &report)?;
        Ok(self.engine.outputs(op)[0])
    }

    pub fn begin(
        &mut self,
        inputs: &[TensorId],
        output: Output,
        replay: Replay,
    ) -> Result<OpId, Error> {
        let spec = OpSpec {
            inputs,
            outputs: &[output],
            workspace: Bytes(0),
            workspace_device: DEVICE,
            replay,
        };
        if self.hesitates {
            let op = self.engine.begin(&spec)?;
            self.engine.cancel(op);
            self.engine.begin(&spec)?;
            self.engine.abort(0);
        }
        let op = self.engine.begin(&spec)?;
        let before = self.ops.len() as u32;
        for step in self.engine.steps() {
            if let Step::Recompute { op, .. } = *step {
                let place = self.ops.iter().rposition(|&other| other == op);
                self.replays
                    .extend(place.map(|place| (place as u32, before)));
            }
        }
        self.ops.push(op);
        Ok(op)
    }

    /// A layer for each op of the forward pass.
    pub fn forward(&mut self, input: TensorId) -> Result<Vec<TensorId>, Error> {
        let mut layers = vec![self.op(&[self.weights, input], fresh(100))?];
        while layers.len() < LAYERS {
            let last = layers[layers.len() - 1];
            layers.push(self.op(&[self.weights, last], fresh(100))?);
        }
        Ok(layers)
    }

    /// A gradient for each layer, from the last to the first.
    pub fn backward(&mut self, mut layers: Vec<TensorId>) -> Result<(), Error> {
        let mut gradient = self.op(&[self.weights], fresh(100))?;
        while let Some(layer) = layers.pop() {
            let next = self.op(&[gradient, layer], fresh(100))?;
            self.engine.release(gradient)?;
            self.engine.release(layer)?;
            gradient = next;
        }
        self.engine.release(gradient)
    }

    /// Forward and backward.
    pub fn train(&mut self) -> Result<(), Error> {
        let layers = self.forward(self.weights)?;
        self.backward(layers)
    }

    /// Runs a step, and answers with the cost of its replays.
    pub fn step(
        &mut self,
        step: impl FnOnce(&mut Program) -> Result<(), Error>,
    ) -> Result<u64, Error> {
        self.ops.clear();
        self.replays.clear();
        let before = self.engine.counters().replayed_cost.0;
        let done = step(self);
        self.engine.collected();
        done.map(|()| self.engine.counters().replayed_cost.0 - before)
    }

    /// Runs steps until one was recorded, a few more than that takes at most.
    pub fn learn(&mut self, step: impl Fn(&mut Program) -> Result<(), Error>) -> Option<Recorded> {
        for _ in 0..10 {
            self.step(&step).expect("room");
            if let Some(recorded) = self.engine.recorded_step() {
                return Some(recorded);
            }
        }
        None
    }
}

pub fn fresh(bytes: u64) -> Output {
    Output::Fresh {
        bytes: Bytes(bytes),
        device: DEVICE,
    }
}

/// A guide of a recorded step with these actions, each before an op.
pub fn guide(recorded: &Recorded, actions: &[(u32, GuideAction)]) -> Guide {
    let mut before = vec![Vec::new(); recorded.signatures.len()];
    for &(place, action) in actions {
        before[place as usize].push(action);
    }
    let costs = recorded.costs();
    Guide::new(recorded.signatures.clone(), &before, costs, costs).expect("earlier ops")
}
