//! The arena of the preloaded allocator, through the C functions of `remat_arena.h`.

use std::ffi::{c_int, c_void};

use super::symbols::loaded_function;

/// `struct remat_arena_statistics`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// Bytes of the arena.
    pub capacity: u64,
    /// Bytes of taken blocks.
    pub in_use: u64,
    /// Most bytes in use at a time since the peak was restarted.
    pub high_water: u64,
    /// `capacity - in_use`.
    pub free_bytes: u64,
    /// The largest free block.
    pub largest_free: u64,
    /// Taken blocks.
    pub blocks: u64,
    /// Allocations that got a block.
    pub allocations: u64,
    /// Blocks given back so far.
    pub frees: u64,
    /// Times that no free block was large enough.
    pub exhaustions: u64,
    /// Allocations that got no block.
    pub refusals: u64,
    /// Allocations that the system served for want of room.
    pub spills: u64,
    /// Frees of addresses at which no block begins.
    pub wrong_frees: u64,
    fragmentation_mean: f64,
    fragmentation_max: f64,
}

/// `struct remat_arena_block`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Block {
    /// Its first address.
    pub address: u64,
    /// Its size, rounded to the alignment.
    pub bytes: u64,
    /// Whether it is in use; stretches between blocks are listed too.
    pub taken: bool,
}

/// `remat_make_room`.
pub type MakeRoom = unsafe extern "C" fn(bytes: u64, context: *mut c_void) -> bool;

/// Smaller blocks are the system's, in bytes.
pub const SMALLEST: u64 = 1024;

/// Sizes and addresses are multiples of so many bytes.
pub const ALIGNMENT: u64 = 64;

/// The functions of the library, from wherever it was loaded.
#[derive(Clone, Copy)]
struct Functions {
    read: unsafe extern "C" fn(*mut Statistics) -> c_int,
    blocks: unsafe extern "C" fn(*mut Block, usize) -> usize,
    base: unsafe extern "C" fn() -> *const c_void,
    expect: unsafe extern "C" fn(u64, u64, u32) -> c_int,
    passes: unsafe extern "C" fn(u64, u64) -> i64,
    expect_no_more: unsafe extern "C" fn() -> usize,
    spill: unsafe extern "C" fn(bool) -> bool,
    small_block_limit: unsafe extern "C" fn(u64) -> u64,
    restart_peak: unsafe extern "C" fn(),
    span_of_temporaries: unsafe extern "C" fn() -> u64,
    on_exhausted: unsafe extern "C" fn(Option<MakeRoom>, *mut c_void),
}

impl Functions {
    fn find() -> Option<Functions> {
        // SAFETY: each name has the type that `remat_arena.h` gives it. The library that defines the names is
        // preloaded, and preloaded libraries are never unloaded.
        unsafe {
            Some(Functions {
                read: loaded_function(c"remat_arena_read")?,
                blocks: loaded_function(c"remat_arena_blocks")?,
                base: loaded_function(c"remat_arena_base")?,
                expect: loaded_function(c"remat_arena_expect_after")?,
                passes: loaded_function(c"remat_arena_passes")?,
                expect_no_more: loaded_function(c"remat_arena_expect_no_more")?,
                spill: loaded_function(c"remat_arena_spill")?,
                small_block_limit: loaded_function(c"remat_arena_small_block_limit")?,
                restart_peak: loaded_function(c"remat_arena_restart_peak")?,
                span_of_temporaries: loaded_function(c"remat_arena_span_of_temporaries")?,
                on_exhausted: loaded_function(c"remat_arena_on_exhausted")?,
            })
        }
    }
}

/// The server of allocations for which the arena has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Nobody: the caller gets no memory.
    Nobody,
    /// The system, beside the arena: for an op that must not fail halfway.
    System,
}

/// The arena, as one session sees it.
pub struct Arena {
    functions: Functions,
    base: u64,
    listed: Vec<Block>,
    /// Whether the engine's list of blocks may differ from the allocator's.
    pub stale: bool,
    high_water: u64,
    /// Bytes evicted while the op that runs was allocating, to make room for it.
    pub evicted_inside: u64,
    /// Allocations that had got no block when [`in_use`](Self::in_use) was last asked for.
    refused: u64,
    /// Bytes of the last allocation for which nobody could make room; 0 until then.
    pub short_of: u64,
}

impl Arena {
    /// The open arena; `None` if the library is not preloaded or no arena is open.
    pub fn open() -> Option<Arena> {
        let functions = Functions::find()?;
        // SAFETY: the function takes nothing and may be called at any time; it returns null before an arena was opened.
        let base = unsafe { (functions.base)() } as u64;
        (base != 0).then(|| Arena {
            functions,
            base,
            listed: Vec::new(),
            stale: true,
            high_water: 0,
            evicted_inside: 0,
            refused: 0,
            short_of: 0,
        })
    }

    /// Counts since the arena was opened.
    pub fn statistics(&self) -> Statistics {
        let mut found = Statistics::default();
        // SAFETY: the pointer is to a struct of the header's layout, which lives until the call returns. Without an
        // arena the function leaves it as it is.
        unsafe { (self.functions.read)(&raw mut found) };
        found
    }

    /// Bytes of taken blocks.
    pub fn in_use(&mut self) -> u64 {
        let now = self.statistics();
        self.refused = now.refusals;
        now.in_use
    }

    /// Whether an allocation got no block since [`in_use`](Self::in_use) was last asked for.
    pub fn has_refused(&self) -> bool {
        self.statistics().refusals != self.refused
    }

    /// The taken blocks in address order: offset and bytes.
    pub fn taken(&mut self) -> impl Iterator<Item = (u64, u64)> + '_ {
        loop {
            let places = self.listed.len();
            // SAFETY: the vector holds `places` structs of the header's layout, and the function writes no more.
            let there = unsafe { (self.functions.blocks)(self.listed.as_mut_ptr(), places) };
            if there <= places {
                let base = self.base;
                let taken = self.listed[..there].iter().filter(|block| block.taken);
                return taken.map(move |block| (block.address - base, block.bytes));
            }
            self.listed.resize(there + 64, Block::default());
        }
    }

    /// The offset of a pointer from the arena's start. A pointer outside of the arena gives an offset beyond its size.
    pub fn offset(&self, pointer: usize) -> u64 {
        (pointer as u64).wrapping_sub(self.base)
    }

    /// Keeps the block at an offset for this thread's allocation of so many bytes that comes after `passes` others. If
    /// the block is not free, the engine's list of blocks is out of date.
    pub fn expect(&mut self, offset: u64, bytes: u64, passes: u32) {
        // SAFETY: the function takes any numbers, and refuses those that are no place in the arena.
        if unsafe { (self.functions.expect)(self.base + offset, bytes, passes) } != 0 {
            self.stale = true;
        }
    }

    /// How many allocations of so many bytes this thread made before the one at an offset, since blocks were kept;
    /// `Err` with the number of all of them if there was none.
    pub fn passes(&self, offset: u64, bytes: u64) -> Result<u32, u32> {
        // SAFETY: the function takes any numbers.
        let passes = unsafe { (self.functions.passes)(self.base.wrapping_add(offset), bytes) };
        u32::try_from(passes).map_err(|_| (-1 - passes) as u32)
    }

    /// Frees the blocks that were kept for this thread and not allocated.
    pub fn expect_no_more(&mut self) {
        // SAFETY: the function takes nothing and may be called at any time.
        unsafe { (self.functions.expect_no_more)() };
    }

    /// Leaves blocks below so many bytes to the system unless they are expected; 0 stands for the smallest limit.
    pub fn set_small_block_limit(&self, bytes: u64) {
        // SAFETY: the function takes any number.
        unsafe { (self.functions.small_block_limit)(bytes) };
    }

    /// Says who serves this thread's allocations from here on if the arena has no room for them.
    pub fn set_fallback(&self, fallback: Fallback) {
        // SAFETY: the function takes any boolean.
        unsafe { (self.functions.spill)(fallback == Fallback::System) };
    }

    /// The bytes side by side that hold all blocks which were allocated and freed since the mark was started anew; 0 if
    /// that is not known.
    pub fn span_of_temporaries(&mut self) -> u64 {
        // SAFETY: the function takes nothing and may be called at any time.
        unsafe { (self.functions.span_of_temporaries)() }
    }

    /// Starts the allocator's high-water mark anew from the bytes in use. [`high_water`](Self::high_water) keeps the
    /// higher of the marks.
    pub fn restart_peak(&mut self) {
        self.high_water = self.high_water();
        // SAFETY: the function takes nothing and may be called at any time.
        unsafe { (self.functions.restart_peak)() };
    }

    /// Most bytes that were in use at a time.
    pub fn high_water(&self) -> u64 {
        self.high_water.max(self.statistics().high_water)
    }

    /// Registers the function that makes room, or none.
    pub fn set_evictor(&self, make_room: Option<MakeRoom>) {
        // SAFETY: the registered function takes no context. It stays callable by any thread as long as the process
        // lives, since the extension module is never unloaded.
        unsafe { (self.functions.on_exhausted)(make_room, std::ptr::null_mut()) };
    }
}
