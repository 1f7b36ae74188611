//! Steps that are planned with addresses, in an engine whose memory is an arena.

use remat_core::{
    Alignment, Arena, Bytes, Config, Cost, DeviceId, Engine, Error, Finished, Guided, Memory,
    Moves, OpSpec, Output, Replay, Step, TensorId,
};
use remat_plan::step::{ArenaInUse, Learned, Search};
use std::num::NonZeroU32;
use std::ops::ControlFlow;

const DEVICE: DeviceId = DeviceId(0);
const LAYERS: u64 = 40;
const ARENA: u64 = 200 << 10;

/// A network that trains in an arena; each layer has weights, which are written over.
struct Training {
    engine: Engine,
    weights: Vec<TensorId>,
    /// Blocks moved so far.
    moved: u64,
}

impl Training {
    fn new() -> Training {
        let arena = Arena {
            alignment: Alignment::new(64).expect("a power of two"),
            moves: Moves::Copied {
                bytes_per_microsecond: NonZeroU32::new(4000).expect("not 0"),
            },
            ..Arena::default()
        };
        let mut engine = Engine::new(Config {
            budgets: vec![Some(Bytes(ARENA))],
            policy: "coop".parse().expect("a policy"),
            memory: Memory::Arena(arena),
            ..Config::default()
        });
        engine.learn_steps(DEVICE);
        let weights = (0..LAYERS).map(|_| engine.constant(Bytes(640), DEVICE));
        Training {
            weights: weights.collect::<Result<_, _>>().expect("room"),
            engine,
            moved: 0,
        }
    }

    fn run(
        &mut self,
        inputs: &[TensorId],
        output: Output,
        replay: Replay,
    ) -> Result<TensorId, Error> {
        let spec = OpSpec {
            inputs,
            outputs: &[output],
            workspace: Bytes(1024),
            workspace_device: DEVICE,
            replay,
        };
        let op = self.engine.begin(&spec)?;
        let moves = self.engine.steps().iter();
        self.moved += moves
            .filter(|step| matches!(step, Step::Move { .. }))
            .count() as u64;
        let report = Finished {
            cost: Cost(1000),
            bytes: None,
        };
        self.engine.finish(op, &report)?;
        self.engine.check().expect("sound blocks");
        Ok(self.engine.outputs(op)[0])
    }

    fn fresh(&mut self, inputs: &[TensorId], bytes: u64) -> Result<TensorId, Error> {
        let output = Output::Fresh {
            bytes: Bytes(bytes),
            device: DEVICE,
        };
        self.run(inputs, output, Replay::Allowed)
    }

    /// A step of so many layers.
    fn step(&mut self, layers: u64) -> Result<(), Error> {
        let batch = Output::Fresh {
            bytes: Bytes(5000),
            device: DEVICE,
        };
        let mut made = vec![self.run(&[], batch, Replay::Forbidden)?];
        for layer in 0..layers {
            let inputs = [made[made.len() - 1], self.weights[layer as usize]];
            made.push(self.fresh(&inputs, 4000 + 1500 * (layer % 5))?);
        }
        let mut gradient = self.fresh(&made[made.len() - 1..], 4000)?;
        let mut changes = Vec::new();
        for layer in (0..layers).rev() {
            let last = made.pop().expect("a layer");
            self.engine.release(last)?;
            let input = made[layer as usize];
            let weights = self.weights[layer as usize];
            let next = self.fresh(&[gradient, input, weights], 4000)?;
            changes.push(self.fresh(&[gradient, input], 640)?);
            self.engine.release(gradient)?;
            gradient = next;
        }
        self.engine.release(gradient)?;
        self.engine.release(made[0])?;
        for (layer, change) in (0..layers).rev().zip(changes) {
            let weights = self.weights[layer as usize];
            let into = Output::InPlace { of: 0 };
            let updated = self.run(&[weights, change], into, Replay::Forbidden)?;
            self.engine.release(weights)?;
            self.engine.release(change)?;
            self.weights[layer as usize] = updated;
        }
        self.engine.collected();
        self.plan();
        Ok(())
    }

    /// Follows a plan from now on if a step was recorded.
    fn plan(&mut self) {
        let Some(recorded) = self.engine.recorded_step() else {
            return;
        };
        let arena = ArenaInUse {
            bytes: ARENA,
            alignment: 64,
            smallest: 1,
            foreign: self.engine.unowned(DEVICE),
            moves: self.engine.moves_blocks(),
        };
        let learned = Learned::in_arena(&recorded);
        let search = Search {
            iterations: Some(50),
            ..Search::default()
        };
        let watch = &mut |_: &_| ControlFlow::Continue(());
        let planned = learned.plan(Bytes(ARENA / 100 * 95), search, watch);
        let (plan, guide) = planned.expect("a plan");
        let guide = learned.place(&plan, guide, &arena);
        let bytes = guide.places().expect("just placed").bytes();
        assert!(plan.peak_bytes <= bytes && bytes <= ARENA);
        self.engine.follow(guide);
    }

    fn guided(&self) -> Guided {
        self.engine.guided()
    }
}

/// Counts of all that was not as planned.
fn otherwise(guided: Guided) -> [u64; 4] {
    let Guided {
        displaced,
        settled,
        moves,
        searches,
        ..
    } = guided;
    [displaced, settled, moves, searches]
}

#[test]
fn planned_steps_move_nothing_and_search_for_nothing() {
    let mut training = Training::new();
    for _ in 0..9 {
        training.step(LAYERS).expect("room");
    }
    let (before, moved) = (training.guided(), training.moved);
    assert!(before.steps >= 2, "{before:?}");
    for _ in 0..5 {
        training.step(LAYERS).expect("room");
    }
    let after = training.guided();
    assert_eq!(after.steps - before.steps, 5);
    assert!(after.placed - before.placed > 5 * 3 * LAYERS);
    assert_eq!(otherwise(after), otherwise(before));
    assert_eq!(training.moved, moved);
}

/// Most of the network trains once, which leaves blocks elsewhere. They are moved back as the next whole step begins.
#[test]
fn steps_are_placed_as_planned_again_after_a_departure() {
    let mut training = Training::new();
    for _ in 0..9 {
        training.step(LAYERS).expect("room");
    }
    let whole = training.guided();
    training.step(LAYERS - 3).expect("room");
    training.step(LAYERS).expect("room");
    let before = training.guided();
    assert!(before.departures > whole.departures);
    for _ in 0..3 {
        training.step(LAYERS).expect("room");
    }
    let after = training.guided();
    assert_eq!(after.steps - before.steps, 3);
    assert_eq!(otherwise(after), otherwise(before));
}
