//! The pool of a CUDA device through its C ABI: who may use which bytes when.

mod abi;
#[path = "abi/device.rs"]
mod fake;

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use abi::{Abi, Random};
use fake::{Device, FUNCTIONS, STREAMS, device, stream};

const KIB: isize = 1024;

/// One test at a time: the device is one.
static ALONE: Mutex<()> = Mutex::new(());

/// A fresh device with an arena; every test has a number of its own.
struct Arena {
    abi: Abi,
    number: c_int,
    _alone: MutexGuard<'static, ()>,
}

impl Arena {
    fn open(number: c_int, bytes: u64) -> Arena {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        *device() = Device::default();
        let abi = Abi::open();
        abi.remat_cuda_substitute((&raw const FUNCTIONS).cast());
        abi.remat_cuda_on_exhausted(None, null_mut());
        assert_eq!(abi.remat_cuda_open(number, bytes, 0), 0);
        Arena {
            abi,
            number,
            _alone: alone,
        }
    }

    fn take(&self, bytes: isize, on: usize) -> *mut c_void {
        self.abi
            .remat_cuda_try_malloc(bytes, self.number, stream(on))
    }

    fn give(&self, block: *mut c_void, on: usize) {
        self.abi.remat_cuda_free(block, 0, self.number, stream(on));
    }

    fn blocks(&self) -> u64 {
        self.abi.cuda_statistics(self.number).blocks
    }

    fn assert_sound(&self) {
        assert_eq!(self.abi.remat_cuda_check(self.number, null_mut(), 0), 0);
    }
}

#[test]
fn a_device_gives_its_memory_once() {
    let arena = Arena::open(0, 64 << 10);
    assert_eq!(device().memory.values().collect::<Vec<_>>(), [&(64 << 10)]);
    let block = arena.take(1000, 0);
    assert_eq!(block as usize % 512, 0);
    assert_eq!(arena.abi.cuda_statistics(0).in_use, 1024);
    assert!(arena.take(64 * KIB, 0).is_null());
    arena.give(block, 0);
    let all = arena.take(64 * KIB, 0);
    assert!(!all.is_null());
    assert_eq!(device().memory.len(), 1);
    arena.give(all, 0);
    arena.assert_sound();
}

#[test]
fn the_same_stream_reuses_at_once_and_waits_for_nothing() {
    let arena = Arena::open(1, 64 << 10);
    for _ in 0..100 {
        let (one, other) = (arena.take(40 * KIB, 1), arena.take(24 * KIB, 1));
        assert!(!one.is_null() && !other.is_null());
        device().work(1);
        arena.give(one, 1);
        arena.give(other, 1);
    }
    assert!(device().waits.is_empty());
    let abi = &arena.abi;
    assert_eq!(
        abi.remat_cuda_open(1, 32 << 10, 0),
        0,
        "an arena without blocks is replaced"
    );
    assert!(
        device().destroyed <= 4,
        "{} events for blocks freed one after the other",
        device().destroyed
    );
    assert_eq!(device().memory.values().collect::<Vec<_>>(), [&(32 << 10)]);
}

#[test]
fn another_stream_waits_for_the_event_unless_it_has_come() {
    let arena = Arena::open(2, 64 << 10);
    let block = arena.take(64 * KIB, 1);
    device().work(1);
    arena.give(block, 1);
    let reused = arena.take(64 * KIB, 2);
    assert_eq!(reused, block);
    assert_eq!(device().waits.len(), 1);
    assert_eq!(device().waits[0].0, 2);
    device().work(2);
    arena.give(reused, 2);
    device().finish(2);
    let again = arena.take(64 * KIB, 1);
    assert_eq!(device().waits.len(), 1, "what has come is not waited for");
    arena.give(again, 1);
    arena.assert_sound();
}

#[test]
fn only_the_bytes_that_were_freed_elsewhere_are_waited_for() {
    let arena = Arena::open(3, 64 << 10);
    let (one, two) = (arena.take(16 * KIB, 1), arena.take(16 * KIB, 1));
    device().work(1);
    arena.give(one, 1);
    let part = arena.take(4 * KIB, 2);
    assert_eq!((part, device().waits.len()), (one, 1));
    let rest = arena.take(12 * KIB, 2);
    assert_eq!(
        (rest, device().waits.len()),
        (part.wrapping_byte_add(4096), 2)
    );
    let fresh = arena.take(32 * KIB, 3);
    assert_eq!(
        (fresh, device().waits.len()),
        (two.wrapping_byte_add(16384), 2),
        "never used before"
    );
    for (block, on) in [(two, 1), (part, 2), (rest, 2), (fresh, 3)] {
        arena.give(block, on);
    }
    assert_eq!(arena.blocks(), 0);
    arena.assert_sound();
}

#[test]
fn a_block_used_on_a_further_stream_is_not_free_before_that_is_done() {
    let arena = Arena::open(4, 64 << 10);
    let block = arena.take(32 * KIB, 1);
    arena.abi.remat_cuda_record_stream(block, stream(2));
    arena.abi.remat_cuda_record_stream(block, stream(2));
    device().work(2);
    arena.give(block, 1);
    assert_eq!(arena.blocks(), 1, "stream 2 is not done");
    let beside = arena.take(32 * KIB, 1);
    assert_ne!(beside, block);
    assert!(device().waits.is_empty());
    arena.give(block, 1);
    assert_eq!(arena.blocks(), 2, "freed twice, told and ignored");
    device().finish(2);
    let after = arena.take(32 * KIB, 1);
    assert_eq!(after, block);
    assert!(device().waits.is_empty(), "nothing had to wait");
    arena.give(after, 1);
    arena.give(beside, 1);
    arena.assert_sound();
}

#[test]
fn without_room_the_stream_waits_for_the_further_ones_on_the_device() {
    let arena = Arena::open(5, 64 << 10);
    let block = arena.take(64 * KIB, 1);
    arena.abi.remat_cuda_record_stream(block, stream(2));
    let place = device().work(2);
    arena.give(block, 1);
    let reused = arena.take(64 * KIB, 3);
    assert_eq!(reused, block);
    assert!(device().is_before((2, place), 3));
    arena.give(reused, 3);
    assert_eq!(arena.blocks(), 0);
}

/// # Safety
/// The context is a pair of an arena and the blocks that may be freed, of stream 1.
unsafe extern "C" fn evict(_bytes: u64, context: *mut c_void) -> bool {
    // SAFETY: as promised; nobody else uses it meanwhile.
    let (arena, blocks) = unsafe { &mut *context.cast::<(&Arena, Vec<*mut c_void>)>() };
    let block = blocks.pop();
    block.map(|block| arena.give(block, 1)).is_some()
}

#[test]
fn an_evictor_makes_room_on_a_device() {
    let arena = Arena::open(6, 64 << 10);
    let blocks: Vec<_> = (0..4).map(|_| arena.take(16 * KIB, 1)).collect();
    let mut context = (&arena, blocks);
    arena
        .abi
        .remat_cuda_on_exhausted(Some(evict), (&raw mut context).cast());
    let block = arena.take(48 * KIB, 1);
    assert!(!block.is_null());
    assert_eq!(context.1.len(), 1);
    assert!(arena.take(128 * KIB, 1).is_null());
    assert_eq!(context.1.len(), 1, "no eviction makes the arena larger");
    assert!(arena.take(17 * KIB, 1).is_null());
    arena.abi.remat_cuda_on_exhausted(None, null_mut());
    assert_eq!(arena.abi.cuda_statistics(6).refusals, 2);
    arena.give(block, 1);
    arena.assert_sound();
}

#[test]
#[cfg(not(feature = "checker"))] // which ends the process
fn wrong_frees_and_sizes_change_nothing() {
    let arena = Arena::open(7, 64 << 10);
    let block = arena.take(16 * KIB, 1);
    for wrong in [
        block.wrapping_byte_add(512),
        block.wrapping_byte_add(1),
        block.wrapping_byte_sub(512),
        64 as *mut c_void,
    ] {
        arena.give(wrong, 1);
    }
    arena.give(null_mut(), 1);
    arena.give(block, 1);
    arena.give(block, 1);
    let seen = arena.abi.cuda_statistics(7);
    assert_eq!((seen.wrong_frees, seen.blocks), (5, 0));
    for bytes in [0, -1, isize::MIN, isize::MAX] {
        assert!(arena.take(bytes, 1).is_null(), "{bytes}");
    }
    arena.assert_sound();
}

#[test]
fn an_arena_that_cannot_be_is_refused() {
    let arena = Arena::open(8, 64 << 10);
    let block = arena.take(KIB, 1);
    let open = |number, bytes, alignment| arena.abi.remat_cuda_open(number, bytes, alignment);
    assert_eq!(open(8, 1 << 20, 0), libc::EBUSY);
    for (number, bytes, alignment) in [
        (9, 511, 512),
        (9, 1 << 63, 0),
        (9, 4096, 3),
        (-1, 4096, 0),
        (1 << 20, 4096, 0),
    ] {
        assert_eq!(
            open(number, bytes, alignment),
            libc::EINVAL,
            "{number} {bytes} {alignment}"
        );
    }
    assert_eq!(open(9, 1 << 40, 0), libc::ENOMEM);
    assert_eq!(
        open(9, 4 << 20, 4 << 20),
        libc::ENOMEM,
        "aligned to no more than 512"
    );
    assert!(
        arena
            .abi
            .remat_cuda_try_malloc(512, 9, null_mut())
            .is_null(),
        "never opened"
    );
    assert_eq!(arena.abi.remat_cuda_read(9, null_mut()), libc::ENOENT);
    arena.give(block, 1);
    assert_eq!(device().memory.len(), 1);
}

#[test]
fn streams_that_cannot_be_marked_or_waited_for_share_nothing() {
    let arena = Arena::open(10, 64 << 10);
    let block = arena.take(64 * KIB, 1);
    device().work(1);
    device().broken = true;
    arena.give(block, 1);
    assert_eq!(arena.blocks(), 1, "its free cannot be marked");
    device().broken = false;
    arena.give(block, 1);
    assert_eq!(arena.blocks(), 0);
    device().broken = true;
    assert!(arena.take(64 * KIB, 2).is_null());
    device().broken = false;
    let waits = device().waits.len();
    let block = arena.take(64 * KIB, 2);
    assert_eq!(device().waits.len(), waits + 1, "the fence is still up");
    arena.give(block, 2);
    arena.assert_sound();
}

#[test]
fn the_current_device_stays_current() {
    let arena = Arena::open(11, 64 << 10);
    device().current = 3;
    let block = arena.take(KIB, 1);
    arena.give(block, 1);
    assert_eq!(device().current, 3);
}

/// Who used each unit of 512 bytes last on each stream, and where in that stream.
type Uses = BTreeMap<usize, [u64; STREAMS]>;

struct Live {
    block: *mut c_void,
    bytes: usize,
    home: usize,
    /// All streams that it was used on; the program orders them among each other, not the allocator.
    users: Vec<usize>,
}

/// Enqueues work on the block's bytes, which must be safe to use on the stream.
fn use_block(uses: &mut Uses, live: &Live, on: usize, seed: u64) {
    let mut device = device();
    let place = device.work(on);
    for unit in (live.block as usize..live.block as usize + live.bytes).step_by(512) {
        let used = uses.entry(unit).or_default();
        for (other, &last) in used.iter().enumerate() {
            assert!(
                device.is_before((other, last), on),
                "seed {seed}: stream {on} uses {unit:#x} while stream {other} may"
            );
        }
        used[on] = place;
    }
}

fn race(arena: &Arena, seed: u64) {
    let mut random = Random(seed);
    let (mut uses, mut live) = (Uses::new(), Vec::<Live>::new());
    for _ in 0..400 {
        let on = random.below(STREAMS as u64) as usize;
        match random.below(8) {
            0..=2 => {
                let bytes = 512 * (1 + random.below(40)) as usize;
                let block = arena.take(bytes as isize, on);
                if !block.is_null() {
                    let fresh = Live {
                        block,
                        bytes,
                        home: on,
                        users: vec![on],
                    };
                    use_block(&mut uses, &fresh, on, seed);
                    live.push(fresh);
                }
            }
            3..=5 if !live.is_empty() => {
                let gone = live.swap_remove(random.below(live.len() as u64) as usize);
                arena.give(gone.block, gone.home);
            }
            6 if !live.is_empty() => {
                let at = random.below(live.len() as u64) as usize;
                let shared = &mut live[at];
                arena.abi.remat_cuda_record_stream(shared.block, stream(on));
                shared
                    .users
                    .iter()
                    .for_each(|&user| device().join(on, user));
                shared.users.push(on);
                use_block(&mut uses, shared, on, seed);
            }
            _ => device().finish(on),
        }
    }
    live.drain(..)
        .for_each(|gone| arena.give(gone.block, gone.home));
    arena.assert_sound();
}

#[test]
fn no_schedule_of_streams_races() {
    let arena = Arena::open(12, 64 << 10);
    for seed in 0..300 {
        race(&arena, seed);
    }
    let waits = device().waits.len();
    assert!(
        waits > 1000,
        "{waits} waits: the schedules did not share bytes"
    );
}
