//! Shells: tensors of Remat's own without a storage, which a replay lends them for its call.
//!
//! A shell has dtype, device, sizes, strides and keys of a tensor that the program called an op with. Torch's own op
//! `alias` makes it, and its storage is taken out at once. So a replay makes no tensor: it writes two words, the
//! storage and the offset. A shell that an op changed or kept is given up, and with it the form's template.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;

use super::boxed::{Boxed, Item, Tensor, Value};
use super::dispatcher::{Op, Torch};
use super::owned::{Owned, OwnedStack, item_type, set_items};
use super::watch::{Strong, is_sole};

/// The ops that make shells.
pub struct Makers {
    /// `aten::alias`.
    pub alias: Op,
    /// `aten::clone`.
    pub clone: Op,
    /// `aten::empty_like`.
    pub empty_like: Op,
    /// `aten::unsafe_split.Tensor`.
    pub split: Op,
    /// The key of tensors that may be written outside of inference mode.
    pub writable: u64,
    /// A tensor of one element.
    pub seed: Owned,
}

static MAKERS: OnceLock<Makers> = OnceLock::new();

/// Whether the rehearsals passed.
static REHEARSED: AtomicBool = AtomicBool::new(false);

/// Notes that the rehearsals passed.
pub fn set_rehearsed() {
    REHEARSED.store(true, Ordering::Release);
}

/// Whether replays may use shells: the rehearsals passed.
pub fn are_rehearsed() -> bool {
    REHEARSED.load(Ordering::Acquire)
}

/// Sets the ops that make shells, once.
pub fn set_makers(makers: Makers) {
    let _ = MAKERS.set(makers);
}

/// Calls an op of one result on the CPU's kernels; `None` if it fails.
fn make(py: Python<'_>, torch: &Torch, op: &Op, arguments: &[&Owned]) -> Option<Owned> {
    let mut stack = OwnedStack::with_room(torch, arguments.len())?;
    for argument in arguments {
        stack.push(argument);
    }
    // SAFETY: the callers below pass an op of `Makers` the arguments of its schema, of which tensors are the CPU's.
    unsafe { stack.call(py, op, torch.dispatcher.cpu()) }.ok()?;
    stack.pop()
}

/// Another tensor over the storage of this one.
///
/// # Safety
/// The value is a tensor of the CPU, and alive.
pub unsafe fn alias(py: Python<'_>, torch: &Torch, op: &Op, value: &Value) -> Option<Owned> {
    // SAFETY: as the caller promises.
    let tensor = unsafe { Owned::of(torch.boxed, value)? };
    make(py, torch, op, &[&tensor])
}

/// A tensor of Remat's own, to be lent a storage.
pub struct Shell {
    tensor: Tensor,
    /// Sizes and strides.
    geometry: Box<[i64]>,
    kind: u32,
}

impl Shell {
    /// A shell like this tensor, and the value that owns it; `None` for a tensor that is not described by dtype, sizes
    /// and strides, that lies elsewhere than in main memory, or that only inference mode may write.
    ///
    /// # Safety
    /// The value is a tensor and alive.
    pub unsafe fn of(py: Python<'_>, torch: &Torch, value: &Value) -> Option<(Owned, Shell)> {
        let makers = MAKERS.get()?;
        let (boxed, cpu) = (torch.boxed, torch.dispatcher.cpu());
        // SAFETY: as the caller promises.
        let Item::Tensor(like) = (unsafe { boxed.read(value) }) else {
            return None;
        };
        // SAFETY: as the caller promises.
        let keys = unsafe { like.keys(boxed) };
        if keys & cpu != cpu || keys & makers.writable == 0 || torch.dispatcher.odd(keys) {
            return None;
        }
        // SAFETY: as the caller promises; the keys are the CPU's.
        let owned = unsafe { alias(py, torch, &makers.alias, value)? };
        let tensor = owned.tensor(boxed)?;
        // SAFETY: `owned` keeps the tensor alive, and nobody else has it.
        unsafe {
            let same = tensor.keys(boxed) == keys && is_sole(tensor.0);
            let shell = Shell {
                tensor,
                geometry: geometry(boxed, tensor),
                kind: tensor.kind(boxed),
            };
            drop(shell.replace_storage(boxed, 0));
            same.then_some((owned, shell))
        }
    }

    /// The word that holds the storage, replaced; the reference that it held.
    ///
    /// # Safety
    /// The tensor is alive and used by nobody else. The word becomes the owner of the storage at the address, 0 for
    /// none.
    unsafe fn replace_storage(&self, boxed: &Boxed, storage: usize) -> Option<Strong> {
        // SAFETY: as the caller promises; the probe found the word, which owns one reference if it is not null.
        unsafe {
            let word = (self.tensor.0 + boxed.storage) as *mut usize;
            let before = word.replace(storage);
            (before != 0).then(|| Strong::from_given(before))
        }
    }

    /// Lends the shell a storage.
    ///
    /// # Safety
    /// The owner of the shell is there, nobody else uses it, and it has no storage.
    pub unsafe fn lend(&self, boxed: &Boxed, storage: &Strong, offset: i64) {
        // SAFETY: as the caller promises; the probe found the place of the offset.
        unsafe {
            self.replace_storage(boxed, storage.copy().give());
            ((self.tensor.0 + boxed.offset) as *mut i64).write(offset);
        }
    }

    /// Takes the storage back after the call; whether the shell can be used again. One that the op kept keeps its
    /// storage.
    ///
    /// # Safety
    /// The owner of the shell is there, and the call is over.
    pub unsafe fn take_back(&self, boxed: &Boxed, storage: &Strong) -> bool {
        // SAFETY: as the caller promises. Who else owns the tensor may use it, so it is left alone.
        unsafe {
            if !is_sole(self.tensor.0) {
                return false;
            }
            let lent = self.replace_storage(boxed, 0);
            lent.is_some_and(|lent| lent.address() == storage.address())
                && self.tensor.kind(boxed) == self.kind
                && same_geometry(boxed, self.tensor, &self.geometry)
        }
    }
}

/// Copies storages of one size.
pub struct Copier {
    /// Owns the shell, a tensor of all bytes.
    owned: Owned,
    shell: Shell,
}

impl Copier {
    /// A copier of storages like that of this tensor, which is of all its bytes; `None` if it does not lie in main
    /// memory.
    ///
    /// # Safety
    /// The tensor at the address is alive.
    pub unsafe fn of(py: Python<'_>, torch: &Torch, tensor: usize) -> Option<Copier> {
        // SAFETY: as the caller promises.
        let (owned, shell) =
            unsafe { Shell::of(py, torch, &Tensor(tensor).as_value(torch.boxed))? };
        Some(Copier { owned, shell })
    }

    /// A copy; `None` if there is no memory for it, or if an op kept the tensor.
    ///
    /// # Safety
    /// The storage has the size of the one that the copier was made for.
    pub unsafe fn copy(
        self,
        py: Python<'_>,
        torch: &Torch,
        storage: &Strong,
    ) -> Option<(Copier, Strong)> {
        let (makers, boxed) = (MAKERS.get()?, torch.boxed);
        // SAFETY: the shell is this object's own and has no storage. The caller promises that its elements lie within
        // this one. The clone is a tensor of the CPU that nobody else has.
        unsafe {
            self.shell.lend(boxed, storage, 0);
            let clone = make(
                py,
                torch,
                &makers.clone,
                &[&self.owned, &Owned::none(boxed)],
            );
            let whole = self.shell.take_back(boxed, storage);
            let copied = Strong::new(clone?.tensor(boxed)?.storage(boxed))?;
            whole.then_some((self, copied))
        }
    }
}

/// Makes storages of one size, which nothing was written to.
pub struct BlankMaker {
    /// A tensor of as many bytes, all of which lie in one.
    like: Owned,
}

impl BlankMaker {
    /// Makes storages as large as new tensors like this one.
    ///
    /// # Safety
    /// The tensor at the address is alive, and one of the CPU.
    pub unsafe fn of(torch: &Torch, tensor: usize) -> Option<BlankMaker> {
        // SAFETY: as the caller promises.
        let like = unsafe { Owned::of(torch.boxed, &Tensor(tensor).as_value(torch.boxed))? };
        Some(BlankMaker { like })
    }

    /// A new storage; `None` if there is no memory for it.
    pub fn make(&self, py: Python<'_>, torch: &Torch) -> Option<Strong> {
        let boxed = torch.boxed;
        let none = Owned::none(boxed);
        let arguments = [&self.like, &none, &none, &none, &none, &none];
        let made = make(py, torch, &MAKERS.get()?.empty_like, &arguments)?;
        // SAFETY: `made` owns the new tensor, and that its storage.
        unsafe { Strong::new(made.tensor(boxed)?.storage(boxed)) }
    }
}

/// Sizes and strides of a tensor that is alive.
///
/// # Safety
/// As for [`Tensor::geometry`].
unsafe fn geometry(boxed: &Boxed, tensor: Tensor) -> Box<[i64]> {
    // SAFETY: as the caller promises.
    unsafe { tensor.geometry(boxed) }.concat().into()
}

/// Whether sizes and strides are these.
///
/// # Safety
/// As for [`Tensor::geometry`].
unsafe fn same_geometry(boxed: &Boxed, tensor: Tensor, known: &[i64]) -> bool {
    // SAFETY: as the caller promises.
    let [sizes, strides] = unsafe { tensor.geometry(boxed) };
    let (first, second) = known.split_at(known.len() / 2);
    sizes == first && strides == second
}

/// A list of tensors, which owns these; `None` where `like` is a list of another type.
///
/// # Safety
/// `like` is a list, and alive; the items are tensors.
pub unsafe fn list(
    py: Python<'_>,
    torch: &Torch,
    like: &Value,
    items: Vec<Owned>,
) -> Option<Owned> {
    let makers = MAKERS.get()?;
    let one = Owned::int(torch.boxed, 1);
    let zero = Owned::int(torch.boxed, 0);
    let made = make(py, torch, &makers.split, &[&makers.seed, &one, &zero])?;
    // SAFETY: the caller promises a list; the op returned one that nobody else has, if the tag says so.
    unsafe {
        let Item::List(_) = torch.boxed.read(made.value()) else {
            return None;
        };
        if item_type(torch.boxed, like) != item_type(torch.boxed, made.value()) {
            return None;
        }
        set_items(torch.boxed, &made, items)?;
    }
    Some(made)
}

/// A tensor of Remat's own for a number that torch wraps in one. The number lies in Remat's memory.
pub struct Wrapper {
    tensor: Tensor,
    storage: usize,
    number: *mut u64,
}

// SAFETY: the number and the tensor are this object's own; who calls with it borrows it mutably.
unsafe impl Send for Wrapper {}

impl Wrapper {
    /// A tensor like this one, and the value that owns it.
    ///
    /// # Safety
    /// The value is a number that torch wrapped, and alive.
    pub unsafe fn of(py: Python<'_>, torch: &Torch, value: &Value) -> Option<(Owned, Wrapper)> {
        let (makers, boxed) = (MAKERS.get()?, torch.boxed);
        // SAFETY: as the caller promises.
        let like = unsafe { Owned::of(boxed, value)? };
        let owned = make(py, torch, &makers.clone, &[&like, &Owned::none(boxed)])?;
        let tensor = owned.tensor(boxed)?;
        // SAFETY: `owned` keeps the clone and its storage, which nobody else has. The storage's memory is freed as its
        // destructor would, and it gets other memory with nothing to free it: three words, the data, the function that
        // frees, and what that is called with, as the probe of storages found. The number lives until `drop`, which
        // leaves it where somebody else still has the tensor.
        unsafe {
            let storage = tensor.storage(boxed);
            if storage == 0 || !is_sole(tensor.0) || !is_sole(storage) {
                return None;
            }
            let words = (storage + boxed.data) as *mut [usize; 3];
            let [_, deleter, context] = words.read();
            let number = Box::into_raw(Box::new(0_u64));
            words.write([number as usize, deleter, 0]);
            if context != 0 {
                let free: unsafe extern "C" fn(*mut c_void) = std::mem::transmute(deleter);
                free(context as *mut c_void);
            }
            *((tensor.0 + boxed.dtype) as *mut u64) |= boxed.wrapped;
            let wrapper = Wrapper {
                tensor,
                storage,
                number,
            };
            Some((owned, wrapper))
        }
    }

    /// Sets the number.
    ///
    /// # Safety
    /// No call reads it meanwhile.
    pub unsafe fn set(&mut self, bits: u64) {
        // SAFETY: the number is this object's own.
        unsafe { self.number.write(bits) }
    }

    /// Whether nobody else has the tensor.
    ///
    /// # Safety
    /// Its owner is there.
    pub unsafe fn is_back(&self) -> bool {
        // SAFETY: as the caller promises.
        unsafe { is_sole(self.tensor.0) && is_sole(self.storage) }
    }

    /// Frees the number.
    ///
    /// # Safety
    /// The owner of the tensor is there and will be dropped next.
    pub unsafe fn free(self) {
        // SAFETY: as the caller promises; nobody else has the tensor, so nobody reads the number any more.
        unsafe {
            if self.is_back() {
                drop(Box::from_raw(self.number));
            }
        }
    }
}
