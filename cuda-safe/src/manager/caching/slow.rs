//! What a pool does where no lane has what is asked for.
//!
//! One lock is around the heap and the books. It is never held by who waits for work on the host, nor by
//! who calls the manager below: that may wait for a host function, which may free something here. And it
//! comes before those of lanes.

use super::books::{Books, NOBODYS};
use super::classes::{self, LARGE_GRAIN, NONE, rounded};
use super::heap::{Heap, Id};
use super::lanes::{Counts, Idle, Lane, Lanes};
use super::{CacheFigures, CachingOptions, lasting, token};
use crate::call::call;
use crate::context::Context;
use crate::error::{DriverError, Error, Result};
use crate::event::Event;
use crate::invalid::Invalid;
use crate::manager::defer::Held;
use crate::manager::order::refuse_captured;
use crate::manager::part::wait_for_context;
use crate::manager::{Block, CleanupGuard, MemoryManager, Order, is_out_of_memory};
use crate::release::{self, relaxed};
use crate::stream::{a_capture_may_be_open, refuse_inside, stay_outside_raw};
use cuda_sys::{CUresult, CUstream};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// What all threads share.
pub(super) struct Shared {
    heap: Heap,
    books: Books,
    counts: Counts,
    misses: u64,
    grown: u64,
    stream_waits: u64,
    host_waits: u64,
    reserved_high: u64,
    /// Bytes that were freed in nobody's order, of which some are pending.
    nobodys: u64,
    /// Bytes that threads are taking from the manager below.
    taking: u64,
}

pub(super) struct Pool {
    shared: Mutex<Shared>,
    /// What was freed while the other was another thread's, and the stream in whose order.
    loose: Mutex<Vec<(Id, Option<usize>)>>,
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

    pub(super) fn guard(&self) -> CleanupGuard {
        self.held.guard()
    }

    /// The lock, with what was freed meanwhile.
    fn lock(&self) -> MutexGuard<'_, Shared> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        self.take_loose(&mut shared);
        shared
    }

    fn take_loose(&self, shared: &mut Shared) {
        let loose = {
            let mut loose = self.loose.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *loose)
        };
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
        refuse_inside()?;
        if crate::fork::in_child() {
            return Err(Error::Forked);
        }
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
        let found = match a_capture_may_be_open() {
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
        if want.order.raw().is_none() && self.is_too_much_pending() {
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
        self.lock().collect(lanes);
        self.settle()?;
        if let Some(idle) = self.lock().find_now(want) {
            return Ok(idle);
        }
        match self.give_slabs_back(0) {
            0 => Err(error),
            _ => self.grow(want),
        }
    }

    fn is_too_much_pending(&self) -> bool {
        if self.held.is_held() {
            return false;
        }
        let shared = self.lock();
        shared.books.nobodys_pending() > self.options.unordered.count as u64
            || shared.nobodys > self.pending_bytes
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
        // Perhaps in a host function, for which the thread that has the lock waits.
        let mut shared = match self.shared.try_lock() {
            Ok(shared) => shared,
            Err(TryLockError::Poisoned(shared)) => shared.into_inner(),
            Err(TryLockError::WouldBlock) => {
                // What is of a passing stream's order comes behind all work.
                let stream = stream.map(CUstream::addr);
                let mut loose = self.loose.lock().unwrap_or_else(PoisonError::into_inner);
                return loose.push((id, stream));
            }
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

    /// A stream ends: its lanes are emptied, and its book is closed.
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
        release::drain();
        if self.held.is_held() {
            return Ok(0);
        }
        let is_pending = {
            let mut shared = self.lock();
            shared.collect(lanes);
            let idle = shared.heap.idle();
            idle.iter()
                .any(|(.., marks)| !shared.books.are_done_but_for(marks, None))
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
    /// kept; how many bytes those were.
    fn give_slabs_back(&self, keep: usize) -> usize {
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
        bytes
    }

    /// The bytes that are kept.
    pub(super) fn kept(&self, lanes: &Lanes) -> usize {
        let mut kept = self.lock().heap.free_bytes;
        lanes.each(None, |lane| kept += lane.bytes);
        usize::try_from(kept).unwrap_or(usize::MAX)
    }

    pub(super) fn figures(&self, lanes: &Lanes) -> CacheFigures {
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

/// What is asked for.
struct Want<'a> {
    /// As rounded.
    bytes: u64,
    class: u8,
    order: Order<'a>,
    /// The stream, if it is one that lasts.
    stream: Option<CUstream>,
}

impl Shared {
    fn idle(&self, id: Id) -> Idle {
        Idle {
            address: self.heap.address(id),
            id,
        }
    }

    fn give_in_order(&mut self, id: Id, stream: CUstream) {
        let book = self.books.of(stream);
        let mark = self.books.mark(book);
        self.heap.give(id, &[mark]);
    }

    fn give_nobodys(&mut self, id: Id) {
        self.nobodys += self.heap.size(id);
        let mark = self.books.mark(NOBODYS);
        self.heap.give(id, &[mark]);
    }

    fn settled(&mut self, numbers: &[u64]) {
        self.books.settled(numbers);
        if self.books.nobodys_pending() == 0 {
            self.nobodys = 0;
        }
        self.heap.forget_done(&self.books);
    }

    /// What is kept and can be used without a wait.
    fn find_kept(&mut self, lanes: &Lanes, want: &Want<'_>) -> Result<Option<Idle>> {
        self.open_lane(lanes, want)?;
        // Other threads have freed something of that stream.
        if let Some(stream) = want.stream.filter(|_| want.class != NONE) {
            let mut found = None;
            lanes.each(Some(stream), |lane| {
                if found.is_none() {
                    found = lane.pop(want.class);
                }
            });
            if found.is_some() {
                return Ok(found);
            }
        }
        if let Some(idle) = self.find_now(want) {
            return Ok(Some(idle));
        }
        self.books.poll();
        if let Some(idle) = self.find_now(want) {
            return Ok(Some(idle));
        }
        // All that lies in lanes, in one piece with what is beside it.
        self.collect(lanes);
        if let Some(idle) = self.find_now(want) {
            return Ok(Some(idle));
        }
        // Events behind that, for the next time at the latest.
        self.books.poll();
        Ok(self.find_now(want))
    }

    /// What the stream may use now.
    fn find_now(&mut self, want: &Want<'_>) -> Option<Idle> {
        let book = want.stream.and_then(|stream| self.books.find(stream));
        let id = self.heap.find(want.bytes, book, &self.books)?;
        let id = self.heap.take(id, want.bytes);
        Some(self.idle(id))
    }

    /// What the stream may use behind others' work.
    fn find_behind(&mut self, want: &Want<'_>, context: &Context) -> Option<Idle> {
        let raw = want.order.raw()?;
        let id = self.heap.find_any(want.bytes)?;
        let own = want.stream.and_then(|stream| self.books.find(stream));
        let marks = self.heap.marks(id).to_vec();
        let events = self.books.events_of(&marks, own)?;
        let _outside = stay_outside_raw(raw)?;
        refuse_captured(want.order, context).ok()?;
        wait_for_events(&events, want.order, context).ok()?;
        self.stream_waits += 1;
        let id = self.heap.take(id, want.bytes);
        Some(self.idle(id))
    }

    /// The stream gets a book, and the thread a lane for it.
    fn open_lane(&mut self, lanes: &Lanes, want: &Want<'_>) -> Result<()> {
        if let Some(stream) = want.stream {
            self.books.begin(stream)?;
            drop(lanes.open(stream));
        }
        Ok(())
    }

    /// Puts what is in lanes into the heap.
    fn collect(&mut self, lanes: &Lanes) {
        let Self { heap, books, .. } = self;
        lanes.each(None, |lane: &mut Lane| {
            let Some(stream) = lane.stream().filter(|_| lane.bytes != 0) else {
                return;
            };
            let book = books.of(handle(stream));
            let mark = books.mark(book);
            for idle in lane.take_all() {
                heap.give(idle.id, &[mark]);
            }
        });
    }
}

/// Of no provenance: the driver knows its handles by their numbers.
fn handle(stream: usize) -> CUstream {
    std::ptr::without_provenance_mut(stream)
}

fn wait_for_events(events: &[Event], order: Order<'_>, context: &Context) -> Result<()> {
    for event in events {
        order.call(context, |raw| {
            // SAFETY: the stream is alive during the call, and not captured; the driver keeps what it
            // needs of the event.
            unsafe { call!(cuStreamWaitEvent(raw, event.raw(), 0)) }
        })?;
    }
    Ok(())
}

fn out_of_memory(limit: u64, used: u64, asked: u64) -> Error {
    Invalid::MemoryLimit { limit, used, asked }.into()
}
