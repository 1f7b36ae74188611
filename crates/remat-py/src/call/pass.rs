//! One pass over the arguments of an op on torch's stack. What it finds is [collected](super::stacked), or
//! [compared](super::expected) with what is expected.

use super::arity::Arity;
use super::entries::{BOOL, BYTE, Numbers};
use super::global_state::StateNumber;
use super::view::Number;
use crate::ffi::boxed::{Item, Tensor, Value, Wrapped};
use crate::ffi::dispatcher::Torch;

/// The arguments of a call in progress.
#[derive(Clone, Copy)]
pub struct OnStack<'a> {
    /// This build of torch.
    pub torch: &'a Torch,
    /// The schema.
    pub arity: &'a Arity,
    /// The arguments, on torch's stack.
    pub values: &'a [Value],
    /// Tells the op from others, and whether autograd records it.
    pub seed: u64,
    /// The settings under which it runs.
    pub state: StateNumber,
}

/// Words that come before those of the arguments: the seed, and the settings.
pub const HEAD: usize = 2;

/// The place of a tensor among the arguments of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The position of the argument that is or contains the tensor.
    pub argument: u32,
    /// The index of the tensor's storage.
    pub storage: u32,
}

/// A tensor whose entries decide what a call makes.
#[derive(Clone, Copy)]
pub struct Picked {
    /// `None` if they cannot be counted.
    pub numbers: Option<Numbers>,
    /// The index of its storage.
    pub storage: u32,
    /// Its offset, in elements.
    pub offset: i64,
}

/// Words that begin a part of a call's description: a kind, and a number of less than 56 bits.
pub mod word {
    /// Nothing.
    pub const NONE: u64 = 1;
    /// A flag, which is the number.
    pub const BOOL: u64 = 2;
    /// A list of so many items, which follow.
    pub const LIST: u64 = 3;
    /// A whole number, which follows.
    pub const INT: u64 = 4;
    /// The bits of a floating-point number follow.
    pub const FLOAT: u64 = 5;
    /// A text of so many bytes, which follow in words.
    pub const TEXT: u64 = 6;
    /// A tensor of so many dimensions. Its dispatch keys follow, then its dtype with the index of its storage, its
    /// sizes and its strides.
    pub const TENSOR: u64 = 7;
    /// A number of some kind that torch wrapped in a tensor, and that the words leave out.
    pub const WRAPPED: u64 = 8;
    /// A device, which follows.
    pub const DEVICE: u64 = 9;
    /// A floating-point number that the words leave out; 1 if it is the default, as for the next two.
    pub const A_FLOAT: u64 = 10;
    /// A whole number that the words leave out.
    pub const AN_INT: u64 = 11;
    /// A flag that the words leave out.
    pub const A_BOOL: u64 = 12;

    /// The word of a kind and a number.
    pub fn of(kind: u64, number: u64) -> u64 {
        number << 8 | kind
    }

    /// The kind and the number of a word.
    pub fn parts(word: u64) -> (u64, u64) {
        (word & 0xff, word >> 8)
    }
}

/// Takes in what a pass finds, in the order of the arguments.
pub trait Findings {
    /// The next of the words that tell the call's form from others. Whether the pass is to go on.
    fn word(&mut self, word: u64) -> bool;

    /// Sizes or strides of a tensor: as many words. Whether the pass is to go on.
    fn extents(&mut self, extents: &[i64]) -> bool;

    /// A tensor on this storage, as a value on the stack. Returns the index of the storage, in order of appearance.
    fn storage(&mut self, storage: usize, value: &Value) -> u32;

    /// That tensor has its place there, and an offset in elements.
    fn tensor(&mut self, place: Place, offset: i64);

    /// A number that the words leave out, and the position of the argument.
    fn number(&mut self, number: Number, position: u32);

    /// The numbers so far.
    fn numbers(&self) -> &[Number];

    /// The entries of a tensor decide what the call makes.
    fn picked(&mut self, picked: Picked);

    /// A tensor has no memory of its own, or is dispatched by Python.
    fn aside(&mut self);
}

struct Pass<'a, F> {
    torch: &'a Torch,
    findings: &'a mut F,
    tensors: usize,
    /// The position of the argument that is passed over.
    position: u32,
    /// Its tensors whose entries decide what the call makes.
    picks: Option<Picks>,
}

/// The tensors of an argument whose entries decide what a call makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Picks {
    /// The argument is one.
    Itself,
    /// The masks in a list of indices.
    Masks,
}

impl OnStack<'_> {
    /// Passes over the arguments; whether it came to their end.
    ///
    /// # Safety
    /// The values are alive, on the stack of a call in progress, and `torch` describes this build of torch.
    #[inline]
    pub unsafe fn pass(&self, findings: &mut impl Findings) -> bool {
        let mut pass = Pass {
            torch: self.torch,
            findings,
            tensors: 0,
            position: 0,
            picks: None,
        };
        let head: [u64; HEAD] = [self.seed, self.state.bits()];
        if !head.into_iter().all(|word| pass.findings.word(word)) {
            return false;
        }
        for (position, value) in self.values.iter().enumerate() {
            // SAFETY: as the caller promises.
            if !unsafe { pass.argument(self.arity, position, value) } {
                return false;
            }
        }
        // The numbers of a factory are its sizes.
        pass.tensors > 0 || pass.numbers_as_words()
    }
}

impl<F: Findings> Pass<'_, F> {
    #[inline]
    unsafe fn argument(&mut self, arity: &Arity, position: usize, value: &Value) -> bool {
        self.position = position as u32;
        // SAFETY: as the caller promises.
        let item = unsafe { self.torch.boxed.read(value) };
        self.picks = match item {
            _ if arity.schema.picks != Some(self.position) => None,
            Item::List(_) => Some(Picks::Masks),
            _ => Some(Picks::Itself),
        };
        let scalar = position < 64 && arity.schema.scalars >> position & 1 == 1;
        let number = match item {
            // SAFETY: as the caller promises, here and below.
            Item::Tensor(tensor) if unsafe { tensor.wraps(self.torch.boxed) } => {
                // SAFETY: it wraps a number.
                return self.wrapped(unsafe { tensor.number(self.torch.boxed) });
            }
            // SAFETY: as the caller promises.
            Item::Tensor(tensor) => return unsafe { self.tensor(value, tensor) },
            Item::Float(value) => Number::Float(value),
            Item::Int(value) if scalar => Number::Int(value),
            Item::Bool(value) if scalar => Number::Bool(value),
            // SAFETY: as the caller promises.
            _ => return unsafe { self.item(value, item) },
        };
        // Torch leaves out arguments that have their default value when it calls Python: another form.
        let default = arity.schema.defaults.get(position).copied().flatten();
        let is_default = default.is_some_and(|default| default == as_float(number));
        if !is_default {
            self.findings.number(number, self.position);
        }
        self.word(tag_of(number), u64::from(is_default))
    }

    /// A number that torch wrapped in a tensor, and hands to Python as a number. Its value cannot change a size.
    fn wrapped(&mut self, wrapped: Wrapped) -> bool {
        let number = match wrapped {
            Wrapped::Float(value) => Number::Float(value),
            Wrapped::Int(value) => Number::Int(value),
            Wrapped::Bool(value) => Number::Bool(value),
            Wrapped::Other => return false,
        };
        self.findings.number(number, self.position);
        self.word(word::WRAPPED, tag_of(number))
    }

    unsafe fn item(&mut self, value: &Value, item: Item<'_>) -> bool {
        match item {
            Item::None => self.word(word::NONE, 0),
            Item::Bool(value) => self.word(word::BOOL, u64::from(value)),
            Item::Int(value) => self.word(word::INT, 0) && self.findings.word(value as u64),
            Item::Float(value) => self.word(word::FLOAT, 0) && self.findings.word(value.to_bits()),
            Item::Text(text) => {
                self.word(word::TEXT, text.len() as u64)
                    && text.chunks(8).all(|part| {
                        let mut bytes = [0; 8];
                        bytes[..part.len()].copy_from_slice(part);
                        self.findings.word(u64::from_le_bytes(bytes))
                    })
            }
            Item::Device(device) => self.word(word::DEVICE, 0) && self.findings.word(device),
            // SAFETY: as the caller promises.
            Item::Tensor(tensor) => unsafe { self.tensor(value, tensor) },
            Item::List(items) => {
                self.word(word::LIST, items.len() as u64)
                    && items.iter().all(|value| {
                        // SAFETY: as the caller promises; the list keeps its items alive.
                        unsafe { self.item(value, self.torch.boxed.read(value)) }
                    })
            }
            Item::Other => false,
        }
    }

    #[inline]
    unsafe fn tensor(&mut self, value: &Value, tensor: Tensor) -> bool {
        let boxed = self.torch.boxed;
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
        if self.torch.dispatcher.aside(keys) {
            self.findings.aside();
            return false;
        }
        // In a list: Python is given a number there, which has no place in the form.
        // SAFETY: as above.
        let wraps = unsafe { tensor.wraps(boxed) };
        if wraps || storage == 0 || self.torch.dispatcher.odd(keys) {
            return false;
        }
        let index = self.findings.storage(storage, value);
        let place = Place {
            argument: self.position,
            storage: index,
        };
        self.findings.tensor(place, offset);
        let dtype = kind & 0xffff;
        let decides = match self.picks {
            None => false,
            Some(Picks::Itself) => true,
            Some(Picks::Masks) => matches!(dtype, BOOL | BYTE),
        };
        if decides {
            self.findings.picked(Picked {
                numbers: Numbers::of(dtype, sizes, strides),
                storage: index,
                offset,
            });
        }
        self.word(word::TENSOR, sizes.len() as u64)
            && self.findings.word(keys)
            && self.findings.word(u64::from(kind) | u64::from(index) << 32)
            && self.findings.extents(sizes)
            && self.findings.extents(strides)
    }

    /// Adds the numbers that the words leave out.
    fn numbers_as_words(&mut self) -> bool {
        (0..self.findings.numbers().len()).all(|at| {
            let bits = match self.findings.numbers()[at] {
                Number::Float(value) => value.to_bits(),
                Number::Int(value) => value as u64,
                Number::Bool(value) => u64::from(value),
            };
            self.findings.word(bits)
        })
    }

    /// Adds a word of the kind of what follows, and a number of less than 56 bits.
    fn word(&mut self, kind: u64, number: u64) -> bool {
        self.findings.word(word::of(kind, number))
    }
}

fn tag_of(number: Number) -> u64 {
    match number {
        Number::Float(_) => word::A_FLOAT,
        Number::Int(_) => word::AN_INT,
        Number::Bool(_) => word::A_BOOL,
    }
}

fn as_float(number: Number) -> f64 {
    match number {
        Number::Float(value) => value,
        Number::Int(value) => value as f64,
        Number::Bool(value) => f64::from(u8::from(value)),
    }
}
