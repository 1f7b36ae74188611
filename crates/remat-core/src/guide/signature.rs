//! Signatures of ops. Two ops of two steps are the same if they make results of the same sizes, of inputs that were
//! made as far back.

use super::places::Origin;
use crate::graph::Graph;
use crate::ids::{StorageId, TensorId};
use crate::op::{OpSpec, Output, Replay};
use crate::random::mix;

/// An input that was made so many ops ago, or fewer, is known by how many.
const NEAR: u64 = 64;

/// The op and the output that made each tensor, by the tensor's id.
#[derive(Default)]
pub(super) struct Origins {
    made: Vec<Maker>,
}

#[derive(Clone, Copy, Default)]
struct Maker {
    /// The number of the op, or 0.
    op: u64,
    output: u32,
    /// It left no record.
    unrecorded: bool,
}

/// The words by which an op is known.
#[derive(Clone, Copy, Default)]
pub(super) struct Signature {
    pub(super) whole: u64,
    /// Apart from where its inputs come from.
    pub(super) outputs: u64,
}

impl Origins {
    /// An op made these, which are constants if it left no record.
    pub(super) fn note(&mut self, op: u64, outputs: &[TensorId], unrecorded: bool) {
        for (output, tensor) in (0..).zip(outputs) {
            let maker = Maker {
                op,
                output,
                unrecorded,
            };
            self.set(*tensor, maker);
        }
    }

    /// No op made this one.
    pub(super) fn note_constant(&mut self, tensor: TensorId) {
        self.set(tensor, Maker::default());
    }

    /// Whether the results of an op are constants with a record too.
    pub(super) fn makes_constants(&self, graph: &Graph, spec: &OpSpec<'_>) -> bool {
        let is_constant =
            |tensor| graph[graph.storage_of(tensor)].pinned && !self.is_unrecorded(tensor);
        spec.replay == Replay::Forbidden || spec.overwritten().any(is_constant)
    }

    /// Whether an op without a record made this one.
    pub(super) fn is_unrecorded(&self, tensor: TensorId) -> bool {
        let maker = self.made.get(tensor.index());
        maker.is_some_and(|maker| maker.unrecorded)
    }

    /// Whoever made this one, it counts as a constant with a record from now on.
    pub(super) fn note_kept(&mut self, tensor: TensorId) {
        if let Some(maker) = self.made.get_mut(tensor.index()) {
            maker.unrecorded = false;
        }
    }

    /// An op without a record made this one.
    pub(super) fn note_unrecorded(&mut self, op: u64, output: u32, tensor: TensorId) {
        let maker = Maker {
            op,
            output,
            unrecorded: true,
        };
        self.set(tensor, maker);
    }

    fn set(&mut self, tensor: TensorId, maker: Maker) {
        let index = tensor.index();
        if self.made.len() <= index {
            self.made.resize(index + 1, Maker::default());
        }
        self.made[index] = maker;
    }

    /// The signature of the op of this number. Of constants, and of what was made long ago, the size alone counts: a
    /// step may read what was made before it, such as an epoch's order of examples.
    pub(super) fn signature(&self, graph: &Graph, number: u64, spec: &OpSpec<'_>) -> Signature {
        let mut words = Words(spec.inputs.len() as u64);
        for &input in spec.inputs {
            let storage = &graph[graph.storage_of(input)];
            let origin = self.made.get(input.index()).copied().unwrap_or_default();
            let constant = storage.pinned && !origin.unrecorded;
            if constant || origin.op == 0 || number - origin.op > NEAR {
                words.add(storage.bytes << 1 | 1);
            } else {
                words.add((number - origin.op) << 1);
                words.add(u64::from(origin.output));
            }
        }
        let mut made = Words(spec.inputs.len() as u64);
        let mut add = |word| {
            words.add(word);
            made.add(word);
        };
        for output in spec.outputs {
            match *output {
                Output::Fresh { bytes, device } => {
                    add(bytes.0 << 2);
                    add(u64::from(device.0));
                }
                Output::Alias { of } => add((of as u64) << 2 | 1),
                Output::InPlace { of } => add((of as u64) << 2 | 2),
            }
        }
        words.add(u64::from(spec.replay == Replay::Allowed));
        Signature {
            whole: mix(words.0),
            outputs: made.0,
        }
    }
}

/// Origins as a step sees them that begins.
#[derive(Clone, Copy)]
pub(super) struct OriginsAt<'a> {
    pub(super) origins: &'a Origins,
    /// The number of its first op.
    pub(super) first: u64,
    /// How many ops it has.
    pub(super) ops: u64,
}

impl OriginsAt<'_> {
    /// The origin of a storage that is there.
    pub(super) fn of(&self, graph: &Graph, storage: StorageId) -> Origin {
        let views = graph[storage].views.iter();
        let makers = views.filter_map(|view| self.origins.made.get(view.index()).copied());
        // Views are made later than what they view.
        let maker = makers.min_by_key(|maker| maker.op).unwrap_or_default();
        match (maker.op + self.ops).checked_sub(self.first) {
            Some(op) if maker.op > 0 => Origin::Made {
                op: op as u32,
                output: maker.output,
            },
            _ => Origin::Storage(storage),
        }
    }
}

/// A hash of words, one after the other.
struct Words(u64);

impl Words {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}
