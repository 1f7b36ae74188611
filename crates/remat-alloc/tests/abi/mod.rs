//! The library's C functions, found the way a program finds them.

#![allow(dead_code)] // each test program uses its part

use std::env;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{transmute_copy, zeroed};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, Output};

/// Set in the process that has the library preloaded.
const INSIDE: &str = "REMAT_TEST_INSIDE";

pub type MakeRoom = unsafe extern "C" fn(u64, *mut c_void) -> bool;

/// `struct remat_arena_statistics`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Statistics {
    pub capacity: u64,
    pub in_use: u64,
    pub high_water: u64,
    pub free_bytes: u64,
    pub largest_free: u64,
    pub blocks: u64,
    pub allocations: u64,
    pub frees: u64,
    pub exhaustions: u64,
    pub refusals: u64,
    pub spills: u64,
    pub wrong_frees: u64,
    pub fragmentation_mean: f64,
    pub fragmentation_max: f64,
}

/// `struct remat_arena_block`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Block {
    pub address: u64,
    pub bytes: u64,
    pub taken: bool,
}

/// The shared library that cargo has built beside this test.
pub fn library() -> PathBuf {
    let path = env::current_exe()
        .unwrap()
        .with_file_name("libremat_alloc.so");
    assert!(path.exists(), "{} is not built", path.display());
    path
}

/// An open library.
pub struct Abi(*mut c_void);

macro_rules! exported {
    ($($name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        impl Abi {
            $(pub fn $name(&self $(, $argument: $kind)*) $(-> $result)? {
                type Function = unsafe extern "C" fn($($kind),*) $(-> $result)?;
                let name = concat!(stringify!($name), "\0");
                // SAFETY: the library is open, the name ends in a zero byte, and the header gives the function this
                // type.
                unsafe {
                    let found = libc::dlsym(self.0, name.as_ptr().cast());
                    assert!(!found.is_null(), "{name} is not exported");
                    transmute_copy::<*mut c_void, Function>(&found)($($argument),*)
                }
            })*
        }
    };
}

exported! {
    remat_arena_open(bytes: u64, alignment: u64) -> c_int;
    remat_arena_close();
    remat_arena_on_exhausted(make_room: Option<MakeRoom>, context: *mut c_void);
    remat_arena_owns(block: *const c_void) -> bool;
    remat_arena_size_of(block: *const c_void) -> u64;
    remat_arena_base() -> *const c_void;
    remat_arena_place(end: c_int, fit: c_int) -> c_int;
    remat_arena_read(out: *mut Statistics) -> c_int;
    remat_arena_restart_peak();
    remat_arena_span_of_temporaries() -> u64;
    remat_arena_blocks(out: *mut Block, places: usize) -> usize;
    remat_arena_check(message: *mut c_char, length: usize) -> c_int;
    remat_cuda_substitute(functions: *const c_void);
    remat_cuda_open(device: c_int, bytes: u64, alignment: u64) -> c_int;
    remat_cuda_try_malloc(bytes: isize, device: c_int, stream: *mut c_void) -> *mut c_void;
    remat_cuda_free(block: *mut c_void, bytes: isize, device: c_int, stream: *mut c_void);
    remat_cuda_record_stream(block: *mut c_void, stream: *mut c_void);
    remat_cuda_on_exhausted(make_room: Option<MakeRoom>, context: *mut c_void);
    remat_cuda_read(device: c_int, out: *mut Statistics) -> c_int;
    remat_cuda_check(device: c_int, message: *mut c_char, length: usize) -> c_int;
}

// SAFETY: a handle of the dynamic linker, which any thread may use.
unsafe impl Send for Abi {}
// SAFETY: as above; the functions are thread-safe.
unsafe impl Sync for Abi {}

impl Abi {
    /// Loads the library, or finds it where it is preloaded.
    pub fn open() -> Abi {
        let mut path = library().as_os_str().as_bytes().to_vec();
        path.push(0);
        // SAFETY: a path that ends in a zero byte.
        let handle = unsafe { libc::dlopen(path.as_ptr().cast(), libc::RTLD_NOW) };
        assert!(!handle.is_null());
        Abi(handle)
    }

    pub fn statistics(&self) -> Statistics {
        // SAFETY: a struct of numbers.
        let mut out = unsafe { zeroed() };
        assert_eq!(self.remat_arena_read(&mut out), 0);
        out
    }

    pub fn cuda_statistics(&self, device: c_int) -> Statistics {
        // SAFETY: a struct of numbers.
        let mut out = unsafe { zeroed() };
        assert_eq!(self.remat_cuda_read(device, &mut out), 0);
        out
    }

    /// Fails with what does not hold.
    pub fn assert_sound(&self) {
        let mut message = [0; 200];
        let outcome = self.remat_arena_check(message.as_mut_ptr(), message.len());
        // SAFETY: the function ends the message in a zero, and it was zeros before.
        assert_eq!(outcome, 0, "{:?}", unsafe {
            CStr::from_ptr(message.as_ptr())
        });
    }
}

/// Runs the body of the test of this name in a process of its own, with the library preloaded and `REMAT_ARENA` as
/// given. `None` in that process, how it ended in the one that asked for it.
pub fn in_arena(test: &str, arena: &str, body: impl FnOnce(&Abi)) -> Option<Output> {
    part_in_arena(test, "all", arena, body)
}

/// The part of its test that runs in this process, if it is one inside an arena.
pub fn part() -> Option<String> {
    env::var(INSIDE).ok()
}

/// As [`in_arena`], for a part of a test: [`part`] names it there.
pub fn part_in_arena(
    test: &str,
    part: &str,
    arena: &str,
    body: impl FnOnce(&Abi),
) -> Option<Output> {
    if env::var_os(INSIDE).is_some() {
        body(&Abi::open());
        return None;
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(INSIDE, part)
        .env("REMAT_ARENA", arena)
        .env("LD_PRELOAD", library())
        .output()
        .unwrap();
    Some(output)
}

/// As [`in_arena`], for bodies that must pass.
pub fn passes_in_arena(test: &str, arena: &str, body: impl FnOnce(&Abi)) {
    if let Some(output) = in_arena(test, arena, body) {
        assert!(
            output.status.success(),
            "{}\n{}",
            output.status,
            shown(&output)
        );
    }
}

pub fn shown(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// `posix_memalign`: the block, or the number it refuses with.
pub fn aligned(bytes: usize, alignment: usize) -> Result<*mut c_void, c_int> {
    let mut block = std::ptr::null_mut();
    // SAFETY: a place for a pointer.
    match unsafe { libc::posix_memalign(&mut block, alignment, bytes) } {
        0 => Ok(block),
        number => Err(number),
    }
}

/// A tensor's block.
pub fn tensor(bytes: usize) -> Result<*mut c_void, c_int> {
    aligned(bytes, 64)
}

pub fn free(block: *mut c_void) {
    // SAFETY: the tests free blocks, or what the arena must tell from one.
    unsafe { libc::free(block) }
}

/// A seeded sequence (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
