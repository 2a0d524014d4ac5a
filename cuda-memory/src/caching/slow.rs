//! The slow path of the pool, for requests that the per-thread cache cannot serve.
//!
//! One lock protects the heap and the stream progress; it is taken before the locks of per-thread
//! caches. No thread calls the driver, the upstream manager or other code while it holds the lock.
//! Under the lock, a thread decides and reserves: it takes a block out of the heap, takes an event,
//! notes numbers. Then it makes its calls, and afterwards it enters the result under the lock. So any
//! thread may take the lock, also on a driver callback thread and in the report hook.
//!
//! Reservations are undone if a call fails or panics: of a block by `Reserved`, of bytes of the limit
//! by `Taking`, of slabs by `Giving`.

use super::classes::{self, LARGE_GRAIN, rounded};
use super::heap::{Heap, Id};
use super::segment::Segment;
use super::shared::{Request, Shared};
use super::stream_progress::{Reach, StreamKey, StreamProgress, SyncPoints};
use super::thread_caches::{Idle, ThreadCaches};
use super::zones::Zones;
use super::{CacheStats, CachingOptions, token};
use crate::lock::{Mutex, MutexGuard};
use cuda_safe::error::DriverError;
use cuda_safe::manager::{
    Block, DeferOptions, FreeCounter, MemoryManager, Order, OrderEvent, in_forked_child,
    in_host_function, in_report_hook, is_out_of_memory, without_invalidating_captures,
};
use cuda_safe::{CUresult, Context, Error, Invalid, Result, attempt_deferred_releases};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError};

pub(super) struct Pool {
    shared: Mutex<Shared>,
    /// Counts the threads that return slabs to the upstream manager.
    pub(super) frees: FreeCounter,
    options: CachingOptions,
    /// The size of a slab in bytes.
    slab: u64,
    pending_bytes: u64,
    /// The addresses of an expandable pool, which maps memory there. Other pools allocate slabs.
    pub(super) segment: Option<Segment>,
    /// The software driver's functions for bytes that belong to no block.
    pub(super) zones: Option<Zones>,
    upstream: Box<dyn MemoryManager>,
}

impl Pool {
    #[inline]
    pub(super) fn new(
        context: &Context,
        upstream: Box<dyn MemoryManager>,
        segment: Option<Segment>,
        options: CachingOptions,
    ) -> Result<Self> {
        // A larger slab could not be allocated. The size is a multiple of the grain in any case.
        let most = (context.device().total_memory()? as u64).min(u64::MAX / 2);
        let slab = (options.slab_bytes as u64).min(most).next_multiple_of(LARGE_GRAIN);
        let pending_bytes = bytes_of(options.unordered, context)?;
        let mut heap = Heap::default();
        if let Some(segment) = &segment {
            heap.add_segment(segment.address(), segment.size());
        }
        Ok(Self {
            shared: Mutex::new(Shared {
                heap,
                mappings: BTreeMap::new(),
                progress: StreamProgress::new(upstream.base().context()),
                hits: 0,
                misses: 0,
                slabs_added: 0,
                stream_waits: 0,
                host_waits: 0,
                reserved_peak: 0,
                unordered: 0,
                taking: 0,
            }),
            frees: FreeCounter::default(),
            options,
            slab,
            pending_bytes,
            zones: Zones::find(segment.is_some()),
            segment,
            upstream,
        })
    }

    #[inline]
    pub(super) fn upstream(&self) -> &dyn MemoryManager {
        &*self.upstream
    }

    #[inline]
    pub(super) fn options(&self) -> CachingOptions {
        self.options
    }

    /// Returns the context, without a manager.
    #[inline]
    pub(super) fn context(&self) -> &Context {
        self.upstream.base().context()
    }

    /// Returns whether a guard defers clean-up, so that the host must not wait to free memory.
    #[inline]
    pub(super) fn is_held(&self) -> bool {
        self.upstream.base().is_cleanup_deferred()
    }

    /// Locks the shared state. Not for use in a forked child, where the lock may be held by a thread
    /// that does not exist.
    #[inline]
    pub(super) fn lock(&self) -> Locked<'_> {
        let shared = self.shared.lock();
        Locked { shared: shared.unwrap_or_else(PoisonError::into_inner), discarded: Vec::new() }
    }

    /// Allocates a block that the thread's cache does not have. `stream` is the stream of the order, if
    /// the pool may keep an entry of its progress.
    #[inline]
    pub(super) fn allocate(
        &self,
        thread_caches: &ThreadCaches,
        size: usize,
        order: Order<'_>,
        stream: Option<(StreamKey, Reach)>,
    ) -> Result<Block> {
        refuse_without_driver()?;
        if size == 0 {
            return Err(
                DriverError::new(CUresult::CUDA_ERROR_INVALID_VALUE, "cuMemAlloc_v2").into()
            );
        }
        attempt_deferred_releases();
        let class = classes::class_of(size as u64);
        let bytes = rounded(size as u64).filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes.ok_or(Invalid::TooLarge { len: size, size: 1 })?;
        let request = Request { bytes, class, order, stream };
        let found = without_invalidating_captures(|| self.find(thread_caches, &request))?;
        Ok(self.allocated(found, (size, class), order))
    }

    /// Returns an allocated block, of which an allocation of `size` bytes uses the first bytes.
    #[inline]
    pub(super) fn allocated(
        &self,
        idle: Idle,
        (size, class): (usize, u8),
        order: Order<'_>,
    ) -> Block {
        if let Some(zones) = &self.zones {
            let whole = rounded(size as u64).unwrap_or(size as u64);
            zones.allocate(idle.address, (size as u64, whole), order);
        }
        Block { address: idle.address, size, token: token(idle.id, class) }
    }

    #[inline]
    fn find(&self, thread_caches: &ThreadCaches, request: &Request<'_>) -> Result<Idle> {
        if let Some(idle) = self.find_kept(thread_caches, request)? {
            return Ok(idle);
        }
        // Waiting is preferred to reserving more memory from the driver.
        if self.is_too_much_pending(request.order) {
            self.settle()?;
            let found = self.lock().find_now(request);
            if let Some(idle) = found {
                return Ok(idle);
            }
        }
        let error = match self.grow(request) {
            Err(error) if is_out_of_memory(&error) => error,
            done => return done,
        };
        // Reuse memory after the work of other streams, if the stream can wait for that.
        if let Some(idle) = self.find_after_wait(request) {
            return Ok(idle);
        }
        if self.is_held() {
            return Err(error);
        }
        // Wait for all work. Afterwards, fragments in the cache may be merged, or whole slabs can be
        // returned to the upstream manager.
        let before = self.frees.completed();
        self.lock().collect(thread_caches);
        self.settle()?;
        let found = self.lock().find_now(request);
        if let Some(idle) = found {
            return Ok(idle);
        }
        // Another thread may also have taken the memory, to return it.
        let given = self.give_slabs_back(0);
        match given != 0 || self.frees.has_freed_since(before) {
            true => self.frees.retry(|| self.grow(request)),
            false => Err(error),
        }
    }

    /// Finds cached memory that can be used without a wait.
    #[inline]
    fn find_kept(
        &self,
        thread_caches: &ThreadCaches,
        request: &Request<'_>,
    ) -> Result<Option<Idle>> {
        let mut shared = self.lock();
        shared.misses += 1;
        if !shared.open_thread_cache(thread_caches, request) {
            drop(shared);
            // This event is for the end of the stream, which may occur where no event can be created.
            let event = OrderEvent::new(self.context())?;
            shared = self.lock();
            shared.progress.keep(event.into());
            if let Some((stream, reach)) = &request.stream {
                shared.progress.of(*stream, reach);
            }
            shared.open_thread_cache(thread_caches, request);
        }
        if let Some(idle) = shared.find_in_thread_caches(thread_caches, request) {
            return Ok(Some(idle));
        }
        if let Some(idle) = shared.find_now(request) {
            return Ok(Some(idle));
        }
        drop(shared);
        self.poll(request.order);
        let mut shared = self.lock();
        if let Some(idle) = shared.find_now(request) {
            return Ok(Some(idle));
        }
        // Move all blocks of per-thread caches to the heap, where they are merged with adjacent ones.
        shared.collect(thread_caches);
        if let Some(idle) = shared.find_now(request) {
            return Ok(Some(idle));
        }
        drop(shared);
        // Record events after those blocks' uses. They help the next call, if not this one.
        self.poll(request.order);
        Ok(self.lock().find_now(request))
    }

    #[inline]
    fn is_too_much_pending(&self, order: Order<'_>) -> bool {
        if self.is_held() {
            return false;
        }
        let shared = self.lock();
        let is_over = shared.progress.unordered_pending() > self.options.unordered.count as u64;
        shared.unordered > self.pending_bytes || is_over && order.key().is_none()
    }

    /// Adds a slab from the upstream manager, or maps memory to a segment.
    #[inline]
    fn grow(&self, request: &Request<'_>) -> Result<Idle> {
        if let Some(segment) = &self.segment {
            return self.grow_segment(segment, request);
        }
        let slab = self.slab;
        // This does not overflow, as a request is at most `isize::MAX`.
        let exact = request.bytes.next_multiple_of(LARGE_GRAIN);
        if exact > slab / 2 {
            return self.add_slab(exact, request);
        }
        match self.add_slab(slab, request) {
            Err(why) if is_out_of_memory(&why) => self.add_slab(exact, request),
            done => done,
        }
    }

    /// Allocates a slab from the upstream manager, and takes a block of it.
    #[inline]
    fn add_slab(&self, size: u64, request: &Request<'_>) -> Result<Idle> {
        let taking = self.take(size)?;
        // A size that can be addressed fits in a `usize`.
        let bytes = usize::try_from(size).unwrap_or(usize::MAX);
        let memory = self.upstream.allocate(bytes, Order::NONE)?;
        if let Some(zones) = &self.zones {
            zones.add(memory.address, size);
        }
        let mut shared = self.lock();
        shared.taking -= size;
        std::mem::forget(taking);
        let id = shared.heap.add(memory);
        shared.heap.shrink(id, request.bytes);
        shared.slabs_added += 1;
        shared.reserved_peak = shared.reserved_peak.max(shared.heap.reserved);
        Ok(shared.idle(id))
    }

    /// Reserves bytes of the limit until they become a slab.
    #[inline]
    pub(super) fn take(&self, size: u64) -> Result<Taking<'_>> {
        let limit = self.options.max_bytes as u64;
        let mut shared = self.lock();
        // This includes the bytes that other threads are allocating.
        let taken = shared.heap.reserved.saturating_add(shared.taking);
        let total = taken.checked_add(size);
        if total.is_none_or(|total| limit != 0 && total > limit) {
            return Err(out_of_memory(limit, taken, size));
        }
        shared.taking += size;
        Ok(Taking { pool: self, size })
    }

    /// Waits for all work of the context, and updates the stream progress.
    #[inline]
    pub(super) fn settle(&self) -> Result<()> {
        let numbers = {
            let shared = self.lock();
            shared.progress.numbers()
        };
        self.upstream.base().synchronize()?;
        let mut shared = self.lock();
        shared.host_waits += 1;
        shared.settled(&numbers);
        Ok(())
    }

    /// Frees a block for which there is no per-thread cache, or which has no room there. For `stream`,
    /// see [`allocate`](Self::allocate).
    #[inline]
    pub(super) fn free(
        &self,
        thread_caches: &ThreadCaches,
        id: Id,
        class: u8,
        order: Order<'_>,
        stream: Option<(StreamKey, Reach)>,
    ) {
        if order.key().is_none() {
            return self.lock().give_unordered(id);
        }
        let Some((stream, reach)) = stream else {
            return self.free_passing(id, order);
        };
        let wanted = {
            let mut shared = self.lock();
            let entry = shared.progress.of(stream, &reach);
            shared.give_in_order(
                thread_caches,
                (id, class),
                (stream, entry),
                self.options.thread_cache_bytes,
            );
            shared.progress.wanted(entry, stream)
        };
        if let Some(wanted) = wanted {
            self.record_wanted(wanted, order);
        }
    }

    /// Returns memory to the upstream manager until at most `keep` bytes are cached. Returns the number
    /// of bytes that are no longer cached.
    #[inline]
    pub(super) fn trim(&self, thread_caches: &ThreadCaches, keep: usize) -> Result<usize> {
        refuse_without_driver()?;
        attempt_deferred_releases();
        if self.is_held() {
            return Ok(0);
        }
        let is_pending = {
            let mut shared = self.lock();
            shared.collect(thread_caches);
            let idle = shared.heap.idle();
            let is_used = |points: &SyncPoints| !shared.progress.are_done_but_for(points, None);
            shared.progress.unordered_pending() != 0
                || self.segment.is_some() && shared.heap.is_any_used(&shared.progress)
                || idle.iter().any(|(.., points)| is_used(points))
        };
        if is_pending {
            self.settle()?;
        }
        let before = self.cached(thread_caches);
        self.give_slabs_back(before.min(keep));
        // Also free the memory whose free the upstream manager has deferred.
        self.upstream.trim(0)?;
        Ok(before.saturating_sub(self.cached(thread_caches)))
    }

    /// Returns slabs to the upstream manager, the largest first, while more than `keep` bytes are
    /// cached. A slab must be entirely free, with all of its work done. Returns the number of bytes.
    #[inline]
    fn give_slabs_back(&self, keep: usize) -> usize {
        if self.segment.is_some() {
            return self.unmap_idle(keep);
        }
        let mut free = self.frees.begin();
        let mut giving = Giving { pool: self, slabs: Vec::new() };
        {
            let mut shared = self.lock();
            let mut idle = shared.heap.idle();
            idle.retain(|(.., points)| shared.progress.are_done_but_for(points, None));
            idle.sort_by_key(|(_, size, _)| std::cmp::Reverse(*size));
            for (place, ..) in idle {
                let kept = usize::try_from(shared.heap.free_bytes).unwrap_or(usize::MAX);
                if kept <= keep {
                    break;
                }
                giving.slabs.extend(shared.heap.remove(place));
            }
        }
        if !giving.slabs.is_empty() {
            free.mark_freed();
        }
        let bytes = giving.slabs.iter().map(|slab| slab.size).sum();
        // `pop` takes from the end, so the largest is returned first.
        giving.slabs.reverse();
        while let Some(slab) = giving.slabs.pop() {
            self.remove_zones(&slab);
            // SAFETY: the slab is of the upstream manager, no part of it is allocated, and all work
            // that used it is done.
            unsafe { self.upstream.free(slab, Order::NONE) };
        }
        bytes
    }

    /// Makes all of a slab accessible that returns to the upstream manager.
    #[inline]
    fn remove_zones(&self, slab: &Block) {
        if let Some(zones) = &self.zones {
            zones.remove(slab.address, slab.size as u64);
        }
    }

    /// Returns a block as a part of the upstream manager's memory that it lies in.
    #[inline]
    pub(super) fn slab_of(&self, id: Id, block: &Block) -> Result<Block> {
        if in_forked_child() {
            return Err(Error::Forked);
        }
        if self.segment.is_some() {
            let memory = "virtual";
            return Err(Invalid::NotShareable { memory }.into());
        }
        let token = self.lock().heap.token_below(id, block);
        let token = token.ok_or(Invalid::NotShareable { memory: "foreign-owned" })?;
        Ok(Block { token, ..*block })
    }

    /// Returns the number of cached bytes.
    #[inline]
    pub(super) fn cached(&self, thread_caches: &ThreadCaches) -> usize {
        if in_forked_child() {
            return 0;
        }
        let mut kept = self.lock().heap.free_bytes;
        thread_caches.each(None, |cache| kept += cache.bytes);
        usize::try_from(kept).unwrap_or(usize::MAX)
    }

    #[inline]
    pub(super) fn stats(&self, thread_caches: &ThreadCaches) -> CacheStats {
        if in_forked_child() {
            return CacheStats::default();
        }
        let shared = self.lock();
        let (mut in_thread_caches, mut hits) = (0, shared.hits);
        thread_caches.each(None, |cache| {
            in_thread_caches += cache.bytes;
            hits += cache.hits;
        });
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let heap = &shared.heap;
        CacheStats {
            reserved: bytes(heap.reserved),
            reserved_peak: bytes(shared.reserved_peak),
            in_use: bytes(heap.reserved.saturating_sub(heap.free_bytes + in_thread_caches)),
            in_thread_caches: bytes(in_thread_caches),
            in_heap: bytes(heap.free_bytes),
            largest_free: bytes(heap.largest_free()),
            slabs: match self.segment {
                Some(_) => shared.mappings.len(),
                None => heap.slab_count(),
            },
            hits,
            misses: shared.misses,
            slabs_added: shared.slabs_added,
            stream_waits: shared.stream_waits,
            host_waits: shared.host_waits,
        }
    }

    /// Returns the shared state of a pool that no other thread uses.
    #[inline]
    pub(super) fn shared_mut(&mut self) -> &mut Shared {
        let shared = self.shared.get_mut();
        shared.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all slabs without a stream, so that the upstream manager reuses them only after all
    /// work.
    #[inline]
    pub(super) fn end(&mut self) {
        if self.segment.is_some() {
            return self.end_segment();
        }
        let heap = std::mem::take(&mut self.shared_mut().heap);
        for slab in heap.into_slabs() {
            self.remove_zones(&slab);
            // SAFETY: the slab is of that manager. All parts of it have been freed, as the owner of a
            // part holds the context, and so the pool.
            unsafe { self.upstream.free(slab, Order::NONE) };
        }
    }
}

/// The lock of a pool. Events that are discarded under it are destroyed after it is released.
pub(super) struct Locked<'a> {
    // Fields are dropped in this order.
    shared: MutexGuard<'a, Shared>,
    discarded: Vec<Arc<OrderEvent>>,
}

impl Deref for Locked<'_> {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Shared {
        &mut self.shared
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.discarded = std::mem::take(&mut self.shared.progress.discarded);
    }
}

/// Reserved bytes of the limit, until they become a slab or this is dropped.
pub(super) struct Taking<'a> {
    pool: &'a Pool,
    size: u64,
}

impl Drop for Taking<'_> {
    #[inline]
    fn drop(&mut self) {
        self.pool.lock().taking -= self.size;
    }
}

/// Slabs to return to the upstream manager. If a free panics, the remaining ones stay cached.
struct Giving<'a> {
    pool: &'a Pool,
    slabs: Vec<Block>,
}

impl Drop for Giving<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.slabs.is_empty() {
            return;
        }
        let mut shared = self.pool.lock();
        for slab in self.slabs.drain(..) {
            let id = shared.heap.add(slab);
            shared.heap.give(id, &[]);
        }
    }
}

/// Fails where the driver cannot be called: in host functions, in forked children, and in the report
/// hook, which can be called in the middle of any operation.
#[inline]
fn refuse_without_driver() -> Result<()> {
    if in_host_function() || in_report_hook() {
        return Err(Error::InHostFunction);
    }
    match in_forked_child() {
        false => Ok(()),
        true => Err(Error::Forked),
    }
}

/// Returns the share of unordered memory in bytes.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a share of memory need not be exact, and casts of floats saturate"
)]
#[inline]
fn bytes_of(options: DeferOptions, context: &Context) -> Result<u64> {
    Ok((context.device().total_memory()? as f64 * options.share) as u64)
}

#[inline]
pub(super) fn out_of_memory(limit: u64, used: u64, asked: u64) -> Error {
    Invalid::MemoryLimit { limit, used, asked }.into()
}
