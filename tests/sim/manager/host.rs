//! Pinned memory whose unregistration a manager defers, with injected failures and counted calls.

use crate::prelude::*;
use cuda_safe::manager::PinnedMemory;

fn manager(context: &Context) -> &DriverManager {
    let manager = context.memory_manager_as::<DriverManager>();
    manager.expect("made").expect("the chosen manager")
}

/// The owner of some bytes, which may panic when it is dropped.
struct Owner {
    bytes: Vec<u8>,
    /// Shared with the test, which counts the references.
    _alive: Arc<()>,
    panics: bool,
}

impl Drop for Owner {
    fn drop(&mut self) {
        assert_eq!(self.bytes.len(), 4096);
        if self.panics {
            panic!("on purpose");
        }
    }
}

/// Pins the bytes of an owner. Returns the test's reference to the owner, and the memory.
fn pin(context: &Context, panics: bool) -> (Arc<()>, PinnedMemory) {
    let alive = Arc::new(());
    let mut bytes = vec![0u8; 4096];
    let start = NonNull::new(bytes.as_mut_ptr()).expect("not null");
    let owner = Owner { bytes, _alive: Arc::clone(&alive), panics };
    // SAFETY: the owner keeps the vector alive, and its bytes do not move.
    let pinned = unsafe { PinnedMemory::pin(context, owner, start, 4096, PinnedFlags::empty()) };
    (alive, pinned.expect("pinned"))
}

fn registered() -> usize {
    cuda_sim::alive().registered
}

#[test]
fn memory_is_pinned_with_no_other_flags_than_the_requested_ones() {
    let (_end, context) = in_child!(with(DriverManager::new));
    let pin = |flags| {
        let mut bytes = vec![0u8; 4096];
        let start = NonNull::new(bytes.as_mut_ptr()).expect("not null");
        // SAFETY: the vector is kept alive as the owner, and its bytes do not move.
        let pinned = unsafe { PinnedMemory::pin(&context, bytes, start, 4096, flags) };
        drop(pinned.expect("pinned"));
    };
    let pin_mapped = |flags| {
        let mut bytes = vec![0u8; 4096];
        let start = NonNull::new(bytes.as_mut_ptr()).expect("not null");
        // SAFETY: as above.
        let mapped = unsafe { MappedMemory::pin(&context, bytes, start, 4096, flags) };
        drop(mapped.expect("pinned"));
    };
    let given = |pin: &dyn Fn()| {
        cuda_sim::clear_calls();
        cuda_sim::record_arguments(true);
        pin();
        cuda_sim::record_arguments(false);
        let calls = cuda_sim::calls();
        let register = calls.iter().find(|call| call.function == "cuMemHostRegister_v2");
        register.expect("it is registered").values::<u32>("flags").expect("recorded")[0]
    };
    let (none, portable) = (PinnedFlags::empty(), PinnedFlags::PORTABLE);
    assert_eq!(given(&|| pin(none)), 0);
    assert_eq!(given(&|| pin(portable)), CU_MEMHOSTREGISTER_PORTABLE);
    assert_eq!(given(&|| pin_mapped(none)), CU_MEMHOSTREGISTER_DEVICEMAP);
}

#[test]
fn owners_live_until_their_memory_is_unregistered() {
    let (_end, context) = in_child!(with(DriverManager::new));
    let manager = manager(&context);
    let guard = manager.defer_cleanup();
    let (alive, memory) = pin(&context, false);
    drop(memory);
    assert_eq!((Arc::strong_count(&alive), registered()), (2, 1));
    drop(guard);
    manager.base().flush();
    assert_eq!((Arc::strong_count(&alive), registered()), (1, 0));
}

#[test]
fn an_allocation_without_memory_unregisters_nothing_while_a_guard_lives() {
    let (_end, context) = in_child!(with(DriverManager::new));
    let guard = manager(&context).defer_cleanup();
    let (alive, memory) = pin(&context, false);
    drop(memory);
    let limit = limit_memory(1 << 20);
    let allocate = || MemoryPointer::allocate(&context, 2 << 20);
    allocate().expect_err("too little memory");
    assert_eq!((Arc::strong_count(&alive), registered()), (2, 1));
    drop(guard);
    // The memory is unregistered for the allocation, which then fails again.
    allocate().expect_err("too little memory");
    assert_eq!((Arc::strong_count(&alive), registered()), (1, 0));
    drop(limit);
}

#[test]
fn the_drop_of_a_manager_completes_deferred_unregistrations() {
    let (_end, context) = in_child!(with(DriverManager::new));
    let guard = manager(&context).defer_cleanup();
    let (alive, memory) = pin(&context, false);
    drop(memory);
    drop(context);
    assert_eq!((Arc::strong_count(&alive), registered()), (1, 0));
    drop(guard);
}

#[test]
fn an_owner_whose_memory_stays_registered_is_never_dropped() {
    in_child!();
    set_memory_manager(DriverManager::new).expect("a matching version");
    start(Profile::h200());
    let context = context();
    let manager = manager(&context);
    let guard = manager.defer_cleanup();
    let (alive, memory) = pin(&context, false);
    drop(memory);
    let fails = Fault::of_function("cuMemHostUnregister")
        .with(CUresult::CUDA_ERROR_UNKNOWN)
        .inject(Scope::Process);
    drop(guard);
    manager.base().flush();
    assert_eq!((fails.hits(), cuda_safe::leaked()), (1, 1));
    assert_eq!((Arc::strong_count(&alive), registered()), (2, 1));
    drop((fails, context));
    assert_eq!(Arc::strong_count(&alive), 2);
    assert_eq!(cuda_sim::misuses(), [""; 0]);
}

#[test]
fn an_owner_that_panics_leaves_the_others_registered_and_alive() {
    let (_end, context) = in_child!(with(DriverManager::new));
    let manager = manager(&context);
    let guard = manager.defer_cleanup();
    let (first, one) = pin(&context, true);
    let (second, two) = pin(&context, false);
    drop((one, two));
    drop(MemoryPointer::allocate(&context, 100).expect("memory"));
    drop(guard);
    catch_unwind(AssertUnwindSafe(|| manager.base().flush())).expect_err("the owner's panic");
    assert_eq!(manager.base().pending(), (2, 100));
    let counts = (Arc::strong_count(&first), Arc::strong_count(&second));
    assert_eq!((counts, registered()), ((1, 2), 1));
    assert!(manager.base().flush());
    assert_eq!((Arc::strong_count(&second), registered()), (1, 0));
    assert_eq!(cuda_sim::alive().device_allocations, 0);
}

#[test]
fn memory_in_use_by_a_stream_is_unregistered_after_the_work() {
    let (_end, context) = in_child!(with(DriverManager::new));
    let stream = context.stream().expect("a stream");
    let manager = manager(&context);
    let guard = manager.defer_cleanup();
    let host = PinnedBuffer::register(&context, vec![1u8; 4096]).expect("pinned");
    let mut mapped = MappedBuffer::new(host, &stream).expect("mapped");
    mapped.as_mut_slice().fill(7).expect("a fill");
    drop(mapped);
    drop(stream);
    assert_eq!(registered(), 1);
    drop(guard);
    cuda_sim::clear_calls();
    manager.base().flush();
    let calls: Vec<_> = cuda_sim::calls().iter().map(|call| call.function).collect();
    let at = |name: &str| calls.iter().position(|its| *its == name);
    let (waited, unregistered) = (at("cuEventSynchronize"), at("cuMemHostUnregister"));
    assert!(waited.is_some() && waited < unregistered, "{calls:?}");
    assert_eq!(registered(), 0);
}

#[test]
fn deferred_unregistrations_wait_for_the_end_of_a_capture() {
    let (_end, context) = in_child!(with(DriverManager::new));
    let stream = context.stream().expect("a stream");
    let manager = manager(&context);
    let guard = manager.defer_cleanup();
    let host = PinnedBuffer::register(&context, vec![1u8; 4096]).expect("pinned");
    let mut mapped = MappedBuffer::new(host, &stream).expect("mapped");
    mapped.as_mut_slice().fill(7).expect("a fill");
    let capture = stream.begin_capture(Default::default()).expect("a capture");
    drop(mapped);
    drop(guard);
    manager.base().flush();
    assert_eq!(registered(), 1);
    drop(capture.end().expect("the capture is valid"));
    context.synchronize().expect("a wait");
    assert_eq!(registered(), 0);
}
