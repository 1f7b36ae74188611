//! Steps that are planned with addresses, in an engine whose memory is an arena.

use proptest::collection::vec;
use proptest::prelude::*;
use remat_core::{
    Alignment, Arena, Bytes, Config, Cost, DeviceId, Engine, Error, Finished, Guide, Guided, Lies,
    Memory, Moves, OpSpec, Origin, Output, Places, Recorded, Replay, Step, TensorId, Told,
};
use remat_plan::step::{ArenaInUse, Learned, Search};
use std::num::NonZeroU32;
use std::ops::ControlFlow;

const DEVICE: DeviceId = DeviceId(0);
const LAYERS: u64 = 40;
const ARENA: u64 = 200 << 10;
const SPARE: u64 = 120 << 10;

/// A network that trains in an arena; each layer has weights, which are written over.
struct Training {
    engine: Engine,
    weights: Vec<TensorId>,
    /// Bytes of each layer's weights.
    sizes: Vec<u64>,
    /// Bytes of the arena.
    arena: u64,
    /// Blocks moved so far.
    moved: u64,
    /// The layers in the orders in which one plan after the other has their weights side by side, the last one first;
    /// none if plans choose.
    orders: Vec<Vec<usize>>,
    /// The next plans.
    next: Vec<(Vec<u64>, Guide)>,
    /// Blocks moved to their places before the step of the plan begins that is followed now.
    settled: u64,
    /// Where the plan has each layer's weights, until a step begins with them there.
    wanted: Vec<u64>,
}

impl Training {
    fn new() -> Training {
        Training::of(ARENA, vec![640; LAYERS as usize])
    }

    /// Layers with weights of these sizes, in an arena of so many bytes.
    fn of(bytes: u64, sizes: Vec<u64>) -> Training {
        let arena = Arena {
            alignment: Alignment::new(64).expect("a power of two"),
            moves: Moves::Copied {
                bytes_per_microsecond: NonZeroU32::new(4000).expect("not 0"),
            },
            ..Arena::default()
        };
        let mut engine = Engine::new(Config {
            budgets: vec![Some(Bytes(bytes))],
            policy: "coop".parse().expect("a policy"),
            memory: Memory::Arena(arena),
            ..Config::default()
        });
        engine.learn_steps(DEVICE);
        let weights = sizes
            .iter()
            .map(|&bytes| engine.constant(Bytes(bytes), DEVICE));
        Training {
            weights: weights.collect::<Result<_, _>>().expect("room"),
            sizes,
            arena: bytes,
            engine,
            moved: 0,
            orders: Vec::new(),
            next: Vec::new(),
            settled: 0,
            wanted: Vec::new(),
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
        if self.guided().settled > self.settled {
            let lies = |&weights: &TensorId| self.engine.address(self.engine.storage(weights)?);
            for (wanted, weights) in self.wanted.drain(..).zip(&self.weights) {
                assert_eq!(lies(weights), Some(wanted));
            }
        }
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
        // A front end says of constants again that they are, which changes nothing.
        for &weights in &self.weights {
            self.engine.note_constant(weights);
        }
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
            changes.push(self.fresh(&[gradient, input], self.sizes[layer as usize])?);
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
            bytes: self.arena,
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
        // Gaps between blocks take some bytes.
        let part = if self.orders.is_empty() { 95 } else { 100 };
        let planned = learned.plan(Bytes(self.arena / 100 * part), search, watch);
        let (plan, guide) = planned.expect("a plan");
        if !self.orders.is_empty() {
            for order in std::mem::take(&mut self.orders) {
                let wanted = side_by_side(&order, &self.sizes, self.arena);
                let guide = weights_at(&wanted, &recorded, guide.clone());
                self.next.push((wanted, guide));
            }
            self.follow_next();
            return;
        }
        let guide = learned.place(&plan, guide, &arena);
        let bytes = guide.places().expect("just placed").bytes();
        assert!(plan.peak_bytes <= bytes && bytes <= self.arena);
        self.engine.follow(guide);
    }

    /// Follows the next plan that has the weights elsewhere, if there is one.
    fn follow_next(&mut self) {
        if let Some((wanted, guide)) = self.next.pop() {
            self.settled = self.guided().settled;
            self.wanted = wanted;
            self.engine.follow(guide);
        }
    }

    fn guided(&self) -> Guided {
        self.engine.guided()
    }
}

/// The address of each layer's weights, in this order one below the other, from an address down.
fn side_by_side(order: &[usize], sizes: &[u64], mut top: u64) -> Vec<u64> {
    let mut addresses = vec![0; sizes.len()];
    for &layer in order {
        top -= sizes[layer];
        addresses[layer] = top;
    }
    addresses
}

/// A guide that has each layer's weights at an address as a step begins, and no place for anything else.
fn weights_at(addresses: &[u64], recorded: &Recorded, guide: Guide) -> Guide {
    let mut made: Vec<u32> = recorded
        .events
        .iter()
        .filter_map(|told| match told {
            &Told::There {
                origin: Some(Origin::Made { op, .. }),
                lies: Lies::At(_),
                ..
            } => Some(op),
            _ => None,
        })
        .collect();
    // The last layer is updated first.
    made.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(made.len(), addresses.len());
    let there = made.into_iter().zip(addresses).map(|(op, &address)| {
        let output = 0;
        (Origin::Made { op, output }, address)
    });
    let ops = guide.signatures().len();
    let actions = (0..ops).map(|op| guide.before(op).len()).sum();
    let none = |count| vec![Vec::new(); count];
    let places = Places::new(&none(ops), &none(actions), there.collect(), Vec::new(), 0);
    guide
        .with_places(places)
        .expect("as many lists as there are")
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    /// Where blocks of many sizes change places, few fit where another just was.
    #[test]
    fn weights_of_many_sizes_get_to_their_places_at_once(
        sizes in vec((1u64..80).prop_map(|size| 64 * size), LAYERS as usize),
        orders in vec(Just((0..LAYERS as usize).collect::<Vec<_>>()).prop_shuffle(), 2),
    ) {
        let weights: u64 = sizes.iter().sum();
        let mut training = Training::of(2 * weights + SPARE, sizes);
        training.orders = orders;
        for _ in 0..9 {
            training.step(LAYERS).expect("room");
        }
        prop_assert!(training.guided().settled > 0 && training.wanted.is_empty());
        training.follow_next();
        training.step(LAYERS).expect("room");
        prop_assert!(training.guided().settled > training.settled && training.wanted.is_empty());
    }
}
