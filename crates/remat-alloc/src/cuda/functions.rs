//! The functions of the CUDA runtime that arenas need.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::mem::transmute_copy;

/// `cudaStream_t`.
pub type Stream = *mut c_void;
/// `cudaEvent_t`.
pub type Event = *mut c_void;

/// `cudaEventDisableTiming`: events order, they do not measure.
pub const WITHOUT_TIMING: c_uint = 2;

/// `struct remat_cuda_functions` of `remat_arena.h`: each as the runtime has it, 0 for success.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)] // the CUDA runtime's documentation
pub struct CudaFunctions {
    pub get_device: unsafe extern "C" fn(*mut c_int) -> c_int,
    pub set_device: unsafe extern "C" fn(c_int) -> c_int,
    pub malloc: unsafe extern "C" fn(*mut *mut c_void, usize) -> c_int,
    pub free: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub event_create: unsafe extern "C" fn(*mut Event, c_uint) -> c_int,
    pub event_destroy: unsafe extern "C" fn(Event) -> c_int,
    pub event_record: unsafe extern "C" fn(Event, Stream) -> c_int,
    pub event_query: unsafe extern "C" fn(Event) -> c_int,
    pub stream_wait_event: unsafe extern "C" fn(Stream, Event, c_uint) -> c_int,
}

/// The names under which the runtime is loaded, newest first; the one that torch has loaded already is preferred.
const LIBRARIES: [&CStr; 4] = [
    c"libcudart.so.13",
    c"libcudart.so.12",
    c"libcudart.so.11.0",
    c"libcudart.so",
];

impl CudaFunctions {
    /// Those of the CUDA runtime; `None` if there is none.
    pub fn of_runtime() -> Option<CudaFunctions> {
        let library = runtime()?;
        // SAFETY: each symbol is the runtime's function of that name, whose C type is the field's. The library stays
        // open.
        unsafe {
            Some(CudaFunctions {
                get_device: find(library, c"cudaGetDevice")?,
                set_device: find(library, c"cudaSetDevice")?,
                malloc: find(library, c"cudaMalloc")?,
                free: find(library, c"cudaFree")?,
                event_create: find(library, c"cudaEventCreateWithFlags")?,
                event_destroy: find(library, c"cudaEventDestroy")?,
                event_record: find(library, c"cudaEventRecord")?,
                event_query: find(library, c"cudaEventQuery")?,
                stream_wait_event: find(library, c"cudaStreamWaitEvent")?,
            })
        }
    }
}

/// A function of an open library.
///
/// # Safety
/// `F` is a pointer to a function, of the type that the one with this name has. The library stays open.
unsafe fn find<F: Copy>(library: *mut c_void, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the library is open, and a `CStr` ends in a zero byte.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: both are pointers of one size, this one is not null, and the caller vouches for the type.
    (!found.is_null()).then(|| unsafe { transmute_copy(&found) })
}

fn runtime() -> Option<*mut c_void> {
    let open = |how: c_int| {
        // SAFETY: a `CStr` ends in a zero byte; loading the runtime runs its own initializers only.
        let opened = LIBRARIES.map(|name| unsafe { libc::dlopen(name.as_ptr(), how) });
        opened.into_iter().find(|library| !library.is_null())
    };
    open(libc::RTLD_LAZY | libc::RTLD_NOLOAD).or_else(|| open(libc::RTLD_LAZY))
}

/// A device made current for a while. The one before is made current again when this is dropped.
pub struct Current {
    cuda: CudaFunctions,
    before: Option<c_int>,
}

impl Current {
    /// Makes a device current.
    ///
    /// # Errors
    /// The runtime's number.
    pub fn on(cuda: CudaFunctions, device: c_int) -> Result<Current, c_int> {
        let mut before = 0;
        // SAFETY: the table's function does what the runtime's of that name does, and `before` is a place for an int.
        let outcome = unsafe { (cuda.get_device)(&mut before) };
        succeeded(outcome)?;
        if before == device {
            return Ok(Current { cuda, before: None });
        }
        // SAFETY: the table's function does what the runtime's of that name does, and takes any number.
        succeeded(unsafe { (cuda.set_device)(device) })?;
        Ok(Current {
            cuda,
            before: Some(before),
        })
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: the table's function does what the runtime's of that name does, and takes any number.
            unsafe { (self.cuda.set_device)(before) };
        }
    }
}

/// The outcome of a function of the runtime, where 0 is success.
///
/// # Errors
/// Any other number.
pub fn succeeded(outcome: c_int) -> Result<(), c_int> {
    match outcome {
        0 => Ok(()),
        number => Err(number),
    }
}
