//! Report hooks that misbehave.

use crate::prelude::*;

fn no_event_is_destroyed() -> Injected {
    Fault::of_function("cuEventDestroy_v2")
        .with(CUresult::CUDA_ERROR_UNKNOWN)
        .from_then_on()
        .inject(Scope::Thread)
}

#[test]
fn a_hook_whose_own_releases_fail_is_not_called_for_them() {
    let (_end, context) = in_child!(leaking());
    cuda_safe::event::set_reuse(false);
    let calls = Arc::new(AtomicUsize::new(0));
    let (counted, inside) = (Arc::clone(&calls), context.clone());
    set_report_hook(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        drop(inside.event());
    });
    let fails = no_event_is_destroyed();
    drop(context.event().expect("an event"));
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!(cuda_safe::leaked(), 2, "the second leak is counted");
    drop(context.event().expect("an event"));
    assert_eq!(calls.load(Ordering::Relaxed), 2, "heard again");
    drop(fails);
    set_report_hook(|_| {});
}

#[test]
fn a_hook_that_panics_in_its_drop_does_not_panic_in_another_drop() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("an object that the hook owns");
        }
    }
    let (_end, context) = in_child!(leaking());
    let bomb = Bomb;
    set_report_hook(move |_| {
        let _ = &bomb;
        // Its last owner is now the report that it is called for.
        set_report_hook(|_| {});
    });
    let event = context.event().expect("an event");
    let _fails = no_event_is_destroyed();
    let dropped = catch_unwind(AssertUnwindSafe(move || drop(event)));
    assert!(dropped.is_ok(), "a drop never panics");
}

/// The hook lets another thread make the stream part of a capture, and no release blocks the
/// capture.
#[test]
fn the_hook_is_called_for_a_release_when_captures_may_begin_again() {
    let (_end, _context, stream) = in_child!(on_stream());
    let buffer = DeviceBuffer::<u8>::zeroed(&stream, 4).expect("memory");
    let (address, inside) = (buffer.as_raw(), stream.clone());
    set_report_hook(move |_| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let graph = inside.capture::<Error>(CaptureMode::Relaxed, |_| Ok(()));
                drop(graph.expect("begins and ends"));
            });
        });
    });
    let fault = Fault::of_function("cuMemFreeAsync").inject(Scope::Thread);
    drop(buffer);
    drop(fault);
    assert_eq!(cuda_safe::leaked(), 1);
    set_report_hook(|_| {});
    // SAFETY: the fault kept the memory allocated, and nothing else frees it.
    drop(unsafe { DeviceBuffer::<u8>::from_raw(address, 4, &stream) }.expect("memory"));
}
