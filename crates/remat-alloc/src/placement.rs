//! The place that the calling thread wants for its next blocks (Coop, section 4.2: each class of ops has its own end).

use std::cell::Cell;

use remat_core::pool::{Fit, Side};

/// The choice among the free blocks that are large enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The first or the smallest of them.
    pub fit: Fit,
    /// The end of the arena from which the block is taken.
    pub side: Side,
}

/// The placement of threads that ask for none. With it training steps fit into smaller arenas than with first fit
/// (docs/reference/benchmarks/allocator.md).
pub const USUAL: Placement = Placement {
    fit: Fit::Best,
    side: Side::Low,
};

/// The placement of small blocks, whatever the thread wants.
pub const SMALL_BLOCKS: Placement = Placement {
    fit: Fit::First,
    side: Side::High,
};

thread_local! {
    // A constant without a destructor: reading it neither allocates nor fails while a thread ends.
    static WANTED: Cell<Placement> = const { Cell::new(USUAL) };
}

/// The calling thread's placement.
pub fn wanted() -> Placement {
    WANTED.with(Cell::get)
}

/// Sets the calling thread's placement.
pub fn want(placement: Placement) {
    WANTED.with(|wanted| wanted.set(placement));
}
