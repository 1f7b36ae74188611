//! The arenas of all devices, and the runtime's functions that they use.

use std::env;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use remat_core::pool::Pool;

use super::functions::{CudaFunctions, Stream};
use super::space::Space;
use crate::evictor::{Evictor, take_or_make_room};
use crate::placement;
use crate::report;
use crate::setting::{DEVICE_ALIGNMENT, Setting};

/// The environment variable with the size of a device's arena, if none was opened before its first allocation.
const VARIABLE: &str = "REMAT_CUDA_ARENA";

/// Limit on the numbers of devices; no machine has as many.
const DEVICES: c_int = 256;

/// The function that makes room on devices.
pub static EVICTOR: Evictor = Evictor::none();

static SPACES: Mutex<Spaces> = Mutex::new(Spaces {
    functions: None,
    by_device: Vec::new(),
});

struct Spaces {
    functions: Option<CudaFunctions>,
    by_device: Vec<Option<Space>>,
}

// SAFETY: spaces hold addresses and handles of devices and the runtime's functions, which any thread may use.
unsafe impl Send for Spaces {}

fn hold() -> MutexGuard<'static, Spaces> {
    SPACES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Replaces the functions of the runtime.
pub fn substitute(functions: CudaFunctions) {
    hold().functions = Some(functions);
}

/// Opens a device's arena, in place of an empty one.
///
/// # Errors
/// A number of `errno.h`, and one line.
pub fn open(device: c_int, setting: Setting) -> Result<(), (c_int, String)> {
    hold().open(device, setting)
}

/// Runs an action on a device's arena; `None` if it is not open.
pub fn with<T>(device: c_int, action: impl FnOnce(&mut Space) -> T) -> Option<T> {
    hold().of(device).map(action)
}

/// Notes that a block is used on a further stream, on the device that has it.
pub fn used_on(block: *mut c_void, stream: Stream) {
    for space in hold().by_device.iter_mut().flatten() {
        space.used_on(block, stream);
    }
}

/// Takes a block, asking for room where there is none. `None` for want of room, or for another reason, which a line on
/// stderr tells.
pub fn allocate(bytes: u64, device: c_int, stream: Stream) -> Option<*mut c_void> {
    let opened = hold().opened(device);
    let capacity = match opened {
        Ok(capacity) => capacity,
        Err(refusal) => {
            report::line(format_args!("{refusal}"));
            return None;
        }
    };
    let take = || {
        let mut spaces = hold();
        let space = spaces.of(device).ok_or(0u64)?;
        space
            .take(bytes, stream, placement::wanted())
            .ok_or(space.region().frees())
    };
    let fits = bytes <= capacity; // no eviction makes an arena larger
    let taken = fits.then(|| take_or_make_room(bytes, &EVICTOR, take));
    if taken.flatten().is_none() {
        with(device, |space| space.region().refused());
    }
    taken.flatten()
}

impl Spaces {
    fn of(&mut self, device: c_int) -> Option<&mut Space> {
        self.by_device
            .get_mut(usize::try_from(device).ok()?)?
            .as_mut()
    }

    /// The capacity of a device's arena. It is opened with the size that the environment gives if it is not open.
    fn opened(&mut self, device: c_int) -> Result<u64, String> {
        if let Some(space) = self.of(device) {
            return Ok(space.region().capacity());
        }
        let text = env::var(VARIABLE).map_err(|_| {
            format!("device {device} has no arena; call remat_cuda_open or set {VARIABLE}")
        })?;
        let setting = Setting::parse(&text, DEVICE_ALIGNMENT)?;
        self.open(device, setting).map_err(|(_, refusal)| refusal)?;
        Ok(setting.bytes)
    }

    fn open(&mut self, device: c_int, setting: Setting) -> Result<(), (c_int, String)> {
        let pool = Pool::new(setting.bytes, setting.alignment)
            .map_err(|refusal| (libc::EINVAL, refusal.to_string()))?;
        if !(0..DEVICES).contains(&device) {
            return Err((libc::EINVAL, format!("there is no device {device}")));
        }
        let at = device as usize;
        if self.by_device.len() <= at {
            self.by_device.resize_with(at + 1, || None);
        }
        if self.by_device[at]
            .as_mut()
            .is_some_and(|space| !space.region().is_empty())
        {
            return Err((
                libc::EBUSY,
                format!("the arena of device {device} has blocks; free them first"),
            ));
        }
        if let Some(empty) = self.by_device[at].take() {
            empty.close();
        }
        let functions = self
            .functions()
            .ok_or((libc::ENOTSUP, "no CUDA runtime is installed".to_string()))?;
        self.by_device[at] =
            Some(Space::open(functions, device, pool).map_err(|refusal| (libc::ENOMEM, refusal))?);
        Ok(())
    }

    fn functions(&mut self) -> Option<CudaFunctions> {
        if self.functions.is_none() {
            self.functions = CudaFunctions::of_runtime();
        }
        self.functions
    }
}
