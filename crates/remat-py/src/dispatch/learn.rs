//! A call that ran through Python makes its form known. So does one of a family of which enough is known.
//!
//! A form is known once its calls settled: their workspace is measured, and their cost too where later calls are not
//! timed. So ops of main memory go through Python once.

use std::sync::Arc;

use pyo3::prelude::*;
use remat_core::{Bytes, Output};
use smallvec::SmallVec;

use super::costs::Costs;
use super::families::{Alike, form_of};
use super::forms::{Candidate, FormCost, Known, LIMIT, Roles, Takes, find, is_zero};
use super::op::{Announced, Prepared};
use super::state::State;
use crate::call::arguments::Walk;
use crate::call::arity::Arity;
use crate::call::form::Form;
use crate::call::func::{Func, Kind};
use crate::call::outline::Outline;
use crate::call::signature::{SAMPLES, Signature};
use crate::call::stacked::Stacked;
use crate::call::view::{Arg, Number};
use crate::ffi::generator;
use crate::ffi::gil::Attach;

impl State {
    /// Makes the form of a call known after it ran through Python, if later calls can do without. Returns the form and
    /// the numbers of this call. `rng` lists the generators that the op drew from.
    pub(super) fn learn_form(
        &mut self,
        func: &Arc<Func>,
        prepared: &mut Prepared,
        rng: Option<&Bound<'_, PyAny>>,
    ) -> Option<(Arc<Form>, Vec<Number>)> {
        let announced = |prepared: &Prepared| Announced::of(&prepared.walked, &prepared.signature);
        self.learn(func, prepared, rng, announced)
    }

    /// The same for a call that gave blank memory its first value, which is its one result.
    pub(super) fn learn_filling(
        &mut self,
        func: &Arc<Func>,
        prepared: &mut Prepared,
        rng: Option<&Bound<'_, PyAny>>,
        output: Output,
    ) -> Option<(Arc<Form>, Vec<Number>)> {
        self.learn(func, prepared, rng, |_| Announced {
            outputs: vec![output],
            results: vec![Some(0)],
        })
    }

    fn learn(
        &mut self,
        func: &Arc<Func>,
        prepared: &mut Prepared,
        rng: Option<&Bound<'_, PyAny>>,
        announced: impl FnOnce(&Prepared) -> Announced,
    ) -> Option<(Arc<Form>, Vec<Number>)> {
        let candidate = self.candidate.take()?;
        let Announced { outputs, results } = announced(prepared);
        let Prepared {
            walked,
            signature,
            data_dependent,
            ..
        } = prepared;
        let is_told = candidate.is_told || !*data_dependent;
        if !is_settled(signature) || !is_simple(func, walked) || !is_told {
            return None;
        }
        if !rng.is_none_or(is_default) {
            return None;
        }
        let cost = self.cost_of_form(signature, &outputs)?;
        // Torch hands a number that it wrapped in a tensor to Python as a number: the form would hold its value.
        let roles = Roles::of(walked, &candidate.tensors)?;
        let arity = self.arity?;
        if !place_numbers(walked, &candidate, arity) {
            return None;
        }
        let form = Arc::new(Form::of(func, walked, results));
        let zeros = candidate.numbers.iter().map(is_zero);
        let known = Known {
            words: candidate.words,
            func: func.clone(),
            form: form.clone(),
            takes: Takes::by(&outputs, signature),
            outputs: SmallVec::from_slice(&outputs),
            signature: signature.clone(),
            cost,
            grad: prepared.grad,
            roles,
            zeros: func.stats.is_some().then(|| zeros.collect()),
        };
        let known = Arc::new(known);
        if let Some(likeness) = candidate.like_others {
            self.families.learn(arity, &known, prepared.state, likeness);
        }
        if let Some((entries, words)) = candidate.counted {
            self.picking.learn(words, entries, &known);
        }
        self.know(candidate.key, known);
        Some((form, candidate.numbers))
    }

    /// Makes the form of a call known by its family. Returns whether it is known now, and was not before.
    pub(super) fn learn_by_family(
        &mut self,
        gil: impl Attach,
        arity: &Arity,
        stacked: &Stacked,
    ) -> PyResult<bool> {
        let known = find(&self.known, stacked).or_else(|| find(&self.filling, stacked));
        if known.is_some() || arity.schema.rule.is_none() {
            return Ok(false);
        }
        let Some(outline) = Outline::of(&stacked.words, arity) else {
            return Ok(false);
        };
        let found = self
            .families
            .find(arity, &outline, &stacked.numbers, stacked.state);
        let Some(alike) = found else {
            return Ok(false);
        };
        let Some(form) = gil.attach(|py| form_of(py, &alike.known, arity, &outline))? else {
            return Ok(false);
        };
        Ok(self.know_alike(stacked, alike, Arc::new(form)))
    }

    /// Makes the form of a call known by others that picked other counts of entries. Returns whether it is known now,
    /// and was not before.
    pub(super) fn learn_by_count(&mut self, stacked: &Stacked) -> bool {
        if find(&self.known, stacked).is_some() {
            return false;
        }
        let Some((entries, words)) = stacked.counted() else {
            return false;
        };
        let Some(alike) = self.picking.find(&words, entries) else {
            return false;
        };
        let form = alike.known.form.clone();
        self.know_alike(stacked, alike, form)
    }

    /// Makes a form known by what another one told of it. Returns whether its cost allows that.
    fn know_alike(&mut self, stacked: &Stacked, alike: Alike, form: Arc<Form>) -> bool {
        let Alike {
            known: like,
            outputs,
            signature,
        } = alike;
        let Some(cost) = self.cost_of_form(&signature, &outputs) else {
            return false;
        };
        let known = Known {
            words: stacked.words.clone(),
            func: like.func.clone(),
            form,
            takes: Takes::by(&outputs, &signature),
            outputs,
            signature,
            cost,
            grad: like.grad,
            roles: like.roles.clone(),
            zeros: like.zeros.clone(),
        };
        self.know(stacked.key, Arc::new(known));
        true
    }

    /// Takes a form that is known now into its table.
    fn know(&mut self, key: u64, known: Arc<Known>) {
        let table = match known.roles.filled {
            Some(_) => &mut self.filling,
            None => &mut self.known,
        };
        if table.len() >= LIMIT {
            table.clear();
        }
        table.insert(key, known);
    }

    /// The cost of the calls of a form with this signature. `None` until it is measured, where no later call is timed.
    fn cost_of_form(&self, signature: &Signature, outputs: &[Output]) -> Option<FormCost> {
        let here = self.is_main_memory(signature.workspace_device, outputs);
        match self.costs {
            Costs::Measured if here => Some(FormCost::measured(signature)),
            Costs::Measured if signature.calls < SAMPLES => None,
            Costs::Measured | Costs::OfBytes => Some(FormCost::settled(signature)),
        }
    }
}

/// Whether the bytes of a signature are measured, and its calls leave nothing behind beside their results.
fn is_settled(signature: &Signature) -> bool {
    signature.measured && signature.left && signature.leaves == Bytes(0)
}

/// Whether a list of generators and their states is that of the default generator, whose state is read natively.
fn is_default(listed: &Bound<'_, PyAny>) -> bool {
    let address = || -> PyResult<usize> {
        let [(generator, _)]: [(Bound<'_, PyAny>, Bound<'_, PyAny>); 1] = listed.extract()?;
        generator.getattr("_cdata")?.extract()
    };
    address().is_ok_and(generator::is_default)
}

/// Whether the form tells all about the calls of an op.
fn is_simple(func: &Func, walked: &Walk) -> bool {
    matches!(func.kind, Kind::Plain | Kind::Read)
        && !func.pins_results
        && !walked.opaque
        && walked.parts.is_empty()
}

/// Replaces arguments whose values the key leaves out by the places of their numbers. Returns whether all are there;
/// nothing is replaced otherwise.
fn place_numbers(walked: &mut Walk, candidate: &Candidate, arity: &Arity) -> bool {
    let place = |position: u32| -> Option<Passed> {
        let position = position as usize;
        let (place, arg) = if position < walked.args.len() {
            (Passed::InPlace(position), walked.args.get(position)?)
        } else {
            let name = arity.schema.names.get(position)?;
            let at = walked.names.iter().position(|known| known == name)?;
            (Passed::ByName(at), &walked.kwargs.get(at)?.1)
        };
        matches!(arg, Arg::Object(_)).then_some(place)
    };
    let places: Option<Vec<Passed>> = candidate.positions.iter().map(|&at| place(at)).collect();
    let Some(places) = places else { return false };
    for (number, place) in (0..).zip(places) {
        match place {
            Passed::InPlace(at) => walked.args[at] = Arg::Number(number),
            Passed::ByName(at) => walked.kwargs[at].1 = Arg::Number(number),
        }
    }
    true
}

/// The way in which Python is given an argument.
enum Passed {
    /// By its position.
    InPlace(usize),
    /// By the place of its name.
    ByName(usize),
}
