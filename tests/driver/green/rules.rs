//! Rules of NVIDIA's reference for green contexts, tested with raw calls.

use crate::call::raw::{current, succeeds};
use crate::common::{self, child};
use crate::green::{again, alone, resource, smallest, two};
use crate::module::kernels::Busy;
use cuda_safe::green::{GreenContext, SmGroup, SmResource};
use cuda_safe::sys::{
    CUcontext, CUdevResource, CUdevResourceType, CUgreenCtx, CUresult, cuCtxDestroy_v2,
    cuCtxFromGreenCtx, cuCtxGetDevResource, cuCtxPushCurrent_v2, cuCtxRecordEvent, cuCtxSetCurrent,
    cuCtxWaitEvent, cuDevResourceGenerateDesc, cuDevSmResourceSplitByCount, cuDeviceGetDevResource,
    cuGreenCtxCreate, cuGreenCtxDestroy, cuGreenCtxGetDevResource, cuStreamGetGreenCtx,
};
use cuda_safe::{Context, Device, Stream};
use std::ptr::null_mut;

const SM: CUdevResourceType = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;

fn raw_resource(device: &Device) -> CUdevResource {
    let mut resource = CUdevResource::default();
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuDeviceGetDevResource(device.as_raw(), &raw mut resource, SM) });
    resource
}

fn sm_count(resource: &CUdevResource) -> u32 {
    // SAFETY: this is an SM resource, whose fields are integers.
    unsafe { resource.__bindgen_anon_1.sm.smCount }
}

fn converted(green: &GreenContext) -> CUcontext {
    let mut view = null_mut();
    // SAFETY: the green context is alive, and the pointer refers to a local variable.
    succeeds(unsafe { cuCtxFromGreenCtx(&raw mut view, green.as_raw()) });
    view
}

fn green_context_of(stream: &Stream) -> CUgreenCtx {
    let mut green = null_mut();
    // SAFETY: the stream is alive, and the pointer refers to a local variable.
    succeeds(unsafe { cuStreamGetGreenCtx(stream.as_raw(), &raw mut green) });
    green
}

#[test]
fn a_split_gives_fewer_groups_than_requested_if_no_more_fit() {
    let device = or_skip!(resource()).device();
    let input = raw_resource(&device);
    let mut most = 0;
    let (none, no_remainder) = (null_mut(), null_mut());
    // SAFETY: without an output array the call only counts, and the pointers refer to local
    // variables.
    succeeds(unsafe {
        cuDevSmResourceSplitByCount(none, &raw mut most, &raw const input, no_remainder, 0, 0)
    });
    let mut groups = vec![CUdevResource::default(); most as usize + 5];
    let (first, mut count) = (groups.as_mut_ptr(), most + 5);
    // SAFETY: the array has room for `count` groups, and the pointers refer to local variables.
    succeeds(unsafe {
        cuDevSmResourceSplitByCount(first, &raw mut count, &raw const input, no_remainder, 0, 0)
    });
    assert_eq!(count, most);
    let (written, rest) = groups.split_at(count as usize);
    assert!(written.iter().all(|group| group.type_ == SM));
    assert!(rest.iter().all(|group| group.type_ != SM), "left alone");
}

#[test]
fn the_resource_of_a_context_splits_like_that_of_its_device() {
    let _alone = alone();
    let device = or_skip!(resource()).device();
    let sizes = |resource| -> Vec<u32> {
        let split = smallest(resource);
        let groups = split.groups.iter().chain(&split.remainder);
        groups.map(SmGroup::sm_count).collect()
    };
    let of_device = sizes(again(&device));
    let context = Context::primary(&device).expect("a primary context");
    assert_eq!(sizes(SmResource::of_context(&context).expect("an answer")), of_device);
}

#[test]
fn a_converted_context_is_set_current_and_has_the_resource_of_its_green_context() {
    let (_alone, [one, _]) = or_skip!(two());
    let view = converted(&one);
    let mut its = CUdevResource::default();
    // SAFETY: the converted context is alive, and the pointer refers to a local variable.
    succeeds(unsafe { cuCtxGetDevResource(view, &raw mut its, SM) });
    assert_eq!((its.type_, sm_count(&its)), (SM, one.sm_count()));
    assert!(current().is_null());
    // SAFETY: the converted context stays alive until it is popped below.
    succeeds(unsafe { cuCtxSetCurrent(view) });
    assert_eq!(current(), view);
    // SAFETY: null pops the current context.
    succeeds(unsafe { cuCtxSetCurrent(null_mut()) });
    assert!(current().is_null());
}

#[test]
fn a_green_context_retains_the_primary_context_and_makes_nothing_current() {
    child::with_gpu(|device| {
        or_skip!(common::since(12, 4));
        let is_active = || device.primary_state().expect("known").active;
        let input = raw_resource(&device);
        let (mut group, mut count, no_remainder) = (CUdevResource::default(), 1, null_mut());
        let (first, count) = (&raw mut group, &raw mut count);
        // SAFETY: the array has room for one group, and the pointers refer to local variables.
        succeeds(unsafe {
            cuDevSmResourceSplitByCount(first, count, &raw const input, no_remainder, 0, 0)
        });
        let (mut descriptor, mut green) = (null_mut(), null_mut());
        // SAFETY: the pointers refer to local variables, one of which is a group.
        succeeds(unsafe { cuDevResourceGenerateDesc(&raw mut descriptor, first, 1) });
        assert!(!is_active(), "nothing has retained it");
        // SAFETY: the descriptor was just created, and the pointer refers to a local variable.
        succeeds(unsafe { cuGreenCtxCreate(&raw mut green, descriptor, device.as_raw(), 1) });
        assert!(is_active(), "the green context retains it");
        assert!(current().is_null());
        // SAFETY: the green context was just created, and nothing uses it.
        succeeds(unsafe { cuGreenCtxDestroy(green) });
        assert!(!is_active(), "its last retain is released");
    });
}

#[test]
fn a_green_stream_belongs_to_its_partition_with_any_current_context() {
    let (_alone, [one, other]) = or_skip!(two());
    let within = other.with_current(|_| one.stream());
    let under_primary = one.context().with_current(|_| one.stream());
    for stream in [within, under_primary] {
        let stream = stream.expect("current").expect("a stream");
        assert_eq!(green_context_of(&stream), one.as_raw());
    }
    assert!(current().is_null());
}

#[test]
fn a_partition_waits_for_an_event_on_the_device() {
    child::in_child(&[], || {
        let (_alone, [one, other]) = or_skip!(two());
        let context = one.context().clone();
        let [event, later] = common::events(&context);
        let (before, after) = (one.stream().expect("a stream"), other.stream());
        let after = after.expect("a stream");
        let busy = Busy::new(&context, &before);
        one.record_event(&event).expect("a record");
        other.wait_event(&event).expect("a wait");
        later.record(&after).expect("a record");
        assert!(!event.is_complete().expect("a query"), "no call has waited");
        assert!(!later.is_complete().expect("a query"), "the partition waits");
        later.synchronize().expect("a wait");
        assert!(event.is_complete().expect("a query"));
        drop(busy);
    });
}

#[test]
fn the_legacy_stream_does_not_wait_for_a_green_stream() {
    child::in_child(&[], || {
        let (_alone, [one, _]) = or_skip!(two());
        let context = one.context().clone();
        let stream = one.stream().expect("a stream");
        let event = context.event().expect("an event");
        let busy = Busy::new(&context, &stream);
        let current = context.make_current().expect("current");
        current.legacy_stream().record_event(&event).expect("a record");
        event.synchronize().expect("a wait");
        assert!(!stream.is_complete().expect("a query"), "its work is under way");
        stream.synchronize().expect("a wait");
        current.end().expect("innermost");
        drop(busy);
    });
}

mod provoked {
    //! The driver refuses invalid contexts, devices and resource types.

    use super::*;

    #[test]
    fn resources_of_unknown_types_and_devices_are_refused() {
        let (_alone, [one, _]) = or_skip!(two());
        let context = one.context().as_raw();
        let kind = CUdevResourceType::CU_DEV_RESOURCE_TYPE_INVALID;
        let mut resource = CUdevResource::default();
        let place = &raw mut resource;
        let wrong = CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE;
        // SAFETY: the context is alive, and the pointer refers to a local variable.
        let of_context = unsafe { cuCtxGetDevResource(context, place, kind) };
        // SAFETY: the green context is alive, and the pointer refers to a local variable.
        let of_green = unsafe { cuGreenCtxGetDevResource(one.as_raw(), place, kind) };
        assert_eq!((of_context, of_green), (wrong, wrong));
        let kind = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
        // SAFETY: the pointer refers to a local variable.
        let of_no_device = unsafe { cuDeviceGetDevResource(1000, place, kind) };
        assert_eq!(of_no_device, CUresult::CUDA_ERROR_INVALID_DEVICE);
    }

    /// The types are no resource, those of work queues, and an unknown one.
    #[test]
    fn a_split_of_another_resource_than_sms_is_refused() {
        child::in_child(&[], || {
            let device = or_skip!(resource()).device();
            for kind in [0, 1000, 10_000, 77] {
                let kind = CUdevResourceType(kind);
                assert_ne!(kind, SM);
                let input = CUdevResource { type_: kind, ..raw_resource(&device) };
                let (mut group, mut count) = (CUdevResource::default(), 1);
                let (first, count) = (&raw mut group, &raw mut count);
                let no_remainder = null_mut();
                // SAFETY: the array has room for one group, and the pointers refer to local variables.
                let refused = unsafe {
                    cuDevSmResourceSplitByCount(first, count, &raw const input, no_remainder, 0, 0)
                };
                assert_eq!(refused, CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE, "{kind:?}");
            }
        });
    }

    #[test]
    fn an_unconverted_green_context_is_refused_as_a_context() {
        child::in_child(&[], || {
            let (_alone, [one, _]) = or_skip!(two());
            let event = one.context().event().expect("an event");
            let green: CUcontext = one.as_raw().cast();
            let mut resource = CUdevResource::default();
            // SAFETY: the driver compares the handle with those of its contexts and rejects it.
            let of_push = unsafe { cuCtxPushCurrent_v2(green) };
            // SAFETY: as above.
            let of_set = unsafe { cuCtxSetCurrent(green) };
            // SAFETY: as above, and the pointer refers to a local variable.
            let of_resource = unsafe { cuCtxGetDevResource(green, &raw mut resource, SM) };
            let mut answers = vec![
                ("cuCtxPushCurrent", of_push),
                ("cuCtxSetCurrent", of_set),
                ("cuCtxGetDevResource", of_resource),
            ];
            if common::offers(12, 5) {
                // SAFETY: as above, and the event is alive.
                let of_record = unsafe { cuCtxRecordEvent(green, event.as_raw()) };
                // SAFETY: as above.
                let of_wait = unsafe { cuCtxWaitEvent(green, event.as_raw()) };
                answers.push(("cuCtxRecordEvent", of_record));
                answers.push(("cuCtxWaitEvent", of_wait));
            }
            // SAFETY: as above.
            answers.push(("cuCtxDestroy", unsafe { cuCtxDestroy_v2(green) }));
            for (function, code) in answers {
                assert_eq!(code, CUresult::CUDA_ERROR_INVALID_CONTEXT, "{function}");
            }
            assert!(current().is_null());
            let stream = one.stream().expect("the green context is alive");
            stream.synchronize().expect("a wait");
        });
    }
}
