//! When managers are reset, and what that leaves alone.

use crate::common::{self, child};
use crate::need;
use cuda_safe::manager::{
    Block, CachingManager, DriverManager, DriverMemory, MemoryManager, MemoryPointer, Order,
    OrderedManager, PinnedMemory, set_memory_manager,
};
use cuda_safe::{Context, ContextFlags, Device, DeviceBuffer, PinnedFlags, Result};
use std::sync::{Arc, Mutex};

/// What happened to which manager, by the number that it was made with.
type Log = Arc<Mutex<Vec<(&'static str, usize)>>>;

/// The driver's memory, by a manager that notes its resets and its end.
#[derive(Debug)]
struct Noting {
    inner: DriverManager,
    number: usize,
    log: Log,
}

impl Noting {
    fn note(&self, what: &'static str) {
        self.log.lock().expect("no panic").push((what, self.number));
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        self.note("drop");
    }
}

// SAFETY: all is the inner one's.
unsafe impl MemoryManager for Noting {
    fn interface_version() -> u32 {
        1
    }

    fn base(&self) -> &DriverMemory {
        self.inner.base()
    }

    fn reset(&self) {
        self.note("reset");
        self.inner.reset();
    }

    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        self.inner.allocate(size, order)
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        // SAFETY: the caller's promise.
        unsafe { self.inner.free(block, order) }
    }
}

/// Chooses such managers, numbered from 0 on.
fn choose_noting() -> Log {
    let log = Log::default();
    let (its, made) = (Arc::clone(&log), Mutex::new(0));
    set_memory_manager(move |context| {
        let mut made = made.lock().expect("no panic");
        let number = *made;
        *made += 1;
        Ok(Noting {
            inner: DriverManager::new(context)?,
            number,
            log: Arc::clone(&its),
        })
    })
    .expect("the version fits");
    log
}

fn number_of(context: &Context) -> usize {
    let manager = context.memory_manager_as::<Noting>();
    manager.expect("made").expect("it is").number
}

#[test]
fn a_manager_is_reset_before_it_ends_with_its_context() {
    child::in_child(&[], || {
        let device = need!(common::gpu());
        let log = choose_noting();
        let happened = || std::mem::take(&mut *log.lock().expect("no panic"));
        let primary = Context::primary(&device).expect("a context");
        let memory = MemoryPointer::allocate(&primary, 100).expect("memory");
        drop(primary);
        assert_eq!(happened(), [], "memory is in use");
        drop(memory);
        assert_eq!(happened(), [("reset", 0), ("drop", 0)]);

        // One that was not made is not made for this.
        drop(Context::primary(&device).expect("a context"));
        assert_eq!(happened(), []);

        let own = Context::create(&device, ContextFlags::empty()).expect("a context");
        let raw = own.as_raw();
        assert_eq!(number_of(&own), 1);
        // SAFETY: it stays alive for longer.
        let borrowed = unsafe { Context::borrow_raw(raw) }.expect("a context");
        assert_eq!(number_of(&borrowed), 1, "of the same context");
        drop(borrowed);
        assert_eq!(happened(), [], "it goes on");
        drop(own);
        assert_eq!(happened(), [("reset", 1), ("drop", 1)]);

        let raw = Context::create(&device, ContextFlags::empty()).expect("a context");
        let raw = raw.leak();
        // SAFETY: it stays alive for longer.
        let borrowed = unsafe { Context::borrow_raw(raw) }.expect("a context");
        drop(MemoryPointer::allocate(&borrowed, 100).expect("memory"));
        drop(borrowed);
        assert_eq!(happened(), [], "the one that leaked has the manager");
    });
}

#[test]
fn a_primary_context_that_is_reset_has_its_manager_reset_and_then_another_one() {
    child::in_child(&[], || {
        let device = need!(common::gpu());
        let log = choose_noting();
        let happened = || std::mem::take(&mut *log.lock().expect("no panic"));
        let context = Context::primary(&device).expect("a context");
        drop(MemoryPointer::allocate(&context, 100).expect("memory"));
        assert_eq!(number_of(&context), 0);
        let own = Context::create(&device, ContextFlags::empty()).expect("a context");
        assert_eq!(number_of(&own), 1);
        // Its end is not to come afterwards.
        context.leak();
        // SAFETY: what was made in the context is not used any more.
        unsafe { device.reset_primary() }.expect("a reset");
        assert_eq!(
            happened(),
            [("reset", 0)],
            "and not that of another context"
        );
        let context = Context::primary(&device).expect("a context");
        drop(MemoryPointer::allocate(&context, 100).expect("memory"));
        assert_eq!(number_of(&context), 2);
        drop(context);
        assert_eq!(happened(), [("reset", 2), ("drop", 2)]);
        drop(own);
        assert_eq!(happened(), [("reset", 1), ("drop", 1)]);
    });
}

#[track_caller]
fn leaves_memory_in_use<M: MemoryManager>(
    device: &Device,
    make: impl Fn(&Context) -> Result<M> + Send + Sync + 'static,
) {
    set_memory_manager(make).expect("the version fits");
    let context = Context::primary(device).expect("a context");
    let stream = context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 1000).expect("memory");
    let memory = MemoryPointer::allocate(&context, 1000).expect("memory");
    let host = PinnedMemory::allocate(&context, 1000, PinnedFlags::empty()).expect("memory");
    buffer.fill(7).expect("a fill");
    // SAFETY: it is so long, and nobody else has it.
    let mut view = unsafe { DeviceBuffer::<u8>::borrow_raw(memory.as_raw(), 1000, &stream) };
    view.fill(8).expect("a fill");
    // SAFETY: it is so long, and nobody else has it.
    unsafe { host.as_ptr().write_bytes(9, 1000) };
    let manager = context.memory_manager().expect("made").expect("it is");
    manager.reset();
    // What was freed would be handed out again, and written.
    let mut again = DeviceBuffer::<u8>::zeroed(&stream, 1000).expect("memory");
    again.fill(1).expect("a fill");
    assert_eq!(buffer.to_vec().expect("a copy"), [7; 1000]);
    assert_eq!(view.to_vec().expect("a copy"), [8; 1000]);
    // SAFETY: it is so long, and nobody else has it.
    let bytes = unsafe { std::slice::from_raw_parts(host.as_ptr(), 1000) };
    assert_eq!(bytes, [9; 1000]);
}

#[test]
fn a_reset_leaves_memory_in_use_alone() {
    child::in_child(&[], || {
        let device = need!(common::gpu());
        leaves_memory_in_use(&device, DriverManager::new);
        leaves_memory_in_use(&device, OrderedManager::new);
        leaves_memory_in_use(&device, CachingManager::new);
        assert!(!device.primary_state().expect("known").active);
    });
}
