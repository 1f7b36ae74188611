//! Rehearsals of native replays: the probe has a few calls replayed, and compares.

use std::cell::RefCell;
use std::rc::Rc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::capture::{Capture, Watcher, captured};
use crate::call::arity::{Arity, Schema, Seen};
use crate::call::global_state::StateNumber;
use crate::call::pass::OnStack;
use crate::call::stacked::Stacked;
use crate::call::template::{Differing, Dispatched, Template};
use crate::call::view::Number;
use crate::ffi::boxed::{Item, Value};
use crate::ffi::dispatcher::{Op, Torch};
use crate::ffi::gil::Gil;
use crate::ffi::owned::{self, Owned};
use crate::ffi::shell::{self, Makers};
use crate::ffi::watch::{Strong, is_probed};

fn refused(reason: &str) -> PyErr {
    PyRuntimeError::new_err(reason.to_owned())
}

/// Shows each op that comes to the fallback while `call` runs to a function; its answer to the last one.
fn shown<T: 'static>(
    call: &Bound<'_, PyAny>,
    look: impl Fn(Python<'_>, &Torch, &str, &Dispatched<'_>) -> Option<T> + 'static,
) -> PyResult<(Option<T>, PyResult<()>)> {
    let found = Rc::new(RefCell::new(None));
    let slot = found.clone();
    let watcher: Watcher = Box::new(move |torch, name, call| {
        *slot.borrow_mut() = Gil::with(|py| look(py, torch, name, call)).flatten();
    });
    let called = captured(call, Capture::watched(watcher)).map(|_| ());
    Ok((found.take(), called))
}

/// Sets up what native replays need. `makers` call the ops that make shells and storages, the last with a tensor of one
/// element; `writable` is the key of tensors that may be written outside of inference mode.
#[pyfunction]
pub fn register_replays(
    c10: &str,
    python: &str,
    writable: u64,
    makers: [Bound<'_, PyAny>; 4],
) -> PyResult<()> {
    if !is_probed() {
        return Err(refused("storages are not watched"));
    }
    owned::set_up(c10, python)?;
    let names = [
        "aten::alias.",
        "aten::clone.",
        "aten::empty_like.",
        "aten::unsafe_split.Tensor",
    ];
    let mut ops: Vec<(Op, Option<Owned>)> = Vec::new();
    for (name, call) in names.into_iter().zip(&makers) {
        let alias = ops.first().map(|(op, _)| *op);
        let (found, called) = shown(call, move |py, torch, found, call| {
            let seed = call.values.first().zip(alias);
            // SAFETY: the probe called the op with a tensor of the CPU, which is alive.
            let seed = seed.and_then(|(value, op)| unsafe { shell::alias(py, torch, &op, value) });
            (found == name).then_some((call.op, seed))
        })?;
        called?;
        ops.push(found.ok_or_else(|| refused(&format!("the way of {name}")))?);
    }
    let mut ops = ops.into_iter();
    let (Some((alias, _)), Some((clone, _)), Some((empty_like, _)), Some((split, Some(seed)))) =
        (ops.next(), ops.next(), ops.next(), ops.next())
    else {
        return Err(refused("the ops that make tensors"));
    };
    shell::set_makers(Makers {
        alias,
        clone,
        empty_like,
        split,
        writable,
        seed,
    });
    Ok(())
}

/// All that differs between calls of one form, kept after the call.
struct Kept {
    inputs: Vec<u32>,
    storages: Vec<Strong>,
    offsets: Vec<i64>,
    numbers: Vec<Number>,
}

/// Passes over the arguments of a call as of one whose schema is not known.
fn pass(torch: &Torch, call: &Dispatched<'_>) -> Option<Stacked> {
    let arity = Arity {
        schema: Schema {
            arguments: call.values.len(),
            ..Schema::default()
        },
        seen: Seen::default(),
    };
    let arguments = OnStack {
        torch,
        arity: &arity,
        values: call.values,
        seed: 0,
        state: StateNumber::default(),
    };
    let mut stacked = Stacked::default();
    // SAFETY: the call is in progress.
    unsafe { stacked.pass(&arguments) }.then_some(stacked)
}

fn keep(torch: &Torch, call: &Dispatched<'_>) -> Option<Kept> {
    let stacked = pass(torch, call)?;
    let mut inputs = Vec::new();
    let mut add = |value: &Value| {
        // SAFETY: the call is in progress; lists keep their items alive.
        if let Item::Tensor(tensor) = unsafe { torch.boxed.read(value) } {
            // SAFETY: as above.
            let storage = unsafe { tensor.storage(torch.boxed) };
            let input = stacked.storages.iter().position(|&known| known == storage);
            inputs.extend(input.map(|input| input as u32)); // none for a number that was wrapped
        }
    };
    for value in call.values {
        // SAFETY: as above.
        match unsafe { torch.boxed.read(value) } {
            Item::List(items) => items.iter().for_each(&mut add),
            _ => add(value),
        }
    }
    // SAFETY: the arguments own their storages.
    let storages = stacked
        .storages
        .iter()
        .map(|&at| unsafe { Strong::new(at) });
    Some(Kept {
        inputs,
        storages: storages.collect::<Option<_>>()?,
        offsets: stacked.offsets,
        numbers: stacked.numbers,
    })
}

/// Makes a template of the last op that `first` calls, and replays by it the last one that `second` calls, which may
/// fail. The storages of the replay's results.
#[pyfunction]
pub fn rehearse_replay<'py>(
    py: Python<'py>,
    first: &Bound<'py, PyAny>,
    second: &Bound<'py, PyAny>,
) -> PyResult<Vec<Option<Bound<'py, PyAny>>>> {
    let (template, called) = shown(first, |py, torch, _, call| {
        let stacked = pass(torch, call)?;
        // SAFETY: the call is in progress.
        unsafe { Template::of(py, torch, call, &stacked, |_| false) }
    })?;
    called?;
    let (kept, _) = shown(second, |_, torch, _, call| keep(torch, call))?;
    let (Some(mut template), Some(kept)) = (template, kept) else {
        return Err(refused("a call cannot be replayed"));
    };
    let differing = Differing {
        inputs: &kept.inputs,
        storages: &kept.storages,
        offsets: &kept.offsets,
        numbers: &kept.numbers,
    };
    // SAFETY: `second` made the same call on these storages.
    let results = unsafe { template.call(py, &differing) };
    let results = results.ok_or_else(|| refused("a template cannot be used"))?;
    let results = results.map_err(|exception| exception.into_error(py))?;
    let objects = results.iter().map(|result| {
        let object = result.as_ref().map(|storage| storage.to_object(py));
        let object = object.map(|made| made.map(|object| object.into_parts().0));
        object.transpose()
    });
    objects.collect()
}

/// Has ops of known forms replayed without Python from now on: the rehearsals passed.
#[pyfunction]
pub fn replay_natively() {
    shell::set_rehearsed();
}
