//! Storages with addresses, by hand: where they are put, and what goes to make room.

use remat_core::*;
use std::num::NonZeroU32;

const DEVICE: DeviceId = DeviceId(0);

fn engine(policy: &str, budget: u64, alignment: u64, partition: Partition) -> Engine {
    let alignment = Alignment::new(alignment).expect("a power of two");
    Engine::new(Config {
        budgets: vec![Some(Bytes(budget))],
        policy: policy.parse().expect("a policy"),
        lineage: Lineage::Keep,
        order: ReplayOrder::Dtr,
        memory: Memory::Arena(Arena {
            alignment,
            partition,
            ..Arena::default()
        }),
        ..Config::default()
    })
}

/// An op over `inputs` with one output; gives it.
fn run(
    engine: &mut Engine,
    inputs: &[TensorId],
    output: Output,
    cost: u64,
) -> Result<TensorId, Error> {
    let outputs = [output];
    let spec = OpSpec {
        inputs,
        outputs: &outputs,
        workspace: Bytes(0),
        workspace_device: DEVICE,
        replay: Replay::Allowed,
    };
    let op = engine.begin_expecting(&spec, Cost(cost))?;
    let report = Finished {
        cost: Cost(cost),
        bytes: None,
    };
    engine.finish(op, &report)?;
    Ok(engine.outputs(op)[0])
}

fn fresh(bytes: u64) -> Output {
    Output::Fresh {
        bytes: Bytes(bytes),
        device: DEVICE,
    }
}

fn address(engine: &Engine, tensor: TensorId) -> Option<u64> {
    engine.address(engine.storage(tensor).expect("a known tensor"))
}

/// Four results of 100 bytes side by side, the two in the middle cheap; a fifth of 200 takes their place.
#[test]
fn coop_evicts_the_cheap_neighbours_and_nothing_else() {
    let mut engine = engine("coop-sum", 400, 1, Partition::None);
    let data = engine.constant(Bytes(0), DEVICE).expect("no bytes");
    let results: Vec<_> = [900, 10, 10, 900]
        .map(|cost| run(&mut engine, &[data], fresh(100), cost).expect("room"))
        .into();
    let addresses: Vec<_> = results.iter().map(|&t| address(&engine, t)).collect();
    assert_eq!(addresses, [0, 100, 200, 300].map(Some));

    let last = run(&mut engine, &[data], fresh(200), 1).expect("room");
    assert_eq!(address(&engine, last), Some(100));
    assert_eq!(engine.check(), Ok(()));
    let there: Vec<_> = results.iter().map(|&t| address(&engine, t)).collect();
    assert_eq!(there, [Some(0), None, None, Some(300)]);
    let counters = engine.counters();
    assert_eq!(
        (counters.searches, counters.shortages, counters.evictions),
        (1, 1, 2)
    );
    assert_eq!(
        (counters.evicted_bytes, counters.unused_evicted_bytes),
        (counters.shortage_bytes, 0)
    );
    assert_eq!(counters.shortage_bytes, 200);
    assert_eq!((counters.free_after, counters.most_free_after), (0, 0));
}

/// The same with costs that make DTR take the first and the third: bytes that the block does not cover.
#[test]
fn dtr_evicts_until_a_block_is_large_enough() {
    let mut engine = engine("dtr-local", 400, 1, Partition::None);
    let data = engine.constant(Bytes(0), DEVICE).expect("no bytes");
    for cost in [10, 500, 10, 900] {
        run(&mut engine, &[data], fresh(100), cost).expect("room");
    }
    let last = run(&mut engine, &[data], fresh(200), 1).expect("room");
    assert_eq!(address(&engine, last), Some(0));
    let counters = engine.counters();
    assert_eq!(
        (counters.searches, counters.shortages, counters.evictions),
        (3, 1, 3)
    );
    assert_eq!(
        (counters.evicted_bytes, counters.unused_evicted_bytes),
        (300, 100)
    );
    assert_eq!(counters.free_after, 100);
}

/// The stalest goes under DTR; one that is less stale and beside a gap of its own size makes more room.
#[test]
fn dte_prefers_what_stands_beside_a_gap() {
    for (policy, gone) in [("dte", 1), ("dtr", 0)] {
        let mut engine = engine(policy, 400, 1, Partition::None);
        let data = engine.constant(Bytes(0), DEVICE).expect("no bytes");
        let results =
            [50; 4].map(|cost| run(&mut engine, &[data], fresh(100), cost).expect("room"));
        engine.release(results[2]).expect("a reference");
        let victim = engine.storage(results[gone]).expect("a known tensor");
        assert_eq!(engine.next_victim(DEVICE), Some(victim), "{policy}");
    }
}

#[test]
fn an_in_place_op_writes_into_the_block_of_its_input() {
    let mut engine = engine("coop", 300, 1, Partition::None);
    let data = engine.constant(Bytes(0), DEVICE).expect("no bytes");
    let old = run(&mut engine, &[data], fresh(100), 5).expect("room");
    let before = address(&engine, old);
    let new = run(&mut engine, &[old], Output::InPlace { of: 0 }, 5).expect("room");
    assert_eq!(
        (address(&engine, new), address(&engine, old)),
        (before, None)
    );
    assert_eq!(engine.memory(DEVICE), Bytes(100));
    // The old value can be had again, elsewhere.
    engine.ensure(&[old, new]).expect("room");
    assert_eq!(address(&engine, new), before);
    assert_eq!(address(&engine, old), Some(100));
}

#[test]
fn ends_are_chosen_by_cost_or_by_size() {
    let place = |partition, bytes, cost| {
        let mut engine = engine("coop", 6400, 1, partition);
        let data = engine.constant(Bytes(0), DEVICE).expect("no bytes");
        run(&mut engine, &[data], fresh(1000), 1000).expect("room");
        let tensor = run(&mut engine, &[data], fresh(bytes), cost).expect("room");
        address(&engine, tensor)
    };
    assert_eq!(place(Partition::ByCost, 1000, 100), Some(5400));
    assert_eq!(place(Partition::ByCost, 1000, 5000), Some(1000));
    assert_eq!(place(Partition::BySize, 99, 100), Some(0));
    assert_eq!(place(Partition::BySize, 100, 100), Some(5300));
    assert_eq!(place(Partition::None, 1000, 100), Some(1000));
}

/// Ten thousand scalars in an arena that is full: a search makes room for many.
#[test]
fn storms_of_scalars_do_not_cost_a_search_each() {
    let mut engine = engine("coop", 64 << 20, 64, Partition::BySize);
    let data = engine.constant(Bytes(0), DEVICE).expect("no bytes");
    for _ in 0..64 {
        run(&mut engine, &[data], fresh(1 << 20), 1000).expect("room");
    }
    let scalars = 10_000;
    for _ in 0..scalars {
        run(&mut engine, &[data], fresh(4), 1).expect("room");
    }
    let counters = engine.counters();
    assert!(
        counters.searches >= 1 && counters.searches <= scalars / 100,
        "{counters:?}"
    );
}

#[test]
fn budgets_that_hold_nothing_are_refused_and_leave_no_trace() {
    for (budget, alignment, bytes) in [
        (0, 64, 1),
        (63, 64, 1),
        (1 << 20, 1 << 40, 1),
        (4096, 64, 4097),
        (4096, 512, 1 << 62),
    ] {
        let mut engine = engine("coop", budget, alignment, Partition::BySize);
        let data = engine.constant(Bytes(0), DEVICE).expect("no bytes");
        let before = format!("{engine:?}");
        let refused = run(&mut engine, &[data], fresh(bytes), 1);
        let Err(Error::Budget {
            smallest,
            budget: told,
            ..
        }) = &refused
        else {
            panic!("{refused:?}");
        };
        assert!(smallest.0 >= bytes && smallest > told, "{refused:?}");
        assert_eq!(before, format!("{engine:?}"));
        let text = refused.expect_err("refused").to_string();
        assert!(!text.contains('\n'), "{text}");
        assert!(engine.constant(Bytes(bytes), DEVICE).is_err());
        assert_eq!(engine.check(), Ok(()));
    }
    let mut engine = engine("coop", 4096, 64, Partition::BySize);
    let data = engine.constant(Bytes(0), DEVICE).expect("no bytes");
    assert_eq!(
        run(&mut engine, &[data], fresh(1 << 63), 1),
        Err(Error::Overflow)
    );
}

/// The budget that a refusal names is enough: the arena grows, and the op runs.
#[test]
fn a_larger_budget_helps_and_a_smaller_one_evicts_beyond_it() {
    let mut engine = engine("coop", 1000, 1, Partition::BySize);
    let data = engine.constant(Bytes(100), DEVICE).expect("room");
    let first = run(&mut engine, &[data], fresh(600), 1).expect("room");
    engine.pin(first).expect("there");
    let Err(Error::Budget { smallest, .. }) = run(&mut engine, &[data], fresh(600), 1) else {
        panic!("no room");
    };
    engine.set_budget(DEVICE, Some(smallest)).expect("larger");
    let second = run(&mut engine, &[data], fresh(600), 1).expect("room");
    assert!(engine.set_budget(DEVICE, Some(Bytes(300))).is_err());
    assert_eq!(engine.check(), Ok(()));
    let end = address(&engine, first).expect("an address") + 600;
    engine
        .set_budget(DEVICE, Some(Bytes(end)))
        .expect("nothing pinned beyond");
    assert_eq!(address(&engine, second), None);
    assert_eq!(
        engine.arena(DEVICE).map(|arena| arena.capacity()),
        Some(end)
    );
}

#[test]
fn what_is_pinned_is_moved_where_windows_end_at_it() {
    let moved = |most: u32| {
        let mut engine = Engine::new(Config {
            budgets: vec![Some(Bytes(640))],
            policy: "coop".parse().expect("a policy"),
            memory: Memory::Arena(Arena {
                moves: Moves::Copied {
                    bytes_per_microsecond: NonZeroU32::new(most).expect("a rate"),
                },
                ..Arena::default()
            }),
            ..Config::default()
        });
        let one = |engine: &mut Engine, bytes| {
            let fresh = Output::Fresh {
                bytes: Bytes(bytes),
                device: DEVICE,
            };
            run(engine, &[], fresh, 500)
        };
        let low = one(&mut engine, 192).expect("room");
        let island = engine.constant(Bytes(64), DEVICE).expect("room");
        let high = one(&mut engine, 192).expect("room");
        engine.release(low).expect("held");
        let spec = OpSpec {
            inputs: &[],
            outputs: &[Output::Fresh {
                bytes: Bytes(256),
                device: DEVICE,
            }],
            workspace: Bytes(0),
            workspace_device: DEVICE,
            replay: Replay::Allowed,
        };
        engine.begin(&spec).expect("room once something goes");
        let (island, high) = (
            engine.storage(island).expect("a known tensor"),
            engine.storage(high).expect("a known tensor"),
        );
        (engine.steps().to_vec(), island, high)
    };
    // 192 free, the island, 192 of `high`, 192 free. Moving the island costs 64 ns at a byte each, moving `high` 192,
    // computing `high` 500.
    let (steps, island, _) = moved(1000);
    assert_eq!(
        steps,
        [Step::Move {
            storage: island,
            address: 448
        }]
    );
    // At 64 us a copy `high` is computed again.
    let (steps, _, high) = moved(1);
    assert_eq!(steps, [Step::Evict(high)]);
}

#[test]
fn what_is_fixed_stays() {
    let mut engine = Engine::new(Config {
        budgets: vec![Some(Bytes(640))],
        memory: Memory::Arena(Arena {
            moves: Moves::Copied {
                bytes_per_microsecond: NonZeroU32::MAX,
            },
            ..Arena::default()
        }),
        policy: "coop".parse().expect("a policy"),
        ..Config::default()
    });
    let gap = engine.constant(Bytes(256), DEVICE).expect("room");
    let island = engine.constant(Bytes(64), DEVICE).expect("room");
    engine.fix(island).expect("known");
    engine.release(gap).expect("held");
    assert!(matches!(
        engine.constant(Bytes(384), DEVICE),
        Err(Error::Budget { .. })
    ));
    assert_eq!(engine.steps(), []);
    engine.constant(Bytes(320), DEVICE).expect("room above");
}

#[test]
fn decisions_go_by_the_blocks_that_were_told() {
    let mut engine = engine("coop", 640, 64, Partition::None);
    engine
        .constant_elsewhere(Bytes(64), DEVICE)
        .expect("no room is needed");
    let foreign = Observed {
        address: 128,
        bytes: Bytes(64),
        owner: None,
    };
    engine.observe(DEVICE, &[foreign]).expect("blocks in order");
    let spec = OpSpec {
        inputs: &[],
        outputs: &[Output::Fresh {
            bytes: Bytes(192),
            device: DEVICE,
        }],
        workspace: Bytes(0),
        workspace_device: DEVICE,
        replay: Replay::Allowed,
    };
    let op = engine.begin(&spec).expect("room");
    let planned = Placement {
        step: 0,
        output: 0,
        address: 192,
        bytes: Bytes(192),
    };
    assert_eq!(
        engine.placements(),
        [planned],
        "128 bytes below are too few"
    );
    let report = Finished {
        cost: Cost(1),
        bytes: None,
    };
    engine.finish(op, &report).expect("begun");
    let made = engine
        .storage(engine.outputs(op)[0])
        .expect("a known tensor");
    let elsewhere = Observed {
        address: 384,
        bytes: Bytes(192),
        owner: Some(made),
    };
    engine
        .observe(DEVICE, &[foreign, elsewhere])
        .expect("blocks in order");
    assert_eq!(engine.address(made), Some(384));
    assert_eq!(engine.check(), Ok(()));
    let overlapping = Observed {
        address: 320,
        ..elsewhere
    };
    assert!(matches!(
        engine.observe(DEVICE, &[foreign, overlapping, elsewhere]),
        Err(Error::Protocol(_))
    ));
    assert!(engine.observe(DeviceId(1), &[]).is_err(), "no arena");
}
