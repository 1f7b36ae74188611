//! Torch's dispatcher: a fallback of one's own on the key `Fake`, which no kernel of torch uses.
//!
//! The fallback sees every op below autograd and autocast, as a dispatch mode does, and no Python is entered for it.
//! Torch's functions are looked up by their C++ names in libraries that are loaded already; nothing is compiled or
//! linked. The registration lasts as long as the process, but a thread comes here only while it includes the key.

use std::ffi::c_void;
use std::sync::OnceLock;

use pyo3::ffi as python;
use pyo3::prelude::*;

use super::boxed::{Boxed, Stack, Value};
use super::local_keys::LocalKeys;
use super::symbols::function;

/// `c10::OperatorHandle`: the op's definition and its place in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Op {
    definition: usize,
    place: usize,
}

impl Op {
    /// A number that no other op has.
    pub fn id(self) -> usize {
        self.definition
    }

    /// The op's name, such as `aten::add`, and that of the overload, such as `Tensor`.
    ///
    /// # Safety
    /// The dispatcher passed the op to a kernel.
    pub unsafe fn name(self) -> (String, String) {
        // SAFETY: a definition begins with the op's name, two `std::string`s of 32 bytes that begin with a pointer and
        // a length. The probe compared them. Ops stay defined while they run.
        unsafe {
            let text = |at: usize| {
                let [data, length] = *((self.definition + at) as *const [usize; 2]);
                let bytes = std::slice::from_raw_parts(data as *const u8, length);
                String::from_utf8_lossy(bytes).into_owned()
            };
            (text(0), text(32))
        }
    }

    /// The op's name as Python has it: `aten.add.Tensor`.
    ///
    /// # Safety
    /// As for [`Self::name`].
    pub unsafe fn name_in_python(self) -> String {
        // SAFETY: as the caller promises.
        let (name, overload) = unsafe { self.name() };
        let overload = if overload.is_empty() {
            "default"
        } else {
            &overload
        };
        format!("{}.{overload}", name.replace("::", "."))
    }
}

/// `c10::BoxedKernel::InternalBoxedKernelFunction`.
pub type Kernel = unsafe extern "C-unwind" fn(*mut c_void, *const Op, u64, *mut Stack);

/// Torch as the fallback calls it.
#[derive(Clone, Copy)]
pub struct Dispatcher {
    include: unsafe extern "C" fn(u16, bool),
    exclude: unsafe extern "C" fn(u16, bool),
    is_excluded: unsafe extern "C" fn(u16) -> bool,
    is_included: unsafe extern "C" fn(u16) -> bool,
    grad_enabled: unsafe extern "C" fn() -> bool,
    is_leaf: unsafe extern "C" fn(*const Value) -> bool,
    wrap: unsafe extern "C-unwind" fn(*const Value) -> *mut python::PyObject,
    redispatch: Kernel,
    keys: Keys,
    /// The thread's keys, where they can be changed without torch's functions.
    local: Option<LocalKeys>,
}

/// The dispatch keys that the fallback needs.
#[derive(Clone, Copy, Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct Keys {
    /// The number of the fallback's own key.
    own: u16,
    /// The number of the key of Python's dispatch modes.
    modes: u16,
    /// The keys below the fallback's.
    below: u64,
    /// The key of Python's dispatch modes.
    python: u64,
    /// The number of the key whose kernels count the versions of what they write.
    versions: u16,
    /// The number of the key whose kernels forbid random ops while autograd runs batched.
    batching: u16,
    /// The key whose kernel notes the thread's keys for Python's, which insists on that up to torch 2.12.
    snapshot: u64,
    /// The keys of tensors that have no memory, or that Python dispatches.
    aside: u64,
    /// The keys of tensors that sizes, strides and dtype do not describe.
    odd: u64,
    /// The key of the CPU's kernels.
    cpu: u64,
}

static DISPATCHER: OnceLock<Dispatcher> = OnceLock::new();

static BOXED: OnceLock<Boxed> = OnceLock::new();

/// Sets the description of boxed values, once.
///
/// # Safety
/// The probes found it on this build of torch.
pub unsafe fn set_boxed(boxed: Boxed) {
    let _ = BOXED.set(boxed);
}

/// The description of boxed values, once it was set.
pub fn boxed() -> Option<&'static Boxed> {
    BOXED.get()
}

/// The dispatcher and the description of its values.
#[derive(Clone, Copy)]
pub struct Torch {
    /// The dispatcher.
    pub dispatcher: &'static Dispatcher,
    /// Its values.
    pub boxed: &'static Boxed,
}

impl Torch {
    /// Torch, once the dispatcher was set up and its values were described.
    pub fn get() -> Option<&'static Torch> {
        static TORCH: OnceLock<Torch> = OnceLock::new();
        if let Some(torch) = TORCH.get() {
            return Some(torch);
        }
        let (dispatcher, boxed) = (dispatcher()?, boxed()?);
        Some(TORCH.get_or_init(|| Torch { dispatcher, boxed }))
    }
}

/// The dispatcher, once it was set up.
pub fn dispatcher() -> Option<&'static Dispatcher> {
    DISPATCHER.get()
}

/// Paths of torch's libraries.
#[derive(Clone, Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct Libraries {
    c10: String,
    cpu: String,
    python: String,
}

/// The names that C++ gives the functions.
mod names {
    pub const INCLUDE: &str = "_ZN3c104impl29tls_set_dispatch_key_includedENS_11DispatchKeyEb";
    pub const EXCLUDE: &str = "_ZN3c104impl29tls_set_dispatch_key_excludedENS_11DispatchKeyEb";
    pub const IS_EXCLUDED: &str = "_ZN3c104impl28tls_is_dispatch_key_excludedENS_11DispatchKeyE";
    pub const IS_INCLUDED: &str = "_ZN3c104impl28tls_is_dispatch_key_includedENS_11DispatchKeyE";
    pub const GRAD_ENABLED: &str = "_ZN3c108GradMode10is_enabledEv";
    pub const IS_LEAF: &str = "_ZNK2at10TensorBase7is_leafEv";
    pub const WRAP: &str = "_Z16THPVariable_WrapRKN2at10TensorBaseE";
    pub const SINGLETON: &str = "_ZN3c1010Dispatcher13realSingletonEv";
    pub const REGISTER: &str = "_ZN3c1010Dispatcher16registerFallbackENS_11DispatchKeyENS_14KernelFunctionE\
        NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
}

/// Puts a fallback on the key and keeps what is needed to call torch. Done once for each process.
///
/// # Errors
/// `RuntimeError` that names the function which torch lacks.
///
/// # Safety
/// The probes found `keys` and `redispatch` on this build of torch, and nobody uses the key.
pub unsafe fn set_up(
    keys: Keys,
    libraries: &Libraries,
    redispatch: usize,
    fallback: Kernel,
) -> PyResult<()> {
    if DISPATCHER.get().is_some() {
        return Ok(());
    }
    let Libraries { c10, cpu, python } = libraries;
    // SAFETY: the mangled names state the types of the arguments; results and calling conventions are those of torch's
    // headers, 2.9 to 2.15. `DispatchKey` is a `uint16_t`. The caller vouches for `redispatch`.
    let (register, singleton, dispatcher) = unsafe {
        let register: Register = function(cpu, names::REGISTER)?;
        let singleton: unsafe extern "C" fn() -> *mut c_void = function(cpu, names::SINGLETON)?;
        let dispatcher = Dispatcher {
            include: function(c10, names::INCLUDE)?,
            exclude: function(c10, names::EXCLUDE)?,
            is_excluded: function(c10, names::IS_EXCLUDED)?,
            is_included: function(c10, names::IS_INCLUDED)?,
            grad_enabled: function(c10, names::GRAD_ENABLED)?,
            is_leaf: function(cpu, names::IS_LEAF)?,
            wrap: function(python, names::WRAP)?,
            redispatch: std::mem::transmute::<usize, Kernel>(redispatch),
            keys,
            local: None,
        };
        (register, singleton, dispatcher)
    };
    let exclude = |key: u16| move |on: bool| dispatcher.set_excluded(key, on);
    let dispatcher = Dispatcher {
        local: LocalKeys::found_in(c10, exclude(keys.own), exclude(keys.modes)),
        ..dispatcher
    };
    // SAFETY: as above, for these two functions.
    unsafe { register_on(register, singleton(), keys.own, fallback) };
    let _ = DISPATCHER.set(dispatcher);
    Ok(())
}

/// `c10::KernelFunction`: no functor, the boxed function, nothing else. Torch's own has 40 to 56 bytes.
type KernelFunction = [usize; 16];

/// `std::string` with its text inside.
#[repr(C)]
struct Text {
    data: *const u8,
    length: usize,
    inside: [u8; 16],
}

/// `Dispatcher::registerFallback`.
type Register = unsafe extern "C-unwind" fn(
    *mut [usize; 16],
    *mut c_void,
    u16,
    *mut KernelFunction,
    *mut Text,
) -> *mut c_void;

/// Registers the fallback on a key.
///
/// # Safety
/// The function is torch's own, and the address is that of the one dispatcher.
unsafe fn register_on(register: Register, dispatcher: *mut c_void, key: u16, fallback: Kernel) {
    // The handle of the registration; never dropped, so the registration lasts.
    let mut handle = [0; 16];
    let mut kernel: KernelFunction = [0; 16];
    kernel[1] = fallback as usize;
    let mut debug = Text {
        data: std::ptr::null(),
        length: 5,
        inside: *b"remat\0\0\0\0\0\0\0\0\0\0\0",
    };
    debug.data = debug.inside.as_ptr();
    // SAFETY: by the Itanium C++ ABI the result and arguments that are not trivial pass by address, the result first.
    // An empty kernel but for the function is valid in all layouts since 2.9, as is a text that lies inside its string.
    // What the callee moves from needs no destructor: neither owns memory.
    unsafe { register(&mut handle, dispatcher, key, &mut kernel, &mut debug) };
}

impl Dispatcher {
    /// Has this thread's ops come to the fallback, or not any more.
    pub fn include(&self, on: bool) {
        // SAFETY: sets a flag of this thread.
        unsafe { (self.include)(self.keys.own, on) }
    }

    /// Keeps ops of this thread from coming to the fallback until the guard is dropped.
    #[inline]
    pub fn exclude(&self) -> Excluded<'_> {
        let before = self.local.and_then(|local| local.exclude_own());
        let before = before.unwrap_or_else(|| {
            let before = self.excludes(self.keys.own);
            self.set_excluded(self.keys.own, true);
            before
        });
        Excluded {
            dispatcher: self,
            before,
        }
    }

    /// Whether this thread's ops pass a key over.
    #[inline]
    pub fn excludes(&self, key: u16) -> bool {
        // SAFETY: reads a flag of this thread.
        unsafe { (self.is_excluded)(key) }
    }

    /// Has this thread's ops pass a key over, or not any more.
    pub fn set_excluded(&self, key: u16, on: bool) {
        // SAFETY: sets a flag of this thread.
        unsafe { (self.exclude)(key, on) }
    }

    /// As [`set_excluded`](Self::set_excluded), until the guard is dropped.
    fn change(&self, key: u16, on: bool) -> Restored<'_> {
        let excluded = self.excludes(key);
        self.set_excluded(key, on);
        Restored {
            dispatcher: self,
            key,
            excluded,
        }
    }

    /// Has this thread's ops draw random numbers also while autograd runs batched, until the guard is dropped: numbers
    /// that were drawn before are drawn again for an op that is.
    pub fn allow_random(&self) -> Restored<'_> {
        self.change(self.keys.batching, true)
    }

    /// Whether this thread's ops count the versions of what they write.
    pub fn counts_versions(&self) -> bool {
        !self.excludes(self.keys.versions)
    }

    /// Whether this thread's ops come to the fallback.
    pub fn is_reached(&self) -> bool {
        // SAFETY: reads flags of this thread.
        unsafe { (self.is_included)(self.keys.own) && !(self.is_excluded)(self.keys.own) }
    }

    /// Whether dispatch modes do not see this thread's ops at present.
    #[inline]
    pub fn modes_are_disabled(&self) -> bool {
        let known = self.local.and_then(|local| local.modes_are_excluded());
        known.unwrap_or_else(|| self.excludes(self.keys.modes))
    }

    /// Whether Python has yet to see a call with these keys: for a tensor subclass or a mode, up to torch 2.12, where
    /// Python's key lies below the fallback's.
    pub fn awaits_python(&self, keys: u64) -> bool {
        keys & self.keys.below & self.keys.python != 0
    }

    /// Whether autograd records ops on this thread.
    pub fn grad_enabled(&self) -> bool {
        // SAFETY: reads a flag of this thread.
        unsafe { (self.grad_enabled)() }
    }

    /// Whether no op that autograd recorded made the tensor: parameters are leaves.
    ///
    /// # Safety
    /// The value is a tensor and alive.
    pub unsafe fn is_leaf(&self, tensor: &Value) -> bool {
        // SAFETY: a value that is a tensor begins with what `at::TensorBase` is, a pointer to it.
        unsafe { (self.is_leaf)(tensor.as_tensor_base()) }
    }

    /// Whether tensors with these keys have no memory of their own, or are dispatched by Python.
    pub fn aside(&self, keys: u64) -> bool {
        keys & self.keys.aside != 0
    }

    /// Whether sizes, strides and dtype do not describe tensors with these keys (sparse, nested, quantized).
    pub fn odd(&self, keys: u64) -> bool {
        keys & self.keys.odd != 0
    }

    /// Calls the op's next kernel.
    ///
    /// # Safety
    /// `op`, `keys` and `stack` are those of a call that came to the fallback; errors of torch unwind.
    pub unsafe fn next(&self, op: *const Op, keys: u64, stack: *mut Stack) {
        // SAFETY: the caller promises a call in progress. This is torch's own function for going on with one.
        unsafe { (self.redispatch)(std::ptr::null_mut(), op, keys & self.keys.below, stack) }
    }

    /// Hands the call to the topmost dispatch mode of Python.
    ///
    /// # Safety
    /// As for [`next`](Self::next); this thread has a mode.
    pub unsafe fn through_mode(&self, op: *const Op, keys: u64, stack: *mut Stack) {
        let python = self.keys.python;
        let keys = self.keys.snapshot | python | (keys & (python - 1));
        // SAFETY: as for `next`.
        unsafe { (self.redispatch)(std::ptr::null_mut(), op, keys, stack) }
    }

    /// Torch's function that calls an op's kernel.
    pub fn kernel(&self) -> Kernel {
        self.redispatch
    }

    /// Those of the keys for which kernels below the fallback are chosen.
    pub fn below(&self, keys: u64) -> u64 {
        keys & self.keys.below
    }

    /// The key of the CPU's kernels.
    pub fn cpu(&self) -> u64 {
        self.keys.cpu
    }

    /// Calls an op without arguments.
    ///
    /// # Safety
    /// The op has a kernel for the CPU, takes nothing and returns nothing.
    pub unsafe fn call_without_arguments(&self, op: Op) {
        let mut stack = Stack::empty();
        // SAFETY: the caller promises such an op.
        unsafe { (self.redispatch)(std::ptr::null_mut(), &op, self.keys.cpu, &mut stack) }
    }

    /// The Python object of a tensor.
    ///
    /// # Safety
    /// The value is a tensor and alive.
    pub unsafe fn wrap<'py>(&self, py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: a value begins with its `at::Tensor`, which the function takes by reference. The GIL is held, and the
        // result is a new reference or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(py, (self.wrap)(value.as_tensor_base())) }
    }
}

/// Ops of this thread do not come to the fallback.
pub struct Excluded<'a> {
    dispatcher: &'a Dispatcher,
    before: bool,
}

impl Drop for Excluded<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.before {
            return;
        }
        let local = self.dispatcher.local;
        if !local.is_some_and(|local| local.include_own()) {
            self.dispatcher
                .set_excluded(self.dispatcher.keys.own, false);
        }
    }
}

/// Has this thread's ops count the versions of what they write, until the guard is dropped.
pub fn count_versions() -> Option<Restored<'static>> {
    let dispatcher = dispatcher()?;
    Some(dispatcher.change(dispatcher.keys.versions, false))
}

/// Whether this thread's ops pass a key over is as it was before, once this is dropped.
pub struct Restored<'a> {
    dispatcher: &'a Dispatcher,
    key: u16,
    excluded: bool,
}

impl Drop for Restored<'_> {
    fn drop(&mut self) {
        self.dispatcher.set_excluded(self.key, self.excluded);
    }
}
