//! Contexts: which one is current, and how long they live.

pub(crate) mod bind;
pub(crate) mod needed;
pub(crate) mod settings;
pub(crate) mod stack;

use crate::call::raw::{current, succeeds};
use crate::common;
use cuda_safe::sys::{CUcontext, cuCtxPopCurrent_v2, cuCtxPushCurrent_v2};
use cuda_safe::{Context, ContextFlags, DeviceBuffer, Error, Invalid};
use std::ptr::null_mut;
use std::thread;

/// Pops the current context, and returns it.
#[track_caller]
fn pop() -> CUcontext {
    let mut popped = null_mut();
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuCtxPopCurrent_v2(&raw mut popped) });
    popped
}

#[test]
fn a_context_floats_and_calls_do_not_change_the_stack() {
    let device = or_skip!(common::gpu());
    let primary = Context::primary(&device).expect("a primary context");
    assert!(current().is_null());
    let own = Context::new(&device, ContextFlags::empty()).expect("a context");
    assert!(current().is_null(), "creating leaves nothing current");
    let stream = own.stream().expect("a stream");
    assert!(current().is_null(), "creating a stream leaves nothing current");
    primary
        .with_current(|_| {
            own.synchronize().expect("a wait");
            own.event().expect("an event").record(&stream).expect("a record");
            assert_eq!(current(), primary.as_raw(), "the context of the caller is current");
        })
        .expect("current");
    assert!(current().is_null());
    assert_ne!(primary, own);
    assert_eq!(own, own.clone());
    assert_eq!(own.device(), device);
}

#[test]
fn guards_nest_and_end_in_reverse_order() {
    let (primary, own) = or_skip!(common::two_contexts());
    let outer = primary.make_current().expect("current");
    {
        let inner = own.make_current().expect("current");
        let again = own.make_current().expect("current");
        assert_eq!(current(), own.as_raw());
        again.end().expect("pushed nothing");
        assert_eq!(current(), own.as_raw());
        inner.end().expect("the context that this thread pushed");
    }
    assert_eq!(current(), primary.as_raw());
    outer.end().expect("the context that this thread pushed");
    assert!(current().is_null());
}

#[test]
fn a_guard_pops_on_panic() {
    let primary = or_skip!(common::context());
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        primary.with_current(|_| panic!("in the middle"))
    }));
    assert!(caught.is_err());
    assert!(current().is_null());
}

#[test]
fn a_guard_that_finds_another_context_pops_nothing_and_reports_it() {
    let (primary, other) = or_skip!(common::two_contexts());
    let guard = primary.make_current().expect("current");
    // SAFETY: the context is alive, and is popped below.
    succeeds(unsafe { cuCtxPushCurrent_v2(other.as_raw()) });
    let (expected, found) = (primary.as_raw().addr(), other.as_raw().addr());
    assert_eq!(common::invalid(guard.end()), Invalid::ContextStack { expected, found });
    assert_eq!(current(), other.as_raw(), "nothing was popped");
    pop();
    pop();
    assert!(current().is_null());
}

#[test]
fn a_context_may_be_used_and_dropped_on_any_thread() {
    let primary = or_skip!(common::context());
    let workers = [(); 8].map(|()| {
        let primary = primary.clone();
        thread::spawn(move || {
            for _ in 0..if cfg!(miri) { 3 } else { 50 } {
                let stream = primary.stream().expect("a stream");
                stream.synchronize().expect("a wait");
                assert!(current().is_null());
            }
        })
    });
    for worker in workers {
        worker.join().expect("no panic");
    }
}

#[test]
fn a_borrowed_context_is_not_released() {
    // A wait for the context invalidates the captures of other tests.
    if !crate::common::child::entered(&[]) {
        return;
    }
    let primary = or_skip!(common::context());
    // SAFETY: `primary` outlives the borrowed context.
    let borrowed = unsafe { Context::borrow_raw(primary.as_raw()) }.expect("a live context");
    assert_eq!(borrowed, primary);
    assert_eq!(borrowed.device(), primary.device());
    drop(borrowed);
    primary.synchronize().expect("still alive");
}

#[test]
fn a_foreign_context_keeps_its_owner() {
    let primary = or_skip!(common::context());
    let owner = std::sync::Arc::new(primary.clone());
    let raw = primary.as_raw();
    // SAFETY: the owner keeps the context alive.
    let foreign = unsafe { Context::from_foreign(raw, std::sync::Arc::clone(&owner)) };
    let foreign = foreign.expect("a live context");
    let stream = foreign.stream().expect("a stream");
    drop(foreign);
    assert_eq!(std::sync::Arc::strong_count(&owner), 2, "the stream keeps it alive");
    drop(stream);
    assert_eq!(std::sync::Arc::strong_count(&owner), 1);
}

#[test]
fn a_null_context_handle_is_refused() {
    or_skip!(common::gpu());
    // SAFETY: the call is refused and accesses nothing.
    let refused = unsafe { Context::borrow_raw(std::ptr::null_mut()) };
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
}

#[test]
fn free_and_total_memory_are_reported() {
    let primary = or_skip!(common::context());
    let stream = primary.stream().expect("a stream");
    // With memory in use, the two numbers differ.
    let used = DeviceBuffer::<u8>::zeroed_sync(&stream, 1 << 20).expect("memory");
    let info = primary.memory_info().expect("known");
    assert!(info.free > 0 && info.free < info.total, "{info:?}");
    drop(used);
}

#[test]
fn an_owned_context_is_destroyed_after_everything_made_in_it() {
    let device = or_skip!(common::gpu());
    let context = Context::new(&device, ContextFlags::empty()).expect("a context");
    let stream = context.stream().expect("a stream");
    let event = context.event().expect("an event");
    drop(context);
    event.record(&stream).expect("the context is alive");
    drop(stream);
    event.synchronize().expect("the context is alive");
}
