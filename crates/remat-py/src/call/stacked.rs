//! The findings of a [pass](super::pass) over the arguments of an op: the storages, and what tells the call's form
//! apart.

use std::hash::Hasher;

use rustc_hash::FxHasher;
use smallvec::SmallVec;

use super::arity::Arity;
use super::global_state::StateNumber;
use super::pass::{Findings, OnStack, Picked, Place};
use super::view::Number;
use crate::ffi::boxed::{Item, Value, storage_bytes};
use crate::ffi::dispatcher::Torch;
use crate::ffi::watch::{self, Strong};

/// The findings of one pass, in buffers that are used again.
#[derive(Default)]
pub struct Stacked {
    /// All that tells the call's form from others: two calls have one form if they have the same words.
    pub words: Vec<u64>,
    /// A hash of the words.
    pub key: u64,
    /// The settings under which the call runs.
    pub state: StateNumber,
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

/// Whether [`keep`](Stacked::keep) can keep arguments alive.
pub fn keeps_tensors() -> bool {
    watch::is_probed()
}

impl Stacked {
    /// Passes over the arguments of a call; whether it knows all of them.
    ///
    /// # Safety
    /// As for [`OnStack::pass`].
    pub unsafe fn pass(&mut self, call: &OnStack<'_>) -> bool {
        self.words.clear();
        self.storages.clear();
        self.tensors.clear();
        self.offsets.clear();
        self.places.clear();
        self.numbers.clear();
        self.positions.clear();
        self.state = call.state;
        self.aside = false;
        self.picked.clear();
        self.count = None;
        // SAFETY: as the caller promises.
        let knows_all = unsafe { call.pass(self) };
        if knows_all {
            self.key = hash(&self.words);
        }
        knows_all
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
        let at = arity.schema.picks;
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

impl Findings for Stacked {
    #[inline]
    fn word(&mut self, word: u64) -> bool {
        self.words.push(word);
        true
    }

    #[inline]
    fn extents(&mut self, extents: &[i64]) -> bool {
        self.words
            .extend(extents.iter().map(|&extent| extent as u64));
        true
    }

    #[inline]
    fn storage(&mut self, storage: usize, value: &Value) -> u32 {
        let known = self.storages.iter().position(|&known| known == storage);
        let index = known.unwrap_or_else(|| {
            self.storages.push(storage);
            self.tensors.push(value);
            self.storages.len() - 1
        });
        index as u32
    }

    #[inline]
    fn tensor(&mut self, place: Place, offset: i64) {
        self.offsets.push(offset);
        self.places.push(place);
    }

    #[inline]
    fn number(&mut self, number: Number, position: u32) {
        self.numbers.push(number);
        self.positions.push(position);
    }

    fn numbers(&self) -> &[Number] {
        &self.numbers
    }

    fn picked(&mut self, picked: Picked) {
        self.picked.push(picked);
    }

    fn aside(&mut self) {
        self.aside = true;
    }
}

fn hash(words: &[u64]) -> u64 {
    let mut hash = FxHasher::default();
    words.iter().for_each(|&word| hash.write_u64(word));
    hash.finish()
}
