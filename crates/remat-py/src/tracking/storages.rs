//! The torch storages that the session knows, and where the bytes of each engine storage are.
//!
//! A *live* storage is an `UntypedStorage` that something in the program still holds: the table keeps a weak
//! reference whose callback tells of its death. Versions of a storage that an in-place op overwrote, and
//! storages that died, may be recomputed on the way to something else: their bytes are in *scratch* storages
//! that only the table holds.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyWeakrefReference;
use remat_core::{PoolId, StorageId, TensorId};
use rustc_hash::FxHashMap;

use crate::fastcall::call_one;
use crate::layout::Impl;
use crate::let_go::Holds;
use crate::outside::{overlap, Place};

/// `UntypedStorage._fix_weakref`, where it exists.
static FIX_WEAKREF: PyOnceLock<Option<Py<PyAny>>> = PyOnceLock::new();

/// Index of a live storage in the table.
pub type LiveId = u32;

/// A torch storage that the program holds.
pub struct Live {
    /// Weak reference to the `UntypedStorage`.
    weak: Py<PyAny>,
    /// Address of the `UntypedStorage` object, its key.
    object: usize,
    /// The C++ side.
    pub imp: Impl,
    /// A strong reference while recorded ops read a constant: a constant that the program drops must stay
    /// until nothing can need it.
    pub hold: Option<Py<PyAny>>,
    /// Recorded ops that read this storage as a constant.
    pub readers: u32,
    /// The tensor in the engine whose value the storage has now.
    pub tensor: TensorId,
    /// Size of the storage.
    pub bytes: u64,
    /// Where it lives.
    pub pool: PoolId,
    /// Whether the bytes are there.
    pub present: bool,
    /// The memory that torch did not allocate: its bytes are counted there.
    pub outside: Option<Place>,
    /// Nothing has been written to it by an op yet (it came from `empty`).
    pub blank: bool,
    /// The program took its bytes away (`resize_(0)`): access raises, as plain torch would crash.
    pub freed: bool,
    /// Tells it from storages that had the same id before.
    pub serial: u64,
}

/// Where the bytes of an engine storage are.
pub enum Buffer {
    /// Nowhere.
    Empty,
    /// In a storage that the program holds (if `present`).
    Live(LiveId),
    /// In a storage of the table's own.
    Scratch(Py<PyAny>),
}

/// Receives the deaths of storages, from whatever thread they die in.
#[pyclass(frozen, module = "remat._native")]
pub struct Deaths {
    queue: Arc<Mutex<Vec<usize>>>,
}

#[pymethods]
impl Deaths {
    fn __call__(&self, weak: &Bound<'_, PyAny>) {
        self.queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(weak.as_ptr() as usize);
    }
}

/// The table.
pub struct Storages {
    lives: Vec<Option<Live>>,
    free: Vec<LiveId>,
    by_object: FxHashMap<usize, LiveId>,
    by_weak: FxHashMap<usize, LiveId>,
    buffers: Vec<Buffer>,
    queue: Arc<Mutex<Vec<usize>>>,
    on_death: Py<PyAny>,
    serial: u64,
    /// Storages with a lower serial number were there before the latest op that autograd records.
    before_forward: u64,
    held: u64,
    /// Constants held for records.
    pub holds: Holds,
}

impl Storages {
    /// An empty table.
    pub fn new(py: Python<'_>) -> PyResult<Storages> {
        let queue = Arc::new(Mutex::new(Vec::new()));
        let on_death = Py::new(
            py,
            Deaths {
                queue: queue.clone(),
            },
        )?
        .into_any();
        Ok(Storages {
            lives: Vec::new(),
            free: Vec::new(),
            by_object: FxHashMap::default(),
            by_weak: FxHashMap::default(),
            buffers: Vec::new(),
            queue,
            on_death,
            serial: 0,
            before_forward: 0,
            held: 0,
            holds: Holds::default(),
        })
    }

    /// The live storage behind a Python object, if it is known.
    #[inline]
    pub fn find(&self, storage: &Bound<'_, PyAny>) -> Option<LiveId> {
        self.by_object.get(&(storage.as_ptr() as usize)).copied()
    }

    /// Takes in a storage whose bytes are there.
    pub fn insert(
        &mut self,
        storage: &Bound<'_, PyAny>,
        tensor: TensorId,
        sid: StorageId,
        bytes: u64,
        pool: PoolId,
    ) -> PyResult<LiveId> {
        let py = storage.py();
        let weak = PyWeakrefReference::new_with(storage, self.on_death.bind(py))?
            .into_any()
            .unbind();
        let weak_key = weak.as_ptr() as usize;
        let live = Live {
            weak,
            object: storage.as_ptr() as usize,
            imp: Impl::of(storage)?,
            hold: None,
            readers: 0,
            tensor,
            bytes,
            pool,
            present: true,
            outside: None,
            blank: false,
            freed: false,
            serial: self.serial,
        };
        self.serial += 1;
        self.held += bytes;
        let id = match self.free.pop() {
            Some(id) => {
                self.lives[id as usize] = Some(live);
                id
            }
            None => {
                self.lives.push(Some(live));
                (self.lives.len() - 1) as LiveId
            }
        };
        self.by_object.insert(storage.as_ptr() as usize, id);
        self.by_weak.insert(weak_key, id);
        self.set_buffer(sid, Buffer::Live(id));
        Ok(id)
    }

    /// The next storage that died, removed from the table (its buffer is left to the caller).
    pub fn next_death(&mut self) -> Option<Live> {
        loop {
            let weak = self
                .queue
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop()?;
            let Some(id) = self.by_weak.remove(&weak) else {
                continue;
            };
            if let Some(live) = self.lives[id as usize].take() {
                self.by_object.remove(&live.object);
                self.held -= live.bytes;
                self.free.push(id);
                return Some(live);
            }
        }
    }

    /// Removes a storage from the table while something else takes over its bytes.
    pub fn forget(&mut self, id: LiveId) -> Option<Live> {
        let live = self.lives.get_mut(id as usize)?.take()?;
        self.by_object.remove(&live.object);
        self.by_weak.remove(&(live.weak.as_ptr() as usize));
        self.held -= live.bytes;
        if live.hold.is_some() {
            self.holds.sub(live.bytes);
        }
        self.free.push(id);
        Some(live)
    }

    /// Keeps a storage alive for the records that read it.
    pub fn hold(&mut self, id: LiveId, object: Py<PyAny>) {
        if let Some(live) = self.live_mut(id) {
            let bytes = live.bytes;
            if live.hold.replace(object).is_none() {
                self.holds.add(bytes);
            }
        }
    }

    /// No record reads it any more.
    pub fn unhold(&mut self, id: LiveId) {
        if let Some(live) = self.live_mut(id) {
            let bytes = live.bytes;
            if live.hold.take().is_some() {
                self.holds.sub(bytes);
            }
        }
    }

    /// Whether deaths wait to be told.
    #[inline]
    pub fn has_deaths(&self) -> bool {
        !self
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty()
    }

    /// An op that autograd records is about to run: what is here now has been carried into a forward pass.
    #[inline]
    pub fn note_forward(&mut self) {
        self.before_forward = self.serial;
    }

    /// Whether any of the storages written (indices into `lives`) was carried into a forward pass.
    pub fn any_carried(&self, lives: &[LiveId], written: &[u32]) -> bool {
        let mut storages = written.iter().filter_map(|&i| self.live(lives[i as usize]));
        storages.any(|live| live.serial < self.before_forward)
    }

    /// Bytes of all storages that the program holds, evicted ones included.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// A live storage; ids come from this table and name storages that have not been removed.
    #[inline]
    pub fn live(&self, id: LiveId) -> Option<&Live> {
        self.lives.get(id as usize).and_then(Option::as_ref)
    }

    /// As [`live`](Self::live), to change.
    #[inline]
    pub fn live_mut(&mut self, id: LiveId) -> Option<&mut Live> {
        self.lives.get_mut(id as usize).and_then(Option::as_mut)
    }

    /// Every live storage.
    pub fn all(&self) -> impl Iterator<Item = (LiveId, &Live)> {
        self.lives
            .iter()
            .enumerate()
            .filter_map(|(i, l)| l.as_ref().map(|l| (i as LiveId, l)))
    }

    /// Every storage of the table's own, by the engine storage whose bytes it has.
    pub fn scratch(&self) -> impl Iterator<Item = (StorageId, &Py<PyAny>)> {
        let all = self.buffers.iter().enumerate();
        all.filter_map(|(index, buffer)| match buffer {
            Buffer::Scratch(storage) => Some((StorageId(index as u32), storage)),
            _ => None,
        })
    }

    /// Other storages over the same memory, which torch did not allocate.
    pub fn aliases(&self, id: LiveId) -> Vec<(LiveId, TensorId)> {
        let Some(place) = self.live(id).and_then(|live| live.outside) else {
            return Vec::new();
        };
        let over = |live: &Live| live.outside.is_some_and(|other| overlap(place, other));
        self.all()
            .filter(|&(other, live)| other != id && over(live))
            .map(|(other, live)| (other, live.tensor))
            .collect()
    }

    /// Where an engine storage's bytes are.
    pub fn buffer(&self, sid: StorageId) -> &Buffer {
        self.buffers.get(sid.index()).unwrap_or(&Buffer::Empty)
    }

    /// Says where an engine storage's bytes are; returns what was said before.
    pub fn set_buffer(&mut self, sid: StorageId, buffer: Buffer) -> Buffer {
        if self.buffers.len() <= sid.index() {
            self.buffers.resize_with(sid.index() + 1, || Buffer::Empty);
        }
        std::mem::replace(&mut self.buffers[sid.index()], buffer)
    }

    /// The Python object that holds an engine storage's bytes now, if they are there.
    pub fn object<'py>(
        &self,
        py: Python<'py>,
        sid: StorageId,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.buffer(sid) {
            Buffer::Empty => Ok(None),
            Buffer::Scratch(s) => Ok(Some(s.bind(py).clone())),
            Buffer::Live(id) => match self.live(*id) {
                Some(live) if live.present => live.upgrade(py),
                _ => Ok(None),
            },
        }
    }
}

impl Live {
    /// Address of the `UntypedStorage` object.
    pub fn address(&self) -> usize {
        self.object
    }

    /// The storage object, unless it died.
    pub fn upgrade<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let object = self.weak.bind(py).call0()?;
        if object.is_none() {
            return Ok(None);
        }
        // In older torch the new reference does not own the storage before it was told so.
        let base = object.get_type();
        let fix = FIX_WEAKREF.get_or_try_init(py, || {
            let method = base.getattr_opt(intern!(py, "_fix_weakref"))?;
            PyResult::Ok(method.map(Bound::unbind))
        })?;
        if let Some(fix) = fix {
            call_one(fix, &object)?;
        }
        Ok(Some(object))
    }
}
