//! Events of a device, counted and used again.

use std::ffi::c_int;
use std::ptr::null_mut;

use super::functions::{CudaFunctions, Event, Stream, WITHOUT_TIMING, succeeded};

/// An event: its index in [`Events`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventId(pub u32);

/// All events that were made, and the number of holders of each.
#[derive(Default)]
pub struct Events {
    handles: Vec<usize>,
    holders: Vec<u32>,
    /// The number of the latest record of each, in a count of all records.
    recorded: Vec<u64>,
    records: u64,
    idle: Vec<EventId>,
}

impl Events {
    /// Records an event on a stream, and makes the caller its holder.
    ///
    /// # Errors
    /// The runtime's number.
    pub fn record(&mut self, cuda: &CudaFunctions, stream: Stream) -> Result<EventId, c_int> {
        let id = match self.idle.pop() {
            Some(id) => id,
            None => self.made(cuda)?,
        };
        // SAFETY: the handle is of an event that `made` created and nobody holds, and the stream is the program's.
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
        // SAFETY: `event` is a place for a handle.
        succeeded(unsafe { (cuda.event_create)(&mut event, WITHOUT_TIMING) })?;
        self.handles.push(event as usize);
        self.holders.push(0);
        self.recorded.push(0);
        Ok(EventId(self.handles.len() as u32 - 1))
    }

    /// Adds a holder.
    pub fn hold(&mut self, id: EventId) {
        self.holders[id.0 as usize] += 1;
    }

    /// Removes a holder. An event without any is used again.
    pub fn release(&mut self, id: EventId) {
        let holders = &mut self.holders[id.0 as usize];
        *holders -= 1;
        if *holders == 0 {
            self.idle.push(id);
        }
    }

    /// The later of two events of one stream; the earlier one is released.
    pub fn later(&mut self, one: EventId, other: EventId) -> EventId {
        let recorded = |id: EventId| self.recorded[id.0 as usize];
        let (later, earlier) = if recorded(one) >= recorded(other) {
            (one, other)
        } else {
            (other, one)
        };
        self.release(earlier);
        later
    }

    /// Whether all work enqueued before the event was recorded is done. An error means no: it will come up where the
    /// program waits for the device.
    pub fn came(&self, cuda: &CudaFunctions, id: EventId) -> bool {
        // SAFETY: the handle is of an event that `made` created, and that was recorded and is held.
        unsafe { (cuda.event_query)(self.handle(id)) == 0 }
    }

    /// Has a stream wait for the event, on the device.
    ///
    /// # Errors
    /// The runtime's number.
    pub fn wait(&self, cuda: &CudaFunctions, stream: Stream, id: EventId) -> Result<(), c_int> {
        // SAFETY: the handle is of an event that `made` created, and that was recorded and is held. The stream is the
        // program's.
        succeeded(unsafe { (cuda.stream_wait_event)(stream, self.handle(id), 0) })
    }

    /// Destroys all events; nobody holds any.
    pub fn destroy(&mut self, cuda: &CudaFunctions) {
        for &handle in &self.handles {
            // SAFETY: `made` created the event. The table is emptied below, so it is destroyed once.
            unsafe { (cuda.event_destroy)(handle as Event) };
        }
        *self = Events::default();
    }

    fn handle(&self, id: EventId) -> Event {
        self.handles[id.0 as usize] as Event
    }
}
