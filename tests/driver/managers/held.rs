//! Memory that several hold, of every kind, and what ends it: that is run once, behind the last of them,
//! wherever they go.

use super::enough;
use super::log::{Log, any_own};
use crate::common::random::Random;
use cuda_safe::manager::{
    AutoFreePointer, CleanupGuard, HostPointer, MappedMemory, MemoryPointer, Order, PinnedMemory,
};
use cuda_safe::sys::cuMemcpyDtoHAsync_v2;
use cuda_safe::{Context, DeviceBuffer, PinnedFlags, Result, Stream};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One of those that hold memory.
type Holder = Box<dyn Any + Send + Sync>;

/// How often an end has come.
type Count = Arc<AtomicUsize>;

fn count(of: &Count) -> usize {
    of.load(Ordering::SeqCst)
}

/// Counts when it goes.
struct Counting(Count);

impl Drop for Counting {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Memory, and all who hold it.
struct Held {
    holders: Vec<Holder>,
    /// Of its finalizer, and of its owner, where it has them.
    ends: Vec<Count>,
}

/// All of it, and the library whose memory some of it is.
pub(super) struct Store {
    held: Vec<Held>,
    added: usize,
    /// Of what nobody here holds any more.
    ended: Vec<Count>,
    library: DeviceBuffer<u8>,
}

const PART: usize = 4096;
const PARTS: usize = 64;
const MOST: usize = 24;
/// Kinds of memory, which come in turn.
const KINDS: usize = 7;
const PAGE: usize = 4096;

impl Store {
    pub(super) fn new(context: &Context) -> Self {
        let stream = context.stream().expect("a stream");
        let library = DeviceBuffer::zeroed(&stream, PART * PARTS).expect("memory");
        // It is used on all streams.
        stream.synchronize().expect("a wait");
        Self {
            held: Vec::new(),
            added: 0,
            ended: Vec::new(),
            library,
        }
    }

    /// Where the library's memory is.
    pub(super) fn range(&self) -> (u64, usize) {
        (self.library.as_raw(), self.library.len())
    }

    /// Something more that is held.
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
            assert_eq!(count(&behind), 0, "the owner is kept until then");
            its.fetch_add(1, Ordering::SeqCst);
        };
        // SAFETY: the library's memory stays for longer, and the finalizer calls nobody.
        let memory = unsafe {
            MemoryPointer::new(
                context,
                address,
                PART,
                Some(owner),
                Some(Box::new(finalizer)),
            )
        };
        (memory, vec![finalized, freed])
    }

    fn foreign(&self, context: &Context, random: &mut Random) -> Held {
        let (memory, ends) = self.foreign_memory(context, random);
        Held {
            holders: vec![Box::new(memory)],
            ends,
        }
    }

    /// Somebody holds it no longer: here, on another thread, or in a host function.
    pub(super) fn remove(&mut self, logs: &[Log], random: &mut Random) {
        if self.held.is_empty() {
            return;
        }
        let place = random.below(self.held.len());
        let its = &mut self.held[place];
        assert!(its.ends.iter().all(|end| count(end) == 0), "it is held");
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
                stream.launch_host_function(function).expect("given");
            }
        }
    }

    /// All goes, and every end has come once.
    pub(super) fn end(mut self, context: &Context, logs: &[Log], random: &mut Random) {
        while self.added < KINDS {
            self.add(context, logs, random, &mut Vec::new());
        }
        while !self.held.is_empty() {
            self.remove(logs, random);
        }
        // The second time, what host functions could not do.
        for _ in 0..2 {
            context.synchronize().expect("the host functions have run");
        }
        // What guards have held back.
        let manager = context.memory_manager().expect("made");
        manager.expect("it is").reset();
        assert!(!self.ended.is_empty());
        let wrong: Vec<usize> = self
            .ended
            .iter()
            .map(count)
            .filter(|its| *its != 1)
            .collect();
        assert_eq!(wrong, [], "of {} ends", self.ended.len());
    }
}

impl Held {
    /// Several clones.
    fn of<T: Any + Clone + Send + Sync>(memory: T, ends: Vec<Count>) -> Self {
        Self {
            holders: vec![Box::new(memory.clone()), Box::new(memory)],
            ends,
        }
    }

    /// Work that may still be under way when all is dropped.
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

/// Memory in parts that hold all of it.
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

/// Memory of the host's, which stays until the driver has let go of it.
fn pinned(context: &Context, is_mapped: bool) -> Held {
    struct Owner {
        #[allow(dead_code, reason = "held, not read")]
        bytes: Vec<u8>,
        #[allow(dead_code, reason = "held, not read")]
        end: Counting,
    }
    let end = Count::default();
    let mut bytes = vec![0u8; 2 * PAGE];
    // A page of its own: none is pinned twice.
    let offset = bytes.as_ptr().align_offset(PAGE);
    let start = NonNull::new(bytes[offset..].as_mut_ptr()).expect("not null");
    let owner = Owner {
        bytes,
        end: Counting(Arc::clone(&end)),
    };
    let flags = PinnedFlags::empty();
    match is_mapped {
        true => {
            // SAFETY: the owner keeps the vector, and its bytes stay where they are.
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
    // SAFETY: there are so many bytes, which nobody looks at.
    let mut bytes = unsafe { DeviceBuffer::<u8>::borrow_raw(address, size, stream) };
    bytes.fill(0xee).expect("a fill");
}

fn copy_to(memory: &HostPointer, stream: &Stream) {
    let from: Result<DeviceBuffer<u8>> = DeviceBuffer::zeroed(stream, memory.size());
    let from = from.expect("memory");
    let (to, len) = (memory.as_ptr().cast(), memory.size());
    // SAFETY: both are so long, and whoever frees either does it behind this.
    let code = unsafe { cuMemcpyDtoHAsync_v2(to, from.as_raw(), len, stream.as_raw()) };
    assert!(code.is_success(), "{code}");
}
