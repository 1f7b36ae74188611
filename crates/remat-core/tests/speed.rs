//! Times of the engine's calls. `cargo test --release -p remat-core --test speed -- --ignored --nocapture`.

use remat_core::*;
use std::collections::VecDeque;
use std::time::Instant;

const POOL: PoolId = PoolId(0);

/// Runs `ops` ops of a stream that keeps `kept` results, and gives the time in nanoseconds and the counters.
fn stream(policy: &str, budget: Option<u64>, kept: usize, ops: u32) -> (u128, Counters) {
    let config = Config {
        budgets: vec![budget.map(Bytes)],
        policy: policy.parse().expect("a policy"),
        ..Config::default()
    };
    let mut engine = Engine::new(config);
    let root = engine.constant(Bytes(0), POOL).expect("room");
    let mut results = VecDeque::from([root, root]);
    let mut started = Instant::now();
    let mut before = engine.counters();
    for index in 0..2 * ops {
        if index == ops {
            before = engine.counters();
            started = Instant::now();
        }
        let inputs = [results[results.len() - 1], results[results.len() - 2]];
        let outputs = [Output::Fresh {
            bytes: Bytes(u64::from(90 + index % 21)),
            pool: POOL,
        }];
        let spec = OpSpec {
            inputs: &inputs,
            outputs: &outputs,
            workspace: Bytes(0),
            workspace_pool: POOL,
            replay: Replay::Allowed,
        };
        let op = engine.begin(&spec).expect("room");
        engine
            .finish(
                op,
                &Finished {
                    cost: Cost(u64::from(1 + index % 7)),
                    bytes: None,
                },
            )
            .expect("room");
        results.push_back(engine.outputs(op)[0]);
        if results.len() > kept {
            let oldest = results.pop_front().expect("many");
            if oldest != root {
                engine.release(oldest).expect("held");
            }
        }
        engine.collected();
    }
    let after = engine.counters();
    let mut counters = after;
    counters.evictions -= before.evictions;
    (started.elapsed().as_nanos(), counters)
}

#[test]
#[ignore = "a measurement"]
fn times() {
    for policy in ["dtr-eq", "dtr-local", "lru", "dtr"] {
        let ops = 20_000;
        let (free, _) = stream(policy, None, 2_000, ops);
        let (tight, counters) = stream(policy, Some(100_000), 2_000, ops);
        let evictions = u128::from(counters.evictions.max(1));
        println!(
            "{policy}: {} ns an op without pressure; {} evictions among about 1000, {} ns each; ratio {:.1}",
            free / u128::from(ops),
            counters.evictions,
            tight.saturating_sub(free) / evictions,
            tight as f64 / free as f64
        );
    }
}
