//! Guards of the current context that end in the wrong order, or that find another context.

use crate::prelude::*;

fn with_two() -> (AtEnd, Context, Context) {
    let (end, primary) = leaking();
    let own = Context::new(&primary.device(), ContextFlags::empty()).expect("a context");
    (end, primary, own)
}

#[test]
fn a_guard_that_ends_before_an_inner_one_leaves_its_context_alive() {
    let (_end, primary, own) = in_child!(with_two());
    let outer = own.make_current().expect("current");
    let inner = primary.make_current().expect("current");
    drop(own);
    assert_eq!(invalid(outer.end()), Invalid::GuardOrder { inner: 1 });
    inner.end().expect("it is the innermost");
    // The current context is that of the outer guard, and must not have been destroyed.
    assert_eq!(cuda_sim::stack_depth(), 1);
    assert_eq!(cuda_sim::alive().contexts, 1);
    assert_eq!(cuda_safe::leaked(), 1);
}

#[test]
fn a_forgotten_guard_keeps_those_around_it_from_popping() {
    let (_end, primary, own) = in_child!(with_two());
    let outer = own.make_current().expect("current");
    std::mem::forget(primary.make_current().expect("current"));
    drop(own);
    assert_eq!(invalid(outer.end()), Invalid::GuardOrder { inner: 1 });
    assert_eq!(cuda_sim::stack_depth(), 2);
    assert_eq!(cuda_sim::alive().contexts, 1);
}

#[test]
fn guards_that_pushed_nothing_end_in_any_order_or_never() {
    let (_end, _rest0, own) = in_child!(with_two());
    let outer = own.make_current().expect("current");
    let (first, second) = (own.make_current(), own.make_current());
    drop(first.expect("already current"));
    drop(second.expect("already current"));
    std::mem::forget(own.make_current().expect("already current"));
    outer.end().expect("nothing was pushed after it");
    assert_eq!(cuda_sim::stack_depth(), 0);
    assert_eq!(cuda_safe::leaked(), 0);
}

#[test]
fn a_guard_that_pushed_nothing_checks_the_current_context() {
    let (_end, _rest0, own) = in_child!(with_two());
    let outer = own.make_current().expect("current");
    let inner = own.make_current().expect("already current");
    let mut popped = std::ptr::null_mut();
    // SAFETY: the pointer refers to a local variable. The call pops the context of the outer
    // guard, as other code might.
    assert!(unsafe { cuCtxPopCurrent_v2(&raw mut popped) }.is_success());
    let mismatch = invalid(inner.end());
    assert!(matches!(mismatch, Invalid::ContextStack { found: 0, .. }), "{mismatch}");
    let mismatch = invalid(outer.end());
    assert!(matches!(mismatch, Invalid::ContextStack { found: 0, .. }), "{mismatch}");
}

#[test]
fn a_context_that_other_code_set_on_top_is_not_popped() {
    let (_end, primary, own) = in_child!(with_two());
    let guard = own.make_current().expect("current");
    // SAFETY: the context is alive. `cudaSetDevice` of the runtime API makes the same call.
    assert!(unsafe { cuCtxSetCurrent(primary.as_raw()) }.is_success());
    let mismatch = invalid(guard.end());
    assert!(matches!(mismatch, Invalid::ContextStack { .. }), "{mismatch}");
    assert_eq!(cuda_sim::stack_depth(), 1);
}

#[test]
fn a_guard_around_one_that_could_not_pop_leaves_its_context_alive() {
    let (_end, primary, own) = in_child!(with_two());
    let outer = own.make_current().expect("current");
    let inner = primary.make_current().expect("current");
    // SAFETY: the context is alive. This acts as a library that leaves a push of the outer
    // guard's context behind.
    assert!(unsafe { cuCtxPushCurrent_v2(own.as_raw()) }.is_success());
    let mismatch = invalid(inner.end());
    assert!(matches!(mismatch, Invalid::ContextStack { .. }), "{mismatch}");
    drop(own);
    // The context on top is not the guard's own push, although it is the same context.
    assert_eq!(invalid(outer.end()), Invalid::GuardOrder { inner: 1 });
    assert_eq!(cuda_sim::stack_depth(), 3);
    assert_eq!(cuda_sim::alive().contexts, 1);
}

#[test]
fn the_report_hook_receives_errors_that_drop_cannot_return() {
    let (_end, primary, own) = in_child!(with_two());
    let (sender, heard) = std::sync::mpsc::channel();
    let sender = Mutex::new(sender);
    cuda_safe::set_report_hook(move |report| {
        let sender = sender.lock().expect("no panic while it was locked");
        sender.send(report.to_string()).expect("the test receives it");
    });
    let outer = own.make_current().expect("current");
    let inner = primary.make_current().expect("current");
    drop(outer);
    drop(inner);
    let report = heard.try_recv().expect("a report");
    assert!(report.contains("guard"), "{report}");
}

/// A call that needs a current context pushes it temporarily.
#[test]
fn a_call_that_cannot_pop_its_context_reports_it_and_keeps_the_context_alive() {
    let (_end, _rest0, own) = in_child!(with_two());
    let (sender, heard) = std::sync::mpsc::channel();
    let sender = Mutex::new(sender);
    cuda_safe::set_report_hook(move |report| {
        let sender = sender.lock().expect("no panic while it was locked");
        sender.send(report.to_string()).expect("the test receives it");
    });
    let fault = Fault::of_function("cuCtxPopCurrent_v2").with(CUresult::CUDA_ERROR_UNKNOWN);
    let failed = fault.inject(Scope::Thread);
    let event = own.event().expect("an event");
    assert_eq!((failed.hits(), cuda_safe::leaked()), (1, 1));
    let report = heard.try_recv().expect("a report");
    assert!(report.contains("cuCtxPopCurrent"), "{report}");
    drop((event, own));
    assert_eq!(cuda_sim::alive().contexts, 1);
}
