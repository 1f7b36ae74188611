//! Events of a device, counted and used again.

use std::ffi::c_int;
use std::ptr::null_mut;

use super::functions::{succeeded, CudaFunctions, Event, Stream, WITHOUT_TIMING};

/// One of [`Events`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventId(pub u32);

/// All events that were made, and who holds them.
#[derive(Default)]
pub struct Events {
    handles: Vec<usize>,
    holders: Vec<u32>,
    /// When each was recorded, in a count of all records.
    recorded: Vec<u64>,
    records: u64,
    idle: Vec<EventId>,
}

impl Events {
    /// Records an event on a stream; the caller holds it.
    ///
    /// # Errors
    /// The runtime's number.
    pub fn record(&mut self, cuda: &CudaFunctions, stream: Stream) -> Result<EventId, c_int> {
        let id = match self.idle.pop() {
            Some(id) => id,
            None => self.made(cuda)?,
        };
        // SAFETY: an event of this device that nobody holds, and a stream of the caller's.
        match succeeded(unsafe { (cuda.event_record)(self.handle(id), stream) }) {
            Ok(()) => {
                self.holders[id.0 as usize] = 1;
                self.records += 1;
                self.recorded[id.0 as usize] = self.records;
                Ok(id)
            }
            Err(number) => {
                self.idle.push(id);
                Err(number)
            }
        }
    }

    fn made(&mut self, cuda: &CudaFunctions) -> Result<EventId, c_int> {
        let mut event = null_mut();
        // SAFETY: a place for an event.
        succeeded(unsafe { (cuda.event_create)(&mut event, WITHOUT_TIMING) })?;
        self.handles.push(event as usize);
        self.holders.push(0);
        self.recorded.push(0);
        Ok(EventId(self.handles.len() as u32 - 1))
    }

    /// One more holder.
    pub fn hold(&mut self, id: EventId) {
        self.holders[id.0 as usize] += 1;
    }

    /// One holder less; without any, the event is used again.
    pub fn release(&mut self, id: EventId) {
        let holders = &mut self.holders[id.0 as usize];
        *holders -= 1;
        if *holders == 0 {
            self.idle.push(id);
        }
    }

    /// Of two events of one stream the one that comes after the other; the other is released.
    pub fn later(&mut self, one: EventId, other: EventId) -> EventId {
        let (later, earlier) =
            match self.recorded[one.0 as usize] >= self.recorded[other.0 as usize] {
                true => (one, other),
                false => (other, one),
            };
        self.release(earlier);
        later
    }

    /// Whether all that was enqueued before the event was recorded has been done. An error means no: it will come up where the
    /// program waits for the device.
    pub fn came(&self, cuda: &CudaFunctions, id: EventId) -> bool {
        // SAFETY: an event that was recorded and is held.
        unsafe { (cuda.event_query)(self.handle(id)) == 0 }
    }

    /// Has a stream wait for the event, on the device.
    ///
    /// # Errors
    /// The runtime's number.
    pub fn wait(&self, cuda: &CudaFunctions, stream: Stream, id: EventId) -> Result<(), c_int> {
        // SAFETY: an event that was recorded and is held, and a stream of the caller's.
        succeeded(unsafe { (cuda.stream_wait_event)(stream, self.handle(id), 0) })
    }

    /// Destroys all of them; nobody holds any.
    pub fn destroy(&mut self, cuda: &CudaFunctions) {
        for &handle in &self.handles {
            // SAFETY: made by `made`, destroyed once.
            unsafe { (cuda.event_destroy)(handle as Event) };
        }
        *self = Events::default();
    }

    fn handle(&self, id: EventId) -> Event {
        self.handles[id.0 as usize] as Event
    }
}
