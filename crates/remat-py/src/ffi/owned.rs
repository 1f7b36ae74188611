//! Values of torch's that Remat owns, and stacks of its own to call ops with.

use std::ffi::c_void;
use std::sync::OnceLock;

use pyo3::prelude::*;
use smallvec::SmallVec;

use super::boxed::{Boxed, Item, Stack, Tensor, Value};
use super::caught::{self, Exception};
use super::dispatcher::{Op, Torch};
use super::symbols::function;
use super::watch::Strong;

/// C++'s memory, in which stacks and the items of lists lie.
#[derive(Clone, Copy)]
struct Memory {
    new: unsafe extern "C" fn(usize) -> *mut c_void,
    delete: unsafe extern "C" fn(*mut c_void),
}

/// Functions that calls of Remat's own need.
struct Calling {
    memory: Memory,
    set_grad: unsafe extern "C" fn(bool),
}

static CALLING: OnceLock<Calling> = OnceLock::new();

/// Looks up what calls of Remat's own need.
///
/// # Errors
/// `RuntimeError` that names the function which torch lacks.
pub fn set_up(c10: &str, python: &str) -> PyResult<()> {
    caught::set_up(python)?;
    // SAFETY: the mangled names state the arguments: `operator new(unsigned long)`, `operator delete(void*)` and
    // `c10::GradMode::set_enabled(bool)`.
    let calling = unsafe {
        Calling {
            memory: Memory {
                new: function(python, "_Znwm")?,
                delete: function(python, "_ZdlPv")?,
            },
            set_grad: function(c10, "_ZN3c108GradMode11set_enabledEb")?,
        }
    };
    let _ = CALLING.set(calling);
    Ok(())
}

/// Sets whether autograd records ops of this thread, until the guard is dropped.
pub fn grad_mode(torch: &Torch, on: bool) -> GradGuard {
    let before = torch.dispatcher.grad_enabled();
    set_grad(before, on);
    GradGuard { before, on }
}

/// The grad mode of this thread, set for a while.
pub struct GradGuard {
    before: bool,
    on: bool,
}

impl Drop for GradGuard {
    fn drop(&mut self) {
        set_grad(self.on, self.before);
    }
}

fn set_grad(from: bool, to: bool) {
    if let Some(calling) = CALLING.get().filter(|_| from != to) {
        // SAFETY: sets a flag of this thread.
        unsafe { (calling.set_grad)(to) }
    }
}

/// A value, and the reference that it holds.
pub struct Owned {
    value: Value,
    counted: Option<Strong>,
}

impl Owned {
    /// Nothing.
    pub fn none(boxed: &Boxed) -> Owned {
        let value = Value {
            payload: 0,
            tag: boxed.none,
            _unused: 0,
        };
        Owned {
            value,
            counted: None,
        }
    }

    /// An `int64_t`.
    pub fn int(boxed: &Boxed, number: i64) -> Owned {
        let value = Value {
            payload: number as u64,
            tag: boxed.int,
            _unused: 0,
        };
        Owned {
            value,
            counted: None,
        }
    }

    /// Another owner of a value; `None` for a value of a kind that is not read.
    ///
    /// # Safety
    /// The value is alive (see [`boxed`](super::boxed)), and references are counted as [`Strong`] says.
    pub unsafe fn of(boxed: &Boxed, value: &Value) -> Option<Owned> {
        // SAFETY: as the caller promises.
        let counted = match unsafe { boxed.read(value) } {
            Item::Other => return None,
            Item::Tensor(_) | Item::List(_) | Item::Text(_) => {
                // SAFETY: the payload of these kinds is the address of an object that the value owns.
                Some(unsafe { Strong::new(value.payload as usize) }?)
            }
            _ => None,
        };
        Some(Owned {
            value: *value,
            counted,
        })
    }

    /// The value.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The tensor that the value is.
    pub fn tensor(&self, boxed: &Boxed) -> Option<Tensor> {
        (self.value.tag == boxed.tensor && self.counted.is_some())
            .then_some(Tensor(self.value.payload as usize))
    }

    /// Puts another number in the place of this one, which is of the same type.
    pub fn set_number(&mut self, bits: u64) {
        if self.counted.is_none() {
            self.value.payload = bits;
        }
    }

    fn copy(&self) -> Owned {
        Owned {
            value: self.value,
            counted: self.counted.as_ref().map(Strong::copy),
        }
    }

    /// Gives the reference up to whoever gets the value.
    fn give(self) -> Value {
        if let Some(counted) = self.counted {
            counted.give();
        }
        self.value
    }
}

/// The arguments of a call that is to be made again if it fails: its kernel may have taken some of them.
pub struct Arguments {
    values: SmallVec<[Owned; 6]>,
    /// Values on the stack below them.
    below: usize,
}

impl Arguments {
    /// The arguments of a call; `None` where one cannot be kept.
    ///
    /// # Safety
    /// The call is in progress, its arguments are the last so many values on the stack, and `boxed` describes this
    /// build of torch.
    pub unsafe fn of(boxed: &Boxed, stack: &Stack, count: usize) -> Option<Arguments> {
        // SAFETY: as the caller promises.
        let all = unsafe { stack.all() };
        let below = all.len().checked_sub(count)?;
        // SAFETY: as the caller promises.
        let values = all[below..]
            .iter()
            .map(|value| unsafe { Owned::of(boxed, value) });
        let values = values.collect::<Option<_>>()?;
        Some(Arguments { values, below })
    }

    /// Puts the arguments back in the place of what the call left there.
    ///
    /// # Safety
    /// The call failed, and its stack is the one that the arguments are of.
    pub unsafe fn put_back(self, boxed: &Boxed, stack: &mut Stack) {
        // SAFETY: as the caller promises. A vector keeps its room, and the values lay there before. What a kernel left
        // of its arguments leaves the stack before they take its place.
        unsafe {
            while stack.all().len() > self.below {
                stack.end = stack.end.sub(1);
                drop(taken(boxed, stack.end.read()));
            }
            for value in self.values {
                assert!(stack.end < stack.capacity);
                stack.end.write(value.give());
                stack.end = stack.end.add(1);
            }
        }
    }
}

/// Takes over the reference of a value that its owner gives up. One of a kind that is not read is lost.
///
/// # Safety
/// The value is alive, and nobody gives its reference back.
unsafe fn taken(boxed: &Boxed, value: Value) -> Owned {
    // SAFETY: as the caller promises.
    let counted = match unsafe { boxed.read(&value) } {
        Item::Tensor(_) | Item::List(_) | Item::Text(_) => {
            // SAFETY: as in `Owned::of`; this time the reference is the value's own.
            Some(unsafe { Strong::from_given(value.payload as usize) })
        }
        _ => None,
    };
    Owned { value, counted }
}

/// A stack of Remat's own. The ops that it is given to change it as they change torch's.
pub struct OwnedStack {
    stack: Stack,
    torch: Torch,
    memory: Memory,
}

impl OwnedStack {
    /// An empty stack with room for so many values; `None` before [`set_up`].
    pub fn with_room(torch: &Torch, values: usize) -> Option<OwnedStack> {
        let memory = CALLING.get()?.memory;
        Some(OwnedStack {
            // SAFETY: C++'s own function for memory.
            stack: unsafe { buffer(memory, values.max(1)) },
            torch: *torch,
            memory,
        })
    }

    /// Pushes another owner of a value. There must be room.
    pub fn push(&mut self, owned: &Owned) {
        assert!(self.stack.end < self.stack.capacity);
        // SAFETY: the place is within the buffer and holds no value yet.
        unsafe {
            self.stack.end.write(owned.copy().give());
            self.stack.end = self.stack.end.add(1);
        }
    }

    /// Calls an op with the values as its arguments, without the GIL; the results take their place. Ops that it calls
    /// do not come to the fallback.
    ///
    /// # Errors
    /// The exception that the op threw.
    ///
    /// # Safety
    /// The op takes such arguments, and has a kernel for these keys.
    pub unsafe fn call(&mut self, py: Python<'_>, op: &Op, keys: u64) -> Result<(), Exception> {
        let dispatcher = self.torch.dispatcher;
        let _excluded = dispatcher.exclude();
        let kernel = dispatcher.kernel();
        let (op, stack) = (op as *const Op as usize, &raw mut self.stack as usize);
        let thrown = py.detach(|| {
            // SAFETY: as the caller promises. Both addresses are of things that the caller holds.
            unsafe { caught::call(kernel, op as *const Op, keys, stack as *mut Stack) }
                .map_err(Thrown)
        });
        thrown.map_err(|Thrown(exception)| exception)
    }

    /// The values.
    pub fn values(&self) -> &[Value] {
        // SAFETY: the stack is this object's own, and whoever changes it borrows it mutably.
        unsafe { self.stack.all() }
    }

    /// Drops all values.
    pub fn clear(&mut self) {
        while self.pop().is_some() {}
    }

    /// Takes the last value.
    pub fn pop(&mut self) -> Option<Owned> {
        if self.values().is_empty() {
            return None;
        }
        // SAFETY: there is a last value, and it leaves the stack.
        unsafe {
            self.stack.end = self.stack.end.sub(1);
            Some(taken(self.torch.boxed, self.stack.end.read()))
        }
    }
}

/// An exception on its way from code without the GIL.
struct Thrown(Exception);

// SAFETY: an exception belongs to whoever caught it, and stays on its thread here.
unsafe impl Send for Thrown {}

// SAFETY: the stack is this object's own, in C++'s memory, which belongs to no thread.
unsafe impl Send for OwnedStack {}

impl Drop for OwnedStack {
    fn drop(&mut self) {
        self.clear();
        // SAFETY: the buffer is of C++'s memory, whether this module or torch allocated it, and holds no value.
        unsafe { (self.memory.delete)(self.stack.begin.cast()) }
    }
}

/// An empty vector of values with room for so many.
///
/// # Safety
/// `memory` is C++'s.
unsafe fn buffer(memory: Memory, values: usize) -> Stack {
    // SAFETY: as the caller promises. It does not return null.
    unsafe {
        let begin = (memory.new)(values * size_of::<Value>()).cast::<Value>();
        Stack {
            begin,
            end: begin,
            capacity: begin.add(values),
        }
    }
}

/// Puts other items in the place of a list's own.
///
/// # Safety
/// The list has no other owner, and its type is that of the items.
pub unsafe fn set_items(boxed: &Boxed, list: &Owned, items: Vec<Owned>) -> Option<()> {
    let memory = CALLING.get()?.memory;
    let address = list.counted.as_ref()?.address();
    // SAFETY: the caller promises a list that nobody else uses; the probe found its vector at this offset. The old
    // buffer is C++'s, and its values leave it before it is freed.
    unsafe {
        let vector = (address + boxed.header) as *mut Stack;
        let old: Vec<Value> = (*vector).all().to_vec();
        let begin = (*vector).begin;
        let mut new = buffer(memory, items.len().max(1));
        for item in items {
            new.end.write(item.give());
            new.end = new.end.add(1);
        }
        vector.write(new);
        for value in old {
            drop(taken(boxed, value));
        }
        (memory.delete)(begin.cast());
    }
    Some(())
}

/// The word of a list that tells the type of its items.
///
/// # Safety
/// The value is a list and alive.
pub unsafe fn item_type(boxed: &Boxed, list: &Value) -> usize {
    // SAFETY: as the caller promises: behind the vector lies a pointer to the type.
    unsafe { *((list.payload as usize + boxed.header + size_of::<Stack>()) as *const usize) }
}
