//! The function that makes room when there is none; the front end registers it.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `remat_make_room` of `remat_arena.h`: frees blocks for one of so many bytes, and returns whether to try again.
pub type MakeRoom = unsafe extern "C" fn(bytes: u64, context: *mut c_void) -> bool;

#[derive(Clone, Copy)]
struct Registered {
    function: MakeRoom,
    context: *mut c_void,
}

// SAFETY: the context is only passed to the function with which it was registered, and who registered it promised (in
// the header) that any thread may call the function with it.
unsafe impl Send for Registered {}

/// The registered function, if any.
pub struct Evictor {
    registered: Mutex<Option<Registered>>,
}

thread_local! {
    // Constant, without a destructor: see `placement`.
    static ASKING: Cell<bool> = const { Cell::new(false) };
}

/// Marks the thread as asking for room. An allocation of the same thread that finds none meanwhile is refused at once.
struct Asking;

impl Asking {
    fn begin() -> Option<Asking> {
        ASKING.with(|asking| (!asking.replace(true)).then_some(Asking))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        ASKING.with(|asking| asking.set(false));
    }
}

/// The lock of an [`Evictor`], held while the process forks.
pub struct Held<'a>(MutexGuard<'a, Option<Registered>>);

impl Held<'_> {
    /// Removes the registered function.
    pub fn clear(&mut self) {
        *self.0 = None;
    }
}

impl Evictor {
    /// An evictor without a registered function.
    pub const fn none() -> Evictor {
        Evictor {
            registered: Mutex::new(None),
        }
    }

    /// Registers a function, or none.
    pub fn register(&self, function: Option<MakeRoom>, context: *mut c_void) {
        *self.lock() = function.map(|function| Registered { function, context });
    }

    /// Asks for room. Returns whether to try again. The caller holds no lock.
    pub fn make_room(&self, bytes: u64) -> bool {
        let Some(_asking) = Asking::begin() else {
            return false;
        };
        let registered = *self.lock();
        // SAFETY: who registered the function promised (in the header) that any thread may call it with its context.
        registered
            .is_some_and(|Registered { function, context }| unsafe { function(bytes, context) })
    }

    /// Takes the lock, for the time of a fork.
    pub fn hold(&self) -> Held<'_> {
        Held(self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Registered>> {
        self.registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a block, asking for room as long as somebody makes some. `take` returns the block or the number of blocks
/// given back so far. An evictor that promises room although no block was given back is not asked a second time.
pub fn take_or_make_room<T>(
    bytes: u64,
    evictor: &Evictor,
    mut take: impl FnMut() -> Result<T, u64>,
) -> Option<T> {
    let mut before = None;
    loop {
        let frees = match take() {
            Ok(taken) => return Some(taken),
            Err(frees) => frees,
        };
        if before == Some(frees) || !evictor.make_room(bytes) {
            return None;
        }
        before = Some(frees);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn says_yes(_bytes: u64, calls: *mut c_void) -> bool {
        // SAFETY: the tests register a counter that outlives the evictor, and use one thread.
        unsafe { *calls.cast::<u32>() += 1 };
        true
    }

    #[test]
    fn a_liar_is_asked_once() {
        let evictor = Evictor::none();
        let mut calls = 0u32;
        evictor.register(Some(says_yes), (&raw mut calls).cast());
        assert_eq!(take_or_make_room::<()>(1, &evictor, || Err(7)), None);
        assert_eq!(calls, 1);
    }

    #[test]
    fn whoever_makes_progress_is_asked_again() {
        let evictor = Evictor::none();
        let mut calls = 0u32;
        evictor.register(Some(says_yes), (&raw mut calls).cast());
        let mut frees = 0;
        let taken = take_or_make_room(1, &evictor, || {
            frees += 1;
            if frees == 5 { Ok(frees) } else { Err(frees) }
        });
        assert_eq!((taken, calls), (Some(5), 4));
    }

    #[test]
    fn nobody_registered_means_no() {
        assert!(!Evictor::none().make_room(1));
    }
}
