//! GRAPH.json: a joint graph as it is written down, not validated yet.

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;

/// Values that each of several kernels may read in place of one, if the description does not say: Inductor's
/// `realize_reads_threshold`.
pub(crate) const SHARED_READS: u32 = 4;
/// The most of them that a description may name.
pub(crate) const MOST_SHARED_READS: u32 = 64;

/// A joint graph as it is written down (section 3.2 of the paper): the forward pass and its backward pass, one graph
/// of values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Values and the ops that make them, best in the order in which they would run; in any order if need be.
    pub nodes: Vec<Node>,
    /// Names of what the forward pass is given: parameters, buffers, data.
    pub inputs: Vec<String>,
    /// Names of what the backward pass is given: the gradients of the forward outputs.
    pub tangents: Vec<String>,
    /// Names of what the forward pass returns.
    pub forward_outputs: Vec<String>,
    /// Names of what the backward pass returns.
    pub backward_outputs: Vec<String>,
    /// Values that each of several kernels may read in place of one: a compiler writes a value that is computed from
    /// more and read by kernels that cannot be one. 4 if not given, as Inductor's `realize_reads_threshold` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_reads: Option<u32>,
    /// Bans beside those of the paper.
    #[serde(default, skip_serializing_if = "FusionRules::are_off")]
    pub fusion_rules: FusionRules,
    /// Anything; it is not read.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub about: serde_json::Value,
}

/// Bans that follow from which ops fuse, of ops that are cheap each by itself. They are those of PyTorch's
/// partitioner and have the names of its switches; all are off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FusionRules {
    /// Bans a value that an op outside of the forward pass reads, directly or as a view, with which it cannot be one
    /// kernel.
    pub materialized_backward: bool,
    /// Bans an op that reads a value after an op that cannot be fused with what read the value before: it would be in
    /// another kernel.
    pub used_far_apart: bool,
    /// Bans the last of every hundred ops of a chain that could all be recomputed at once.
    pub long_fusible_chains: bool,
}

impl FusionRules {
    fn are_off(&self) -> bool {
        *self == FusionRules::default()
    }

    /// At least one of the rules applies.
    pub(crate) fn are_on(&self) -> bool {
        !self.are_off()
    }
}

/// A value and the op that makes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Different from all others.
    pub name: String,
    /// Bytes of the value, which saving it takes; 0 for numbers that are no tensors, for empty tensors and for tuples.
    pub bytes: Quantity,
    /// Names of the values that the op reads; what is named twice counts once.
    #[serde(default)]
    pub inputs: Vec<String>,
    /// For people, but for two names: `placeholder` must be among the inputs or tangents, and a `getitem` whose one
    /// input is not savable is a result of that op, made when the op runs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub op: String,
    /// It can be part of a kernel with others: two ops fuse if both can.
    #[serde(default)]
    pub fusible: bool,
    /// Recomputing it takes long: products of matrices, convolutions, attention.
    #[serde(default)]
    pub compute_bound: bool,
    /// Running it again gives something else.
    #[serde(default)]
    pub random: bool,
    /// It may be much smaller than what it reads. With `operand_bytes` and `result_bytes` it counts as a reduction
    /// only if it is smaller than a quarter by these.
    #[serde(default)]
    pub reduction: bool,
    /// Bytes that the op reads, where that is not the sum of the `bytes` of its inputs: parameters may be free to save.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operand_bytes: Option<Quantity>,
    /// Bytes that the op makes, where that is not its `bytes`: tuples cannot be saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<Quantity>,
    /// Whether the forward pass runs it for the sake of its outputs, if the caller knows; by itself it is what these
    /// are computed from. Read by [`FusionRules`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<bool>,
    /// Running it again costs nothing or was asked for, as of views, sizes and items of tuples: no [`FusionRules`]
    /// ban it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub free: bool,
    /// It can be one kernel with whatever it reads, as a concatenation can. Read by [`FusionRules`].
    #[serde(default, skip_serializing_if = "is_false")]
    pub fuses_as_reader: bool,
    /// Nanoseconds that the op takes by itself; read by plans within a budget.
    #[serde(default)]
    pub cost: Quantity,
    /// Whether the backward pass can be handed the value: a tuple cannot be saved, its items can.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub savable: bool,
    /// Whether the op may be run again as far as the caller is concerned.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub recomputable: bool,
    /// Whether kernels write the value where it is neither saved nor an output, and no view, if the caller knows; by
    /// itself a value is left in kernels where its op is fusible, no reduction, and all that read it are fusible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<bool>,
    /// Computing it in several kernels takes longer than writing it once, as compilers for processors hold of
    /// exponentials: inside kernels only where those that read it can be one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub heavy: bool,
    /// Bytes that the op takes beside its inputs and results while it runs; read by plans within a budget.
    #[serde(default, skip_serializing_if = "Quantity::is_zero")]
    pub workspace: Quantity,
    /// Name of the input whose memory the value shares, if it has none of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view_of: Option<String>,
    /// Number of the fusion group that the op is in; read by [`crate::cut::between_groups`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
}

impl Node {
    /// A value that can be saved, made by an op that can be run again and fuses with nothing.
    pub fn new(name: &str, bytes: u64, inputs: &[&str]) -> Node {
        Node {
            name: name.into(),
            bytes: Quantity::Whole(bytes),
            inputs: inputs.iter().map(|&input| input.into()).collect(),
            op: String::new(),
            fusible: false,
            compute_bound: false,
            random: false,
            reduction: false,
            operand_bytes: None,
            result_bytes: None,
            forward: None,
            free: false,
            fuses_as_reader: false,
            cost: Quantity::Whole(0),
            savable: true,
            recomputable: true,
            written: None,
            heavy: false,
            workspace: Quantity::Whole(0),
            view_of: None,
            group: None,
        }
    }
}

fn yes() -> bool {
    true
}

fn is_true(value: &bool) -> bool {
    *value
}

fn is_false(value: &bool) -> bool {
    !value
}

/// A number that should be whole and not negative; kept as it was given, so that the error can name the node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantity {
    /// As it should be.
    Whole(u64),
    /// Negative, a fraction, or more than 64 bits hold.
    Other(f64),
}

impl Quantity {
    fn is_zero(&self) -> bool {
        *self == Quantity::Whole(0)
    }
}

impl Default for Quantity {
    fn default() -> Quantity {
        Quantity::Whole(0)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Quantity::Whole(value) => value.fmt(f),
            Quantity::Other(value) => value.fmt(f),
        }
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Quantity::Whole(value) => serializer.serialize_u64(value),
            Quantity::Other(value) => serializer.serialize_f64(value),
        }
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Quantity, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number")
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Quantity, E> {
                Ok(Quantity::Whole(value))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Quantity, E> {
                Ok(u64::try_from(value).map_or(Quantity::Other(value as f64), Quantity::Whole))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Quantity, E> {
                Ok(Quantity::Other(value))
            }
        }
        deserializer.deserialize_any(Any)
    }
}
