//! The same pool behind torch's `CUDAPluggableAllocator`: one `cudaMalloc` of the budget a device, blocks handed out
//! from it.
//!
//! Streams are respected. A block that is freed on a stream may be reused on that stream at once, because work enqueued
//! there earlier runs earlier. Any other stream may reuse it only after an event recorded at the free. A
//! [`Fence`](fences) on its bytes keeps the event, and a stream that takes such bytes is made to wait for it, on the
//! device. A block that further streams use (`record_stream`) is not free before the events of those streams have come.
//!
//! The functions of the CUDA runtime are reached through a [table](functions). It is filled from the loaded runtime at
//! first use, or by tests, with host memory and events driven by hand.

mod events;
mod exports;
mod fences;
mod functions;
mod raise;
mod space;
mod spaces;

pub use exports::*;
