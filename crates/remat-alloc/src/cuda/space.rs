//! The arena of one device: blocks, fences, and blocks that wait for other streams.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use remat_core::pool::Pool;

use super::events::{EventId, Events};
use super::fences::{Fence, Fences};
use super::functions::{CudaFunctions, Current, Stream, succeeded};
use crate::placement::Placement;
use crate::region::Region;
use crate::report;

/// The runtime's error while the process ends (`cudaErrorCudartUnloading`), which is not worth a line.
const UNLOADING: c_int = 4;

/// The arena of one device.
pub struct Space {
    cuda: CudaFunctions,
    device: c_int,
    region: Region,
    events: Events,
    fences: Fences,
    /// Blocks that were used on further streams, with the stream's handle.
    used_on: Vec<(u64, usize)>,
    waiting: Vec<Waiting>,
}

/// A freed block that further streams may still be using. It stays taken in the pool.
struct Waiting {
    address: u64,
    home: usize,
    /// Recorded on the block's own stream at the free.
    freed: EventId,
    /// Recorded on the further streams at the free.
    used: Vec<EventId>,
}

impl Space {
    /// Takes the memory of a pool from a device.
    ///
    /// # Errors
    /// One line.
    pub fn open(cuda: CudaFunctions, device: c_int, pool: Pool) -> Result<Space, String> {
        let bytes = pool.capacity();
        let failed = |number: c_int| {
            format!(
                "device {device} has no {bytes} bytes for the arena (CUDA error {number}); make it smaller"
            )
        };
        let _current = Current::on(cuda, device).map_err(failed)?;
        let mut memory = null_mut();
        // SAFETY: `memory` is a place for a pointer.
        succeeded(unsafe { (cuda.malloc)(&mut memory, bytes as usize) }).map_err(failed)?;
        if memory as u64 % pool.alignment() != 0 {
            // SAFETY: the memory was just allocated, and nobody uses it.
            unsafe { (cuda.free)(memory) };
            return Err(format!(
                "device {device} does not align to {} bytes; take a smaller alignment",
                pool.alignment()
            ));
        }
        Ok(Space {
            cuda,
            device,
            region: Region::new(memory as u64, pool),
            events: Events::default(),
            fences: Fences::default(),
            used_on: Vec::new(),
            waiting: Vec::new(),
        })
    }

    /// The blocks and counts.
    pub fn region(&mut self) -> &mut Region {
        &mut self.region
    }

    /// Takes a block for a stream; `None` if there is none.
    pub fn take(
        &mut self,
        bytes: u64,
        stream: Stream,
        placement: Placement,
    ) -> Option<*mut c_void> {
        let _current = Current::on(self.cuda, self.device).ok()?;
        self.settle();
        let mut address = self.region.take(bytes, 1, placement);
        if address.is_none() && self.adopt_waiting(stream) {
            address = self.region.take(bytes, 1, placement);
        }
        let Some(address) = address else {
            self.region.exhausted();
            return None;
        };
        match self.pass_fences(address, stream) {
            Ok(()) => Some(address as *mut c_void),
            Err(number) => {
                report::line(format_args!(
                    "a stream of device {} cannot wait for another (CUDA error {number})",
                    self.device
                ));
                let _ = self.region.give(address); // just taken; its fences are still up
                None
            }
        }
    }

    /// Has the stream wait for the streams that may still use the block's bytes, and takes the fences off them.
    fn pass_fences(&mut self, address: u64, stream: Stream) -> Result<(), c_int> {
        let end = address + self.region.size_of(address).unwrap_or(0);
        let mut waited = None;
        for fence in self.fences.over(address, end) {
            let passed = fence.stream == stream as usize || waited == Some(fence.event);
            if !passed && !self.events.came(&self.cuda, fence.event) {
                self.events.wait(&self.cuda, stream, fence.event)?;
                waited = Some(fence.event);
            }
        }
        self.fences.lift(&mut self.events, address, end);
        Ok(())
    }

    /// Notes that a block is used on a stream beside its own.
    pub fn used_on(&mut self, block: *mut c_void, stream: Stream) {
        let noted = (block as u64, stream as usize);
        if self.region.size_of(noted.0).is_some() && !self.used_on.contains(&noted) {
            self.used_on.push(noted);
        }
    }

    /// Gives back a block that was used on `stream`. A pointer to no block is ignored, with a line on stderr. So is a
    /// block whose free cannot be marked on its stream.
    pub fn give(&mut self, block: *mut c_void, stream: Stream) {
        let address = block as u64;
        if self
            .waiting
            .iter()
            .any(|waiting| waiting.address == address)
        {
            report::line(format_args!(
                "cuda free({block:p}) was ignored: it was freed before; free each block once"
            ));
            return;
        }
        if self.region.size_of(address).is_none() {
            if let Err(wrong) = self.region.give(address) {
                report::line(format_args!("cuda free({block:p}) was ignored: {wrong}"));
            }
            return;
        }
        if let Err(number) = self.mark_freed(address, stream) {
            if number != UNLOADING {
                report::line(format_args!(
                    "cuda free({block:p}): its stream cannot be marked (CUDA error {number}); it stays taken"
                ));
            }
        }
    }

    fn mark_freed(&mut self, address: u64, stream: Stream) -> Result<(), c_int> {
        let _current = Current::on(self.cuda, self.device)?;
        let freed = self.events.record(&self.cuda, stream)?;
        let mut used = Vec::new();
        for at in (0..self.used_on.len()).rev() {
            if self.used_on[at].0 == address {
                let (_, other) = self.used_on.swap_remove(at);
                if other != stream as usize {
                    used.push(self.events.record(&self.cuda, other as Stream)?);
                }
            }
        }
        let waiting = Waiting {
            address,
            home: stream as usize,
            freed,
            used,
        };
        if waiting.used.is_empty() {
            self.release(waiting);
        } else {
            self.waiting.push(waiting);
        }
        Ok(())
    }

    /// Frees the waiting blocks with which all streams are done.
    fn settle(&mut self) {
        for at in (0..self.waiting.len()).rev() {
            if self.waiting[at]
                .used
                .iter()
                .all(|&event| self.events.came(&self.cuda, event))
            {
                let settled = self.waiting.swap_remove(at);
                self.release(settled);
            }
        }
    }

    /// Makes all waiting blocks this stream's, which waits for the others on the device. Returns whether there were
    /// any.
    fn adopt_waiting(&mut self, stream: Stream) -> bool {
        let mut adopted = false;
        while let Some(waiting) = self.waiting.pop() {
            match self.adopted(&waiting, stream) {
                Ok(freed) => {
                    self.events.release(waiting.freed);
                    self.release(Waiting {
                        home: stream as usize,
                        freed,
                        ..waiting
                    });
                    adopted = true;
                }
                Err(_) => {
                    self.waiting.push(waiting);
                    return adopted;
                }
            }
        }
        adopted
    }

    fn adopted(&mut self, waiting: &Waiting, stream: Stream) -> Result<EventId, c_int> {
        for &event in waiting.used.iter().chain([&waiting.freed]) {
            self.events.wait(&self.cuda, stream, event)?;
        }
        self.events.record(&self.cuda, stream)
    }

    /// Gives a block back to the pool, behind a fence.
    fn release(&mut self, waiting: Waiting) {
        for event in waiting.used {
            self.events.release(event);
        }
        let start = waiting.address;
        match self.region.give(start) {
            Ok(bytes) => {
                let fence = Fence {
                    start,
                    end: start + bytes,
                    stream: waiting.home,
                    event: waiting.freed,
                };
                self.fences.add(&mut self.events, fence);
            }
            Err(wrong) => report::line(format_args!("the block at {start:#x} was lost: {wrong}")),
        }
    }

    /// Gives the memory back to the device. No block is taken.
    pub fn close(mut self) {
        if let Ok(_current) = Current::on(self.cuda, self.device) {
            self.events.destroy(&self.cuda);
            // SAFETY: `open` allocated the memory and no block of it is taken; `cudaFree` waits for the device's work.
            unsafe { (self.cuda.free)(self.region.base() as *mut c_void) };
        }
    }
}
