//! Constants that the program dropped and only recorded ops still read: their bytes stay for the sake of later replays.
//! When they have become many, or nothing else makes room, they are let go, and what hangs on them is pinned instead
//! (banishing, DTR appendix C.5). A gradient that flowed into a running average is one: the average takes its place.

use pyo3::prelude::*;
use remat_core::TensorId;

use crate::core_state::CoreState;
use crate::storages::{Buffer, LiveId};

/// Bytes held for records alone: when to look for those that the program dropped.
#[derive(Default)]
pub struct Holds {
    bytes: u64,
    looked_at: u64,
}

impl Holds {
    /// A constant is held from now on.
    pub fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// A constant is not held any more.
    pub fn sub(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.looked_at = self.looked_at.min(self.bytes);
    }

    /// Whether a sixteenth of the budget has come to be held since the last look.
    pub fn are_many(&self, budget: Option<u64>) -> bool {
        budget.is_some_and(|budget| self.bytes - self.looked_at > budget / 16)
    }

    fn look(&mut self) {
        self.looked_at = self.bytes;
    }
}

/// What letting go must yield.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yield {
    /// Anything at all: an op does not fit otherwise.
    Some,
    /// Twice what it pins.
    Twice,
}

impl CoreState {
    /// Lets constants go if they have become many and little has to be pinned for them.
    pub fn let_go_if_many(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.storages.holds.are_many(self.given(self.budget_pool)) {
            self.let_go(py, Yield::Twice)?;
        }
        Ok(())
    }

    /// Lets go of the dropped constants, oldest first, that free most beyond what is pinned for them. Says whether any went.
    pub fn let_go(&mut self, py: Python<'_>, least: Yield) -> PyResult<bool> {
        self.storages.holds.look();
        let dropped = self.dropped(py)?;
        let tensors: Vec<TensorId> = dropped
            .iter()
            .filter_map(|&id| self.storages.live(id).map(|live| live.tensor))
            .collect();
        let heirs = self
            .engine
            .heirs(&tensors)
            .map_err(|e| self.refusal(py, &e))?;
        let worth_it = match least {
            Yield::Some => heirs.constants > 0,
            Yield::Twice => heirs.constants > 0 && heirs.freed.0 >= 2 * heirs.pinned.0,
        };
        if !worth_it {
            return Ok(false);
        }
        for &heir in &heirs.tensors {
            let sid = self.engine.storage(heir);
            if let Buffer::Live(id) = *self.storages.buffer(sid) {
                match self.pin(py, id) {
                    Err(e) if e.is_instance(py, &crate::core_state::budget_error(py)?) => {
                        return Ok(false)
                    }
                    done => done?,
                }
            }
        }
        for &id in &dropped[..heirs.constants] {
            // The last record that read it may have gone with a pin, and the constant with it.
            let held = self.storages.live(id).is_some_and(|l| l.hold.is_some());
            if let Some(live) = held.then(|| self.storages.forget(id)).flatten() {
                let sid = self.engine.storage(live.tensor);
                if let Some(object) = live.hold {
                    self.storages.set_buffer(sid, Buffer::Scratch(object));
                }
                self.release(py, live.tensor)?;
            }
        }
        Ok(true)
    }

    /// Constants that have no owner but the session, oldest first.
    fn dropped(&mut self, py: Python<'_>) -> PyResult<Vec<LiveId>> {
        let mut dropped = Vec::new();
        for (id, live) in self.storages.all() {
            let (Some(hold), None) = (&live.hold, live.outside) else {
                continue;
            };
            // SAFETY: `hold` is a Python object, and the GIL is held: `py` proves it.
            let references = unsafe { pyo3::ffi::Py_REFCNT(hold.as_ptr()) };
            if references > 1 {
                continue;
            }
            let owners: usize = self.seam.use_count.bind(py).call1((hold,))?.extract()?;
            if owners == 1 {
                dropped.push((live.serial, id));
            }
        }
        dropped.sort_unstable();
        Ok(dropped.into_iter().map(|(_, id)| id).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_due_each_time_a_sixteenth_of_the_budget_has_come() {
        let mut holds = Holds::default();
        holds.add(16);
        assert!(!holds.are_many(Some(256)) && !holds.are_many(None));
        holds.add(1);
        assert!(holds.are_many(Some(256)));
        holds.look();
        assert!(!holds.are_many(Some(256)));
        holds.sub(10);
        holds.add(16);
        assert!(!holds.are_many(Some(256)));
        holds.add(1);
        assert!(holds.are_many(Some(256)));
    }
}
