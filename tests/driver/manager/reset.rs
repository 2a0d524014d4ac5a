//! When managers are reset, and what a reset does not affect.

use super::watched::{Observer, Watched};
use super::{context_with, manager_as};
use crate::common::child;
use cuda_memory::{CachingManager, OrderedManager};
use cuda_safe::manager::{
    DriverManager, MemoryManager, MemoryPointer, PinnedMemory, set_memory_manager,
};
use cuda_safe::memory::PinnedFlags;
use cuda_safe::{Context, ContextFlags, Device, DeviceBuffer, Result};
use std::sync::{Arc, Mutex};

/// The events, each with the number of the manager.
type Log = Arc<Mutex<Vec<(&'static str, usize)>>>;

/// Records the resets and the drop of a manager.
#[derive(Debug)]
struct Noting {
    number: usize,
    log: Log,
}

impl Observer for Noting {
    fn called(&self, method: &'static str) {
        if let "reset" | "drop" = method {
            self.log.lock().expect("no panic").push((method, self.number));
        }
    }
}

/// Chooses such managers, numbered from 0.
fn choose_noting() -> Log {
    let log = Log::default();
    let (its, made) = (Arc::clone(&log), Mutex::new(0));
    set_memory_manager(move |context| {
        let mut made = made.lock().expect("no panic");
        let number = *made;
        *made += 1;
        let observer = Noting { number, log: Arc::clone(&its) };
        Ok(Watched { inner: DriverManager::new(context)?, observer })
    })
    .expect("a matching version");
    log
}

fn number_of(context: &Context) -> usize {
    manager_as::<Watched<Noting>>(context).observer.number
}

#[test]
fn a_manager_is_reset_before_it_is_dropped_with_its_context() {
    child::with_gpu(|device| {
        let log = choose_noting();
        let happened = || std::mem::take(&mut *log.lock().expect("no panic"));
        let primary = Context::primary(&device).expect("a context");
        let memory = MemoryPointer::allocate(&primary, 100).expect("memory");
        drop(primary);
        assert_eq!(happened(), [], "memory is in use");
        drop(memory);
        assert_eq!(happened(), [("reset", 0), ("drop", 0)]);

        // A manager that does not exist is not created for a reset.
        drop(Context::primary(&device).expect("a context"));
        assert_eq!(happened(), []);

        let own = Context::new(&device, ContextFlags::empty()).expect("a context");
        let raw = own.as_raw();
        assert_eq!(number_of(&own), 1);
        // SAFETY: the context stays alive for longer.
        let borrowed = unsafe { Context::borrow_raw(raw) }.expect("a context");
        assert_eq!(number_of(&borrowed), 1, "the manager of the same context");
        drop(borrowed);
        assert_eq!(happened(), [], "the manager still works");
        drop(own);
        assert_eq!(happened(), [("reset", 1), ("drop", 1)]);

        let raw = Context::new(&device, ContextFlags::empty()).expect("a context");
        let raw = raw.into_raw();
        // SAFETY: the context stays alive for longer.
        let borrowed = unsafe { Context::borrow_raw(raw) }.expect("a context");
        drop(MemoryPointer::allocate(&borrowed, 100).expect("memory"));
        drop(borrowed);
        assert_eq!(happened(), [], "the leaked context keeps the manager");
    });
}

#[test]
fn resetting_a_primary_context_resets_and_replaces_its_manager() {
    child::with_gpu(|device| {
        let log = choose_noting();
        let happened = || std::mem::take(&mut *log.lock().expect("no panic"));
        let context = Context::primary(&device).expect("a context");
        drop(MemoryPointer::allocate(&context, 100).expect("memory"));
        assert_eq!(number_of(&context), 0);
        let own = Context::new(&device, ContextFlags::empty()).expect("a context");
        assert_eq!(number_of(&own), 1);
        // The context must not be released after the reset.
        context.into_raw();
        // SAFETY: nothing that was created in the context is used afterwards.
        unsafe { device.reset_primary() }.expect("a reset");
        assert_eq!(happened(), [("reset", 0)], "the manager of another context is not reset");
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
    let context = context_with(device, make);
    let stream = context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 1000).expect("memory");
    let memory = MemoryPointer::allocate(&context, 1000).expect("memory");
    let host = PinnedMemory::allocate(&context, 1000, PinnedFlags::empty()).expect("memory");
    buffer.fill(7).expect("a fill");
    // SAFETY: the memory has this size, and nothing else uses it.
    let mut view =
        unsafe { DeviceBuffer::<u8>::borrow_raw(memory.as_raw(), 1000, &stream) }.expect("memory");
    view.fill(8).expect("a fill");
    // SAFETY: the memory has this size, and nothing else uses it.
    unsafe { host.as_ptr().write_bytes(9, 1000) };
    let manager = context.memory_manager().expect("made").expect("the chosen manager");
    manager.reset();
    // If the memory had been freed, this allocation would reuse and overwrite it.
    let mut again = DeviceBuffer::<u8>::zeroed(&stream, 1000).expect("memory");
    again.fill(1).expect("a fill");
    assert_eq!(buffer.to_vec().expect("a copy"), [7; 1000]);
    assert_eq!(view.to_vec().expect("a copy"), [8; 1000]);
    // SAFETY: the memory has this size, and nothing else uses it.
    assert_eq!(unsafe { std::slice::from_raw_parts(host.as_ptr(), 1000) }, [9; 1000]);
}

#[test]
fn a_reset_does_not_affect_memory_in_use() {
    child::with_gpu(|device| {
        leaves_memory_in_use(&device, DriverManager::new);
        leaves_memory_in_use(&device, OrderedManager::new);
        leaves_memory_in_use(&device, CachingManager::new);
        assert!(!device.primary_state().expect("known").active);
    });
}
