//! Remat's memory pool as a real allocator: tensors live in one arena of exactly the budget, so that the budget is enforced by the
//! allocator itself, temporaries included, and the arena's high-water mark is the true peak.
//!
//! - **CPU**: this library is preloaded (`LD_PRELOAD`, as people run torch with jemalloc or tcmalloc) and stands in for the
//!   C library's aligned allocation. `REMAT_ARENA=BYTES[,ALIGNMENT]` opens the arena when the program starts,
//!   `remat_arena_open` later.
//! - **CUDA**: `remat_cuda_malloc` and `remat_cuda_free` are what `torch.cuda.memory.CUDAPluggableAllocator` asks for.
//!
//! The C ABI is documented in `remat_arena.h` beside this crate's manifest. The pool itself is [`remat_core::pool`].
//!
//! # How torch allocates on CPUs
//! Found on torch 2.15 and 2.11 by counting calls of two training steps of a convolutional network, an LSTM and a transformer layer:
//! - tensors come from `libc10.so` and only by `posix_memalign(.., 64, bytes)`, freed by `free`; with `THP_MEM_ALLOC_ENABLE=1`
//!   those of 2 MiB or more are aligned to 4096;
//! - `libtorch_cpu.so` (oneDNN) asks `posix_memalign` for scratch memory and for the descriptions of primitives it caches (512 bytes
//!   to 32 KiB) with alignment 64, and for generated code (64 KiB each) with alignment 4096;
//! - the three MiB that it asked `malloc` for were buffers of matrix multiplication.
//!
//! So what asks for an alignment of 64 or more, and for 1 KiB or more, is placed in the arena, oneDNN's scratch memory with it:
//! a step's temporaries are part of its peak. Smaller blocks, page-aligned ones below 2 MiB, and all that `malloc` and
//! `calloc` give are the system's.
//!
//! # What goes wrong, and what then
//! - *No room*: the registered evictor is called, without the lock, and the allocation tried again; if nobody makes room, the
//!   caller gets `ENOMEM`, which torch raises as `RuntimeError: ... DefaultCPUAllocator: can't allocate memory`. oneDNN does not look
//!   at what it gets, and the program would end there: it is told from torch's allocator by the file that called, and the system
//!   serves what the arena cannot (`spills`).
//! - *A block freed twice, or an address amid a block*: one line on stderr, counted as a wrong free, and ignored. Aborts in
//!   the checker build. Pointers outside of the arena are the system allocator's, checks included.
//! - *Fork*: the child has a copy of the arena; it may free what it inherited, new blocks are the system's.
//! - *Feature `checker`*: free memory is poisoned, and every operation is checked against a ledger of live blocks, the pool's
//!   invariants, and the poison; anything wrong aborts with a line.

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

pub use cuda::*;
pub use exports::*;
