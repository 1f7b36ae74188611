//! Validity and cost of a sequence, computed from table 1 of the paper alone. This file shares nothing with the
//! planners but the types of chains and operations.

use crate::chain::model::chain::Chain;
use crate::chain::model::error::Fault;
use crate::chain::model::sequence::{Action, Op};
use std::collections::BTreeSet;

/// The cost of a valid sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verified {
    /// Sum of the times of all operations, in the chain's unit (definition 3.2).
    pub makespan: f64,
    /// Highest memory, in bytes (definition 3.4).
    pub peak_bytes: u64,
}

/// A value that is stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    /// An activation by itself.
    Activation(usize),
    /// The saved set of a stage, its activation included.
    Saved(usize),
    Gradient(usize),
    /// Gradients of a stage's parameters, which stay.
    Parameters(usize),
}

struct Memory<'a> {
    chain: &'a Chain,
    stored: BTreeSet<Value>,
    bytes: u64,
    peak: u64,
}

impl<'a> Memory<'a> {
    /// The input, and the gradient of the last activation.
    fn at_start(chain: &'a Chain) -> Memory<'a> {
        let mut memory = Memory {
            chain,
            stored: BTreeSet::from([Value::Activation(0), Value::Gradient(chain.len())]),
            bytes: chain.activation(0) + chain.gradient(chain.len()),
            peak: 0,
        };
        memory.peak = memory.bytes;
        memory
    }

    fn size(&self, value: Value) -> u64 {
        match value {
            Value::Activation(l) => self.chain.activation(l),
            Value::Saved(l) => self.chain.stage(l).saved_bytes,
            Value::Gradient(l) => self.chain.gradient(l),
            Value::Parameters(l) => self.chain.stage(l).parameter_gradient_bytes,
        }
    }

    fn holds(&self, value: Value) -> bool {
        self.stored.contains(&value)
    }

    /// Makes a value beside all that is there, with so many bytes more while it is made.
    fn make(&mut self, value: Value, overhead: u64) -> Result<(), String> {
        if !self.stored.insert(value) {
            return Err("its result is there already".into());
        }
        self.bytes += self.size(value);
        self.peak = self.peak.max(self.bytes + overhead);
        Ok(())
    }

    fn drop(&mut self, value: Value) {
        if self.stored.remove(&value) {
            self.bytes -= self.size(value);
        }
    }

    /// Checks that the input of a stage is there, by itself or in the saved set of the stage before.
    fn reads_input(&self, l: usize) -> Result<(), String> {
        let within = l > 1 && self.holds(Value::Saved(l - 1));
        if within || self.holds(Value::Activation(l - 1)) {
            Ok(())
        } else {
            Err(format!("activation {} is not there", l - 1))
        }
    }

    /// Checks that the input of a stage is there by itself, so that it can be given up.
    fn gives_up_input(&self, l: usize) -> Result<(), String> {
        self.reads_input(l)?;
        if self.holds(Value::Activation(l - 1)) {
            return Ok(());
        }
        Err(format!(
            "activation {} is part of a saved set and cannot be given up; Fck or Fall leave it",
            l - 1
        ))
    }

    fn perform(&mut self, op: Op) -> Result<(), String> {
        let l = op.stage;
        let stage = self.chain.stage(l);
        let overhead = stage.forward_overhead_bytes;
        let saving = stage.saving_overhead_bytes.unwrap_or(overhead);
        match op.action {
            Action::ForwardNone => {
                self.gives_up_input(l)?;
                self.make(Value::Activation(l), overhead)?;
                self.drop(Value::Activation(l - 1));
            }
            Action::ForwardCheckpoint => {
                self.reads_input(l)?;
                self.make(Value::Activation(l), overhead)?;
            }
            Action::ForwardAll => {
                self.reads_input(l)?;
                self.make(Value::Saved(l), saving)?;
            }
            Action::ForwardSave => {
                self.gives_up_input(l)?;
                self.make(Value::Saved(l), saving)?;
                self.drop(Value::Activation(l - 1));
            }
            Action::Backward => self.perform_backward(l)?,
        }
        Ok(())
    }

    fn perform_backward(&mut self, l: usize) -> Result<(), String> {
        let stage = self.chain.stage(l);
        if !self.holds(Value::Gradient(l)) {
            return Err(format!("gradient {l} is not there"));
        }
        if !self.holds(Value::Saved(l)) {
            return Err(format!("the saved set of stage {l} is not there"));
        }
        self.reads_input(l)?;
        self.bytes -= stage.released_bytes;
        self.make(Value::Parameters(l), 0)?;
        self.make(Value::Gradient(l - 1), stage.backward_overhead_bytes)?;
        self.bytes += stage.released_bytes; // goes with the rest of the saved set
        self.drop(Value::Gradient(l));
        self.drop(Value::Saved(l));
        self.drop(Value::Activation(l - 1));
        Ok(())
    }
}

/// Performs a sequence on paper and checks that every operation has its inputs (table 1), and that the gradient of
/// the input is there in the end.
///
/// Takes time `O(k log n)` for `k` operations on `n` stages.
///
/// ```
/// use remat_plan::chain::{verify, Action, Chain, Op};
///
/// let stage = r#"{"forward_time": 1, "backward_time": 2, "activation_bytes": 1, "saved_bytes": 3}"#;
/// let chain: Chain = format!(r#"{{"input_bytes": 1, "stages": [{stage}]}}"#).parse()?;
/// let mut ops = vec![Op { action: Action::ForwardAll, stage: 1 }, Op { action: Action::Backward, stage: 1 }];
/// let verified = verify(&chain, &ops)?;
/// assert_eq!((verified.makespan, verified.peak_bytes), (3.0, 6)); // the input, the saved set, two gradients
/// ops.remove(0);
/// let fault = verify(&chain, &ops).unwrap_err().to_string();
/// assert_eq!(fault, "operation 1 (B1): the saved set of stage 1 is not there");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn verify(chain: &Chain, sequence: &[Op]) -> Result<Verified, Fault> {
    let mut memory = Memory::at_start(chain);
    let mut makespan = 0.0;
    for (index, &op) in sequence.iter().enumerate() {
        let fault = |reason| Fault {
            position: index + 1,
            op: Some(op),
            reason,
        };
        if !(1..=chain.len()).contains(&op.stage) {
            let stages = chain.len();
            return Err(fault(format!("the chain has stages 1 to {stages}")));
        }
        memory.perform(op).map_err(fault)?;
        let stage = chain.stage(op.stage);
        makespan += match op.action {
            Action::Backward => stage.backward_time,
            _ => stage.forward_time,
        };
    }
    if !memory.holds(Value::Gradient(0)) {
        return Err(Fault {
            position: sequence.len() + 1,
            op: None,
            reason: "the gradient of the input is not there".into(),
        });
    }
    Ok(Verified {
        makespan,
        peak_bytes: memory.peak,
    })
}
