//! Concurrent calls on one green context.

use crate::capture::errors::reports;
use crate::prelude::*;
use std::sync::mpsc::Receiver;

fn green(context: &Context) -> GreenContext {
    let resource = SmResource::of_device(&context.device()).expect("SMs");
    let split = resource.split_by_count(SplitByCount::default());
    GreenContext::new(split.expect("groups").groups).expect("a green context")
}

/// Blocks the next call of `function` inside the driver until a message is sent.
fn block(function: &'static str) -> (Receiver<()>, Sender<()>) {
    let ((tell, told), (finish, finished)) = (channel(), channel());
    let call = Mutex::new(Some((tell, finished)));
    set_call_hook(move |called| {
        if called != function {
            return;
        }
        let call = call.lock().expect("no panic").take();
        if let Some((tell, finished)) = call {
            tell.send(()).expect("the test receives it");
            finished.recv().expect("the test goes on");
        }
    });
    (told, finish)
}

#[test]
fn a_call_on_a_green_context_waits_for_the_call_of_another_thread() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let green = green(&context);
    let (inside, finish) = block("cuGreenCtxStreamCreate");
    std::thread::scope(|scope| {
        scope.spawn(|| green.stream().expect("a stream"));
        inside.recv().expect("the call is active");
        let other = scope.spawn(|| green.id());
        // Long enough for some attempts.
        std::thread::sleep(Duration::from_millis(20));
        assert!(!other.is_finished());
        finish.send(()).expect("it waits");
        other.join().expect("no panic").expect("a number");
    });
    set_call_hook(|_| {});
}

/// The host function that blocks the other thread in the driver may wait for this thread.
#[test]
fn a_call_on_a_green_context_gives_up_after_10_seconds() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let green = green(&context);
    let (inside, finish) = block("cuGreenCtxStreamCreate");
    std::thread::scope(|scope| {
        scope.spawn(|| green.stream().expect("a stream"));
        inside.recv().expect("the call is active");
        let refused = green.id().expect_err("the other call does not return");
        let expected = |error: &Error| matches!(error, Error::Invalid(why) if **why == Invalid::GreenContextInUse);
        assert!(expected(&refused), "{refused}");
        finish.send(()).expect("it waits");
    });
    green.id().expect("nothing uses it");
    set_call_hook(|_| {});
}

/// Otherwise the green context would always count as current on this thread.
#[test]
fn a_guard_ends_while_another_thread_is_inside_a_call_on_the_green_context() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let green = green(&context);
    for is_finished in [true, false] {
        let reports = reports();
        let current = green.make_current().expect("it is current nowhere");
        let (inside, finish) = block("cuGreenCtxStreamCreate");
        std::thread::scope(|scope| {
            scope.spawn(|| green.stream().expect("a stream"));
            inside.recv().expect("the call is active");
            match is_finished {
                true => current.end().expect("the context is popped"),
                false => drop(current),
            }
            finish.send(()).expect("it waits");
        });
        set_call_hook(|_| {});
        assert_eq!(*reports.lock().expect("no panic"), [""; 0]);
        let elsewhere = || green.with_current(|_| ());
        let elsewhere = std::thread::scope(|scope| scope.spawn(elsewhere).join());
        elsewhere.expect("no panic").expect("it is current nowhere");
    }
}
