//! Green contexts and their streams: which context memory and events belong to, and which objects
//! outlive others.

use super::code;
use super::{PROFILE, driver, green, offers, on_each, resource, smallest};
use crate::prelude::*;
use crate::software::misuses::succeeds;

#[test]
fn the_sms_of_a_stream_are_reported_since_13_1() {
    let profiles = ["h200@12.4", "h200@12.9", "h200", "h200@13.1", "h200@13.5"];
    on_each(&profiles, |_, context| {
        let stream = green(&context).stream().expect("a stream");
        match SmResource::of_stream(&stream) {
            Ok(resource) => assert!(offers(13, 1) && resource.sm_count() == 8),
            Err(error) => assert_eq!(
                error.to_string(),
                format!("cuStreamGetDevResource needs CUDA 13.1; this driver offers {}", driver())
            ),
        }
    });
}

/// The software driver counts one block of a cluster per SM.
#[test]
fn the_largest_cluster_is_limited_by_the_partition() {
    const HOPPER: &str = include_str!("../../../kernels/hopper.ptx");
    on_each(&["h200@12.6", "h200", "h200@13.5"], |_, context| {
        let module = Module::from_ptx(&context, HOPPER).expect("the test kernels");
        let ranks = module.kernel("cluster_ranks").expect("found");
        let config = LaunchConfig::linear(16, 32);
        assert_eq!(ranks.max_cluster_size(config, &Default::default()).expect("an answer"), 8);
        for (min, expected) in [(2, 2), (6, 6), (8, 8), (16, 8)] {
            let split = resource(&context).split_by_count(SplitByCount {
                min,
                flags: SplitFlags::IGNORE_SM_COSCHEDULING,
                ..Default::default()
            });
            let group = split.expect("a split").groups.remove(0);
            let green = GreenContext::new([group]).expect("a green context");
            assert_eq!(green.max_cluster_size(&ranks, config).expect("an answer"), expected);
        }
    });
}

#[test]
fn an_error_of_the_driver_at_the_creation_of_a_green_context_is_returned() {
    on_each(&["h200@12.4", "h200", "h200@13.5"], |_, context| {
        for expected in [
            CUresult::CUDA_ERROR_OUT_OF_MEMORY,
            CUresult::CUDA_ERROR_NOT_SUPPORTED,
            CUresult::CUDA_ERROR_INVALID_DEVICE,
        ] {
            let group = smallest(&context).groups.remove(0);
            let fault = Fault::of_function("cuGreenCtxCreate").with(expected).inject(Scope::Thread);
            assert_eq!(code(GreenContext::new([group])), expected);
            assert_eq!(fault.hits(), 1);
        }
    });
}

#[test]
fn a_green_context_cannot_record_an_event_of_another_context() {
    on_each(&["h200@12.4", "h200", "h200@13.5"], |_, context| {
        let green = green(&context);
        let device = context.device();
        let other = Context::new(&device, ContextFlags::empty()).expect("a context");
        let event = other.event().expect("an event");
        let why = invalid(green.record_event(&event));
        assert!(matches!(why, Invalid::OtherContext { .. }), "{why}");
        let (raw, theirs) = (green.as_raw(), event.as_raw());
        // SAFETY: both objects are alive.
        let answer = unsafe { cuGreenCtxRecordEvent(raw, theirs) };
        assert_eq!(answer, CUresult::CUDA_ERROR_INVALID_HANDLE);
    });
}

#[test]
fn a_green_context_waits_for_events_of_other_devices() {
    in_child!();
    start(Profile::h200().with_devices(2));
    let context = context();
    let second = Device::get(1).expect("there are two");
    let second = Context::primary(&second).expect("a context");
    let green = green(&context);
    let (theirs, own) = (second.stream().expect("a stream"), green.stream());
    let own = own.expect("a stream");
    let event = second.event().expect("an event");
    let (sender, seen) = std::sync::mpsc::channel();
    let tell = |stream: &Stream, what: &'static str| {
        let sender = sender.clone();
        let told = stream.launch_host_function(move || sender.send(what).expect("heard"));
        told.expect("launched");
    };
    tell(&theirs, "theirs");
    event.record(&theirs).expect("a record");
    green.wait_event(&event).expect("of another device");
    tell(&own, "own");
    own.synchronize().expect("a wait");
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), ["theirs", "own"]);
    drop((theirs, own, event, green, second, context));
    crate::check();
}

#[test]
fn a_stream_that_is_created_after_a_wait_of_its_green_context_waits_too() {
    on_each(&["h200@12.4", "h200"], |_, context| {
        let green = green(&context);
        let theirs = context.stream().expect("a stream");
        let (sender, seen) = std::sync::mpsc::channel();
        let tell = |stream: &Stream, what: u32| {
            let sender = sender.clone();
            let told = stream.launch_host_function(move || sender.send(what).expect("heard"));
            told.expect("launched");
        };
        for number in 0..8 {
            tell(&theirs, number);
        }
        let event = context.event().expect("an event");
        event.record(&theirs).expect("a record");
        green.wait_event(&event).expect("a wait");
        let later = green.stream().expect("a stream");
        tell(&later, 8);
        later.synchronize().expect("a wait");
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), Vec::from_iter(0..9));
    });
}

#[test]
fn a_wait_for_a_captured_event_invalidates_the_capture() {
    on_each(&["h200@12.4", "h200", "h200@13.5"], |_, context| {
        let green = green(&context);
        let stream = context.stream().expect("a stream");
        let event = context.event().expect("an event");
        let captured = stream.capture::<Error>(CaptureMode::ThreadLocal, |stream| {
            event.record(stream)?;
            assert_eq!(invalid(green.wait_event(&event)), Invalid::GreenContextIsCaptured);
            Ok(())
        });
        let broken = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        assert_eq!(captured.map(drop).expect_err("broken").code(), Some(broken));
        // The driver's own answer to the same wait.
        let again = stream.capture::<Error>(CaptureMode::ThreadLocal, |stream| {
            event.record(stream)?;
            let (raw, theirs) = (green.as_raw(), event.as_raw());
            // SAFETY: both objects are alive.
            let answer = unsafe { cuGreenCtxWaitEvent(raw, theirs) };
            assert_eq!(answer, CUresult::CUDA_ERROR_CAPTURED_EVENT);
            Ok(())
        });
        assert_eq!(again.map(drop).expect_err("broken").code(), Some(broken));
        stream.synchronize().expect("it is not current any more");
    });
}

#[test]
fn memory_and_events_created_under_a_green_context_belong_to_the_primary_context() {
    on_each(&["h200@12.4", "h200", "h200@13.5"], |_, context| {
        let green = green(&context);
        let mut address = 0;
        let mut event = null_mut();
        let made = green.with_current(|_| {
            // SAFETY: the pointer refers to a local variable.
            succeeds(unsafe { cuMemAlloc_v2(&raw mut address, 64) });
            let flags = CUevent_flags::CU_EVENT_DEFAULT.0;
            // SAFETY: the pointer refers to a local variable.
            succeeds(unsafe { cuEventCreate(&raw mut event, flags) });
        });
        made.expect("current");
        let mut owner: CUcontext = null_mut();
        let (place, attribute) =
            ((&raw mut owner).cast(), CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT);
        // SAFETY: the attribute is a context, and the pointer refers to a variable for one.
        succeeds(unsafe { cuPointerGetAttribute(place, attribute, address) });
        assert_eq!(owner, context.as_raw());
        // SAFETY: both objects are alive.
        succeeds(unsafe { cuGreenCtxRecordEvent(green.as_raw(), event) });
        drop(green);
        // Both outlive the green context.
        // SAFETY: nothing uses the memory.
        succeeds(unsafe { cuMemFree_v2(address) });
        // SAFETY: as above.
        succeeds(unsafe { cuEventDestroy_v2(event) });
    });
}

#[test]
fn default_streams_report_the_current_context() {
    on_each(&["h200@12.4", "h200", "h200@13.5"], |_, context| {
        let green = green(&context);
        let of = |stream: CUstream| {
            let mut its: CUgreenCtx = null_mut();
            // SAFETY: the handle is a default stream, and the pointer refers to a local variable.
            let answer = unsafe { cuStreamGetGreenCtx(stream, &raw mut its) };
            if answer.is_success() { Ok(its) } else { Err(answer) }
        };
        let null: CUstream = null_mut();
        let primary = context.with_current(|_| {
            for stream in [null, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD] {
                assert_eq!(of(stream), Ok(null_mut()));
            }
        });
        primary.expect("current");
        let under = green.with_current(|_| {
            for stream in [null, CU_STREAM_LEGACY] {
                assert_eq!(of(stream), Ok(green.as_raw()));
            }
            assert_eq!(of(CU_STREAM_PER_THREAD), Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
        });
        under.expect("current");
    });
}

#[test]
fn priorities_of_green_streams_are_clamped() {
    on_each(&["h200@12.4", "h200@12.6", "h200", "h200@13.5"], |_, context| {
        let green = green(&context);
        for (asked, given) in [(-100, -5), (-5, -5), (-2, -2), (0, 0), (7, 0)] {
            let stream =
                green.stream_with(StreamOptions { priority: asked, ..StreamOptions::default() });
            let stream = stream.expect("a stream");
            assert_eq!(stream.priority().expect("known"), given);
        }
    });
}

#[test]
fn streams_that_outlive_their_green_context_depend_on_the_version() {
    let profiles = ["h200@12.4", "h200", "h200@13.1", "h200@13.5"];
    let this = std::env::var(PROFILE);
    for profile in profiles {
        common::child::in_child(&[(PROFILE, profile)], || {
            if this.as_deref() != Ok(profile) {
                return;
            }
            start(profile.parse().expect("a profile"));
            let context = context();
            let green = green(&context);
            let stream = green.stream().expect("a stream");
            // SAFETY: the contract is violated on purpose: the object and its stream still exist.
            succeeds(unsafe { cuGreenCtxDestroy(green.as_raw()) });
            let misuses = cuda_sim::misuses();
            let named = misuses.iter().any(|its| its.contains("before its streams"));
            assert_eq!(named, !offers(13, 1), "{misuses:?}");
            let raw = stream.as_raw();
            let (gone, destroyed) = if offers(13, 1) {
                (CUresult::CUDA_ERROR_STREAM_DETACHED, CUresult::CUDA_SUCCESS)
            } else {
                let gone = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;
                (gone, gone)
            };
            // SAFETY: the software driver recognizes the destroyed handle.
            assert_eq!(unsafe { cuStreamQuery(raw) }, gone);
            // SAFETY: as above.
            assert_eq!(unsafe { cuStreamSynchronize(raw) }, gone);
            // SAFETY: as above.
            assert_eq!(unsafe { cuStreamDestroy_v2(raw) }, destroyed);
        });
    }
}

#[test]
fn borrowed_streams_are_checked_with_every_driver() {
    let profiles = ["h200@12.4", "h200@12.6", "h200@12.9", "h200", "h200@13.5"];
    on_each(&profiles, |_, context| {
        let stream = green(&context).stream().expect("a stream");
        let mut its = null_mut();
        // SAFETY: the stream is alive, and the pointer refers to a local variable.
        let told = unsafe { cuStreamGetCtx(stream.as_raw(), &raw mut its) };
        let silent = offers(12, 5) && !offers(13, 0);
        let expected = match silent {
            true => CUresult::CUDA_ERROR_NOT_SUPPORTED,
            false => CUresult::CUDA_SUCCESS,
        };
        assert_eq!(told, expected);
        // SAFETY: the stream outlives the borrowed stream.
        let borrowed = unsafe { Stream::borrow_checked(stream.as_raw(), &context) };
        assert!(borrowed.expect("of this device") == stream);
        let other = Context::new(&context.device(), ContextFlags::empty()).expect("a context");
        // SAFETY: as above.
        let refused = unsafe { Stream::borrow_checked(stream.as_raw(), &other) };
        assert!(matches!(invalid(refused), Invalid::OtherContext { .. }));
    });
}
