//! The same pool behind torch's `CUDAPluggableAllocator`: one `cudaMalloc` of the budget a device, blocks handed out from it.
//!
//! Streams are respected. A block that is freed on a stream may be reused on that stream at once: what was enqueued there before
//! runs before. On any other stream it may be reused only after an event recorded at the free: a [`Fence`](fences) on its bytes
//! remembers it, and whoever takes such bytes on another stream has that stream wait for the event, on the device. A block that
//! other streams were told to use (`record_stream`) is not free before the events of those streams have come.
//!
//! The functions of the CUDA runtime are reached through a [table](functions), filled from the loaded runtime at first use, or
//! by tests from host memory and hand-driven events.

mod events;
mod exports;
mod fences;
mod functions;
mod raise;
mod space;
mod spaces;

pub use exports::*;
