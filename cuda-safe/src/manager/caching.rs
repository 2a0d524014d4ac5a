//! A pool that keeps memory for its next use.

mod books;
mod classes;
mod figures;
mod heap;
mod lanes;
mod progress;
mod shared;
mod slow;

pub use figures::CacheFigures;

use self::lanes::{Idle, Lanes};
use self::slow::Pool;
use super::choice::check_version;
use super::current;
use super::{
    Block, CleanupGuard, DeferOptions, DriverManager, DriverMemory, HostBlock, INTERFACE_VERSION,
    IpcHandle, MemoryManager, Order, StreamEnd,
};
use crate::context::{Context, MemoryInfo};
use crate::error::Result;
use crate::fork;
use crate::memory::PinnedFlags;
use crate::report::count_leak;
use crate::stream::same_context;
use cuda_sys::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUstream};
use std::any::Any;
use std::fmt;
use std::ptr::NonNull;

/// How a [`CachingManager`] keeps memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CachingOptions {
    /// The bytes that it may have of the manager below it at most; 0: as much as that gives.
    pub max_bytes: usize,
    /// The bytes that it takes from there at once, for blocks of up to half of that: 32 MiB.
    pub slab_bytes: usize,
    /// The bytes that a thread keeps for itself of each stream, before others get them: 32 MiB.
    pub lane_bytes: usize,
    /// When memory of no stream's order that was freed is waited for: for all of it, when more is
    /// pending than this says, and memory is asked for that is not kept otherwise. For memory of a
    /// stream's order only the share counts.
    pub unordered: DeferOptions,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl Default for CachingOptions {
    fn default() -> Self {
        Self {
            max_bytes: 0,
            slab_bytes: 32 << 20,
            lane_bytes: 32 << 20,
            unordered: DeferOptions::default(),
            _non_exhaustive: (),
        }
    }
}

/// A manager that keeps freed memory, and hands it out again without a call of the driver.
///
/// Sizes are rounded up, eight to a doubling. A block of up to 1 MiB that is freed in the order of a stream
/// stays with that stream, at first within reach of the thread that freed it: to allocate and free there
/// is a matter of nanoseconds, and threads are not in each other's way, on streams of their own or on one.
/// Where nothing of that size is at hand, and for larger blocks, the pool splits what is free, and merges
/// what lies beside each other, one thread at a time; memory
/// that another stream has used is used again when an event behind that use is reached, or, if there is
/// no more, behind a wait of the stream for that event (`cuStreamWaitEvent`). More comes in slabs from a
/// manager below, which is the driver's own if no other is given. (What is freed on a stream whose end the pool
/// does not hear of gets an event at once: on a [borrowed](crate::Stream::borrow_raw) stream, and on a stream of a
/// context whose manager is not this pool or [around](MemoryManager::wrapped) it.)
///
/// # Calls of the driver
/// None, where the thread has what is asked for; else `cuEventQuery` and `cuEventRecord` for streams
/// that have freed something, `cuStreamWaitEvent` as said, and what the manager below calls. A stream's
/// first allocation makes an event. Nothing waits on the host, but in these cases, when there is too little
/// memory, or too much [is pending](CachingOptions::unordered) of no stream's order, and in
/// [`trim`](MemoryManager::trim): then for all work of the context (`cuCtxSynchronize`; where a capture may
/// be open, which that would break, by freeing a little plain memory).
///
/// # Clean-up
/// Memory goes back to the manager below by [`trim`](MemoryManager::trim), [`reset`](MemoryManager::reset),
/// when there is too little, and at the end. While a [guard](MemoryManager::defer_cleanup) lives, none of
/// the first three happens; frees are as fast as ever.
///
/// ```no_run
/// use cuda_safe::manager::{CachingManager, MemoryManager, set_memory_manager};
/// use cuda_safe::{Context, Device, DeviceBuffer};
///
/// set_memory_manager(CachingManager::new)?;
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// for _ in 0..1000 {
///     let mut buffer = DeviceBuffer::<f32>::uninit(&stream, 1 << 18)?;
///     buffer.fill(1.0)?;
/// }
/// let pool = context.memory_manager_as::<CachingManager>()?.expect("it was chosen");
/// println!("{:?}", pool.figures());
/// pool.trim(0)?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct CachingManager {
    lanes: Lanes,
    lane_bytes: u64,
    pool: Pool,
}

impl CachingManager {
    /// Over the driver's own memory.
    ///
    /// # Errors
    /// Those of [`DriverManager::new`].
    pub fn new(context: &Context) -> Result<Self> {
        Self::with(context, CachingOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// Those of [`DriverManager::new`].
    pub fn with(context: &Context, options: CachingOptions) -> Result<Self> {
        let below = DriverManager::new(context)?;
        Self::over(context, below, options)
    }

    /// Over memory of another manager, of the same context. Host memory is that manager's too.
    ///
    /// # Errors
    /// The manager below is of another context, or of another
    /// [version](crate::Invalid::ManagerVersion); the device does not tell how much memory it has.
    pub fn over<M: MemoryManager>(
        context: &Context,
        below: M,
        options: CachingOptions,
    ) -> Result<Self> {
        check_version::<M>()?;
        same_context("the manager", below.base().context(), context)?;
        Ok(Self {
            lanes: Lanes::new(),
            lane_bytes: options.lane_bytes as u64,
            pool: Pool::new(context, current::with_current(Box::new(below)), options)?,
        })
    }

    /// The manager below.
    pub fn below(&self) -> &dyn MemoryManager {
        self.pool.below()
    }

    /// What it was made with.
    pub fn options(&self) -> CachingOptions {
        self.pool.options()
    }

    /// What there is, and what has happened. It looks at everything, and is for now and then. (In a forked
    /// child it is zero.)
    pub fn figures(&self) -> CacheFigures {
        self.pool.figures(&self.lanes)
    }
}

/// The stream that a lane is of, if it is one whose order lasts.
#[inline]
fn lasting(order: Order<'_>) -> Option<CUstream> {
    let raw = order.raw()?;
    if order.is_passing() || raw.addr() == CU_STREAM_PER_THREAD.addr() {
        return None;
    }
    // Both handles are the legacy default stream.
    Some(match raw.is_null() {
        true => CU_STREAM_LEGACY,
        false => raw,
    })
}

/// What a block is known by: its node, and its class.
#[inline]
fn token(id: u32, class: u8) -> u64 {
    u64::from(id) | u64::from(class) << 32
}

// SAFETY: blocks are parts of slabs of the manager below that do not overlap (`heap`), at multiples of
// 512 bytes. What was freed in the order of a stream is in a lane of that stream, which uses it again in
// that order; or has a mark in the books, and is handed out when that is done, behind an event that
// covers it, or to that stream. Without hearing of the end of a stream it keeps no lane and no mark without
// an event of it. What was freed in nobody's order is handed out when a wait for the whole
// context that began later is over. A slab goes when all of it is free, as nobody's.
unsafe impl MemoryManager for CachingManager {
    fn interface_version() -> u32 {
        INTERFACE_VERSION
    }

    fn base(&self) -> &DriverMemory {
        self.pool.below().base()
    }

    fn wrapped(&self) -> Option<&dyn MemoryManager> {
        Some(self.below())
    }

    fn initialize(&self) -> Result<()> {
        self.below().initialize()
    }

    fn reset(&self) {
        // What cannot be waited for stays.
        let _ = self.pool.trim(&self.lanes, 0);
        self.pool.below().reset();
    }

    #[inline]
    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        // No lane has anything for no byte.
        let class = match size {
            0 => classes::NONE,
            _ => classes::class_of(size as u64),
        };
        // A lock may be another thread's, for ever, in a forked child.
        if let Some(stream) = lasting(order).filter(|_| !fork::in_child()) {
            if let Some(mut lane) = self.lanes.find(stream) {
                if let Some(idle) = lane.pop(class) {
                    return Ok(Block {
                        address: idle.address,
                        size,
                        token: token(idle.id, class),
                    });
                }
            }
        }
        self.pool.allocate(&self.lanes, size, order)
    }

    #[inline]
    unsafe fn free(&self, block: Block, order: Order<'_>) {
        if fork::in_child() {
            return count_leak();
        }
        let (id, class) = (block.token as u32, (block.token >> 32) as u8);
        if let Some(stream) = lasting(order) {
            let address = block.address;
            if let Some(mut lane) = self.lanes.find(stream) {
                let idle = Idle { address, id };
                if lane.push(class, idle, self.lane_bytes).is_ok() {
                    return;
                }
            }
        }
        self.pool.free(&self.lanes, id, class, order);
    }

    fn allocate_host(&self, size: usize, flags: PinnedFlags) -> Result<HostBlock> {
        self.below().allocate_host(size, flags)
    }

    unsafe fn free_host(&self, block: HostBlock, order: Order<'_>) {
        // SAFETY: the caller's promise.
        unsafe { self.below().free_host(block, order) }
    }

    unsafe fn pin(&self, start: NonNull<u8>, size: usize, flags: PinnedFlags) -> Result<HostBlock> {
        // SAFETY: the caller's promise.
        unsafe { self.below().pin(start, size, flags) }
    }

    unsafe fn unpin(&self, block: HostBlock) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.below().unpin(block) }
    }

    unsafe fn release_pin(&self, block: HostBlock, owner: Box<dyn Any + Send>, order: Order<'_>) {
        // SAFETY: the caller's promise.
        unsafe { self.below().release_pin(block, owner, order) }
    }

    fn allocate_managed(&self, size: usize, global: bool) -> Result<Block> {
        self.below().allocate_managed(size, global)
    }

    unsafe fn free_managed(&self, block: Block, order: Order<'_>) {
        // SAFETY: the caller's promise.
        unsafe { self.below().free_managed(block, order) }
    }

    /// That of the manager below, with what is kept here.
    fn memory_info(&self) -> Result<MemoryInfo> {
        let info = self.below().memory_info()?;
        let kept = self.pool.kept(&self.lanes);
        Ok(MemoryInfo {
            free: info.free.saturating_add(kept),
            total: info.total,
        })
    }

    /// That of the manager below, of the part of its memory that this is.
    fn ipc_handle(&self, block: &Block) -> Result<IpcHandle> {
        let slab = self.pool.slab_of(block.token as u32, block)?;
        self.below().ipc_handle(&slab)
    }

    fn defer_cleanup(&self) -> CleanupGuard {
        self.pool.guard().and(self.below().defer_cleanup())
    }

    fn trim(&self, keep: usize) -> Result<usize> {
        self.pool.trim(&self.lanes, keep)
    }

    fn stream_ends(&self, end: &StreamEnd<'_>) {
        self.pool.stream_ends(&self.lanes, end);
    }
}

impl Drop for CachingManager {
    fn drop(&mut self) {
        if fork::in_child() {
            return;
        }
        self.pool.end();
    }
}

impl fmt::Debug for CachingManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachingManager")
            .field("below", &self.pool.below())
            .finish_non_exhaustive()
    }
}
