//! The probe's view of the fallback: what came to it, and how it reads that.

use std::cell::RefCell;

use pyo3::prelude::*;

use super::raising::raise_by;
use super::thread::{THREAD, include_native};
use crate::call::template::Dispatched;
use crate::ffi::boxed::{Stack, Value, find_items, words};
use crate::ffi::dispatcher::{self, Op, Torch};

/// A capture of the ops that the probe calls.
#[derive(Default)]
pub(super) struct Capture {
    list: Option<(usize, Vec<i64>)>,
    tensor: Option<usize>,
    raising: bool,
    seen: Vec<Seen>,
    /// Is shown each op.
    watcher: Option<Watcher>,
}

impl Capture {
    /// A capture that shows each op to a function.
    pub(super) fn watched(watcher: Watcher) -> Capture {
        Capture {
            watcher: Some(watcher),
            ..Capture::default()
        }
    }
}

/// Looks at a call that came to the fallback.
pub(super) type Watcher = Box<dyn FnMut(&Torch, &str, &Dispatched<'_>)>;

thread_local! {
    static CAPTURE: RefCell<Option<Capture>> = const { RefCell::new(None) };
}

/// Notes a call for the probe.
///
/// # Safety
/// The dispatcher's own arguments.
pub(super) unsafe fn note(op: *const Op, keys: u64, stack: *const Stack) {
    CAPTURE.with_borrow_mut(|capture| {
        if let Some(capture) = capture {
            // SAFETY: as the caller promises.
            unsafe { capture.note(op, keys, stack) };
        }
    });
}

impl Capture {
    /// Notes a call.
    ///
    /// # Safety
    /// As for [`note`].
    unsafe fn note(&mut self, op: *const Op, keys: u64, stack: *const Stack) {
        // SAFETY: as the caller promises; all values on the stack of a call that the probe makes are its arguments.
        unsafe {
            let (name, overload) = (*op).name();
            let name = format!("{name}.{overload}");
            let values = (*stack).all();
            let header = self.list.as_ref().and_then(|(at, items)| {
                let (_, list) = values.get(*at)?.raw();
                find_items(list, items)
            });
            let read = dispatcher::boxed().map_or_else(Vec::new, |boxed| {
                values.iter().map(|value| boxed.show(value)).collect()
            });
            let raw = values.iter().map(Value::raw).collect();
            let tensor = self.tensor.and_then(|at| values.get(at));
            self.seen.push(Seen {
                name: name.clone(),
                raw,
                header,
                read,
                words: tensor.map_or_else(Vec::new, |value| words(value).to_vec()),
            });
            if self.raising {
                raise_by(*op);
            }
            if let (Some(torch), Some(watcher)) = (Torch::get(), self.watcher.as_mut()) {
                let op = *op;
                watcher(torch, &name, &Dispatched { op, keys, values });
            }
        }
    }
}

/// The probe's view of an op that came to the fallback.
#[derive(IntoPyObject)]
pub struct Seen {
    /// The op.
    name: String,
    /// Tags and payloads of the arguments.
    raw: Vec<(u32, u64)>,
    /// The offset of a list's items.
    header: Option<usize>,
    /// The arguments as the fallback reads them.
    read: Vec<String>,
    /// The first words of a tensor.
    words: Vec<u64>,
}

/// Calls a function and lists the ops that come to the fallback meanwhile. No op reaches a session meanwhile on this
/// thread. `list` is the position of a list and its items, `tensor` that of a tensor. With `raising` the op is the one
/// that raises from now on.
#[pyfunction]
#[pyo3(signature = (call, list=None, tensor=None, raising=false))]
pub fn capture_native(
    call: &Bound<'_, PyAny>,
    list: Option<(usize, Vec<i64>)>,
    tensor: Option<usize>,
    raising: bool,
) -> PyResult<Vec<Seen>> {
    let capture = Capture {
        list,
        tensor,
        raising,
        ..Capture::default()
    };
    Ok(captured(call, capture)?.seen)
}

/// Calls a function while the ops that come to the fallback are captured.
pub(super) fn captured(call: &Bound<'_, PyAny>, capture: Capture) -> PyResult<Capture> {
    CAPTURE.with_borrow_mut(|captured| *captured = Some(capture));
    THREAD.with(|thread| thread.set_captures(true));
    include_native(true);
    let called = call.call0();
    include_native(false);
    THREAD.with(|thread| thread.set_captures(false));
    let captured = CAPTURE.with_borrow_mut(Option::take);
    called?;
    Ok(captured.unwrap_or_default())
}
