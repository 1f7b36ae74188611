//! Remat's memory pool as a real allocator: tensors live in one arena of exactly the budget. The allocator itself
//! enforces the budget, temporaries included, and the arena's high-water mark is the true peak.
//!
//! - **CPU**: this library is preloaded (`LD_PRELOAD`, as people run torch with jemalloc or tcmalloc) and stands in for
//!   the C library's aligned allocation. `REMAT_ARENA=BYTES[,ALIGNMENT]` opens the arena when the program starts,
//!   `remat_arena_open` later.
//! - **CUDA**: `torch.cuda.memory.CUDAPluggableAllocator` takes the functions `remat_cuda_malloc` and
//!   `remat_cuda_free`.
//!
//! The C ABI is documented in `remat_arena.h` beside this crate's manifest. The pool itself is [`remat_core::pool`].
//!
//! # How torch allocates on CPUs
//! Counted calls of two training steps of a convolutional network, an LSTM and a transformer layer, on torch 2.15 and
//! 2.11:
//! - tensors come from `libc10.so` and only by `posix_memalign(.., 64, bytes)`, freed by `free`; with
//!   `THP_MEM_ALLOC_ENABLE=1` those of 2 MiB or more are aligned to 4096;
//! - `libtorch_cpu.so` (oneDNN) asks `posix_memalign` for scratch memory and for the descriptions of primitives it
//!   caches (512 bytes to 32 KiB) with alignment 64, and for generated code (64 KiB each) with alignment 4096;
//! - `libtorch_cpu.so` asked `malloc` for three MiB, buffers of matrix multiplication.
//!
//! So blocks of 1 KiB or more with an alignment of 64 or more are placed in the arena. Those of oneDNN's scratch memory
//! are among them, since a step's temporaries are part of its peak. Smaller blocks, page-aligned ones below 2 MiB, and
//! all blocks of `malloc` and `calloc` are the system's.
//!
//! # Failures, and what follows
//! - *No room*: the registered evictor is called, without the lock, and the allocation tried again. If nobody makes
//!   room, the caller gets `ENOMEM`, which torch raises as `RuntimeError: ... DefaultCPUAllocator: can't allocate
//!   memory`. oneDNN does not check its blocks, and the program would crash. The file that called tells oneDNN from
//!   torch's allocator, and the system serves oneDNN where the arena cannot (`spills`).
//! - *A block freed twice, or an address amid a block*: one line on stderr, counted as a wrong free, and ignored. The
//!   checker build aborts. Pointers outside of the arena go to the system's allocator with its own checks.
//! - *Fork*: the child has a copy of the arena. It may free the blocks that it inherited; its new blocks are the
//!   system's.
//! - *Feature `checker`*: free memory is poisoned, and every operation is checked against a ledger of live blocks, the
//!   pool's invariants, and the poison. Any violation aborts with a line.

mod arena;
mod caller;
#[cfg(feature = "checker")]
mod checker;
mod cuda;
mod evictor;
mod expected;
mod exports;
mod fork;
#[cfg_attr(test, allow(dead_code))] // the names are the C library's there
mod interpose;
mod mapping;
mod placement;
mod region;
mod report;
mod setting;
mod start;
mod system;
mod temporaries;

pub use cuda::*;
pub use exports::*;
