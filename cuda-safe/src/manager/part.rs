//! The part that most managers have in common: what the driver itself allocates, and pins.

use super::capture::{enqueue_now, may_be_capturing, sparing_captures};
use super::defer::{Deferral, Item, What};
use super::order::OrderParent;
use super::owned::{PinnedOwner, unregister};
use super::{Block, CleanupGuard, DeferOptions, HostBlock, Order, is_out_of_memory};
use crate::call::{answer, call, without_current};
use crate::capture::Operation;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::fork;
use crate::memory::{MemoryPool, PinnedFlags};
use crate::release::{self, Resource, relaxed, release};
use crate::report::count_leak;
use crate::stream::refuse_inside;
use core::ffi::c_void;
use cuda_sys::{
    CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE, CUdeviceptr, CUmemAttach_flags,
    CUresult,
};
use std::any::Any;
use std::fmt;
use std::ptr::NonNull;

/// Plain, pinned and managed memory of the driver's, for a [manager](super::MemoryManager) to be made
/// with. Its frees are [put off](DeferOptions) and done together, as each waits for all running work.
///
/// What was used in the [order](Order) of a stream gets an event behind that (`cuEventCreate`,
/// `cuEventRecord`) when it is freed, on which the free waits. Allocations that fail for want of memory
/// are tried once more when all that was put off has been freed.
pub struct DriverMemory {
    deferral: Deferral,
    context: Context,
}

impl DriverMemory {
    /// For a manager of that context.
    ///
    /// # Errors
    /// The device does not tell how much memory it has.
    pub fn new(context: &Context, options: DeferOptions) -> Result<Self> {
        // Whichever is given: what is put off does not hold the manager.
        let context = context.without_manager();
        Ok(Self {
            deferral: Deferral::new(&context, options)?,
            context,
        })
    }

    /// The context, without a manager.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Frees that are put off: how many, and of how many bytes of device memory.
    pub fn pending(&self) -> (usize, usize) {
        self.deferral.pending()
    }

    /// Does the frees that were put off, unless a [guard](Self::defer_cleanup) lives; whether there were
    /// any. Waits for all running work.
    pub fn flush(&self) -> bool {
        self.deferral.flush()
    }

    /// Waits for all work of the context. In contrast to [`Context::synchronize`], this does not invalidate a
    /// capture.
    ///
    /// # Errors
    /// Those of earlier work; [`Error::InHostFunction`].
    pub fn wait(&self) -> Result<()> {
        wait_for_context(&self.context)
    }

    /// See [`MemoryManager::reset`](super::MemoryManager::reset).
    pub fn reset(&self) {
        self.deferral.flush();
    }

    /// See [`MemoryManager::defer_cleanup`](super::MemoryManager::defer_cleanup). While the guard lives, no
    /// memory is freed or [unregistered](Self::release_pin), and the owners of pinned memory stay alive.
    pub fn defer_cleanup(&self) -> CleanupGuard {
        self.deferral.guard()
    }

    /// `cuMemAlloc(&address, size)`: plain device memory.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`; `CUDA_ERROR_INVALID_VALUE` for no byte.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemAlloc_v2`](fn@cuda_sys::cuMemAlloc_v2).
    #[doc(alias = "cuMemAlloc")]
    pub fn allocate(&self, size: usize) -> Result<Block> {
        let mut address = 0;
        let place = &raw mut address;
        self.attempt(|| {
            // SAFETY: the pointer is to a local, and the context is current.
            unsafe { call!(cuMemAlloc_v2(place, size)) }
        })?;
        Ok(block(address, size))
    }

    /// `cuMemFree(address)`, later: see [`MemoryManager::free`](super::MemoryManager::free).
    ///
    /// # Safety
    /// As there, of [`allocate`](Self::allocate).
    ///
    /// Since CUDA 3.2. Raw: [`cuMemFree_v2`](fn@cuda_sys::cuMemFree_v2).
    #[doc(alias = "cuMemFree")]
    pub unsafe fn free(&self, block: Block, order: Order<'_>) {
        self.put_off(What::Device(block.address), block.size, order);
    }

    /// `cuMemAllocManaged(&address, size, flags)`: see
    /// [`MemoryManager::allocate_managed`](super::MemoryManager::allocate_managed).
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`; `CUDA_ERROR_NOT_SUPPORTED`.
    ///
    /// Since CUDA 6.0. Raw: [`cuMemAllocManaged`](fn@cuda_sys::cuMemAllocManaged).
    #[doc(alias = "cuMemAllocManaged")]
    pub fn allocate_managed(&self, size: usize, global: bool) -> Result<Block> {
        let flags = match global {
            true => CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL,
            false => CUmemAttach_flags::CU_MEM_ATTACH_HOST,
        };
        let mut address = 0;
        let place = &raw mut address;
        self.attempt(|| {
            // SAFETY: the pointer is to a local, and the context is current.
            unsafe { call!(cuMemAllocManaged(place, size, flags.0)) }
        })?;
        Ok(block(address, size))
    }

    /// `cuMemFree(address)`, later.
    ///
    /// # Safety
    /// As for [`free`](Self::free), of [`allocate_managed`](Self::allocate_managed).
    pub unsafe fn free_managed(&self, block: Block, order: Order<'_>) {
        self.put_off(What::Device(block.address), block.size, order);
    }

    /// `cuMemHostAlloc(&start, size, flags)`: page-locked host memory.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    ///
    /// Since CUDA 2.2. Raw: [`cuMemHostAlloc`](fn@cuda_sys::cuMemHostAlloc).
    #[doc(alias = "cuMemHostAlloc")]
    pub fn allocate_host(&self, size: usize, flags: PinnedFlags) -> Result<HostBlock> {
        let mut start = std::ptr::null_mut::<c_void>();
        let place = &raw mut start;
        self.attempt(|| {
            // SAFETY: the pointer is to a local, and the context is current.
            unsafe { call!(cuMemHostAlloc(place, size, flags.bits())) }
        })?;
        let address = self.address_of(start, flags).inspect_err(|_| {
            release(Resource::Pinned(start), &self.context);
        })?;
        Ok(host_block(start, size, address))
    }

    /// `cuMemFreeHost(start)`, later.
    ///
    /// # Safety
    /// As for [`MemoryManager::free_host`](super::MemoryManager::free_host), of
    /// [`allocate_host`](Self::allocate_host).
    ///
    /// Since CUDA 2.0. Raw: [`cuMemFreeHost`](fn@cuda_sys::cuMemFreeHost).
    #[doc(alias = "cuMemFreeHost")]
    pub unsafe fn free_host(&self, block: HostBlock, order: Order<'_>) {
        self.put_off(What::Host(block.start.as_ptr().cast()), 0, order);
    }

    /// `cuMemHostRegister(start, size, flags)`: pins memory of the caller's.
    ///
    /// If a part of the memory is still registered only because a [guard](Self::defer_cleanup) holds that back,
    /// all unregistrations that are held back are done first.
    ///
    /// # Errors
    /// `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED`; `CUDA_ERROR_NOT_SUPPORTED`.
    ///
    /// # Safety
    /// As for [`MemoryManager::pin`](super::MemoryManager::pin).
    ///
    /// Since CUDA 4.0. Raw: [`cuMemHostRegister_v2`](fn@cuda_sys::cuMemHostRegister_v2).
    #[doc(alias = "cuMemHostRegister")]
    pub unsafe fn pin(
        &self,
        start: NonNull<u8>,
        size: usize,
        flags: PinnedFlags,
    ) -> Result<HostBlock> {
        let mut bits = 0;
        if flags.contains(PinnedFlags::PORTABLE) {
            bits |= CU_MEMHOSTREGISTER_PORTABLE;
        }
        if flags.contains(PinnedFlags::MAPPED) {
            bits |= CU_MEMHOSTREGISTER_DEVICEMAP;
        }
        let start = start.as_ptr().cast::<c_void>();
        let register = || {
            self.attempt(|| {
                // SAFETY: the caller promises so many bytes, which stay; the context is current.
                unsafe { call!(cuMemHostRegister_v2(start, size, bits)) }
            })
        };
        match register() {
            // By somebody whose memory waits for the end of a guard, perhaps.
            Err(error) if is_registered(&error) && self.deferral.unregister_all() => register()?,
            done => done?,
        }
        let address = self.address_of(start, flags).inspect_err(|_| {
            release(Resource::RegisteredOf(start), &self.context);
        })?;
        Ok(host_block(start, size, address))
    }

    /// `cuMemHostUnregister(start)`, now.
    ///
    /// # Errors
    /// Those of earlier work; then it is still pinned.
    ///
    /// # Safety
    /// As for [`MemoryManager::unpin`](super::MemoryManager::unpin), of [`pin`](Self::pin).
    ///
    /// Since CUDA 4.0. Raw: [`cuMemHostUnregister`](fn@cuda_sys::cuMemHostUnregister).
    #[doc(alias = "cuMemHostUnregister")]
    pub unsafe fn unpin(&self, block: HostBlock) -> Result<()> {
        refuse_inside()?;
        let start = block.start.as_ptr().cast();
        without_current(&self.context, || {
            // SAFETY: it is registered from there on, by the caller's promise.
            unsafe { answer!(cuMemHostUnregister(start)) }
        })
    }

    /// Unregisters pinned memory, and then drops its owner. Calls `cuMemHostUnregister`: at once, or, while a
    /// [guard](Self::defer_cleanup) lives, together with the frees that are deferred.
    ///
    /// # Safety
    /// As for [`MemoryManager::release_pin`](super::MemoryManager::release_pin), of [`pin`](Self::pin).
    pub unsafe fn release_pin(
        &self,
        block: HostBlock,
        owner: Box<dyn Any + Send>,
        order: Order<'_>,
    ) {
        let (start, owner) = (block.start.as_ptr().cast(), PinnedOwner::new(owner));
        match self.deferral.is_held() {
            true => self.put_off(What::Registered(start, owner), 0, order),
            false => unregister(start, owner, self.parent(order)),
        }
    }

    /// Frees memory of a pool behind all work, later.
    pub(super) fn free_of_pool(&self, block: Block, own: Option<MemoryPool>) {
        let what = What::OfPool(block.address, own);
        let size = block.size;
        let end = None;
        self.deferral.push(Item { what, size, end });
    }

    /// Puts a free off; or has it done now, if what it was used for can have no event behind it.
    fn put_off(&self, what: What, size: usize, order: Order<'_>) {
        if fork::in_child() {
            return count_leak();
        }
        let end = match order.raw() {
            None => None,
            Some(_) => match mark(order, &self.context) {
                Ok(end) => Some(end),
                Err(_) => {
                    let resource = match what {
                        What::Device(address) => Resource::Memory(address),
                        What::Host(start) => Resource::Pinned(start),
                        What::Registered(start, owner) => {
                            return unregister(start, owner, self.parent(order));
                        }
                        What::OfPool(..) => return,
                    };
                    return release(resource, &self.parent(order));
                }
            },
        };
        self.deferral.push(Item { what, size, end });
    }

    fn parent<'a>(&'a self, order: Order<'a>) -> OrderParent<'a> {
        OrderParent {
            order,
            context: &self.context,
        }
    }

    /// Allocates with the context current; see [`retry`](Self::retry).
    fn attempt(&self, mut allocate: impl FnMut() -> Result<()>) -> Result<()> {
        self.retry(|| in_context(&self.context, &mut allocate))
    }

    /// Attempts an allocation, and repeats it if there was too little memory and a deferred free gives some
    /// back, on this thread or another one.
    pub(super) fn retry(&self, allocate: impl FnMut() -> Result<()>) -> Result<()> {
        release::drain();
        self.deferral.retry(allocate)
    }

    /// Where the device has host memory, if it is mapped; else 0.
    fn address_of(&self, start: *mut c_void, flags: PinnedFlags) -> Result<CUdeviceptr> {
        let mut address = 0;
        if flags.contains(PinnedFlags::MAPPED) {
            let place = &raw mut address;
            let _current = self.context.enter()?;
            // SAFETY: the memory is pinned in the current context; the other pointer is to a local.
            unsafe { call!(cuMemHostGetDevicePointer_v2(place, start, 0)) }?;
        }
        Ok(address)
    }
}

/// Whether a driver refused to register memory a part of which is registered.
fn is_registered(error: &Error) -> bool {
    error.code() == Some(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
}

/// An event behind what a stream was given.
pub(super) fn mark(order: Order<'_>, context: &Context) -> Result<Event> {
    let mut made = None;
    enqueue_now(order, Operation::Record, context, |raw| {
        let event = context.event_now()?;
        // SAFETY: the event is alive, and the order promises that the stream is.
        unsafe { call!(cuEventRecord(event.raw(), raw)) }?;
        made = Some(event);
        Ok(())
    })?;
    made.ok_or(Error::InHostFunction)
}

/// Waits for all work of the context, and breaks nobody's capture.
pub(crate) fn wait_for_context(context: &Context) -> Result<()> {
    // A wait for the context breaks its captures, in the relaxed mode too (measured with driver 580).
    if !may_be_capturing() {
        return context.wait_for_work();
    }
    refuse_inside()?;
    let _current = context.enter()?;
    relaxed(|| match free_a_byte(context) {
        // It may be for want of memory that all work is waited for.
        Err(error) if is_out_of_memory(&error) => free_a_byte_of_the_host(context),
        done => done,
    })
}

/// In a current context: the driver waits for all work first.
fn free_a_byte(context: &Context) -> Result<()> {
    let mut address = 0;
    // SAFETY: the pointer is to a local, and the context is current.
    unsafe { call!(cuMemAlloc_v2(&raw mut address, 1)) }?;
    // SAFETY: it was just allocated, and nobody uses it.
    let freed = unsafe { call!(cuMemFree_v2(address)) };
    freed.inspect_err(|_| release(Resource::Memory(address), context))
}

/// As [`free_a_byte`], in page-locked memory.
fn free_a_byte_of_the_host(context: &Context) -> Result<()> {
    let mut start = std::ptr::null_mut();
    // SAFETY: the pointer is to a local, and the context is current.
    unsafe { call!(cuMemHostAlloc(&raw mut start, 1, 0)) }?;
    // SAFETY: it was just allocated, and nobody uses it.
    let freed = unsafe { call!(cuMemFreeHost(start)) };
    freed.inspect_err(|_| release(Resource::Pinned(start), context))
}

/// Allocates with a context current, and so that no capture of the process is broken.
fn in_context(context: &Context, allocate: impl FnOnce() -> Result<()>) -> Result<()> {
    let _current = context.enter()?;
    sparing_captures(allocate)
}

fn block(address: CUdeviceptr, size: usize) -> Block {
    let token = address;
    Block {
        address,
        size,
        token,
    }
}

fn host_block(start: *mut c_void, size: usize, address: CUdeviceptr) -> HostBlock {
    HostBlock {
        start: NonNull::new(start.cast()).unwrap_or(NonNull::dangling()),
        size,
        address,
        token: start.addr() as u64,
    }
}

impl fmt::Debug for DriverMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverMemory")
            .field("deferral", &self.deferral)
            .field("context", &self.context)
            .finish()
    }
}
