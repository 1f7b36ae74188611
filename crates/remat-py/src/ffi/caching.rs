//! A caching allocator in the place of torch's own for main memory, while a budget is entered.
//!
//! Torch asks `malloc` for each tensor. The C library gives large blocks back to the system as they are freed, and the
//! system has to clear each page again; smaller ones it keeps in pieces, whatever they add up to. Here the blocks lie
//! in a stretch of addresses of Remat's, whose pages stay for the next tensors. Pages beyond the budget go back to the
//! system at once ([`CachingPool`]), so that tensors and what is kept for them never take more memory than it. Small
//! blocks are the C library's, and [kept](Small) as they are freed.
//!
//! `c10::SetCPUAllocator` is made for other allocators. Theirs is a C++ class, and nothing is compiled on the user's
//! machine: the allocator here has a copy of the table of virtual functions of `c10::DefaultCPUAllocator` in which
//! `allocate` and `raw_deleter` are Remat's. [`set_up`] compares the size of the table and the places of two functions
//! before anything is called by it, and `caching.py` of torch internals tries the rest. A `c10::DataPtr` is returned by
//! a hidden pointer, which is an ordinary first argument on x86-64 alone; elsewhere torch's allocator stays.
//!
//! Torch's functions that report to its profiler are told of each block, as by torch's own allocator. Blocks of ops
//! that nobody watches are [counted] here, small ones too, which the C library has ([`marked`]).

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::transmute;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use remat_core::pool::CachingPool;
use rustc_hash::FxHashMap;

use super::counted::{self, Kept};
use super::marked;
use super::small::Small;
use super::symbols::{function, symbol};
use super::watch::sized_symbol;

/// Smaller blocks are the C library's, in bytes. What is freed of them is [kept](Small) by their sizes.
const SMALLEST: usize = 32 << 10;

/// Freed small blocks are kept up to this part of the budget, and so many bytes.
const SMALL_PART: u64 = 16;
const SMALL_MOST: u64 = 8 << 20;

/// Torch's own alignment of tensors, in bytes.
const ALIGNMENT: u64 = 64;

/// Bytes of addresses. They take no memory. Where the system counts them as if they did, it refuses so many, and any
/// number would be missing elsewhere.
const ADDRESSES: u64 = 1 << 40;

/// The table of virtual functions: two words in front of them, then these.
const WORDS: usize = 8;
const FIRST: usize = 2;
const ALLOCATE: usize = FIRST + 2;
const IS_SIMPLE: usize = FIRST + 3;
const RAW_DELETER: usize = FIRST + 4;

/// `c10::DataPtr`: the place of the bytes, the function that frees them, its argument, and the device.
pub type DataPtr = [usize; 4];
/// `c10::DeleterFnPtr`.
type Deleter = unsafe extern "C-unwind" fn(*mut c_void);
/// `c10::Allocator::allocate`, with the hidden pointer to the result in front.
type Allocate = unsafe extern "C-unwind" fn(*mut DataPtr, *const c_void, usize) -> *mut DataPtr;
type RawDeleter = unsafe extern "C-unwind" fn(*const c_void) -> usize;

/// Torch's own allocator, and the functions that it reports to.
struct Torch {
    allocator: *const c_void,
    allocate: Allocate,
    deleter: Deleter,
    /// The last word of what it returns.
    device: usize,
    reporter: *mut c_void,
    allocated: unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, usize),
    freed: unsafe extern "C-unwind" fn(*mut c_void, *mut c_void),
    set: unsafe extern "C" fn(*const c_void, u8),
    get: unsafe extern "C" fn() -> *const c_void,
}

/// The allocator, which lives as long as the process: storages keep its address.
struct Caching {
    torch: Torch,
    /// The C++ object: the address of its functions in the table.
    object: *const usize,
    /// Whether blocks of torch's own lie in memory of the C library, which tells their sizes.
    sizes_told: bool,
    /// The first address of the blocks.
    base: usize,
    pool: Mutex<Blocks>,
}

/// The blocks in pages of this allocator.
struct Blocks {
    pool: CachingPool,
    /// Those that are [counted](counted), and the bytes that were asked for.
    counted: FxHashMap<u64, u64>,
    /// Freed ones of the C library.
    small: Small,
}

impl Blocks {
    /// Bytes that pages may take.
    fn limit(&self) -> u64 {
        let others = elsewhere() + self.small.kept();
        LIMIT.load(Ordering::Relaxed).saturating_sub(others)
    }

    /// Gives small blocks back where pages and tensors elsewhere leave no room for them, and notes how many bytes all
    /// of them take.
    fn note_held(&mut self) {
        let others = self.pool.held() + elsewhere();
        self.small
            .trim(LIMIT.load(Ordering::Relaxed).saturating_sub(others));
        MOST.fetch_max(others + self.small.kept(), Ordering::Relaxed);
    }
}

// SAFETY: the pointers are to objects of torch and of this module that live as long as the process. Torch's functions
// may be called by any thread, and the pool is locked.
unsafe impl Send for Caching {}
// SAFETY: as above.
unsafe impl Sync for Caching {}

static CACHING: OnceLock<Caching> = OnceLock::new();

/// Whether torch's allocator was replaced, and whether main memory has a budget now. Storages ask the allocator that
/// made them for more memory after that too.
static ENTERED: AtomicBool = AtomicBool::new(false);
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Bytes that tensors and kept pages may take, those that tensors have elsewhere, and the most of both and of pages.
static LIMIT: AtomicU64 = AtomicU64::new(0);
static ELSEWHERE: AtomicU64 = AtomicU64::new(0);
static MOST: AtomicU64 = AtomicU64::new(0);

impl Caching {
    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block of so many bytes; `None` where no addresses are left.
    fn take(&self, bytes: usize) -> Option<*mut c_void> {
        let mut blocks = self.lock();
        let (limit, pool) = (blocks.limit(), &mut blocks.pool);
        let address = pool.allocate(bytes as u64, limit, &mut |at, of| self.forget(at, of))?;
        blocks.note_held();
        Some((self.base + address as usize) as *mut c_void)
    }

    fn give(&self, block: *mut c_void) {
        let address = (block as usize - self.base) as u64;
        let mut blocks = self.lock();
        let was_counted = blocks.counted.remove(&address);
        let (limit, pool) = (blocks.limit(), &mut blocks.pool);
        let freed = pool.free(address, limit, &mut |at, of| self.forget(at, of));
        debug_assert!(freed.is_ok(), "torch freed what it has not got: {freed:?}");
        if let Some(bytes) = was_counted {
            counted::gave(bytes, Kept::Pages);
        }
    }

    /// A small block of so many bytes and those of the mark; `None` where memory has run out.
    fn take_small(&self, bytes: usize) -> Option<*mut c_void> {
        let all = marked::with_mark(bytes)?;
        let kept = self.lock().small.take(all);
        kept.or_else(|| marked::allocate(all))
    }

    /// Keeps a small block that torch frees. Whether it does.
    ///
    /// # Safety
    /// The block is the C library's, which tells sizes, and nobody's from now on, if it is kept.
    unsafe fn keep_small(&self, block: *mut c_void) -> bool {
        // SAFETY: as the caller promises.
        unsafe { self.lock().small.keep(block, most_small()) }
    }

    /// Counts a block of so many bytes.
    fn count(&self, block: *mut c_void, bytes: usize) {
        let address = (block as usize - self.base) as u64;
        self.lock().counted.insert(address, bytes as u64);
        counted::took(bytes as u64, Kept::Pages);
    }

    /// Counts it no more.
    fn count_no_more(&self, block: *mut c_void) {
        let address = (block as usize - self.base) as u64;
        if let Some(bytes) = self.lock().counted.remove(&address) {
            counted::gave(bytes, Kept::Pages);
        }
    }

    /// Has the system take pages back.
    fn forget(&self, address: u64, bytes: u64) {
        let start = (self.base + address as usize) as *mut c_void;
        // SAFETY: the pool names whole pages of the mapping in which no block lies, and is locked: nobody uses them.
        unsafe { libc::madvise(start, bytes as usize, libc::MADV_DONTNEED) };
    }

    /// Gives pages and blocks back beyond the limit.
    fn trim(&self) {
        let mut blocks = self.lock();
        blocks.small.trim(most_small());
        let (limit, pool) = (blocks.limit(), &mut blocks.pool);
        pool.trim(limit, &mut |at, of| self.forget(at, of));
    }

    fn holds(&self, block: *const c_void) -> bool {
        (block as usize).wrapping_sub(self.base) < ADDRESSES as usize
    }
}

/// Bytes that tensors have elsewhere.
fn elsewhere() -> u64 {
    ELSEWHERE.load(Ordering::Relaxed) + counted::small()
}

/// Bytes that kept small blocks may take.
fn most_small() -> u64 {
    (LIMIT.load(Ordering::Relaxed) / SMALL_PART).min(SMALL_MOST)
}

/// `allocate` of the table.
///
/// # Safety
/// Torch calls it, with room for a result.
unsafe extern "C-unwind" fn allocate(
    result: *mut DataPtr,
    _this: *const c_void,
    bytes: usize,
) -> *mut DataPtr {
    // The object with this function exists once all is set up.
    let Some(caching) = CACHING.get() else {
        std::process::abort()
    };
    let unwatched = counted::running();
    if let Some(op) = unwatched {
        // SAFETY: nothing is in use.
        unsafe { counted::ask(op, bytes as u64) };
    }
    let active = ACTIVE.load(Ordering::Relaxed);
    let block = if bytes >= SMALLEST && active {
        caching.take(bytes)
    } else if unwatched.is_some() || (active && caching.sizes_told && bytes > 0) {
        caching.take_small(bytes)
    } else {
        None
    };
    let torch = &caching.torch;
    // SAFETY: torch's functions, called as torch calls them. An exception of theirs passes this frame, which has
    // nothing to drop then. `set_up` found these four words in a result of torch's own. A block beside the pages is a
    // small one: it has so many bytes and those of the mark, and is nobody's yet.
    unsafe {
        let Some(block) = block else {
            return (torch.allocate)(result, torch.allocator, bytes);
        };
        let deleter = if unwatched.is_some() {
            if caching.holds(block) {
                caching.count(block, bytes);
            } else {
                marked::mark(block, bytes);
            }
            counted_deleter()
        } else {
            own_deleter()
        };
        (torch.allocated)(torch.reporter, block, bytes);
        result.write([block as usize, deleter, block as usize, torch.device]);
    }
    result
}

/// Frees a block of either allocator.
///
/// # Safety
/// Torch calls it, once for each block.
unsafe extern "C-unwind" fn deleter(block: *mut c_void) {
    let Some(caching) = CACHING.get() else {
        std::process::abort()
    };
    // SAFETY: torch's functions, called as torch calls them.
    unsafe {
        if !caching.holds(block) {
            if caching.sizes_told && !block.is_null() {
                marked::unmark(block);
                if ACTIVE.load(Ordering::Relaxed) && caching.keep_small(block) {
                    return (caching.torch.freed)(caching.torch.reporter, block);
                }
            }
            return (caching.torch.deleter)(block);
        }
        (caching.torch.freed)(caching.torch.reporter, block);
    }
    caching.give(block);
}

/// The same for storages whose bytes are [counted](counted). Torch frees some blocks by [`raw_deleter`] instead:
/// [`deleter`] finds out by itself whether they are.
///
/// # Safety
/// As for [`deleter`].
unsafe extern "C-unwind" fn delete_counted(block: *mut c_void) {
    // SAFETY: as the caller promises.
    unsafe { deleter(block) }
}

/// `raw_deleter` of the table.
unsafe extern "C-unwind" fn raw_deleter(_this: *const c_void) -> usize {
    own_deleter()
}

/// The function that frees blocks of this allocator, as a number.
pub fn own_deleter() -> usize {
    deleter as *const () as usize
}

/// The function that frees blocks of storages whose bytes are [counted](counted), as a number.
pub fn counted_deleter() -> usize {
    delete_counted as *const () as usize
}

/// Counts a storage's bytes no more, which the session counts from now on. Whether they were counted.
///
/// # Safety
/// The words are the `DataPtr` of a storage that is kept alive, and that nobody changes meanwhile.
pub unsafe fn count_no_more(data_ptr: *mut DataPtr) -> bool {
    let Some(caching) = CACHING.get() else {
        return false;
    };
    // SAFETY: as the caller promises; blocks with this deleter are those that `allocate` counted.
    unsafe {
        if (*data_ptr)[1] != counted_deleter() {
            return false;
        }
        (*data_ptr)[1] = own_deleter();
        let block = (*data_ptr)[0] as *mut c_void;
        if caching.holds(block) {
            caching.count_no_more(block);
        } else {
            marked::unmark(block);
        }
    }
    true
}

/// Whether the bytes that ops take can be counted: tensors of main memory get them here.
pub fn counts() -> bool {
    let ready = || CACHING.get().is_some_and(|caching| caching.sizes_told);
    ENTERED.load(Ordering::Relaxed) && ACTIVE.load(Ordering::Relaxed) && ready()
}

/// Counts bytes of main memory that tensors have outside of this allocator.
pub fn add_elsewhere(bytes: u64) {
    ELSEWHERE.fetch_add(bytes, Ordering::Relaxed);
}

/// Subtracts bytes that [`add_elsewhere`] added.
pub fn sub_elsewhere(bytes: u64) {
    let less = |known: u64| Some(known.saturating_sub(bytes));
    let _ = ELSEWHERE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

/// Whether tensors of main memory get it here, as far as that has a budget.
pub fn is_entered() -> bool {
    ENTERED.load(Ordering::Relaxed)
}

/// Whether an address lies in a block of this allocator.
pub fn holds(address: usize) -> bool {
    let caching = CACHING.get();
    caching.is_some_and(|caching| caching.holds(address as *const c_void))
}

/// Follows the budget of main memory, if torch's allocator was replaced: so many bytes, or as many as there are.
pub fn set_limit(bytes: Option<u64>) {
    if let Some(caching) = CACHING.get().filter(|_| ENTERED.load(Ordering::Relaxed)) {
        LIMIT.store(bytes.unwrap_or(0), Ordering::Relaxed);
        ACTIVE.store(bytes.is_some(), Ordering::Relaxed);
        caching.trim();
    }
}

/// The pool's lock while the process forks, so that the child finds the pool whole.
struct Forking(UnsafeCell<Option<MutexGuard<'static, Blocks>>>);

// SAFETY: only the thread that forks touches the cell, and only while it holds the pool's lock. Another thread that
// forks at the same time waits for that lock before it touches the cell.
unsafe impl Sync for Forking {}

static FORKING: Forking = Forking(UnsafeCell::new(None));

extern "C" fn before_fork() {
    if let Some(caching) = CACHING.get() {
        let guard = caching.lock();
        // SAFETY: the lock is held (see `Forking`).
        unsafe { *FORKING.0.get() = Some(guard) };
    }
}

extern "C" fn after_fork() {
    // SAFETY: this thread took the lock in `before_fork`, as a thread of the parent or as the only one of the child.
    drop(unsafe { (*FORKING.0.get()).take() });
}

/// Reserves addresses, on which memory comes as they are first written to; returns the first one.
fn reserve() -> PyResult<usize> {
    // SAFETY: a new mapping at an address of the system's choice changes no mapping that exists.
    let mapped = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            ADDRESSES as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        return Err(unsuited(
            "the system does not reserve addresses (ulimit -v, or vm.overcommit_memory=2)",
        ));
    }
    // A huge page would take memory around a block, which nobody counts. Where the system has none, that is refused,
    // and well.
    // SAFETY: the range was just mapped, and nobody uses it.
    unsafe { libc::madvise(mapped, ADDRESSES as usize, libc::MADV_NOHUGEPAGE) };
    Ok(mapped as usize)
}

fn unsuited(reason: &str) -> PyErr {
    PyRuntimeError::new_err(reason.to_owned())
}

/// Finds torch's allocator and makes one with a copy of its table.
///
/// # Errors
/// `RuntimeError` with the reason if anything is not as described.
fn set_up(c10: &str) -> PyResult<Caching> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err(unsuited("it is for Linux on x86-64"));
    }
    let (table, size) = sized_symbol(c10, "_ZTVN3c1019DefaultCPUAllocatorE")?;
    let is_simple = symbol(c10, "_ZNK3c109Allocator18is_simple_data_ptrERKNS_7DataPtrE")?;
    let unexpected = |what: &str| unsuited(&format!("{what} is not as Remat knows it"));
    if size != (WORDS * size_of::<usize>()) as u64 {
        return Err(unexpected("the size of the table of DefaultCPUAllocator"));
    }
    // SAFETY: the mangled names tell the arguments, and the library is never unloaded. The table has as many words as
    // were compared. An object of a class with virtual functions begins with the address of the first one in its
    // table. By `is_simple_data_ptr` being where it is declared, the function before it is `allocate`, and the one
    // after it `raw_deleter`, which is called first: it takes nothing but the object.
    let (torch, sizes_told) = unsafe {
        let get_default: unsafe extern "C" fn() -> *const c_void =
            function(c10, "_ZN3c1022GetDefaultCPUAllocatorEv")?;
        let reporter: unsafe extern "C" fn() -> *mut c_void =
            function(c10, "_ZN3c1025profiledCPUMemoryReporterEv")?;
        let allocated = function(c10, "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm")?;
        let freed = function(c10, "_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv")?;
        let set = function(c10, "_ZN3c1015SetCPUAllocatorEPNS_9AllocatorEh")?;
        let get = function(c10, "_ZN3c1015GetCPUAllocatorEv")?;
        let words = (table as *const [usize; WORDS]).read();
        let allocator = get_default();
        let begins = allocator.cast::<usize>().read();
        if begins != table + FIRST * size_of::<usize>() || words[IS_SIMPLE] != is_simple as usize {
            return Err(unexpected("the order of functions of DefaultCPUAllocator"));
        }
        let raw_deleter = transmute::<usize, RawDeleter>(words[RAW_DELETER])(allocator);
        let allocate = transmute::<usize, Allocate>(words[ALLOCATE]);
        // Room for more than is expected, to see what is written.
        let mut returned = [[usize::MAX; 4]; 2];
        allocate(returned.as_mut_ptr(), allocator, 64);
        let [[data, deleter, context, device], beyond] = returned;
        // The device has two bytes: the CPU's type is 0, and it has no number.
        let device_known = device as u16 == 0xff00;
        if data == 0
            || data != context
            || deleter != raw_deleter
            || !device_known
            || beyond != [usize::MAX; 4]
        {
            return Err(unexpected("what DefaultCPUAllocator returns"));
        }
        let deleter = transmute::<usize, Deleter>(deleter);
        deleter(context as *mut c_void);
        let own = |bytes: usize| {
            allocate(returned.as_mut_ptr(), allocator, bytes);
            let told = marked::usable(returned[0][0] as *mut c_void);
            deleter(returned[0][2] as *mut c_void);
            // C libraries round up by less.
            (bytes..bytes + bytes / 4 + 128).contains(&told)
        };
        let sizes_told = [40, 200, 4000, 20_000].map(own) == [true; 4];
        let torch = Torch {
            allocator,
            allocate,
            deleter,
            device: 0xff00,
            reporter: reporter(),
            allocated,
            freed,
            set,
            get,
        };
        (torch, sizes_told)
    };
    let base = reserve()?;
    // SAFETY: the function takes any name of a parameter.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    let pool =
        CachingPool::new(ADDRESSES, ALIGNMENT, page).map_err(|e| unsuited(&e.to_string()))?;
    // SAFETY: as above.
    let mut words = unsafe { (table as *const [usize; WORDS]).read() };
    words[ALLOCATE] = allocate as *const () as usize;
    words[RAW_DELETER] = raw_deleter as *const () as usize;
    let words: &'static [usize; WORDS] = Box::leak(Box::new(words));
    let object: &'static usize = Box::leak(Box::new(&raw const words[FIRST] as usize));
    // SAFETY: the three functions live as long as the extension module, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
    Ok(Caching {
        torch,
        object,
        sizes_told,
        base,
        pool: Mutex::new(Blocks {
            pool,
            counted: FxHashMap::default(),
            small: Small::below(SMALLEST),
        }),
    })
}

/// Prepares the allocator, once for each process.
///
/// # Errors
/// `RuntimeError` with the reason where torch, the system or the processor is not as expected.
#[pyfunction]
pub fn register_caching(c10: &str) -> PyResult<()> {
    if CACHING.get().is_none() {
        let caching = set_up(c10)?;
        let _ = CACHING.set(caching);
    }
    Ok(())
}

/// Has tensors get their main memory from the caching allocator from now on, within so many bytes. Returns whether they
/// do: not where another allocator than torch's own is in use.
#[pyfunction]
pub fn enter_caching(limit: u64) -> bool {
    let Some(caching) = CACHING.get() else {
        return false;
    };
    let torch = &caching.torch;
    let own = caching.object.cast::<c_void>();
    // SAFETY: torch's own functions. Setting an allocator is one write of a pointer, which x86-64 makes whole, and a
    // thread that reads the former one gets memory from that. Torch leaves one of a higher priority in place.
    let entered = unsafe {
        (torch.get)() == torch.allocator && {
            (torch.set)(own, 0);
            (torch.get)() == own
        }
    };
    if entered {
        ELSEWHERE.store(0, Ordering::Relaxed);
        MOST.store(0, Ordering::Relaxed);
        caching.lock().note_held();
        ENTERED.store(true, Ordering::Relaxed);
        set_limit(Some(limit));
        // What the program freed before is kept by the C library: it goes back, since tensors use it no more.
        // SAFETY: the function may be called at any time.
        #[cfg(target_env = "gnu")]
        unsafe {
            libc::malloc_trim(0)
        };
    }
    entered
}

/// Has torch's own allocator serve again. Blocks that are there stay valid; memory that is kept goes back to the
/// system.
#[pyfunction]
pub fn leave_caching() {
    let Some(caching) = CACHING.get().filter(|_| ENTERED.load(Ordering::Relaxed)) else {
        return;
    };
    set_limit(None);
    ENTERED.store(false, Ordering::Relaxed);
    let torch = &caching.torch;
    // SAFETY: as for `enter_caching`.
    unsafe {
        if (torch.get)() == caching.object.cast() {
            (torch.set)(torch.allocator, 0);
        }
    }
}

/// Bytes of the allocator's blocks, of pages and of small blocks that are kept now, and the most that these and tensors
/// elsewhere took since the allocator was entered; `None` where there is none.
#[pyfunction]
pub fn read_caching() -> Option<(u64, u64, u64)> {
    let blocks = CACHING.get()?.lock();
    let held = blocks.pool.held() + blocks.small.kept();
    Some((blocks.pool.taken(), held, MOST.load(Ordering::Relaxed)))
}
