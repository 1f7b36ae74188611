//! In the steady state, where nothing is short, the engine keeps no more memory, however long it runs, and takes none
//! from the heap.

use remat_core::{
    Bytes, Config, Cost, DeviceId, Engine, Error, Finished, OpSpec, Output, Policy, Replay,
    TensorId,
};
use std::collections::VecDeque;

mod heap;

const HERE: DeviceId = DeviceId(0);

/// Ops that read the result before, a constant, or both; each result is dropped 50 ops later.
struct Stream {
    engine: Engine,
    root: TensorId,
    held: VecDeque<TensorId>,
    ops: u64,
}

impl Stream {
    fn new(policy: Policy) -> Result<Stream, Error> {
        let mut engine = Engine::new(Config {
            budgets: vec![Some(Bytes(1 << 40))],
            policy,
            ..Config::default()
        });
        let root = engine.constant(Bytes(64), HERE)?;
        Ok(Stream {
            engine,
            root,
            held: VecDeque::with_capacity(64),
            ops: 0,
        })
    }

    fn turn(&mut self) -> Result<(), Error> {
        let before = match self.held.back() {
            Some(&result) if self.ops % 16 != 0 => result,
            _ => self.root,
        };
        self.ops += 1;
        let op = self.engine.begin(&OpSpec {
            inputs: &[before, self.root],
            outputs: &[Output::Fresh {
                bytes: Bytes(4096),
                device: HERE,
            }],
            workspace: Bytes(0),
            workspace_device: HERE,
            replay: Replay::Allowed,
        })?;
        let (cost, bytes) = (Cost(1000), None);
        self.engine.finish(op, &Finished { cost, bytes })?;
        self.held.push_back(self.engine.outputs(op)[0]);
        if self.held.len() > 50 {
            if let Some(oldest) = self.held.pop_front() {
                self.engine.release(oldest)?;
            }
        }
        self.engine.collected();
        Ok(())
    }
}

#[test]
fn ops_without_pressure_take_no_memory_from_the_heap() {
    for policy in ["dtr-anc", "dtr-eq", "dtr", "lru"] {
        let mut stream = Stream::new(policy.parse().expect("a policy")).expect("room");
        let mut turns = |count: u32| {
            for _ in 0..count {
                stream.turn().expect("room");
            }
        };
        turns(2_000);
        let before = (heap::bytes(), heap::allocations());
        turns(100_000);
        assert_eq!(heap::bytes(), before.0, "{policy}");
        if cfg!(not(debug_assertions)) {
            // Some assertions compare lists with what they were made of.
            assert_eq!(heap::allocations(), before.1, "{policy}");
        }
    }
}
