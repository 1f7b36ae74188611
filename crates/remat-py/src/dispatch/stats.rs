//! Running statistics. Batch normalisation updates them beside its results, and often does not declare it. The first
//! call of each kind shows whether it does: their bytes before and after it are compared.

use std::hash::Hasher;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat};
use rustc_hash::FxHasher;

use super::state::State;
use crate::call::func::RunningStats;
use crate::call::invocation::Invocation;
use crate::call::knowledge::StatsUse;

/// A kind of call whose use of running statistics is not known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unseen {
    /// Key into the table of what is known.
    key: u64,
    /// The use if it turns out that they are not updated.
    otherwise: StatsUse,
}

impl State {
    /// The use of running statistics that a call makes. One of an unknown kind is taken to update them: tensors
    /// computed from their values are made independent of them, which is right in any case.
    pub(super) fn stats_use(
        &self,
        call: &Invocation<'_, '_>,
    ) -> PyResult<(StatsUse, Option<Unseen>)> {
        let Some(stats) = &call.func.stats else {
            return Ok((StatsUse::Read, None));
        };
        if self.statistics(call, stats)?.is_empty() {
            return Ok((StatsUse::Read, None));
        }
        let key = kind_of_call(call)?;
        if let Some(known) = self.knowledge.stats.get(&key) {
            return Ok((*known, None));
        }
        let training = match stats.training {
            Some(flag) => call.args.get_item(flag)?.is_truthy()?,
            None => false,
        };
        let otherwise = if training {
            StatsUse::Ignored
        } else {
            StatsUse::Read
        };
        Ok((StatsUse::Updated, Some(Unseen { key, otherwise })))
    }

    /// The statistics among the arguments of a call.
    fn statistics<'py>(
        &self,
        call: &Invocation<'_, 'py>,
        stats: &RunningStats,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut found = Vec::with_capacity(stats.args.len());
        for &place in &stats.args {
            let value = call.args.get_item(place)?;
            if !value.is_none() {
                found.push(value);
            }
        }
        Ok(found)
    }

    /// The bytes of the statistics before a call of an unknown kind. They are pinned by then.
    pub(super) fn stats_before<'py>(
        &self,
        call: &Invocation<'_, 'py>,
        unseen: Option<&Unseen>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match (unseen, &call.func.stats) {
            (Some(_), Some(stats)) => {
                let statistics = self.statistics(call, stats)?;
                let contents = self.executor.internals.contents.bind(call.py());
                contents.call1((statistics,)).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Learns from the bytes of the statistics whether a call updated them. Returns whether it was right to think so:
    /// if not, its record lacks arguments that it may have read.
    pub(super) fn learn_stats_use<'py>(
        &mut self,
        call: &Invocation<'_, 'py>,
        before: Option<(Unseen, Bound<'py, PyAny>)>,
    ) -> PyResult<bool> {
        let Some((unseen, before)) = before else {
            return Ok(true);
        };
        let after = self.stats_before(call, Some(&unseen))?;
        let updated = !before.eq(after)?;
        let found = if updated {
            StatsUse::Updated
        } else {
            unseen.otherwise
        };
        self.knowledge.stats.insert(unseen.key, found);
        Ok(updated)
    }
}

/// A hash of the op, its flags, and whether its factors are zero: a momentum of zero updates nothing.
fn kind_of_call(call: &Invocation<'_, '_>) -> PyResult<u64> {
    let mut hash = FxHasher::default();
    hash.write_usize(call.func.overload.as_ptr() as usize);
    for (place, value) in call.args.iter().enumerate() {
        if value.is_exact_instance_of::<PyBool>() || value.is_exact_instance_of::<PyFloat>() {
            hash.write_usize(2 * place + usize::from(value.is_truthy()?));
        }
    }
    Ok(hash.finish())
}
