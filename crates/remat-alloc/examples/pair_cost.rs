//! The cost of a pair of allocation and free, by size, in the arena, in the C library's allocator, and in those named.
//!
//! `cargo run --release -p remat-alloc --example pair_cost [LIBRARY...]`, where a library is another allocator to
//! preload, such as libjemalloc.so.2. Prints CPU time in nanoseconds a pair: the median of nine rounds, among 64 live
//! blocks freed in random order, without and with each page written to.

use std::env;
use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::ptr::null_mut;

const INSIDE: &str = "REMAT_PAIR_COST_INSIDE";
const LIVE: usize = 64;
const ROUNDS: usize = 9;
const PAGE: usize = 4096;
const SIZES: [usize; 6] = [1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

unsafe extern "C" {
    fn posix_memalign(out: *mut *mut c_void, alignment: usize, bytes: usize) -> c_int;
    fn free(block: *mut c_void);
}

/// Use of a block between its allocation and its free.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pages {
    Untouched,
    Written,
}

/// CPU time of this process, in nanoseconds.
fn cpu_time() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a place for a time.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn take(bytes: usize, pages: Pages) -> *mut c_void {
    let mut block = null_mut();
    // SAFETY: `block` is a place for a pointer.
    let outcome = unsafe { posix_memalign(&mut block, 64, bytes) };
    assert_eq!(outcome, 0, "{bytes} bytes");
    if pages == Pages::Written {
        for page in (0..bytes).step_by(PAGE) {
            // SAFETY: the byte is within the block. The write is volatile, so that it is not left out.
            unsafe { block.cast::<u8>().add(page).write_volatile(1) };
        }
    }
    block
}

/// Nanoseconds a pair, the median of rounds.
fn pair(bytes: usize, pages: Pages) -> u64 {
    let pairs = ((1 << 28) / bytes).clamp(256, 50_000);
    let mut blocks = [null_mut(); LIVE];
    let mut state = 1u64;
    let mut rounds: Vec<u64> = (0..ROUNDS)
        .map(|_| {
            let start = cpu_time();
            for _ in 0..pairs {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let block = &mut blocks[(state >> 58) as usize];
                // SAFETY: the pointer is null or of the same allocator, and replaced below.
                unsafe { free(*block) };
                *block = take(bytes, pages);
            }
            (cpu_time() - start) / pairs as u64
        })
        .collect();
    for block in blocks {
        // SAFETY: the pointer is null or of the same allocator, and not used again.
        unsafe { free(block) };
    }
    rounds.sort_unstable();
    rounds[ROUNDS / 2]
}

/// One line of figures for each size: without and with writing.
fn measure() {
    for bytes in SIZES {
        println!(
            "{} {}",
            pair(bytes, Pages::Untouched),
            pair(bytes, Pages::Written)
        );
    }
}

fn measured(preload: Option<&str>) -> Vec<[u64; 2]> {
    let mut command = Command::new(env::current_exe().expect("this program has a path"));
    command
        .env(INSIDE, "1")
        .env("REMAT_ARENA", (1u64 << 30).to_string());
    if let Some(library) = preload {
        command.env("LD_PRELOAD", library);
    }
    let output = command.output().expect("this program runs again");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = |part: &str| part.parse().expect("a number");
    text.lines()
        .filter_map(|line| {
            line.split_once(' ')
                .map(|(bare, written)| [number(bare), number(written)])
        })
        .collect()
}

fn main() {
    if env::var_os(INSIDE).is_some() {
        return measure();
    }
    let arena: PathBuf = env::current_exe()
        .expect("this program has a path")
        .with_file_name("../libremat_alloc.so");
    let arena = arena.to_str().expect("a path in UTF-8").to_string();
    let mut named = vec![
        ("C library".to_string(), None),
        ("arena".to_string(), Some(arena)),
    ];
    named.extend(env::args().skip(1).map(|library| {
        let name = library.rsplit('/').next().unwrap_or(&library).to_string();
        (name, Some(library))
    }));
    let results: Vec<_> = named
        .iter()
        .map(|(name, preload)| (name, measured(preload.as_deref())))
        .collect();
    for (column, what) in ["allocate and free", "the same, each page written to"]
        .iter()
        .enumerate()
    {
        println!("{what}: ns a pair (ratio to the C library)");
        for (row, bytes) in SIZES.iter().enumerate() {
            print!("  {:>5} KiB", bytes >> 10);
            for (name, figures) in &results {
                let ns = figures[row][column];
                let ratio = ns as f64 / results[0].1[row][column].max(1) as f64;
                print!("   {name} {ns:>7} ({ratio:.2})");
            }
            println!();
        }
    }
}
