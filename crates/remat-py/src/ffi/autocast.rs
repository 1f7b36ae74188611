//! Autocast on this thread: for which devices it is on, and the dtypes that it casts to.
//!
//! Autocast passes many ops over. It stays on while their kernels run, and the ops that these call are cast: those of a
//! fused encoder layer, of a sparse product, of a custom op. So a call is another one where autocast is on, and its
//! replay runs with autocast as the first run had it.

use std::sync::OnceLock;

use pyo3::prelude::*;

use super::dispatcher::{Dispatcher, dispatcher};
use super::symbols::function;

/// Devices whose autocast is looked at.
const MOST: usize = 2;
/// Bits for each: the number of the dtype that it casts to, plus one, and 0 where autocast is off.
const BITS: u32 = 6;

/// For which devices autocast is on, and the dtypes that it casts to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Autocast(u16);

/// A kind of device that has autocast.
#[derive(Clone, Copy, Debug)]
struct Device {
    /// The number of its dispatch key.
    key: u16,
    /// The number of its type.
    number: i8,
}

/// Torch's functions for the dtypes.
struct Functions {
    devices: Vec<Device>,
    dtype: unsafe extern "C" fn(i8) -> i8,
    set_dtype: unsafe extern "C" fn(i8, i8),
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

fn functions() -> Option<(&'static Functions, &'static Dispatcher)> {
    FUNCTIONS.get().zip(dispatcher())
}

impl Autocast {
    /// As it is on this thread; off where ops come through Python alone.
    #[inline]
    pub fn current() -> Autocast {
        let Some((functions, dispatcher)) = functions() else {
            return Autocast::default();
        };
        let devices = functions.devices.iter().enumerate();
        let on = devices.filter(|(_, device)| !dispatcher.excludes(device.key));
        Autocast(on.fold(0, |all, (at, device)| {
            // SAFETY: reads a variable of this thread.
            let dtype = unsafe { (functions.dtype)(device.number) };
            let number = (u16::from(dtype as u8) + 1) & ((1 << BITS) - 1);
            all | number << (at as u32 * BITS)
        }))
    }

    /// Its number, of 12 bits; 0 where it is off.
    pub fn number(self) -> u16 {
        self.0
    }

    /// From its [number](Self::number).
    pub fn from_number(number: u16) -> Autocast {
        Autocast(number)
    }

    /// The dtype that it casts to on a device, if it is on.
    fn dtype(self, at: usize) -> Option<i8> {
        let number = self.0 >> (at as u32 * BITS) & ((1 << BITS) - 1);
        (number > 0).then(|| (number - 1) as i8)
    }

    /// Turns it on for these devices where torch has turned it off for the time of a call in Python, until the guard is
    /// dropped. Dtypes stay.
    pub fn reopen(self) -> Reopened {
        let mut closed = 0;
        if let Some((functions, dispatcher)) = functions() {
            for (at, device) in functions.devices.iter().enumerate() {
                if self.dtype(at).is_some() && dispatcher.excludes(device.key) {
                    dispatcher.set_excluded(device.key, false);
                    closed |= 1 << at;
                }
            }
        }
        Reopened { closed }
    }

    /// Has it as a call had it, until the guard is dropped. Autocast caches nothing that a replay casts, as the tensors
    /// of replays ask for no gradient.
    pub fn enter(self) -> Entered {
        let mut before = Entered {
            devices: [None; MOST],
        };
        let Some((functions, dispatcher)) = functions() else {
            return before;
        };
        // SAFETY: these read and set variables of this thread.
        unsafe {
            for (at, device) in functions.devices.iter().enumerate() {
                let dtype = (functions.dtype)(device.number);
                before.devices[at] = Some((dispatcher.excludes(device.key), dtype));
                let wanted = self.dtype(at);
                dispatcher.set_excluded(device.key, wanted.is_none());
                (functions.set_dtype)(device.number, wanted.unwrap_or(dtype));
            }
        }
        before
    }
}

/// Autocast is on as outside of the call in Python.
pub struct Reopened {
    closed: u8,
}

impl Drop for Reopened {
    fn drop(&mut self) {
        if let Some((functions, dispatcher)) = functions() {
            for (at, device) in functions.devices.iter().enumerate() {
                if self.closed & 1 << at != 0 {
                    dispatcher.set_excluded(device.key, true);
                }
            }
        }
    }
}

/// Autocast is as it was for another call.
pub struct Entered {
    /// Whether it was off, and its dtype.
    devices: [Option<(bool, i8)>; MOST],
}

impl Drop for Entered {
    fn drop(&mut self) {
        let Some((functions, dispatcher)) = functions() else {
            return;
        };
        for (device, before) in functions.devices.iter().zip(self.devices) {
            if let Some((off, dtype)) = before {
                dispatcher.set_excluded(device.key, off);
                // SAFETY: sets a variable of this thread.
                unsafe { (functions.set_dtype)(device.number, dtype) };
            }
        }
    }
}

/// Looks torch's functions up, for up to two devices.
///
/// # Errors
/// `RuntimeError` that names the function which torch lacks.
#[pyfunction]
pub fn register_autocast(cpu: &str, devices: Vec<(u16, i8)>) -> PyResult<()> {
    if FUNCTIONS.get().is_some() {
        return Ok(());
    }
    let dtype = "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE";
    let set_dtype = "_ZN2at8autocast18set_autocast_dtypeEN3c1010DeviceTypeENS1_10ScalarTypeE";
    // SAFETY: the mangled names state the arguments. `DeviceType` and `ScalarType` are `int8_t`; `_read_autocast` of
    // torch internals compares what the functions do with what Python is told.
    let functions = unsafe {
        Functions {
            devices: devices
                .into_iter()
                .take(MOST)
                .map(|(key, number)| Device { key, number })
                .collect(),
            dtype: function(cpu, dtype)?,
            set_dtype: function(cpu, set_dtype)?,
        }
    };
    let _ = FUNCTIONS.set(functions);
    Ok(())
}

/// The number of autocast's state on this thread.
#[pyfunction]
pub fn read_autocast() -> u16 {
    Autocast::current().number()
}

/// Calls a function with autocast in the state of this number.
#[pyfunction]
pub fn with_autocast<'py>(
    number: u16,
    function: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let _entered = Autocast::from_number(number).enter();
    function.call0()
}
