use crate::common;
use crate::kernels::{Busy, Scale};
use crate::need;
use cuda_safe::{
    CUresult, CachePreference, Context, ContextFlags, DeviceBuffer, Error, Invalid, Limit,
};

/// A context of its own, whose settings are nobody else's.
fn own() -> Option<Context> {
    let device = common::gpu()?;
    Some(Context::create(&device, ContextFlags::SCHED_YIELD).expect("a context"))
}

#[test]
fn limits_are_asked_for_and_set() {
    let context = need!(own());
    let before = context
        .limit(Limit::StackSize)
        .expect("every context has one");
    assert!(before > 0);
    context
        .set_limit(Limit::StackSize, 2 * before)
        .expect("twice as much");
    assert!(context.limit(Limit::StackSize).expect("known") >= 2 * before);
    context
        .set_limit(Limit::MallocHeapSize, 16 << 20)
        .expect("before any launch");
    assert!(context.limit(Limit::MallocHeapSize).expect("known") >= 16 << 20);
    assert!(context.limit(Limit::PrintfFifoSize).expect("known") > 0);
}

#[test]
fn the_cache_preference_is_asked_for_and_set() {
    let context = need!(own());
    assert_eq!(
        context.cache_preference().expect("known"),
        CachePreference::None
    );
    context
        .set_cache_preference(CachePreference::Shared)
        .expect("set");
    assert_eq!(
        context.cache_preference().expect("known"),
        CachePreference::Shared
    );
}

#[test]
fn a_context_has_the_flags_that_it_was_made_with() {
    let context = need!(own());
    let flags = context.flags().expect("known");
    assert!(flags.contains(ContextFlags::SCHED_YIELD), "{flags:?}");
    assert!(!flags.contains(ContextFlags::SCHED_BLOCKING_SYNC));
    need!(common::since(12, 1));
    context
        .set_flags(ContextFlags::SCHED_BLOCKING_SYNC)
        .expect("another way to wait");
    let flags = context.flags().expect("known");
    assert!(
        flags.contains(ContextFlags::SCHED_BLOCKING_SYNC),
        "{flags:?}"
    );
}

#[test]
fn a_context_tells_its_api_version_and_priorities() {
    let context = need!(own());
    assert!(context.api_version().expect("known") >= 3010);
    let priorities = context.stream_priorities().expect("known");
    assert!(
        priorities.contains(&0) && *priorities.start() < 0,
        "{priorities:?}"
    );
    context.reset_persisting_l2().expect("nothing persists");
}

#[test]
fn the_primary_context_is_active_while_it_is_retained() {
    let device = need!(common::gpu());
    let context = Context::primary(&device).expect("a primary context");
    assert!(device.primary_state().expect("known").active);
    let flags = device.primary_state().expect("known").flags;
    device.set_primary_flags(flags).expect("as it was");
    drop(context);
}

#[test]
fn an_event_of_a_whole_context_comes_after_the_work_of_all_its_streams() {
    need!(common::gpu());
    need!(common::since(12, 5));
    common::child::in_child(&[], || {
        let context = need!(common::context());
        let (a, b) = (
            context.stream().expect("a stream"),
            context.stream().expect("a stream"),
        );
        let (all, later) = (
            context.event().expect("an event"),
            context.event().expect("an event"),
        );
        let scale = Scale::new(&context);
        let busy = Busy::new(&context, &a);
        context.record(&all).expect("a record");
        assert!(
            !all.is_done().expect("a query"),
            "one of the streams has work"
        );
        // Work of the other stream now waits for that of the first.
        context.wait(&all).expect("a wait");
        let mut x = DeviceBuffer::<i32>::zeroed(&b, 10).expect("memory");
        scale.run(&b, &mut x, 1, 7).expect("a launch");
        later.record(&b).expect("a record");
        assert!(!later.is_done().expect("a query"), "it waits");
        later.synchronize().expect("a wait");
        assert!(all.is_done().expect("a query"));
        assert_eq!(x.to_vec().expect("a copy"), [7; 10]);
        drop(busy);
    });
}

#[test]
fn an_event_of_another_context_is_not_recorded() {
    let context = need!(own());
    let other = need!(common::context()).event().expect("an event");
    match context.record(&other) {
        Err(Error::Invalid(invalid)) => {
            assert!(
                matches!(*invalid, Invalid::OtherContext { .. }),
                "{invalid}"
            );
        }
        done => panic!("{done:?}"),
    }
}

mod provoked {
    use super::*;

    #[test]
    fn a_limit_that_the_driver_does_not_know_is_its_error() {
        let context = need!(own());
        let version = cuda_safe::version().expect("a driver");
        match context.limit(Limit::PerBlockMemorySize) {
            Ok(_) => assert!(version >= cuda_safe::CudaVersion::new(13, 4)),
            Err(error) => assert!(
                matches!(
                    error.code(),
                    Some(
                        CUresult::CUDA_ERROR_INVALID_VALUE | CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT
                    )
                ),
                "{error}"
            ),
        }
    }

    #[test]
    fn flags_that_exclude_each_other_are_refused() {
        let context = need!(own());
        need!(common::since(12, 1));
        let both = ContextFlags::SCHED_SPIN | ContextFlags::SCHED_YIELD;
        let error = context.set_flags(both).expect_err("two ways to wait");
        assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_INVALID_VALUE));
    }
}
