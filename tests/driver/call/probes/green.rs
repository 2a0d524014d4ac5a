//! How green contexts are composed, which context their streams belong to, and what is left after
//! they are destroyed.

use super::{Answers, count_of, sm_resource, tell};
use cuda_safe::Device;
use cuda_safe::sys::*;
use std::ptr::{null_mut, without_provenance_mut};

const SM: CUdevResourceType = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;

/// Splits the device into groups of 8 SMs and a remainder, with the same SMs each time.
fn split(
    answers: &mut Answers,
    device: &Device,
    what: &str,
) -> ([CUdevResource; 15], CUdevResource) {
    let input = sm_resource(device);
    let (mut groups, mut rest) = ([CUdevResource::default(); 15], CUdevResource::default());
    let (first, mut count) = (groups.as_mut_ptr(), 15);
    let (input, place) = (&raw const input, &raw mut rest);
    ask!(answers, what, cuDevSmResourceSplitByCount(first, &raw mut count, input, place, 0, 8));
    tell(answers, &format!("{what}: groups"), count);
    tell(answers, &format!("{what}: SMs left"), count_of(&rest));
    (groups, rest)
}

/// Probes which resources one green context accepts. Driver 580 accepts some that should be
/// refused.
pub(super) fn compositions(answers: &mut Answers, device: &Device) {
    let d = device.as_raw();
    let (groups, rest) = split(answers, device, "split into groups of 8");
    let (others, _) = split(answers, device, "split into groups of 8 again");
    let [mut whole, mut twice, mut mixed] =
        [[groups[0], rest], [groups[0], groups[0]], [groups[0], others[0]]];
    let mut make = |what: &str, parts: &mut [CUdevResource; 2]| {
        let (mut descriptor, mut green) = (null_mut(), null_mut());
        let mut resource = CUdevResource::default();
        let first = parts.as_mut_ptr();
        ask!(
            answers,
            format!("descriptor of {what}"),
            cuDevResourceGenerateDesc(&raw mut descriptor, first, 2)
        );
        ask!(
            answers,
            format!("green context of {what}"),
            cuGreenCtxCreate(&raw mut green, descriptor, d, 1)
        );
        ask!(
            answers,
            format!("resource of that of {what}"),
            cuGreenCtxGetDevResource(green, &raw mut resource, SM)
        );
        let sms = count_of(&resource);
        tell(answers, &format!("SMs of that of {what}"), sms);
        ask!(answers, format!("destroy that of {what}"), cuGreenCtxDestroy(green));
    };
    make("a group and the remainder", &mut whole);
    make("a group twice", &mut twice);
    make("groups of two splits", &mut mixed);
}

/// Probes two green contexts of one descriptor, and one of a part of another.
pub(super) fn contexts(answers: &mut Answers, device: &Device) {
    let d = device.as_raw();
    let input = sm_resource(device);
    let (mut count, mut group) = (1, CUdevResource::default());
    let (mut descriptor, mut first, mut second) = (null_mut(), null_mut(), null_mut());
    let place = &raw mut group;
    ask!(
        answers,
        "split off a group of 16",
        cuDevSmResourceSplitByCount(place, &raw mut count, &raw const input, null_mut(), 0, 16)
    );
    ask!(answers, "descriptor for two", cuDevResourceGenerateDesc(&raw mut descriptor, place, 1));
    ask!(answers, "the first of it", cuGreenCtxCreate(&raw mut first, descriptor, d, 1));
    ask!(answers, "the second of it", cuGreenCtxCreate(&raw mut second, descriptor, d, 1));
    let (mut own, mut parts) = (CUdevResource::default(), [CUdevResource::default(); 3]);
    let (mut rest, mut count) = (CUdevResource::default(), 3);
    ask!(answers, "resource of the first", cuGreenCtxGetDevResource(first, &raw mut own, SM));
    tell(answers, "SMs of the first", count_of(&own));
    let (to, own) = (parts.as_mut_ptr(), &raw const own);
    ask!(
        answers,
        "split it again",
        cuDevSmResourceSplitByCount(to, &raw mut count, own, &raw mut rest, 0, 8)
    );
    tell(answers, "split it again: groups", count);
    tell(answers, "split it again: SMs left", count_of(&rest));
    let (mut part, mut third) = (null_mut(), null_mut());
    ask!(answers, "descriptor of a part of it", cuDevResourceGenerateDesc(&raw mut part, to, 1));
    ask!(answers, "green context of a part of it", cuGreenCtxCreate(&raw mut third, part, d, 1));
    streams(answers, d, first);
    ask!(answers, "destroy the part", cuGreenCtxDestroy(third));
    outlived(answers, first);
    ask!(answers, "destroy the second", cuGreenCtxDestroy(second));
}

/// Asks for the green context of a stream.
fn whose(answers: &mut Answers, green: CUgreenCtx, what: &str, stream: CUstream) {
    // An invalid value shows whether the driver writes nothing.
    let mut back = without_provenance_mut(1);
    ask!(
        answers,
        format!("cuStreamGetGreenCtx of {what}"),
        cuStreamGetGreenCtx(stream, &raw mut back)
    );
    let whose = match back {
        its if its == green => "the first",
        its if its.is_null() => "none",
        _ => "another",
    };
    tell(answers, &format!("green context of {what}"), whose);
}

/// Probes which context streams belong to.
fn streams(answers: &mut Answers, d: CUdevice, green: CUgreenCtx) {
    let (mut primary, mut view) = (null_mut(), null_mut());
    let (mut stream, mut plain, mut made) = (null_mut(), null_mut(), null_mut());
    let (mut back, mut context) = (null_mut(), null_mut());
    let mut none = null_mut();
    ask!(
        answers,
        "retain the primary context once more",
        cuDevicePrimaryCtxRetain(&raw mut primary, d)
    );
    ask!(answers, "set that current", cuCtxSetCurrent(primary));
    ask!(answers, "view of the first", cuCtxFromGreenCtx(&raw mut view, green));
    ask!(answers, "stream of the first", cuGreenCtxStreamCreate(&raw mut stream, green, 1, 0));
    ask!(answers, "a plain stream", cuStreamCreate(&raw mut plain, 1));
    whose(answers, green, "a stream of it", stream);
    whose(answers, green, "a plain stream", plain);
    whose(answers, green, "the null stream", null_mut());
    // SAFETY: the context is alive.
    let pushed = unsafe { cuCtxPushCurrent_v2(view) };
    assert!(pushed.is_success(), "{pushed}");
    whose(answers, green, "the null stream, its view current", null_mut());
    // The answers for these are not recorded yet.
    let defaults = [
        ("the legacy stream, its view current", CU_STREAM_LEGACY),
        ("a thread's own stream, its view current", CU_STREAM_PER_THREAD),
    ];
    for (what, stream) in defaults {
        whose(answers, green, what, stream);
    }
    ask!(answers, "its view current: create a plain stream", cuStreamCreate(&raw mut made, 1));
    whose(answers, green, "a plain stream made with its view current", made);
    ask!(answers, "its view current: destroy that", cuStreamDestroy_v2(made));
    ask!(answers, "its view current: create a blocking stream", cuStreamCreate(&raw mut made, 0));
    ask!(answers, "its view current: destroy that one", cuStreamDestroy_v2(made));
    ask!(answers, "pop the view", cuCtxPopCurrent_v2(&raw mut none));
    ask!(answers, "cuStreamGetCtx of a stream of it", cuStreamGetCtx(stream, &raw mut context));
    tell(answers, "context of it is the view", context == view);
    ask!(
        answers,
        "cuStreamGetCtx_v2 of a stream of it",
        cuStreamGetCtx_v2(stream, &raw mut context, &raw mut back)
    );
    tell(answers, "green context by cuStreamGetCtx_v2 is it", back == green);
    captured(answers, green, stream);
    ask!(answers, "destroy the stream of it", cuStreamDestroy_v2(stream));
    ask!(answers, "destroy the plain stream", cuStreamDestroy_v2(plain));
    ask!(answers, "set none current again", cuCtxSetCurrent(null_mut()));
}

/// Probes that a record of a green context invalidates the capture of one of its streams.
fn captured(answers: &mut Answers, green: CUgreenCtx, stream: CUstream) {
    let (mut event, mut graph) = (null_mut(), null_mut());
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    let untimed = CUevent_flags::CU_EVENT_DISABLE_TIMING.0;
    ask!(answers, "an event without timing", cuEventCreate(&raw mut event, untimed));
    ask!(answers, "record it in the green context", cuGreenCtxRecordEvent(green, event));
    ask!(answers, "capture a stream of it", cuStreamBeginCapture_v2(stream, mode));
    ask!(answers, "in the capture: cuGreenCtxRecordEvent", cuGreenCtxRecordEvent(green, event));
    ask!(answers, "end that capture", cuStreamEndCapture(stream, &raw mut graph));
    ask!(answers, "destroy that event", cuEventDestroy_v2(event));
}

/// Probes that a stream is lost if its green context is destroyed first.
fn outlived(answers: &mut Answers, green: CUgreenCtx) {
    let mut stream = null_mut();
    ask!(
        answers,
        "a stream that is left behind",
        cuGreenCtxStreamCreate(&raw mut stream, green, 1, 0)
    );
    ask!(answers, "destroy the first", cuGreenCtxDestroy(green));
    ask!(answers, "cuStreamQuery of what is left behind", cuStreamQuery(stream));
    ask!(answers, "cuStreamDestroy of what is left behind", cuStreamDestroy_v2(stream));
}
