//! The work of deciding, in counts: none where nothing is short, and no more for an eviction late in a run than early.

use remat_core::{
    Bytes, Config, Cost, DeviceId, Engine, Finished, OpSpec, Output, Replay, TensorId,
};
use std::collections::VecDeque;

const DEVICE: DeviceId = DeviceId(0);
/// Results that the program holds at a time, of which a tenth fits into the budget.
const HELD: usize = 400;
const OPS: u32 = 4_000;

/// A stream of ops, each of which reads the last two results.
struct Stream {
    engine: Engine,
    held: VecDeque<TensorId>,
    ops: u32,
}

impl Stream {
    fn new(policy: &str, budget: Option<u64>) -> Stream {
        let mut engine = Engine::new(Config {
            budgets: vec![budget.map(Bytes)],
            policy: policy.parse().expect("a policy"),
            ..Config::default()
        });
        let root = engine.constant(Bytes(0), DEVICE).expect("room");
        Stream {
            engine,
            held: VecDeque::from([root, root]),
            ops: 0,
        }
    }

    fn op(&mut self) {
        let inputs = [
            self.held[self.held.len() - 1],
            self.held[self.held.len() - 2],
        ];
        let outputs = [Output::Fresh {
            bytes: Bytes(u64::from(90 + self.ops % 21)),
            device: DEVICE,
        }];
        let spec = OpSpec {
            inputs: &inputs,
            outputs: &outputs,
            workspace: Bytes(0),
            workspace_device: DEVICE,
            replay: Replay::Allowed,
        };
        let op = self.engine.begin(&spec).expect("room");
        let report = Finished {
            cost: Cost(u64::from(1 + self.ops % 7)),
            bytes: None,
        };
        self.engine.finish(op, &report).expect("room");
        self.held.push_back(self.engine.outputs(op)[0]);
        if self.held.len() > HELD {
            let oldest = self.held.pop_front().expect("many");
            // The root is held twice and was retained once.
            if self.ops as usize >= HELD {
                self.engine.release(oldest).expect("held");
            }
        }
        self.engine.collected();
        self.ops += 1;
    }

    /// Evictions, and storages that were looked at for them, of the next ops.
    fn work(&mut self) -> (u64, u64) {
        let before = self.engine.counters();
        (0..OPS).for_each(|_| self.op());
        let after = self.engine.counters();
        (
            after.evictions - before.evictions,
            after.metadata_accesses - before.metadata_accesses,
        )
    }
}

const POLICIES: [&str; 4] = ["dtr-eq", "dtr-anc", "dtr-local", "lru"];

#[test]
fn nothing_is_looked_at_where_nothing_is_short() {
    for policy in POLICIES {
        let mut stream = Stream::new(policy, None);
        stream.work();
        let counters = stream.engine.counters();
        let looked = (counters.evictions, counters.score_evaluations);
        assert_eq!(looked, (0, 0), "{policy}");
    }
}

/// Not of `dtr`, which walks the whole evicted neighbourhood of each candidate: that grows here with the run.
#[test]
fn an_eviction_late_in_a_run_takes_no_more_work_than_an_early_one() {
    for policy in POLICIES {
        let mut stream = Stream::new(policy, Some(100 * HELD as u64 / 10));
        stream.work(); // the first results are still to come
        let (evictions, accesses) = stream.work();
        assert!(evictions > u64::from(OPS) / 2, "{policy}: {evictions}");
        for _ in 0..3 {
            stream.work();
        }
        let (later, later_accesses) = stream.work();
        let (early, late) = (
            accesses as f64 / evictions as f64,
            later_accesses as f64 / later as f64,
        );
        assert!(
            late <= 1.05 * early,
            "{policy}: {early:.1}, later {late:.1}"
        );
    }
}
