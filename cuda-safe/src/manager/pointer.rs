//! Untyped device memory for other libraries.

use super::{Block, Order};
use crate::call::{Invalid, Result, count_leak, debug_struct, expect_memory, fork};
use crate::capture_state::Operation;
use crate::context::Context;
use crate::release::Handle;
use crate::stream::{Stream, same_context};
use cuda_sys::{CUdeviceptr, CUstream};
use std::any::Any;
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
    end: End,
    owner: Option<Owner>,
    /// Declared last, so that it is dropped after the objects that are released in it.
    context: Context,
}

/// How the memory is released.
enum End {
    Nothing,
    /// By the context's manager.
    Manager {
        block: Block,
        order: OwnedOrder,
        migrates: bool,
    },
    Function(Finalizer),
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
            if !stream.context().has_manager_of(context) {
                return Err(Invalid::OtherManager.into());
            }
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
            end: End::Manager { block, order, migrates },
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
            end: finalizer.map_or(End::Nothing, End::Function),
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
            End::Manager { block, migrates: false, .. } => Some(block),
            _ => None,
        }
    }

    /// Frees the memory in another order than that of its allocation.
    ///
    /// # Safety
    /// The memory is used only by work that was enqueued before, on the stream of `order`; or on any
    /// stream, if `order` has none. The stream of `order` is ordered after the stream that the memory
    /// was allocated on.
    #[inline]
    pub unsafe fn free_in(mut self, order: Order<'_>) {
        self.finish(Some(order));
    }

    #[inline]
    fn finish(&mut self, other: Option<Order<'_>>) {
        if fork::in_child() {
            return self.leak_in_child();
        }
        match std::mem::replace(&mut self.end, End::Nothing) {
            End::Nothing => {}
            End::Function(finalizer) => finalizer(),
            End::Manager { block, order, migrates } => {
                // The manager allocated the memory, so there is one.
                let Some(manager) = self.context.made_manager() else {
                    return count_leak();
                };
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
}

impl MemoryPointer {
    /// Leaks the memory in a forked child, with the finalizer and the owner: their code may call the
    /// driver, which does not work there.
    #[cold]
    #[inline]
    fn leak_in_child(&mut self) {
        let end = std::mem::replace(&mut self.end, End::Nothing);
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

impl From<MemoryPointer> for AutoFreePointer {
    #[inline]
    fn from(memory: MemoryPointer) -> Self {
        Self { address: memory.address, size: memory.size, memory: Arc::new(memory) }
    }
}
