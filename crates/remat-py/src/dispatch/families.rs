//! Families of calls: a call of a new form that differs from a known one in sizes and numbers alone needs no Python
//! either.
//!
//! Python says of which calls that holds: torch's own rule agreed with the short one about an earlier call of the
//! family, and enough of its calls were measured. The bytes of results go by the short rule from then on, and the
//! workspace is that of the known form, but for copies of what does not lie in one piece.

use std::sync::{Arc, OnceLock};

use pyo3::prelude::*;
use pyo3::types::PyList;
use remat_core::{Bytes, Output};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::forms::{Known, LIMIT, Likeness};
use crate::call::arity::Arity;
use crate::call::form::Form;
use crate::call::global_state::StateNumber;
use crate::call::outline::Outline;
use crate::call::rules::{Argument, Numels, Rule};
use crate::call::signature::{Predicted, Signature};
use crate::call::view::{Arg, Number, View};

/// The families of known forms.
#[derive(Default)]
pub(super) struct Families(FxHashMap<(u64, StateNumber), Family>);

/// Bytes of each result; `None` for one without a storage of its own.
type Made = SmallVec<[Option<u64>; 3]>;

struct Family {
    /// The words of the outline that its calls have: others may have the same key.
    words: Vec<u64>,
    /// A form of the family.
    known: Arc<Known>,
    /// For each result the bytes of a number, if it has a storage of its own.
    widths: SmallVec<[Option<u64>; 3]>,
    /// The workspace of its calls, beside copies if it makes some.
    workspace: u64,
    likeness: Likeness,
}

/// A known form, and what another one of its family has in place of its own.
pub(super) struct Alike {
    pub(super) known: Arc<Known>,
    pub(super) outputs: SmallVec<[Output; 1]>,
    /// Its calls are not measured yet.
    pub(super) signature: Signature,
}

impl Family {
    /// Bytes of the results of a call.
    fn bytes(&self, numels: &Numels) -> Option<Made> {
        if numels.len() != self.widths.len() {
            return None;
        }
        let each = numels.iter().zip(&self.widths);
        each.map(|pair| match pair {
            (None, None) => Some(None),
            (Some(numel), Some(width)) => numel.checked_mul(*width).map(Some),
            _ => None,
        })
        .collect()
    }
}

impl Families {
    /// Takes in a form that became known, if the short rule tells the bytes that its call made.
    pub(super) fn learn(
        &mut self,
        arity: &Arity,
        known: &Arc<Known>,
        state: StateNumber,
        likeness: Likeness,
    ) {
        let outline = || Outline::of(&known.words, arity);
        let Some((rule, outline)) = arity.schema.rule.and_then(|rule| Some((rule, outline()?)))
        else {
            return;
        };
        let numels = numels(known, rule, &outline);
        let made = made_by(known);
        let Some(numels) = numels.filter(|numels| numels.len() == made.len()) else {
            return;
        };
        let widths = numels
            .iter()
            .zip(&made)
            .map(|(&numel, &made)| width(numel, made));
        let Some(widths) = widths.collect() else {
            return;
        };
        let Some(copied) = strided_copies(likeness, &outline) else {
            return;
        };
        if self.0.len() >= LIMIT {
            self.0.clear();
        }
        let family = Family {
            words: outline.words,
            known: known.clone(),
            widths,
            workspace: known.signature.workspace.0.saturating_sub(copied),
            likeness,
        };
        self.0.insert((outline.key, state), family);
    }

    /// The family of a call tells this of its form, if it has one. `numbers` are those that the words leave out.
    pub(super) fn find(
        &self,
        arity: &Arity,
        outline: &Outline,
        numbers: &[Number],
        state: StateNumber,
    ) -> Option<Alike> {
        let family = self.0.get(&(outline.key, state))?;
        let known = &family.known;
        if family.words != outline.words || !known.uses_statistics_alike(numbers) {
            return None;
        }
        let made = family.bytes(&numels(known, arity.schema.rule?, outline)?)?;
        let (outputs, mut signature) = made_instead(known, &made);
        let copied = strided_copies(family.likeness, outline)?;
        signature.workspace = Bytes(family.workspace.checked_add(copied)?);
        Some(Alike {
            known: known.clone(),
            outputs,
            signature,
        })
    }
}

/// Bytes that a call copies, if its family makes copies; `None` where that is not known.
fn strided_copies(likeness: Likeness, outline: &Outline) -> Option<u64> {
    match likeness {
        Likeness::Same => Some(0),
        Likeness::CopiesStrided => outline.strided,
    }
}

/// Numbers in each result of a call of a form's family.
fn numels(known: &Known, rule: Rule, outline: &Outline) -> Option<Numels> {
    match known.roles.filled {
        // Its one result is the storage that was blank, which its first argument covers.
        Some(_) => {
            let filled = outline.tensors.first()?.numel()?;
            Some(std::iter::once(Some(filled)).collect())
        }
        None => rule.numels(&outline.arguments),
    }
}

/// The outputs and the signature of a form whose results have other sizes than those of a known one.
fn made_instead(like: &Known, made: &Made) -> (SmallVec<[Output; 1]>, Signature) {
    let mut outputs = like.outputs.clone();
    let mut predicted = like.signature.outputs.clone();
    for (at, (result, made)) in like.form.results.iter().zip(made).enumerate() {
        let output = result.and_then(|k| outputs.get_mut(k as usize));
        if let (Some(Output::Fresh { bytes, .. }), Some(made)) = (output, made) {
            *bytes = Bytes(*made);
        }
        if let (Some(Predicted::Fresh { bytes, .. }), Some(made)) = (predicted.get_mut(at), made) {
            *bytes = Bytes(*made);
        }
    }
    let signature = Signature {
        outputs: predicted,
        calls: 0,
        cost: 0,
        ..like.signature
    };
    (outputs, signature)
}

/// The form of a call by a known one of its family; `None` if an argument cannot be built.
pub(super) fn form_of(
    py: Python<'_>,
    like: &Known,
    arity: &Arity,
    outline: &Outline,
) -> PyResult<Option<Form>> {
    let form = &like.form;
    let mut args = Vec::with_capacity(form.args.len());
    for (position, (arg, argument)) in form.args.iter().zip(&outline.arguments).enumerate() {
        let named = position < 64 && arity.schema.extents >> position & 1 == 1;
        args.push(match (arg, argument) {
            (Arg::Object(_), Argument::Number(number)) if named => {
                Arg::Object((*number as i64).into_pyobject(py)?.into_any().into())
            }
            (Arg::Object(_), Argument::Numbers(numbers)) if named => {
                let numbers = numbers.iter().map(|&number| number as i64);
                Arg::Object(
                    PyList::new(py, numbers.collect::<Vec<_>>())?
                        .into_any()
                        .into(),
                )
            }
            (arg, Argument::Number(_) | Argument::Numbers(_)) if named => match arg {
                Arg::Absent => Arg::Absent,
                _ => return Ok(None),
            },
            _ => copied(py, arg),
        });
    }
    let kwargs = form.kwargs.iter();
    let kwargs = kwargs.map(|(name, arg)| (name.clone_ref(py).into(), copied(py, arg)));
    let mut views = Vec::with_capacity(form.views.len());
    for (view, &tensor) in form.views.iter().zip(&like.roles.viewed) {
        let Some(geometry) = outline.tensors.get(tensor as usize) else {
            return Ok(None);
        };
        if view.form.is_some() {
            return Ok(None);
        }
        views.push(View {
            input: view.input,
            geometry: geometry.clone(),
            dtype: view.dtype.clone_ref(py).into(),
            conj: view.conj,
            neg: view.neg,
            form: None,
        });
    }
    Ok(Some(Form {
        func: form.func,
        args,
        kwargs: kwargs.collect(),
        views,
        written: form.written.clone(),
        results: form.results.clone(),
        inputs: form.inputs.clone(),
        template: OnceLock::new(),
        kind: OnceLock::new(),
    }))
}

fn copied(py: Python<'_>, arg: &Arg) -> Arg {
    match arg {
        Arg::Tensor(at) => Arg::Tensor(*at),
        Arg::Number(at) => Arg::Number(*at),
        Arg::Object(object) => Arg::Object(object.clone_ref(py).into()),
        Arg::List(items) => Arg::List(items.iter().map(|item| copied(py, item)).collect()),
        Arg::Absent => Arg::Absent,
    }
}

/// Bytes of each result of a form's calls; `None` for one without a storage of its own.
fn made_by(known: &Known) -> Made {
    let bytes = |k: &u32| match known.outputs.get(*k as usize) {
        Some(Output::Fresh { bytes, .. }) => Some(bytes.0),
        _ => None,
    };
    let results = known.form.results.iter();
    results
        .map(|result| result.as_ref().and_then(bytes))
        .collect()
}

/// The bytes of a number in a result; `None` if there is no such dtype.
#[expect(
    clippy::option_option,
    reason = "a result may have no storage of its own"
)]
fn width(numel: Option<u64>, made: Option<u64>) -> Option<Option<u64>> {
    match (numel, made) {
        (None, None) => Some(None),
        (Some(numel), Some(made)) => {
            let known = [1, 2, 4, 8, 16].into_iter();
            let mut fitting = known.filter(|width| numel.checked_mul(*width) == Some(made));
            fitting.next().filter(|_| numel > 0).map(Some)
        }
        _ => None,
    }
}
