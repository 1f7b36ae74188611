//! Functions of the Python package `remat._torch_internals.eager`, looked up once for each session.

use pyo3::prelude::*;

use super::layout::Layout;

/// Torch as the session reaches it through Python, and the offsets in its storages.
pub struct TorchInternals {
    /// Offsets in `StorageImpl` of the words and flags that Remat changes.
    pub layout: Layout,
    /// `view(storage, dtype, device, offset, shape, stride, conj, neg) -> Tensor`.
    pub view: Py<PyAny>,
    /// `empty_storage(device) -> UntypedStorage`.
    pub empty_storage: Py<PyAny>,
    /// `blank_like(bytes) -> Tensor`: new tensors like it have so many bytes of main memory.
    pub blank_like: Py<PyAny>,
    /// `blank_storage(device, bytes) -> UntypedStorage`.
    pub blank_storage: Py<PyAny>,
    /// `storage_over(address, name of the device, bytes) -> UntypedStorage`.
    pub storage_over: Py<PyAny>,
    /// `device_of(storage) -> (name, device) | None`.
    pub device_of: Py<PyAny>,
    /// `replay_random(call, args, kwargs, state) -> result`.
    pub replay_random: Py<PyAny>,
    /// `budget_error(op, needed, smallest, budget, device, suggested) -> exception`.
    pub budget_error: Py<PyAny>,
    /// `flatten(result) -> list[Tensor | None]`.
    pub flatten: Py<PyAny>,
    /// `use_count(storage) -> int`: owners of the storage in C++, its Python object counting as one.
    pub use_count: Py<PyAny>,
    /// `TensorBase.untyped_storage`.
    pub untyped_storage: Py<PyAny>,
    /// `set_grad_mode(on) -> bool | None`: the mode before, or `None` when nothing had to change.
    pub set_grad_mode: Py<PyAny>,
    /// `grad_enabled() -> bool`.
    pub grad_enabled: Py<PyAny>,
    /// `handle_lazy() -> keys`: ops within an op see lazy conjugates as outside of a dispatch mode.
    pub handle_lazy: Py<PyAny>,
    /// `exclude_again(keys)`: the end of that.
    pub exclude_again: Py<PyAny>,
    /// `any_nested(arguments) -> bool`: whether a strided nested tensor is among them.
    pub any_nested: Py<PyAny>,
    /// `contents(tensors) -> list[bytes]`.
    pub contents: Py<PyAny>,
    /// `describe(overload) -> dict`: the properties of an op.
    pub describe: Py<PyAny>,
    /// `predict(overload, args, kwargs)`: sizes of a call's results, before it runs.
    pub predict: Py<PyAny>,
    /// `measured_call(call, args, kwargs) -> (result, workspace | None)`.
    pub measured_call: Py<PyAny>,
    /// `references(args, kwargs) -> list[(storage, owners, references)]`: how many there are to each tensor in C++ and
    /// in Python.
    pub references: Py<PyAny>,
    /// `redispatch(mode, func, args, kwargs) -> result`.
    pub redispatch: Py<PyAny>,
    /// `left_to_subclass(func, args, kwargs) -> result`: `NotImplemented`, unless fake tensors are made.
    pub left_to_subclass: Py<PyAny>,
    /// `own_frames_dropped(error) -> error`: without the frames that led from the session to the op.
    pub own_frames_dropped: Py<PyAny>,
    /// `rng_state(args, kwargs)`: states of the generators that a random op draws from.
    pub rng_state: Py<PyAny>,
    /// `default_states(bytes)`: the same of the CPU's default generator, from its own bytes.
    pub default_states: Py<PyAny>,
    /// `accumulating() -> bool`: whether autograd is about to leave a gradient in a leaf.
    pub accumulating: Py<PyAny>,
    /// Bytes that saving and restoring a generator's state takes.
    pub rng_bytes: u64,
}

impl TorchInternals {
    /// Looks the functions up.
    ///
    /// # Errors
    /// `AttributeError` for a function that the module lacks.
    pub fn of(module: &Bound<'_, PyAny>, layout: Layout) -> PyResult<TorchInternals> {
        macro_rules! looked_up {
            ($($function:ident)*) => {
                TorchInternals {
                    $($function: module.getattr(stringify!($function))?.unbind(),)*
                    untyped_storage: module.getattr("TensorBase")?.getattr("untyped_storage")?.unbind(),
                    rng_bytes: module.getattr("RNG_BYTES")?.extract()?,
                    layout,
                }
            };
        }
        Ok(looked_up! {
            view empty_storage blank_like blank_storage storage_over device_of replay_random budget_error flatten
            use_count set_grad_mode grad_enabled handle_lazy exclude_again any_nested contents describe predict
            measured_call references redispatch left_to_subclass own_frames_dropped rng_state default_states
            accumulating
        })
    }
}
