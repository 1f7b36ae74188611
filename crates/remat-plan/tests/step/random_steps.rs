//! Random steps, the same in every run of the tests.

use crate::recordings::{constant, fresh, op, release};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use remat_trace::{Event, TraceOutput, TraceOutputKind};
use std::fmt::Debug;
use std::ops::RangeInclusive;

/// A trait of a step beyond fresh results, workspaces, releases, and ops that run once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trait {
    /// Ops of several results.
    SeveralResults,
    /// Views, views of views, and ops that make views beside results.
    Views,
    /// Ops that write in place, into constants too.
    Writes,
    /// Values that are read after an op wrote into them.
    StaleReads,
    /// Pins, and reads outside ops.
    Requests,
}

/// The traits of real recordings, in which nothing reads a value after an op wrote into it.
pub(crate) const RECORDED: &[Trait] = &[
    Trait::SeveralResults,
    Trait::Views,
    Trait::Writes,
    Trait::Requests,
];

/// An op and what follows it.
#[derive(Clone, Copy, Debug)]
struct Draw {
    kind: u8,
    picks: [u32; 3],
    bytes: [u64; 2],
    workspace: u64,
    cost: u64,
    /// Kinds of the events after the op, and the tensors that they are about.
    after: [(u8, u32); 2],
}

/// Steps of so many ops beside their constants. Sizes and costs are small numbers, so that they are often equal.
pub(crate) fn steps(
    ops: RangeInclusive<usize>,
    traits: &'static [Trait],
) -> impl Strategy<Value = Vec<Event>> {
    let bytes = prop_oneof![1 => Just(0u64), 9 => 1u64..12];
    let workspace = prop_oneof![3 => Just(0u64), 1 => 1u64..8];
    let draw = (
        0u8..32,
        any::<[u32; 3]>(),
        [bytes.clone(), bytes],
        workspace,
        (0u64..20).prop_map(|cost| cost * 1000),
        [(0u8..24, any::<u32>()), (0u8..24, any::<u32>())],
    );
    let draw = draw.prop_map(|(kind, picks, bytes, workspace, cost, after)| Draw {
        kind,
        picks,
        bytes,
        workspace,
        cost,
        after,
    });
    let constants = prop::collection::vec(0u64..8, 1..3);
    let left = any::<u64>();
    (constants, prop::collection::vec(draw, ops), left).prop_map(move |(constants, draws, left)| {
        let mut writer = Writer::new(traits, &constants);
        for draw in &draws {
            writer.op(draw);
            draw.after.iter().for_each(|&after| writer.after(after));
        }
        writer.finish(left)
    })
}

/// Checks a property of so many values; the values are the same in each run of the tests.
pub(crate) fn check<S: Strategy<Value: Debug>>(
    cases: u32,
    strategy: &S,
    property: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    match runner.run(strategy, property) {
        Ok(()) => {}
        Err(TestError::Fail(reason, value)) => panic!("{reason}\n{value:#?}"),
        Err(other) => panic!("{other}"),
    }
}

/// A tensor that the recording refers to.
#[derive(Clone, Copy)]
struct Tensor {
    id: u64,
    storage: usize,
}

struct Writer {
    traits: &'static [Trait],
    events: Vec<Event>,
    alive: Vec<Tensor>,
    tensors: u64,
    storages: usize,
}

impl Writer {
    fn new(traits: &'static [Trait], constants: &[u64]) -> Writer {
        let mut writer = Writer {
            traits,
            events: Vec::new(),
            alive: Vec::new(),
            tensors: 0,
            storages: 0,
        };
        for &bytes in constants {
            let Tensor { id, .. } = writer.make(None);
            writer.events.push(constant(id, bytes));
        }
        writer
    }

    fn has(&self, wanted: Trait) -> bool {
        self.traits.contains(&wanted)
    }

    /// A new tensor of a storage, or of one of its own.
    fn make(&mut self, storage: Option<usize>) -> Tensor {
        let own = self.storages;
        self.storages += usize::from(storage.is_none());
        let tensor = Tensor {
            id: self.tensors,
            storage: storage.unwrap_or(own),
        };
        self.tensors += 1;
        self.alive.push(tensor);
        tensor
    }

    fn pick(&self, number: u32) -> Option<Tensor> {
        let alive = self.alive.len();
        // Every other one is among the latest three.
        let among = if number % 2 == 0 { alive.min(3) } else { alive };
        let back = (number / 2) as usize % among.max(1);
        self.alive.get(alive.checked_sub(back + 1)?).copied()
    }

    fn op(&mut self, draw: &Draw) {
        let picked: Vec<Tensor> = draw.picks.iter().filter_map(|&of| self.pick(of)).collect();
        let [a, b, c] = picked[..] else {
            let Tensor { id, .. } = self.make(None);
            return self.events.push(op(&[], &[(id, fresh(3))], draw.cost));
        };
        let (views, writes) = (self.has(Trait::Views), self.has(Trait::Writes));
        let several = self.has(Trait::SeveralResults);
        let [first, second] = draw.bytes.map(|bytes| (None, fresh(bytes)));
        let view = (Some(0), TraceOutputKind::Alias { of: 0 });
        let into = |of| (None, TraceOutputKind::InPlace { of });
        let (inputs, outputs) = match draw.kind {
            0..=3 if views => (vec![a], vec![view]),
            4 if views => (vec![a], vec![view, view]),
            5 if views => (vec![a, b], vec![view]),
            6 if views && several => (vec![a, b], vec![first, view]),
            7..=9 if writes => (vec![a, b], vec![into(0)]),
            10 if writes && several => (vec![a, b], vec![first, into(0)]),
            11 if writes && several && a.storage != b.storage => {
                (vec![a, b, c], vec![into(0), into(1)])
            }
            12..=15 if several => (vec![a, b], vec![first, second]),
            16..=21 => (vec![a], vec![first]),
            22..=27 => (vec![a, b], vec![first]),
            _ => (vec![a, b, c], vec![first]),
        };
        self.push(draw, &inputs, &outputs);
    }

    fn push(
        &mut self,
        draw: &Draw,
        inputs: &[Tensor],
        outputs: &[(Option<usize>, TraceOutputKind)],
    ) {
        let mut made = Vec::new();
        for &(viewed, kind) in outputs {
            let tensor = self.make(viewed.map(|of| inputs[of].storage));
            made.push(TraceOutput {
                tensor: tensor.id,
                kind,
            });
        }
        self.events.push(Event::Op {
            name: "op".into(),
            inputs: inputs.iter().map(|input| input.id).collect(),
            outputs: made,
            workspace: draw.workspace,
            workspace_device: 0,
            cost: draw.cost,
            replay: draw.picks[2] % 13 > 0,
        });
        for (_, kind) in outputs {
            if let TraceOutputKind::InPlace { of } = *kind {
                if !self.has(Trait::StaleReads) || draw.picks[2] % 2 == 0 {
                    let storage = inputs[of].storage;
                    self.release(|tensor| tensor.storage == storage);
                }
            }
        }
    }

    fn release(&mut self, gone: impl Fn(&Tensor) -> bool) {
        let gone: Vec<u64> = self
            .alive
            .iter()
            .filter(|&tensor| gone(tensor))
            .map(|tensor| tensor.id)
            .collect();
        self.alive.retain(|tensor| !gone.contains(&tensor.id));
        self.events.extend(gone.into_iter().map(release));
    }

    /// An event between two ops, or none.
    fn after(&mut self, (kind, pick): (u8, u32)) {
        let Some(Tensor { id, storage }) = self.pick(pick) else {
            return;
        };
        let requests = self.has(Trait::Requests);
        match kind {
            0..=2 => self.release(|tensor| tensor.id == id),
            3 => self.release(|tensor| tensor.storage == storage),
            4 if requests => self.events.push(Event::Pin { tensor: id }),
            5 | 6 if requests => self.events.push(Event::Ensure { tensors: vec![id] }),
            7 => {
                let retained = Event::Retain { tensor: id };
                self.events.extend([retained, release(id)]);
            }
            _ => {}
        }
    }

    /// Lets go of three tensors in four.
    fn finish(mut self, left: u64) -> Vec<Event> {
        let kept = |tensor: &Tensor| left >> (2 * tensor.id % 64) & 3 == 0;
        self.release(|tensor| !kept(tensor));
        self.events
    }
}
