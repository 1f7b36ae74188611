//! Where in the arena the calling thread wants its next blocks (Coop, section 4.2: each class of ops has its own end).

use std::cell::Cell;

use remat_core::pool::{End, Fit};

/// Which free block, and which end of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Which of the free blocks that are large enough.
    pub fit: Fit,
    /// From which end of the arena.
    pub end: End,
}

/// What a thread has that says nothing. Training steps fit into smaller arenas so than by first fit (docs/benchmarks.md).
pub const USUAL: Placement = Placement {
    fit: Fit::Best,
    end: End::Low,
};

/// The placement of small blocks, whatever the thread wants.
pub const SMALL_BLOCKS: Placement = Placement {
    fit: Fit::First,
    end: End::High,
};

thread_local! {
    // A constant without a destructor: reading it neither allocates nor fails while a thread ends.
    static WANTED: Cell<Placement> = const { Cell::new(USUAL) };
}

/// The calling thread's.
pub fn wanted() -> Placement {
    WANTED.with(Cell::get)
}

/// Sets the calling thread's.
pub fn want(placement: Placement) {
    WANTED.with(|wanted| wanted.set(placement));
}
