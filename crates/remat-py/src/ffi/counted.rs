//! Bytes of main memory that ops take while nobody watches them, counted block by block.
//!
//! An op that [runs unwatched](Running) takes its blocks by [`caching`](super::caching), which counts each here when it
//! is given out and when it is given back. Blocks that other ops take are the session's to count.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

thread_local! {
    /// The address of the op that runs unwatched on this thread, 0 for none.
    static RUNNING: Cell<usize> = const { Cell::new(0) };
}

/// Whether ops may run unwatched.
static ON: AtomicBool = AtomicBool::new(false);

/// Bytes of counted blocks: pages of the caching allocator have those of large ones, the C library those of small ones.
static LARGE: AtomicU64 = AtomicU64::new(0);
static SMALL: AtomicU64 = AtomicU64::new(0);

/// Bytes of all else that the session counts, and the most of both together since [`take_most`].
static OTHERS: AtomicU64 = AtomicU64::new(0);
static MOST: AtomicU64 = AtomicU64::new(0);

/// Once both take more than the first, ops are watched. They never take more than the second.
static STOP: AtomicU64 = AtomicU64::new(0);
static BUDGET: AtomicU64 = AtomicU64::new(0);

/// Raises an error in an op for which so many bytes in all would be too many. It comes back where nobody can raise one.
pub type Refuse = unsafe fn(op: usize, bytes: u64);

static REFUSE: OnceLock<Refuse> = OnceLock::new();

/// The two places in which a block may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// In pages of the caching allocator.
    Pages,
    /// In memory of the C library.
    Library,
}

impl Kept {
    fn count(self) -> &'static AtomicU64 {
        match self {
            Kept::Pages => &LARGE,
            Kept::Library => &SMALL,
        }
    }
}

/// Has ops refused by this function, unless another one does.
pub fn refuse_by(refuse: Refuse) {
    let _ = REFUSE.set(refuse);
}

/// Lets ops run unwatched, while counted blocks and `others` together take no more than `stop`; the op on the way
/// there may take up to `budget`.
pub fn begin(others: u64, stop: u64, budget: u64) {
    OTHERS.store(others, Relaxed);
    STOP.store(stop, Relaxed);
    BUDGET.store(budget, Relaxed);
    ON.store(true, Relaxed);
}

/// Counts what the op takes that runs next unwatched, beside so many bytes that the session counts. It finds room.
#[inline]
pub fn count_beside(others: u64) {
    OTHERS.store(others, Relaxed);
    STOP.store(u64::MAX, Relaxed);
}

/// Has ops watched again.
#[inline]
pub fn end() {
    if is_on() {
        ON.store(false, Relaxed);
    }
}

/// Whether ops may run unwatched.
#[inline]
pub fn is_on() -> bool {
    ON.load(Relaxed)
}

/// An op that runs unwatched on this thread, until dropped.
pub struct Running(usize);

impl Running {
    /// The op at an address begins.
    #[inline]
    pub fn op(address: usize) -> Running {
        Running(RUNNING.replace(address))
    }
}

impl Drop for Running {
    #[inline]
    fn drop(&mut self) {
        RUNNING.set(self.0);
    }
}

/// The address of the op that runs unwatched on this thread.
#[inline]
pub fn running() -> Option<usize> {
    let op = RUNNING.get();
    (op != 0).then_some(op)
}

/// Bytes of counted blocks.
#[inline]
pub fn bytes() -> u64 {
    LARGE.load(Relaxed) + SMALL.load(Relaxed)
}

/// Bytes of counted blocks that the C library has.
#[inline]
pub fn small() -> u64 {
    SMALL.load(Relaxed)
}

/// The most bytes of counted blocks and all else together since the last time.
pub fn take_most() -> u64 {
    MOST.swap(0, Relaxed)
}

/// Whether a block was given out since [`take_most`].
#[inline]
pub fn has_most() -> bool {
    MOST.load(Relaxed) != 0
}

/// So many bytes of what else the session counts are there no more, and it has yet to take note of that.
pub fn others_died(bytes: u64) {
    if is_on() {
        let less = |others: u64| Some(others.saturating_sub(bytes));
        let _ = OTHERS.fetch_update(Relaxed, Relaxed, less);
    }
}

/// An op asks for a block of so many bytes. Raises an error in it where they would be too many.
///
/// # Safety
/// Nothing that torch's unwinding skips is in use.
#[inline]
pub unsafe fn ask(op: usize, bytes: u64) {
    let all = OTHERS.load(Relaxed) + self::bytes() + bytes;
    if all > STOP.load(Relaxed) {
        // SAFETY: as the caller promises.
        unsafe { exceed(op, all) };
    }
}

#[cold]
unsafe fn exceed(op: usize, all: u64) {
    end();
    if all > BUDGET.load(Relaxed) {
        if let Some(refuse) = REFUSE.get() {
            // SAFETY: as the caller of `ask` promises.
            unsafe { refuse(op, all) };
        }
    }
}

/// Whether an op that takes so many bytes leaves the run where ops are not watched.
#[inline]
pub fn has_room(bytes: u64) -> bool {
    (OTHERS.load(Relaxed) + self::bytes()).saturating_add(bytes) <= STOP.load(Relaxed)
}

/// A block was given out.
#[inline]
pub fn took(bytes: u64, kept: Kept) {
    kept.count().fetch_add(bytes, Relaxed);
    let all = OTHERS.load(Relaxed) + self::bytes();
    if all > MOST.load(Relaxed) {
        MOST.fetch_max(all, Relaxed);
    }
}

/// A block was given back, or is the session's to count from now on.
#[inline]
pub fn gave(bytes: u64, kept: Kept) {
    let before = kept.count().fetch_sub(bytes, Relaxed);
    debug_assert!(before >= bytes, "more was given back than was given out");
}
