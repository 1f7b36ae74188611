//! Time of telling the engine of an op where nothing is short: `begin`, `finish`, and the release of the oldest result.
//!
//! ```console
//! $ cargo run --release -p remat-core --example begin_finish
//! ```
//!
//! Each op reads a constant and the result before and makes one result; every 16th reads constants only, as a step does
//! whose parameters were just changed, so that lineage is collected. So many results are held at a time.
//!
//! With a number of results and a number of ops as arguments it runs these only, so that instructions can be counted:
//! `valgrind --tool=callgrind target/release/examples/begin_finish 1000 200000`. Two such runs with other numbers of
//! ops differ by the ops between.

use remat_core::*;
use std::collections::VecDeque;
use std::time::Instant;

const HERE: DeviceId = DeviceId(0);
const OPS: usize = 1_000_000;

struct Stream {
    engine: Engine,
    root: TensorId,
    held: VecDeque<TensorId>,
    ops: u64,
}

impl Stream {
    fn new(policy: &str, held: usize) -> Result<Stream, Box<dyn std::error::Error>> {
        let mut engine = Engine::new(Config {
            budgets: vec![Some(Bytes(u64::MAX >> 1))],
            policy: policy.parse()?,
            ..Config::default()
        });
        let root = engine.constant(Bytes(64), HERE)?;
        let mut stream = Stream {
            engine,
            root,
            held: VecDeque::new(),
            ops: 0,
        };
        for _ in 0..held {
            stream.op()?;
        }
        Ok(stream)
    }

    fn op(&mut self) -> Result<(), Error> {
        let before = match self.held.back() {
            Some(&result) if self.ops % 16 != 0 => result,
            _ => self.root,
        };
        self.ops += 1;
        let inputs = [before, self.root];
        let outputs = [Output::Fresh {
            bytes: Bytes(4096),
            device: HERE,
        }];
        let spec = OpSpec {
            inputs: &inputs,
            outputs: &outputs,
            workspace: Bytes(0),
            workspace_device: HERE,
            replay: Replay::Allowed,
        };
        let op = self.engine.begin(&spec)?;
        let (cost, bytes) = (Cost(1000), None);
        self.engine.finish(op, &Finished { cost, bytes })?;
        self.held.push_back(self.engine.outputs(op)[0]);
        Ok(())
    }

    /// An op, and the release of the oldest result.
    fn turn(&mut self) -> Result<(), Error> {
        self.op()?;
        if let Some(oldest) = self.held.pop_front() {
            self.engine.release(oldest)?;
        }
        self.engine.collected();
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [held, ops] = &arguments[..] {
        let mut stream = Stream::new("dtr-anc", held.parse()?)?;
        for _ in 0..ops.parse()? {
            stream.turn()?;
        }
        return Ok(());
    }
    println!("| policy | results held | ns / op |");
    println!("| --- | ---: | ---: |");
    for policy in ["dtr-anc", "dtr-eq"] {
        for held in [100, 1_000, 10_000, 100_000] {
            let mut stream = Stream::new(policy, held)?;
            let started = Instant::now();
            for _ in 0..OPS {
                stream.turn()?;
            }
            let ns = started.elapsed().as_nanos() as f64 / OPS as f64;
            println!("| {policy} | {held} | {ns:.0} |");
        }
    }
    Ok(())
}
