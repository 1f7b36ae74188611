//! The torch storages that the session knows, and the place of each engine storage's bytes.
//!
//! A *live* storage is one that the program still holds. The table keeps a weak reference to it, or to the
//! `UntypedStorage` that Python knows it by, and hears of its death. A replay may also need versions of a storage that
//! an in-place op overwrote, or storages that died. Their recomputed bytes are in *scratch* storages, which only the
//! table holds.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyWeakrefReference;
use remat_core::{StorageId, TensorId};
use rustc_hash::FxHashMap;

use super::buffers::{Buffer, Buffers, Scratch};
use super::held_constants::HeldConstants;
use super::live::{Contents, Live, LiveId, UNTOLD, Watch};
use super::outside::{Place, overlap};
use super::owner::Owner;
use super::untold::{self, Untold};
use super::weak_deaths::{Deaths, Queue};
use crate::ffi::deaths::Subscription;
use crate::ffi::gil::Attach;
use crate::ffi::layout::Impl;
use crate::ffi::watch::{StorageObject, Strong, Watched};
use crate::timeline::{MemoryKind, Timeline};

/// The table.
pub struct Storages {
    lives: Vec<Option<Live>>,
    free: Vec<LiveId>,
    by_object: FxHashMap<usize, LiveId>,
    by_weak: FxHashMap<usize, LiveId>,
    /// By the address of the C++ storage.
    by_address: FxHashMap<usize, LiveId>,
    buffers: Buffers,
    queue: Arc<Queue>,
    on_death: Py<PyAny>,
    /// Addresses of storages that told of their death themselves; `None` until one is watched.
    watched_deaths: Option<Subscription>,
    /// Whether storages known by their Python objects are watched as well.
    watches: bool,
    /// Whether the run is over.
    left: bool,
    serial: u64,
    /// Storages with a lower serial number existed before the latest op that autograd recorded.
    before_forward: u64,
    held: u64,
    most_held: u64,
    untold: Untold,
    /// Bytes of what ops without records made, but for constants with a record too.
    unrecorded_bytes: u64,
    /// The most bytes that one such op made.
    unrecorded_at_once: u64,
    /// Bytes of constants held for records.
    pub held_constants: HeldConstants,
    /// Is told what becomes of storages, if the run is to be seen.
    pub timeline: Option<Timeline>,
}

impl Storages {
    /// An empty table.
    pub fn new(py: Python<'_>) -> PyResult<Storages> {
        let queue = Arc::new(Queue::default());
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
            by_address: FxHashMap::default(),
            buffers: Buffers::default(),
            queue,
            on_death,
            watched_deaths: None,
            watches: false,
            left: false,
            serial: 0,
            before_forward: 0,
            held: 0,
            most_held: 0,
            untold: Untold::default(),
            unrecorded_bytes: 0,
            unrecorded_at_once: 0,
            held_constants: HeldConstants::default(),
            timeline: None,
        })
    }

    /// The live storage behind a Python object, if it is known.
    ///
    /// A storage that died since deaths were last seen to is not the one behind the object: a new object may have taken
    /// its address.
    #[inline]
    pub fn find(&self, storage: &Bound<'_, PyAny>) -> Option<LiveId> {
        let alive = |id: LiveId| {
            self.live(id)
                .is_some_and(|live| live.is_alive(storage.py()))
        };
        let known = self.by_object.get(&(storage.as_ptr() as usize)).copied();
        if let Some(id) = known.filter(|&id| alive(id)) {
            return Some(id);
        }
        // Storages that tell of their death themselves are not known by their objects.
        self.watched_deaths.as_ref()?;
        let address = Impl::of(storage).ok()?.address();
        let known = self.by_address.get(&address).copied();
        known.filter(|&id| alive(id))
    }

    /// The live storage at a C++ address and the tensor whose value it has, if it is known. The caller has taken all
    /// that died out of the table.
    #[inline]
    pub fn find_at(&self, address: usize) -> Option<(LiveId, TensorId)> {
        let id = *self.by_address.get(&address)?;
        self.live(id).map(|live| (id, live.tensor))
    }

    /// Has storages tell of their death themselves from here on, where they can: their Python objects need not be
    /// asked whether they are alive.
    pub fn watch(&mut self) {
        self.watches = true;
    }

    /// The run is over, and watches no storage any more.
    pub fn leave(&mut self) {
        self.left = true;
        for live in self.lives.iter_mut().flatten() {
            if let Watch::Storage(watched) = &mut live.watch {
                watched.leave();
            }
        }
    }

    /// Lets go of all memory that the table itself owns: nothing is replayed any more. The caller holds the GIL.
    pub fn let_go(&mut self) {
        for live in self.lives.iter_mut().flatten() {
            live.hold = None;
        }
        let owned: Vec<StorageId> = self.scratch().map(|(sid, _)| sid).collect();
        for sid in owned {
            self.set_buffer(sid, Buffer::Empty);
        }
    }

    /// Notes that a storage lies over memory that torch did not allocate.
    pub fn set_outside(&mut self, id: LiveId, place: Place) {
        if let Some(live) = self.live_mut(id) {
            live.outside = Some(place);
            if let Watch::Storage(watched) = &live.watch {
                watched.set_shared();
            }
        }
    }

    /// Takes in a storage that has its bytes; `imp` is its C++ storage.
    pub fn insert(
        &mut self,
        storage: &Bound<'_, PyAny>,
        imp: Impl,
        contents: Contents,
    ) -> PyResult<LiveId> {
        if self.watches {
            // SAFETY: `storage` is in scope and owns the C++ storage.
            if let Some(watched) = unsafe { Watched::new(imp.address()) } {
                return Ok(self.insert_watched(watched, contents));
            }
        }
        let weak = PyWeakrefReference::new_with(storage, self.on_death.bind(storage.py()))?;
        let watch = Watch::Object {
            weak: weak.unbind().into(),
            address: storage.as_ptr() as usize,
        };
        Ok(self.add(watch, imp, contents))
    }

    /// Takes in a storage that has its bytes and tells of its death itself.
    pub fn insert_watched(&mut self, mut watched: Watched, contents: Contents) -> LiveId {
        if self.left {
            watched.leave();
        }
        self.watched_deaths.get_or_insert_with(Subscription::new);
        let imp = Impl::at(watched.address());
        self.add(Watch::Storage(watched), imp, contents)
    }

    fn add(&mut self, watch: Watch, imp: Impl, contents: Contents) -> LiveId {
        let Contents {
            tensor,
            sid,
            bytes,
            device,
        } = contents;
        let keys = watch.keys();
        let live = Live {
            watch,
            imp,
            hold: None,
            readers: 0,
            tensor,
            bytes,
            device,
            present: true,
            outside: None,
            elsewhere: false,
            blank: false,
            keeps: false,
            freed: false,
            classified: false,
            parameter: false,
            made: (0, 0),
            maker: 0,
            unrecorded: 0,
            serial: self.serial,
        };
        self.serial += 1;
        self.held += bytes;
        self.most_held = self.most_held.max(self.held);
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
        if let Some((weak, object)) = keys {
            self.by_object.insert(object, id);
            self.by_weak.insert(weak, id);
        }
        self.by_address.insert(imp.address(), id);
        if tensor == UNTOLD {
            let mut untold = std::mem::take(&mut self.untold);
            let serial = self.serial - 1;
            untold.add(untold::Entry { id, serial }, bytes, |entry| {
                self.is_untold(entry)
            });
            self.untold = untold;
        } else {
            self.set_buffer(sid, Buffer::Live(id));
        }
        if let Some(timeline) = &self.timeline {
            timeline.tell(|recorder| recorder.born(id, bytes, device));
        }
        id
    }

    /// An op of a planned step that the engine was not told of made the value that a storage has. `made` is the op's
    /// number for the engine, or 0 if a record would not have let go of the value either, and which output it is.
    pub fn note_made(&mut self, id: LiveId, made: (u64, u32)) {
        if let Some(live) = self.live_mut(id) {
            live.made = made;
            live.maker = live.maker.min(made.0); // the first one, if several wrote to it; none for a constant
        }
        self.set_unrecorded(id, made.0 > 0);
    }

    /// An op with a record reads the value that a storage has.
    #[inline]
    pub fn note_read(&mut self, id: LiveId) {
        if let Some(live) = self.live_mut(id).filter(|live| live.tensor != UNTOLD) {
            live.maker = 0;
        }
    }

    /// Whether a storage has a value that was made without a record, and that a record would have let go of.
    pub fn set_unrecorded(&mut self, id: LiveId, unrecorded: bool) {
        if let Some(live) = self.live_mut(id) {
            let bytes = if unrecorded { live.bytes } else { 0 };
            let before = std::mem::replace(&mut live.unrecorded, bytes);
            self.unrecorded_bytes += bytes;
            self.note_unrecorded_at_once(bytes);
            self.unrecorded_bytes -= before;
        }
    }

    /// An op of a planned step without a record made so many bytes.
    pub fn note_unrecorded_at_once(&mut self, bytes: u64) {
        self.unrecorded_at_once = self.unrecorded_at_once.max(bytes);
    }

    /// The most bytes that one op of a planned step made without a record.
    pub fn unrecorded_at_once(&self) -> u64 {
        self.unrecorded_at_once
    }

    /// Bytes of what ops of planned steps made without records, and could be evicted if it had some.
    pub fn unrecorded_bytes(&self) -> u64 {
        self.unrecorded_bytes
    }

    fn is_untold(&self, entry: untold::Entry) -> bool {
        let live = self.live(entry.id);
        live.is_some_and(|live| live.serial == entry.serial && live.tensor == UNTOLD)
    }

    /// The next storage that the engine was not told of, from the one made first on; it is told of now. `at` starts
    /// with 0. After the last one the list is empty.
    pub fn next_untold(&mut self, at: &mut usize) -> Option<LiveId> {
        while let Some(entry) = self.untold.at(*at) {
            *at += 1;
            if self.is_untold(entry) {
                return Some(entry.id);
            }
        }
        self.untold.clear();
        None
    }

    /// Bytes of the storages that the engine was not told of.
    pub fn untold_bytes(&self) -> u64 {
        self.untold.bytes()
    }

    /// Whether there are storages that the engine was not told of.
    #[inline]
    pub fn any_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    /// The engine was told of a storage.
    pub fn note_told(&mut self, id: LiveId, tensor: TensorId, sid: StorageId) {
        if let Some(live) = self.live_mut(id).filter(|live| live.tensor == UNTOLD) {
            live.tensor = tensor;
            let bytes = live.bytes;
            self.untold.leave(bytes);
            self.set_buffer(sid, Buffer::Live(id));
        }
    }

    /// Removes the next storage that died from the table. The caller clears its buffer.
    pub fn next_death(&mut self, gil: impl Attach) -> Option<Live> {
        while let Some(weak) = self.queue.pop() {
            let known = self.by_weak.get(&weak).copied();
            if let Some(live) = known.and_then(|id| self.take_dead(gil, id)) {
                return Some(live);
            }
        }
        while let Some(address) = self.watched_deaths.as_mut().and_then(Subscription::pop) {
            let known = self.by_address.get(&address).copied();
            if let Some(live) = known.and_then(|id| self.take_dead(gil, id)) {
                return Some(live);
            }
        }
        None
    }

    /// Removes a storage from the table if it died. The queues outlive what they name: where a storage that the table
    /// forgot has died, one of now may lie at that address, or have its weak reference there.
    fn take_dead(&mut self, gil: impl Attach, id: LiveId) -> Option<Live> {
        if self.live(id).is_some_and(|live| live.is_alive(gil)) {
            return None;
        }
        self.remove(id)
    }

    /// Removes a storage from the table while something else takes over its bytes.
    pub fn forget(&mut self, id: LiveId) -> Option<Live> {
        let former = self.remove(id)?;
        if former.hold.is_some() {
            self.held_constants.sub(former.bytes);
        }
        Some(former)
    }

    /// Removes a storage and its addresses, unless another one has taken them since: its death may be seen to later.
    fn remove(&mut self, id: LiveId) -> Option<Live> {
        let live = self.lives.get_mut(id as usize)?.take()?;
        let (keys, address) = (live.watch.keys(), live.imp.address());
        self.unrecorded_bytes -= live.unrecorded;
        if live.tensor == UNTOLD {
            self.untold.leave(live.bytes);
        }
        if let Some((weak, object)) = keys {
            self.by_weak.remove(&weak);
            if self.by_object.get(&object) == Some(&id) {
                self.by_object.remove(&object);
            }
        }
        if let Entry::Occupied(known) = self.by_address.entry(address) {
            if *known.get() == id {
                known.remove();
            }
        }
        self.held -= live.bytes;
        self.free.push(id);
        if let Some(timeline) = &self.timeline {
            timeline.tell(|recorder| recorder.died(id));
        }
        Some(live)
    }

    /// Notes that a parameter lies in a storage, which an op reads that autograd records.
    pub fn note_parameter(&mut self, id: LiveId) {
        if let Some(live) = self.live_mut(id) {
            live.parameter = true;
        }
        self.note_kind(id, MemoryKind::Parameter);
    }

    /// Tells the timeline what a storage is for.
    #[inline]
    pub fn note_kind(&self, id: LiveId, kind: MemoryKind) {
        if let Some(timeline) = &self.timeline {
            timeline.tell(|recorder| recorder.note_kind(id, kind));
        }
    }

    /// Has the bytes of a storage stay when it dies. Whether it does so.
    pub fn keep_bytes(&mut self, id: LiveId) -> bool {
        let live = self.lives.get_mut(id as usize).and_then(Option::as_mut);
        let live = live.filter(|_| !self.left);
        live.is_some_and(|live| {
            if let Watch::Storage(watched) = &live.watch {
                watched.set_keeping(true);
                live.keeps = true;
            }
            live.keeps
        })
    }

    /// Keeps a storage alive for the records that read it.
    pub fn hold(&mut self, id: LiveId, owner: Owner) {
        if let Some(live) = self.live_mut(id) {
            let bytes = live.bytes;
            if live.hold.replace(owner).is_none() {
                self.held_constants.add(bytes);
            }
        }
    }

    /// Stops keeping a storage alive, once no record reads it any more.
    pub fn unhold(&mut self, id: LiveId) {
        if let Some(live) = self.live_mut(id) {
            let bytes = live.bytes;
            if live.hold.take().is_some() {
                self.held_constants.sub(bytes);
            }
        }
    }

    /// Whether storages have died that are still in the table.
    #[inline]
    pub fn has_deaths(&self) -> bool {
        let told = self.watched_deaths.as_ref();
        told.is_some_and(|deaths| !deaths.is_empty()) || !self.queue.is_empty()
    }

    /// Notes that an op which autograd records is about to run. The storages known now were carried into a forward
    /// pass.
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

    /// The most that these were.
    pub fn most_held(&self) -> u64 {
        self.most_held
    }

    /// A live storage, unless it was removed.
    #[inline]
    pub fn live(&self, id: LiveId) -> Option<&Live> {
        self.lives.get(id as usize).and_then(Option::as_ref)
    }

    /// A live storage to change, unless it was removed.
    #[inline]
    pub fn live_mut(&mut self, id: LiveId) -> Option<&mut Live> {
        self.lives.get_mut(id as usize).and_then(Option::as_mut)
    }

    /// Places in the table, free ones included.
    pub fn slots(&self) -> usize {
        self.lives.len()
    }

    /// Every storage in the table, those included whose death is queued.
    pub fn all(&self) -> impl Iterator<Item = (LiveId, &Live)> {
        self.lives
            .iter()
            .enumerate()
            .filter_map(|(i, l)| l.as_ref().map(|l| (i as LiveId, l)))
    }

    /// Every storage in the table that is alive, so that its [`imp`](Live::imp) may be followed. One known by its
    /// Python object does not die in C++ before the GIL is released. The memory of one that is watched stays while it
    /// is in the table, though another thread may free its bytes.
    pub fn alive<'a>(&'a self, gil: Python<'a>) -> impl Iterator<Item = (LiveId, &'a Live)> {
        self.all().filter(move |(_, live)| live.is_alive(gil))
    }

    /// Every scratch storage, with the engine storage whose bytes it has.
    pub fn scratch(&self) -> impl Iterator<Item = (StorageId, &Scratch)> {
        self.buffers.scratch()
    }

    /// Other storages over the same memory, if torch did not allocate it.
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

    /// The place of an engine storage's bytes.
    pub fn buffer(&self, sid: StorageId) -> &Buffer {
        self.buffers.at(sid)
    }

    /// Sets the place of an engine storage's bytes; returns the place they had before.
    pub fn set_buffer(&mut self, sid: StorageId, buffer: Buffer) -> Buffer {
        self.buffers.set(sid, buffer, self.timeline.as_ref())
    }

    /// The Python object that holds an engine storage's bytes, if they are in memory.
    pub fn object<'py>(
        &self,
        py: Python<'py>,
        sid: StorageId,
    ) -> PyResult<Option<StorageObject<'py>>> {
        match self.buffer(sid) {
            Buffer::Empty => Ok(None),
            Buffer::Scratch(scratch) => scratch.owner.object(py).map(Some),
            Buffer::Live(id) => match self.live(*id) {
                Some(live) if live.present => live.upgrade(py),
                _ => Ok(None),
            },
        }
    }

    /// A reference to the storage that holds an engine storage's bytes, if they are in memory; no Python object is
    /// made.
    pub fn strong(&self, py: Python<'_>, sid: StorageId) -> PyResult<Option<Strong>> {
        match self.buffer(sid) {
            Buffer::Empty => Ok(None),
            Buffer::Scratch(Scratch { owner, .. }) => match owner {
                Owner::Storage(strong) => Ok(Some(strong.copy())),
                // SAFETY: the table's reference owns the storage.
                Owner::Object(_) => Ok(unsafe { Strong::new(owner.imp(py)?.address()) }),
            },
            Buffer::Live(id) => match self.live(*id) {
                Some(live) if live.present => live.strong(py),
                _ => Ok(None),
            },
        }
    }
}
