//! The arenas of all devices, and the functions they are made of.

use std::env;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use remat_core::pool::Pool;

use super::functions::{CudaFunctions, Stream};
use super::space::Space;
use crate::evictor::{take_or_make_room, Evictor};
use crate::placement;
use crate::report;
use crate::setting::{Setting, DEVICE_ALIGNMENT};

/// The size of each device's arena, where none was opened before the first allocation.
const VARIABLE: &str = "REMAT_CUDA_ARENA";

/// More devices than any machine has.
const DEVICES: c_int = 256;

/// Who makes room on devices.
pub static EVICTOR: Evictor = Evictor::none();

static SPACES: Mutex<Spaces> = Mutex::new(Spaces {
    functions: None,
    by_device: Vec::new(),
});

struct Spaces {
    functions: Option<CudaFunctions>,
    by_device: Vec<Option<Space>>,
}

// SAFETY: spaces hold addresses and handles of the device, which any thread may use.
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

/// Does something with a device's arena, if it is open.
pub fn with<T>(device: c_int, action: impl FnOnce(&mut Space) -> T) -> Option<T> {
    hold().of(device).map(action)
}

/// Notes on whatever device has the block that it is used on a further stream.
pub fn used_on(block: *mut c_void, stream: Stream) {
    for space in hold().by_device.iter_mut().flatten() {
        space.used_on(block, stream);
    }
}

/// Takes a block; where there is none, asks for room. `None`, with a line on stderr where it is not for want of room.
pub fn allocate(bytes: u64, device: c_int, stream: Stream) -> Option<*mut c_void> {
    let opened = hold().opened(device);
    let capacity = match opened {
        Ok(capacity) => capacity,
        Err(refusal) => {
            report::line(format_args!("{refusal}"));
            return None;
        }
    };
    let taken = match bytes <= capacity {
        true => take_or_make_room(bytes, &EVICTOR, || {
            let placement = placement::wanted();
            let mut spaces = hold();
            let space = spaces.of(device).ok_or(0u64)?;
            space
                .take(bytes, stream, placement)
                .map(|block| block as usize)
                .ok_or(space.region().frees())
        }),
        false => None, // no eviction makes an arena larger
    };
    if taken.is_none() {
        with(device, |space| space.region().refused());
    }
    taken.map(|block| block as *mut c_void)
}

impl Spaces {
    fn of(&mut self, device: c_int) -> Option<&mut Space> {
        self.by_device
            .get_mut(usize::try_from(device).ok()?)?
            .as_mut()
    }

    /// The capacity of a device's arena, which is opened as the environment says if it is not open.
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
