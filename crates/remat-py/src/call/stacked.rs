//! One pass over the arguments of an op on torch's stack: the storages, and what tells the call's form apart.

use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustc_hash::FxHasher;
use smallvec::SmallVec;

use super::entries::{BOOL, BYTE, Numbers};
use super::rules::Rule;
use super::view::Number;
use crate::ffi::boxed::{Boxed, Item, Tensor, Value, Wrapped, storage_bytes};
use crate::ffi::dispatcher::{Dispatcher, Torch};
use crate::ffi::watch::{self, Strong};

/// A schema, as far as the pass needs it.
#[derive(Debug)]
pub struct Arity {
    /// Number of arguments.
    pub arguments: usize,
    /// Number of results.
    pub results: usize,
    /// Bit `i`: positional argument `i` is a number whose value cannot change a size.
    pub scalars: u64,
    /// Bit `i`: positional argument `i` is a whole number, or a list of such, that each call names.
    pub extents: u64,
    /// The rule for the sizes of the results, if there is a short one.
    pub rule: Option<Rule>,
    /// Default values of arguments that are numbers.
    pub defaults: Vec<Option<f64>>,
    /// Names of the arguments.
    pub names: Vec<String>,
    /// The argument of which an op picks the numbers other than zero, or whose masks it picks by. How many there are
    /// decides what a call makes.
    pub picks: Option<u32>,
    /// Whether calls may run while nobody watches: nothing has to be done for them but to count what they take.
    pub unwatched: bool,
    /// The calls that were watched.
    pub seen: Seen,
}

/// The memory of the calls of an op that were watched.
#[derive(Debug)]
pub struct Seen {
    /// The most bytes that storages among the arguments of one had.
    read: AtomicU64,
    /// The most bytes that one took beside them; the largest number there is before the first one.
    taken: AtomicU64,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            read: AtomicU64::new(0),
            taken: AtomicU64::new(u64::MAX),
        }
    }
}

impl Seen {
    /// Takes in how much a call reads.
    #[inline]
    pub fn note_read(&self, bytes: u64) {
        if bytes > self.read() {
            self.read.fetch_max(bytes, Relaxed);
        }
    }

    /// Takes in how much a call takes.
    #[inline]
    pub fn note_taken(&self, bytes: u64) {
        match self.taken() {
            // Two threads that come first at once lose one of the two.
            u64::MAX => self.taken.store(bytes, Relaxed),
            known if known < bytes => drop(self.taken.fetch_max(bytes, Relaxed)),
            _ => {}
        }
    }

    /// The most that a call read, in bytes.
    #[inline]
    pub fn read(&self) -> u64 {
        self.read.load(Relaxed)
    }

    /// The most that a call took.
    #[inline]
    pub fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// Forgets it all.
    pub fn forget(&self) {
        self.read.store(0, Relaxed);
        self.taken.store(u64::MAX, Relaxed);
    }
}

/// The place of a tensor among the arguments of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The position of the argument that is or contains the tensor.
    pub argument: u32,
    /// The index of the tensor's storage.
    pub storage: u32,
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

/// The findings of one pass, in buffers that are used again.
#[derive(Default)]
pub struct Stacked {
    /// All that tells the call's form from others: two calls have one form if they have the same words.
    pub words: Vec<u64>,
    /// A hash of the words.
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
    /// The tensors whose entries decide what the call makes, until they are counted.
    picked: SmallVec<[Picked; 1]>,
    /// The place among the words of the entries' count, if one tensor alone decides.
    count: Option<usize>,
    /// Keeps a tensor of each storage until the op is recorded. Torch drops its own references once the kernel ran.
    kept: SmallVec<[Strong; 4]>,
}

/// A tensor whose entries decide what a call makes.
#[derive(Clone, Copy)]
struct Picked {
    /// `None` if they cannot be counted.
    numbers: Option<Numbers>,
    /// The index of its storage.
    storage: u32,
    /// Its offset, in elements.
    offset: i64,
}

/// Whether [`keep`](Stacked::keep) can keep arguments alive.
pub fn keeps_tensors() -> bool {
    watch::is_probed()
}

struct Pass<'a> {
    boxed: &'a Boxed,
    dispatcher: &'a Dispatcher,
    out: &'a mut Stacked,
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
        self.words.clear();
        self.storages.clear();
        self.tensors.clear();
        self.offsets.clear();
        self.places.clear();
        self.numbers.clear();
        self.positions.clear();
        self.aside = false;
        self.picked.clear();
        self.count = None;
        self.words.push(seed);
        let mut pass = Pass {
            boxed: torch.boxed,
            dispatcher: torch.dispatcher,
            out: self,
            tensors: 0,
            position: 0,
            picks: None,
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
                pass.out.words.push(bits);
            }
        }
        self.key = hash(&self.words);
        true
    }

    /// The indices of the storages whose numbers decide what the call makes, and are still to be counted.
    pub fn picked(&self) -> impl Iterator<Item = u32> {
        self.picked.iter().map(|picked| picked.storage)
    }

    /// Whether the words tell what the call makes: nothing is left to be counted.
    pub fn is_told(&self) -> bool {
        self.picked.is_empty()
    }

    /// Counts the entries that decide what the call makes, and adds their numbers to the words. Returns whether it
    /// could; without bytes in memory, for one, nothing can be counted.
    ///
    /// # Safety
    /// The values that were passed over are alive. Storages that [`picked`](Self::picked) lists are in main memory, and
    /// none of them loses its bytes during the call.
    pub unsafe fn count(&mut self, torch: &Torch, arity: &Arity) -> bool {
        let picked = std::mem::take(&mut self.picked);
        let length = self.words.len();
        let all = picked.iter().all(|picked| {
            // SAFETY: as the caller promises.
            let entries = unsafe { self.entries(torch, *picked) };
            self.words.extend(entries);
            entries.is_some()
        });
        if !all {
            self.words.truncate(length);
            self.picked = picked;
            return false;
        }
        let at = arity.picks;
        let tensors = self
            .places
            .iter()
            .filter(|place| Some(place.argument) == at);
        self.count = (tensors.count() == 1).then_some(self.words.len() - 1);
        self.key = hash(&self.words);
        true
    }

    /// # Safety
    /// As for [`count`](Self::count).
    unsafe fn entries(&self, torch: &Torch, picked: Picked) -> Option<u64> {
        let Picked {
            numbers, offset, ..
        } = picked;
        let (storage, numbers) = (self.storages[picked.storage as usize], numbers?);
        let skipped = usize::try_from(offset).ok()?.checked_mul(numbers.width())?;
        // SAFETY: a value that was passed over, and is alive, owns the storage.
        let (data, bytes) = unsafe {
            let bytes = storage_bytes(torch.boxed, storage);
            (torch.boxed.data(storage), usize::try_from(bytes).ok()?)
        };
        let end = skipped.checked_add(numbers.bytes()?)?;
        if data == 0 || end > bytes {
            return None;
        }
        // SAFETY: the storage has so many bytes, which stay where they are, as the caller promises.
        Some(unsafe { numbers.entries((data as *const u8).add(skipped)) })
    }

    /// The count of entries, if there is one, and the words but for it.
    pub fn counted(&self) -> Option<(u64, Vec<u64>)> {
        let at = self.count?;
        let mut words = self.words.clone();
        let count = words.remove(at);
        Some((count, words))
    }

    /// Keeps the arguments alive, and with them their storages, until [`let_go`](Self::let_go).
    ///
    /// # Safety
    /// The values that were passed over are alive, and [`keeps_tensors`].
    pub unsafe fn keep(&mut self, torch: &Torch) {
        for &value in &self.tensors {
            // SAFETY: the caller promises that the value is alive.
            if let Item::Tensor(tensor) = unsafe { torch.boxed.read(&*value) } {
                // SAFETY: as above; tensors count references as storages do.
                self.kept.extend(unsafe { Strong::new(tensor.address()) });
            }
        }
    }

    /// Lets go of the arguments. The last reference to one may run code of the program's: not under a lock.
    pub fn let_go(&mut self) {
        self.kept.clear();
    }
}

impl Pass<'_> {
    unsafe fn argument(&mut self, arity: &Arity, position: usize, value: &Value) -> bool {
        self.position = position as u32;
        // SAFETY: as the caller promises.
        let item = unsafe { self.boxed.read(value) };
        self.picks = match item {
            _ if arity.picks != Some(self.position) => None,
            Item::List(_) => Some(Picks::Masks),
            _ => Some(Picks::Itself),
        };
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
        // Torch leaves out arguments that have their default value when it calls Python: another form.
        let default = arity.defaults.get(position).copied().flatten();
        let is_default = default.is_some_and(|default| default == as_float(number));
        self.word(tag_of(number), u64::from(is_default));
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
        self.word(word::WRAPPED, tag_of(number));
        self.out.numbers.push(number);
        self.out.positions.push(position as u32);
        true
    }

    unsafe fn item(&mut self, value: &Value, item: Item<'_>) -> bool {
        match item {
            Item::None => self.word(word::NONE, 0),
            Item::Bool(value) => self.word(word::BOOL, u64::from(value)),
            Item::Int(value) => {
                self.word(word::INT, 0);
                self.out.words.push(value as u64);
            }
            Item::Float(value) => {
                self.word(word::FLOAT, 0);
                self.out.words.push(value.to_bits());
            }
            Item::Text(text) => {
                self.word(word::TEXT, text.len() as u64);
                self.out.words.extend(text.chunks(8).map(|part| {
                    let mut bytes = [0; 8];
                    bytes[..part.len()].copy_from_slice(part);
                    u64::from_le_bytes(bytes)
                }));
            }
            Item::Device(device) => {
                self.word(word::DEVICE, 0);
                self.out.words.push(device);
            }
            // SAFETY: as the caller promises.
            Item::Tensor(tensor) => return unsafe { self.tensor(value, tensor) },
            Item::List(items) => {
                self.word(word::LIST, items.len() as u64);
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
        let dtype = kind & 0xffff;
        let decides = match self.picks {
            None => false,
            Some(Picks::Itself) => true,
            Some(Picks::Masks) => matches!(dtype, BOOL | BYTE),
        };
        if decides {
            self.out.picked.push(Picked {
                numbers: Numbers::of(dtype, sizes, strides),
                storage: input as u32,
                offset,
            });
        }
        self.word(word::TENSOR, sizes.len() as u64);
        let words = &mut self.out.words;
        words.extend([keys, u64::from(kind) | (input as u64) << 32]);
        words.extend(sizes.iter().map(|&extent| extent as u64));
        words.extend(strides.iter().map(|&stride| stride as u64));
        true
    }

    /// Adds a word of the kind of what follows, and a number of less than 56 bits.
    fn word(&mut self, kind: u64, number: u64) {
        self.out.words.push(word::of(kind, number));
    }
}

fn hash(words: &[u64]) -> u64 {
    let mut hash = FxHasher::default();
    words.iter().for_each(|&word| hash.write_u64(word));
    hash.finish()
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
