//! What a pool does where no lane has what is asked for.
//!
//! One lock is around the heap and the books. It is never held by who waits for work on the host, nor by
//! who calls the manager below: that may wait for a host function, which may free something here. And it
//! comes before those of lanes. What gives back does not wait for it, as it may be called in a callback for which
//! the thread that has the lock waits in the driver, or on that thread: it leaves its word in a list, which
//! whoever has the lock next reads first. (That a stream ends is not told there.)

use super::books::{Books, Marks, handle};
use super::classes::{self, LARGE_GRAIN, NONE, rounded};
use super::heap::{Heap, Id};
use super::lanes::{Counts, Idle, Lanes};
use super::shared::{Shared, Want};
use super::{CacheFigures, CachingOptions, lasting, token};
use crate::capture;
use crate::context::Context;
use crate::error::{DriverError, Error, Result};
use crate::fork;
use crate::invalid::Invalid;
use crate::manager::defer::Held;
use crate::manager::part::wait_for_context;
use crate::manager::turn::{Asked, Turn};
use crate::manager::{Block, CleanupGuard, MemoryManager, Order, is_out_of_memory};
use crate::release::{self, relaxed};
use crate::report::in_hook;
use crate::stream::refuse_inside;
use crate::sync::{Mutex, MutexGuard};
use cuda_sys::{CUresult, CUstream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, TryLockError};

pub(super) struct Pool {
    shared: Mutex<Shared>,
    /// What was freed while that was another thread's, and the stream in whose order.
    loose: Mutex<Vec<(Id, Option<usize>)>>,
    /// Whoever gives slabs back.
    giving: Turn,
    /// How often some were given back.
    given: AtomicU64,
    held: Held,
    options: CachingOptions,
    pending_bytes: u64,
    context: Context,
    below: Box<dyn MemoryManager>,
}

impl Pool {
    pub(super) fn new(
        context: &Context,
        below: Box<dyn MemoryManager>,
        options: CachingOptions,
    ) -> Result<Self> {
        let context = context.without_manager();
        let pending_bytes = options.unordered.bytes_of(context.device())? as u64;
        Ok(Self {
            shared: Mutex::new(Shared {
                heap: Heap::default(),
                books: Books::new(&context),
                counts: Counts::default(),
                misses: 0,
                grown: 0,
                stream_waits: 0,
                host_waits: 0,
                reserved_high: 0,
                nobodys: 0,
                taking: 0,
            }),
            loose: Mutex::default(),
            giving: Turn::default(),
            given: AtomicU64::new(0),
            held: Held::default(),
            options,
            pending_bytes,
            context,
            below,
        })
    }

    pub(super) fn below(&self) -> &dyn MemoryManager {
        &*self.below
    }

    pub(super) fn options(&self) -> CachingOptions {
        self.options
    }

    pub(super) fn guard(&self) -> CleanupGuard {
        self.held.guard()
    }

    /// The lock, with what was freed meanwhile. Not in a forked child.
    fn lock(&self) -> MutexGuard<'_, Shared> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        self.take_loose(&mut shared);
        shared
    }

    /// The same without a wait; none if it is another thread's, or this one's already.
    fn try_lock(&self) -> Option<MutexGuard<'_, Shared>> {
        let mut shared = match self.shared.try_lock() {
            Ok(shared) => shared,
            Err(TryLockError::Poisoned(shared)) => shared.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        self.take_loose(&mut shared);
        Some(shared)
    }

    fn loose(&self) -> MutexGuard<'_, Vec<(Id, Option<usize>)>> {
        self.loose.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_loose(&self, shared: &mut Shared) {
        let loose = std::mem::take(&mut *self.loose());
        for (id, stream) in loose {
            match stream {
                None => shared.give_nobodys(id),
                Some(stream) => shared.give_in_order(id, handle(stream)),
            }
        }
    }

    /// For what no lane has.
    #[cold]
    #[inline(never)]
    pub(super) fn allocate(&self, lanes: &Lanes, size: usize, order: Order<'_>) -> Result<Block> {
        refuse_where_none_may_wait()?;
        if size == 0 {
            return Err(DriverError {
                code: CUresult::CUDA_ERROR_INVALID_VALUE,
                call: "cuMemAlloc_v2",
            }
            .into());
        }
        release::drain();
        let class = classes::class_of(size as u64);
        let bytes = rounded(size as u64).filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes.ok_or(Invalid::TooLarge { len: size, size: 1 })?;
        let want = Want {
            bytes,
            class,
            order,
            stream: lasting(order),
        };
        let found = match capture::may_be_open() {
            true => relaxed(|| self.find(lanes, &want)),
            false => self.find(lanes, &want),
        }?;
        Ok(Block {
            address: found.address,
            size,
            token: token(found.id, class),
        })
    }

    fn find(&self, lanes: &Lanes, want: &Want<'_>) -> Result<Idle> {
        {
            let mut shared = self.lock();
            shared.misses += 1;
            if let Some(idle) = shared.find_kept(lanes, want)? {
                return Ok(idle);
            }
        }
        // Rather than to have more of the driver.
        if self.is_too_much_pending(want.order) {
            self.settle()?;
            if let Some(idle) = self.lock().find_now(want) {
                return Ok(idle);
            }
        }
        let error = match self.grow(want) {
            Err(error) if is_out_of_memory(&error) => error,
            done => return done,
        };
        // Behind others' work, if the stream can wait for that.
        if let Some(idle) = self.lock().find_behind(want, &self.context) {
            return Ok(idle);
        }
        if self.held.is_held() {
            return Err(error);
        }
        // Behind all work: what is kept in pieces may be whole then, or go back to those below.
        let then = self.given.load(Ordering::Acquire);
        self.lock().collect(lanes);
        self.settle()?;
        if let Some(idle) = self.lock().find_now(want) {
            return Ok(idle);
        }
        // Or another thread has just taken it, to give it back.
        let given = self.give_slabs_back(0);
        match given == 0 && self.given.load(Ordering::Acquire) == then {
            true => Err(error),
            false => self.grow(want),
        }
    }

    fn is_too_much_pending(&self, order: Order<'_>) -> bool {
        if self.held.is_held() {
            return false;
        }
        let shared = self.lock();
        let is_over = shared.books.nobodys_pending() > self.options.unordered.count as u64;
        shared.nobodys > self.pending_bytes || is_over && order.raw().is_none()
    }

    /// Adds a slab of the manager below.
    fn grow(&self, want: &Want<'_>) -> Result<Idle> {
        let slab = (self.options.slab_bytes as u64).next_multiple_of(LARGE_GRAIN);
        let exact = want.bytes.next_multiple_of(LARGE_GRAIN);
        let sizes = if exact <= slab / 2 {
            [Some(slab), Some(exact)]
        } else {
            [Some(exact), None]
        };
        let mut error = None;
        for size in sizes.into_iter().flatten() {
            match self.take_from_below(size) {
                Ok(memory) => {
                    let mut shared = self.lock();
                    shared.taking -= size;
                    let id = shared.heap.add(memory);
                    shared.heap.shrink(id, want.bytes);
                    shared.grown += 1;
                    shared.reserved_high = shared.reserved_high.max(shared.heap.reserved);
                    return Ok(shared.idle(id));
                }
                Err(why) if is_out_of_memory(&why) => error = Some(why),
                Err(why) => return Err(why),
            }
        }
        Err(error.unwrap_or_else(|| out_of_memory(0, 0, want.bytes)))
    }

    /// Takes a slab from there, which is noted as being taken until it is added.
    fn take_from_below(&self, size: u64) -> Result<Block> {
        let limit = self.options.max_bytes as u64;
        {
            let mut shared = self.lock();
            // With what other threads are taking.
            let taken = shared.heap.reserved + shared.taking;
            if limit != 0 && taken.saturating_add(size) > limit {
                return Err(out_of_memory(limit, taken, size));
            }
            shared.taking += size;
        }
        // Bytes that are addressed are counted by a usize.
        let bytes = usize::try_from(size).unwrap_or(usize::MAX);
        self.below.allocate(bytes, Order::NONE).inspect_err(|_| {
            self.lock().taking -= size;
        })
    }

    /// Waits for all work of the context, and notes that.
    fn settle(&self) -> Result<()> {
        let numbers = {
            let shared = self.lock();
            shared.books.numbers()
        };
        wait_for_context(&self.context)?;
        let mut shared = self.lock();
        shared.host_waits += 1;
        shared.settled(&numbers);
        Ok(())
    }

    /// For what a lane has no room for, or that has none.
    #[cold]
    #[inline(never)]
    pub(super) fn free(&self, lanes: &Lanes, id: Id, class: u8, order: Order<'_>) {
        let stream = lasting(order);
        let Some(mut shared) = self.try_lock() else {
            // What is of a passing stream's order comes behind all work.
            let stream = stream.map(CUstream::addr);
            return self.loose().push((id, stream));
        };
        if order.raw().is_none() {
            return shared.give_nobodys(id);
        }
        let Some(stream) = stream else {
            let mark = shared.books.mark_passing(order);
            return shared.heap.give(id, &[mark]);
        };
        let address = shared.heap.address(id);
        let book = shared.books.of(stream);
        let mut over = Vec::new();
        let mut is_kept = false;
        if class != NONE {
            if let Some(mut lane) = lanes.open(stream) {
                let idle = Idle { address, id };
                is_kept = lane
                    .push(class, idle, self.options.lane_bytes as u64)
                    .is_ok();
                if !is_kept {
                    over = lane.take_half(class);
                    is_kept = lane
                        .push(class, idle, self.options.lane_bytes as u64)
                        .is_ok();
                }
            }
        }
        let mark = shared.books.mark(book);
        for idle in over {
            shared.heap.give(idle.id, &[mark]);
        }
        if !is_kept {
            shared.heap.give(id, &[mark]);
        }
    }

    /// A stream ends: its lanes are emptied, and its book is closed. Under the lock, whose other holders may
    /// record events in it.
    pub(super) fn stream_ends(&self, lanes: &Lanes, stream: CUstream) {
        let mut shared = self.lock();
        let Some(book) = shared.books.find(stream) else {
            return;
        };
        let mark = shared.books.mark(book);
        let Shared { heap, counts, .. } = &mut *shared;
        lanes.close(stream, |idles, its| {
            counts.hits += its.hits;
            counts.frees += its.frees;
            for idle in idles {
                heap.give(idle.id, &[mark]);
            }
        });
        shared.books.close(stream);
    }

    /// Gives memory back to the manager below, until no more than `keep` bytes are kept.
    pub(super) fn trim(&self, lanes: &Lanes, keep: usize) -> Result<usize> {
        refuse_where_none_may_wait()?;
        release::drain();
        if self.held.is_held() {
            return Ok(0);
        }
        let is_pending = {
            let mut shared = self.lock();
            shared.collect(lanes);
            let idle = shared.heap.idle();
            let is_used = |marks: &Marks| !shared.books.are_done_but_for(marks, None);
            shared.books.nobodys_pending() != 0 || idle.iter().any(|(.., marks)| is_used(marks))
        };
        if is_pending {
            self.settle()?;
        }
        let before = self.kept(lanes);
        self.give_slabs_back(before.min(keep));
        // What that puts off.
        self.below.trim(0)?;
        Ok(before.saturating_sub(self.kept(lanes)))
    }

    /// Gives idle slabs of which all work is done back, the largest first, while more than `keep` bytes are
    /// kept; how many bytes those were. Waits for another thread that does.
    fn give_slabs_back(&self, keep: usize) -> usize {
        // A thread that is at it, or waited for by the one that is, has no part in that.
        let Asked::Mine(_turn) = self.giving.ask() else {
            return 0;
        };
        let mut given = Vec::new();
        {
            let mut shared = self.lock();
            let mut idle = shared.heap.idle();
            idle.retain(|(.., marks)| shared.books.are_done_but_for(marks, None));
            idle.sort_by_key(|(_, size, _)| std::cmp::Reverse(*size));
            for (place, ..) in idle {
                let kept = usize::try_from(shared.heap.free_bytes).unwrap_or(usize::MAX);
                if kept <= keep {
                    break;
                }
                given.extend(shared.heap.remove(place));
            }
        }
        let bytes = given.iter().map(|slab| slab.size).sum();
        for slab in given {
            // SAFETY: the slab is of the manager below, nobody has anything of it, and all work that used
            // it is done.
            unsafe { self.below.free(slab, Order::NONE) };
        }
        if bytes != 0 {
            self.given.fetch_add(1, Ordering::Release);
        }
        bytes
    }

    /// A block as a part of the memory below that it lies in.
    pub(super) fn slab_of(&self, id: Id, block: &Block) -> Result<Block> {
        refuse_where_none_may_wait()?;
        let token = self.lock().heap.token_below(id, block);
        let token = token.ok_or(Invalid::NotShareable {
            memory: "somebody else's",
        })?;
        Ok(Block { token, ..*block })
    }

    /// The bytes that are kept.
    pub(super) fn kept(&self, lanes: &Lanes) -> usize {
        if refuse_where_none_may_wait().is_err() {
            return 0;
        }
        let mut kept = self.lock().heap.free_bytes;
        lanes.each(None, |lane| kept += lane.bytes);
        usize::try_from(kept).unwrap_or(usize::MAX)
    }

    pub(super) fn figures(&self, lanes: &Lanes) -> CacheFigures {
        if fork::in_child() {
            return CacheFigures::default();
        }
        // In a host function the lock may be that of a thread which waits for this.
        let shared = match refuse_where_none_may_wait() {
            Ok(()) => Some(self.lock()),
            Err(_) => self.try_lock(),
        };
        let Some(shared) = shared else {
            return CacheFigures::default();
        };
        let (mut in_lanes, mut hits) = (0, shared.counts.hits);
        lanes.each(None, |lane| {
            in_lanes += lane.bytes;
            hits += lane.counts.hits;
        });
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let heap = &shared.heap;
        CacheFigures {
            reserved: bytes(heap.reserved),
            reserved_high: bytes(shared.reserved_high),
            in_use: bytes(heap.reserved.saturating_sub(heap.free_bytes + in_lanes)),
            in_lanes: bytes(in_lanes),
            in_heap: bytes(heap.free_bytes),
            largest_free: bytes(heap.largest_free()),
            slabs: heap.slab_count(),
            hits,
            misses: shared.misses,
            grown: shared.grown,
            stream_waits: shared.stream_waits,
            host_waits: shared.host_waits,
        }
    }

    /// Everything goes back, as nobody's: so the manager below has it behind all work.
    pub(super) fn end(&mut self) {
        let shared = self
            .shared
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for slab in std::mem::take(&mut shared.heap).into_slabs() {
            // SAFETY: the slab is of that manager; whoever had a part of it has given it back, as that
            // holds the context, and so the pool.
            unsafe { self.below.free(slab, Order::NONE) };
        }
    }
}

/// Refuses what takes the lock where that may be this thread's own, or that of one which waits for this: in the
/// report hook, and in host functions.
fn refuse_where_none_may_wait() -> Result<()> {
    refuse_inside()?;
    if fork::in_child() {
        return Err(Error::Forked);
    }
    match in_hook() {
        false => Ok(()),
        true => Err(Error::InHostFunction),
    }
}

fn out_of_memory(limit: u64, used: u64, asked: u64) -> Error {
    Invalid::MemoryLimit { limit, used, asked }.into()
}
