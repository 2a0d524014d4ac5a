//! Contexts that are bound to a thread.

use crate::call::raw::{current, succeeds};
use crate::common::{self, child};
use crate::green::{alone, refusal, resource, smallest};
use cuda_safe::green::GreenContext;
use cuda_safe::sys::{cuStreamCreate, cuStreamDestroy_v2};
use cuda_safe::{Context, ContextFlags, Invalid, Stream};
use std::cell::RefCell;
use std::ptr::null_mut;
use std::sync::mpsc::{Sender, channel};

fn own(of: &Context) -> Context {
    Context::new(&of.device(), ContextFlags::empty()).expect("a context")
}

/// Runs `body` on a thread of its own, whose context stack is empty.
#[track_caller]
fn on_a_thread<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(body).join().expect("no panic"))
}

/// Creates and destroys a stream in the current context with raw calls.
#[track_caller]
pub(super) fn use_current_context() {
    let mut stream = null_mut();
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuStreamCreate(&raw mut stream, 1) });
    // SAFETY: the stream was just created and has no work.
    succeeds(unsafe { cuStreamDestroy_v2(stream) });
}

#[test]
fn a_bound_context_stays_current_after_calls_and_guards_of_other_contexts() {
    let primary = or_skip!(common::context());
    on_a_thread(|| {
        let other = own(&primary);
        assert!(current().is_null());
        primary.bind_to_thread().expect("bound");
        assert_eq!(current(), primary.as_raw());
        use_current_context();
        other.memory_info().expect("a query");
        other.stream().expect("a stream").synchronize().expect("a wait");
        assert_eq!(other.with_current(|_| current()).expect("current"), other.as_raw());
        let guard = primary.make_current().expect("already current");
        guard.end().expect("still current");
        primary.bind_to_thread().expect("bound already");
        assert_eq!(current(), primary.as_raw());
    });
    assert!(current().is_null(), "each thread has its own stack");
}

#[test]
fn a_bound_context_stays_alive_until_the_thread_ends() {
    let primary = or_skip!(common::context());
    on_a_thread(|| {
        let context = own(&primary);
        let raw = context.as_raw();
        context.bind_to_thread().expect("bound");
        drop(context);
        assert_eq!(current(), raw);
        use_current_context();
    });
}

#[test]
fn binding_another_context_replaces_the_current_one_and_keeps_both_alive() {
    let primary = or_skip!(common::context());
    on_a_thread(|| {
        let context = own(&primary);
        let raw = context.as_raw();
        context.bind_to_thread().expect("bound");
        let stream = context.stream().expect("a stream");
        drop(context);
        primary.bind_to_thread().expect("bound");
        assert_eq!(current(), primary.as_raw());
        use_current_context();
        stream.context().bind_to_thread().expect("bound again");
        drop(stream);
        assert_eq!(current(), raw);
        use_current_context();
    });
}

#[test]
fn a_context_cannot_be_bound_inside_a_guard() {
    let primary = or_skip!(common::context());
    on_a_thread(|| {
        let other = own(&primary);
        let refused = |guards| {
            let why = primary.bind_to_thread().expect_err("a guard is open");
            assert_eq!(refusal(why), Invalid::OpenGuards { guards });
        };
        let nested = primary.with_current(|_| {
            refused(1);
            let _inner = other.make_current().expect("current");
            refused(2);
        });
        nested.expect("current");
        assert!(current().is_null());
        primary.bind_to_thread().expect("no guard is open");
        // This guard pushes nothing, so its end does not restore another context.
        let bound = primary.with_current(|_| primary.bind_to_thread());
        bound.expect("current").expect("bound already");
        std::mem::forget(other.make_current().expect("current"));
        refused(1);
    });
}

#[test]
fn a_context_cannot_be_bound_while_a_green_context_is_current() {
    let _alone = alone();
    let group = smallest(or_skip!(resource())).groups.pop();
    let green = GreenContext::new(group).expect("a green context");
    on_a_thread(|| {
        let guard = green.make_current().expect("current");
        let why = green.context().bind_to_thread().expect_err("a guard");
        assert_eq!(refusal(why), Invalid::OpenGuards { guards: 1 });
        guard.end().expect("the stack is as before");
        green.context().bind_to_thread().expect("no guard is open");
        green.with_current(|_| use_current_context()).expect("current");
        assert_eq!(current(), green.context().as_raw());
    });
}

/// Uses a context when the thread-local variables of a thread are destroyed.
struct UsedAtEnd(Option<(Stream, Sender<cuda_safe::Result<()>>)>);

impl Drop for UsedAtEnd {
    fn drop(&mut self) {
        let Some((stream, results)) = self.0.take() else {
            return;
        };
        let used = || {
            stream.context().event()?.record(&stream)?;
            stream.synchronize()?;
            stream.context().with_current(|_| use_current_context())
        };
        results.send(used()).expect("the test receives it");
    }
}

thread_local! {
    static FIRST: RefCell<UsedAtEnd> = const { RefCell::new(UsedAtEnd(None)) };
    static LAST: RefCell<UsedAtEnd> = const { RefCell::new(UsedAtEnd(None)) };
}

/// The order in which thread-local variables are destroyed is not specified, so one is created
/// before the context is bound and one after it.
#[test]
fn thread_local_variables_may_use_a_bound_context_when_the_thread_ends() {
    // Without its own process, a leak of another test could be counted.
    child::with_context(|primary| {
        let (sender, results) = channel();
        let joined = std::thread::spawn(move || {
            let context = own(&primary);
            let stream = || context.stream().expect("a stream");
            FIRST.replace(UsedAtEnd(Some((stream(), sender.clone()))));
            context.bind_to_thread().expect("bound");
            LAST.replace(UsedAtEnd(Some((stream(), sender))));
        });
        joined.join().expect("no panic");
        let results: Vec<_> = results.iter().collect();
        assert_eq!(results, [Ok(()), Ok(())], "the context is alive");
        assert_eq!(cuda_safe::leaked(), 0);
    });
}
