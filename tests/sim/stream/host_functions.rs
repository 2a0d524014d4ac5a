//! Host functions: their ownership after an error, and the calls inside of them.

use crate::prelude::*;

/// With a code of earlier work, or an unknown one, the driver may still run the function.
#[test]
fn a_host_function_that_the_driver_may_still_run_is_kept_alive() {
    in_child!();
    start(Profile::h200());
    let stream = context().stream().expect("a stream");
    let kept_after = |code| {
        let owned = Arc::new(());
        let kept = Arc::clone(&owned);
        let _fails =
            Fault::of_function("cuLaunchHostFunc").with(CUresult(code)).inject(Scope::Thread);
        stream.launch_host_function(move || drop(kept)).expect_err("the fault");
        Arc::strong_count(&owned) == 2
    };
    for code in [304, 700, 703, 802, 806, 909, 917, 999, 1234] {
        assert!(kept_after(code), "freed on {code}");
    }
    assert_eq!(cuda_safe::leaked(), 9);
    for code in [1, 2, 400, 709, 800, 801, 900, 906] {
        assert!(!kept_after(code), "kept on {code}");
    }
    assert_eq!(cuda_safe::leaked(), 9);
}

/// A host function must make no driver call at all.
#[test]
fn drops_in_a_host_function_make_no_driver_call_and_are_released_later() {
    let (_end, context, helper) = in_child!(on_stream());
    cuda_safe::event::set_reuse(false);
    let stream = context.stream().expect("a stream");
    let event = context.event().expect("an event");
    let pinned = PinnedBuffer::<u8>::zeroed(&context, 64).expect("memory");
    let ordered = DeviceBuffer::<u8>::zeroed(&stream, 64).expect("memory");
    let plain = DeviceBuffer::<u8>::zeroed_sync(&stream, 64).expect("memory");
    let module = Module::from_ptx(&context, include_str!("../../kernels/vector.ptx"));
    stream.synchronize().expect("a wait");
    let (tell, told) = mpsc::channel();
    let function = move || {
        cuda_sim::clear_calls();
        drop((event, pinned, ordered, plain, module, stream));
        let calls: Vec<_> = cuda_sim::calls().iter().map(|it| it.function).collect();
        tell.send(calls).expect("the test receives it");
    };
    helper.launch_host_function(function).expect("enqueued");
    helper.synchronize().expect("a wait");
    assert_eq!(told.recv().expect("it ran"), [""; 0]);
    assert_eq!(cuda_sim::alive().streams, 2);
    drop(context.event().expect("an event"));
    let alive = cuda_sim::alive();
    assert_eq!((alive.streams, alive.events), (1, 0), "{alive}");
}

#[test]
fn copies_in_a_host_function_are_refused_without_a_driver_call() {
    let (_end, context, helper) = in_child!(on_stream());
    let stream = context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 64).expect("memory");
    let pinned = PinnedBuffer::<u8>::zeroed(&context, 64).expect("memory");
    stream.synchronize().expect("a wait");
    let (tell, told) = mpsc::channel();
    let function = move || {
        cuda_sim::clear_calls();
        let of_slice = buffer.copy_from_slice(&[1; 64]);
        let (plane, all) = (Extent::new_2d(8, 8), Region::new(Extent::new_2d(8, 8)));
        let mut whole = buffer.as_mut_slice();
        let of_box = whole.copy_3d_from_slice(plane, all, &[1; 64], all);
        let of_pinned = buffer.as_mut_slice().try_copy_from_pinned(pinned);
        tell.send(([of_slice, of_box], of_pinned.expect_err("a wait"), cuda_sim::calls()))
            .expect("the test receives it");
    };
    helper.launch_host_function(function).expect("enqueued");
    helper.synchronize().expect("a wait");
    let (of_slices, of_pinned, calls) = told.recv().expect("it ran");
    for refused in of_slices {
        assert!(matches!(refused, Err(Error::InHostFunction)), "{refused:?}");
    }
    assert!(matches!(of_pinned.error, Error::InHostFunction), "{of_pinned}");
    assert_eq!(of_pinned.value.len(), 64, "returned");
    let copies = |it: &&Call| it.function.starts_with("cuMemcpy");
    assert_eq!(calls.iter().filter(copies).count(), 0);
    // The buffer was dropped in the host function, and its release is deferred.
    drop(context.event().expect("an event"));
}
