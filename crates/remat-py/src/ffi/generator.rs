//! The state of the CPU's default random generator, read and written without Python.
//!
//! The bytes are those of torch's own object. `random_state` of torch internals finds them, and makes of them the state
//! that torch takes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The generator's bytes that change as numbers are drawn.
struct Generator {
    /// Address of the generator.
    address: usize,
    /// Their offset.
    offset: usize,
    length: usize,
}

static DEFAULT: OnceLock<Generator> = OnceLock::new();

/// Whether the probes found all as expected.
static TRUSTED: AtomicBool = AtomicBool::new(false);

impl Generator {
    fn read(&self) -> Box<[u8]> {
        let mut state = vec![0_u8; self.length];
        // SAFETY: the generator lives as long as the process, and the probe found so many bytes of it at the offset. No
        // op of the session draws meanwhile, as the session is locked. A thread outside of it that draws at this moment
        // makes the numbers of the op that follows depend on chance, by whatever way they are noted; any bytes are
        // valid here.
        unsafe {
            let source = (self.address + self.offset) as *const u8;
            std::ptr::copy_nonoverlapping(source, state.as_mut_ptr(), self.length);
        }
        state.into()
    }

    /// Gives the generator a state that [`read`](Self::read) returned.
    fn write(&self, state: &[u8]) {
        assert_eq!(state.len(), self.length);
        // SAFETY: as for `read`. The probe found that a generator with these bytes draws what it drew when they were
        // read. A thread outside of the session that draws at this moment gets numbers that depend on chance, as it
        // does when Python sets the state.
        unsafe {
            let target = (self.address + self.offset) as *mut u8;
            std::ptr::copy_nonoverlapping(state.as_ptr(), target, self.length);
        }
    }
}

/// The default generator as it was before; dropping this lets it go on as if nothing had been drawn meanwhile.
pub struct Rewound {
    generator: &'static Generator,
    now: Box<[u8]>,
}

impl Drop for Rewound {
    fn drop(&mut self) {
        self.generator.write(&self.now);
    }
}

/// The state of the default generator; `None` where Python has to be asked.
#[inline]
pub fn read() -> Option<Box<[u8]>> {
    let generator = DEFAULT.get()?;
    let trusted = TRUSTED.load(Ordering::Relaxed);
    trusted.then(|| generator.read())
}

/// Gives the default generator a state that [`read`] returned; `None` where Python has to be asked.
pub fn rewind(state: &[u8]) -> Option<Rewound> {
    let generator = DEFAULT.get().filter(|_| TRUSTED.load(Ordering::Relaxed))?;
    let now = generator.read();
    generator.write(state);
    Some(Rewound { generator, now })
}

/// Whether the generator at an address is the default one, and is read without Python.
pub fn is_default(address: usize) -> bool {
    let default = DEFAULT.get();
    TRUSTED.load(Ordering::Relaxed) && default.is_some_and(|known| known.address == address)
}

/// Sets where the state of the default generator lies.
#[pyfunction]
pub fn register_generator(address: usize, offset: usize, length: usize) {
    let _ = DEFAULT.set(Generator {
        address,
        offset,
        length,
    });
}

/// The state as read here, for the probe.
#[pyfunction]
pub fn read_generator(py: Python<'_>) -> Option<Bound<'_, PyBytes>> {
    let generator = DEFAULT.get()?;
    Some(PyBytes::new(py, &generator.read()))
}

/// Writes a state to a generator of the probe's own, whose bytes lie at an address.
///
/// # Errors
/// `ValueError` before the default generator's place is known, and for a state of another length.
#[pyfunction]
pub fn write_generator(address: usize, state: &[u8]) -> PyResult<()> {
    let known = DEFAULT.get().filter(|known| known.length == state.len());
    let known = known.ok_or_else(|| PyValueError::new_err("no state of a generator"))?;
    let generator = Generator {
        address,
        offset: 0,
        length: known.length,
    };
    generator.write(state);
    Ok(())
}

/// Has the state of the default generator read and written without Python from now on.
#[pyfunction]
pub fn trust_generator() {
    TRUSTED.store(true, Ordering::Relaxed);
}
