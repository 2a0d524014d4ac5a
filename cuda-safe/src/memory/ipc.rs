//! Memory of other processes that is open in this process. Each allocation is opened once and shared.
//!
//! Drivers refuse to open synchronous memory that is already open in the context. For pool memory, they
//! are reported to return the same address again, and the first free then invalidates it for all users.
//! So an allocation has a place in a table, from before it is opened until after it is closed. Another
//! thread that opens it while it is being opened or closed waits.

use crate::call::{
    DriverError, Error, Invalid, Result, answer, call, debug_struct, fork, out,
    refuse_in_host_function,
};
use crate::context::Context;
use crate::manager::{IpcHandle, IpcKind};
use crate::memory::ImportedPool;
use crate::release::{self, Keep, destroy, owners, release};
use crate::sync::{self, Condvar, Mutex, MutexGuard};
use core::ffi::c_char;
use cuda_sys::{CUdeviceptr, CUipcMem_flags, CUipcMemHandle, CUmemPoolPtrExportData, CUresult};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The driver's handle of an allocation, and the context or pool that it is opened by.
type Key = (IpcKind, [u8; 64], usize);

/// The open allocations. An entry whose object does not exist is being opened or closed.
static OPEN: Mutex<Option<HashMap<Key, Weak<Opened>>>> = Mutex::new(None);
/// Notified when an allocation was opened or closed.
static CHANGED: Condvar = Condvar::new();

/// The time limit for waiting until another thread has closed an allocation, and the interval at which
/// the release queue is processed meanwhile.
const TIMEOUT: Duration = Duration::from_secs(5);
const MOMENT: Duration = Duration::from_millis(25);

#[inline]
fn lock() -> MutexGuard<'static, Option<HashMap<Key, Weak<Opened>>>> {
    sync::lock(&OPEN)
}

/// An entry of the table, removed when this is dropped.
struct TableEntry(Key);

impl Drop for TableEntry {
    #[inline]
    fn drop(&mut self) {
        // The lock may be held forever by a thread that does not exist in the child.
        if fork::in_child() {
            return;
        }
        if let Some(open) = lock().as_mut() {
            open.remove(&self.0);
        }
        CHANGED.notify_all();
    }
}

/// An allocation of another process that is open in this process.
struct Opened {
    base: CUdeviceptr,
    by: By,
    /// Present until the allocation is closed.
    entry: Option<TableEntry>,
}

/// The context or pool that opened the allocation, which must stay alive.
#[derive(Clone)]
enum By {
    Context(Context),
    Pool(ImportedPool),
}

impl By {
    #[inline]
    fn context(&self) -> &Context {
        match self {
            Self::Context(context) => context,
            Self::Pool(pool) => pool.context(),
        }
    }
}

owners! {
    By |its| {
        context: Some(its.context()),
        is_borrowed: {
            match its {
                By::Context(context) => context.is_borrowed(),
                By::Pool(pool) => pool.is_borrowed(),
            }

        },
    }
}

impl Drop for Opened {
    #[inline]
    fn drop(&mut self) {
        let (base, entry) = (self.base, self.entry.take());
        match &self.by {
            By::Context(_) => release(OpenedByContext { base, entry }, &self.by),
            By::Pool(pool) => {
                let pool = pool.clone();
                release(OpenedByPool { base, entry, pool }, &self.by);
            }
        }
    }
}

/// Memory from `cuIpcOpenMemHandle`.
struct OpenedByContext {
    base: CUdeviceptr,
    #[allow(dead_code, reason = "held, not read")]
    entry: Option<TableEntry>,
}

destroy! {
    OpenedByContext as "memory of another process";
    // SAFETY: this value stands for the open memory, and the caller promises that this is the first
    // call. All code that used the memory by its address has waited.
    |its| unsafe { answer!(cuIpcCloseMemHandle(its.base)) }
}

/// Memory from `cuMemPoolImportPointer`.
struct OpenedByPool {
    base: CUdeviceptr,
    #[allow(dead_code, reason = "held, not read")]
    entry: Option<TableEntry>,
    pool: ImportedPool,
}

destroy! {
    OpenedByPool as "pool memory of another process", leaves Object;
    // SAFETY: this value stands for the open memory, and the caller promises that this is the first
    // call. This free waits for nothing, but all code that used the memory by its address has
    // waited.
    |its| unsafe { answer!(cuMemFree_v2(its.base)) };

    #[inline]
    fn has_leaked(&self, _owners: &dyn Keep) {
        self.pool.never_destroy();
    }
}

/// Memory of another process, opened by [`Context::open_memory`] or [`ImportedPool::open_memory`].
/// Clones share it. It is closed when the last part of the same allocation is dropped.
#[derive(Clone)]
pub struct IpcMemory {
    opened: Arc<Opened>,
    address: CUdeviceptr,
    size: usize,
}

impl IpcMemory {
    /// Returns the address in this process.
    #[inline]
    pub fn as_raw(&self) -> CUdeviceptr {
        self.address
    }

    /// Returns the size in bytes, as exported by the other process.
    #[inline]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the context that the memory is open in.
    #[inline]
    pub fn context(&self) -> &Context {
        self.opened.by.context()
    }
}

debug_struct! {
    IpcMemory |its| { address: format_args!("{:#x}", its.address), size: its.size, .. }
}

impl Context {
    /// Opens memory of another process. Calls `cuIpcOpenMemHandle` with `LAZY_ENABLE_PEER_ACCESS`.
    ///
    /// An allocation is opened once, even if several parts of it are. It is closed
    /// (`cuIpcCloseMemHandle`) when the last of them is dropped. If another thread is closing it, this
    /// call waits for that.
    ///
    /// # Errors
    /// [`Invalid::MemoryOfOtherDevice`] ([`IpcHandle::device`] returns the right one);
    /// [`Invalid::IpcKind`] for memory of a pool, which [`ImportedPool::open_memory`] opens;
    /// `CUDA_ERROR_INVALID_CONTEXT` for memory of this process; `CUDA_ERROR_ALREADY_MAPPED` if the wait
    /// exceeds five seconds; other errors of the driver.
    ///
    /// # Safety
    /// - The handle is one that another process of this machine got from its driver.
    /// - That process keeps the memory allocated until everything that is opened here is dropped, and
    ///   the work that used it is complete.
    /// - Before the last part is dropped, all work of this process on it is complete.
    /// - If it is dropped where the driver must not be called (in a host function, another driver
    ///   callback, or a capture), it stays open until a later call of this crate that creates, copies
    ///   or waits has closed it.
    ///
    /// Since CUDA 4.1. Raw: [`cuIpcOpenMemHandle_v2`](fn@cuda_sys::cuIpcOpenMemHandle_v2),
    /// [`cuIpcCloseMemHandle`](fn@cuda_sys::cuIpcCloseMemHandle).
    #[doc(alias = "cuIpcOpenMemHandle", alias = "cuIpcCloseMemHandle")]
    #[inline]
    pub unsafe fn open_memory(&self, handle: &IpcHandle) -> Result<IpcMemory> {
        handle.check_kind(IpcKind::Synchronous)?;
        let own = self.device().uuid()?;
        if handle.device_uuid() != own {
            return Err(Invalid::MemoryOfOtherDevice {
                its: handle.device_uuid().to_string(),
                expected: own.to_string(),
            }
            .into());
        }
        open(handle, By::Context(self.clone()), self.as_raw().addr(), || {
            let raw = CUipcMemHandle {
                reserved: handle.as_bytes().map(|byte| c_char::from_ne_bytes([byte])),
            };
            let flags = CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.0;
            let _current = self.enter()?;
            // SAFETY: `out` passes a valid pointer, and the current context is this one; the caller
            // promises that the handle is valid.
            out(|place| unsafe { call!(cuIpcOpenMemHandle_v2(place, raw, flags)) })
        })
    }
}

impl ImportedPool {
    /// Opens memory of the pool, for which the other process has sent a [handle](IpcHandle). Calls
    /// `cuMemPoolImportPointer`.
    ///
    /// An allocation is imported once, even if several parts of it are. It is freed in this process
    /// (`cuMemFree`) when the last of them is dropped.
    ///
    /// # Errors
    /// [`Invalid::IpcKind`] for memory that is not of a pool; [`Invalid::NoAccessToPool`];
    /// `CUDA_ERROR_INVALID_VALUE` for memory of another pool; `CUDA_ERROR_ALREADY_MAPPED` if another
    /// thread does not finish closing it within five seconds.
    ///
    /// # Safety
    /// See [`Context::open_memory`]. The memory is of this pool, and its stream in the other process
    /// has reached the allocation before work of this process uses it.
    ///
    /// Since CUDA 11.2. Raw: [`cuMemPoolImportPointer`](fn@cuda_sys::cuMemPoolImportPointer).
    #[doc(alias = "cuMemPoolImportPointer")]
    #[inline]
    pub unsafe fn open_memory(&self, handle: &IpcHandle) -> Result<IpcMemory> {
        handle.check_kind(IpcKind::Pool)?;
        self.check_access(self.context().device())?;
        open(handle, By::Pool(self.clone()), self.as_raw().addr(), || {
            let mut data = CUmemPoolPtrExportData { reserved: *handle.as_bytes() };
            let data = &raw mut data;
            let _current = self.context().enter()?;
            // SAFETY: the pool is alive, the pointers refer to variables, of which `out` passes one, and the
            // caller promises that the data is valid.
            out(|place| unsafe { call!(cuMemPoolImportPointer(place, self.as_raw(), data)) })
        })
    }
}

/// Returns memory that is already open, or opens it with `call`.
fn open(
    handle: &IpcHandle,
    by: By,
    number: usize,
    call: impl FnOnce() -> Result<CUdeviceptr>,
) -> Result<IpcMemory> {
    refuse_in_host_function()?;
    release::drain();
    let key = (handle.kind(), *handle.as_bytes(), number);
    let opened = match find_or_reserve(key)? {
        Found::Open(opened) => opened,
        Found::Reserved(entry) => {
            let opened = Arc::new(Opened { base: call()?, by, entry: Some(entry) });
            if let Some(open) = lock().as_mut() {
                open.insert(key, Arc::downgrade(&opened));
            }
            CHANGED.notify_all();
            opened
        }
    };
    let size = handle.size();
    let address = opened.base.checked_add(handle.offset());
    let address = address.filter(|address| address.checked_add(size as u64).is_some());
    let address = address.ok_or(Invalid::TooLarge { len: size, size: 1 })?;
    Ok(IpcMemory { opened, address, size })
}

enum Found {
    Open(Arc<Opened>),
    Reserved(TableEntry),
}

#[inline]
fn find_or_reserve(key: Key) -> Result<Found> {
    let begin = Instant::now();
    while begin.elapsed() < TIMEOUT {
        let mut table = lock();
        let open = table.get_or_insert_default();
        match open.get(&key).map(Weak::upgrade) {
            None => {
                open.insert(key, Weak::new());
                return Ok(Found::Reserved(TableEntry(key)));
            }
            Some(Some(opened)) => return Ok(Found::Open(opened)),
            // Another thread is opening or closing it, or its release is in the queue.
            Some(None) => {
                let waited = CHANGED.wait_timeout(table, MOMENT);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
                release::drain();
            }
        }
    }
    // The error that the driver would return, as the memory cannot be closed.
    Err(Error::Driver(DriverError::new(CUresult::CUDA_ERROR_ALREADY_MAPPED, key.0.opens())))
}
