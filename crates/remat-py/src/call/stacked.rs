//! One pass over the arguments of an op on torch's stack: the storages, and the key of the call's form.

use std::hash::Hasher;

use rustc_hash::FxHasher;

use super::view::Number;
use crate::ffi::boxed::{Boxed, Item, Tensor, Value, Wrapped};
use crate::ffi::dispatcher::{Dispatcher, Torch};

/// A schema, as far as the pass needs it.
#[derive(Debug)]
pub struct Arity {
    /// Number of arguments.
    pub arguments: usize,
    /// Number of results.
    pub results: usize,
    /// Bit `i`: positional argument `i` is a number whose value cannot change a size.
    pub scalars: u64,
    /// Default values of arguments that are numbers.
    pub defaults: Vec<Option<f64>>,
    /// Names of the arguments.
    pub names: Vec<String>,
}

/// The place of a tensor among the arguments of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The position of the argument that is or contains the tensor.
    pub argument: u32,
    /// The index of the tensor's storage.
    pub storage: u32,
}

/// The findings of one pass, in buffers that are used again.
#[derive(Default)]
pub struct Stacked {
    /// Key of the form.
    pub key: u64,
    /// Addresses of the distinct storages, in order of appearance.
    pub storages: Vec<usize>,
    /// For each of them a value on the stack that views it.
    pub tensors: Vec<*const Value>,
    /// Offsets of all tensors, in elements.
    pub offsets: Vec<i64>,
    /// The places of all tensors.
    pub places: Vec<Place>,
    /// Numbers that the key leaves out.
    pub numbers: Vec<Number>,
    /// Their positions among the arguments.
    pub positions: Vec<u32>,
    /// Whether a tensor has no memory of its own, or is dispatched by Python.
    pub aside: bool,
}

struct Pass<'a> {
    boxed: &'a Boxed,
    dispatcher: &'a Dispatcher,
    hash: FxHasher,
    out: &'a mut Stacked,
    tensors: usize,
    /// The position of the argument that is passed over.
    position: u32,
}

impl Stacked {
    /// Passes over the arguments of a call; whether it knows all of them. `seed` tells apart calls that differ in other
    /// ways than their arguments.
    ///
    /// # Safety
    /// The values are alive, on the stack of a call in progress, and `torch` describes this build of torch.
    pub unsafe fn pass(
        &mut self,
        torch: &Torch,
        arity: &Arity,
        values: &[Value],
        seed: u64,
    ) -> bool {
        self.storages.clear();
        self.tensors.clear();
        self.offsets.clear();
        self.places.clear();
        self.numbers.clear();
        self.positions.clear();
        self.aside = false;
        let mut hash = FxHasher::default();
        hash.write_u64(seed);
        let mut pass = Pass {
            boxed: torch.boxed,
            dispatcher: torch.dispatcher,
            hash,
            out: self,
            tensors: 0,
            position: 0,
        };
        for (position, value) in values.iter().enumerate() {
            // SAFETY: as the caller promises.
            if !unsafe { pass.argument(arity, position, value) } {
                return false;
            }
        }
        if pass.tensors == 0 {
            // A factory: its numbers are its sizes.
            for at in 0..pass.out.numbers.len() {
                let bits = match pass.out.numbers[at] {
                    Number::Float(value) => value.to_bits(),
                    Number::Int(value) => value as u64,
                    Number::Bool(value) => u64::from(value),
                };
                pass.hash.write_u64(bits);
            }
        }
        let key = pass.hash.finish();
        self.key = key;
        true
    }
}

impl Pass<'_> {
    unsafe fn argument(&mut self, arity: &Arity, position: usize, value: &Value) -> bool {
        self.position = position as u32;
        // SAFETY: as the caller promises.
        let item = unsafe { self.boxed.read(value) };
        let scalar = position < 64 && arity.scalars >> position & 1 == 1;
        let number = match item {
            // SAFETY: as the caller promises, here and below.
            Item::Tensor(tensor) if unsafe { tensor.wraps(self.boxed) } => {
                // SAFETY: it wraps a number.
                return self.wrapped(position, unsafe { tensor.number(self.boxed) });
            }
            Item::Float(value) => Number::Float(value),
            Item::Int(value) if scalar => Number::Int(value),
            Item::Bool(value) if scalar => Number::Bool(value),
            // SAFETY: as the caller promises.
            _ => return unsafe { self.item(value, item) },
        };
        self.hash.write_u8(tag_of(number));
        // Torch leaves out arguments that have their default value when it calls Python: another form.
        let default = arity.defaults.get(position).copied().flatten();
        let is_default = default.is_some_and(|default| default == as_float(number));
        self.hash.write_u8(u8::from(is_default));
        if !is_default {
            self.out.numbers.push(number);
            self.out.positions.push(position as u32);
        }
        true
    }

    /// A number that torch wrapped in a tensor, and hands to Python as a number. Its value cannot change a size.
    fn wrapped(&mut self, position: usize, wrapped: Wrapped) -> bool {
        let number = match wrapped {
            Wrapped::Float(value) => Number::Float(value),
            Wrapped::Int(value) => Number::Int(value),
            Wrapped::Bool(value) => Number::Bool(value),
            Wrapped::Other => return false,
        };
        self.hash.write_u8(8);
        self.hash.write_u8(tag_of(number));
        self.out.numbers.push(number);
        self.out.positions.push(position as u32);
        true
    }

    unsafe fn item(&mut self, value: &Value, item: Item<'_>) -> bool {
        match item {
            Item::None => self.hash.write_u8(1),
            Item::Bool(value) => self.hash.write_u8(2 + u8::from(value)),
            Item::Int(value) => {
                self.hash.write_u8(4);
                self.hash.write_i64(value);
            }
            Item::Float(value) => {
                self.hash.write_u8(5);
                self.hash.write_u64(value.to_bits());
            }
            Item::Text(text) => {
                self.hash.write_u8(6);
                self.hash.write(text);
            }
            Item::Device(device) => {
                self.hash.write_u8(9);
                self.hash.write_u64(device);
            }
            // SAFETY: as the caller promises.
            Item::Tensor(tensor) => return unsafe { self.tensor(value, tensor) },
            Item::List(items) => {
                self.hash.write_usize(items.len() ^ 0x5bd1_e995);
                return items.iter().all(|value| {
                    // SAFETY: as the caller promises; the list keeps its items alive.
                    unsafe { self.item(value, self.boxed.read(value)) }
                });
            }
            Item::Other => return false,
        }
        true
    }

    unsafe fn tensor(&mut self, value: &Value, tensor: Tensor) -> bool {
        let boxed = self.boxed;
        self.tensors += 1;
        // SAFETY: the caller promises that the tensor is alive.
        let (keys, kind, offset, storage, [sizes, strides]) = unsafe {
            (
                tensor.keys(boxed),
                tensor.kind(boxed),
                tensor.offset(boxed),
                tensor.storage(boxed),
                tensor.geometry(boxed),
            )
        };
        if self.dispatcher.aside(keys) {
            self.out.aside = true;
            return false;
        }
        // In a list: Python is given a number there, which has no place in the form.
        // SAFETY: as above.
        let wraps = unsafe { tensor.wraps(boxed) };
        if wraps || storage == 0 || self.dispatcher.odd(keys) {
            return false;
        }
        let known = self.out.storages.iter().position(|&known| known == storage);
        let input = known.unwrap_or_else(|| {
            self.out.storages.push(storage);
            self.out.tensors.push(value);
            self.out.storages.len() - 1
        });
        self.out.offsets.push(offset);
        self.out.places.push(Place {
            argument: self.position,
            storage: input as u32,
        });
        self.hash.write_u8(7);
        self.hash.write_u64(keys);
        self.hash.write_u32(kind);
        self.hash.write_usize(input);
        self.hash.write_usize(sizes.len());
        for &extent in sizes.iter().chain(strides) {
            self.hash.write_i64(extent);
        }
        true
    }
}

fn tag_of(number: Number) -> u8 {
    match number {
        Number::Float(_) => 10,
        Number::Int(_) => 11,
        Number::Bool(_) => 12,
    }
}

fn as_float(number: Number) -> f64 {
    match number {
        Number::Float(value) => value,
        Number::Int(value) => value as f64,
        Number::Bool(value) => f64::from(u8::from(value)),
    }
}
