//! The arena of this process: reserved once, its blocks handed out by the pool under one lock.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr::{NonNull, null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use remat_core::pool::{Pool, PoolError};

#[cfg(feature = "checker")]
use crate::checker;
use crate::evictor::{Evictor, take_or_make_room};
use crate::expected::{self, Expected};
use crate::mapping::Mapping;
use crate::placement;
use crate::region::Region;
use crate::report;
use crate::setting::Setting;
use crate::temporaries::Temporaries;

/// Smaller blocks are the system's, in bytes: scalars and the like need no place of their own.
pub const SMALLEST: usize = 1024;

/// Blocks with a smaller alignment are no tensors.
pub const ALIGNED: usize = 64;

/// Blocks below this size are placed at the high end, whatever the thread wants. Many of them are no tensors but caches
/// of oneDNN's, which live as long as the program: strewn about, they would break every window that could be evicted.
const SMALL: usize = 16 << 10;

/// Torch aligns tensors from 2 MiB on to pages, if it is told to ask for huge pages. Smaller page-aligned blocks are
/// code that oneDNN generates and makes executable.
const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;

/// The function that makes room in this arena.
pub static EVICTOR: Evictor = Evictor::none();

static ARENAS: Mutex<Arenas> = Mutex::new(Arenas {
    current: None,
    retired: Vec::new(),
});

/// The extents of all arenas, the newest first; null before one is opened. Every `free` asks whose a pointer is, so the
/// list is read without a lock: its items never change and are never freed. A mapping is used again, so each costs 24
/// bytes once.
static EXTENTS: AtomicPtr<Extent> = AtomicPtr::new(null_mut());

struct Extent {
    base: usize,
    bytes: usize,
    older: *const Extent,
}

/// Bytes of the arena that was opened last.
static CAPACITY: AtomicUsize = AtomicUsize::new(0);

/// Blocks below so many bytes are the system's unless they are expected.
static SMALL_BLOCK_LIMIT: AtomicUsize = AtomicUsize::new(SMALLEST);

/// Whether new blocks are taken from the arena.
static SERVING: AtomicBool = AtomicBool::new(false);

/// One arena: its memory and its blocks.
pub struct Arena {
    region: Region,
    /// Blocks kept for a thread that said where it wants them.
    expected: Expected,
    temporaries: Temporaries,
    mapping: Mapping,
    /// Whether no block is taken from it any more.
    retired: bool,
}

/// All arenas that were opened.
pub struct Arenas {
    /// The arena from which new blocks are taken.
    current: Option<Arena>,
    /// Earlier arenas, with blocks that are still in use or with addresses to be used again.
    retired: Vec<Arena>,
}

impl Arenas {
    fn owner(&mut self, block: *const c_void) -> Option<&mut Arena> {
        let mut all = self.current.iter_mut().chain(&mut self.retired);
        all.find(|arena| arena.mapping.holds(block))
    }

    /// Addresses for an arena: those of an empty arena, or new ones.
    fn reserve(&mut self, bytes: u64, alignment: u64) -> Option<Mapping> {
        let fits = |arena: &Arena| arena.region.is_empty() && arena.mapping.fits(bytes, alignment);
        if self.current.as_ref().is_some_and(fits) {
            return self.current.take().map(|arena| arena.mapping);
        }
        if let Some(at) = self.retired.iter().position(fits) {
            return Some(self.retired.swap_remove(at).mapping);
        }
        let mapping = Mapping::reserve(bytes, alignment)?;
        let extent = Extent {
            base: mapping.start() as usize,
            bytes: mapping.bytes(),
            older: EXTENTS.load(Ordering::Relaxed),
        };
        EXTENTS.store(Box::into_raw(Box::new(extent)), Ordering::Release);
        Some(mapping)
    }
}

/// The reason why no arena was opened.
#[derive(Debug)]
pub enum OpenError {
    /// No pool has this size or alignment.
    Pool(PoolError),
    /// So many bytes of addresses cannot be reserved.
    Addresses(u64),
    /// The program's allocations do not pass through this library.
    NotPreloaded,
}

impl OpenError {
    /// The C library's number for it.
    pub fn errno(&self) -> c_int {
        match self {
            OpenError::Pool(_) => libc::EINVAL,
            OpenError::Addresses(_) => libc::ENOMEM,
            OpenError::NotPreloaded => libc::ENOTSUP,
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Pool(error) => error.fmt(f),
            OpenError::Addresses(bytes) => {
                write!(
                    f,
                    "cannot reserve addresses for an arena of {bytes} bytes; make it smaller or raise `ulimit -v`"
                )
            }
            OpenError::NotPreloaded => f.write_str(
                "the arena's library is not preloaded; start the program with LD_PRELOAD",
            ),
        }
    }
}

/// Opens an arena, or lets one of the same size serve again. Blocks of another arena stay valid until they are freed.
///
/// # Errors
/// [`OpenError`]; an arena that was open stays open.
pub fn open(setting: Setting) -> Result<(), OpenError> {
    let pool = Pool::new(setting.bytes, setting.alignment).map_err(OpenError::Pool)?;
    let mut arenas = hold();
    let same = |open: &Arena| {
        open.region.capacity() == pool.capacity() && open.region.alignment() == pool.alignment()
    };
    if !arenas.current.as_ref().is_some_and(same) {
        let mapping = arenas
            .reserve(pool.capacity(), pool.alignment())
            .ok_or(OpenError::Addresses(setting.bytes))?;
        #[cfg(feature = "checker")]
        // SAFETY: the mapping is writable and holds so many bytes, and no thread has a block in it.
        unsafe {
            checker::poison(mapping.start(), pool.capacity() as usize);
        }
        CAPACITY.store(pool.capacity() as usize, Ordering::Relaxed);
        if let Some(mut before) = arenas.current.take() {
            before.retired = true;
            arenas.retired.push(before);
        }
        arenas.current = Some(Arena {
            region: Region::new(mapping.start() as u64, pool),
            expected: Expected::default(),
            temporaries: Temporaries::default(),
            mapping,
            retired: false,
        });
    }
    SERVING.store(true, Ordering::Relaxed);
    Ok(())
}

/// Leaves new blocks to the system from here on. Blocks of the arena stay valid until they are freed.
pub fn close() {
    SERVING.store(false, Ordering::Relaxed);
}

/// Whether a block of this size and alignment belongs in the arena.
#[inline]
pub fn wants(bytes: usize, alignment: usize) -> bool {
    let smallest = if alignment < PAGE { SMALLEST } else { HUGE };
    SERVING.load(Ordering::Relaxed)
        && bytes >= smallest
        && alignment >= ALIGNED
        && alignment.is_power_of_two()
        && (bytes >= SMALL_BLOCK_LIMIT.load(Ordering::Relaxed) || is_expected(bytes, alignment))
}

/// Whether a block of this size is kept for the calling thread.
#[cold]
fn is_expected(bytes: usize, alignment: usize) -> bool {
    let expects = |arena: &mut Arena| {
        arena
            .expected
            .has(&arena.region, bytes as u64, alignment as u64)
    };
    expected::any() && with(expects).unwrap_or(false)
}

/// Leaves blocks below so many bytes to the system unless they are expected. Returns the limit before.
pub fn set_small_block_limit(bytes: usize) -> usize {
    SMALL_BLOCK_LIMIT.swap(bytes.max(SMALLEST), Ordering::Relaxed)
}

/// Whether a pointer lies in an arena.
#[inline]
pub fn owns(block: *const c_void) -> bool {
    let mut extent = EXTENTS.load(Ordering::Acquire).cast_const();
    // SAFETY: the pointer is null or to a box that `reserve` leaked, which is only read since; its `older` is such a
    // pointer too. The acquiring load sees the box as it was before it was published.
    while let Some(Extent { base, bytes, older }) = unsafe { extent.as_ref() } {
        if (block as usize).wrapping_sub(*base) < *bytes {
            return true;
        }
        extent = *older;
    }
    false
}

/// Takes a block, asking for room where there is none. `None` once nobody makes any.
pub fn allocate(bytes: usize, alignment: usize) -> Option<NonNull<c_void>> {
    if bytes > CAPACITY.load(Ordering::Relaxed) {
        return None; // no eviction makes an arena larger
    }
    take_or_make_room(bytes as u64, &EVICTOR, || take(bytes, alignment))
}

/// Notes that a request was refused. Returns `ENOMEM`.
pub fn refused() -> c_int {
    with(|arena| arena.region.refused());
    libc::ENOMEM
}

/// Notes that the system serves a request that the arena has no room for.
pub fn spilled() {
    with(|arena| arena.region.spilled());
}

/// Takes a block. Where there is none, returns the number of blocks given back so far.
fn take(bytes: usize, alignment: usize) -> Result<NonNull<c_void>, u64> {
    let placement = if bytes < SMALL {
        placement::SMALL_BLOCKS
    } else {
        placement::wanted()
    };
    let mut held = hold();
    let Some(arena) = held.current.as_mut() else {
        return Err(0);
    };
    let Arena {
        region,
        expected,
        temporaries,
        ..
    } = arena;
    let (bytes, alignment) = (bytes as u64, alignment as u64);
    let taken = if expected::any() {
        expected.take(region, bytes, alignment, placement)
    } else {
        region.take(bytes, alignment, placement)
    };
    let Some(address) = taken else {
        region.exhausted();
        return Err(region.frees());
    };
    if expected::logs() {
        expected.note(region, address);
    }
    temporaries.taken(address, bytes, placement);
    let block = address as *mut c_void;
    #[cfg(feature = "checker")]
    // SAFETY: the block lies in the mapping and was just taken, so no other thread writes to it.
    unsafe {
        checker::verify_poison(
            block.cast(),
            arena.region.size_of(address).unwrap_or(0) as usize,
        );
    }
    NonNull::new(block).ok_or(0)
}

/// Keeps a block for the calling thread, past so many allocations of its size. Returns a number of `errno.h`.
pub fn expect(address: u64, bytes: u64, passes: u32) -> c_int {
    let kept = with(|arena| {
        let Arena {
            region, expected, ..
        } = arena;
        expected.keep(region, address, bytes, passes)
    });
    match kept {
        None => libc::ENOENT,
        Some(Ok(())) => 0,
        Some(Err(PoolError::Taken { .. })) => libc::EBUSY,
        Some(Err(_)) => libc::EINVAL,
    }
}

/// How many allocations of its size the calling thread made before the one at an address, since it expected blocks, and
/// whether there was one.
pub fn passes(address: u64, bytes: u64) -> (u32, bool) {
    let passes = with(|arena| arena.expected.passes(&arena.region, address, bytes));
    passes.unwrap_or((0, false))
}

/// Starts the high-water mark anew from the bytes in use, and the watch of temporaries.
pub fn restart_peak() {
    with(|arena| {
        arena.region.restart_peak();
        arena.temporaries.watch();
    });
}

/// The bytes side by side that hold what was allocated and freed since the high-water mark was started anew; 0 if that
/// was asked already.
pub fn span_of_temporaries() -> u64 {
    with(|arena| arena.temporaries.span(arena.region.alignment())).unwrap_or(0)
}

/// Gives back the blocks that the calling thread expected in vain. Returns their number.
pub fn expect_no_more() -> usize {
    if !expected::logs() {
        return 0;
    }
    let given = with(|arena| {
        let Arena {
            region, expected, ..
        } = arena;
        expected.give_back(region)
    });
    given.unwrap_or(0)
}

/// Gives back a block of the arena. A pointer to no block is ignored, with a line on stderr (the checker build ends the
/// process).
pub fn free(block: *mut c_void) {
    let errno = Errno::saved();
    let given = with_owner(block, |arena| {
        #[cfg(feature = "checker")]
        if let Some(bytes) = arena.region.size_of(block as u64) {
            // SAFETY: a live block of so many bytes begins there. Its owner gave it up with this call, and nobody can
            // take it before the lock is released.
            unsafe { checker::poison(block.cast(), bytes as usize) };
        }
        let given = arena.region.give(block as u64);
        arena.temporaries.given(block as u64);
        if given.is_ok() && expected::logs() {
            arena.expected.freed(&mut arena.region, block as u64);
        }
        if arena.retired && arena.region.is_empty() {
            arena.mapping.give_pages_back();
        }
        given
    });
    if let Some(Err(wrong)) = given {
        report::line(format_args!("free({block:p}) was ignored: {wrong}"));
    }
    drop(errno);
}

/// `realloc` of a block of the arena.
///
/// # Safety
/// The block lies in an arena ([`owns`]), belongs to the caller, and is used by no other thread.
pub unsafe fn reallocate(block: *mut c_void, bytes: usize) -> *mut c_void {
    if bytes == 0 {
        free(block);
        return null_mut();
    }
    let Some(held) = size_of(block) else {
        report::line(format_args!(
            "realloc({block:p}) was refused: no block of the arena begins there"
        ));
        set_errno(libc::ENOMEM);
        return null_mut();
    };
    if bytes <= held {
        return block;
    }
    let larger = if wants(bytes, ALIGNED) {
        allocate(bytes, ALIGNED).map_or_else(null_mut, NonNull::as_ptr)
    } else {
        // SAFETY: `malloc` takes any size.
        unsafe { libc::malloc(bytes) }
    };
    if larger.is_null() {
        set_errno(refused());
        return null_mut();
    }
    // SAFETY: both blocks are live and hold at least `held` bytes: `block` by its size, `larger` as it was asked for
    // more. They are two blocks, so they do not overlap. The caller promises that no other thread uses `block`.
    unsafe {
        larger
            .cast::<u8>()
            .copy_from_nonoverlapping(block.cast(), held)
    };
    free(block);
    larger
}

/// Sets `errno`.
pub fn set_errno(number: c_int) {
    // SAFETY: the C library returns the address of this thread's `errno`, which is valid as long as the thread lives.
    unsafe { *libc::__errno_location() = number };
}

/// Bytes of the block that begins at a pointer.
pub fn size_of(block: *const c_void) -> Option<usize> {
    with_owner(block, |arena| arena.region.size_of(block as u64))
        .flatten()
        .map(|bytes| bytes as usize)
}

/// The first address of the arena that was opened last.
pub fn base() -> *const c_void {
    with(|arena| arena.mapping.start().cast_const().cast()).unwrap_or(null())
}

/// Runs an action on the arena that was opened last; `None` if none was opened.
pub fn with<T>(action: impl FnOnce(&mut Arena) -> T) -> Option<T> {
    hold().current.as_mut().map(action)
}

/// Runs an action on the arena in which a block lies; `None` if it lies in none.
fn with_owner<T>(block: *const c_void, action: impl FnOnce(&mut Arena) -> T) -> Option<T> {
    hold().owner(block).map(action)
}

impl Arena {
    /// The blocks and counts.
    pub fn region(&mut self) -> &mut Region {
        &mut self.region
    }
}

/// Takes the lock.
pub fn hold() -> MutexGuard<'static, Arenas> {
    ARENAS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The value of `errno`, set again when this is dropped: `free` leaves it alone, as the C library's does.
struct Errno(c_int);

impl Errno {
    fn saved() -> Errno {
        // SAFETY: as in `set_errno`.
        Errno(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        set_errno(self.0);
    }
}
