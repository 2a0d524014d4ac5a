//! The state of a pool that all threads share, protected by its lock: the heap and the stream progress.
//! No function here calls the driver or other code.

use super::classes::NONE;
use super::heap::{Heap, Id};
use super::stream_progress::{Reach, StreamKey, StreamProgress, UNORDERED};
use super::thread_caches::{Idle, ThreadCache, ThreadCaches};
use cuda_safe::manager::Order;
use cuda_safe::virtual_memory::Mapping;
use std::collections::BTreeMap;

/// The state of a pool that all threads share.
pub(super) struct Shared {
    pub(super) heap: Heap,
    /// The mappings of an expandable pool, by their addresses. They are unmapped without the lock.
    pub(super) mappings: BTreeMap<u64, Mapping>,
    pub(super) progress: StreamProgress,
    /// The hits of per-thread caches that were closed.
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) slabs_added: u64,
    pub(super) stream_waits: u64,
    pub(super) host_waits: u64,
    pub(super) reserved_peak: u64,
    /// The bytes of all blocks that were freed without a stream since the last time when none of them
    /// was pending.
    pub(super) unordered: u64,
    /// The bytes that threads are allocating from the upstream manager.
    pub(super) taking: u64,
}

/// A request for memory.
pub(super) struct Request<'a> {
    /// The size in bytes, rounded up.
    pub(super) bytes: u64,
    pub(super) class: u8,
    pub(super) order: Order<'a>,
    /// The stream, if the pool may keep an entry of its progress.
    pub(super) stream: Option<(StreamKey, Reach)>,
}

impl Request<'_> {
    #[inline]
    fn stream(&self) -> Option<StreamKey> {
        self.stream.as_ref().map(|(stream, _)| *stream)
    }

    #[inline]
    pub(super) fn entry(&self, progress: &StreamProgress) -> Option<u32> {
        self.stream().and_then(|stream| progress.find(stream))
    }
}

impl Shared {
    #[inline]
    pub(super) fn idle(&self, id: Id) -> Idle {
        Idle { address: self.heap.address(id), id }
    }

    #[inline]
    pub(super) fn give_unordered(&mut self, id: Id) {
        self.unordered += self.heap.size(id);
        let point = self.progress.sync_point(UNORDERED);
        self.heap.give(id, &[point]);
    }

    /// Frees a block on a stream that has an entry, into a per-thread cache or into the heap.
    #[inline]
    pub(super) fn give_in_order(
        &mut self,
        thread_caches: &ThreadCaches,
        (id, class): (Id, u8),
        (stream, entry): (StreamKey, u32),
        thread_cache_bytes: usize,
    ) {
        let idle = self.idle(id);
        let limit = thread_cache_bytes as u64;
        let mut over = Vec::new();
        let mut is_kept = false;
        if let Some(mut cache) = (class != NONE).then(|| thread_caches.open(stream)).flatten() {
            is_kept = cache.push(class, idle, limit).is_ok();
            if !is_kept {
                over = cache.take_half(class);
                is_kept = cache.push(class, idle, limit).is_ok();
            }
        }
        if !is_kept {
            over.push(idle);
        }
        if !over.is_empty() {
            let point = self.progress.sync_point(entry);
            for idle in over {
                self.heap.give(idle.id, &[point]);
            }
        }
    }

    #[inline]
    pub(super) fn settled(&mut self, numbers: &[u64]) {
        self.progress.settled(numbers);
        if self.progress.unordered_pending() == 0 {
            self.unordered = 0;
        }
        self.heap.forget_done(&self.progress);
    }

    /// Finds a block that another thread has freed on the stream.
    #[inline]
    pub(super) fn find_in_thread_caches(
        &self,
        thread_caches: &ThreadCaches,
        request: &Request<'_>,
    ) -> Option<Idle> {
        let stream = request.stream().filter(|_| request.class != NONE)?;
        let mut found = None;
        thread_caches.each(Some(stream), |cache| {
            if found.is_none() {
                found = cache.take(request.class);
            }
        });
        found
    }

    /// Finds a block that the stream may use now.
    #[inline]
    pub(super) fn find_now(&mut self, request: &Request<'_>) -> Option<Idle> {
        let entry = request.entry(&self.progress);
        let id = self.heap.find(request.bytes, entry, &self.progress)?;
        let id = self.heap.take(id, request.bytes);
        Some(self.idle(id))
    }

    /// Opens the thread's cache of the stream. Returns whether the stream has an entry; a request
    /// without a stream needs none.
    #[inline]
    pub(super) fn open_thread_cache(
        &mut self,
        thread_caches: &ThreadCaches,
        request: &Request<'_>,
    ) -> bool {
        match &request.stream {
            Some((stream, _)) if self.progress.find(*stream).is_none() => false,
            Some((stream, reach)) => {
                self.progress.of(*stream, reach);
                drop(thread_caches.open(*stream));
                true
            }
            None => true,
        }
    }

    /// Moves all blocks from the per-thread caches to the heap.
    #[inline]
    pub(super) fn collect(&mut self, thread_caches: &ThreadCaches) {
        let Self { heap, progress, .. } = self;
        thread_caches.each(None, |cache: &mut ThreadCache| {
            let Some(stream) = cache.stream().filter(|_| cache.bytes != 0) else {
                return;
            };
            // A per-thread cache is closed together with the entry of its stream.
            let entry = progress.find(stream).unwrap_or(UNORDERED);
            let point = progress.sync_point(entry);
            for idle in cache.take_all() {
                heap.give(idle.id, &[point]);
            }
        });
    }
}
