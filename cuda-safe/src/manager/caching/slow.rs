//! What a pool does where no lane has what is asked for.
//!
//! One lock is around the heap and the books; it comes before those of lanes. No thread calls the driver, the
//! upstream manager or other code while it holds the lock. Under the lock a thread decides and reserves: it takes
//! a block out of the heap, takes an event, notes numbers. Then it makes its calls, and then it enters the result
//! under the lock. So any thread may take the lock, also on a driver callback thread and in the report hook.
//!
//! What is reserved goes back if a call fails or panics: a block by `Reserved`, bytes of the limit by `Taking`,
//! slabs by `Giving`.

use super::books::{Books, Marks, Reach};
use super::classes::{self, LARGE_GRAIN, rounded};
use super::heap::{Heap, Id};
use super::lanes::{Counts, Idle, Lanes};
use super::shared::{Shared, Want};
use super::{CacheFigures, CachingManager, CachingOptions, lasting, token};
use crate::context::Context;
use crate::error::{DriverError, Error, Result};
use crate::event::Event;
use crate::fork;
use crate::invalid::Invalid;
use crate::manager::capture::sparing_captures;
use crate::manager::defer::Held;
use crate::manager::lock::Frees;
use crate::manager::part::wait_for_context;
use crate::manager::{Block, CleanupGuard, MemoryManager, Order, is_out_of_memory, with_wrapped};
use crate::release;
use crate::report::in_hook;
use crate::stream::refuse_inside;
use crate::sync::{Mutex, MutexGuard};
use cuda_sys::{CU_STREAM_LEGACY, CUresult, CUstream};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError};

pub(super) struct Pool {
    shared: Mutex<Shared>,
    /// The threads that give slabs back.
    frees: Frees,
    held: Held,
    options: CachingOptions,
    /// The bytes of a slab.
    slab: u64,
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
        // A larger slab could not be allocated. It is a multiple of the grain in any case.
        let most = (context.device().total_memory()? as u64).min(u64::MAX / 2);
        let slab = (options.slab_bytes as u64)
            .min(most)
            .next_multiple_of(LARGE_GRAIN);
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
            frees: Frees::default(),
            held: Held::default(),
            options,
            slab,
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

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// The lock. Not in a forked child, where it may belong to a thread that does not exist.
    pub(super) fn lock(&self) -> Locked<'_> {
        let shared = self.shared.lock();
        Locked {
            shared: shared.unwrap_or_else(PoisonError::into_inner),
            discarded: Vec::new(),
        }
    }

    /// Returns the stream of an order, if the pool may keep a book of it: if it hears of the end.
    fn lasting(&self, order: Order<'_>) -> Option<(CUstream, Reach)> {
        let raw = lasting(order)?;
        let reach = match order.stream() {
            Some(stream) if self.hears_of(stream.context()) => Reach::Held(stream.downgrade()),
            Some(_) => return None,
            None if raw == CU_STREAM_LEGACY => Reach::Always,
            None => Reach::Named,
        };
        Some((raw, reach))
    }

    /// Whether this pool is among the managers that hear of the ends of a context's streams.
    fn hears_of(&self, context: &Context) -> bool {
        let mut managers = context.made_manager().into_iter().flat_map(with_wrapped);
        managers.any(|its| {
            let its = its.as_any().downcast_ref::<CachingManager>();
            its.is_some_and(|its| std::ptr::eq(&raw const its.pool, self))
        })
    }

    /// For what no lane has.
    #[cold]
    #[inline(never)]
    pub(super) fn allocate(&self, lanes: &Lanes, size: usize, order: Order<'_>) -> Result<Block> {
        refuse_without_driver()?;
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
            stream: self.lasting(order),
        };
        let found = sparing_captures(|| self.find(lanes, &want))?;
        Ok(Block {
            address: found.address,
            size,
            token: token(found.id, class),
        })
    }

    fn find(&self, lanes: &Lanes, want: &Want<'_>) -> Result<Idle> {
        if let Some(idle) = self.find_kept(lanes, want)? {
            return Ok(idle);
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
        if let Some(idle) = self.find_behind(want) {
            return Ok(idle);
        }
        if self.held.is_held() {
            return Err(error);
        }
        // Behind all work: what is kept in pieces may be whole then, or go back to those below.
        let before = self.frees.count();
        self.lock().collect(lanes);
        self.settle()?;
        if let Some(idle) = self.lock().find_now(want) {
            return Ok(idle);
        }
        // Or another thread has taken it, to give it back.
        let given = self.give_slabs_back(0);
        match given != 0 || self.frees.is_some_since(before) {
            true => self.frees.retry(|| self.grow(want)),
            false => Err(error),
        }
    }

    /// Finds what is kept and can be used without a wait.
    fn find_kept(&self, lanes: &Lanes, want: &Want<'_>) -> Result<Option<Idle>> {
        let mut shared = self.lock();
        shared.misses += 1;
        if !shared.open_lane(lanes, want) {
            drop(shared);
            // For the end of the stream, which may come where no event can be made.
            let event = self.context.event_now()?;
            shared = self.lock();
            shared.books.keep(event.into());
            if let Some((stream, reach)) = &want.stream {
                shared.books.of(*stream, reach);
            }
            shared.open_lane(lanes, want);
        }
        if let Some(idle) = shared.find_in_lanes(lanes, want) {
            return Ok(Some(idle));
        }
        if let Some(idle) = shared.find_now(want) {
            return Ok(Some(idle));
        }
        drop(shared);
        self.poll(want.order);
        let mut shared = self.lock();
        if let Some(idle) = shared.find_now(want) {
            return Ok(Some(idle));
        }
        // All that lies in lanes, in one piece with what is beside it.
        shared.collect(lanes);
        if let Some(idle) = shared.find_now(want) {
            return Ok(Some(idle));
        }
        drop(shared);
        // Events behind that, for the next time at the latest.
        self.poll(want.order);
        Ok(self.lock().find_now(want))
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
        let slab = self.slab;
        // It does not overflow, as a request is at most `isize::MAX`.
        let exact = want.bytes.next_multiple_of(LARGE_GRAIN);
        let sizes = if exact <= slab / 2 {
            [Some(slab), Some(exact)]
        } else {
            [Some(exact), None]
        };
        let mut error = None;
        for size in sizes.into_iter().flatten() {
            match self.add_slab(size, want) {
                Err(why) if is_out_of_memory(&why) => error = Some(why),
                done => return done,
            }
        }
        Err(error.unwrap_or_else(|| out_of_memory(0, 0, want.bytes)))
    }

    /// Allocates a slab of the upstream manager, and takes a block of it.
    fn add_slab(&self, size: u64, want: &Want<'_>) -> Result<Idle> {
        let taking = self.take(size)?;
        // Bytes that are addressed are counted by a usize.
        let bytes = usize::try_from(size).unwrap_or(usize::MAX);
        let memory = self.below.allocate(bytes, Order::NONE)?;
        let mut shared = self.lock();
        shared.taking -= size;
        std::mem::forget(taking);
        let id = shared.heap.add(memory);
        shared.heap.shrink(id, want.bytes);
        shared.grown += 1;
        shared.reserved_high = shared.reserved_high.max(shared.heap.reserved);
        Ok(shared.idle(id))
    }

    /// Reserves bytes of the limit, until they are a slab.
    fn take(&self, size: u64) -> Result<Taking<'_>> {
        let limit = self.options.max_bytes as u64;
        let mut shared = self.lock();
        // With what other threads are taking.
        let taken = shared.heap.reserved.saturating_add(shared.taking);
        let total = taken.checked_add(size);
        if total.is_none_or(|total| limit != 0 && total > limit) {
            return Err(out_of_memory(limit, taken, size));
        }
        shared.taking += size;
        Ok(Taking { pool: self, size })
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
        if order.raw().is_none() {
            return self.lock().give_nobodys(id);
        }
        let Some((stream, reach)) = self.lasting(order) else {
            return self.free_passing(id, order);
        };
        let wanted = {
            let mut shared = self.lock();
            let book = shared.books.of(stream, &reach);
            shared.give_in_order(lanes, (id, class), (stream, book), self.options.lane_bytes);
            shared.books.wanted(book, stream)
        };
        if let Some(wanted) = wanted {
            self.record_wanted(wanted, order);
        }
    }

    /// Gives memory back to the manager below, until no more than `keep` bytes are kept.
    pub(super) fn trim(&self, lanes: &Lanes, keep: usize) -> Result<usize> {
        refuse_without_driver()?;
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
    /// kept. Returns their bytes.
    fn give_slabs_back(&self, keep: usize) -> usize {
        let mut free = self.frees.begin();
        let mut giving = Giving {
            pool: self,
            slabs: Vec::new(),
        };
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
                giving.slabs.extend(shared.heap.remove(place));
            }
        }
        free.is_some = !giving.slabs.is_empty();
        let bytes = giving.slabs.iter().map(|slab| slab.size).sum();
        // The largest first.
        giving.slabs.reverse();
        while let Some(slab) = giving.slabs.pop() {
            // SAFETY: the slab is of the manager below, nobody has anything of it, and all work that used
            // it is done.
            unsafe { self.below.free(slab, Order::NONE) };
        }
        bytes
    }

    /// A block as a part of the memory below that it lies in.
    pub(super) fn slab_of(&self, id: Id, block: &Block) -> Result<Block> {
        if fork::in_child() {
            return Err(Error::Forked);
        }
        let token = self.lock().heap.token_below(id, block);
        let token = token.ok_or(Invalid::NotShareable {
            memory: "somebody else's",
        })?;
        Ok(Block { token, ..*block })
    }

    /// The bytes that are kept.
    pub(super) fn kept(&self, lanes: &Lanes) -> usize {
        if fork::in_child() {
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
        let shared = self.lock();
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

/// The lock of a pool. Events that are discarded under it are destroyed after it is released.
pub(super) struct Locked<'a> {
    // In the order in which they are dropped.
    shared: MutexGuard<'a, Shared>,
    discarded: Vec<Arc<Event>>,
}

impl Deref for Locked<'_> {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Shared {
        &mut self.shared
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.discarded = std::mem::take(&mut self.shared.books.discarded);
    }
}

/// Bytes of the limit, until they are a slab or this is dropped.
struct Taking<'a> {
    pool: &'a Pool,
    size: u64,
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.pool.lock().taking -= self.size;
    }
}

/// Slabs to be given back. Those that are left, if a free panics, are kept.
struct Giving<'a> {
    pool: &'a Pool,
    slabs: Vec<Block>,
}

impl Drop for Giving<'_> {
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

/// Refuses what calls the driver where that cannot be: in host functions, in forked children, and in the report
/// hook, which is called in the middle of anything.
fn refuse_without_driver() -> Result<()> {
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
