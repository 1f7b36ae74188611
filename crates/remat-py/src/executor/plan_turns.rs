//! Turns of the threads that plan steps: one searches at a time, so that planning takes no more of the cores where
//! there are several kinds of step. The one that searched the least comes first.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The turns of searches that come in parts.
pub(super) struct Turns {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// The fewest parts that are done of a search that waits.
    fewest: AtomicUsize,
    stopped: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    /// Whether a search has its turn.
    taken: bool,
    /// Of each search that waits, how many parts are done.
    parts: Vec<usize>,
}

/// One search may go on, until this is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    parts: usize,
}

impl Turns {
    pub(super) fn new() -> Turns {
        Turns {
            waiting: Mutex::default(),
            changed: Condvar::new(),
            fewest: AtomicUsize::new(usize::MAX),
            stopped: AtomicBool::new(false),
        }
    }

    /// Waits until it is the turn of a search of which so many parts are done. `None` once all were stopped.
    pub(super) fn take(&self, parts: usize) -> Option<Turn<'_>> {
        let mut waiting = self.lock();
        self.change(&mut waiting, |parts_of| parts_of.push(parts));
        while !self.is_stopped() && (waiting.taken || self.fewest.load(Ordering::Relaxed) < parts) {
            waiting = self
                .changed
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
        self.change(&mut waiting, |parts_of| {
            if let Some(at) = parts_of.iter().position(|&other| other == parts) {
                parts_of.swap_remove(at);
            }
        });
        if self.is_stopped() {
            return None;
        }
        waiting.taken = true;
        Some(Turn { turns: self, parts })
    }

    /// Ends all searches.
    pub(super) fn stop(&self) {
        // One that looked before and is about to wait holds the lock until it waits.
        let _waiting = self.lock();
        self.stopped.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes who waits.
    fn change(&self, waiting: &mut Waiting, change: impl FnOnce(&mut Vec<usize>)) {
        change(&mut waiting.parts);
        let fewest = waiting.parts.iter().min();
        self.fewest
            .store(fewest.copied().unwrap_or(usize::MAX), Ordering::Relaxed);
    }
}

impl Turn<'_> {
    /// Whether a search waits of which fewer parts are done.
    pub(super) fn is_wanted(&self) -> bool {
        self.turns.fewest.load(Ordering::Relaxed) < self.parts
    }

    /// Whether all searches are to end.
    pub(super) fn is_stopped(&self) -> bool {
        self.turns.is_stopped()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.lock().taken = false;
        self.turns.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    /// Waits until so many searches do.
    fn until_waiting(turns: &Turns, searches: usize) {
        while turns.lock().parts.len() < searches {
            thread::yield_now();
        }
    }

    #[test]
    fn the_search_that_searched_the_least_comes_first() {
        let turns = Turns::new();
        let first = turns.take(1).expect("a turn");
        assert!(!first.is_wanted());
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            for (number, parts) in [2, 1, 0].into_iter().enumerate() {
                let (turns, tell) = (&turns, tell.clone());
                scope.spawn(move || {
                    let turn = turns.take(parts).expect("a turn");
                    assert!(!turn.is_wanted(), "{parts}");
                    tell.send(parts).expect("somebody listens");
                });
                until_waiting(turns, number + 1);
                assert_eq!(first.is_wanted(), parts == 0);
            }
            drop(first);
        });
        drop(tell);
        assert_eq!(told.iter().collect::<Vec<_>>(), [0, 1, 2]);
        assert!(turns.lock().parts.is_empty());
    }

    #[test]
    fn searches_that_wait_end_when_all_are_stopped() {
        let turns = Turns::new();
        let turn = turns.take(0).expect("a turn");
        thread::scope(|scope| {
            let waits = scope.spawn(|| turns.take(0).is_none());
            until_waiting(&turns, 1);
            assert!(!turn.is_stopped());
            turns.stop();
            assert_eq!(waits.join().ok(), Some(true));
        });
        assert!(turn.is_stopped());
        drop(turn);
        assert!(turns.take(0).is_none());
    }
}
