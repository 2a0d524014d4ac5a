//! A caching pool allocator.

mod classes;
mod heap;
mod progress;
mod segment;
mod shared;
mod slow;
mod stats;
mod stream_progress;
mod thread_caches;
mod zones;

pub use stats::CacheStats;

use self::segment::Segment;
use self::slow::Pool;
use self::stream_progress::{LEGACY, Reach, StreamKey};
use self::thread_caches::{Idle, ThreadCaches};
use crate::check::{INTERFACE, check_version, same_context};
use cuda_safe::context::MemoryInfo;
use cuda_safe::manager::{
    Block, CleanupGuard, DeferOptions, DriverManager, DriverMemory, HostBlock, IpcHandle,
    MemoryManager, Order, StreamEnd, in_forked_child, report_leak, with_current_context,
};
use cuda_safe::memory::PinnedFlags;
use cuda_safe::{Context, Error, Result};
use std::any::Any;
use std::fmt;
use std::ptr::NonNull;

/// Options for [`CachingManager::with`].
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CachingOptions {
    /// The maximum number of bytes that the pool reserves from its upstream manager. 0 (the default)
    /// means no limit.
    pub max_bytes: usize,
    /// The size in bytes of a slab, the unit in which the pool reserves memory from its upstream
    /// manager for blocks of up to half that size. The default is 32 MiB.
    pub slab_bytes: usize,
    /// The maximum number of bytes in a per-thread cache. There is one for each pair of a thread and a
    /// stream; a block that does not fit goes to the shared part of the pool. The default is 32 MiB.
    pub thread_cache_bytes: usize,
    /// The limits for pending unordered memory, which was freed without a stream. If more is pending
    /// and a request cannot be served from the cache, the pool waits for all of it. For a request in
    /// the order of a stream, only the [share](DeferOptions::share) counts.
    pub unordered: DeferOptions,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl Default for CachingOptions {
    #[inline]
    fn default() -> Self {
        Self {
            max_bytes: 0,
            slab_bytes: 32 << 20,
            thread_cache_bytes: 32 << 20,
            unordered: DeferOptions::default(),
            _non_exhaustive: (),
        }
    }
}

/// A pool that caches freed memory and allocates from its cache without a driver call.
///
/// Sizes are rounded up to size classes, eight for each doubling. A block of up to 1 MiB that is freed
/// on a stream stays with that stream, at first in a cache of the thread that freed it. An allocation
/// or free that the per-thread cache serves takes nanoseconds, and threads do not block each other,
/// whether they use separate streams or the same one.
///
/// Larger blocks, and sizes that the per-thread cache does not have, are served by a shared heap, which
/// splits free blocks and merges adjacent ones, one thread at a time. Memory that another stream has
/// used is reused when an event after that use is complete. If there is no more memory, the stream is
/// made to wait for that event (`cuStreamWaitEvent`). The pool reserves more memory in slabs from its
/// upstream manager, which is a [`DriverManager`] if no other is given.
///
/// The pool is not notified when some streams end: [borrowed](cuda_safe::Stream::borrow_raw) streams, and
/// streams of a context whose manager neither is this pool nor [wraps](MemoryManager::wrapped) it.
/// Memory that is freed on such a stream gets an event at once.
///
/// # Driver calls
/// The pool makes no driver call if the thread's cache serves the request. Otherwise it calls
/// `cuEventQuery` and `cuEventRecord` for streams that have freed memory, `cuStreamWaitEvent` as
/// described above, and the functions that its upstream manager calls. The first allocation on a stream
/// creates an event.
///
/// The host waits in three cases only: when there is not enough memory, when too much unordered memory
/// [is pending](CachingOptions::unordered), and in [`trim`](MemoryManager::trim). It then waits for all
/// work of the context with `cuCtxSynchronize`. While a capture may be open, which that call would
/// invalidate, the pool frees a small synchronous allocation instead, which also waits.
///
/// # Tests without a GPU
/// On the software driver of `cuda-sim`, an access beyond the requested size of a block is a misuse, and so is one to a
/// block after its free in stream order. With other drivers, each of these is an access to a slab.
///
/// # Clean-up
/// The pool returns memory to its upstream manager in [`trim`](MemoryManager::trim), in
/// [`reset`](MemoryManager::reset), when there is not enough memory, and when it is dropped. While a
/// [guard](MemoryManager::defer_cleanup) is alive, the first three do not happen; frees are as fast as
/// ever.
///
/// ```no_run
/// use cuda_memory::CachingManager;
/// use cuda_safe::manager::{MemoryManager, set_memory_manager};
/// use cuda_safe::{Context, Device, DeviceBuffer};
///
/// set_memory_manager(CachingManager::new)?;
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// for _ in 0..1000 {
///     let mut buffer = DeviceBuffer::<f32>::uninit(&stream, 1 << 18)?;
///     buffer.fill(1.0)?;
/// }
/// let pool = context.memory_manager_as::<CachingManager>()?.expect("the manager is set");
/// println!("{:?}", pool.stats());
/// pool.trim(0)?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct CachingManager {
    thread_caches: ThreadCaches,
    thread_cache_bytes: u64,
    pool: Pool,
}

impl CachingManager {
    /// Creates a pool of synchronous memory, with a [`DriverManager`] as its upstream manager.
    ///
    /// # Errors
    /// See [`DriverManager::new`].
    #[inline]
    pub fn new(context: &Context) -> Result<Self> {
        Self::with(context, CachingOptions::default())
    }

    /// Creates a pool of synchronous memory with the given options.
    ///
    /// # Errors
    /// See [`DriverManager::new`].
    #[inline]
    pub fn with(context: &Context, options: CachingOptions) -> Result<Self> {
        let upstream = DriverManager::new(context)?;
        Self::with_upstream(context, upstream, options)
    }

    /// Creates a pool with the given upstream manager, which must be of the same context. The upstream
    /// manager also serves all host memory.
    ///
    /// # Errors
    /// The upstream manager is of another context or of another
    /// [version](cuda_safe::Invalid::ManagerVersion); the device's total memory cannot be queried.
    pub fn with_upstream<M: MemoryManager>(
        context: &Context,
        upstream: M,
        options: CachingOptions,
    ) -> Result<Self> {
        check_version::<M>()?;
        same_context("the manager", upstream.base().context(), context)?;
        Ok(Self {
            thread_caches: ThreadCaches::new(),
            thread_cache_bytes: options.thread_cache_bytes as u64,
            pool: Pool::new(context, with_current_context(Box::new(upstream)), None, options)?,
        })
    }

    /// Creates an expandable pool: a pool of [virtual memory](cuda_safe::virtual_memory) that grows in
    /// place.
    ///
    /// The pool reserves addresses for eight times the memory of the device, and maps memory to them as it
    /// grows, in steps of 2 MiB and without slabs. All free memory can be merged, and a free block at the
    /// end of the mapped memory is extended for a larger request. So the pool reserves less memory than a
    /// pool of slabs, in particular if the sizes of requests grow. Mapping 2 MiB takes about 40 µs; after
    /// that, an allocation is as fast as that of any other pool. [`slab_bytes`](CachingOptions::slab_bytes)
    /// has no effect. In the [statistics](Self::stats), each mapping counts as a slab.
    ///
    /// Like every pool it keeps what it has reserved. Free memory whose work is done is unmapped by
    /// [`trim`](MemoryManager::trim), if there is not enough memory, and before the pool would reserve more
    /// than ever before: fragmented memory is then mapped elsewhere. Memory whose neighbors are in use can be
    /// unmapped too.
    ///
    /// In replays of recorded programs, the high-water mark of the reserved memory relative to the memory in
    /// use was (`cargo test -p cuda-workbench --test sim reserves_at_most -- --nocapture`):
    ///
    /// | program | slabs | expandable |
    /// |---|--:|--:|
    /// | steps of a training loop | 1.13 | 1.06 |
    /// | decoding with growing caches of keys and values | 1.40 | 1.23 |
    /// | random sizes up to 64 MiB | 1.73 | 1.28 |
    ///
    /// An expandable pool has no slack that every stream can use. So a program whose streams free memory
    /// faster than the device completes their work can need more memory than with slabs.
    ///
    /// Only the device of the context can access the memory: access of
    /// [peers](cuda_safe::Context::enable_peer_access) to the context does not include virtual memory. The
    /// memory has no [IPC handle](MemoryManager::ipc_handle). Dropping the pool waits for all work, because
    /// unmapping does not.
    ///
    /// A block can lie in several mappings. Raw calls that copy across them need a current context: see
    /// [`GrowableBuffer`](cuda_safe::virtual_memory::GrowableBuffer).
    ///
    /// Host memory and managed memory are those of a [`DriverManager`].
    ///
    /// # Errors
    /// Errors of [`Reservation::new`](cuda_safe::virtual_memory::Reservation::new); `CUDA_ERROR_NOT_SUPPORTED`
    /// or [`Error::Missing`] without virtual memory management (before CUDA 10.2).
    ///
    /// ```no_run
    /// use cuda_memory::{CachingManager, CachingOptions};
    /// use cuda_safe::manager::set_memory_manager;
    /// use cuda_safe::{Context, Device, DeviceBuffer};
    ///
    /// set_memory_manager(|context| CachingManager::expandable(context, CachingOptions::default()))?;
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let stream = context.stream()?;
    /// for len in [1 << 20, 1 << 21, 1 << 22] {
    ///     // Each buffer takes the place of the one before it.
    ///     drop(DeviceBuffer::<f32>::uninit(&stream, len)?);
    /// }
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[inline]
    pub fn expandable(context: &Context, options: CachingOptions) -> Result<Self> {
        let upstream = DriverManager::new(context)?;
        let segment = Segment::new(upstream.base().context())?;
        Ok(Self {
            thread_caches: ThreadCaches::new(),
            thread_cache_bytes: options.thread_cache_bytes as u64,
            pool: Pool::new(context, Box::new(upstream), Some(segment), options)?,
        })
    }

    /// Returns the upstream manager.
    #[inline]
    pub fn upstream(&self) -> &dyn MemoryManager {
        self.pool.upstream()
    }

    /// Returns the options that the pool was created with.
    #[inline]
    pub fn options(&self) -> CachingOptions {
        self.pool.options()
    }

    /// Returns statistics of the pool. The call inspects every cache and is not meant for hot paths. In
    /// a forked child all values are zero.
    #[inline]
    pub fn stats(&self) -> CacheStats {
        self.pool.stats(&self.thread_caches)
    }

    /// Returns the stream of an order if the pool may keep an entry of its progress, because it will be
    /// notified of the stream's end.
    #[inline]
    fn tracked(&self, order: Order<'_>) -> Option<(StreamKey, Reach)> {
        let key = persistent(order).filter(|_| !order.is_transient_for(self))?;
        let reach = match order.stream() {
            Some(stream) => Reach::Held(stream.downgrade()),
            None if key == LEGACY => Reach::Always,
            None => Reach::Named,
        };
        Some((key, reach))
    }

    /// Allocates a block that the thread's cache does not have.
    #[cold]
    #[inline(never)]
    fn allocate_shared(&self, size: usize, order: Order<'_>) -> Result<Block> {
        let stream = self.tracked(order);
        self.pool.allocate(&self.thread_caches, size, order, stream)
    }

    /// Frees a block for which there is no per-thread cache, or which has no room there.
    #[cold]
    #[inline(never)]
    fn free_shared(&self, id: u32, class: u8, order: Order<'_>) {
        let stream = self.tracked(order);
        self.pool.free(&self.thread_caches, id, class, order, stream);
    }
}

/// Returns the stream of an order if the pool may have a per-thread cache of it, because the order is
/// persistent.
#[inline]
fn persistent(order: Order<'_>) -> Option<StreamKey> {
    order.key().filter(|_| !order.is_transient())
}

/// Returns the identifier of a block: its node and its class.
#[inline]
fn token(id: u32, class: u8) -> u64 {
    u64::from(id) | u64::from(class) << 32
}

// SAFETY: blocks are non-overlapping parts of slabs of the upstream manager (`heap`), at multiples of
// 512 bytes. A block that was freed on a stream either is in a per-thread cache of that stream, which
// reuses it in stream order, or has a sync point in the stream progress; it is then allocated when that
// sync point is done, after an event that covers it, or to the same stream. For a stream whose end the
// pool is not notified of, it keeps no per-thread cache and no sync point without an event. A block
// that was freed without a stream is allocated when a wait for the whole context that began later has
// ended. A slab is returned when all of it is free, without a stream.
unsafe impl MemoryManager for CachingManager {
    #[inline]
    fn interface_version() -> u32 {
        INTERFACE
    }

    #[inline]
    fn base(&self) -> &DriverMemory {
        self.pool.upstream().base()
    }

    #[inline]
    fn wrapped(&self) -> Option<&dyn MemoryManager> {
        Some(self.upstream())
    }

    #[inline]
    fn initialize(&self) -> Result<()> {
        self.upstream().initialize()
    }

    #[inline]
    fn reset(&self) {
        // Memory whose work cannot be waited for stays cached.
        let _ = self.pool.trim(&self.thread_caches, 0);
        self.pool.upstream().reset();
    }

    #[inline]
    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        // No per-thread cache has a block of zero bytes.
        let class = match size {
            0 => classes::NONE,
            _ => classes::class_of(size as u64),
        };
        // In a forked child, a lock may be held forever by a thread that does not exist there.
        if let Some(stream) = persistent(order).filter(|_| !in_forked_child()) {
            if let Some(mut cache) = self.thread_caches.find(stream) {
                if let Some(idle) = cache.pop(class) {
                    drop(cache);
                    return Ok(self.pool.allocated(idle, (size, class), order));
                }
            }
        }
        self.allocate_shared(size, order)
    }

    #[inline]
    unsafe fn free(&self, block: Block, order: Order<'_>) {
        if in_forked_child() {
            return report_leak("device memory", Error::Forked);
        }
        let (id, class) = (block.token as u32, (block.token >> 32) as u8);
        if let Some(zones) = &self.pool.zones {
            zones.free(block.address, block.size as u64, order);
        }
        if let Some(stream) = persistent(order) {
            let address = block.address;
            if let Some(mut cache) = self.thread_caches.find(stream) {
                let idle = Idle { address, id };
                if cache.push(class, idle, self.thread_cache_bytes).is_ok() {
                    return;
                }
            }
        }
        self.free_shared(id, class, order);
    }

    #[inline]
    fn allocate_host(&self, size: usize, flags: PinnedFlags) -> Result<HostBlock> {
        self.upstream().allocate_host(size, flags)
    }

    #[inline]
    unsafe fn free_host(&self, block: HostBlock, order: Order<'_>) {
        // SAFETY: the caller's promise.
        unsafe { self.upstream().free_host(block, order) }
    }

    #[inline]
    unsafe fn pin(&self, start: NonNull<u8>, size: usize, flags: PinnedFlags) -> Result<HostBlock> {
        // SAFETY: the caller's promise.
        unsafe { self.upstream().pin(start, size, flags) }
    }

    #[inline]
    unsafe fn unpin(&self, block: HostBlock) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.upstream().unpin(block) }
    }

    #[inline]
    unsafe fn release_pin(&self, block: HostBlock, owner: Box<dyn Any + Send>, order: Order<'_>) {
        // SAFETY: the caller's promise.
        unsafe { self.upstream().release_pin(block, owner, order) }
    }

    #[inline]
    fn allocate_managed(&self, size: usize, global: bool) -> Result<Block> {
        self.upstream().allocate_managed(size, global)
    }

    #[inline]
    unsafe fn free_managed(&self, block: Block, order: Order<'_>) {
        // SAFETY: the caller's promise.
        unsafe { self.upstream().free_managed(block, order) }
    }

    /// Returns the memory of the upstream manager, where the cached bytes count as free.
    #[inline]
    fn memory_info(&self) -> Result<MemoryInfo> {
        let info = self.upstream().memory_info()?;
        let kept = self.pool.cached(&self.thread_caches);
        Ok(MemoryInfo { free: info.free.saturating_add(kept), total: info.total })
    }

    /// Returns the upstream manager's handle of the part of a slab that the block is.
    #[inline]
    fn ipc_handle(&self, block: &Block) -> Result<IpcHandle> {
        let slab = self.pool.slab_of(block.token as u32, block)?;
        self.upstream().ipc_handle(&slab)
    }

    #[inline]
    fn defer_cleanup(&self) -> CleanupGuard {
        // The pool asks the base whether a guard is alive.
        self.upstream().defer_cleanup()
    }

    #[inline]
    fn trim(&self, keep: usize) -> Result<usize> {
        self.pool.trim(&self.thread_caches, keep)
    }

    #[inline]
    fn stream_ends(&self, end: &StreamEnd<'_>) {
        self.pool.stream_ends(&self.thread_caches, end);
    }
}

impl Drop for CachingManager {
    #[inline]
    fn drop(&mut self) {
        if in_forked_child() {
            return;
        }
        self.pool.end();
    }
}

impl fmt::Debug for CachingManager {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachingManager")
            .field("upstream", &self.pool.upstream())
            .finish_non_exhaustive()
    }
}
