//! Whether autograd is leaving a gradient in a leaf on this thread, told without Python.
//!
//! `leaf_gradients` of torch internals compares the answers with Python's, outside of a backward pass and within nodes
//! of both kinds. Where nodes are owned by a `std::shared_ptr`, Python is asked within backward passes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::symbols::{function, symbol};
use super::watch::Strong;

/// A `c10::intrusive_ptr<Node>`, and a word that a pointer of another kind (`std::shared_ptr`) would take as well.
type OwnedNode = [usize; 2];

/// The number of the backward pass where there is none.
const NO_PASS: i32 = -1;

struct Autograd {
    /// `torch::autograd::get_current_graph_task_id()`.
    pass: unsafe extern "C" fn() -> i32,
    /// `torch::autograd::get_current_node()`, whose result is not trivial and so is returned by address.
    node: unsafe extern "C" fn(*mut OwnedNode),
    /// The word with which each `AccumulateGrad` begins.
    accumulates: usize,
    /// `at::sequence_number::peek()`, where torch has it.
    next_node: Option<unsafe extern "C" fn() -> u64>,
}

static AUTOGRAD: OnceLock<Autograd> = OnceLock::new();

/// The part that the probes found as expected: nothing, backward passes, or their nodes too.
static TRUSTED: AtomicU8 = AtomicU8::new(NOTHING);

const NOTHING: u8 = 0;
const PASSES: u8 = 1;
const NODES: u8 = 2;

/// The node that runs on this thread.
#[derive(IntoPyObject)]
pub struct Node {
    /// Whether it leaves a gradient in a leaf.
    accumulates: bool,
    /// The number of its owners.
    owners: u32,
}

impl Autograd {
    fn in_backward(&self) -> bool {
        // SAFETY: reads a number of this thread.
        unsafe { (self.pass)() != NO_PASS }
    }

    /// The node that runs on this thread; an error if it is owned in another way than expected.
    fn node(&self) -> Result<Option<Node>, ()> {
        const UNTOUCHED: usize = usize::MAX;
        let mut owned: OwnedNode = [0, UNTOUCHED];
        // SAFETY: torch's own function, which writes a pointer that shares the ownership of the node. The second word
        // is written by pointers of another kind alone, which are left as they are.
        unsafe { (self.node)(&mut owned) };
        let [node, untouched] = owned;
        if untouched != UNTOUCHED {
            return Err(());
        }
        if node == 0 {
            return Ok(None);
        }
        // SAFETY: the pointer is an owner of the node, which begins with its table of functions and the counts of its
        // owners. It is given back, as torch does.
        unsafe {
            let accumulates = *(node as *const usize) == self.accumulates;
            let owned = Strong::from_given(node);
            let owners = owned.owners();
            Ok(Some(Node {
                accumulates,
                owners,
            }))
        }
    }
}

/// Whether autograd is leaving a gradient in a leaf on this thread; `None` where Python has to be asked.
#[inline]
pub fn accumulating() -> Option<bool> {
    let autograd = AUTOGRAD.get()?;
    let trusted = TRUSTED.load(Ordering::Relaxed);
    if trusted == NOTHING {
        return None;
    }
    if !autograd.in_backward() {
        return Some(false);
    }
    if trusted < NODES {
        return None;
    }
    let node = autograd.node().ok()?;
    Some(node.is_some_and(|node| node.accumulates))
}

/// Whether this thread is in a backward pass, if that is known.
#[inline]
pub fn in_backward() -> Option<bool> {
    let autograd = AUTOGRAD.get()?;
    (TRUSTED.load(Ordering::Relaxed) != NOTHING).then(|| autograd.in_backward())
}

/// The number that autograd gives its next node on this thread, if that is known.
#[inline]
pub fn next_node() -> Option<u64> {
    let next = AUTOGRAD.get()?.next_node?;
    // SAFETY: reads a number of this thread.
    Some(unsafe { next() })
}

/// Looks the functions up.
///
/// # Errors
/// `RuntimeError` that names the function which torch lacks.
#[pyfunction]
pub fn register_autograd(cpu: &str) -> PyResult<()> {
    if AUTOGRAD.get().is_some() {
        return Ok(());
    }
    let table = symbol(cpu, "_ZTVN5torch8autograd14AccumulateGradE")?;
    // SAFETY: the mangled names state that there are no arguments. The first returns an `int`, the last a `uint64_t`;
    // by the Itanium C++ ABI the second returns its pointer by address. The probes compare what they tell.
    let autograd = unsafe {
        Autograd {
            pass: function(cpu, "_ZN5torch8autograd25get_current_graph_task_idEv")?,
            node: function(cpu, "_ZN5torch8autograd16get_current_nodeEv")?,
            accumulates: table as usize + 2 * size_of::<usize>(), // behind the offset and the type
            // For timelines alone, which do without it; their test compares what it tells.
            next_node: function(cpu, "_ZN2at15sequence_number4peekEv").ok(),
        }
    };
    let _ = AUTOGRAD.set(autograd);
    Ok(())
}

/// Whether this thread is in a backward pass, for the probe.
#[pyfunction]
pub fn read_backward() -> Option<bool> {
    AUTOGRAD.get().map(Autograd::in_backward)
}

/// The number of autograd's next node on this thread, for the test.
#[pyfunction]
pub fn read_next_node() -> Option<u64> {
    next_node()
}

/// The node that runs on this thread, for the probe.
///
/// # Errors
/// `RuntimeError` where nodes are owned in another way.
#[pyfunction]
pub fn read_node() -> PyResult<Option<Node>> {
    let node = AUTOGRAD.get().map_or(Ok(None), Autograd::node);
    node.map_err(|()| PyRuntimeError::new_err("autograd's nodes are owned in another way"))
}

/// Has backward passes told without Python from now on, and the `nodes` that they run if these are as expected.
#[pyfunction]
pub fn trust_autograd(nodes: bool) {
    TRUSTED.store(if nodes { NODES } else { PASSES }, Ordering::Relaxed);
}
