//! Releases that the driver refuses permanently, for each object and error code.

use crate::capture::errors::reports;
use crate::prelude::*;
use std::any::Any;

/// An object whose release fails.
struct Case {
    /// The name of the object in reports.
    what: &'static str,
    function: &'static str,
    /// Whether the object stays allocated when its context is destroyed.
    outlives_context: bool,
    /// How many other objects it keeps from being released, which count as leaks too.
    keeps: u64,
    make: fn(&Context) -> Box<dyn Any>,
}

const fn case(
    what: &'static str,
    function: &'static str,
    outlives_context: bool,
    make: fn(&Context) -> Box<dyn Any>,
) -> Case {
    Case { what, function, outlives_context, keeps: 0, make }
}

fn pool(context: &Context) -> MemoryPool {
    MemoryPool::new(context, MemoryPoolOptions::default()).expect("a pool")
}

const CASES: &[Case] = &[
    case("a stream", "cuStreamDestroy_v2", false, |context| {
        Box::new(context.stream().expect("a stream"))
    }),
    case("an event", "cuEventDestroy_v2", false, |context| {
        Box::new(context.event().expect("an event"))
    }),
    case("a module", "cuModuleUnload", false, |context| {
        Box::new(Module::from_ptx(context, VECTOR).expect("a module"))
    }),
    case("a library", "cuLibraryUnload", false, |_| {
        Box::new(Library::from_ptx(VECTOR).expect("a library"))
    }),
    case("a linker", "cuLinkDestroy", false, |context| {
        Box::new(Linker::new(context).expect("a linker"))
    }),
    case("device memory", "cuMemFree_v2", false, |context| {
        let stream = context.stream().expect("a stream");
        Box::new(DeviceBuffer::<u8>::zeroed_sync(&stream, 64).expect("memory"))
    }),
    case("stream-ordered device memory", "cuMemFreeAsync", true, |context| {
        let stream = context.stream().expect("a stream");
        Box::new(DeviceBuffer::<u8>::uninit(&stream, 64).expect("memory"))
    }),
    // The pool cannot be destroyed while its memory is allocated.
    Case {
        keeps: 1,
        ..case("stream-ordered device memory", "cuMemFreeAsync", true, |context| {
            let stream = context.stream().expect("a stream");
            let pool = pool(context);
            Box::new(DeviceBuffer::<u8>::uninit_from_pool(&pool, &stream, 64).expect("memory"))
        })
    },
    case("pinned memory", "cuMemFreeHost", false, |context| {
        Box::new(PinnedBuffer::<u8>::zeroed(context, 64).expect("memory"))
    }),
    case("registered host memory", "cuMemHostUnregister", true, |context| {
        Box::new(PinnedBuffer::register(context, vec![0u8; 64]).expect("memory"))
    }),
    case("a memory pool", "cuMemPoolDestroy", true, |context| Box::new(pool(context))),
    case("a memory pool", "cuMemPoolDestroy", true, |context| {
        Box::new(OrderedManager::with(context, MemoryPoolOptions::default()).expect("a manager"))
    }),
    case("a context", "cuCtxDestroy_v2", false, |context| {
        Box::new(Context::new(&context.device(), ContextFlags::empty()).expect("a context"))
    }),
    case("a green context", "cuGreenCtxDestroy", false, |context| {
        let resource = SmResource::of_device(&context.device()).expect("SMs");
        let split = resource.split_by_count(SplitByCount::default());
        Box::new(GreenContext::new(split.expect("groups").groups).expect("a green context"))
    }),
    case("a graph", "cuGraphDestroy", false, |context| {
        let stream = context.stream().expect("a stream");
        let graph = stream.capture::<Error>(CaptureMode::ThreadLocal, |_| Ok(()));
        Box::new(graph.expect("a graph"))
    }),
    case("an executable graph", "cuGraphExecDestroy", false, |context| {
        let stream = context.stream().expect("a stream");
        let graph = stream.capture::<Error>(CaptureMode::ThreadLocal, |_| Ok(()));
        Box::new(graph.expect("a graph").instantiate().expect("executable"))
    }),
    case("shared memory that a reader may still use", "cuStreamWaitEvent", true, |context| {
        let (home, other) = (context.stream(), context.stream());
        let buffer = DeviceBuffer::<u8>::zeroed(&home.expect("a stream"), 64).expect("memory");
        let shared = buffer.share().expect("an event");
        Box::new(shared.on(&other.expect("a stream")).expect("a reader"))
    }),
];

/// Drops the object of a case while its release fails. Returns the reports and the number of leaks.
fn refused(case: &Case, context: &Context, code: CUresult) -> (Vec<String>, u64) {
    let reports = reports();
    let object = (case.make)(context);
    context.synchronize().expect("a wait");
    let before = cuda_safe::leaked();
    {
        let refused = fail_from(case.function, 1, code);
        drop(object);
        assert_ne!(refused.hits(), 0, "{} was not called", case.function);
    }
    let reports = std::mem::take(&mut *reports.lock().expect("no panic"));
    (reports, cuda_safe::leaked() - before)
}

#[test]
fn a_failed_release_is_reported_with_the_object_the_function_and_the_code() {
    let (_end, context) = in_child!(leaking());
    cuda_safe::event::set_reuse(false);
    let code = CUresult::CUDA_ERROR_UNKNOWN;
    for case in CASES {
        let (reports, leaks) = refused(case, &context, code);
        let [report] = &reports[..] else {
            panic!("{}: {reports:?}", case.what);
        };
        let begin = format!("{} was not released: {}", case.what, case.function);
        assert!(report.starts_with(&begin), "{report}");
        assert!(report.contains("CUDA_ERROR_UNKNOWN"), "{report}");
        assert_eq!(leaks, 1 + case.keeps, "{}", case.what);
    }
}

/// The process is exiting, so there is nothing to release and nothing to report.
#[test]
fn a_release_after_the_driver_has_shut_down_is_not_a_leak() {
    let (_end, context) = in_child!(leaking());
    cuda_safe::event::set_reuse(false);
    let code = CUresult::CUDA_ERROR_DEINITIALIZED;
    for case in CASES.iter().filter(|case| case.function != "cuStreamWaitEvent") {
        let expected = (vec![], case.keeps);
        assert_eq!(refused(case, &context, code), expected, "{}", case.what);
    }
}

#[test]
fn a_destroyed_context_leaks_what_belongs_to_the_device_or_the_process() {
    let (_end, context) = in_child!(leaking());
    cuda_safe::event::set_reuse(false);
    let code = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;
    for case in CASES.iter().filter(|case| case.function != "cuStreamWaitEvent") {
        let expected = (vec![], u64::from(case.outlives_context) + case.keeps);
        assert_eq!(refused(case, &context, code), expected, "{}", case.what);
    }
}

/// After a fatal error nothing can be released, so a report for each object would be useless.
#[test]
fn releases_after_a_fatal_error_are_counted_and_not_reported() {
    let (_end, context) = in_child!(leaking());
    cuda_safe::event::set_reuse(false);
    let code = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
    for case in CASES.iter().filter(|case| case.function != "cuStreamWaitEvent") {
        let expected = (vec![], 1 + case.keeps);
        assert_eq!(refused(case, &context, code), expected, "{}", case.what);
    }
}

/// Memory that a reader may still use is never freed, so it leaks with any code.
#[test]
fn a_reader_that_cannot_be_waited_for_is_reported_with_every_code() {
    let (_end, context) = in_child!(leaking());
    let case = CASES.iter().find(|case| case.function == "cuStreamWaitEvent");
    let case = case.expect("a case");
    for code in [
        CUresult::CUDA_ERROR_DEINITIALIZED,
        CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    ] {
        let allocations = cuda_sim::alive().device_allocations;
        let (reports, leaks) = refused(case, &context, code);
        assert_eq!((reports.len(), leaks), (1, 1), "{code}");
        context.synchronize().expect("a wait");
        let left = cuda_sim::alive().device_allocations - allocations;
        assert_eq!(left, 1, "the memory stays: {code}");
    }
}

/// A temporary refusal is retried up to 17 attempts in total.
#[test]
fn a_release_that_fails_every_attempt_is_reported_after_the_last_one() {
    let (_end, context) = in_child!(leaking());
    let reports = reports();
    let code = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    let refused = fail_from("cuMemFreeHost", 1, code);
    drop(PinnedBuffer::<u8>::zeroed(&context, 64).expect("memory"));
    for attempts in 1..17 {
        assert_eq!((refused.hits(), cuda_safe::leaked()), (attempts, 0));
        assert_eq!(cuda_safe::deferred_releases(), 1);
        context.synchronize().expect("a wait");
    }
    assert_eq!((refused.hits(), cuda_safe::leaked()), (17, 1));
    assert_eq!(cuda_safe::deferred_releases(), 0);
    context.synchronize().expect("a wait");
    assert_eq!(refused.hits(), 17);
    let reports = reports.lock().expect("no panic").len();
    assert_eq!(reports, 1);
}

/// `CUDA_ERROR_NOT_PERMITTED` is the error on a callback thread, which ends eventually.
#[test]
fn a_release_that_is_not_permitted_is_retried_until_it_succeeds() {
    let (_end, context) = in_child!(leaking());
    {
        let refused = fail_from("cuMemFreeHost", 1, CUresult::CUDA_ERROR_NOT_PERMITTED);
        drop(PinnedBuffer::<u8>::zeroed(&context, 64).expect("memory"));
        for attempts in 1..100 {
            assert_eq!((refused.hits(), cuda_safe::leaked()), (attempts, 0));
            context.synchronize().expect("a wait");
        }
    }
    context.synchronize().expect("a wait");
    assert_eq!(cuda_sim::alive().pinned_allocations, 0);
}

/// A borrowed owner would be a reason not to defer the release.
#[test]
fn the_release_of_a_linker_is_deferred_if_it_is_not_permitted() {
    let (_end, context) = in_child!(leaking());
    let linker = Linker::new(&context).expect("a linker");
    let refused = fail("cuLinkDestroy", 1, CUresult::CUDA_ERROR_NOT_PERMITTED);
    drop(linker);
    assert_eq!((cuda_safe::deferred_releases(), cuda_safe::leaked()), (1, 0));
    drop(refused);
    context.synchronize().expect("a wait");
    assert_eq!((cuda_safe::deferred_releases(), cuda_safe::leaked()), (0, 0));
}
