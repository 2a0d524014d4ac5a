//! Untyped device memory for other libraries.

use super::{Block, HostBlock, Order, PinnedFlags};
use crate::call::{
    Invalid, Result, bytes_of, convert, count_leak, debug_struct, expect_memory, fork, refuse_if,
};
use crate::capture_state::Operation;
use crate::context::Context;
use crate::release::Handle;
use crate::stream::{Stream, same_context};
use cuda_sys::{CUdeviceptr, CUstream};
use std::any::Any;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An object that is kept alive together with the memory.
pub(super) type Owner = Box<dyn Any + Send + Sync>;

/// A function that releases memory which no manager of this crate allocated. It runs once, on any
/// thread.
pub type Finalizer = Box<dyn FnOnce() + Send + Sync>;

/// Untyped device memory of a context, for code that works with pointers. Dropping it frees the memory.
///
/// Each one has a number that is unique among all memory of the process, past and future. Other code
/// can use it as a key in a table, where an address would not do because addresses are reused.
///
/// ```no_run
/// use cuda_safe::manager::{DriverManager, MemoryPointer, set_memory_manager};
/// use cuda_safe::{Context, Device};
///
/// set_memory_manager(|context| DriverManager::new(context))?;
/// let context = Context::primary(&Device::get(0)?)?;
/// let memory = MemoryPointer::allocate(&context, 1 << 20)?;
/// println!("{:#x}, {} bytes, number {}", memory.as_raw(), memory.size(), memory.id());
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct MemoryPointer {
    address: CUdeviceptr,
    size: usize,
    id: u64,
    end: End<Managed>,
    owner: Option<Owner>,
    /// Declared last, so that it is dropped after the objects that are released in it.
    context: Context,
}

/// How memory is released. The manager then gets an `M`.
enum End<M> {
    /// By dropping its owner.
    Nothing,
    /// By the context's manager.
    Manager(M),
    Function(Finalizer),
}

impl<M> End<M> {
    fn of(finalizer: Option<Finalizer>) -> Self {
        finalizer.map_or(Self::Nothing, Self::Function)
    }

    fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Nothing)
    }
}

/// Memory of the context's manager.
struct Managed {
    block: Block,
    order: OwnedOrder,
    migrates: bool,
}

/// An order that owns its stream.
enum OwnedOrder {
    None,
    Of(Stream),
    Persistent(Handle<CUstream>),
}

impl OwnedOrder {
    #[inline]
    fn of(order: Order<'_>) -> Self {
        match (order.stream(), order.raw()) {
            (Some(stream), _) => Self::Of(stream.clone()),
            (None, Some(raw)) if !order.is_transient() => Self::Persistent(Handle(raw)),
            _ => Self::None,
        }
    }

    #[inline]
    fn order(&self) -> Order<'_> {
        match self {
            Self::None => Order::NONE,
            Self::Of(stream) => Order::of(stream),
            // SAFETY: the creator of the order promised that the stream stays alive.
            Self::Persistent(Handle(raw)) => unsafe { Order::persistent(*raw) },
        }
    }
}

/// Returns a new number for memory.
#[inline]
pub(super) fn new_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl MemoryPointer {
    /// Allocates device memory with the context's manager, without a stream.
    ///
    /// # Errors
    /// [`Invalid::NoMemoryManager`](crate::Invalid::NoMemoryManager); the errors of
    /// [`MemoryManager::allocate`](super::MemoryManager::allocate).
    #[inline]
    pub fn allocate(context: &Context, size: usize) -> Result<Self> {
        Self::allocate_in(context, size, Order::NONE)
    }

    /// Allocates device memory on a stream, with the manager of the stream's context. The drop frees it
    /// on the same stream.
    ///
    /// # Errors
    /// See [`allocate`](Self::allocate).
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    #[inline]
    pub fn allocate_on(stream: &Stream, size: usize) -> Result<Self> {
        Self::allocate_in(stream.context(), size, Order::of(stream))
    }

    /// Allocates device memory in the given order, with the context's manager. The drop frees it in the
    /// same order. If the order was created by [`Order::transient`], the drop frees the memory without a
    /// stream.
    ///
    /// # Errors
    /// See [`allocate`](Self::allocate) and [`allocate_on`](Self::allocate_on). The stream belongs to
    /// another context; [`Invalid::OtherManager`] if it belongs to the same context without its
    /// manager.
    #[inline]
    pub fn allocate_in(context: &Context, size: usize, order: Order<'_>) -> Result<Self> {
        if let Some(stream) = order.stream() {
            same_context("the stream", stream.context(), context)?;
            // It is the same context, but without its manager, which would not be notified of the
            // stream's end.
            refuse_if!(!stream.context().has_manager_of(context), Invalid::OtherManager);
            drop(stream.uncaptured(Operation::Allocate)?);
        }
        let manager = context.expect_manager()?;
        let block = manager.allocate(size, order)?;
        Ok(Self::of(context, block, OwnedOrder::of(order), false))
    }

    /// Allocates managed memory with the context's manager, attached to all streams if `global`,
    /// otherwise to the host.
    ///
    /// # Errors
    /// See [`allocate`](Self::allocate). `CUDA_ERROR_NOT_SUPPORTED`.
    #[inline]
    pub fn allocate_managed(context: &Context, size: usize, global: bool) -> Result<Self> {
        let manager = context.expect_manager()?;
        let block = manager.allocate_managed(size, global)?;
        Ok(Self::of(context, block, OwnedOrder::None, true))
    }

    #[inline]
    fn of(context: &Context, block: Block, order: OwnedOrder, migrates: bool) -> Self {
        Self {
            address: block.address,
            size: block.size,
            id: new_id(),
            end: End::Manager(Managed { block, order, migrates }),
            owner: None,
            context: context.clone(),
        }
    }

    /// Takes ownership of device memory of other code. When this is dropped, `finalizer` runs once, and
    /// then `owner` is dropped. A panic in the finalizer unwinds into the dropping thread.
    ///
    /// # Errors
    /// [`Invalid::Handle`] if the address is 0 and the size is not; [`Invalid::TooLarge`]. The finalizer
    /// is then dropped without running, and `owner` is dropped.
    ///
    /// # Safety
    /// There are `size` bytes at `address`, accessible to the context, until the finalizer runs or the
    /// owner is dropped. The finalizer may run on any thread, at any time, also where the driver
    /// refuses calls.
    #[inline]
    pub unsafe fn from_raw(
        context: &Context,
        address: CUdeviceptr,
        size: usize,
        owner: Option<Box<dyn Any + Send + Sync>>,
        finalizer: Option<Finalizer>,
    ) -> Result<Self> {
        expect_memory::<u8>(address, size)?;
        Ok(Self {
            address,
            size,
            id: new_id(),
            end: End::of(finalizer),
            owner,
            context: context.clone(),
        })
    }

    /// Returns the device address of the first byte.
    ///
    /// Work that uses the memory must be enqueued before this is dropped: on the stream that the memory
    /// was allocated on, or on any stream if it was allocated without one.
    #[inline]
    pub fn as_raw(&self) -> CUdeviceptr {
        self.address
    }

    /// Returns the requested size in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns a number that is unique among all memory of the process, past and future.
    #[inline]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the context that the memory belongs to.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the owner that is kept alive, if there is one.
    #[inline]
    pub fn owner(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.owner.as_deref()
    }

    /// Returns the manager's block if this is device memory of a manager.
    #[inline]
    pub fn block(&self) -> Option<Block> {
        match self.end {
            End::Manager(Managed { block, migrates: false, .. }) => Some(block),
            _ => None,
        }
    }

    /// Frees the memory in another order than that of its allocation.
    ///
    /// # Safety
    /// The memory is used only by work that was enqueued before, on the stream of `order`; or on any
    /// stream, if `order` has none. The stream of `order` is ordered after the stream that the memory
    /// was allocated on. Its context has the manager of this memory, or the stream outlives the manager,
    /// or the order is [transient](Order::transient).
    #[inline]
    pub unsafe fn free_in(mut self, order: Order<'_>) {
        self.finish(Some(order));
    }

    #[inline]
    fn finish(&mut self, other: Option<Order<'_>>) {
        if fork::in_child() {
            return self.leak_in_child();
        }
        match self.end.take() {
            End::Nothing => {}
            End::Function(finalizer) => finalizer(),
            End::Manager(Managed { block, order, migrates }) => {
                // The manager allocated the memory, so there is one.
                let Some(manager) = self.context.made_manager() else { return count_leak() };
                let other = other.map(|other| match other.stream() {
                    Some(stream) => Order::of(stream),
                    None => other,
                });
                let order = other.unwrap_or_else(|| order.order());
                match migrates {
                    // SAFETY: the block is of this manager, and is freed here exactly once; for the
                    // work that uses it see `as_raw`.
                    false => unsafe { manager.free(block, order) },
                    // SAFETY: the block is of this manager, and is freed here exactly once; for the
                    // work that uses it see `as_raw`.
                    true => unsafe { manager.free_managed(block, order) },
                }
            }
        }
    }

    /// Leaks the memory in a forked child, with the finalizer and the owner: their code may call the
    /// driver, which does not work there.
    #[cold]
    #[inline]
    fn leak_in_child(&mut self) {
        let end = self.end.take();
        if !matches!(end, End::Nothing) {
            count_leak();
        }
        std::mem::forget(end);
        std::mem::forget(self.owner.take());
    }
}

impl Drop for MemoryPointer {
    #[inline]
    fn drop(&mut self) {
        self.finish(None);
    }
}

debug_struct! {
    MemoryPointer |its| { id: its.id, address: format_args!("{:#x}", its.address), size: its.size, .. }
}

/// Shared ownership of a [`MemoryPointer`]. The memory is freed when the last clone and the last
/// [part](Self::part) are dropped.
#[derive(Clone, Debug)]
pub struct AutoFreePointer {
    address: CUdeviceptr,
    size: usize,
    memory: Arc<MemoryPointer>,
}

impl AutoFreePointer {
    /// Returns the device address of the first byte of this part.
    #[inline]
    pub fn as_raw(&self) -> CUdeviceptr {
        self.address
    }

    /// Returns the size of this part in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the entire memory.
    #[inline]
    pub fn memory(&self) -> &MemoryPointer {
        &self.memory
    }

    /// Returns the number of clones and parts that share the memory.
    #[inline]
    pub fn references(&self) -> usize {
        Arc::strong_count(&self.memory)
    }

    /// Returns a part, which keeps the entire memory alive. Returns `None` if it exceeds this one.
    #[inline]
    pub fn part(&self, offset: usize, size: usize) -> Option<Self> {
        let end = offset.checked_add(size)?;
        (end <= self.size).then(|| Self {
            address: self.address + offset as u64,
            size,
            memory: Arc::clone(&self.memory),
        })
    }
}

convert! {
    |memory: MemoryPointer| -> AutoFreePointer {
        Self { address: memory.address, size: memory.size, memory: Arc::new(memory) }
    }
}

/// Page-locked host memory, the common part of [`PinnedMemory`] and [`MappedMemory`]. Dropping it frees
/// or unregisters the memory.
///
/// Whether the drop waits for running work depends on the manager or on the
/// [finalizer](PinnedMemory::from_raw).
pub struct HostPointer {
    block: HostBlock,
    id: u64,
    /// The manager unregisters memory that has an owner, and frees memory that has none.
    end: End<()>,
    owner: Option<Owner>,
    is_mapped: bool,
    context: Context,
}

impl HostPointer {
    #[inline]
    fn allocate(context: &Context, size: usize, flags: PinnedFlags) -> Result<Arc<Self>> {
        let manager = context.expect_manager()?;
        let block = manager.allocate_host(size, flags)?;
        let is_mapped = flags.contains(PinnedFlags::MAPPED);
        Ok(Self::of(context, block, is_mapped, None, End::Manager(())))
    }

    /// Pins memory of `owner`.
    ///
    /// # Safety
    /// See [`PinnedMemory::pin`].
    unsafe fn pin(
        context: &Context,
        owner: impl Any + Send + Sync,
        start: NonNull<u8>,
        size: usize,
        flags: PinnedFlags,
    ) -> Result<Arc<Self>> {
        let manager = context.expect_manager()?;
        // SAFETY: the caller's promise; the owner is kept until the memory is unregistered.
        let block = unsafe { manager.pin(start, size, flags) }?;
        let is_mapped = flags.contains(PinnedFlags::MAPPED);
        let owner: Option<Owner> = Some(Box::new(owner));
        Ok(Self::of(context, block, is_mapped, owner, End::Manager(())))
    }

    #[inline]
    fn of(
        context: &Context,
        block: HostBlock,
        is_mapped: bool,
        owner: Option<Owner>,
        end: End<()>,
    ) -> Arc<Self> {
        Arc::new(Self { block, id: new_id(), end, owner, is_mapped, context: context.clone() })
    }

    /// Returns the host address of the first byte.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.block.start.as_ptr()
    }

    /// Returns the requested size in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.block.size
    }

    /// Returns a number that is unique among all memory of the process, past and future.
    #[inline]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the context that the memory is pinned in.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the owner that is kept alive, if there is one: the owner of memory that was registered,
    /// or the one given to [`PinnedMemory::from_raw`].
    #[inline]
    pub fn owner(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.owner.as_deref()
    }

    /// Releases the memory. The caller must then drop the returned value: the owner, unless the manager
    /// has received it.
    #[inline]
    fn finish(&mut self) -> Option<Owner> {
        let (end, owner) = (self.end.take(), self.owner.take());
        match end {
            End::Nothing => return owner,
            End::Function(finalizer) => {
                // The owner is dropped even if this panics.
                finalizer();
                return owner;
            }
            End::Manager(()) => {}
        }
        // The manager allocated or pinned the memory, so there is one.
        let Some(manager) = self.context.made_manager() else {
            std::mem::forget(owner);
            count_leak();
            return None;
        };
        match owner {
            // SAFETY: the block is of this manager, and is freed here exactly once; work that uses its
            // address was enqueued before.
            None => unsafe { manager.free_host(self.block, Order::NONE) },
            Some(owner) => {
                let owner: Box<dyn Any + Send> = owner;
                // SAFETY: the block is of `pin` of this manager, and is released here exactly once;
                // work that uses its address was enqueued before.
                unsafe { manager.release_pin(self.block, owner, Order::NONE) }
            }
        }
        None
    }
}

impl Drop for HostPointer {
    #[inline]
    fn drop(&mut self) {
        if fork::in_child() {
            // The driver may still have the pages registered, and the child must not call it.
            std::mem::forget(self.end.take());
            std::mem::forget(self.owner.take());
            return count_leak();
        }
        drop(self.finish());
    }
}

debug_struct! {
    HostPointer |its| { id: its.id, start: its.block.start, size: its.block.size, is_mapped: its.is_mapped, .. }
}

/// Pinned host memory that is not mapped into the address space of devices. Clones share it.
#[derive(Clone, Debug)]
pub struct PinnedMemory(Arc<HostPointer>);

/// Pinned host memory that is mapped into the address space of devices. Clones share it; it is released
/// when the last one is dropped.
#[derive(Clone, Debug)]
pub struct MappedMemory(Arc<HostPointer>);

impl PinnedMemory {
    /// Takes ownership of page-locked memory of other code. When the last clone is dropped, `finalizer`
    /// runs once, and then `owner` is dropped. Without a finalizer, dropping the owner releases the
    /// memory; without both, the memory is borrowed.
    ///
    /// No manager is involved. A panic in the finalizer unwinds into the dropping thread. In a forked
    /// child, the finalizer does not run and the owner is not dropped.
    ///
    /// # Errors
    /// [`Invalid::TooLarge`](crate::Invalid::TooLarge). The finalizer is then dropped without running,
    /// and `owner` is dropped.
    ///
    /// # Safety
    /// `start` points to `size` bytes of page-locked memory, which stay valid until the finalizer runs
    /// or the owner is dropped; if there is neither, forever. The finalizer may run on any thread, also
    /// where the driver refuses calls.
    #[inline]
    pub unsafe fn from_raw(
        context: &Context,
        start: NonNull<u8>,
        size: usize,
        owner: Option<Box<dyn Any + Send + Sync>>,
        finalizer: Option<Finalizer>,
    ) -> Result<Self> {
        bytes_of::<u8>(size)?;
        Ok(Self(foreign(context, start, size, 0, owner, finalizer)))
    }

    /// Allocates host memory with the context's manager. [`PinnedFlags::MAPPED`] is ignored.
    ///
    /// # Errors
    /// [`Invalid::NoMemoryManager`](crate::Invalid::NoMemoryManager); the errors of
    /// [`MemoryManager::allocate_host`](super::MemoryManager::allocate_host).
    #[inline]
    pub fn allocate(context: &Context, size: usize, flags: PinnedFlags) -> Result<Self> {
        let flags = flags.difference(PinnedFlags::MAPPED);
        HostPointer::allocate(context, size, flags).map(Self)
    }

    /// Pins memory of `owner`, which is kept alive until the driver has unregistered the memory.
    ///
    /// # Errors
    /// [`Invalid::NoMemoryManager`](crate::Invalid::NoMemoryManager); the errors of
    /// [`MemoryManager::pin`](super::MemoryManager::pin).
    ///
    /// # Safety
    /// `start` points to `size` bytes, which stay valid as long as `owner` is kept alive.
    pub unsafe fn pin(
        context: &Context,
        owner: impl Any + Send + Sync,
        start: NonNull<u8>,
        size: usize,
        flags: PinnedFlags,
    ) -> Result<Self> {
        let flags = flags.difference(PinnedFlags::MAPPED);
        // SAFETY: the caller's promise.
        unsafe { HostPointer::pin(context, owner, start, size, flags) }.map(Self)
    }
}

impl MappedMemory {
    /// Takes ownership of page-locked memory that other code has mapped for the device, at the device
    /// address `address`. When the last clone is dropped, `finalizer` runs once, and then `owner` is
    /// dropped. See [`PinnedMemory::from_raw`].
    ///
    /// # Errors
    /// See [`PinnedMemory::from_raw`]. [`Invalid::Handle`](crate::Invalid::Handle) if the device address
    /// is 0 and the size is not.
    ///
    /// # Safety
    /// See [`PinnedMemory::from_raw`]. In addition, the memory is accessible to the context at `address` for
    /// the same time.
    #[inline]
    pub unsafe fn from_raw(
        context: &Context,
        start: NonNull<u8>,
        size: usize,
        address: CUdeviceptr,
        owner: Option<Box<dyn Any + Send + Sync>>,
        finalizer: Option<Finalizer>,
    ) -> Result<Self> {
        expect_memory::<u8>(address, size)?;
        Ok(Self(foreign(context, start, size, address, owner, finalizer)))
    }

    /// Allocates mapped host memory with the context's manager.
    ///
    /// # Errors
    /// See [`PinnedMemory::allocate`].
    #[inline]
    pub fn allocate(context: &Context, size: usize, flags: PinnedFlags) -> Result<Self> {
        let flags = flags | PinnedFlags::MAPPED;
        HostPointer::allocate(context, size, flags).map(Self)
    }

    /// Pins and maps memory of `owner`, which is kept alive until the driver has unregistered the
    /// memory.
    ///
    /// # Errors
    /// See [`PinnedMemory::pin`].
    ///
    /// # Safety
    /// See [`PinnedMemory::pin`].
    pub unsafe fn pin(
        context: &Context,
        owner: impl Any + Send + Sync,
        start: NonNull<u8>,
        size: usize,
        flags: PinnedFlags,
    ) -> Result<Self> {
        let flags = flags | PinnedFlags::MAPPED;
        // SAFETY: the caller's promise.
        unsafe { HostPointer::pin(context, owner, start, size, flags) }.map(Self)
    }

    /// Returns the device address of the first byte.
    #[inline]
    pub fn as_raw(&self) -> CUdeviceptr {
        self.0.block.address
    }
}

/// Returns a pointer to memory that no manager of this crate allocated. It is mapped if `address` is
/// not 0.
#[inline]
fn foreign(
    context: &Context,
    start: NonNull<u8>,
    size: usize,
    address: CUdeviceptr,
    owner: Option<Owner>,
    finalizer: Option<Finalizer>,
) -> Arc<HostPointer> {
    let block = HostBlock { start, size, address, token: 0 };
    let end = End::of(finalizer);
    HostPointer::of(context, block, address != 0, owner, end)
}

impl Deref for PinnedMemory {
    type Target = HostPointer;

    #[inline]
    fn deref(&self) -> &HostPointer {
        &self.0
    }
}

impl Deref for MappedMemory {
    type Target = HostPointer;

    #[inline]
    fn deref(&self) -> &HostPointer {
        &self.0
    }
}
