//! Memory of every kind with several owners. It is released once, after the last owner is dropped,
//! wherever the owners are dropped.

use super::enough;
use super::log::{Log, any_own};
use crate::common::random::Random;
use cuda_safe::manager::{
    AutoFreePointer, CleanupGuard, HostPointer, MappedMemory, MemoryPointer, Order, PinnedMemory,
};
use cuda_safe::memory::PinnedFlags;
use cuda_safe::sys::cuMemcpyDtoHAsync_v2;
use cuda_safe::{Context, DeviceBuffer, Result, Stream};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One owner of memory.
type Holder = Box<dyn Any + Send + Sync>;

/// How often a release has happened.
type Count = Arc<AtomicUsize>;

fn count(of: &Count) -> usize {
    of.load(Ordering::SeqCst)
}

/// Counts its drop.
struct Counting(Count);

impl Drop for Counting {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Memory and all of its owners.
struct Held {
    holders: Vec<Holder>,
    /// The counters of its finalizer and of its owner object, if it has them.
    ends: Vec<Count>,
}

/// All owned memory, and the foreign library that some of the memory belongs to.
pub(super) struct Store {
    held: Vec<Held>,
    added: usize,
    /// The counters of memory without owners.
    ended: Vec<Count>,
    library: DeviceBuffer<u8>,
}

const PART: usize = 4096;
const PARTS: usize = 64;
const MOST: usize = 24;
/// The number of kinds of memory, which are added in turn.
const KINDS: usize = 7;
const PAGE: usize = 4096;

impl Store {
    pub(super) fn new(context: &Context) -> Self {
        let stream = context.stream().expect("a stream");
        let library = DeviceBuffer::zeroed(&stream, PART * PARTS).expect("memory");
        // The memory is used on all streams.
        stream.synchronize().expect("a wait");
        Self { held: Vec::new(), added: 0, ended: Vec::new(), library }
    }

    /// Returns the address and size of the library's memory.
    pub(super) fn range(&self) -> (u64, usize) {
        (self.library.as_raw(), self.library.len())
    }

    /// Adds memory of the next kind.
    pub(super) fn add(
        &mut self,
        context: &Context,
        logs: &[Log],
        random: &mut Random,
        guards: &mut Vec<CleanupGuard>,
    ) {
        if self.held.len() >= MOST {
            return self.remove(logs, random);
        }
        let stream = any_own(logs, random);
        self.added += 1;
        let its = match self.added % KINDS {
            0 => self.foreign(context, random),
            1 => shared(self.foreign_memory(context, random), random),
            2 => {
                let order = [Order::NONE, Order::of(stream)][random.below(2)];
                let most = 1 << random.below(13);
                let size = 16 * (1 + random.below(most));
                let memory = enough(guards, || MemoryPointer::allocate_in(context, size, order));
                shared((memory, Vec::new()), random)
            }
            3 => {
                let size = 1 + random.below(10_000);
                let allocate = || PinnedMemory::allocate(context, size, PinnedFlags::empty());
                Held::of(enough(guards, allocate), Vec::new())
            }
            4 => {
                let size = 1 + random.below(10_000);
                let allocate = || MappedMemory::allocate(context, size, PinnedFlags::PORTABLE);
                Held::of(enough(guards, allocate), Vec::new())
            }
            5 => pinned(context, random.below(2) == 0),
            _ => {
                let size = 16 * (1 + random.below(1000));
                let is_global = random.below(2) == 0;
                let allocate = || MemoryPointer::allocate_managed(context, size, is_global);
                shared((enough(guards, allocate), Vec::new()), random)
            }
        };
        its.use_on(stream);
        self.held.push(its);
    }

    fn foreign_memory(
        &self,
        context: &Context,
        random: &mut Random,
    ) -> (MemoryPointer, Vec<Count>) {
        let (finalized, freed) = (Count::default(), Count::default());
        let address = self.library.as_raw() + (random.below(PARTS) * PART) as u64;
        let owner = Box::new(Counting(Arc::clone(&freed)));
        let (its, behind) = (Arc::clone(&finalized), Arc::clone(&freed));
        let finalizer = move || {
            assert_eq!(count(&behind), 0, "the owner is kept alive until then");
            its.fetch_add(1, Ordering::SeqCst);
        };
        // SAFETY: the library's memory lives longer, and the finalizer does not call the driver.
        let memory = unsafe {
            MemoryPointer::from_raw(context, address, PART, Some(owner), Some(Box::new(finalizer)))
        }
        .expect("memory");
        (memory, vec![finalized, freed])
    }

    fn foreign(&self, context: &Context, random: &mut Random) -> Held {
        let (memory, ends) = self.foreign_memory(context, random);
        Held { holders: vec![Box::new(memory)], ends }
    }

    /// Drops one owner: here, on another thread, or in a host function.
    pub(super) fn remove(&mut self, logs: &[Log], random: &mut Random) {
        if self.held.is_empty() {
            return;
        }
        let place = random.below(self.held.len());
        let its = &mut self.held[place];
        assert!(its.ends.iter().all(|end| count(end) == 0), "it still has owners");
        let last = its.holders.swap_remove(random.below(its.holders.len()));
        if its.holders.is_empty() {
            self.ended.append(&mut self.held.swap_remove(place).ends);
        }
        match random.below(3) {
            0 => drop(last),
            1 => std::thread::scope(|scope| {
                scope.spawn(|| drop(last));
            }),
            _ => {
                let function = move || drop(last);
                let stream = any_own(logs, random);
                stream.launch_host_function(function).expect("enqueued");
            }
        }
    }

    /// Drops all owners and checks that each release happened once.
    pub(super) fn end(mut self, context: &Context, logs: &[Log], random: &mut Random) {
        while self.added < KINDS {
            self.add(context, logs, random, &mut Vec::new());
        }
        while !self.held.is_empty() {
            self.remove(logs, random);
        }
        // The second wait completes what host functions could not release.
        for _ in 0..2 {
            context.synchronize().expect("the host functions have run");
        }
        // Releases what the guards have deferred.
        let manager = context.memory_manager().expect("made");
        manager.expect("the chosen manager").reset();
        assert!(!self.ended.is_empty());
        let wrong: Vec<usize> = self.ended.iter().map(count).filter(|its| *its != 1).collect();
        assert_eq!(wrong, [0; 0], "of {} releases", self.ended.len());
    }
}

impl Held {
    /// Returns two clones of the memory.
    fn of<T: Any + Clone + Send + Sync>(memory: T, ends: Vec<Count>) -> Self {
        Self { holders: vec![Box::new(memory.clone()), Box::new(memory)], ends }
    }

    /// Enqueues work that may still be pending when all owners are dropped.
    fn use_on(&self, stream: &Stream) {
        let Some(first) = self.holders.first() else {
            return;
        };
        if let Some(memory) = first.downcast_ref::<AutoFreePointer>() {
            fill(memory.as_raw(), memory.size(), stream);
        } else if let Some(memory) = first.downcast_ref::<MappedMemory>() {
            fill(memory.as_raw(), memory.size(), stream);
        } else if let Some(memory) = first.downcast_ref::<PinnedMemory>() {
            copy_to(memory, stream);
        }
    }
}

/// Returns parts of memory, each of which keeps all of the memory alive.
fn shared((memory, ends): (MemoryPointer, Vec<Count>), random: &mut Random) -> Held {
    let all = AutoFreePointer::from(memory);
    let part = all.part(4, all.size() - 8).expect("within");
    let within = part.part(4, 4).expect("within");
    assert_eq!(within.as_raw(), all.as_raw() + 8);
    assert!(all.part(8, all.size()).is_none());
    assert_eq!(all.references(), 3);
    let mut holders: Vec<Holder> = vec![Box::new(all), Box::new(part), Box::new(within)];
    holders.truncate(1 + random.below(3));
    Held { holders, ends }
}

/// Returns host memory, which stays alive until the driver has released it.
fn pinned(context: &Context, is_mapped: bool) -> Held {
    struct Owner {
        #[allow(dead_code, reason = "kept alive, not read")]
        bytes: Vec<u8>,
        #[allow(dead_code, reason = "kept alive, not read")]
        end: Counting,
    }
    let end = Count::default();
    let mut bytes = vec![0u8; 2 * PAGE];
    // Each memory has its own page, so that no page is pinned twice.
    let offset = bytes.as_ptr().align_offset(PAGE);
    let start = NonNull::new(bytes[offset..].as_mut_ptr()).expect("not null");
    let owner = Owner { bytes, end: Counting(Arc::clone(&end)) };
    let flags = PinnedFlags::empty();
    match is_mapped {
        true => {
            // SAFETY: the owner keeps the vector alive, and its bytes do not move.
            let memory = unsafe { MappedMemory::pin(context, owner, start, PAGE, flags) };
            Held::of(memory.expect("pinned"), vec![end])
        }
        false => {
            // SAFETY: as above.
            let memory = unsafe { PinnedMemory::pin(context, owner, start, PAGE, flags) };
            Held::of(memory.expect("pinned"), vec![end])
        }
    }
}

fn fill(address: u64, size: usize, stream: &Stream) {
    // SAFETY: the memory has this many bytes, which nothing else reads.
    let mut bytes =
        unsafe { DeviceBuffer::<u8>::borrow_raw(address, size, stream) }.expect("memory");
    bytes.fill(0xee).expect("a fill");
}

fn copy_to(memory: &HostPointer, stream: &Stream) {
    let from: Result<DeviceBuffer<u8>> = DeviceBuffer::zeroed(stream, memory.size());
    let from = from.expect("memory");
    let (to, len) = (memory.as_ptr().cast(), memory.size());
    // Memory of an expandable pool may lie in two mappings, and driver 580 rejects a copy across them if
    // no context is current.
    let _current = stream.context().make_current().expect("current");
    // SAFETY: both sides have this length, and either is freed only after this copy.
    let code = unsafe { cuMemcpyDtoHAsync_v2(to, from.as_raw(), len, stream.as_raw()) };
    let from = from.as_raw();
    assert!(code.is_success(), "{code}: {len} bytes at {from:#x} to {to:p}");
}
