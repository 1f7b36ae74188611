//! The arena of the preloaded allocator (`remat_arena.h`): what the session asks of it and tells it.

use std::ffi::{c_char, c_int, c_void};

/// `struct remat_arena_statistics`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// Bytes of the arena.
    pub capacity: u64,
    /// Bytes of taken blocks.
    pub in_use: u64,
    /// The most since the peak was restarted.
    pub high_water: u64,
    /// `capacity - in_use`.
    pub free_bytes: u64,
    /// The largest free block.
    pub largest_free: u64,
    /// Taken blocks.
    pub blocks: u64,
    /// Allocations that got one.
    pub allocations: u64,
    /// Blocks given back.
    pub frees: u64,
    /// Times that no block was large enough.
    pub exhaustions: u64,
    /// Allocations that got none.
    pub refusals: u64,
    /// Allocations that the system served for want of room.
    pub spills: u64,
    /// Frees of what was no block.
    pub wrong_frees: u64,
    fragmentation_mean: f64,
    fragmentation_max: f64,
}

/// `struct remat_arena_block`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Block {
    /// Where it begins.
    pub address: u64,
    /// Rounded to the alignment.
    pub bytes: u64,
    /// False for what is free between two.
    pub taken: bool,
}

/// `remat_make_room`.
pub type MakeRoom = unsafe extern "C" fn(bytes: u64, context: *mut c_void) -> bool;

/// Blocks below this size are the system's.
pub const SMALLEST: u64 = 1024;

/// What sizes and addresses are rounded to.
pub const ALIGNMENT: u64 = 64;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

type Read = unsafe extern "C" fn(*mut Statistics) -> c_int;
type Blocks = unsafe extern "C" fn(*mut Block, usize) -> usize;
type Base = unsafe extern "C" fn() -> *const c_void;
type Expect = unsafe extern "C" fn(u64, u64) -> c_int;
type ExpectNoMore = unsafe extern "C" fn() -> usize;
type Spill = unsafe extern "C" fn(bool) -> bool;
type Crumbs = unsafe extern "C" fn(u64) -> u64;
type RestartPeak = unsafe extern "C" fn();
type OnExhausted = unsafe extern "C" fn(Option<MakeRoom>, *mut c_void);

/// The functions of the library, from wherever it was loaded.
#[derive(Clone, Copy)]
struct Functions {
    read: Read,
    blocks: Blocks,
    base: Base,
    expect: Expect,
    expect_no_more: ExpectNoMore,
    spill: Spill,
    crumbs: Crumbs,
    restart_peak: RestartPeak,
    on_exhausted: OnExhausted,
}

impl Functions {
    fn find() -> Option<Functions> {
        use std::mem::transmute;
        // SAFETY: each function has the type that `remat_arena.h` gives the name; the library that has them is
        // preloaded, and such libraries are never unloaded.
        unsafe {
            Some(Functions {
                read: transmute::<*mut c_void, Read>(symbol(c"remat_arena_read")?),
                blocks: transmute::<*mut c_void, Blocks>(symbol(c"remat_arena_blocks")?),
                base: transmute::<*mut c_void, Base>(symbol(c"remat_arena_base")?),
                expect: transmute::<*mut c_void, Expect>(symbol(c"remat_arena_expect")?),
                expect_no_more: transmute::<*mut c_void, ExpectNoMore>(symbol(
                    c"remat_arena_expect_no_more",
                )?),
                spill: transmute::<*mut c_void, Spill>(symbol(c"remat_arena_spill")?),
                crumbs: transmute::<*mut c_void, Crumbs>(symbol(c"remat_arena_crumbs")?),
                restart_peak: transmute::<*mut c_void, RestartPeak>(symbol(
                    c"remat_arena_restart_peak",
                )?),
                on_exhausted: transmute::<*mut c_void, OnExhausted>(symbol(
                    c"remat_arena_on_exhausted",
                )?),
            })
        }
    }
}

/// A symbol among all that the process has loaded.
fn symbol(name: &std::ffi::CStr) -> Option<*mut c_void> {
    // SAFETY: the handle is `RTLD_DEFAULT`, and the name ends in a zero byte.
    let found = unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The arena, as one session sees it.
pub struct Arena {
    functions: Functions,
    base: u64,
    listed: Vec<Block>,
    /// The engine's blocks may be others than the allocator's.
    pub stale: bool,
    high_water: u64,
    /// Bytes evicted for the op that runs, by those it ran out of memory for.
    pub evicted_inside: u64,
    /// Bytes that were asked for when nobody could make room; 0 until then.
    pub short_of: u64,
}

impl Arena {
    /// The arena that is open; `None` if the library is not preloaded, or no arena is open.
    pub fn open() -> Option<Arena> {
        let functions = Functions::find()?;
        // SAFETY: it takes nothing; null before an arena was opened.
        let base = unsafe { (functions.base)() } as u64;
        (base != 0).then(|| Arena {
            functions,
            base,
            listed: Vec::new(),
            stale: true,
            high_water: 0,
            evicted_inside: 0,
            short_of: 0,
        })
    }

    /// Counts since the arena was opened.
    pub fn statistics(&self) -> Statistics {
        let mut found = Statistics::default();
        // SAFETY: a struct as the header has it; without an arena it stays as it is.
        unsafe { (self.functions.read)(&raw mut found) };
        found
    }

    /// The taken blocks in address order: offset and bytes.
    pub fn taken(&mut self) -> impl Iterator<Item = (u64, u64)> + '_ {
        loop {
            let places = self.listed.len();
            // SAFETY: as many places as are said.
            let there = unsafe { (self.functions.blocks)(self.listed.as_mut_ptr(), places) };
            if there <= places {
                let base = self.base;
                let taken = self.listed[..there].iter().filter(|block| block.taken);
                return taken.map(move |block| (block.address - base, block.bytes));
            }
            self.listed.resize(there + 64, Block::default());
        }
    }

    /// Where in the arena a pointer points to; what is not in it lies beyond every end.
    pub fn offset(&self, pointer: usize) -> u64 {
        (pointer as u64).wrapping_sub(self.base)
    }

    /// The next allocation of so many bytes is to lie there. If that is not free the engine knew wrong.
    pub fn expect(&mut self, offset: u64, bytes: u64) {
        // SAFETY: it takes numbers, and refuses those that are no place.
        if unsafe { (self.functions.expect)(self.base + offset, bytes) } != 0 {
            self.stale = true;
        }
    }

    /// What was expected and did not come is free again.
    pub fn expect_no_more(&mut self) {
        // SAFETY: it takes nothing.
        unsafe { (self.functions.expect_no_more)() };
    }

    /// Small blocks that nobody placed are the system's from now on, or (0) lie wherever there is room.
    pub fn leave_crumbs(&self, bytes: u64) {
        // SAFETY: it takes any number.
        unsafe { (self.functions.crumbs)(bytes) };
    }

    /// Whether this thread's allocations that find no room are the system's from here on: amid an op that must not fail.
    pub fn spill(&self, spill: bool) {
        // SAFETY: it takes any boolean.
        unsafe { (self.functions.spill)(spill) };
    }

    /// The high-water mark of what comes starts from here; that of what was is kept.
    pub fn restart_peak(&mut self) {
        self.high_water = self.high_water();
        // SAFETY: it takes nothing.
        unsafe { (self.functions.restart_peak)() };
    }

    /// The most that was in use at a time.
    pub fn high_water(&self) -> u64 {
        self.high_water.max(self.statistics().high_water)
    }

    /// Who makes room from now on, or nobody.
    pub fn set_evictor(&self, make_room: Option<MakeRoom>) {
        // SAFETY: the function takes no context and may be called by any thread at any time.
        unsafe { (self.functions.on_exhausted)(make_room, std::ptr::null_mut()) };
    }
}
