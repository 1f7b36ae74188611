//! A check that each event can follow those before it.

use crate::{Event, TraceOutput, TraceOutputKind};
use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
use std::fmt;

/// The largest single size or cost, 2^53. A double holds it exactly, so that every JSON reader reads the same number.
pub const LARGEST_NUMBER: u64 = 1 << 53;

/// The largest sum of all sizes, and of all costs, 2^62. The engine counts in 63 bits.
pub const LARGEST_SUM: u64 = 1 << 62;

/// Checks a sequence of events, one by one, as they come.
///
/// ```
/// use remat_trace::{Event, Validator};
///
/// let mut validator = Validator::new(1000);
/// assert!(validator.check(&Event::Constant { tensor: 1, bytes: 64, device: 0 }).is_ok());
/// assert!(validator.check(&Event::Release { tensor: 1 }).is_ok());
/// let violation = validator.check(&Event::Release { tensor: 1 }).unwrap_err();
/// assert_eq!(violation.to_string(), "tensor 1 is used after its last reference was released");
/// ```
#[derive(Debug)]
pub struct Validator {
    most_tensors: usize,
    tensors: HashMap<u64, Known>,
    storages: u32,
    bytes: u64,
    cost: u64,
}

/// A defined tensor. The validator remembers it after its last release, because ids are never used twice.
#[derive(Clone, Copy, Debug)]
struct Known {
    references: u32,
    storage: u32,
}

impl Validator {
    /// A validator that has seen no event. A trace with more than `most_tensors` ids violates its limit, which bounds
    /// its memory.
    pub fn new(most_tensors: usize) -> Self {
        Validator {
            most_tensors,
            tensors: HashMap::new(),
            storages: 0,
            bytes: 0,
            cost: 0,
        }
    }

    /// Checks the next event.
    ///
    /// # Errors
    /// The first contradiction found. After an error the validator's answers have no meaning.
    pub fn check(&mut self, event: &Event) -> Result<(), Violation> {
        match event {
            Event::Constant { tensor, bytes, .. } => {
                let storage = self.new_storage(*bytes)?;
                self.define(*tensor, storage)
            }
            Event::Op {
                inputs,
                outputs,
                workspace,
                cost,
                ..
            } => {
                check_number("a workspace", *workspace)?;
                check_number("a cost", *cost)?;
                self.cost = sum("costs", self.cost, *cost)?;
                self.check_op(inputs, outputs)
            }
            Event::Retain { tensor } => {
                let known = self.alive(*tensor)?;
                known.references = known
                    .references
                    .checked_add(1)
                    .ok_or(Violation::TooManyReferences(*tensor))?;
                Ok(())
            }
            Event::Release { tensor } => {
                self.alive(*tensor)?.references -= 1;
                Ok(())
            }
            Event::Pin { tensor } => self.alive(*tensor).map(drop),
            Event::Ensure { tensors } => tensors
                .iter()
                .try_for_each(|&tensor| self.alive(tensor).map(drop)),
            // A plan that contradicts itself is not read.
            Event::Mark { .. } | Event::Plan(_) => Ok(()),
        }
    }

    fn check_op(&mut self, inputs: &[u64], outputs: &[TraceOutput]) -> Result<(), Violation> {
        for &input in inputs {
            self.alive(input)?;
        }
        let mut written = HashSet::new();
        for output in outputs {
            let storage = match output.kind {
                TraceOutputKind::Fresh { bytes, .. } => self.new_storage(bytes)?,
                TraceOutputKind::Alias { of } => self.viewed(output.tensor, of, inputs)?,
                TraceOutputKind::InPlace { of } => {
                    let storage = self.viewed(output.tensor, of, inputs)?;
                    if !written.insert(storage) {
                        return Err(Violation::WrittenTwice(inputs[of]));
                    }
                    self.new_storage(0)?
                }
            };
            self.define(output.tensor, storage)?;
        }
        Ok(())
    }

    fn define(&mut self, tensor: u64, storage: u32) -> Result<(), Violation> {
        check_number("a tensor id", tensor)?;
        if self.tensors.len() >= self.most_tensors {
            return Err(Violation::TooManyTensors(self.most_tensors));
        }
        match self.tensors.entry(tensor) {
            Entry::Occupied(_) => Err(Violation::DefinedTwice(tensor)),
            Entry::Vacant(entry) => {
                entry.insert(Known {
                    references: 1,
                    storage,
                });
                Ok(())
            }
        }
    }

    fn new_storage(&mut self, bytes: u64) -> Result<u32, Violation> {
        check_number("a size", bytes)?;
        self.bytes = sum("sizes", self.bytes, bytes)?;
        self.storages = self
            .storages
            .checked_add(1)
            .ok_or(Violation::TooManyTensors(self.most_tensors))?;
        Ok(self.storages)
    }

    fn alive(&mut self, tensor: u64) -> Result<&mut Known, Violation> {
        match self.tensors.get_mut(&tensor) {
            None => Err(Violation::Unknown(tensor)),
            Some(known) if known.references == 0 => Err(Violation::Released(tensor)),
            Some(known) => Ok(known),
        }
    }

    fn viewed(&mut self, output: u64, of: usize, inputs: &[u64]) -> Result<u32, Violation> {
        let input = inputs.get(of).ok_or(Violation::NoSuchInput {
            output,
            of,
            inputs: inputs.len(),
        })?;
        Ok(self.alive(*input)?.storage)
    }
}

fn check_number(what: &'static str, value: u64) -> Result<(), Violation> {
    if value <= LARGEST_NUMBER {
        Ok(())
    } else {
        Err(Violation::NumberTooLarge { what, value })
    }
}

fn sum(what: &'static str, so_far: u64, value: u64) -> Result<u64, Violation> {
    // Neither is above 2^62: the sum fits.
    let sum = so_far + value;
    if sum <= LARGEST_SUM {
        Ok(sum)
    } else {
        Err(Violation::SumTooLarge(what))
    }
}

/// A contradiction between an event and those before it, or a limit that it exceeds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The tensor was not defined by an earlier event.
    Unknown(u64),
    /// The tensor has no reference any more.
    Released(u64),
    /// An id is given to a second tensor.
    DefinedTwice(u64),
    /// A view of an input that the op does not have.
    NoSuchInput {
        /// The tensor that would be the view.
        output: u64,
        /// The index asked for.
        of: usize,
        /// How many inputs there are.
        inputs: usize,
    },
    /// Two outputs are written into the storage that this input views.
    WrittenTwice(u64),
    /// A size, cost or id is above [`LARGEST_NUMBER`].
    NumberTooLarge {
        /// The quantity that the number states.
        what: &'static str,
        /// The number.
        value: u64,
    },
    /// All sizes, or all costs, together are above [`LARGEST_SUM`].
    SumTooLarge(&'static str),
    /// More references than 32 bits count.
    TooManyReferences(u64),
    /// More tensors than the limit.
    TooManyTensors(usize),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Unknown(tensor) => write!(
                f,
                "tensor {tensor} is used but not defined by any line before"
            ),
            Violation::Released(tensor) => write!(
                f,
                "tensor {tensor} is used after its last reference was released"
            ),
            Violation::DefinedTwice(tensor) => {
                write!(
                    f,
                    "tensor {tensor} is defined a second time; ids are unique for the whole trace"
                )
            }
            Violation::NoSuchInput { output, of, inputs } => {
                write!(
                    f,
                    "tensor {output} is made of input {of} (counted from 0), but the op has {inputs} inputs"
                )
            }
            Violation::WrittenTwice(tensor) => write!(
                f,
                "two outputs are written into the storage of tensor {tensor}"
            ),
            Violation::NumberTooLarge { what, value } => {
                write!(f, "{what} of {value} is above 2^53")
            }
            Violation::SumTooLarge(what) => {
                write!(f, "the {what} of the trace add up to more than 2^62")
            }
            Violation::TooManyReferences(tensor) => {
                write!(f, "tensor {tensor} has more than 2^32 references")
            }
            Violation::TooManyTensors(most) => write!(
                f,
                "there are more than {most} tensors, the limit of this reader"
            ),
        }
    }
}

impl std::error::Error for Violation {}
