//! The dispatch keys that a thread takes away from those of tensors, in torch's own memory.
//!
//! Each op that comes to the fallback excludes its key and includes it again. Torch has functions for that. The
//! variable of the thread that they write to is exported too, and a write to it needs no call.

use std::cell::Cell;
use std::ffi::CStr;
use std::ptr::null;

use super::symbols::Library;

/// `c10::impl::raw_local_dispatch_key_set`, a variable of each thread.
const NAME: &CStr = c"_ZN3c104impl26raw_local_dispatch_key_setE";

/// `c10::impl::PODLocalDispatchKeySet`: a bit for each key.
#[repr(C)]
struct Words {
    included: Cell<u64>,
    /// Keys whose bits differ from those that threads exclude at first.
    excluded: Cell<u64>,
}

thread_local! {
    /// This thread's words, once they were looked up.
    static WORDS: Cell<*const Words> = const { Cell::new(null()) };
}

/// The place of the words, and the bits of two keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalKeys {
    library: Library,
    /// The fallback's own key.
    own: u64,
    /// That of Python's dispatch modes.
    modes: u64,
}

impl LocalKeys {
    /// The words in a library, as functions of torch's change them that exclude either key on this thread; `None` if
    /// they are not as described. No thread excludes the keys at first.
    pub(super) fn found_in(
        library: &str,
        exclude_own: impl Fn(bool),
        exclude_modes: impl Fn(bool),
    ) -> Option<LocalKeys> {
        let library = Library::loaded(library)?;
        let words = look_up(library)?;
        let bit = |exclude: &dyn Fn(bool)| {
            let before = (words.included.get(), words.excluded.get());
            exclude(true);
            let during = (words.included.get(), words.excluded.get());
            exclude(false);
            let after = (words.included.get(), words.excluded.get());
            let bit = during.1 ^ before.1;
            let alone = bit.is_power_of_two() && during.1 & bit != 0 && during.0 == before.0;
            (alone && after == before).then_some(bit)
        };
        Some(LocalKeys {
            library,
            own: bit(&exclude_own)?,
            modes: bit(&exclude_modes)?,
        })
    }

    /// Whether this thread's ops pass the key of Python's modes over.
    #[inline]
    pub(super) fn modes_are_excluded(&self) -> Option<bool> {
        Some(self.words()?.excluded.get() & self.modes != 0)
    }

    /// Has this thread's ops pass the fallback's key over. Returns whether they did before.
    #[inline]
    pub(super) fn exclude_own(&self) -> Option<bool> {
        let excluded = &self.words()?.excluded;
        let before = excluded.get();
        excluded.set(before | self.own);
        Some(before & self.own != 0)
    }

    /// Has them come to the fallback again. Whether it could.
    #[inline]
    pub(super) fn include_own(&self) -> bool {
        let Some(words) = self.words() else {
            return false;
        };
        words.excluded.set(words.excluded.get() & !self.own);
        true
    }

    #[inline]
    fn words(&self) -> Option<&'static Words> {
        let known = WORDS.get();
        if known.is_null() {
            return self.look_up_here();
        }
        // SAFETY: as for `look_up`.
        Some(unsafe { &*known })
    }

    #[cold]
    fn look_up_here(&self) -> Option<&'static Words> {
        let found = look_up(self.library)?;
        WORDS.set(found);
        Some(found)
    }
}

/// This thread's words.
fn look_up(library: Library) -> Option<&'static Words> {
    let place = library.find(NAME)?;
    // SAFETY: a variable of the thread that asks, which lives as long as the thread. No other thread uses it, and
    // neither the address nor the reference leaves this one: `Words` is not `Sync`. The library is never unloaded.
    Some(unsafe { place.cast::<Words>().as_ref() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_library_without_the_variable_are_left_to_functions() {
        let none = |_| unreachable!("no thread has such words");
        assert!(LocalKeys::found_in("libc.so.6", none, none).is_none());
        assert!(LocalKeys::found_in("no library", none, none).is_none());
    }
}
