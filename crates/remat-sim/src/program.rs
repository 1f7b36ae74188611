//! A recorded step, ready to be replayed many times.

use crate::attention::NoAttention;
use crate::recorded::Recorded;
use crate::selective::Drops;
use remat_core::Bytes;
use remat_trace::{Event, Format, TraceError};
use std::path::Path;
use std::sync::OnceLock;

/// A recorded step in flat vectors: parsed once, replayed without a copy.
#[derive(Clone, Debug, Default)]
pub struct Program {
    recorded: Recorded,
    /// The step with its attention dropped and recomputed; made at the first use.
    drops: OnceLock<Result<Drops, NoAttention>>,
}

impl From<Recorded> for Program {
    fn from(recorded: Recorded) -> Program {
        Program {
            recorded,
            drops: OnceLock::new(),
        }
    }
}

impl Program {
    /// Reads a trace or log, plain or packed (gzip, zstd); `-` is standard input.
    ///
    /// # Errors
    /// Errors of [`remat_trace::open`] and its reader, with file and line.
    pub fn open(path: impl AsRef<Path>) -> Result<Program, TraceError> {
        let reader = remat_trace::open(path)?.with_mutations_in_place();
        Program::read_as(reader.format(), reader)
    }

    /// Takes in a reader's events.
    ///
    /// # Errors
    /// The first error that the reader gives.
    pub fn read<E>(events: impl IntoIterator<Item = Result<Event, E>>) -> Result<Program, E> {
        Program::read_as(Format::Remat, events)
    }

    /// [`read`](Program::read) for a step recorded in `format`. In a DTR log mutations write into copies, even where
    /// [`with_mutations_in_place`](remat_trace::TraceReader::with_mutations_in_place) reads them otherwise.
    ///
    /// # Errors
    /// The first error that the reader gives.
    pub fn read_as<E>(
        format: Format,
        events: impl IntoIterator<Item = Result<Event, E>>,
    ) -> Result<Program, E> {
        Recorded::read(format, events).map(Program::from)
    }

    /// The number of events; remarks do not count.
    pub fn len(&self) -> usize {
        self.recorded.instructions.len()
    }

    /// Whether the step has no event.
    pub fn is_empty(&self) -> bool {
        self.recorded.instructions.is_empty()
    }

    /// Whether the recorded run adopted a plan ([`Adopted`](crate::Adopted)).
    pub fn has_plans(&self) -> bool {
        self.recorded.has_plans()
    }

    /// Bytes of all constants together.
    pub fn constant_bytes(&self) -> Bytes {
        self.recorded.constant_bytes()
    }

    /// The most bytes that a single op reads, makes and uses as workspace. As in the authors' simulator a view counts
    /// no bytes, also where an op reads it, so the smallest feasible budget may lie a little higher.
    pub fn bottleneck(&self) -> Bytes {
        self.recorded.bottleneck()
    }

    pub(crate) fn recorded(&self) -> &Recorded {
        &self.recorded
    }

    /// The step as [selective recomputation](crate::Eviction::Selective) runs it.
    ///
    /// # Errors
    /// [`NoAttention`] if the ops' names show no attention.
    pub(crate) fn drops(&self) -> Result<&Drops, NoAttention> {
        let drops = self.drops.get_or_init(|| Drops::of(&self.recorded));
        drops.as_ref().map_err(|&none| none)
    }

    /// Whether the step has attention that [`Eviction::Selective`](crate::Eviction::Selective) can drop.
    ///
    /// # Errors
    /// The reason why it has none.
    pub fn check_attention(&self) -> Result<(), NoAttention> {
        self.drops().map(drop)
    }
}

/// Takes in events that a reader has checked. A tensor that no earlier event made gets an id that the engine refuses.
impl<'a> FromIterator<&'a Event> for Program {
    fn from_iter<I: IntoIterator<Item = &'a Event>>(events: I) -> Program {
        Recorded::of(events).into()
    }
}
