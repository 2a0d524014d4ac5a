//! Fault injection: which calls fail, and on which threads.

use crate::prelude::*;
use cuda_sim::fault::unfired;

#[test]
fn the_nth_call_of_a_function_fails_once() {
    let (_end, _context, stream) = in_child!(on_stream());
    let fault = Fault::of_function("cuMemAllocAsync")
        .nth(2)
        .with(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
        .inject(Scope::Thread);
    let tries: Vec<bool> =
        (0..4).map(|_| DeviceBuffer::<u8>::uninit(&stream, 16).is_ok()).collect();
    assert_eq!(tries, [true, false, true, true]);
    assert_eq!(fault.hits(), 1);
}

#[test]
fn every_call_from_the_nth_on_fails_until_the_fault_ends() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let fault = Fault::of_any()
        .nth(3)
        .from_then_on()
        .with(CUresult::CUDA_ERROR_UNKNOWN)
        .inject(Scope::Process);
    let (a, b) = (context.device().name(), context.device().name());
    assert!(a.is_ok() && b.is_ok());
    for _ in 0..3 {
        let error = context.device().name().expect_err("the fault");
        assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_UNKNOWN));
        assert!(error.to_string().starts_with("cuDeviceGetName"), "{error}");
    }
    // Each error also asks for the driver's log, which fails too.
    assert_eq!(fault.hits(), 6);
    drop(fault);
    context.device().name().expect("the fault has ended");
}

#[test]
fn a_fault_of_one_thread_does_not_disturb_another() {
    let (_end, context) = in_child!(on(Profile::h200()));
    cuda_safe::event::set_reuse(false);
    let fault = Fault::of_function("cuEventCreate")
        .from_then_on()
        .with(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
        .inject(Scope::Thread);
    std::thread::scope(|scope| {
        scope.spawn(|| context.event().expect("another thread"));
    });
    context.event().expect_err("this thread");
    assert_eq!(fault.hits(), 1);
}

#[test]
fn memory_can_be_limited() {
    let (_end, context, stream) = in_child!(on_stream());
    let limit = limit_memory(1000);
    let first = DeviceBuffer::<u8>::uninit(&stream, 600).expect("below the limit");
    let error = DeviceBuffer::<u8>::uninit(&stream, 600).expect_err("above it");
    assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    assert_eq!(context.memory_info().expect("known").free, 400);
    drop(first);
    stream.synchronize().expect("the free runs");
    DeviceBuffer::<u8>::uninit(&stream, 600).expect("there is room again");
    drop(limit);
    DeviceBuffer::<u8>::uninit(&stream, 6000).expect("no limit");
}

#[test]
fn a_fault_cannot_inject_success() {
    let fault = std::panic::catch_unwind(|| Fault::of_any().with(CUresult::CUDA_SUCCESS));
    let why = fault.expect_err("a panic");
    let why = why.downcast_ref::<&str>().expect("a text");
    assert!(why.contains("must be an error"), "{why}");
}

#[test]
fn an_inner_limit_can_end_before_the_outer_one() {
    let (_end, _context, stream) = in_child!(on_stream());
    let outer = limit_memory(1000);
    drop(limit_memory(10));
    DeviceBuffer::<u8>::uninit(&stream, 600).expect("the inner limit has ended");
    DeviceBuffer::<u8>::uninit(&stream, 6000).expect_err("the outer limit is still in force");
    // The limits may end in any order.
    let inner = limit_memory(10);
    drop(outer);
    DeviceBuffer::<u8>::uninit(&stream, 600).expect_err("the inner limit is still in force");
    drop(inner);
    let strict = cuda_sim::fault::strict_contexts();
    drop(cuda_sim::fault::strict_contexts());
    // SAFETY: the stream is alive, and no context is current.
    let code = unsafe { cuStreamQuery(stream.as_raw()) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_CONTEXT);
    drop(strict);
}

#[test]
fn a_poisoned_device_is_fatal_and_later_drops_do_not_panic() {
    in_child!();
    crate::start(Profile::h200());
    let context = context();
    let stream = context.stream().expect("a stream");
    let buffer = DeviceBuffer::from_slice(&stream, &[1u8; 8]).expect("a copy");
    cuda_sim::fault::poison();
    assert!(stream.synchronize().expect_err("poisoned").is_fatal());
    let later = context.event().expect_err("everything fails");
    assert!(matches!(later, Error::Driver(_)) && later.is_fatal(), "{later}");
    drop((buffer, stream, context));
    // The buffer and the stream. The last release of the context succeeds, as with driver 580.
    assert_eq!(cuda_safe::leaked(), 2);
    assert_eq!(cuda_sim::stack_depth(), 0);
}

#[test]
fn a_fault_is_parsed() {
    let parse = |text: &str| text.parse::<Fault>().map(|fault| format!("{fault:?}"));
    let of = |fault: Fault| Ok(format!("{fault:?}"));
    let memory = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    let fault = Fault::of_function("cuMemAlloc_v2");
    assert_eq!(parse("cuMemAlloc_v2"), of(fault.clone()));
    assert_eq!(parse("cuMemAlloc_v2=2"), of(fault.clone().with(memory)));
    assert_eq!(parse("cuMemAlloc_v2:3=CUDA_ERROR_OUT_OF_MEMORY"), of(fault.nth(3).with(memory)));
    assert_eq!(parse("*:7+"), of(Fault::of_any().nth(7).from_then_on()));
    for wrong in ["", "cuNever", "*:", "*:0", "*:-1", "*:1++", "*=", "*=0", "*=CUDA_SUCCESS", "*=x"]
    {
        let error = wrong.parse::<Fault>().expect_err("no fault").to_string();
        assert!(error.starts_with(&format!("no fault {wrong}: ")), "{error}");
    }
}

#[test]
fn a_name_without_a_suffix_means_all_versions_of_a_function() {
    let (_end, _context, stream) = in_child!(on_stream());
    // The crate calls `cuStreamDestroy_v2` and `cuMemAlloc_v2`, as the macros of the header do.
    let fault = Fault::of_function("cuMemAlloc")
        .with(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
        .inject(Scope::Thread);
    let allocate = || DeviceBuffer::<u8>::uninit_sync(&stream, 16);
    let error = allocate().expect_err("the fault");
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    assert_eq!(fault.hits(), 1);
    drop(fault);
    let older: Fault = "cuMemAlloc_v2:2".parse().expect("a symbol");
    let fault = older.inject(Scope::Thread);
    allocate().expect("the first call");
    allocate().expect_err("the second call");
    assert_eq!(fault.hits(), 1);
}

#[test]
fn a_name_that_is_no_function_is_refused() {
    for name in ["nonsense", "cuMemAlloc_v9", "cuMemAlloc_", "cuMem", ""] {
        assert!(Fault::try_of_function(name).is_none(), "{name}");
        name.parse::<Fault>().expect_err(name);
        catch_unwind(|| drop(Fault::of_function(name))).expect_err(name);
    }
}

#[test]
fn faults_that_made_no_call_fail_are_listed() {
    in_child!();
    start(Profile::h200());
    let context = context();
    let _never = Fault::of_function("cuMemAlloc_v2").nth(3).inject(Scope::Process);
    let fault: Fault = "cuDeviceGetName:1+=2".parse().expect("a fault");
    let _fired = fault.inject(Scope::Process);
    context.device().name().expect_err("the fault");
    assert_eq!(unfired(), ["cuMemAlloc_v2:3=999"]);
    let report = cuda_sim::report().to_string();
    let expected = "faults that made no call fail: 1\n  cuMemAlloc_v2:3=999\n";
    assert!(report.contains(expected), "{report}");
}
