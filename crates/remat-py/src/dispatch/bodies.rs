//! Foreign ops under way. The session is unlocked while their bodies run.

use std::sync::{Arc, Mutex, PoisonError};

use remat_core::TensorId;

use crate::tracking::live::LiveId;
use crate::tracking::storages::Storages;

/// Foreign ops under way.
#[derive(Default)]
pub(super) struct Bodies {
    /// Bodies that run.
    open: u32,
    /// Bodies that began to run so far.
    begun: u64,
    /// Storages that ops under way declare to write.
    written: Written,
}

type Written = Arc<Mutex<Vec<LiveId>>>;

/// An op under way that declares to write storages.
pub(super) struct Writes {
    all: Written,
    mine: Vec<LiveId>,
}

impl Drop for Writes {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        for id in &self.mine {
            if let Some(place) = all.iter().position(|written| written == id) {
                all.swap_remove(place);
            }
        }
    }
}

/// A body's company when it began: it tells later whether the body ran alone.
#[derive(Clone, Copy)]
pub(super) struct Company {
    alone: bool,
    begun: u64,
    ops: u64,
}

impl Bodies {
    /// An op declares to write storages, until what is returned is dropped.
    pub(super) fn will_write(&self, mine: Vec<LiveId>) -> Writes {
        let mut all = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend_from_slice(&mine);
        Writes {
            all: self.written.clone(),
            mine,
        }
    }

    /// Whether an op under way is to write one of these values. It does so out of the session's sight: no record of an
    /// op that reads it now would give the same again.
    #[inline]
    pub(super) fn write(&self, storages: &Storages, values: &[TensorId]) -> bool {
        // Each op under way that writes holds on to the list.
        if Arc::strong_count(&self.written) == 1 {
            return false;
        }
        let all = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lives = all.iter().filter_map(|&id| storages.live(id));
        lives.any(|live| values.contains(&live.tensor))
    }

    /// Whether a body runs.
    pub(super) fn any(&self) -> bool {
        self.open > 0
    }

    /// A body begins, after so many ops of the program.
    pub(super) fn begin(&mut self, ops: u64) -> Company {
        let alone = self.open == 0;
        self.open += 1;
        self.begun += 1;
        Company {
            alone,
            begun: self.begun,
            ops,
        }
    }

    /// A body has ended.
    pub(super) fn end(&mut self) {
        self.open -= 1;
    }

    /// Whether nothing else ran beside a body that has ended, after so many ops of the program.
    pub(super) fn was_alone(&self, company: Company, ops: u64) -> bool {
        company.alone && company.begun == self.begun && company.ops == ops
    }
}
