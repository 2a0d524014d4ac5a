//! The base of most managers: synchronous, pinned and managed memory from the driver.

use super::defer::{Deferral, Item, What};
use super::order::{OrderOwners, enqueue_now, without_invalidating_captures};
use super::registered::Registered;
use super::{
    Block, CleanupGuard, DeferOptions, HostBlock, INTERFACE_VERSION, MemoryManager, Order,
    PinnedFlags,
};
use crate::call::{
    ContextHandle, Error, Result, answer, call, count_leak, debug_struct, fork, out,
    refuse_in_host_function, without_current,
};
use crate::capture_state::Operation;
use crate::context::{Context, MemoryInfo, PinnedMemory, SyncMemory};
use crate::event::Event;
use crate::release::{self, Destroy, Handle, release};
use core::ffi::c_void;
use cuda_sys::{CUdeviceptr, CUmemAttach_flags, CUresult, Zeroable};
use std::any::Any;
use std::ptr::NonNull;

/// Synchronous, pinned and managed memory from the driver, and [memory of its
/// pools](Self::allocate_from_pool), as a building block for a [manager](super::MemoryManager). Frees are
/// [deferred](DeferOptions) and done in batches, as each one waits for all running work.
///
/// When memory that was used in the [order](Order) of a stream is freed, an event is recorded on the
/// stream (`cuEventCreate`, `cuEventRecord`), and the free waits for it. An allocation that fails
/// because there is not enough memory is retried after all deferred frees have been done.
pub struct DriverMemory {
    deferral: Deferral,
    context: Context,
}

impl DriverMemory {
    /// Creates the base of a manager of `context`.
    ///
    /// # Errors
    /// The device's total memory cannot be queried.
    #[inline]
    pub fn new(context: &Context, options: DeferOptions) -> Result<Self> {
        // A deferred free must not hold the manager, so the context is stored without it.
        let context = context.without_extension();
        Ok(Self { deferral: Deferral::new(&context, options)?, context })
    }

    /// Returns the context, without a manager.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the number of deferred frees and the number of their bytes of device memory.
    #[inline]
    pub fn pending(&self) -> (usize, usize) {
        self.deferral.pending()
    }

    /// Does all deferred frees, unless a [guard](Self::defer_cleanup) is alive, and returns whether
    /// there were any. Waits for all running work.
    #[inline]
    pub fn flush(&self) -> bool {
        self.deferral.flush()
    }

    /// Waits for all work of the context. In contrast to [`Context::synchronize`], this does not
    /// invalidate a capture.
    ///
    /// # Errors
    /// Errors of earlier work; [`Error::InHostFunction`].
    #[inline]
    pub fn synchronize(&self) -> Result<()> {
        self.context.wait_for_all_work()
    }

    /// See [`MemoryManager::reset`](super::MemoryManager::reset).
    #[inline]
    pub fn reset(&self) {
        self.deferral.flush();
    }

    /// See [`MemoryManager::defer_cleanup`](super::MemoryManager::defer_cleanup). While the guard is
    /// alive, no memory is freed or [unregistered](Self::release_pin), and the owners of pinned memory
    /// stay alive.
    #[inline]
    pub fn defer_cleanup(&self) -> CleanupGuard {
        self.deferral.guard()
    }

    /// Returns whether a [guard](Self::defer_cleanup) is alive. A manager that caches memory must not
    /// wait for work then to free some.
    #[inline]
    pub fn is_cleanup_deferred(&self) -> bool {
        self.deferral.is_held()
    }

    /// Allocates synchronous device memory. Calls `cuMemAlloc`.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`; `CUDA_ERROR_INVALID_VALUE` if `size` is 0.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemAlloc_v2`](fn@cuda_sys::cuMemAlloc_v2).
    #[doc(alias = "cuMemAlloc")]
    #[inline]
    pub fn allocate(&self, size: usize) -> Result<Block> {
        // SAFETY: `out` passes a valid pointer, and the context is current.
        let address = self.create(size, |place| unsafe { call!(cuMemAlloc_v2(place, size)) })?;
        Ok(block(address, size))
    }

    /// Frees synchronous device memory. Calls `cuMemFree`, usually later. See
    /// [`MemoryManager::free`](super::MemoryManager::free).
    ///
    /// # Safety
    /// See [`MemoryManager::free`](super::MemoryManager::free). `block` was returned by
    /// [`allocate`](Self::allocate).
    ///
    /// Since CUDA 3.2. Raw: [`cuMemFree_v2`](fn@cuda_sys::cuMemFree_v2).
    #[doc(alias = "cuMemFree")]
    #[inline]
    pub unsafe fn free(&self, block: Block, order: Order<'_>) {
        self.defer_free(What::Device(SyncMemory(block.address)), block.size, order);
    }

    /// Allocates managed memory. Calls `cuMemAllocManaged`. See
    /// [`MemoryManager::allocate_managed`](super::MemoryManager::allocate_managed).
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`; `CUDA_ERROR_NOT_SUPPORTED`.
    ///
    /// Since CUDA 6.0. Raw: [`cuMemAllocManaged`](fn@cuda_sys::cuMemAllocManaged).
    #[doc(alias = "cuMemAllocManaged")]
    #[inline]
    pub fn allocate_managed(&self, size: usize, global: bool) -> Result<Block> {
        let flags = match global {
            true => CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL,
            false => CUmemAttach_flags::CU_MEM_ATTACH_HOST,
        };
        // SAFETY: `out` passes a valid pointer, and the context is current.
        let address =
            self.create(size, |place| unsafe { call!(cuMemAllocManaged(place, size, flags.0)) })?;
        Ok(block(address, size))
    }

    /// Frees managed memory. Calls `cuMemFree`, usually later.
    ///
    /// # Safety
    /// See [`free`](Self::free). `block` was returned by [`allocate_managed`](Self::allocate_managed).
    #[inline]
    pub unsafe fn free_managed(&self, block: Block, order: Order<'_>) {
        self.defer_free(What::Device(SyncMemory(block.address)), block.size, order);
    }

    /// Allocates page-locked host memory. Calls `cuMemHostAlloc`.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    ///
    /// Since CUDA 2.2. Raw: [`cuMemHostAlloc`](fn@cuda_sys::cuMemHostAlloc).
    #[doc(alias = "cuMemHostAlloc")]
    #[inline]
    pub fn allocate_host(&self, size: usize, flags: PinnedFlags) -> Result<HostBlock> {
        // SAFETY: `out` passes a valid pointer, and the context is current.
        let start =
            self.create(size, |place| unsafe { call!(cuMemHostAlloc(place, size, flags.bits())) })?;
        let address = self.address_of(start, flags).inspect_err(|_| {
            release(PinnedMemory(Handle(start)), &self.context);
        })?;
        Ok(host_block(start, size, address))
    }

    /// Frees page-locked host memory. Calls `cuMemFreeHost`, usually later.
    ///
    /// # Safety
    /// See [`MemoryManager::free_host`](super::MemoryManager::free_host). `block` was returned by
    /// [`allocate_host`](Self::allocate_host).
    ///
    /// Since CUDA 2.0. Raw: [`cuMemFreeHost`](fn@cuda_sys::cuMemFreeHost).
    #[doc(alias = "cuMemFreeHost")]
    #[inline]
    pub unsafe fn free_host(&self, block: HostBlock, order: Order<'_>) {
        let memory = PinnedMemory(Handle(block.start.as_ptr().cast()));
        self.defer_free(What::Host(memory), 0, order);
    }

    /// Registers (pins) host memory of the caller. Calls `cuMemHostRegister`.
    ///
    /// If a part of the memory is still registered only because a [guard](Self::defer_cleanup) defers
    /// its release, all deferred unregistrations are done first.
    ///
    /// # Errors
    /// `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED`; `CUDA_ERROR_NOT_SUPPORTED`.
    ///
    /// # Safety
    /// See [`MemoryManager::pin`](super::MemoryManager::pin).
    ///
    /// Since CUDA 4.0. Raw: [`cuMemHostRegister_v2`](fn@cuda_sys::cuMemHostRegister_v2).
    #[doc(alias = "cuMemHostRegister")]
    #[inline]
    pub unsafe fn pin(
        &self,
        start: NonNull<u8>,
        size: usize,
        flags: PinnedFlags,
    ) -> Result<HostBlock> {
        let bits = flags.register_bits();
        let start = start.as_ptr().cast::<c_void>();
        let register = || {
            self.attempt(size, || {
                // SAFETY: the caller promises `size` bytes, which stay allocated; the context is
                // current.
                unsafe { call!(cuMemHostRegister_v2(start, size, bits)) }
            })
        };
        match register() {
            // A guard may be deferring the release of the earlier registration.
            Err(error) if is_registered(&error) && self.deferral.unregister_all() => register()?,
            done => done?,
        }
        let address = self.address_of(start, flags).inspect_err(|_| {
            release(Registered::new(start, ()), &self.context);
        })?;
        Ok(host_block(start, size, address))
    }

    /// Unregisters pinned memory at once. Calls `cuMemHostUnregister`.
    ///
    /// # Errors
    /// Errors of earlier work. The memory is then still registered.
    ///
    /// # Safety
    /// See [`MemoryManager::unpin`](super::MemoryManager::unpin). `block` was returned by
    /// [`pin`](Self::pin).
    ///
    /// Since CUDA 4.0. Raw: [`cuMemHostUnregister`](fn@cuda_sys::cuMemHostUnregister).
    #[doc(alias = "cuMemHostUnregister")]
    #[inline]
    pub unsafe fn unpin(&self, block: HostBlock) -> Result<()> {
        refuse_in_host_function()?;
        let start = block.start.as_ptr().cast();
        without_current(&self.context, || {
            // SAFETY: the memory at `start` is registered, by the caller's promise.
            unsafe { answer!(cuMemHostUnregister(start)) }
        })
    }

    /// Unregisters pinned memory, and then drops its owner. Calls `cuMemHostUnregister`: at once, or,
    /// while a [guard](Self::defer_cleanup) is alive, together with the other deferred frees.
    ///
    /// # Safety
    /// See [`MemoryManager::release_pin`](super::MemoryManager::release_pin). `block` was returned by
    /// [`pin`](Self::pin).
    #[inline]
    pub unsafe fn release_pin(
        &self,
        block: HostBlock,
        owner: Box<dyn Any + Send>,
        order: Order<'_>,
    ) {
        let memory = Registered::new(block.start.as_ptr().cast(), owner);
        match self.deferral.is_held() {
            true => self.defer_free(What::Registered(memory), 0, order),
            false => release(memory, &self.owners(order)),
        }
    }

    /// Defers a free of pool memory, which is done after all work.
    pub(crate) fn free_of_pool(&self, memory: impl Destroy, size: usize) {
        self.deferral.push(Item { what: What::OfPool(Box::new(memory)), size, end: None });
    }

    /// Defers a free. Releases the memory at once instead if no event can be recorded after its last
    /// use.
    #[inline]
    fn defer_free(&self, what: What, size: usize, order: Order<'_>) {
        if fork::in_child() {
            return count_leak();
        }
        let end = match order.raw() {
            None => None,
            Some(_) => match mark(order, &self.context) {
                Ok(end) => Some(end),
                Err(_) => return what.release(&self.owners(order)),
            },
        };
        self.deferral.push(Item { what, size, end });
    }

    #[inline]
    fn owners<'a>(&'a self, order: Order<'a>) -> OrderOwners<'a> {
        OrderOwners { order, context: &self.context }
    }

    /// Allocates `size` bytes with the context current; see [`retry`](Self::retry).
    fn attempt(&self, size: usize, mut allocate: impl FnMut() -> Result<()>) -> Result<()> {
        self.retry(|| in_context(&self.context, &mut allocate))
            .map_err(|error| error.with_requested_bytes(size))
    }

    /// Returns what an allocation of `size` bytes writes through its pointer; see [`attempt`](Self::attempt).
    fn create<T: Zeroable>(
        &self,
        size: usize,
        mut allocate: impl FnMut(*mut T) -> Result<()>,
    ) -> Result<T> {
        out(|place| self.attempt(size, || allocate(place)))
    }

    /// Attempts an allocation, and repeats it if there was not enough memory and a deferred free
    /// returns some, on this thread or another one.
    pub(crate) fn retry(&self, allocate: impl FnMut() -> Result<()>) -> Result<()> {
        release::drain();
        self.deferral.retry(allocate)
    }

    /// Returns the device address of host memory if it is mapped, otherwise 0.
    #[inline]
    fn address_of(&self, start: *mut c_void, flags: PinnedFlags) -> Result<CUdeviceptr> {
        if flags.contains(PinnedFlags::MAPPED) { self.context.device_address(start) } else { Ok(0) }
    }
}

/// Returns whether the driver refused to register memory because a part of it is already registered.
#[inline]
fn is_registered(error: &Error) -> bool {
    error.code() == Some(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
}

/// Records an event after all work that the stream of an order was given.
#[inline]
pub(super) fn mark(order: Order<'_>, context: &Context) -> Result<Event> {
    let mut made = None;
    enqueue_now(order, Operation::Record, context, |raw| {
        let event = context.event_now()?;
        // SAFETY: the event is alive, and the order promises that the stream is.
        unsafe { call!(cuEventRecord(event.raw_to_record(), raw)) }?;
        made = Some(event);
        Ok(())
    })?;
    made.ok_or(Error::InHostFunction)
}

/// Allocates with the context current, in a mode that does not invalidate captures of other threads.
fn in_context(context: &Context, allocate: impl FnOnce() -> Result<()>) -> Result<()> {
    let _current = context.enter()?;
    without_invalidating_captures(allocate)
}

#[inline]
fn block(address: CUdeviceptr, size: usize) -> Block {
    let token = address;
    Block { address, size, token }
}

#[inline]
fn host_block(start: *mut c_void, size: usize, address: CUdeviceptr) -> HostBlock {
    HostBlock {
        start: NonNull::new(start.cast()).unwrap_or(NonNull::dangling()),
        size,
        address,
        token: start.addr() as u64,
    }
}

debug_struct! { DriverMemory |its| { deferral: its.deferral, context: its.context } }

/// A manager of synchronous memory: it allocates with `cuMemAlloc` and defers `cuMemFree`, as
/// [`DriverMemory`] does.
///
/// Each free waits for all running work. So frees are deferred and done in one batch, when more than
/// the [limit](DeferOptions) are pending or when there is not enough memory. While a
/// [guard](MemoryManager::defer_cleanup) is alive, nothing is freed, and freed memory stays reserved.
/// Pinned memory with an owner is unregistered at once; while a guard is alive, it is deferred with the
/// other frees.
#[derive(Debug)]
pub struct DriverManager {
    base: DriverMemory,
}

impl DriverManager {
    /// Creates a manager with Numba's limits for deferred frees.
    ///
    /// # Errors
    /// The device's total memory cannot be queried.
    #[inline]
    pub fn new(context: &Context) -> Result<Self> {
        Self::with(context, DeferOptions::default())
    }

    /// Creates a manager with the given limits for deferred frees.
    ///
    /// # Errors
    /// The device's total memory cannot be queried.
    #[inline]
    pub fn with(context: &Context, options: DeferOptions) -> Result<Self> {
        Ok(Self { base: DriverMemory::new(context, options)? })
    }
}

// SAFETY: the memory comes from the driver, has the requested size, is aligned to 512 bytes, and is
// freed after the event of the order and all running work.
unsafe impl MemoryManager for DriverManager {
    #[inline]
    fn interface_version() -> u32 {
        INTERFACE_VERSION
    }

    #[inline]
    fn base(&self) -> &DriverMemory {
        &self.base
    }

    #[inline]
    fn allocate(&self, size: usize, _: Order<'_>) -> Result<Block> {
        self.base.allocate(size)
    }

    #[inline]
    unsafe fn free(&self, block: Block, order: Order<'_>) {
        // SAFETY: the caller's promise.
        unsafe { self.base.free(block, order) }
    }

    #[inline]
    fn memory_info(&self) -> Result<MemoryInfo> {
        self.base.context().memory_info()
    }

    #[inline]
    fn trim(&self, _: usize) -> Result<usize> {
        let (_, bytes) = self.base.pending();
        Ok(if self.base.flush() { bytes } else { 0 })
    }
}
