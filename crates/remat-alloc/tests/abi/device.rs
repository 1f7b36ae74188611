//! A device without a GPU: host memory, streams whose work is counted, and events that come when the test says so. It
//! knows what happens before what (vector clocks), so it can tell whether a block is handed out while somebody may
//! still use it.

use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Streams are small numbers; 0 is the default stream.
pub const STREAMS: usize = 4;
type Clock = [u64; STREAMS];

/// `cudaErrorNotReady`, and an error of the tests' choice.
const NOT_READY: c_int = 600;
pub const BROKEN: c_int = 700;

#[repr(C)]
pub struct Functions {
    get_device: unsafe extern "C" fn(*mut c_int) -> c_int,
    set_device: unsafe extern "C" fn(c_int) -> c_int,
    malloc: unsafe extern "C" fn(*mut *mut c_void, usize) -> c_int,
    free: unsafe extern "C" fn(*mut c_void) -> c_int,
    event_create: unsafe extern "C" fn(*mut *mut c_void, c_uint) -> c_int,
    event_destroy: unsafe extern "C" fn(*mut c_void) -> c_int,
    event_record: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
    event_query: unsafe extern "C" fn(*mut c_void) -> c_int,
    stream_wait_event: unsafe extern "C" fn(*mut c_void, *mut c_void, c_uint) -> c_int,
}

pub static FUNCTIONS: Functions = Functions {
    get_device,
    set_device,
    malloc,
    free,
    event_create,
    event_destroy,
    event_record,
    event_query,
    stream_wait_event,
};

#[derive(Default)]
pub struct Device {
    /// Current device.
    pub current: c_int,
    /// The work that each stream's next work comes after.
    after: [Clock; STREAMS],
    /// How much of each stream's work is done.
    done: Clock,
    /// The work that each event comes after; index 0 is no event.
    events: Vec<Clock>,
    /// Memory by address: its bytes.
    pub memory: HashMap<usize, usize>,
    /// Waits on the device: stream and event.
    pub waits: Vec<(usize, usize)>,
    pub records: usize,
    pub destroyed: usize,
    /// Whether recording and waiting fail.
    pub broken: bool,
}

static DEVICE: Mutex<Option<Device>> = Mutex::new(None);

pub fn device() -> Held {
    let mut held = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    held.get_or_insert_with(Device::default);
    Held(held)
}

pub struct Held(MutexGuard<'static, Option<Device>>);

impl std::ops::Deref for Held {
    type Target = Device;
    fn deref(&self) -> &Device {
        self.0.as_ref().unwrap()
    }
}

impl std::ops::DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Device {
        self.0.as_mut().unwrap()
    }
}

pub fn stream(number: usize) -> *mut c_void {
    number as *mut c_void
}

impl Device {
    /// Enqueues work on a stream; returns its place there.
    pub fn work(&mut self, stream: usize) -> u64 {
        self.after[stream][stream] += 1;
        self.after[stream][stream]
    }

    /// The program itself has a stream wait for all that another has enqueued.
    pub fn join(&mut self, stream: usize, other: usize) {
        let clock = self.after[other];
        self.merge(stream, clock);
    }

    /// Some of a stream's work is done, with all that it waited for.
    pub fn finish(&mut self, stream: usize) {
        let clock = self.after[stream];
        for (done, &after) in self.done.iter_mut().zip(&clock) {
            *done = (*done).max(after);
        }
    }

    /// Whether some work of a stream is over before whatever another stream does next.
    pub fn is_before(&self, (stream, place): (usize, u64), next: usize) -> bool {
        place <= self.after[next][stream] || place <= self.done[stream]
    }

    fn merge(&mut self, stream: usize, clock: Clock) {
        for (after, &other) in self.after[stream].iter_mut().zip(&clock) {
            *after = (*after).max(other);
        }
    }

    fn outcome(&self) -> c_int {
        if self.broken { BROKEN } else { 0 }
    }
}

unsafe extern "C" fn get_device(out: *mut c_int) -> c_int {
    // SAFETY: the runtime's contract: a place for an int.
    unsafe { *out = device().current };
    0
}

unsafe extern "C" fn set_device(number: c_int) -> c_int {
    device().current = number;
    0
}

unsafe extern "C" fn malloc(out: *mut *mut c_void, bytes: usize) -> c_int {
    if bytes > 1 << 30 {
        return 2; // cudaErrorMemoryAllocation
    }
    // SAFETY: a size and an alignment; the runtime's contract: a place for a pointer.
    unsafe { libc::posix_memalign(out, 512, bytes) };
    // SAFETY: just written.
    device().memory.insert(unsafe { *out } as usize, bytes);
    0
}

unsafe extern "C" fn free(memory: *mut c_void) -> c_int {
    assert!(device().memory.remove(&(memory as usize)).is_some());
    // SAFETY: allocated by `malloc` above, as the map said.
    unsafe { libc::free(memory) };
    0
}

unsafe extern "C" fn event_create(out: *mut *mut c_void, flags: c_uint) -> c_int {
    assert_eq!(flags, 2, "events that measure time are slow");
    let mut device = device();
    if device.events.is_empty() {
        device.events.push(Clock::default());
    }
    device.events.push(Clock::default());
    // SAFETY: the runtime's contract: a place for an event.
    unsafe { *out = (device.events.len() - 1) as *mut c_void };
    0
}

unsafe extern "C" fn event_destroy(_event: *mut c_void) -> c_int {
    device().destroyed += 1;
    0
}

unsafe extern "C" fn event_record(event: *mut c_void, stream: *mut c_void) -> c_int {
    let mut device = device();
    device.records += 1;
    let clock = device.after[stream as usize];
    device.events[event as usize] = clock;
    device.outcome()
}

unsafe extern "C" fn event_query(event: *mut c_void) -> c_int {
    let device = device();
    let clock = &device.events[event as usize];
    if clock
        .iter()
        .zip(&device.done)
        .all(|(after, done)| after <= done)
    {
        0
    } else {
        NOT_READY
    }
}

unsafe extern "C" fn stream_wait_event(
    stream: *mut c_void,
    event: *mut c_void,
    flags: c_uint,
) -> c_int {
    assert_eq!(flags, 0);
    let mut device = device();
    device.waits.push((stream as usize, event as usize));
    let clock = device.events[event as usize];
    device.merge(stream as usize, clock);
    device.outcome()
}
