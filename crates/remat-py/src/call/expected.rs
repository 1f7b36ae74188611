//! A call whose form is expected: it is compared word by word, and nothing is collected but its storages.

use smallvec::SmallVec;

use super::pass::{Findings, OnStack, Picked, Place};
use super::view::Number;
use crate::ffi::boxed::Value;

/// Addresses of the distinct storages among the arguments of a call, in order of appearance.
pub type Storages = SmallVec<[usize; 6]>;

/// A call, as far as it is as expected.
struct Expected<'a> {
    /// The words that are still to come.
    words: &'a [u64],
    storages: Storages,
    numbers: SmallVec<[Number; 4]>,
}

impl OnStack<'_> {
    /// The storages among the arguments, if a pass finds just these words. Numbers that the words leave out are not
    /// compared. A call that makes what its entries decide is never as expected.
    ///
    /// # Safety
    /// As for [`pass`](Self::pass).
    #[inline]
    pub unsafe fn storages_if(&self, words: &[u64]) -> Option<Storages> {
        let mut expected = Expected {
            words,
            storages: SmallVec::new(),
            numbers: SmallVec::new(),
        };
        // SAFETY: as the caller promises.
        let alike = self.arity.schema.picks.is_none() && unsafe { self.pass(&mut expected) };
        (alike && expected.words.is_empty()).then_some(expected.storages)
    }
}

impl Findings for Expected<'_> {
    #[inline]
    fn word(&mut self, word: u64) -> bool {
        match self.words.split_first() {
            Some((&first, rest)) if first == word => {
                self.words = rest;
                true
            }
            _ => false,
        }
    }

    #[inline]
    fn extents(&mut self, extents: &[i64]) -> bool {
        let Some((first, rest)) = self.words.split_at_checked(extents.len()) else {
            return false;
        };
        self.words = rest;
        first
            .iter()
            .zip(extents)
            .all(|(&word, &extent)| word == extent as u64)
    }

    #[inline]
    fn storage(&mut self, storage: usize, _value: &Value) -> u32 {
        let known = self.storages.iter().position(|&known| known == storage);
        let index = known.unwrap_or_else(|| {
            self.storages.push(storage);
            self.storages.len() - 1
        });
        index as u32
    }

    #[inline]
    fn tensor(&mut self, _place: Place, _offset: i64) {}

    #[inline]
    fn number(&mut self, number: Number, _position: u32) {
        self.numbers.push(number);
    }

    fn numbers(&self) -> &[Number] {
        &self.numbers
    }

    fn picked(&mut self, _picked: Picked) {}

    fn aside(&mut self) {}
}
