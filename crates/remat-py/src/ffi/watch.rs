//! Storages that tell of their death themselves, so that no Python object has to be made for each.
//!
//! A `c10::StorageImpl` begins with a pointer to its class's table of virtual functions, and a word that counts
//! references: strong ones in the low half, weak ones (and one for all strong ones together) in the high half but for
//! its topmost bit, which says that a Python object exists. Watching a storage takes a weak reference and gives it a
//! copy of its table in which `release_resources` is Remat's. Torch calls that when the last strong reference goes, in
//! whatever thread; the weak reference keeps the address from being used again until the death was seen to. There are
//! several copies: the one that a storage has says whether the run in force watches it, and whether the run counts its
//! bytes as those of this storage alone. In one of them that function frees no bytes, for storages whose bytes replays
//! read after the program let go of them.
//!
//! The words and the order of functions are those of `c10/util/intrusive_ptr.h`, 2.9 to 2.15. Up to 2.9 the two counts
//! are words of half the size, which lie as the halves of one do, and the topmost bit is never set; the table ends
//! before the functions of Python objects. The table is taken from the library, which also tells its size;
//! `probe_watch` of torch internals tries every function here on storages of its own before first use.

use std::ffi::c_void;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi as python;
use pyo3::prelude::*;

use super::boxed::storage_bytes;
use super::counted;
use super::deaths::{self, Subscription};
use super::dispatcher;
use super::symbols::symbol;

/// The mangled name of the table of `c10::StorageImpl`.
const TABLE: &str = "_ZTVN3c1011StorageImplE";
/// The mangled name of `THPStorage_Wrap(c10::Storage)`.
const WRAP: &str = "_Z15THPStorage_WrapN3c107StorageE";

/// Words of the table: two in front of the functions, and six functions; up to 2.9 three, the first ones.
const WORDS: usize = 8;
const WORDS_WITHOUT_OBJECTS: usize = 5;
const FIRST: usize = 2;
/// Functions in the table, by place.
const DELETE: usize = FIRST + 1;
const RELEASE: usize = FIRST + 2;
const INCREF_OBJECT: usize = FIRST + 3;
const DECREF_OBJECT: usize = FIRST + 4;
const TRY_INCREF_OBJECT: usize = FIRST + 5;

/// `RTLD_DL_SYMENT` of the system's headers.
const SYMBOL_ENTRY: i32 = 1;

const STRONG: u64 = 1;
const WEAK: u64 = 1 << 32;
const HAS_OBJECT: u64 = 1 << 63;

type Method = unsafe extern "C" fn(*mut c_void);
type Test = unsafe extern "C" fn(*mut c_void) -> bool;
type Wrap = unsafe extern "C-unwind" fn(*mut usize) -> *mut python::PyObject;

/// The tables that watched storages have, and torch's functions.
struct Watching {
    /// The place in torch's table that storages point at.
    original: usize,
    /// The same place in the copies, one for each [class](Class).
    copies: [usize; CLASSES],
    release: Method,
    wrap: Wrap,
    /// Whether the counts say that there is a Python object.
    counts_objects: bool,
}

/// The copies of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Of storages whose bytes the run in force counts, as theirs alone.
    Counted,
    /// Of those that the run in force watches, and whose bytes others have too.
    Shared,
    /// Of those that keep their bytes when they die.
    Keeping,
    /// Of those that no run watches any more.
    Former,
}

const CLASSES: usize = 4;

static WATCHING: OnceLock<Watching> = OnceLock::new();

/// Whether the probe found all as described.
static PROBED: AtomicBool = AtomicBool::new(false);

impl Watching {
    fn copy(&self, class: Class) -> usize {
        self.copies[class as usize]
    }

    /// Whether a table is one of the copies.
    fn is_copy(&self, table: usize) -> bool {
        self.copies.contains(&table)
    }
}

/// Torch calls it when the last strong reference to a watched storage went.
unsafe extern "C" fn on_release(storage: *mut c_void) {
    if let Some(watching) = WATCHING.get() {
        // SAFETY: torch's own function, with torch's own argument.
        unsafe { (watching.release)(storage) };
    }
    deaths::tell(storage as usize);
}

/// The same for a storage whose bytes the run in force counts as its own. The run takes note of the death later, and
/// counts anew then; until then ops that run unwatched have the room, once the bytes are gone.
unsafe extern "C" fn on_release_counted(storage: *mut c_void) {
    let boxed = dispatcher::boxed().filter(|_| counted::is_on());
    // SAFETY: torch's own argument: the storage's memory is there.
    let bytes = boxed.map_or(0, |boxed| unsafe { storage_bytes(boxed, storage as usize) });
    if let Some(watching) = WATCHING.get() {
        // SAFETY: torch's own function, with torch's own argument.
        unsafe { (watching.release)(storage) };
    }
    counted::others_died(bytes);
    deaths::tell(storage as usize);
}

/// The same for a storage that keeps its bytes: they go with the storage, once the weak reference goes.
unsafe extern "C" fn on_release_keeping(storage: *mut c_void) {
    deaths::tell(storage as usize);
}

/// The counts of references to a storage.
///
/// # Safety
/// The storage is alive, or a weak reference keeps its memory.
unsafe fn counts<'a>(storage: usize) -> &'a AtomicU64 {
    // SAFETY: the caller promises the memory; the second word is torch's atomic count.
    unsafe { &*((storage + 8) as *const AtomicU64) }
}

/// Whether the run in force watches a storage.
///
/// # Safety
/// The storage is alive.
#[inline]
pub unsafe fn tells(storage: usize) -> bool {
    let Some(watching) = WATCHING.get() else {
        return false;
    };
    // SAFETY: the caller promises a storage, whose first word is the pointer to its table.
    let table = unsafe { &*(storage as *const AtomicUsize) }.load(Ordering::Relaxed);
    table == watching.copy(Class::Counted)
        || table == watching.copy(Class::Shared)
        || table == watching.copy(Class::Keeping)
}

/// A weak reference to a storage that tells of its death.
pub struct Watched {
    storage: usize,
    /// Whether its run is over: the storage's table is that of a later one, if one watches it.
    left: bool,
}

/// A strong reference to a storage, or to anything else whose class derives from `c10::intrusive_ptr_target`: a tensor,
/// a list, a text. Their tables begin with the same functions, and their second word counts references likewise.
pub struct Strong(usize);

/// The Python object of a storage.
///
/// It keeps the storage by a reference in C++ too, which goes last. Up to torch 2.9 a storage takes its object over
/// when Python lets go of that, if others own the storage still. Where the last of them lets go of it at that moment,
/// in another thread without the GIL, both are freed twice.
pub struct StorageObject<'py> {
    object: Bound<'py, PyAny>,
    storage: Option<Strong>,
}

impl<'py> StorageObject<'py> {
    /// An object, and a reference to its storage where there is one.
    pub fn of(object: Bound<'py, PyAny>, storage: Option<Strong>) -> StorageObject<'py> {
        StorageObject { object, storage }
    }

    /// Both, the one that goes first in front.
    pub fn into_parts(self) -> (Bound<'py, PyAny>, Option<Strong>) {
        (self.object, self.storage)
    }
}

impl<'py> Deref for StorageObject<'py> {
    type Target = Bound<'py, PyAny>;

    fn deref(&self) -> &Bound<'py, PyAny> {
        &self.object
    }
}

impl Watched {
    /// Watches a storage; `None` where the probe refused, and for storages of another class.
    ///
    /// # Safety
    /// The storage is alive.
    pub unsafe fn new(storage: usize) -> Option<Watched> {
        let probed = PROBED.load(Ordering::Acquire);
        // SAFETY: as the caller promises.
        probed.then(|| unsafe { Watched::unprobed(storage) })?
    }

    /// [`new`](Self::new), for the probe itself.
    ///
    /// # Safety
    /// The storage is alive.
    unsafe fn unprobed(storage: usize) -> Option<Watched> {
        let watching = WATCHING.get()?;
        // SAFETY: the caller promises a storage, whose first word is the pointer to its table. Torch reads it with
        // plain loads, before or after: both tables lead to the same functions but for the one that tells of deaths.
        let table = unsafe { &*(storage as *const AtomicUsize) };
        let before = table.load(Ordering::Relaxed);
        if before != watching.original && !watching.is_copy(before) {
            return None;
        }
        // SAFETY: the storage is alive.
        unsafe { counts(storage) }.fetch_add(WEAK, Ordering::Relaxed);
        if before == watching.original || before == watching.copy(Class::Former) {
            table.store(watching.copy(Class::Counted), Ordering::Relaxed);
        }
        Some(Watched {
            storage,
            left: false,
        })
    }

    /// Whether the storage keeps its bytes when it dies, until this reference to it goes.
    pub fn set_keeping(&self, keeps: bool) {
        self.set_class(if keeps {
            Class::Keeping
        } else {
            Class::Counted
        });
    }

    /// The storage's bytes count once, with others that have them too.
    pub fn set_shared(&self) {
        self.set_class(Class::Shared);
    }

    /// The run that watches the storage is over. Deaths are told all the same.
    pub fn leave(&mut self) {
        self.set_class(Class::Former);
        self.left = true;
    }

    fn set_class(&self, class: Class) {
        if let Some(watching) = WATCHING.get().filter(|_| !self.left) {
            let table = watching.copy(class);
            // SAFETY: the weak reference keeps the memory, whose first word is the pointer to the table. All tables
            // lead to the same functions but for the one that frees the bytes of a storage that died, and a storage
            // that was deleted frees them in any case.
            unsafe { &*(self.storage as *const AtomicUsize) }.store(table, Ordering::Relaxed);
        }
    }

    /// The storage's address.
    pub fn address(&self) -> usize {
        self.storage
    }

    /// Whether the storage has strong references. One that has none never has any again.
    pub fn is_alive(&self) -> bool {
        // SAFETY: the weak reference keeps the memory.
        unsafe { counts(self.storage) }.load(Ordering::Acquire) as u32 != 0
    }

    /// A strong reference, as `weak_intrusive_ptr::lock` takes it; `None` if the storage died.
    pub fn lock(&self) -> Option<Strong> {
        let storage = self.storage as *mut c_void;
        // SAFETY: the weak reference keeps the memory.
        let counts = unsafe { counts(self.storage) };
        let mut now = counts.load(Ordering::Relaxed);
        let mut increfed = false;
        loop {
            if now as u32 == 0 {
                break;
            }
            if now & HAS_OBJECT != 0 && now as u32 == 1 && !increfed {
                // SAFETY: torch's own function for this case.
                if !unsafe { try_incref_object(storage) } {
                    return None;
                }
                increfed = true;
            }
            let (to, from) = (Ordering::Acquire, Ordering::Relaxed);
            match counts.compare_exchange_weak(now, now + STRONG, to, from) {
                Ok(_) => break,
                Err(other) => now = other,
            }
        }
        if increfed && now as u32 != 1 {
            // SAFETY: the Python object was increfed above, for a transition that another thread made.
            unsafe { call(storage, DECREF_OBJECT) };
        }
        // Not `then_some`: a `Strong` of a storage that died would give back, when dropped, what nobody took.
        (now as u32 != 0).then(|| Strong(self.storage))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Nobody sees to the death any more.
        self.set_class(Class::Former);
        // SAFETY: the weak reference keeps the memory, and is given back once.
        let after = unsafe { counts(self.storage) }.fetch_sub(WEAK, Ordering::AcqRel) - WEAK;
        if after & !HAS_OBJECT == 0 {
            // SAFETY: no reference is left, so whoever gave the last one back deletes the storage, as torch does.
            unsafe { call(self.storage as *mut c_void, DELETE) };
        }
    }
}

impl Strong {
    /// A strong reference to a storage, as `intrusive_ptr` copies it; `None` if watching was not set up.
    ///
    /// # Safety
    /// The storage is alive, and stays so during the call.
    pub unsafe fn new(storage: usize) -> Option<Strong> {
        WATCHING.get()?;
        // SAFETY: as the caller promises.
        Some(unsafe { Strong::counted(storage) })
    }

    /// [`new`](Self::new), once watching was set up.
    unsafe fn counted(storage: usize) -> Strong {
        // SAFETY: the caller promises that the storage is alive.
        let after = unsafe { counts(storage) }.fetch_add(STRONG, Ordering::Relaxed) + STRONG;
        if after & HAS_OBJECT != 0 && after as u32 == 2 {
            // SAFETY: torch's own function for this transition.
            unsafe { call(storage as *mut c_void, INCREF_OBJECT) };
        }
        Strong(storage)
    }

    /// Takes over a reference that somebody gives up.
    ///
    /// # Safety
    /// The reference is there, and nobody else gives it back.
    pub unsafe fn from_given(address: usize) -> Strong {
        Strong(address)
    }

    /// Gives the reference up to somebody who gives it back; returns the address.
    pub fn give(self) -> usize {
        let address = self.0;
        std::mem::forget(self);
        address
    }

    /// A further reference.
    pub fn copy(&self) -> Strong {
        // SAFETY: `self` keeps the object alive.
        unsafe { Strong::counted(self.0) }
    }

    /// The object's address.
    pub fn address(&self) -> usize {
        self.0
    }

    /// Strong references to the object, this one among them.
    pub fn owners(&self) -> u32 {
        // SAFETY: `self` keeps the object alive.
        unsafe { counts(self.0) }.load(Ordering::Acquire) as u32
    }

    /// Whether nobody else owns the storage. A Python object that nobody holds owns it no less: it stays with it.
    pub fn is_sole(&self, py: Python<'_>) -> PyResult<bool> {
        // SAFETY: `self` keeps the object alive.
        let counts = unsafe { counts(self.0) }.load(Ordering::Acquire);
        if counts & HAS_OBJECT == 0 || counts as u32 != 2 {
            return Ok(counts as u32 == 1);
        }
        let object = self.to_object(py)?;
        // SAFETY: the object is in scope, and the GIL is held, as `py` proves.
        let references = unsafe { python::Py_REFCNT(object.as_ptr()) };
        Ok(references == 2) // `object` and the storage
    }

    /// The `UntypedStorage` that Python knows the storage by.
    pub fn to_object<'py>(&self, py: Python<'py>) -> PyResult<StorageObject<'py>> {
        let missing = || PyRuntimeError::new_err("remat: storages are not watched");
        let watching = WATCHING.get().ok_or_else(missing)?;
        // SAFETY: `self` keeps the storage alive.
        let copy = unsafe { Strong::new(self.0) }.ok_or_else(missing)?;
        let mut argument = copy.0;
        std::mem::forget(copy);
        // SAFETY: a `c10::Storage` is one pointer. By the Itanium C++ ABI it passes by address, and the caller destroys
        // what the function leaves there: null if it took the reference over. The GIL is held.
        let object = unsafe { (watching.wrap)(&mut argument) };
        if argument != 0 {
            drop(Strong(argument));
        }
        // SAFETY: a new reference, or null with an exception set.
        let object = unsafe { Bound::from_owned_ptr_or_err(py, object)? };
        Ok(StorageObject::of(object, Some(self.copy())))
    }
}

impl Drop for Strong {
    fn drop(&mut self) {
        let storage = self.0 as *mut c_void;
        // SAFETY: this reference keeps the storage until it is given back, here; what follows is what `intrusive_ptr`
        // does when it gives one back.
        unsafe {
            let counts = counts(self.0);
            let after = counts.fetch_sub(STRONG, Ordering::AcqRel) - STRONG;
            if after as u32 == 0 {
                if (after & !HAS_OBJECT) >> 32 == 1 {
                    return call(storage, DELETE);
                }
                call(storage, RELEASE);
                let after = counts.fetch_sub(WEAK, Ordering::AcqRel) - WEAK;
                if after & !HAS_OBJECT == 0 {
                    call(storage, DELETE);
                }
            } else if after & HAS_OBJECT != 0 && after as u32 == 1 {
                call(storage, DECREF_OBJECT);
            }
        }
    }
}

/// Whether the object at an address has one owner, and no Python object.
///
/// # Safety
/// The object is alive, and of a class that [`Strong`] names.
pub unsafe fn is_sole(address: usize) -> bool {
    // SAFETY: as the caller promises.
    unsafe { counts(address) }.load(Ordering::Acquire) == STRONG | WEAK
}

/// Whether the probe found that references are counted as described.
pub fn is_probed() -> bool {
    PROBED.load(Ordering::Acquire)
}

/// A function of a storage's class, by its place in the table.
///
/// # Safety
/// The storage's memory is there, and its class derives from `c10::intrusive_ptr_target`.
unsafe fn function(storage: *mut c_void, place: usize) -> usize {
    // SAFETY: the caller promises the class, whose table begins with these functions.
    unsafe {
        let table = storage.cast::<*const usize>().read();
        table.add(place - FIRST).read()
    }
}

/// Calls a function of the storage's class.
///
/// # Safety
/// As for [`function`]; the function at this place takes and returns nothing.
unsafe fn call(storage: *mut c_void, place: usize) {
    // SAFETY: as the caller promises.
    unsafe { std::mem::transmute::<usize, Method>(function(storage, place))(storage) }
}

/// Calls `try_incref_pyobject`.
///
/// # Safety
/// As for [`function`].
unsafe fn try_incref_object(storage: *mut c_void) -> bool {
    // SAFETY: as the caller promises; this one returns a `bool`.
    unsafe { std::mem::transmute::<usize, Test>(function(storage, TRY_INCREF_OBJECT))(storage) }
}

/// The address and the size in bytes of an object in a library that is loaded.
pub(super) fn sized_symbol(library: &str, name: &str) -> PyResult<(usize, u64)> {
    let found = symbol(library, name)?;
    // SAFETY: `dladdr1` fills in both structures if it returns other than 0, and the entry belongs to the library,
    // which stays loaded.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let mut entry: *mut libc::Elf64_Sym = std::ptr::null_mut();
        let (extra, which) = ((&raw mut entry).cast(), SYMBOL_ENTRY);
        if libc::dladdr1(found, &mut info, extra, which) == 0 || entry.is_null() {
            let missing = format!("{library} tells no size of {name}");
            return Err(PyRuntimeError::new_err(missing));
        }
        Ok((found as usize, (*entry).st_size))
    }
}

/// Makes storages watchable, once for each process. Whether the counts say that there is a Python object.
///
/// # Errors
/// `RuntimeError` if the table is not there, or has another size.
///
/// # Safety
/// The library is torch's, of a release whose `c10::StorageImpl` is as described above. `probe_watch` checks it.
pub unsafe fn set_up(python: &str) -> PyResult<bool> {
    if let Some(watching) = WATCHING.get() {
        return Ok(watching.counts_objects);
    }
    // Up to 2.9 several libraries have the table, and all use that of this one, or of those it needs.
    let (table, size) = sized_symbol(python, TABLE)?;
    let words = size as usize / size_of::<usize>();
    if words != WORDS && words != WORDS_WITHOUT_OBJECTS {
        return Err(PyRuntimeError::new_err(
            "torch's storages have other functions",
        ));
    }
    let (wrap, _) = sized_symbol(python, WRAP)?;
    let mut copy = [0; WORDS];
    // SAFETY: the symbol has as many words.
    let original = unsafe { std::slice::from_raw_parts(table as *const usize, words) };
    copy[..words].copy_from_slice(original);
    let releases: [Method; CLASSES] = [
        on_release_counted,
        on_release,
        on_release_keeping,
        on_release,
    ];
    let tables = releases.map(|release| {
        copy[RELEASE] = release as usize;
        // Storages point at them for as long as they live.
        &*Box::leak(Box::new(copy))
    });
    // SAFETY: the functions in the table take the storage; the mangled name states the argument of the other.
    let watching = unsafe {
        Watching {
            original: table + FIRST * size_of::<usize>(),
            copies: tables.map(|table| table.as_ptr().add(FIRST) as usize),
            release: std::mem::transmute::<usize, Method>(original[RELEASE]),
            wrap: std::mem::transmute::<usize, Wrap>(wrap),
            counts_objects: words == WORDS,
        }
    };
    Ok(WATCHING.get_or_init(|| watching).counts_objects)
}

/// Has results watched from now on: the probe found all as described.
#[pyfunction]
pub fn watch_results() {
    PROBED.store(true, Ordering::Release);
}

/// Makes storages watchable; see [`set_up`].
#[pyfunction]
pub fn register_watch(python: &str) -> PyResult<bool> {
    // SAFETY: `watch_results` of torch internals, the one caller, passes torch's own library, and probes what follows
    // from this before anything else uses it.
    unsafe { set_up(python) }
}

/// Whether the storage of an `UntypedStorage`, whose address is its `_cdata`, was ever watched.
#[pyfunction]
pub fn is_watched(storage: usize) -> bool {
    WATCHING.get().is_some_and(|watching| {
        // SAFETY: the caller holds the storage's Python object. Its first word is the pointer to its table.
        let table = unsafe { &*(storage as *const AtomicUsize) };
        watching.is_copy(table.load(Ordering::Relaxed))
    })
}

/// A watched storage, for the probe.
#[pyclass(frozen, module = "remat._native")]
pub struct WatchedProbe {
    watched: Watched,
    deaths: Mutex<Subscription>,
}

#[pymethods]
impl WatchedProbe {
    #[new]
    fn new(storage: usize) -> PyResult<WatchedProbe> {
        let deaths = Mutex::new(Subscription::new());
        // SAFETY: the probe passes the address of a storage of its own.
        let watched = unsafe { Watched::unprobed(storage) };
        let watched =
            watched.ok_or_else(|| PyRuntimeError::new_err("a storage of another class"))?;
        Ok(WatchedProbe { watched, deaths })
    }

    /// Whether the storage has strong references.
    fn is_alive(&self) -> bool {
        self.watched.is_alive()
    }

    /// The storage's Python object; `None` if it died.
    fn object<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let strong = self.watched.lock();
        let object = strong.map(|strong| strong.to_object(py)).transpose()?;
        Ok(object.map(|object| object.into_parts().0))
    }

    /// Calls a function while a strong reference of Remat's own keeps the storage.
    fn during(&self, action: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Some(strong) = self.watched.lock() else {
            return Ok(false);
        };
        // SAFETY: `strong` keeps the storage.
        let copy = unsafe { Strong::new(strong.0) };
        drop(strong);
        action.call0()?;
        Ok(copy.is_some())
    }

    /// Whether the storage keeps its bytes when it dies.
    fn set_keeping(&self, keeps: bool) {
        self.watched.set_keeping(keeps);
    }

    /// Storages that died since this was asked last.
    fn died(&self) -> Vec<usize> {
        let mut deaths = self.deaths.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::from_fn(|| deaths.pop()).collect()
    }
}
