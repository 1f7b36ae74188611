//! A front end in under 100 lines: a chain of 12 ops on vectors, forward and back, in the room of 6 vectors.
//!
//! ```sh
//! cargo run -p remat-core --example front_end
//! ```

use remat_core::*;
use std::collections::HashMap;

const LENGTH: usize = 1024;
const SIZE: Bytes = Bytes(8 * LENGTH as u64);
const HERE: DeviceId = DeviceId(0);
const ONE_VECTOR: [Output; 1] = [Output::Fresh {
    bytes: SIZE,
    device: HERE,
}];

/// Owns the values; the engine owns the decisions.
struct FrontEnd {
    engine: Engine,
    values: HashMap<StorageId, Vec<f64>>,
}

impl FrontEnd {
    fn storage(&self, tensor: TensorId) -> StorageId {
        self.engine.storage(tensor).expect("the engine named it")
    }

    /// Each op makes the sum of its inputs, plus 1.
    fn compute(&mut self, op: OpId) {
        let mut sum = vec![1.0; LENGTH];
        for &input in self.engine.inputs(op) {
            let value = &self.values[&self.storage(input)];
            sum.iter_mut().zip(value).for_each(|(sum, x)| *sum += x);
        }
        let output = self.storage(self.engine.outputs(op)[0]);
        self.values.insert(output, sum);
    }

    fn perform_steps(&mut self) {
        for step in self.engine.steps().to_vec() {
            match step {
                Step::Evict(storage) => drop(self.values.remove(&storage)),
                Step::Recompute { op, .. } => self.compute(op),
                Step::Move { .. } => {} // bytes are only counted: nothing has an address
            }
        }
    }

    fn run(&mut self, inputs: &[TensorId]) -> Result<TensorId, Error> {
        let (workspace, workspace_device, replay) = (Bytes(0), HERE, Replay::Allowed);
        let outputs = &ONE_VECTOR;
        let spec = OpSpec {
            inputs,
            outputs,
            workspace,
            workspace_device,
            replay,
        };
        let op = self.engine.begin(&spec)?;
        self.perform_steps();
        self.compute(op);
        let (cost, bytes) = (Cost(1), None);
        self.engine.finish(op, &Finished { cost, bytes })?;
        self.perform_steps();
        Ok(self.engine.outputs(op)[0])
    }
}

fn main() -> Result<(), Error> {
    let budgets = vec![Some(Bytes(6 * SIZE.0))];
    let engine = Engine::new(Config {
        budgets,
        ..Config::default()
    });
    let values = HashMap::new();
    let mut front = FrontEnd { engine, values };
    let data = front.engine.constant(SIZE, HERE)?;
    front.values.insert(front.storage(data), vec![0.0; LENGTH]);
    let mut chain = vec![data];
    for layer in 0..12 {
        chain.push(front.run(&[chain[layer]])?);
    }
    let mut gradient = chain[12];
    for &activation in chain[..12].iter().rev() {
        gradient = front.run(&[gradient, activation])?;
    }
    let result = front.values[&front.storage(gradient)][0];
    let replays = front.engine.counters().replays;
    println!("24 ops ran, {replays} of them again; each element of the result is {result}");
    assert_eq!(result, 90.0);
    Ok(())
}
