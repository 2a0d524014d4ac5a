//! The reset of a primary context and of its manager: the driver calls and their order.

use crate::prelude::*;

fn reset(device: &Device) -> Vec<&'static str> {
    cuda_sim::clear_calls();
    // SAFETY: nothing that was created in the context is used afterwards.
    unsafe { device.reset_primary() }.expect("a reset");
    cuda_sim::calls().iter().map(|call| call.function).collect()
}

#[test]
fn deferred_frees_of_a_manager_complete_before_its_context_is_reset() {
    in_child!();
    set_memory_manager(DriverManager::new).expect("a matching version");
    start(Profile::h200());
    let context = context();
    let device = context.device();
    drop(MemoryPointer::allocate(&context, 100).expect("memory"));
    assert_eq!(cuda_sim::alive().device_allocations, 1);
    context.into_raw();
    let calls = reset(&device);
    let at = |name: &str| calls.iter().position(|its| *its == name);
    let (freed, ended) = (at("cuMemFree_v2"), at("cuDevicePrimaryCtxReset_v2"));
    assert!(freed.is_some() && freed < ended, "{calls:?}");
    assert_eq!(cuda_sim::misuses(), [""; 0]);
}

#[test]
fn a_reset_without_a_manager_is_one_call() {
    in_child!();
    start(Profile::h200());
    let device = context().device();
    context().into_raw();
    assert_eq!(reset(&device), ["cuDevicePrimaryCtxReset_v2"]);
    // A manager that is chosen but was never created.
    set_memory_manager(DriverManager::new).expect("a matching version");
    context().into_raw();
    assert_eq!(reset(&device), ["cuDevicePrimaryCtxReset_v2"]);
}

/// Drivers before CUDA 12.0 have no context ids, and the handle is the same after the reset.
#[test]
fn a_context_after_a_reset_has_a_new_manager_even_on_an_old_driver() {
    in_child!();
    set_memory_manager(DriverManager::new).expect("a matching version");
    let old = Profile::h200().with_driver(CudaVersion::new(11, 8));
    start(old.expect("a known profile"));
    let before = context();
    assert_eq!(before.id(), None);
    drop(MemoryPointer::allocate(&before, 100).expect("memory"));
    let manager = before.memory_manager().expect("made").expect("the chosen manager");
    let manager = std::ptr::from_ref(manager).addr();
    let (device, raw) = (before.device(), before.as_raw());
    before.into_raw();
    reset(&device);
    let after = context();
    assert_eq!(after.as_raw(), raw);
    let its = after.memory_manager().expect("made").expect("the chosen manager");
    assert_ne!(std::ptr::from_ref(its).addr(), manager);
}

#[test]
fn deferred_releases_complete_before_the_context_is_reset() {
    in_child!();
    start(Profile::h200());
    let context = context();
    let device = context.device();
    let stream = context.stream().expect("a stream");
    let memory = DeviceBuffer::<u8>::zeroed(&stream, 100).expect("memory");
    stream.launch_host_function(move || drop(memory)).expect("enqueued");
    stream.synchronize().expect("a wait");
    assert_eq!(deferred_releases(), 1);
    drop((stream, context));
    reset(&device);
    assert_eq!(deferred_releases(), 0);
    assert_eq!(cuda_sim::misuses(), [""; 0]);
    assert_eq!(cuda_sim::alive(), Alive::default());
    assert_eq!(cuda_safe::leaked(), 0);
}

#[cfg(unix)]
#[test]
fn a_forked_child_resets_no_manager() {
    in_child!();
    set_memory_manager(DriverManager::new).expect("a matching version");
    start(Profile::h200());
    let context = context();
    let device = context.device();
    drop(MemoryPointer::allocate(&context, 100).expect("memory"));
    let mut kept = Some(context);
    assert!(common::fork::in_fork(|| {
        // SAFETY: the call makes no driver call.
        let error = unsafe { device.reset_primary() };
        drop(kept.take());
        matches!(error, Err(Error::Forked)) && cuda_sim::alive().device_allocations == 1
    }));
    assert_eq!(cuda_sim::alive().device_allocations, 1);
    drop(kept.take());
    assert_eq!(cuda_sim::alive().device_allocations, 0);
}
