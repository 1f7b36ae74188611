//! Forms of calls whose ops need no Python. Short lists lie within them, so that a call reads few lines of memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use remat_core::{DeviceId, Output};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::call::arguments::Walk;
use crate::call::arity::Arity;
use crate::call::form::Form;
use crate::call::func::Func;
use crate::call::pass::Place;
use crate::call::record::GradMode;
use crate::call::signature::{Signature, is_due};
use crate::call::stacked::Stacked;
use crate::call::view::{Arg, BLANK, Number};

/// Forms that are known at once, and families; a program whose shapes never repeat must not grow for ever.
pub(super) const LIMIT: usize = 100_000;

/// Known forms by the keys of their calls.
pub(super) type Forms = FxHashMap<u64, Arc<Known>>;

/// The form of a call.
#[inline]
pub(super) fn find<'a>(forms: &'a Forms, stacked: &Stacked) -> Option<&'a Arc<Known>> {
    let known = forms.get(&stacked.key)?;
    (known.words == stacked.words).then_some(known)
}

/// The workspace of calls that differ in sizes alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Likeness {
    /// It is the same.
    Same,
    /// It is the same but for copies of what does not lie in one piece.
    CopiesStrided,
}

/// The call that is on its way through Python, and may make its form known.
pub(super) struct Candidate {
    pub(super) key: u64,
    pub(super) words: Vec<u64>,
    pub(super) numbers: Vec<Number>,
    /// For each number the position of the argument.
    pub(super) positions: Vec<u32>,
    /// Tensors among the arguments.
    pub(super) tensors: Vec<Place>,
    /// Whether the words tell what the call makes, though that depends on data.
    pub(super) is_told: bool,
    /// The count of entries that decides what the call makes, and the words but for it.
    pub(super) counted: Option<(u64, Vec<u64>)>,
    /// Whether calls that differ in sizes alone need be neither predicted by Python nor measured, and how so.
    pub(super) like_others: Option<Likeness>,
}

impl Candidate {
    /// A call whose arguments were passed over.
    pub(super) fn of(stacked: &Stacked, arity: &Arity) -> Candidate {
        Candidate {
            key: stacked.key,
            words: stacked.words.clone(),
            numbers: stacked.numbers.clone(),
            positions: stacked.positions.clone(),
            tensors: stacked.places.clone(),
            is_told: arity.schema.picks.is_some() && stacked.is_told(),
            counted: stacked.counted(),
            like_others: None,
        }
    }
}

/// A form whose calls need no Python.
pub(super) struct Known {
    /// The words of its calls: other forms may have the same key.
    pub(super) words: Vec<u64>,
    pub(super) func: Arc<Func>,
    pub(super) form: Arc<Form>,
    pub(super) outputs: SmallVec<[Output; 1]>,
    pub(super) signature: Signature,
    /// The memory that a call takes.
    pub(super) takes: Takes,
    pub(super) cost: FormCost,
    pub(super) grad: GradMode,
    /// The roles of the tensors among the arguments.
    pub(super) roles: Roles,
    /// Which numbers are zero, if the op may update running statistics: a momentum of zero updates nothing.
    pub(super) zeros: Option<Vec<bool>>,
}

/// The memory that the calls of a form take beside their inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Takes {
    /// Bytes of the results that a call allocates.
    pub(super) made: u64,
    /// These, and those that it needs beside them.
    pub(super) all: u64,
    /// The device on which all of it lies; `None` if there are several.
    pub(super) device: Option<DeviceId>,
}

impl Takes {
    /// By the outputs and the workspace of a call.
    pub(super) fn by(outputs: &[Output], signature: &Signature) -> Takes {
        let workspace_device = signature.workspace_device;
        let (mut made, mut device) = (0, Some(workspace_device));
        for output in outputs {
            if let Output::Fresh { bytes, device: own } = *output {
                made += bytes.0;
                device = device.filter(|_| own == workspace_device);
            }
        }
        Takes {
            made,
            all: made.saturating_add(signature.room().0),
            device,
        }
    }
}

/// The cost before the first measurement, of which each gives less.
const UNMEASURED: u64 = u64::MAX;

/// The cost of a form's calls: the least time measured.
#[derive(Debug)]
pub(super) struct FormCost {
    nanoseconds: AtomicU64,
    /// Calls so far; `None` if no more measurements are made.
    calls: Option<AtomicU32>,
}

impl FormCost {
    /// The cost by the measurements of a signature, and no more.
    pub(super) fn settled(signature: &Signature) -> FormCost {
        FormCost {
            nanoseconds: AtomicU64::new(signature.cost),
            calls: None,
        }
    }

    /// The cost by the measurements of a signature, if there are any, and by those of later calls.
    pub(super) fn measured(signature: &Signature) -> FormCost {
        let known = match signature.cost {
            0 => UNMEASURED,
            measured => measured,
        };
        FormCost {
            nanoseconds: AtomicU64::new(known),
            calls: Some(AtomicU32::new(signature.calls)),
        }
    }

    /// The cost in nanoseconds; 0 before the first measurement.
    pub(super) fn nanoseconds(&self) -> u64 {
        match self.nanoseconds.load(Relaxed) {
            UNMEASURED => 0,
            measured => measured,
        }
    }

    /// Counts a call. Whether it is to be measured.
    pub(super) fn is_due(&self) -> bool {
        let Some(counter) = &self.calls else {
            return false;
        };
        let calls = counter.load(Relaxed);
        // Two threads that count at once lose a call, which only puts off a measurement.
        counter.store(calls.saturating_add(1), Relaxed);
        is_due(calls)
    }

    /// Takes a measurement into account.
    pub(super) fn sample(&self, nanoseconds: u64) {
        self.nanoseconds.fetch_min(nanoseconds, Relaxed);
    }
}

/// The roles of the tensors of a call, and of the storages that the pass over its arguments found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Roles {
    /// Storages that are the inputs of the form, in its order.
    pub(super) inputs: SmallVec<[u32; 4]>,
    /// Tensors that the form has views of.
    pub(super) viewed: SmallVec<[u32; 4]>,
    /// Storages of running statistics that the call updates on the side.
    pub(super) updated: SmallVec<[u32; 4]>,
    /// The blank storage that the call fills.
    pub(super) filled: Option<u32>,
}

impl Known {
    /// Whether the numbers that differ from call to call leave the use of running statistics as it was.
    pub(super) fn uses_statistics_alike(&self, numbers: &[Number]) -> bool {
        match &self.zeros {
            Some(zeros) => zeros.iter().copied().eq(numbers.iter().map(is_zero)),
            None => true,
        }
    }
}

impl Roles {
    /// The roles in a call that Python walked; `None` where the two passes found different things.
    pub(super) fn of(walked: &Walk, tensors: &[Place]) -> Option<Roles> {
        let mut roles = Roles::default();
        let mut views = walked.views.iter();
        let absent = |place: &Place| {
            let arg = walked.args.get(place.argument as usize);
            matches!(arg, Some(Arg::Absent))
        };
        for (tensor, place) in (0..).zip(tensors) {
            let storage = place.storage;
            let side = absent(place);
            if side && !walked.stats.is_empty() && !roles.updated.contains(&storage) {
                roles.updated.push(storage);
            }
            if side {
                continue;
            }
            roles.viewed.push(tensor);
            if views.next()?.input == BLANK {
                roles.filled = Some(storage);
            } else if !roles.inputs.contains(&storage) {
                roles.inputs.push(storage);
            }
        }
        let apart = |storage: &u32| !roles.inputs.contains(storage);
        let told_apart = roles.updated.iter().all(apart) && roles.filled.iter().all(apart);
        let alike = views.next().is_none() && roles.inputs.len() == walked.inputs.len();
        (alike && told_apart).then_some(roles)
    }
}

/// Whether a number is zero, or false.
pub(super) fn is_zero(number: &Number) -> bool {
    match *number {
        Number::Float(value) => value == 0.0,
        Number::Int(value) => value == 0,
        Number::Bool(value) => !value,
    }
}

#[cfg(test)]
mod tests {
    use remat_core::Bytes;

    use super::*;

    #[test]
    fn the_first_measurement_is_the_cost_of_a_form_that_was_never_called() {
        let signature = Signature {
            outputs: Vec::new(),
            workspace: Bytes(0),
            leaves: Bytes(0),
            left: true,
            workspace_device: DeviceId(0),
            measured: true,
            spans: false,
            calls: 0,
            cost: 0,
        };
        let cost = FormCost::measured(&signature);
        assert_eq!(cost.nanoseconds(), 0);
        assert!(cost.is_due());
        cost.sample(700);
        cost.sample(900);
        assert_eq!(cost.nanoseconds(), 700);
    }
}
