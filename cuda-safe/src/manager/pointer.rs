//! Device memory without a type, for other libraries.

use super::{Block, Order};
use crate::capture::Operation;
use crate::context::Context;
use crate::error::Result;
use crate::fork;
use crate::invalid::Invalid;
use crate::report::count_leak;
use crate::stream::{Stream, same_context};
use cuda_sys::{CUdeviceptr, CUstream};
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is kept alive.
pub(super) type Owner = Box<dyn Any + Send + Sync>;

/// What ends memory that no manager of this crate has: run once, on whichever thread.
pub type Finalizer = Box<dyn FnOnce() + Send + Sync>;

/// Device memory of a context, for code that takes pointers: it is there until this is dropped.
///
/// By a number that no other memory of the process has or will have, a table of other code knows it: an
/// address comes again.
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
    /// After what ends in it.
    context: Context,
}

/// How memory goes.
enum End {
    Nothing,
    /// Back to the context's manager.
    Manager {
        block: Block,
        order: Kept,
        migrates: bool,
    },
    Function(Finalizer),
}

/// An order that is kept.
enum Kept {
    None,
    Of(Stream),
    Lasting(Raw),
}

/// A stream that somebody promised to keep.
struct Raw(CUstream);

// SAFETY: the driver lets any thread use a stream, and this one is only named here.
unsafe impl Send for Raw {}
// SAFETY: as for Send.
unsafe impl Sync for Raw {}

impl Kept {
    fn of(order: Order<'_>) -> Self {
        match (order.stream(), order.raw()) {
            (Some(stream), _) => Self::Of(stream.clone()),
            (None, Some(raw)) if !order.is_passing() => Self::Lasting(Raw(raw)),
            _ => Self::None,
        }
    }

    fn order(&self) -> Order<'_> {
        match self {
            Self::None => Order::NONE,
            Self::Of(stream) => Order::of(stream),
            // SAFETY: whoever made the order promised that the stream stays.
            Self::Lasting(Raw(raw)) => unsafe { Order::lasting(*raw) },
        }
    }
}

/// A number for memory.
pub(super) fn new_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl MemoryPointer {
    /// Device memory of the context's manager, in no stream's order.
    ///
    /// # Errors
    /// [`Invalid::NoMemoryManager`](crate::Invalid::NoMemoryManager); those of
    /// [`MemoryManager::allocate`](super::MemoryManager::allocate).
    pub fn allocate(context: &Context, size: usize) -> Result<Self> {
        Self::allocate_in(context, size, Order::NONE)
    }

    /// The same in the order of a stream, in which it is freed too.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate); [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    pub fn allocate_on(stream: &Stream, size: usize) -> Result<Self> {
        Self::allocate_in(stream.context(), size, Order::of(stream))
    }

    /// The same in any order; one that is [passing](Order::passing) is that of the allocation only.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate).
    pub fn allocate_in(context: &Context, size: usize, order: Order<'_>) -> Result<Self> {
        if let Some(stream) = order.stream() {
            same_context("the stream", stream.context(), context)?;
            // Of the same context, but without its manager: that would not hear of the stream's end.
            if !stream.context().has_manager_of(context) {
                return Err(Invalid::OtherManager.into());
            }
            drop(stream.uncaptured(Operation::Allocate)?);
        }
        let manager = context.expect_manager()?;
        let block = manager.allocate(size, order)?;
        Ok(Self::of(context, block, Kept::of(order), false))
    }

    /// Managed memory of the context's manager.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate); `CUDA_ERROR_NOT_SUPPORTED`.
    pub fn allocate_managed(context: &Context, size: usize, global: bool) -> Result<Self> {
        let manager = context.expect_manager()?;
        let block = manager.allocate_managed(size, global)?;
        Ok(Self::of(context, block, Kept::None, true))
    }

    fn of(context: &Context, block: Block, order: Kept, migrates: bool) -> Self {
        Self {
            address: block.address,
            size: block.size,
            id: new_id(),
            end: End::Manager {
                block,
                order,
                migrates,
            },
            owner: None,
            context: context.clone(),
        }
    }

    /// Memory of somebody else's: `owner` is kept until `finalizer` has run, once, when this is dropped.
    /// A panic in it is the dropping thread's.
    ///
    /// # Safety
    /// There are `size` bytes at `address`, accessible to the context, until the finalizer runs or the
    /// owner is dropped. The finalizer may be run on any thread, at any time: also where the driver
    /// refuses calls.
    pub unsafe fn new(
        context: &Context,
        address: CUdeviceptr,
        size: usize,
        owner: Option<Box<dyn Any + Send + Sync>>,
        finalizer: Option<Finalizer>,
    ) -> Self {
        Self {
            address,
            size,
            id: new_id(),
            end: finalizer.map_or(End::Nothing, End::Function),
            owner,
            context: context.clone(),
        }
    }

    /// The address on the device. Work that uses it is given, before this is dropped, to the stream that it
    /// was allocated in the order of; or to any, if that is none.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.address
    }

    /// The bytes that were asked for.
    pub fn size(&self) -> usize {
        self.size
    }

    /// A number that no other memory of the process has or will have.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The context that it is memory of.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Who is kept alive, if somebody is.
    pub fn owner(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.owner.as_deref()
    }

    /// The manager's block, if it is a manager's device memory.
    pub fn block(&self) -> Option<Block> {
        match self.end {
            End::Manager {
                block,
                migrates: false,
                ..
            } => Some(block),
            _ => None,
        }
    }

    /// Drops it in another order than that of its allocation.
    ///
    /// # Safety
    /// Nobody uses it but work that was given to the order's stream before; or, if that is none, to any. That
    /// stream comes behind the one that it was allocated in the order of.
    pub unsafe fn free_in(mut self, order: Order<'_>) {
        self.finish(Some(order));
    }

    fn finish(&mut self, other: Option<Order<'_>>) {
        match std::mem::replace(&mut self.end, End::Nothing) {
            End::Nothing => {}
            End::Function(_) if fork::in_child() => count_leak(),
            End::Function(finalizer) => finalizer(),
            End::Manager { .. } if fork::in_child() => count_leak(),
            End::Manager {
                block,
                order,
                migrates,
            } => {
                // It was allocated by the manager, so there is one.
                let Some(manager) = self.context.made_manager() else {
                    return count_leak();
                };
                let other = other.map(|other| match other.stream() {
                    Some(stream) => Order::of(stream),
                    None => other,
                });
                let order = other.unwrap_or_else(|| order.order());
                match migrates {
                    // SAFETY: the block is of this manager, and given back here, once; for its uses see
                    // `as_raw`.
                    false => unsafe { manager.free(block, order) },
                    // SAFETY: as above.
                    true => unsafe { manager.free_managed(block, order) },
                }
            }
        }
    }
}

impl Drop for MemoryPointer {
    fn drop(&mut self) {
        self.finish(None);
    }
}

impl fmt::Debug for MemoryPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryPointer")
            .field("id", &self.id)
            .field("address", &format_args!("{:#x}", self.address))
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

/// Memory that goes with the last of its clones, and of their [parts](Self::part).
#[derive(Clone, Debug)]
pub struct AutoFreePointer {
    address: CUdeviceptr,
    size: usize,
    memory: Arc<MemoryPointer>,
}

impl AutoFreePointer {
    /// The address on the device.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.address
    }

    /// The bytes of this part.
    pub fn size(&self) -> usize {
        self.size
    }

    /// All of the memory.
    pub fn memory(&self) -> &MemoryPointer {
        &self.memory
    }

    /// How many share the memory.
    pub fn references(&self) -> usize {
        Arc::strong_count(&self.memory)
    }

    /// A part of it, which holds all of it; none if it goes beyond.
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
    fn from(memory: MemoryPointer) -> Self {
        Self {
            address: memory.address,
            size: memory.size,
            memory: Arc::new(memory),
        }
    }
}
