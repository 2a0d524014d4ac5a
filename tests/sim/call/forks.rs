//! Forked children: calls that return a `Result` fail, and other operations run no user code.
#![cfg(unix)]

use crate::prelude::*;

unsafe extern "C" {
    // A POSIX function that ends the process after some seconds, so that a hanging child is
    // detected.
    fn alarm(seconds: core::ffi::c_uint) -> core::ffi::c_uint;
}

#[test]
fn a_child_forked_during_a_call_on_a_green_context_does_not_wait_for_it() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let split = SmResource::of_device(&context.device()).expect("an H200 has green contexts");
    let split = split.split_by_count(SplitByCount::default());
    let green = GreenContext::new(split.expect("a split").groups.pop());
    let green = green.expect("a green context");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                green.id().expect("an id");
            }
        });
        let forked = |_| {
            common::fork::in_fork(|| {
                // SAFETY: `alarm` takes no pointer.
                unsafe { alarm(10) };
                matches!(green.id(), Err(Error::Forked))
                    && matches!(green.stream(), Err(Error::Forked))
            })
        };
        let all = (0..50).all(forked);
        stop.store(true, Ordering::Relaxed);
        assert!(all, "a child hung");
    });
}

#[test]
fn a_forked_child_does_not_call_the_report_hook() {
    static HEARD: AtomicUsize = AtomicUsize::new(0);
    in_child!();
    start(Profile::h200());
    let context = context();
    let stream = context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 64).expect("memory");
    let host = PinnedBuffer::<u8>::zeroed(&context, 64).expect("memory");
    let other = context.make_current().expect("current");
    let mut pending = Some(buffer.copy_from_pinned(host).expect("a copy"));
    let mut guard = Some(other);
    set_report_hook(|_| {
        HEARD.fetch_add(1, Ordering::Relaxed);
    });
    assert!(common::fork::in_fork(|| {
        drop(pending.take());
        drop(guard.take());
        HEARD.load(Ordering::Relaxed) == 0 && cuda_safe::leaked() >= 1
    }));
    drop(pending.take().expect("only the child dropped it"));
    guard.take().expect("as above").end().expect("on top");
    assert_eq!(cuda_safe::leaked(), 0);
}
