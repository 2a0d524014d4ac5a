//! Memory managers that are written in Python.
//!
//! The class of such a manager has the interface of Numba's External Memory Management plugins.
//! Deleting an object that it returned frees the object's memory (by a finalizer), so a block is
//! freed by dropping the reference to its object. The interface has no streams, so a finalizer may
//! reuse the memory immediately. A reference is therefore dropped only after the work that used the
//! memory is complete. Until then the free is pending.
//!
//! The methods of this module are called without the GIL. They acquire it only for calls of Python,
//! with the context current, and never hold a lock of this module or wait for the driver while they
//! have it. If a plugin uses this package to allocate memory in one of its methods, that memory
//! comes from the driver. What a plugin frees there is finalized later: this module never calls a
//! method of a plugin from within another one.

use crate::error::{Exception, Failure, Result};
use crate::lifetime::ending::{attached, calling};
use crate::lifetime::hold::Owner;
use crate::lifetime::once::intern;
use crate::objects::PyContext;
use crate::primary::is_gone;
use crate::stream_handle::{Handle, StreamHandle};
use cuda_safe::capture::CaptureMode;
use cuda_safe::context::MemoryInfo;
use cuda_safe::manager::{
    Block, CleanupGuard, DeferOptions, DriverMemory, HostBlock, INTERFACE_VERSION, IpcHandle,
    MemoryManager, Order,
};
use cuda_safe::memory::PinnedFlags;
use cuda_safe::{Context, Error, Event};
use pyo3::exceptions::{PyMemoryError, PyNotImplementedError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Checks that a class can be used as a memory manager. Like Numba, it creates an instance without
/// a context to ask for its version.
pub(super) fn check_class(class: &Bound<'_, PyAny>) -> Result<()> {
    let py = class.py();
    let name = class.repr()?;
    if !class.is_callable() || !class.hasattr(intern!(py, "memalloc"))? {
        return Err(Failure::invalid(format!(
            "{name} is not a memory manager: \"caching\", \"ordered\", \"driver\", or a class that has \
             memalloc is expected"
        )));
    }
    let context = PyDict::new(py);
    context.set_item(intern!(py, "context"), py.None())?;
    let version = calling(py, || {
        let instance = class.call((), Some(&context))?;
        instance.getattr_opt(intern!(py, "interface_version"))
    })?;
    let version = version.ok_or_else(|| {
        Failure::invalid(format!("the memory manager {name} has no interface_version"))
    })?;
    match version.extract::<u32>() {
        Ok(INTERFACE_VERSION) => Ok(()),
        _ => Err(Failure::invalid(format!(
            "the memory manager {name} is written for version {} of the interface, and version \
             {INTERFACE_VERSION} is required",
            version.repr()?
        ))),
    }
}

/// A manager written in Python, for one context.
pub(crate) struct PluginManager {
    /// Handles the methods that the plugin lacks, and allocations of the plugin itself.
    base: DriverMemory,
    plugin: Owner,
    /// The plugin's memory that is in use, by token.
    live: Mutex<BTreeMap<u64, Live>>,
    pending: Mutex<Vec<Pending>>,
    /// The maximum number of pending bytes of device memory.
    pending_bytes: usize,
    /// The number of clean-up guards.
    guards: Arc<AtomicUsize>,
}

struct Live {
    memory: Owner,
    address: u64,
    size: usize,
}

/// Freed memory that work on the device may still use.
struct Pending {
    after: After,
    /// Bytes of device memory.
    bytes: usize,
    /// The fields are dropped in this order: the finalizer of pinned memory unregisters the owner's
    /// memory.
    #[allow(dead_code, reason = "held, not read")]
    memory: Owner,
    #[allow(dead_code, reason = "held, not read")]
    owner: Option<Box<dyn Any + Send>>,
}

/// The work that must be complete before memory is finalized.
enum After {
    Nothing,
    Event(Event),
    /// All work of the context at the time of the free.
    All,
}

/// The number of pending frees above which the package waits for them.
const PENDING: usize = 10;

/// Set in the tokens of a plugin's blocks. The tokens of the driver's blocks are addresses, which
/// do not have this bit.
const TOKEN: u64 = 1 << 63;

thread_local! {
    /// The number of plugin calls that are running on this thread.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

/// Runs code like a method of a plugin: what it allocates comes from the driver.
pub(super) fn as_plugin<R>(run: impl FnOnce() -> R) -> R {
    let _inside = Inside::enter();
    run()
}

thread_local! {
    /// The owner of the memory that this thread pins, for `mempin`. The managers between do not pass it on.
    static PINNED_OWNER: RefCell<Option<Arc<Owner>>> = const { RefCell::new(None) };
}

/// Runs code that pins memory of `owner`.
pub(super) fn pinning<R>(owner: &Arc<Owner>, run: impl FnOnce() -> R) -> R {
    /// Restores the owner of an outer call.
    struct Outer(Option<Arc<Owner>>);

    impl Drop for Outer {
        fn drop(&mut self) {
            let inner = PINNED_OWNER.replace(self.0.take());
            drop(inner);
        }
    }

    let _outer = Outer(PINNED_OWNER.replace(Some(Arc::clone(owner))));
    run()
}

struct Inside;

impl Inside {
    fn enter() -> Self {
        INSIDE.set(INSIDE.get() + 1);
        Self
    }

    fn is_inside() -> bool {
        INSIDE.get() != 0
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(INSIDE.get() - 1);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Converts an exception to the error of a manager, which is later converted back to the same
/// exception.
fn raised(failure: Failure) -> Error {
    match failure {
        Failure::Cuda(error) => error,
        failure => Error::Manager(Arc::new(Exception::from(failure))),
    }
}

/// Reports an exception where no caller can receive it.
fn unraisable(error: &Error) {
    let Error::Manager(error) = error else {
        return;
    };
    let Some(error) = error.downcast_ref::<Exception>() else {
        return;
    };
    attached(|py| error.get(py).write_unraisable(py, None));
}

/// Runs `call` with the GIL. Fails if the interpreter has been finalized.
fn with_gil<R>(call: impl FnOnce(Python<'_>) -> Result<R>) -> Result<R> {
    attached(call).unwrap_or(Err(Failure::Ended))
}

impl PluginManager {
    /// Creates an instance of `class` for a context.
    pub(super) fn new(context: &Context, class: &Owner) -> cuda_safe::Result<Self> {
        let options = DeferOptions::default();
        let base = DriverMemory::new(context, options)?;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "a share of memory need not be exact"
        )]
        let pending_bytes = (context.device().total_memory()? as f64 * options.share) as usize;
        let plugin = in_context(&base, || {
            with_gil(|py| {
                let arguments = PyDict::new(py);
                let context = PyContext(base.context().clone());
                arguments.set_item(intern!(py, "context"), context)?;
                let plugin = class.get(py).call((), Some(&arguments))?;
                Ok(Owner::new(plugin.unbind()))
            })
        })?;
        Ok(Self {
            base,
            plugin,
            live: Mutex::default(),
            pending: Mutex::default(),
            pending_bytes,
            guards: Arc::default(),
        })
    }

    /// Returns the instance of the class.
    pub(super) fn plugin(&self, py: Python<'_>) -> Py<PyAny> {
        self.plugin.get(py).clone().unbind()
    }

    /// Returns the number of pending bytes of device memory.
    pub(super) fn pending(&self) -> usize {
        lock(&self.pending).iter().map(|its| its.bytes).sum()
    }

    /// Returns the plugin's block that contains an address.
    pub(super) fn block_at(&self, address: u64) -> Option<Block> {
        let live = lock(&self.live);
        let holds = |its: &Live| its.address <= address && address - its.address < its.size as u64;
        let (token, its) = live.iter().find(|(_, its)| holds(its))?;
        Some(Block { address: its.address, size: its.size, token: *token })
    }

    /// Calls a method of the plugin with the context current. Returns None if the plugin does not
    /// have the method, or has inherited it from the package's base class.
    fn call<R>(
        &self,
        name: &'static str,
        call: impl FnOnce(&Bound<'_, PyAny>) -> Result<R>,
    ) -> cuda_safe::Result<Option<R>> {
        // A forked child must call neither the driver nor the plugin.
        cuda_safe::init()?;
        in_context(&self.base, || {
            with_gil(|py| {
                let plugin = self.plugin.get(py);
                match plugin.getattr_opt(name)? {
                    Some(method) if !is_default(&method, name)? => call(&method).map(Some),
                    _ => Ok(None),
                }
            })
        })
    }

    /// Calls a method that allocates. If memory is insufficient, waits for pending frees and tries
    /// once more.
    fn attempt<R>(
        &self,
        mut attempt: impl FnMut() -> cuda_safe::Result<Option<R>>,
    ) -> cuda_safe::Result<Option<R>> {
        self.settle(false);
        match attempt() {
            Err(error) if is_out_of_memory(&error) && self.settle(true).0 != 0 => attempt(),
            done => done,
        }
    }

    fn keep(&self, memory: Owner, address: u64, size: usize) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(TOKEN);
        let token = NEXT.fetch_add(1, Ordering::Relaxed);
        let live = Live { memory, address, size };
        lock(&self.live).insert(token, live);
        token
    }

    /// Returns whether a block is the plugin's and may be finalized. This is not possible in a
    /// forked child, where another thread of the parent may hold the lock forever.
    fn is_plugins(token: u64) -> bool {
        token & TOKEN != 0 && cuda_safe::init().is_ok()
    }

    /// Frees memory of the plugin. It is finalized after the work of `order`.
    fn take_back(
        &self,
        token: u64,
        bytes: usize,
        owner: Option<Box<dyn Any + Send>>,
        order: Order<'_>,
    ) {
        let Some(live) = lock(&self.live).remove(&token) else {
            return;
        };
        let pending = Pending { after: self.after(order), bytes, memory: live.memory, owner };
        let is_over = {
            let mut all = lock(&self.pending);
            all.push(pending);
            let bytes: usize = all.iter().map(|its| its.bytes).sum();
            all.len() > PENDING || bytes > self.pending_bytes
        };
        self.settle(is_over);
    }

    /// Returns the work after which memory is finalized. On a driver callback thread and for a
    /// capturing stream, this is all work of the context.
    fn after(&self, order: Order<'_>) -> After {
        let lane = match (order.stream(), order.as_raw()) {
            (Some(stream), _) => StreamHandle::Stream(stream.clone()),
            // A query of the legacy default stream would invalidate captures.
            (None, Some(raw)) if raw.addr() > 2 => {
                match Handle::new(raw.expose_provenance() as u64) {
                    Ok(handle) => StreamHandle::Handle(handle, self.base.context().clone()),
                    Err(_) => return After::All,
                }
            }
            _ => return After::All,
        };
        let ask = || -> Result<After> {
            lane.refuse_captured()?;
            if lane.is_complete()? {
                return Ok(After::Nothing);
            }
            // An event of the context with the manager would keep that manager alive, and therefore
            // itself.
            let event = self.base.context().event()?;
            lane.record_event(&event)?;
            Ok(After::Event(event))
        };
        match CaptureMode::Relaxed.with(ask) {
            Ok(Ok(after)) => after,
            Ok(Err(_)) | Err(_) => After::All,
        }
    }

    /// Finalizes pending memory whose work is complete, or with `wait` all of it unless a guard
    /// defers this. Returns the number of objects and of bytes of device memory.
    fn settle(&self, wait: bool) -> (usize, usize) {
        // A plugin is not called from within one of its methods. In a forked child, another thread
        // of the parent may hold the lock forever.
        if Inside::is_inside() || cuda_safe::init().is_err() {
            return (0, 0);
        }
        let pending = std::mem::take(&mut *lock(&self.pending));
        if pending.is_empty() {
            return (0, 0);
        }
        let wait = wait && self.guards.load(Ordering::Acquire) == 0;
        let mut pending = Some(pending);
        let sorted = CaptureMode::Relaxed.with(|| {
            let pending = pending.take();
            self.sort(pending.unwrap_or_default(), wait)
        });
        // On a driver callback thread the capture mode cannot be set, so nothing was sorted.
        let (done, rest) = sorted.unwrap_or_else(|_| (Vec::new(), pending.unwrap_or_default()));
        if !rest.is_empty() {
            lock(&self.pending).extend(rest);
        }
        let freed = (done.len(), done.iter().map(|its| its.bytes).sum());
        match self.finalize(done) {
            true => freed,
            false => (0, 0),
        }
    }

    /// Splits pending memory into the part whose work is complete and the rest.
    fn sort(&self, pending: Vec<Pending>, wait: bool) -> (Vec<Pending>, Vec<Pending>) {
        let (mut done, mut rest): (Vec<_>, Vec<_>) =
            pending.into_iter().partition(|its| match &its.after {
                After::Nothing => true,
                After::Event(event) => match wait {
                    true => event.synchronize().is_ok(),
                    false => matches!(event.is_complete(), Ok(true)),
                },
                After::All => false,
            });
        if wait && !rest.is_empty() && self.base.synchronize().is_ok() {
            done.append(&mut rest);
        }
        (done, rest)
    }

    /// Drops the references to memory, which runs the finalizers. If the context cannot be made
    /// current, as on a driver callback thread, the memory becomes pending again and the result is
    /// false.
    fn finalize(&self, memory: Vec<Pending>) -> bool {
        if memory.is_empty() {
            return true;
        }
        if is_gone(self.base.context()) {
            // Other code has reset the context, which freed the memory.
            std::mem::forget(memory);
            return true;
        }
        let mut memory = Some(memory);
        let _finalized = in_context(&self.base, || {
            with_gil(|_| {
                drop(memory.take());
                Ok(())
            })
        });
        match memory {
            None => true,
            Some(memory) => {
                lock(&self.pending).extend(memory);
                false
            }
        }
    }

    /// Defers clean-up: of pending frees, of the driver's memory, and of the plugin's.
    pub(super) fn defer(&self) -> cuda_safe::Result<CleanupGuard> {
        let block = self.call("defer_cleanup", |method| {
            let block = method.call0()?;
            let py = block.py();
            block.call_method0(intern!(py, "__enter__"))?;
            Ok(Owner::new(block.unbind()))
        })?;
        let guard = self.defer_pending();
        Ok(match block {
            Some(block) => guard.and(CleanupGuard::holding(Deferred(block))),
            None => guard,
        })
    }

    fn defer_pending(&self) -> CleanupGuard {
        self.guards.fetch_add(1, Ordering::AcqRel);
        CleanupGuard::holding(Guard(Arc::clone(&self.guards))).and(self.base.defer_cleanup())
    }
}

/// Returns whether a method is that of `BaseMemoryManager`, which does what the package does without the
/// method.
fn is_default(method: &Bound<'_, PyAny>, name: &str) -> Result<bool> {
    let py = method.py();
    if !["memhostalloc", "mempin"].contains(&name) {
        // The others do nothing.
        return Ok(false);
    }
    let Some(function) = method.getattr_opt(intern!(py, "__func__"))? else {
        return Ok(false);
    };
    let base =
        py.import(intern!(py, "cuda_safe.plugin"))?.getattr(intern!(py, "BaseMemoryManager"))?;
    Ok(function.is(&base.getattr(name)?))
}

/// Runs Python code with the context current, in the relaxed capture mode, which does not
/// invalidate captures.
fn in_context<R>(base: &DriverMemory, call: impl FnOnce() -> Result<R>) -> cuda_safe::Result<R> {
    let _inside = Inside::enter();
    let context = base.context();
    let called = CaptureMode::Relaxed.with(|| context.with_current(|_| call()))??;
    called.map_err(raised)
}

struct Guard(Arc<AtomicUsize>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The entered context manager of a plugin's `defer_cleanup`.
struct Deferred(Owner);

impl Drop for Deferred {
    fn drop(&mut self) {
        let left = with_gil(|py| {
            let nothing = (py.None(), py.None(), py.None());
            self.0.get(py).call_method1(intern!(py, "__exit__"), nothing)?;
            Ok(())
        });
        if let Err(failure) = left {
            unraisable(&raised(failure));
        }
    }
}

/// Returns whether a plugin failed because memory is insufficient: with `MemoryError`, as RMM does,
/// or with an exception of Numba for the driver's error code.
fn is_out_of_memory(error: &Error) -> bool {
    if cuda_safe::manager::is_out_of_memory(error) {
        return true;
    }
    let Error::Manager(error) = error else {
        return false;
    };
    let Some(error) = error.downcast_ref::<Exception>() else {
        return false;
    };
    let is = attached(|py| {
        let error = error.get(py);
        error.is_instance_of::<PyMemoryError>(py)
            || error
                .value(py)
                .getattr_opt(intern!(py, "code"))
                .ok()
                .flatten()
                .is_some_and(|code| matches!(code.extract::<u32>(), Ok(OUT_OF_MEMORY)))
    });
    is == Some(true)
}

/// The value of `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u32 = 2;

/// Reads an address: an integer, or an object of `ctypes` or of NVIDIA's bindings that contains
/// one.
fn address_in(memory: &Bound<'_, PyAny>, attribute: &Bound<'_, PyString>) -> Result<Option<u64>> {
    let py = memory.py();
    let Some(address) = memory.getattr_opt(attribute)? else {
        return Ok(None);
    };
    let address = address.getattr_opt(intern!(py, "value"))?.unwrap_or(address);
    if address.is_none() {
        // `ctypes` represents a null pointer as None.
        return Ok(Some(0));
    }
    // Types of NVIDIA's bindings have only `__int__`. So have real numbers and texts, which are no addresses.
    let has = |name| address.hasattr(name);
    let number = match has(intern!(py, "__index__"))? {
        true => address,
        false if has(intern!(py, "__int__"))? && !has(intern!(py, "__float__"))? => {
            address.call_method0(intern!(py, "__int__"))?
        }
        false => {
            return Err(PyTypeError::new_err(format!(
                "the {attribute} of memory of the memory manager is a {}, and not an integer",
                address.get_type().name()?
            ))
            .into());
        }
    };
    Ok(Some(number.extract()?))
}

/// Returns the address of memory that a method returned, after checking it.
fn address_of(
    method: &str,
    memory: &Bound<'_, PyAny>,
    attribute: &Bound<'_, PyString>,
    size: usize,
    alignment: u64,
) -> Result<u64> {
    let py = memory.py();
    let Some(address) = address_in(memory, attribute)? else {
        return Err(PyTypeError::new_err(format!(
            "{method} of the memory manager returned a {}, which has no {attribute}",
            memory.get_type().name()?
        ))
        .into());
    };
    if address == 0 || address % alignment != 0 {
        return Err(Failure::invalid(format!(
            "{method} of the memory manager returned memory at {address:#x}, which is not a nonzero \
             multiple of {alignment}"
        )));
    }
    if let Some(its) = memory.getattr_opt(intern!(py, "size"))? {
        let its: usize = its.extract()?;
        if its < size {
            return Err(Failure::invalid(format!(
                "{method} of the memory manager returned {its} bytes, but {size} were requested"
            )));
        }
    }
    Ok(address)
}

/// The required alignment of device memory in bytes.
const ALIGNMENT: u64 = 256;

// SAFETY: blocks of the driver are those of `DriverMemory`. Other blocks are memory of Python code,
// which promises by its interface what this trait requires: the memory is valid until its object is
// deleted, and is not allocated twice in the meantime. Its size and alignment are checked. The
// object is kept alive until the block is freed, and then until the work of the order is complete.
// Each token is used once.
unsafe impl MemoryManager for PluginManager {
    fn interface_version() -> u32 {
        INTERFACE_VERSION
    }

    fn base(&self) -> &DriverMemory {
        &self.base
    }

    fn initialize(&self) -> cuda_safe::Result<()> {
        let initialize = |method: &Bound<'_, PyAny>| Ok(method.call0().map(drop)?);
        self.call("initialize", initialize)?;
        Ok(())
    }

    /// Calls the plugin only if none of its memory is in use, because the plugin frees all of it.
    fn reset(&self) {
        self.settle(true);
        self.base.reset();
        let is_unused = cuda_safe::init().is_ok()
            && lock(&self.live).is_empty()
            && lock(&self.pending).is_empty();
        if is_unused && !Inside::is_inside() && !is_gone(self.base.context()) {
            let reset = |method: &Bound<'_, PyAny>| Ok(method.call0().map(drop)?);
            if let Err(error) = self.call("reset", reset) {
                unraisable(&error);
            }
        }
    }

    fn allocate(&self, size: usize, _order: Order<'_>) -> cuda_safe::Result<Block> {
        if Inside::is_inside() {
            return self.base.allocate(size);
        }
        let made = self.attempt(|| {
            self.call("memalloc", |method| {
                let memory = method.call1((size,))?;
                let attribute = intern!(memory.py(), "device_pointer");
                let address = address_of("memalloc", &memory, attribute, size, ALIGNMENT)?;
                Ok((address, Owner::new(memory.unbind())))
            })
        })?;
        let Some((address, memory)) = made else {
            return Err(missing("memalloc"));
        };
        let token = self.keep(memory, address, size);
        Ok(Block { address, size, token })
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        match Self::is_plugins(block.token) {
            true => self.take_back(block.token, block.size, None, order),
            // SAFETY: the caller's promise. A block of the plugin reaches this call only in a
            // forked child, where it does nothing.
            false => unsafe { self.base.free(block, order) },
        }
    }

    fn allocate_managed(&self, size: usize, global: bool) -> cuda_safe::Result<Block> {
        let made = match Inside::is_inside() {
            true => None,
            false => self.attempt(|| {
                self.call("memallocmanaged", |method| {
                    let memory = method.call1((size, global))?;
                    let attribute = intern!(memory.py(), "device_pointer");
                    let address =
                        address_of("memallocmanaged", &memory, attribute, size, ALIGNMENT)?;
                    Ok((address, Owner::new(memory.unbind())))
                })
            })?,
        };
        let Some((address, memory)) = made else {
            return self.base.allocate_managed(size, global);
        };
        let token = self.keep(memory, address, size);
        Ok(Block { address, size, token })
    }

    unsafe fn free_managed(&self, block: Block, order: Order<'_>) {
        match Self::is_plugins(block.token) {
            true => self.take_back(block.token, block.size, None, order),
            // SAFETY: see `free`.
            false => unsafe { self.base.free_managed(block, order) },
        }
    }

    fn allocate_host(&self, size: usize, flags: PinnedFlags) -> cuda_safe::Result<HostBlock> {
        let made = match Inside::is_inside() {
            true => None,
            false => self.attempt(|| {
                self.call("memhostalloc", |method| {
                    let has = |flag| flags.contains(flag);
                    let memory = method.call1((
                        size,
                        has(PinnedFlags::MAPPED),
                        has(PinnedFlags::PORTABLE),
                        has(PinnedFlags::WRITE_COMBINED),
                    ))?;
                    self.host_memory("memhostalloc", &memory, size, flags)
                })
            })?,
        };
        match made {
            Some((memory, block)) => Ok(self.host_block(memory, block)),
            None => self.base.allocate_host(size, flags),
        }
    }

    unsafe fn free_host(&self, block: HostBlock, order: Order<'_>) {
        match Self::is_plugins(block.token) {
            true => self.take_back(block.token, 0, None, order),
            // SAFETY: see `free`.
            false => unsafe { self.base.free_host(block, order) },
        }
    }

    unsafe fn pin(
        &self,
        start: NonNull<u8>,
        size: usize,
        flags: PinnedFlags,
    ) -> cuda_safe::Result<HostBlock> {
        let owner = PINNED_OWNER.take();
        let made = match Inside::is_inside() {
            true => None,
            false => self.attempt(|| {
                self.call("mempin", |method| {
                    let py = method.py();
                    let address = start.as_ptr().expose_provenance();
                    let mapped = flags.contains(PinnedFlags::MAPPED);
                    let owner = owner.as_ref().map(|owner| owner.get(py));
                    let memory = method.call1((owner, address, size, mapped))?;
                    self.host_memory("mempin", &memory, size, flags)
                })
            })?,
        };
        match made {
            Some((memory, block)) => Ok(self.host_block(memory, HostBlock { start, ..block })),
            // SAFETY: the caller's promise.
            None => unsafe { self.base.pin(start, size, flags) },
        }
    }

    unsafe fn unpin(&self, block: HostBlock) -> cuda_safe::Result<()> {
        if !Self::is_plugins(block.token) {
            // SAFETY: see `free`.
            return unsafe { self.base.unpin(block) };
        }
        self.base.synchronize()?;
        let live = lock(&self.live).remove(&block.token);
        let _finalized = self.finalize(Vec::from_iter(live.map(|live| Pending {
            after: After::Nothing,
            bytes: 0,
            memory: live.memory,
            owner: None,
        })));
        Ok(())
    }

    unsafe fn release_pin(&self, block: HostBlock, owner: Box<dyn Any + Send>, order: Order<'_>) {
        match Self::is_plugins(block.token) {
            true => self.take_back(block.token, 0, Some(owner), order),
            // SAFETY: see `free`; the owner is kept alive too.
            false => unsafe { self.base.release_pin(block, owner, order) },
        }
    }

    fn memory_info(&self) -> cuda_safe::Result<MemoryInfo> {
        let info = self.call("get_memory_info", |method| {
            let info: (usize, usize) = method.call0()?.extract()?;
            Ok(info)
        })?;
        match info {
            Some((free, total)) => Ok(MemoryInfo { free, total }),
            None => Err(missing("get_memory_info")),
        }
    }

    fn ipc_handle(&self, block: &Block) -> cuda_safe::Result<IpcHandle> {
        let context = self.base.context();
        if !Self::is_plugins(block.token) {
            return IpcHandle::of(context, block);
        }
        let made = self.call("get_ipc_handle", |method| {
            let py = method.py();
            let live = lock(&self.live);
            let memory = live.get(&block.token).map(|live| live.memory.get(py).clone());
            drop(live);
            let made = method.call1((memory,))?;
            let handle = handle_bytes(&made.getattr(intern!(py, "handle"))?)?;
            let offset = made.getattr_opt(intern!(py, "offset"))?;
            let offset: u64 = offset.map_or(Ok(0), |offset| offset.extract())?;
            Ok((handle, offset))
        })?;
        let Some((handle, offset)) = made else {
            return IpcHandle::of(context, block);
        };
        let mut bytes = [0; IpcHandle::BYTES];
        bytes[..64].copy_from_slice(&handle);
        bytes[64..72].copy_from_slice(&offset.to_le_bytes());
        bytes[72..80].copy_from_slice(&(block.size as u64).to_le_bytes());
        bytes[80..96].copy_from_slice(&context.device().uuid()?.0);
        // The kind is 0, for memory that `cuIpcOpenMemHandle` opens.
        Ok(IpcHandle::from_bytes(&bytes))
    }

    /// If the plugin's `defer_cleanup` raises an exception, it is reported, and the plugin's
    /// clean-up is not deferred.
    fn defer_cleanup(&self) -> CleanupGuard {
        self.defer().unwrap_or_else(|error| {
            unraisable(&error);
            self.defer_pending()
        })
    }

    fn trim(&self, keep: usize) -> cuda_safe::Result<usize> {
        // Pending frees of host memory have a size of 0 here.
        match keep == 0 || self.pending() > keep {
            true => Ok(self.settle(true).1),
            false => Ok(0),
        }
    }
}

impl PluginManager {
    /// Checks the result of a method for host memory. The block has no token yet.
    fn host_memory(
        &self,
        method: &str,
        memory: &Bound<'_, PyAny>,
        size: usize,
        flags: PinnedFlags,
    ) -> Result<(Owner, HostBlock)> {
        let py = memory.py();
        let start = address_of(method, memory, intern!(py, "host_pointer"), size, 1)?;
        let mut address = 0;
        if flags.contains(PinnedFlags::MAPPED) {
            address = match address_in(memory, intern!(py, "device_pointer"))? {
                Some(address) => address,
                None => {
                    let info = self.base.context().pointer_info(start)?;
                    info.and_then(|info| info.device_address).unwrap_or(0)
                }
            };
            if address == 0 {
                return Err(Failure::invalid(format!(
                    "{method} of the memory manager returned memory that is not mapped for the device"
                )));
            }
        }
        let start = usize::try_from(start)
            .map_err(|_| Failure::invalid("the host address is too large"))?;
        let start = std::ptr::with_exposed_provenance_mut::<u8>(start);
        let block = HostBlock {
            start: NonNull::new(start).unwrap_or(NonNull::dangling()),
            size,
            address,
            token: 0,
        };
        Ok((Owner::new(memory.clone().unbind()), block))
    }

    fn host_block(&self, memory: Owner, block: HostBlock) -> HostBlock {
        let start = block.start.as_ptr().addr() as u64;
        let token = self.keep(memory, start, block.size);
        HostBlock { token, ..block }
    }
}

impl Drop for PluginManager {
    fn drop(&mut self) {
        // Remaining guards have no effect any more.
        self.guards = Arc::default();
        self.reset();
        // Memory that could not be finalized is leaked, because work on the device may still use
        // it.
        std::mem::forget(std::mem::take(&mut *lock(&self.pending)));
    }
}

impl fmt::Debug for PluginManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginManager").field("base", &self.base).finish_non_exhaustive()
    }
}

fn missing(method: &str) -> Error {
    let text = format!("the memory manager has no {method}");
    raised(PyNotImplementedError::new_err(text).into())
}

/// Returns the 64 bytes of a `CUipcMemHandle`, from an array of `ctypes` or of NVIDIA's bindings.
fn handle_bytes(handle: &Bound<'_, PyAny>) -> Result<[u8; 64]> {
    let py = handle.py();
    let bytes = match handle.getattr_opt(intern!(py, "reserved"))? {
        Some(reserved) => reserved,
        None => handle.clone(),
    };
    let bytes = py.get_type::<PyBytes>().call1(PyTuple::new(py, [bytes])?)?;
    let bytes = bytes.cast_into::<PyBytes>().map_err(PyErr::from)?;
    bytes.as_bytes().try_into().map_err(|_| {
        Failure::invalid(format!(
            "get_ipc_handle of the memory manager returned a handle of {} bytes, not 64",
            bytes.as_bytes().len()
        ))
    })
}
