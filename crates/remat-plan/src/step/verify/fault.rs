//! Findings of a check, and faults of plans.

use crate::step::plan::step_plan::Action;
use std::fmt;

/// The memory and time of a valid plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The most bytes of device 0 in memory at a time.
    pub peak_bytes: u64,
    /// Nanoseconds of all first runs.
    pub cost_ns: u64,
    /// Nanoseconds of all runs again, those of views included.
    pub recompute_ns: u64,
    /// Ops that ran, constants included.
    pub ops: u64,
    /// Runs again.
    pub reruns: u64,
    /// Storages dropped.
    pub frees: u64,
}

/// Why a plan is not valid, or not as it claims.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// An event of the recording contradicts those before it.
    Event {
        /// The index of the event.
        event: usize,
        /// The contradiction.
        fault: &'static str,
    },
    /// The plan is of a version that this code does not know.
    Version(u32),
    /// The plan's blocks are too large to be given addresses of 64 bits.
    TooLarge,
    /// The alignment of addresses is no power of two.
    Alignment(u64),
    /// A number of the plan is not what was found.
    Claim {
        /// The field of the plan.
        field: &'static str,
        /// The number there.
        said: u64,
        /// The number found.
        found: u128,
    },
    /// The plan takes more bytes than its budget.
    AboveBudget {
        /// The most bytes in memory at a time.
        peak: u64,
        /// The budget, in bytes.
        budget: u64,
    },
    /// The bound is above the time of the plan itself.
    BoundAbovePlan {
        /// The bound, in nanoseconds.
        bound: u64,
        /// First runs and runs again, in nanoseconds.
        total: u128,
    },
    /// A step cannot be taken.
    Step {
        /// The index of the step.
        step: usize,
        /// The step.
        action: Action,
        /// The reason.
        reason: Reason,
    },
    /// The plan ends too early.
    End(Reason),
}

/// Why a step cannot be taken, or a plan cannot end. Ops and storages are numbered as in [`Action`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The recording has only so many ops.
    NoSuchOp(usize),
    /// The recording has only so many storages.
    NoSuchStorage(usize),
    /// The op's first run would come before that of this op.
    NotYet(usize),
    /// This op never runs.
    NeverRan(usize),
    /// A constant, or an op that must not be replayed, would run again.
    RunsOnce,
    /// The op is to write in place, and has no output that does.
    WritesNothing,
    /// The op is to take a block for this storage, which is in memory already.
    Present(usize),
    /// This storage is not in memory.
    Absent(usize),
    /// A constant is to be dropped.
    Constant(usize),
    /// This storage is pinned, and is to be dropped or overwritten.
    Pinned(usize),
    /// A tensor is not defined that the op reads.
    Reads(Undefined),
    /// A tensor is not defined that is pinned before the next first run.
    PinAsks(Undefined),
    /// A tensor was not defined at any time between two first runs, where the recording reads it outside ops.
    EnsureAsks(Undefined),
    /// A tensor is not defined at the end, though the recording still refers to it.
    EndAsks(Undefined),
    /// The block of this number, from 0 in the order in which the plan takes them, has no address.
    NoAddress(usize),
    /// The address of this block is no multiple of the alignment.
    NotAligned(usize),
    /// This block ends beyond the arena.
    BeyondTheArena(usize),
    /// This block overlaps another one that is in use.
    Overlaps(usize),
    /// There is an address for this block, which the plan does not take.
    NoSuchBlock(usize),
}

/// A tensor that is not defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undefined {
    /// Its storage.
    pub storage: usize,
    /// The op that makes this view of the storage; `None` if the storage itself is not in memory.
    pub view: Option<usize>,
}

impl fmt::Display for Undefined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let storage = self.storage;
        match self.view {
            None => write!(f, "storage {storage}, which is not in memory"),
            Some(op) => write!(
                f,
                "a view of storage {storage}; op {op} makes it, and did not run since the storage came into memory"
            ),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NoSuchOp(ops) => write!(f, "the recording has {ops} ops, from 0"),
            Reason::NoSuchStorage(storages) => {
                write!(f, "the recording has {storages} storages, from 0")
            }
            Reason::NotYet(next) => write!(
                f,
                "op {next} must run first; first runs are in program order"
            ),
            Reason::NeverRan(op) => write!(f, "op {op} never ran"),
            Reason::RunsOnce => f.write_str("it is a constant or an op that must not run again"),
            Reason::WritesNothing => f.write_str("the op writes nothing in place"),
            Reason::Present(storage) => write!(
                f,
                "storage {storage} is in memory already, and needs no other block"
            ),
            Reason::Absent(storage) => write!(f, "storage {storage} is not in memory"),
            Reason::Constant(storage) => write!(f, "storage {storage} is a constant, which stays"),
            Reason::Pinned(storage) => write!(f, "storage {storage} is pinned and must stay"),
            Reason::Reads(tensor) => write!(f, "the op reads {tensor}"),
            Reason::PinAsks(tensor) => write!(f, "the recording pins {tensor}"),
            Reason::EnsureAsks(tensor) => write!(f, "the recording reads, outside ops, {tensor}"),
            Reason::EndAsks(tensor) => write!(f, "the recording still refers to {tensor}"),
            Reason::NoAddress(block) => write!(f, "block {block} has no address"),
            Reason::NotAligned(block) => {
                write!(
                    f,
                    "the address of block {block} is no multiple of the alignment"
                )
            }
            Reason::BeyondTheArena(block) => write!(f, "block {block} ends beyond the arena"),
            Reason::Overlaps(block) => write!(f, "block {block} overlaps another one in use"),
            Reason::NoSuchBlock(block) => {
                write!(
                    f,
                    "block {block} has an address, and the plan takes no such block"
                )
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Event { event, fault } => {
                write!(
                    f,
                    "event {event} of the recording {fault}; check it with `remat trace check`"
                )
            }
            Fault::Version(version) => write!(
                f,
                "it is a plan of version {version}, known is version {}; plan the step anew",
                crate::step::plan::step_plan::PLAN_VERSION
            ),
            Fault::TooLarge => f.write_str(
                "its blocks have more than 2^62 bytes together, too many to be given addresses",
            ),
            Fault::Alignment(alignment) => write!(
                f,
                "an alignment of {alignment} bytes is no power of two; 64 is usual"
            ),
            Fault::Claim { field, said, found } => {
                write!(f, "it says {field} {said}, found is {found}")
            }
            Fault::AboveBudget { peak, budget } => {
                write!(
                    f,
                    "its peak of {peak} bytes is above its budget of {budget}"
                )
            }
            Fault::BoundAbovePlan { bound, total } => {
                write!(f, "it says bound_ns {bound}, and takes {total} itself")
            }
            Fault::Step {
                step,
                action,
                reason,
            } => match action {
                Action::Run(op) => write!(f, "step {step} ([\"run\", {op}]): {reason}"),
                Action::RunInPlace(op) => {
                    write!(f, "step {step} ([\"run\", {op}, \"in place\"]): {reason}")
                }
                Action::Free(storage) => write!(f, "step {step} ([\"free\", {storage}]): {reason}"),
            },
            Fault::End(reason) => write!(f, "at the end of the plan: {reason}"),
        }
    }
}

impl std::error::Error for Fault {}
