//! Calls of a form as torch's dispatcher takes them, kept for replays: every argument but the storages, the offsets and
//! the numbers, which differ from call to call.

use pyo3::prelude::*;

use super::stacked::Stacked;
use super::view::Number;
use crate::ffi::boxed::{Item, Value};
use crate::ffi::caught::Exception;
use crate::ffi::dispatcher::{Op, Torch};
use crate::ffi::owned::{Owned, OwnedStack};
use crate::ffi::shell::{self, Shell, Wrapper};
use crate::ffi::watch::{Strong, is_sole};

/// A call that came to the fallback.
#[derive(Clone, Copy)]
pub struct Dispatched<'a> {
    /// The op.
    pub op: Op,
    /// The keys with which it came.
    pub keys: u64,
    /// The arguments.
    pub values: &'a [Value],
}

/// The place of a number.
enum Slot {
    /// An argument that is the number.
    Plain(usize),
    /// A tensor that wraps it.
    Wrapped(Wrapper),
}

/// The arguments of all calls of a form.
pub struct Template {
    torch: Torch,
    op: Op,
    keys: u64,
    values: Vec<Owned>,
    shells: Vec<Shell>,
    slots: Vec<Slot>,
    /// Empty between calls.
    stack: OwnedStack,
    /// Whether it can be used: no call changed or kept a tensor of it.
    whole: bool,
}

/// All that differs from call to call.
pub struct Differing<'a> {
    /// For each tensor its storage, as an index into `storages`.
    pub inputs: &'a [u32],
    /// The storages.
    pub storages: &'a [Strong],
    /// For each tensor its offset, in elements.
    pub offsets: &'a [i64],
    /// The numbers that the form leaves out.
    pub numbers: &'a [Number],
}

impl Template {
    /// The template of a call's form; `None` if an argument is of an unusual kind. `absent` tells arguments that a
    /// replay leaves out.
    ///
    /// # Safety
    /// The call is in progress, `stacked` was passed over its arguments, and `torch` describes this build of torch.
    pub unsafe fn of(
        py: Python<'_>,
        torch: &Torch,
        call: &Dispatched<'_>,
        stacked: &Stacked,
        absent: impl Fn(usize) -> bool,
    ) -> Option<Template> {
        let mut template = Template {
            torch: *torch,
            op: call.op,
            keys: torch.dispatcher.below(call.keys),
            values: Vec::with_capacity(call.values.len()),
            shells: Vec::new(),
            slots: Vec::with_capacity(stacked.positions.len()),
            stack: OwnedStack::with_room(torch, call.values.len())?,
            whole: true,
        };
        for (position, value) in call.values.iter().enumerate() {
            let numbered = stacked.positions.contains(&(position as u32));
            let owned = if absent(position) {
                Owned::none(torch.boxed)
            } else {
                // SAFETY: as the caller promises.
                unsafe { template.argument(py, value, numbered.then_some(position))? }
            };
            template.values.push(owned);
        }
        (template.slots.len() == stacked.positions.len()).then_some(template)
    }

    /// # Safety
    /// As for [`of`](Self::of).
    unsafe fn argument(
        &mut self,
        py: Python<'_>,
        value: &Value,
        slot: Option<usize>,
    ) -> Option<Owned> {
        let torch = self.torch;
        // SAFETY: as the caller promises, here and below; lists keep their items alive.
        match (unsafe { torch.boxed.read(value) }, slot) {
            (Item::Tensor(_), Some(_)) => {
                // SAFETY: as above; a tensor in the place of a number is one that torch wrapped.
                let (owned, wrapper) = unsafe { Wrapper::of(py, &torch, value)? };
                self.slots.push(Slot::Wrapped(wrapper));
                Some(owned)
            }
            // SAFETY: as above.
            (Item::Tensor(_), None) => unsafe { self.shell(py, value) },
            // SAFETY: as above.
            (Item::List(items), _) => unsafe { self.list(py, value, items) },
            _ => {
                self.slots.extend(slot.map(Slot::Plain));
                // SAFETY: as above.
                unsafe { Owned::of(torch.boxed, value) }
            }
        }
    }

    /// # Safety
    /// As for [`of`](Self::of).
    unsafe fn shell(&mut self, py: Python<'_>, value: &Value) -> Option<Owned> {
        // SAFETY: as the caller promises; another value than a tensor has no shell.
        let (owned, shell) = unsafe { Shell::of(py, &self.torch, value)? };
        self.shells.push(shell);
        Some(owned)
    }

    /// # Safety
    /// As for [`of`](Self::of).
    unsafe fn list(&mut self, py: Python<'_>, value: &Value, items: &[Value]) -> Option<Owned> {
        let torch = self.torch;
        // SAFETY: as the caller promises.
        let read = |item| unsafe { torch.boxed.read(item) };
        if items
            .iter()
            .any(|item| matches!(read(item), Item::Tensor(_)))
        {
            // SAFETY: as the caller promises.
            let shells = items.iter().map(|item| unsafe { self.shell(py, item) });
            let shells = shells.collect::<Option<Vec<_>>>()?;
            // SAFETY: as the caller promises; shells are tensors.
            return unsafe { shell::list(py, &torch, value, shells) };
        }
        let flat = !items.iter().any(|item| matches!(read(item), Item::List(_)));
        // Who else has the list could change it.
        // SAFETY: as the caller promises.
        unsafe {
            let own = is_sole(value.raw().1 as usize);
            (flat && own)
                .then(|| Owned::of(torch.boxed, value))
                .flatten()
        }
    }

    /// Number of tensors among the arguments, without numbers that are wrapped in one.
    pub fn tensors(&self) -> usize {
        self.shells.len()
    }

    /// Whether the template can be used with these.
    fn fits(&self, differing: &Differing<'_>) -> bool {
        let there = |&i: &u32| (i as usize) < differing.storages.len();
        self.whole
            && differing.inputs.len() == self.shells.len()
            && differing.offsets.len() == self.shells.len()
            && differing.numbers.len() == self.slots.len()
            && differing.inputs.iter().all(there)
    }

    /// Calls the op, and returns the storages of its results in the order in which they are flattened; `None` if the
    /// template cannot be used.
    ///
    /// # Safety
    /// Dtypes, sizes and strides of the form's tensors lie within the storages, at these offsets.
    pub unsafe fn call(
        &mut self,
        py: Python<'_>,
        differing: &Differing<'_>,
    ) -> Option<Result<Vec<Option<Strong>>, Exception>> {
        if !self.fits(differing) {
            return None;
        }
        self.lend(differing);
        for value in &self.values {
            self.stack.push(value);
        }
        // SAFETY: the arguments are those of a call that the program made, but for what differs.
        let called = unsafe { self.stack.call(py, &self.op, self.keys) };
        let results = called.map(|()| self.storages(self.stack.values()));
        self.stack.clear(); // results that are arguments too no longer own them
        self.take_back(differing);
        if !self.whole {
            self.give_up();
        }
        Some(results)
    }

    /// Drops everything that it owns. What an op kept is that op's from then on.
    fn give_up(&mut self) {
        for slot in self.slots.drain(..) {
            if let Slot::Wrapped(wrapper) = slot {
                // SAFETY: the values, which own the tensor, are dropped next.
                unsafe { wrapper.free() };
            }
        }
        self.shells.clear();
        self.values.clear();
    }

    fn lend(&mut self, differing: &Differing<'_>) {
        let boxed = self.torch.boxed;
        let lent = differing.inputs.iter().zip(differing.offsets);
        for (shell, (&input, &offset)) in self.shells.iter().zip(lent) {
            // SAFETY: the values own the shell, which is used by nobody else and has no storage since the last call.
            unsafe { shell.lend(boxed, &differing.storages[input as usize], offset) };
        }
        for (slot, number) in self.slots.iter_mut().zip(differing.numbers) {
            let bits = match *number {
                Number::Float(value) => value.to_bits(),
                Number::Int(value) => value as u64,
                Number::Bool(value) => u64::from(value),
            };
            match slot {
                Slot::Plain(position) => self.values[*position].set_number(bits),
                // SAFETY: no call is in progress.
                Slot::Wrapped(wrapper) => unsafe { wrapper.set(bits) },
            }
        }
    }

    fn take_back(&mut self, differing: &Differing<'_>) {
        for (shell, &input) in self.shells.iter().zip(differing.inputs) {
            // SAFETY: the values own the shell, and the call is over.
            self.whole &=
                unsafe { shell.take_back(self.torch.boxed, &differing.storages[input as usize]) };
        }
        for slot in &self.slots {
            if let Slot::Wrapped(wrapper) = slot {
                // SAFETY: the values own the tensor.
                self.whole &= unsafe { wrapper.is_back() };
            }
        }
    }

    /// The storages of results on the stack.
    fn storages(&self, results: &[Value]) -> Vec<Option<Strong>> {
        let boxed = self.torch.boxed;
        let mut storages = Vec::with_capacity(results.len());
        let mut add = |item: Item<'_>| {
            storages.push(match item {
                // SAFETY: the stack owns the tensor, and that its storage, null or alive.
                Item::Tensor(tensor) => unsafe {
                    let storage = tensor.storage(boxed);
                    (storage != 0).then(|| Strong::new(storage)).flatten()
                },
                _ => None,
            });
        };
        for value in results {
            // SAFETY: the stack owns the value; lists keep their items alive.
            match unsafe { boxed.read(value) } {
                // SAFETY: as above.
                Item::List(items) => items
                    .iter()
                    .for_each(|item| add(unsafe { boxed.read(item) })),
                item => add(item),
            }
        }
        storages
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        self.give_up();
    }
}
