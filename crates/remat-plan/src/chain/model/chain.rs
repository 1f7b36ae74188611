//! Chains of stages.

use crate::chain::model::error::ChainError;
use serde::{Deserialize, Serialize};

/// One stage of a chain: the time and the bytes of its forward and backward operation (the columns of the paper's
/// table 2).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// For people; empty if it has no name.
    #[serde(default)]
    pub name: String,
    /// `u_f`: time of the forward operation, in any unit used throughout.
    pub forward_time: f64,
    /// `u_b`: time of the backward operation, in the same unit.
    pub backward_time: f64,
    /// `w_a`: bytes of the stage's output.
    pub activation_bytes: u64,
    /// `w_abar`: bytes of the saved set, which the stage's backward operation needs: its output and the values
    /// computed on the way there, but not its input.
    pub saved_bytes: u64,
    /// `w_delta`: bytes of the gradient of the stage's output; as many as the output has if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradient_bytes: Option<u64>,
    /// `o_f`: bytes that the forward operation needs beside its input and output while it runs.
    #[serde(default)]
    pub forward_overhead_bytes: u64,
    /// `o_b`: bytes that the backward operation needs beside its inputs and output while it runs.
    #[serde(default)]
    pub backward_overhead_bytes: u64,
    /// Beyond the paper: `o_f` where the saved set is kept, if that differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saving_overhead_bytes: Option<u64>,
    /// Beyond the paper: bytes of the saved set that only later stages need, as an output that the stage's own
    /// backward operation does not read. They are gone when that operation runs. Persistent and floating plans stay
    /// optimal in their class with such bytes; free plans do not always.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub released_bytes: u64,
    /// Beyond the paper: bytes that the backward operation takes while it runs, gradients of output and input among
    /// them, beside the saved set less what was released; these gradients and `o_b` if not given. It may be less than
    /// both gradients where one is written over the other. Read by [`peak_of_run`](crate::chain::peak_of_run) only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backward_bytes: Option<u64>,
    /// Beyond the paper: bytes that the backward operation leaves behind for good, the gradients of the stage's
    /// parameters.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub parameter_gradient_bytes: u64,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// The time of both operations of a stage.
fn checked_time(stage: &Stage, number: usize) -> Result<f64, ChainError> {
    let mut time = 0.0;
    for (field, value) in [
        ("forward_time", stage.forward_time),
        ("backward_time", stage.backward_time),
    ] {
        if !(0.0..=MOST_TIME).contains(&value) {
            return Err(ChainError::Time {
                stage: number,
                field,
                value,
            });
        }
        time += value;
    }
    Ok(time)
}

impl Stage {
    /// The sum of its sizes; released bytes are part of the saved set.
    fn all_bytes(&self) -> u128 {
        let parts = [
            self.activation_bytes,
            self.saved_bytes,
            self.gradient_bytes.unwrap_or(self.activation_bytes),
            self.forward_overhead_bytes,
            self.backward_overhead_bytes,
            self.saving_overhead(),
            self.backward_bytes.unwrap_or(0),
            self.parameter_gradient_bytes,
        ];
        parts.into_iter().map(u128::from).sum()
    }

    /// `o_f` where the saved set is kept.
    pub fn saving_overhead(&self) -> u64 {
        self.saving_overhead_bytes
            .unwrap_or(self.forward_overhead_bytes)
    }
}

/// A chain as it is written down, not validated yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// `w_a[0]`: bytes of the input of the first stage.
    pub input_bytes: u64,
    /// Bytes of the gradient of that input; as many as the input has if not given, 0 if it is not wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_gradient_bytes: Option<u64>,
    /// The stages in order; the last one is the loss.
    pub stages: Vec<Stage>,
    /// Anything; not read.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub about: serde_json::Value,
}

/// A chain whose numbers add up: stages 1 to `len()`, activations 0 (the input) to `len()`.
///
/// ```
/// use remat_plan::chain::Chain;
///
/// let chain: Chain = r#"{"input_bytes": 4, "stages": [
///     {"forward_time": 1, "backward_time": 2, "activation_bytes": 4, "saved_bytes": 8},
///     {"forward_time": 0.5, "backward_time": 0.5, "activation_bytes": 1, "saved_bytes": 1}
/// ]}"#.parse()?;
/// assert_eq!(chain.len(), 2);
/// assert_eq!(chain.unconstrained_time(), 4.0);
/// # Ok::<(), remat_plan::chain::ChainError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    description: Description,
    /// By stage from 0 on: [`Chain::left_after`].
    left: Vec<u64>,
}

/// Sums of bytes stay below this.
const MOST_BYTES: u64 = i64::MAX as u64;
/// Sums of times stay below this, so that no plan's makespan overflows.
const MOST_TIME: f64 = 1e200;

impl Chain {
    /// Validates a chain. Stages are numbered from 1 in errors.
    pub fn new(description: Description) -> Result<Chain, ChainError> {
        if description.stages.is_empty() {
            return Err(ChainError::Empty);
        }
        let gradient = description
            .input_gradient_bytes
            .unwrap_or(description.input_bytes);
        let mut bytes = u128::from(description.input_bytes) + u128::from(gradient);
        let mut time = 0.0;
        for (stage, number) in description.stages.iter().zip(1..) {
            time += checked_time(stage, number)?;
            bytes += stage.all_bytes();
            if stage.released_bytes > stage.saved_bytes {
                return Err(ChainError::Released {
                    stage: number,
                    released: stage.released_bytes,
                    saved: stage.saved_bytes,
                });
            }
        }
        if bytes > u128::from(MOST_BYTES) {
            return Err(ChainError::Bytes { sum: bytes });
        }
        if time > MOST_TIME {
            return Err(ChainError::Times { sum: time });
        }
        let mut left = vec![0; description.stages.len() + 1];
        for (index, stage) in description.stages.iter().enumerate().rev() {
            left[index] = left[index + 1] + stage.parameter_gradient_bytes;
        }
        Ok(Chain { description, left })
    }

    /// Number of stages, the loss included.
    #[allow(clippy::len_without_is_empty)] // A chain has a stage.
    pub fn len(&self) -> usize {
        self.description.stages.len()
    }

    /// Stage `l`, from 1 on.
    ///
    /// # Panics
    /// If there is no such stage.
    pub fn stage(&self, l: usize) -> &Stage {
        &self.description.stages[l - 1]
    }

    /// All stages, the first at 0.
    pub fn stages(&self) -> &[Stage] {
        &self.description.stages
    }

    /// `w_a[l]`: bytes of activation `l`, of which 0 is the input.
    pub fn activation(&self, l: usize) -> u64 {
        match l {
            0 => self.description.input_bytes,
            _ => self.stage(l).activation_bytes,
        }
    }

    /// `w_delta[l]`: bytes of the gradient of activation `l`.
    pub fn gradient(&self, l: usize) -> u64 {
        let given = match l {
            0 => self.description.input_gradient_bytes,
            _ => self.stage(l).gradient_bytes,
        };
        given.unwrap_or_else(|| self.activation(l))
    }

    /// Bytes that the backward operations of the stages after `l` have left behind: gradients of their parameters.
    pub(crate) fn left_after(&self, l: usize) -> u64 {
        self.left[l]
    }

    /// Bytes beside activations and saved sets when the backward operation of stage `l` is the next one: the gradient
    /// of its output, and gradients of parameters.
    pub(crate) fn beside(&self, l: usize) -> u64 {
        self.gradient(l) + self.left_after(l)
    }

    /// Bytes that the backward operation of stage `l` takes beside activations and the saved set while it runs, and
    /// the bytes of the saved set that are gone then.
    pub(crate) fn backward_bytes(&self, l: usize) -> (u64, u64) {
        let stage = self.stage(l);
        let taken = self.gradient(l) + self.left_after(l - 1) + self.gradient(l - 1);
        (taken + stage.backward_overhead_bytes, stage.released_bytes)
    }

    /// Time of every forward and backward operation once: the makespan when memory is no matter.
    pub fn unconstrained_time(&self) -> f64 {
        let once = |stage: &Stage| stage.forward_time + stage.backward_time;
        self.stages().iter().map(once).sum()
    }

    /// The shortest time of a forward operation that is not 0; 1 if there is none.
    pub(crate) fn shortest_forward_time(&self) -> f64 {
        let times = self.stages().iter().map(|stage| stage.forward_time);
        let least = times.filter(|&time| time > 0.0).reduce(f64::min);
        least.unwrap_or(1.0)
    }

    /// The chain as it was written down.
    pub fn description(&self) -> &Description {
        &self.description
    }
}

impl std::str::FromStr for Chain {
    type Err = ChainError;

    /// Reads CHAIN.json.
    fn from_str(json: &str) -> Result<Chain, ChainError> {
        let description =
            serde_json::from_str(json).map_err(|error| ChainError::Json(error.to_string()))?;
        Chain::new(description)
    }
}
