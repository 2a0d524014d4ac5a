//! The context stack of each thread, tested with raw calls.

use super::bind::use_current_context;
use super::pop;
use crate::call::raw::{current, succeeds};
use crate::common;
use cuda_safe::sys::{CUcontext, abi::cuCtxCreate_v2, cuCtxDestroy_v2, cuCtxPushCurrent_v2};
use cuda_safe::{Context, Device};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::Barrier;

fn create(device: &Device) -> CUcontext {
    let mut context = null_mut();
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuCtxCreate_v2(&raw mut context, 0, device.as_raw()) });
    context
}

#[test]
fn creating_a_context_pushes_it_and_destroying_it_pops_it() {
    let device = or_skip!(common::gpu());
    let primary = Context::primary(&device).expect("a primary context");
    let guard = primary.make_current().expect("current");
    let first = create(&device);
    assert_eq!(current(), first);
    let second = create(&device);
    assert_eq!(current(), second);
    for (context, below) in [(second, first), (first, primary.as_raw())] {
        // SAFETY: the context was created here, and nothing was created in it.
        succeeds(unsafe { cuCtxDestroy_v2(context) });
        assert_eq!(current(), below);
    }
    guard.end().expect("the context that this thread pushed");
}

#[test]
fn a_context_popped_on_one_thread_can_be_used_on_another() {
    let device = or_skip!(common::gpu());
    let context = create(&device);
    assert_eq!(pop(), context);
    assert!(current().is_null(), "it floats");
    let number = context.expose_provenance();
    let user = std::thread::spawn(move || {
        assert!(current().is_null());
        let context = with_exposed_provenance_mut(number);
        // SAFETY: the context stays alive until this thread has ended.
        succeeds(unsafe { cuCtxPushCurrent_v2(context) });
        assert_eq!(current(), context);
        use_current_context();
        assert_eq!(pop(), context);
        assert!(current().is_null());
    });
    user.join().expect("no panic");
    assert!(current().is_null());
    // SAFETY: the context was created here, and nothing is left in it.
    succeeds(unsafe { cuCtxDestroy_v2(context) });
}

#[test]
fn a_context_can_be_current_on_several_threads_and_is_current_on_no_other() {
    let primary = or_skip!(common::context());
    let together = Barrier::new(3);
    // Nothing between the barriers may panic, because the other threads would then wait forever.
    let seen = std::thread::scope(|scope| {
        let users = [(); 2].map(|()| {
            scope.spawn(|| {
                let guard = primary.make_current();
                together.wait();
                let seen = current();
                let waited = primary.stream().and_then(|stream| stream.synchronize());
                together.wait();
                waited.expect("a wait");
                guard.expect("current").end().expect("the context that this thread pushed");
                seen.addr()
            })
        });
        together.wait();
        let here = current().addr();
        together.wait();
        let [one, other] = users.map(|user| user.join().expect("no panic"));
        [one, other, here]
    });
    let its = primary.as_raw().addr();
    assert_eq!(seen, [its, its, 0], "each thread has its own stack");
}
