//! Calls of torch whose C++ errors are caught here.
//!
//! Rust cannot catch a foreign exception, and a replay must: the engine is told how far it came, and its caller may be
//! a function of Python's. So a few lines of assembly call the kernel. Their frame has a *personality*, the function
//! that the unwinder asks whether a frame catches. This one catches every C++ exception and has the frame return it.

use std::ffi::c_void;
use std::sync::OnceLock;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::boxed::Stack;
use super::dispatcher::{Kernel, Op};
use super::symbols::function;

/// Functions of the C++ runtime and of torch that make a Python error of an exception.
struct Runtime {
    begin_catch: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    end_catch: unsafe extern "C" fn(),
    /// `std::current_exception()`; the result by address.
    current: unsafe extern "C" fn(*mut usize),
    /// `std::exception_ptr::~exception_ptr()`.
    release: unsafe extern "C" fn(*mut usize),
    /// `torch::translate_exception_to_python(const std::exception_ptr&)`.
    translate: unsafe extern "C" fn(*const usize),
}

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

const TRANSLATE: &str =
    "_ZN5torch29translate_exception_to_pythonERKNSt15__exception_ptr13exception_ptrE";

/// Looks the functions up, in torch's library for Python and those that it was linked with.
///
/// # Errors
/// `RuntimeError` that names the function which is missing, or that the processor is another.
pub fn set_up(python: &str) -> PyResult<()> {
    if !cfg!(target_arch = "x86_64") {
        return Err(PyRuntimeError::new_err(
            "errors are caught on x86-64 processors only",
        ));
    }
    // SAFETY: the Itanium C++ ABI states the first two; the mangled names state the arguments of the others. An
    // `exception_ptr` is one pointer, passed by address because it has a destructor.
    let runtime = unsafe {
        Runtime {
            begin_catch: function(python, "__cxa_begin_catch")?,
            end_catch: function(python, "__cxa_end_catch")?,
            current: function(python, "_ZSt17current_exceptionv")?,
            release: function(python, "_ZNSt15__exception_ptr13exception_ptrD1Ev")?,
            translate: function(python, TRANSLATE)?,
        }
    };
    let _ = RUNTIME.set(runtime);
    Ok(())
}

/// A C++ exception that was caught.
pub struct Exception(*mut c_void);

impl Exception {
    /// The Python error that torch makes of it.
    pub fn into_error(self, py: Python<'_>) -> PyErr {
        let Some(runtime) = RUNTIME.get() else {
            return PyRuntimeError::new_err("remat: errors of torch are not caught");
        };
        let mut pointer = 0;
        // SAFETY: the unwinder delivered the exception to a frame that caught it, and nobody else has it. These are the
        // steps of a `catch (...)` that hands the exception to torch's own function. The GIL is held.
        unsafe {
            (runtime.begin_catch)(self.0);
            (runtime.current)(&mut pointer);
            (runtime.end_catch)();
            (runtime.translate)(&pointer);
            (runtime.release)(&mut pointer);
        }
        std::mem::forget(self);
        PyErr::take(py).unwrap_or_else(|| PyRuntimeError::new_err("remat: an error of torch's"))
    }
}

impl Exception {
    /// Goes on unwinding, as if nobody had caught the exception.
    pub fn resume(self) -> ! {
        unsafe extern "C-unwind" {
            fn _Unwind_Resume_or_Rethrow(exception: *mut c_void) -> i32;
        }
        let thrown = self.0;
        std::mem::forget(self);
        // SAFETY: the unwinder delivered the exception to a frame that caught it, nobody else has it, and no `catch` of
        // C++ began: to the C++ runtime it is still on its way. The unwinder looks for a frame that catches it anew.
        unsafe { _Unwind_Resume_or_Rethrow(thrown) };
        std::process::abort() // nobody catches it
    }
}

impl Drop for Exception {
    fn drop(&mut self) {
        if let Some(runtime) = RUNTIME.get() {
            // SAFETY: as in `into_error`; the end of the `catch` frees the exception.
            unsafe {
                (runtime.begin_catch)(self.0);
                (runtime.end_catch)();
            }
        }
    }
}

/// Calls a kernel and catches its error.
///
/// # Errors
/// The exception that the kernel threw.
///
/// # Safety
/// The kernel, op, keys and stack are those of a valid call, and [`set_up`] succeeded.
pub unsafe fn call(
    kernel: Kernel,
    op: *const Op,
    keys: u64,
    stack: *mut Stack,
) -> Result<(), Exception> {
    // SAFETY: as the caller promises.
    let thrown = unsafe { frame::call(kernel, op, keys, stack) };
    if thrown.is_null() {
        Ok(())
    } else {
        Err(Exception(thrown))
    }
}

/// The frame that catches, by the System V ABI and the Itanium C++ ABI's unwinder.
#[cfg(target_arch = "x86_64")]
mod frame {
    use super::{Kernel, Op, Stack, c_void};

    std::arch::global_asm!(
        // remat_call_caught(kernel, op, keys, stack): kernel(null, op, keys, stack), then null or what it threw.
        ".pushsection .text.remat_call_caught,\"ax\",@progbits",
        ".p2align 4",
        ".globl remat_call_caught",
        ".hidden remat_call_caught",
        ".type remat_call_caught,@function",
        "remat_call_caught:",
        ".cfi_startproc",
        ".cfi_personality 0x1b, {personality}", // relative to the place, four bytes
        "sub rsp, 8",                           // calls need a stack aligned to 16 bytes
        ".cfi_def_cfa_offset 16",
        "mov rax, rdi",
        "xor edi, edi",
        "call rax",
        "xor eax, eax",
        // The unwinder comes here with the exception in rax, and with the other registers as before the call.
        ".globl remat_caught",
        ".hidden remat_caught",
        "remat_caught:",
        "add rsp, 8",
        ".cfi_def_cfa_offset 8",
        "ret",
        ".cfi_endproc",
        ".size remat_call_caught, . - remat_call_caught",
        ".popsection",
        personality = sym personality,
    );

    unsafe extern "C-unwind" {
        #[link_name = "remat_call_caught"]
        pub fn call(kernel: Kernel, op: *const Op, keys: u64, stack: *mut Stack) -> *mut c_void;
    }

    unsafe extern "C" {
        /// A place in the frame, not a function.
        fn remat_caught();
        fn _Unwind_SetGR(context: *mut c_void, register: i32, value: usize);
        fn _Unwind_SetIP(context: *mut c_void, address: usize);
    }

    const SEARCH_PHASE: i32 = 1;
    const HANDLER_FRAME: i32 = 4;
    const HANDLER_FOUND: i32 = 6;
    const INSTALL_CONTEXT: i32 = 7;
    const CONTINUE_UNWIND: i32 = 8;
    /// `rax`, as DWARF numbers it.
    const RAX: i32 = 0;
    /// The class of GNU's C++ exceptions, whose last byte tells those that were thrown again.
    const CPP: u64 = u64::from_be_bytes(*b"GNUCC++\0");

    /// Whether the frame catches: every C++ exception, and neither panics of Rust's nor threads that are cancelled.
    unsafe extern "C" fn personality(
        _version: i32,
        actions: i32,
        class: u64,
        exception: *mut c_void,
        context: *mut c_void,
    ) -> i32 {
        if class & !0xff != CPP {
            return CONTINUE_UNWIND;
        }
        if actions & SEARCH_PHASE != 0 {
            return HANDLER_FOUND;
        }
        if actions & HANDLER_FRAME == 0 {
            return CONTINUE_UNWIND;
        }
        // SAFETY: the unwinder's own context, for the frame above; execution goes on in that frame.
        unsafe {
            _Unwind_SetGR(context, RAX, exception as usize);
            _Unwind_SetIP(context, remat_caught as *const () as usize);
        }
        INSTALL_CONTEXT
    }
}

/// No frame that catches: [`set_up`] refuses, so that nobody calls.
#[cfg(not(target_arch = "x86_64"))]
mod frame {
    use super::{Kernel, Op, Stack, c_void};

    pub unsafe fn call(_: Kernel, _: *const Op, _: u64, _: *mut Stack) -> *mut c_void {
        std::process::abort()
    }
}
