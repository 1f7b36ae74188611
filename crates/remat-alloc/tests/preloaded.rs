//! The arena under a program's own allocations: each test runs in a process with the library preloaded.

mod abi;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;

use abi::{Abi, Block, Random, aligned, free, in_arena, passes_in_arena, shown, tensor};

const MIB: usize = 1 << 20;

#[test]
fn tensors_are_placed_in_the_arena_and_the_rest_is_the_systems() {
    passes_in_arena(
        "tensors_are_placed_in_the_arena_and_the_rest_is_the_systems",
        "1048576",
        |abi| {
            let inside = |block: *mut c_void| {
                let owned = abi.remat_arena_owns(block);
                free(block);
                owned
            };
            assert!(inside(tensor(1024).unwrap()));
            assert!(inside(tensor(MIB).unwrap()));
            assert!(!inside(tensor(0).unwrap()));
            assert!(!inside(tensor(1023).unwrap()));
            assert!(!inside(aligned(65536, 32).unwrap()));
            assert!(!inside(aligned(65536, 4096).unwrap()), "generated code");
            // SAFETY: a size.
            assert!(!inside(unsafe { libc::malloc(65536) }));
            let seen = abi.statistics();
            assert_eq!(
                (seen.capacity, seen.in_use, seen.high_water),
                (1 << 20, 0, 1 << 20)
            );
            assert_eq!((seen.allocations, seen.frees, seen.blocks), (2, 2, 0));
            abi.assert_sound();
        },
    );
}

/// A block with a pattern in it that no other block has.
struct Marked {
    block: usize,
    bytes: usize,
    mark: u8,
}

impl Marked {
    fn new(bytes: usize, mark: u8) -> Option<Marked> {
        let block = tensor(bytes).ok()?;
        // SAFETY: so many bytes were just allocated.
        unsafe { block.cast::<u8>().write_bytes(mark, bytes) };
        Some(Marked {
            block: block as usize,
            bytes,
            mark,
        })
    }

    fn check_and_free(self) {
        // SAFETY: the block is live and was written to as a whole.
        let memory = unsafe { std::slice::from_raw_parts(self.block as *const u8, self.bytes) };
        assert!(
            memory.iter().all(|&byte| byte == self.mark),
            "another block was written over this one"
        );
        free(self.block as *mut c_void);
    }
}

/// Allocates and frees at random, and hands every fourth block to another thread to free.
fn storm(seed: u64, rounds: u64, hand: &dyn Fn(Marked), handed: &dyn Fn() -> Option<Marked>) {
    let mut random = Random(seed);
    let mut live = Vec::new();
    for round in 0..rounds {
        let bytes = 1 << random.below(17);
        let bytes = bytes + random.below(bytes);
        match random.below(4) {
            0 | 1 => live.extend(Marked::new(bytes as usize, (seed * 61 + round) as u8)),
            2 if !live.is_empty() => {
                let gone = random.below(live.len() as u64) as usize;
                live.swap_remove(gone).check_and_free();
            }
            _ => {
                if let Some(marked) = live.pop() {
                    hand(marked);
                }
            }
        }
        while let Some(marked) = handed() {
            marked.check_and_free();
        }
    }
    live.into_iter().for_each(Marked::check_and_free);
}

fn storm_of_threads(threads: u64, rounds: u64) {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..threads).map(|_| channel::<Marked>()).unzip();
    thread::scope(|scope| {
        for (seed, receiver) in receivers.into_iter().enumerate() {
            let next = senders[(seed + 1) % threads as usize].clone();
            scope.spawn(move || {
                storm(
                    seed as u64,
                    rounds,
                    &|marked| {
                        next.send(marked)
                            .unwrap_or_else(|back| back.0.check_and_free())
                    },
                    &|| receiver.try_recv().ok(),
                );
                drop(next);
                receiver.into_iter().for_each(Marked::check_and_free);
            });
        }
        drop(senders);
    });
}

#[test]
fn a_storm_of_threads_never_meets_in_a_block() {
    passes_in_arena(
        "a_storm_of_threads_never_meets_in_a_block",
        "1048576",
        |abi| {
            storm_of_threads(
                4,
                if cfg!(feature = "checker") {
                    2_000
                } else {
                    20_000
                },
            );
            let seen = abi.statistics();
            assert_eq!((seen.in_use, seen.blocks, seen.wrong_frees), (0, 0, 0));
            assert!(
                seen.refusals > 0 && seen.high_water > seen.capacity / 2,
                "{seen:?}"
            );
            assert_eq!(seen.largest_free, seen.capacity);
            abi.assert_sound();
        },
    );
}

#[test]
fn sizes_and_alignments_that_are_none() {
    passes_in_arena("sizes_and_alignments_that_are_none", "1000001,64", |abi| {
        let capacity = abi.statistics().capacity;
        assert_eq!(capacity, 1_000_000);
        for bytes in [
            capacity as usize + 1,
            1 << 40,
            1 << 63,
            usize::MAX,
            usize::MAX - 63,
        ] {
            assert_eq!(tensor(bytes), Err(libc::ENOMEM), "{bytes}");
        }
        for alignment in [0, 1, 3, 65, 100, usize::MAX] {
            assert_eq!(aligned(4096, alignment), Err(libc::EINVAL), "{alignment}");
        }
        for alignment in [1 << 30, 1 << 62] {
            assert_eq!(
                aligned(4 * MIB, alignment).map(free),
                Err(libc::ENOMEM),
                "{alignment}"
            );
        }
        assert_eq!(abi.statistics().refusals, 7);
        let all = tensor(capacity as usize).unwrap();
        assert_eq!(tensor(1024), Err(libc::ENOMEM));
        free(all);
        abi.assert_sound();
    });
}

#[test]
fn every_alignment_is_kept() {
    passes_in_arena("every_alignment_is_kept", "67108864,64", |abi| {
        let small = tensor(1024).unwrap();
        for shift in 6..22 {
            let alignment = 1usize << shift;
            let block = aligned(2 * MIB, alignment).unwrap();
            assert!(
                abi.remat_arena_owns(block) && block as usize % alignment == 0,
                "{alignment}"
            );
            assert_eq!(abi.remat_arena_size_of(block), 2 * MIB as u64);
            free(block);
        }
        free(small);
        abi.assert_sound();
    });
}

#[test]
fn the_arena_takes_any_alignment_of_its_own() {
    passes_in_arena(
        "the_arena_takes_any_alignment_of_its_own",
        "8388608,2097152",
        |abi| {
            let block = tensor(1024).unwrap();
            assert_eq!(block as usize % (2 * MIB), 0);
            assert_eq!(abi.statistics().in_use, 2 << 20);
            free(block);
        },
    );
}

/// Blocks that the evictor may free, oldest first, and what it was asked.
#[derive(Default)]
struct Evictable {
    blocks: Vec<usize>,
    asked: Vec<u64>,
    nested: Vec<Result<usize, i32>>,
}

/// # Safety
/// The context is a `Mutex<Evictable>`.
unsafe extern "C" fn evict_oldest(bytes: u64, context: *mut c_void) -> bool {
    // SAFETY: as promised.
    let evictable = unsafe { &*context.cast::<Mutex<Evictable>>() };
    let mut evictable = evictable.lock().unwrap();
    evictable.asked.push(bytes);
    if evictable.blocks.is_empty() {
        return false;
    }
    let oldest = evictable.blocks.remove(0);
    free(oldest as *mut c_void);
    let nested = tensor(64 * MIB / 2).map(|block| block as usize);
    evictable.nested.push(nested);
    true
}

#[test]
fn the_evictor_is_asked_until_there_is_room() {
    passes_in_arena(
        "the_evictor_is_asked_until_there_is_room",
        "8388608",
        |abi| {
            let blocks = (0..8).map(|_| tensor(MIB).unwrap() as usize).collect();
            let evictable = Mutex::new(Evictable {
                blocks,
                ..Evictable::default()
            });
            abi.remat_arena_on_exhausted(Some(evict_oldest), (&raw const evictable) as *mut c_void);
            let large = tensor(3 * MIB).unwrap();
            assert_eq!(evictable.lock().unwrap().asked, [3 * MIB as u64; 3]);
            assert_eq!(
                evictable.lock().unwrap().nested,
                [Err(libc::ENOMEM); 3],
                "what is nested is not asked for again"
            );
            assert_eq!(tensor(7 * MIB), Err(libc::ENOMEM));
            assert_eq!(
                evictable.lock().unwrap().asked.len(),
                3 + 6,
                "five evictions did not do"
            );
            assert!(tensor(9 * MIB).is_err());
            assert_eq!(
                evictable.lock().unwrap().asked.len(),
                9,
                "no eviction makes the arena larger"
            );
            let seen = abi.statistics();
            assert_eq!((seen.exhaustions, seen.fragmentation_max), (3 + 6, 0.625));
            free(large);
            abi.remat_arena_on_exhausted(None, null_mut());
            abi.assert_sound();
        },
    );
}

/// # Safety
/// Any context.
unsafe extern "C" fn pretend(_bytes: u64, _context: *mut c_void) -> bool {
    true
}

#[test]
fn an_evictor_that_frees_nothing_ends_in_no_loop() {
    passes_in_arena(
        "an_evictor_that_frees_nothing_ends_in_no_loop",
        "1048576",
        |abi| {
            let all = tensor(MIB).unwrap();
            abi.remat_arena_on_exhausted(Some(pretend), null_mut());
            assert_eq!(tensor(1024), Err(libc::ENOMEM));
            assert_eq!(abi.statistics().exhaustions, 2);
            free(all);
        },
    );
}

#[test]
fn several_threads_are_out_of_room_at_once() {
    passes_in_arena(
        "several_threads_are_out_of_room_at_once",
        "8388608",
        |abi| {
            let evictable: &'static Mutex<Evictable> = Box::leak(Box::default());
            abi.remat_arena_on_exhausted(
                Some(evict_oldest),
                std::ptr::from_ref(evictable) as *mut c_void,
            );
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..500 {
                            // None of the blocks is touched: another thread may evict it at once.
                            if let Ok(block) = tensor(MIB) {
                                evictable.lock().unwrap().blocks.push(block as usize);
                            }
                        }
                    });
                }
            });
            abi.remat_arena_on_exhausted(None, null_mut());
            evictable
                .lock()
                .unwrap()
                .blocks
                .drain(..)
                .for_each(|block| free(block as *mut c_void));
            assert_eq!(abi.statistics().blocks, 0);
            abi.assert_sound();
        },
    );
}

fn in_child(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child ends by `_exit`, and allocates only what an allocator that minds forks allows.
    unsafe {
        match libc::fork() {
            0 => libc::_exit(if body() { 0 } else { 1 }),
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
            }
        }
    }
}

#[test]
fn a_forked_child_frees_what_it_inherits_and_allocates_from_the_system() {
    passes_in_arena(
        "a_forked_child_frees_what_it_inherits_and_allocates_from_the_system",
        "1048576",
        |abi| {
            let inherited = Marked::new(MIB, 7).unwrap();
            let (block, bytes) = (inherited.block, inherited.bytes);
            abi.remat_arena_on_exhausted(Some(pretend), null_mut());
            assert!(in_child(|| {
                let own = tensor(4 * MIB).unwrap();
                let systems = !abi.remat_arena_owns(own);
                free(own);
                // SAFETY: the block is live in the child too; its pages are the child's own.
                unsafe { (block as *mut u8).write_bytes(9, bytes) };
                free(block as *mut c_void);
                let seen = abi.statistics();
                let reopened = abi.remat_arena_open(1 << 20, 64) == 0
                    && abi.remat_arena_owns(tensor(MIB).unwrap());
                systems && seen.blocks == 0 && reopened
            }));
            inherited.check_and_free();
            abi.assert_sound();
        },
    );
}

#[test]
fn forks_amid_a_storm_of_threads_live() {
    passes_in_arena("forks_amid_a_storm_of_threads_live", "4194304", |abi| {
        thread::scope(|scope| {
            let storm = scope.spawn(|| {
                storm_of_threads(
                    3,
                    if cfg!(feature = "checker") {
                        1_000
                    } else {
                        10_000
                    },
                )
            });
            let mut forks = 0;
            while !storm.is_finished() || forks < 20 {
                assert!(in_child(|| {
                    let sound = abi.remat_arena_check(null_mut(), 0) == 0;
                    let block = tensor(MIB).unwrap();
                    free(block);
                    sound
                }));
                forks += 1;
            }
        });
        assert_eq!(abi.statistics().blocks, 0);
        abi.assert_sound();
    });
}

#[test]
fn realloc_and_its_kin_keep_what_is_there() {
    passes_in_arena("realloc_and_its_kin_keep_what_is_there", "4194304", |abi| {
        // SAFETY: sizes, and blocks that are live.
        unsafe {
            for block in [libc::aligned_alloc(64, 4096), libc::memalign(256, 4096)] {
                assert!(abi.remat_arena_owns(block));
                assert_eq!(libc::malloc_usable_size(block), 4096);
                block.cast::<u8>().write_bytes(5, 4096);
                let smaller = libc::realloc(block, 10);
                assert_eq!(smaller, block);
                let larger = libc::realloc(block, MIB);
                assert!(abi.remat_arena_owns(larger) && larger != block);
                let kept = std::slice::from_raw_parts(larger.cast::<u8>(), 4096);
                assert!(kept.iter().all(|&byte| byte == 5));
                assert!(libc::realloc(larger, 1 << 40).is_null());
                assert_eq!(libc::malloc_usable_size(larger), MIB);
                assert!(libc::realloc(larger, 0).is_null());
            }
            let systems = libc::realloc(libc::malloc(10), MIB);
            assert!(!abi.remat_arena_owns(systems) && libc::malloc_usable_size(systems) >= MIB);
            free(systems);
        }
        assert_eq!(abi.statistics().blocks, 0);
        abi.assert_sound();
    });
}

#[test]
fn free_leaves_errno_alone() {
    passes_in_arena("free_leaves_errno_alone", "4194304", |_| {
        let block = tensor(4096).unwrap();
        // SAFETY: the C library's own `errno`.
        unsafe {
            *libc::__errno_location() = 77;
            free(block);
            free(null_mut());
            assert_eq!(*libc::__errno_location(), 77);
        }
    });
}

#[test]
#[cfg(not(feature = "checker"))]
fn wrong_frees_are_told_and_change_nothing() {
    let name = "wrong_frees_are_told_and_change_nothing";
    let ended = in_arena(name, "1048576", |abi| {
        let (twice, live) = (tensor(65536).unwrap(), tensor(65536).unwrap());
        free(twice);
        free(twice);
        free(live.wrapping_byte_add(64));
        free(live.wrapping_byte_add(1));
        assert_eq!(abi.statistics().wrong_frees, 3);
        assert_eq!(abi.statistics().blocks, 1);
        free(live);
        abi.assert_sound();
    });
    let Some(output) = ended else { return };
    let text = shown(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches("was ignored: address").count(), 3, "{text}");
    assert!(
        text.contains("was freed before or never allocated")
            && text.contains("lies inside the block"),
        "{text}"
    );
}

#[test]
#[cfg(feature = "checker")]
fn the_checker_ends_on_wrong_frees_and_writes() {
    use std::os::unix::process::ExitStatusExt;

    use abi::{part, part_in_arena};

    let name = "the_checker_ends_on_wrong_frees_and_writes";
    type Deed = (&'static str, fn(*mut c_void), &'static str);
    let deeds: [Deed; 3] = [
        (
            "twice",
            |block| (free(block), free(block)).1,
            "checker: wrong free",
        ),
        (
            "amid",
            |block| free(block.wrapping_byte_add(64)),
            "checker: wrong free",
        ),
        (
            "after",
            |block| {
                free(block);
                // SAFETY: none; the checker is there to find it.
                unsafe { *block.cast::<u8>().add(100) = 1 };
                let _ = tensor(65536);
            },
            "+ 100 was written to after",
        ),
    ];
    for (deed, act, told) in deeds {
        if part().is_some_and(|wanted| wanted != deed) {
            continue;
        }
        let act = |_: &Abi| act(tensor(65536).unwrap());
        let Some(output) = part_in_arena(name, deed, "1048576", act) else {
            return;
        };
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{deed}");
        assert!(shown(&output).contains(told), "{deed}: {}", shown(&output));
    }
}

#[test]
fn a_hundred_thousand_blocks_and_the_pools_own_memory() {
    let blocks = if cfg!(feature = "checker") {
        2_000
    } else {
        100_000
    };
    passes_in_arena(
        "a_hundred_thousand_blocks_and_the_pools_own_memory",
        "134217728",
        |abi| {
            let live: Vec<_> = (0..blocks).map(|_| tensor(1024).unwrap()).collect();
            assert_eq!(abi.statistics().blocks, blocks as u64);
            live.iter().step_by(2).for_each(|&block| free(block));
            live.iter()
                .skip(1)
                .step_by(2)
                .for_each(|&block| free(block));
            assert_eq!(abi.statistics().largest_free, 134_217_728);
            abi.assert_sound();
        },
    );
}

#[test]
fn blocks_go_where_the_thread_wants_them() {
    passes_in_arena("blocks_go_where_the_thread_wants_them", "16777216", |abi| {
        let offset = |block: *mut c_void| block as usize - abi.remat_arena_base() as usize;
        let [large, wall, small, other_wall] = [2, 1, 1, 1].map(|mib| tensor(mib * MIB).unwrap());
        free(large);
        free(small);
        let placed = |end, fit| {
            assert_eq!(abi.remat_arena_place(end, fit), 0);
            let block = tensor(MIB).unwrap();
            free(block);
            offset(block) / MIB
        };
        assert_eq!(
            [placed(0, 0), placed(0, 1), placed(1, 0), placed(1, 1)],
            [0, 3, 15, 3]
        );
        let elsewhere = thread::spawn(|| tensor(MIB).unwrap() as usize)
            .join()
            .unwrap() as *mut c_void;
        assert_eq!(
            offset(elsewhere),
            3 * MIB,
            "another thread says nothing: low, best"
        );
        let small = tensor(2048).unwrap();
        assert_eq!(
            offset(small),
            16 * MIB - 2048,
            "small blocks keep to the high end"
        );
        for (end, fit) in [(2, 0), (0, 2), (-1, 0)] {
            assert_eq!(abi.remat_arena_place(end, fit), libc::EINVAL);
        }
        [wall, other_wall, elsewhere, small]
            .into_iter()
            .for_each(free);
        abi.assert_sound();
    });
}

#[test]
fn blocks_are_listed_side_by_side() {
    passes_in_arena("blocks_are_listed_side_by_side", "4194304", |abi| {
        let [low, gone, high] = [0, 0, 0].map(|_| tensor(MIB).unwrap());
        free(gone);
        let mut blocks = [Block::default(); 4];
        assert_eq!(abi.remat_arena_blocks(blocks.as_mut_ptr(), 4), 4);
        let base = abi.remat_arena_base() as u64;
        let found =
            blocks.map(|block| ((block.address - base) >> 20, block.bytes >> 20, block.taken));
        assert_eq!(
            found,
            [(0, 1, true), (1, 1, false), (2, 1, true), (3, 1, false)]
        );
        assert_eq!(abi.remat_arena_blocks(null_mut(), 0), 4);
        blocks[1].bytes = 77;
        assert_eq!(
            (
                abi.remat_arena_blocks(blocks.as_mut_ptr(), 1),
                blocks[1].bytes
            ),
            (4, 77)
        );
        [low, high].into_iter().for_each(free);
    });
}

#[test]
fn an_arena_is_opened_closed_and_replaced() {
    passes_in_arena("an_arena_is_opened_closed_and_replaced", "1048576", |abi| {
        let block = tensor(65536).unwrap();
        assert_eq!(abi.remat_arena_open(2 << 20, 0), 0);
        assert_eq!(abi.statistics().blocks, 0, "the one before counts no more");
        assert!(abi.remat_arena_owns(block));
        free(block);
        assert_eq!(abi.remat_arena_open(1 << 20, 0), 0);
        let block = tensor(65536).unwrap();
        abi.remat_arena_close();
        let systems = tensor(65536).unwrap();
        assert!(!abi.remat_arena_owns(systems));
        assert_eq!(
            abi.remat_arena_open(1 << 20, 0),
            0,
            "the same size serves again"
        );
        assert_eq!(abi.statistics().blocks, 1);
        free(systems);
        free(block);
        for (bytes, alignment) in [
            (0, 0),
            (63, 64),
            (1 << 20, 3),
            (1 << 63, 64),
            (u64::MAX, 64),
            (64, 128),
        ] {
            assert_eq!(
                abi.remat_arena_open(bytes, alignment),
                libc::EINVAL,
                "{bytes} {alignment}"
            );
        }
        assert_eq!(abi.remat_arena_open(1 << 62, 64), libc::ENOMEM);
        assert_eq!(
            abi.statistics().capacity,
            1 << 20,
            "a refusal leaves what is open"
        );
        assert_eq!(abi.remat_arena_open(2 << 20, 128), 0);
        free(tensor(2 * MIB).unwrap());
        assert_eq!(abi.statistics().high_water, 2 << 20);
        abi.remat_arena_restart_peak();
        assert_eq!(abi.statistics().high_water, 0);
    });
}

#[test]
fn a_setting_that_is_none_ends_the_program_before_it_starts() {
    for (setting, told) in [
        ("12x", "\"12x\" is no number of bytes"),
        ("", "is no number of bytes"),
        ("4096,100", "100 is no power of two"),
        ("32,64", "does not hold one block"),
        ("4611686018427387904", "cannot reserve addresses"),
    ] {
        let name = "a_setting_that_is_none_ends_the_program_before_it_starts";
        let output = in_arena(name, setting, |_| panic!("it started")).unwrap();
        let text = shown(&output);
        assert_eq!(output.status.code(), Some(2), "{setting}: {text}");
        assert!(
            text.starts_with(&format!("remat: REMAT_ARENA={setting}: ")) && text.contains(told),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1);
    }
}

#[test]
fn a_library_that_is_only_loaded_opens_no_arena() {
    let abi = Abi::open();
    assert_eq!(abi.remat_arena_open(1 << 20, 64), libc::ENOTSUP);
    assert!(!abi.remat_arena_owns(tensor(65536).unwrap()));
}
