//! A schema, as far as the session needs it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pyo3::prelude::*;

use super::rules::Rule;

/// An op that comes natively.
#[derive(Debug)]
pub struct Arity {
    /// Its schema.
    pub schema: Schema,
    /// The calls that were watched.
    pub seen: Seen,
}

/// A schema, as far as a [pass](super::pass) over arguments needs it. Python describes it.
#[derive(Debug, Default, FromPyObject)]
#[pyo3(from_item_all)]
pub struct Schema {
    /// Number of arguments.
    pub arguments: usize,
    /// Number of results.
    pub results: usize,
    /// Bit `i`: positional argument `i` is a number whose value cannot change a size.
    pub scalars: u64,
    /// Bit `i`: positional argument `i` is a whole number, or a list of such, that each call names.
    pub extents: u64,
    /// The rule for the sizes of the results, if there is a short one.
    pub rule: Option<Rule>,
    /// Default values of arguments that are numbers.
    pub defaults: Vec<Option<f64>>,
    /// Names of the arguments.
    pub names: Vec<String>,
    /// The argument of which an op picks the numbers other than zero, or whose masks it picks by. How many there are
    /// decides what a call makes.
    pub picks: Option<u32>,
    /// Whether calls may run while nobody watches: nothing has to be done for them but to count what they take.
    pub unwatched: bool,
}

/// The memory of the calls of an op that were watched.
#[derive(Debug)]
pub struct Seen {
    /// The most bytes that storages among the arguments of one had.
    read: AtomicU64,
    /// The most bytes that one took beside them; the largest number there is before the first one.
    taken: AtomicU64,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            read: AtomicU64::new(0),
            taken: AtomicU64::new(u64::MAX),
        }
    }
}

impl Seen {
    /// Takes in how much a call reads.
    #[inline]
    pub fn note_read(&self, bytes: u64) {
        if bytes > self.read() {
            self.read.fetch_max(bytes, Relaxed);
        }
    }

    /// Takes in how much a call takes.
    #[inline]
    pub fn note_taken(&self, bytes: u64) {
        match self.taken() {
            // Two threads that come first at once lose one of the two.
            u64::MAX => self.taken.store(bytes, Relaxed),
            known if known < bytes => drop(self.taken.fetch_max(bytes, Relaxed)),
            _ => {}
        }
    }

    /// The most that a call read, in bytes.
    #[inline]
    pub fn read(&self) -> u64 {
        self.read.load(Relaxed)
    }

    /// The most that a call took.
    #[inline]
    pub fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// Forgets it all.
    pub fn forget(&self) {
        self.read.store(0, Relaxed);
        self.taken.store(u64::MAX, Relaxed);
    }
}
