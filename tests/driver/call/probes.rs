//! Raw calls whose answers are recorded. Calls that crash a real driver are not included.

use cuda_safe::Device;
use cuda_safe::sys::*;
use std::fmt;
use std::ptr::{null, null_mut};

/// Names a call and keeps its code.
macro_rules! ask {
    ($answers:ident, $what:expr, $call:expr) => {
        // SAFETY: the handles are alive or obviously invalid, and the pointers refer to local
        // variables of the right types or are null, as the name of each probe says.
        let code = unsafe { $call };
        $answers.push((String::from($what), format!("{code:?}")))
    };
}

mod green;

/// Keeps another output of a call, in addition to its code.
fn tell(answers: &mut Answers, what: &str, value: impl fmt::Display) {
    answers.push((what.to_owned(), value.to_string()));
}

fn sm_resource(device: &Device) -> CUdevResource {
    let mut resource = CUdevResource::default();
    let kind = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
    // SAFETY: the pointer refers to a local variable.
    let code = unsafe { cuDeviceGetDevResource(device.as_raw(), &raw mut resource, kind) };
    assert!(code.is_success(), "{code}");
    resource
}

fn count_of(resource: &CUdevResource) -> u32 {
    // SAFETY: this is an SM resource (or all zeros), whose fields are integers.
    unsafe { resource.__bindgen_anon_1.sm.smCount }
}

pub(crate) fn sm_count(device: &Device) -> u32 {
    count_of(&sm_resource(device))
}

/// Returns `groups x size + remainder`, or the code.
pub(crate) fn split(device: &Device, flags: u32, min: u32) -> String {
    let input = sm_resource(device);
    let mut count = 0;
    let mut remainder = CUdevResource::default();
    // SAFETY: without an output array the call only counts, and the pointers refer to local
    // variables.
    let code = unsafe {
        cuDevSmResourceSplitByCount(
            null_mut(),
            &raw mut count,
            &raw const input,
            null_mut(),
            flags,
            min,
        )
    };
    if !code.is_success() {
        return format!("{code:?}");
    }
    let mut groups = vec![CUdevResource::default(); count as usize];
    let (first, rest) = (groups.as_mut_ptr(), &raw mut remainder);
    // SAFETY: the array has room for `count` groups, and the pointers refer to local variables.
    let code = unsafe {
        cuDevSmResourceSplitByCount(first, &raw mut count, &raw const input, rest, flags, min)
    };
    assert!(code.is_success(), "{code}");
    let size = count_of(&groups[0]);
    assert!(groups.iter().all(|group| count_of(group) == size));
    let left = match remainder.type_ {
        CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM => count_of(&remainder),
        _ => 0,
    };
    format!("{count} x {size} + {left}")
}

/// Makes the calls in order, each with the objects that earlier calls created, and returns their
/// codes.
pub(crate) fn answers(device: &Device) -> Answers {
    let mut answers = Vec::new();
    let d = device.as_raw();
    without_context(&mut answers, d);
    resources(&mut answers, device);
    green(&mut answers, device);
    green::compositions(&mut answers, device);
    green::contexts(&mut answers, device);
    // This releases the second retain. The green contexts retained the context too.
    ask!(answers, "release the primary context again", cuDevicePrimaryCtxRelease_v2(d));
    answers
}

type Answers = Vec<(String, String)>;

/// Probes which calls on objects of the primary context need a current context, with none current.
fn without_context(answers: &mut Answers, d: CUdevice) {
    let mut context = null_mut();
    ask!(answers, "retain the primary context", cuDevicePrimaryCtxRetain(&raw mut context, d));
    ask!(answers, "set it current", cuCtxSetCurrent(context));
    let (mut stream, mut event, mut memory, mut pool, mut host) =
        (null_mut(), null_mut(), 0, 0, null_mut());
    ask!(answers, "create a stream", cuStreamCreate(&raw mut stream, 1));
    ask!(answers, "create an event", cuEventCreate(&raw mut event, 0));
    ask!(answers, "allocate", cuMemAlloc_v2(&raw mut memory, 4096));
    ask!(answers, "allocate in stream order", cuMemAllocAsync(&raw mut pool, 4096, stream));
    ask!(answers, "allocate pinned", cuMemHostAlloc(&raw mut host, 4096, 0));
    ask!(answers, "synchronize the stream", cuStreamSynchronize(stream));

    ask!(answers, "set none current", cuCtxSetCurrent(null_mut()));
    let mut out = 0u64;
    let (mut number, mut bytes) = (0, 0usize);
    let mut buffer = [0u8; 64];
    let text = buffer.as_mut_ptr().cast();
    let mut none = null_mut();
    let (mut no_event, mut pinned) = (null_mut(), null_mut());
    ask!(answers, "none current: cuStreamQuery", cuStreamQuery(stream));
    ask!(answers, "none current: cuStreamSynchronize", cuStreamSynchronize(stream));
    ask!(answers, "none current: cuStreamWaitEvent", cuStreamWaitEvent(stream, event, 0));
    ask!(
        answers,
        "none current: cuStreamGetPriority",
        cuStreamGetPriority(stream, &raw mut number)
    );
    ask!(answers, "none current: cuStreamGetId", cuStreamGetId(stream, &raw mut out));
    ask!(answers, "none current: cuEventRecord", cuEventRecord(event, stream));
    ask!(answers, "none current: cuEventSynchronize", cuEventSynchronize(event));
    ask!(answers, "none current: cuEventQuery", cuEventQuery(event));
    ask!(
        answers,
        "none current: cuMemcpyHtoDAsync",
        cuMemcpyHtoDAsync_v2(memory, host, 64, stream)
    );
    ask!(
        answers,
        "none current: cuMemcpyDtoHAsync",
        cuMemcpyDtoHAsync_v2(host, memory, 64, stream)
    );
    ask!(
        answers,
        "none current: cuMemcpyDtoDAsync",
        cuMemcpyDtoDAsync_v2(pool, memory, 64, stream)
    );
    ask!(answers, "none current: cuMemsetD8Async", cuMemsetD8Async(memory, 0, 64, stream));
    ask!(answers, "none current: cuMemcpyHtoD", cuMemcpyHtoD_v2(memory, text, 64));
    ask!(answers, "none current: cuMemcpyDtoH", cuMemcpyDtoH_v2(text, memory, 64));
    ask!(answers, "none current: cuStreamCreate", cuStreamCreate(&raw mut none, 1));
    ask!(answers, "none current: cuEventCreate", cuEventCreate(&raw mut no_event, 0));
    ask!(answers, "none current: cuMemAlloc", cuMemAlloc_v2(&raw mut out, 64));
    ask!(answers, "none current: cuMemHostAlloc", cuMemHostAlloc(&raw mut pinned, 64, 0));
    ask!(answers, "none current: cuMemGetInfo", cuMemGetInfo_v2(&raw mut bytes, &raw mut bytes));
    ask!(answers, "none current: cuCtxSynchronize", cuCtxSynchronize());
    ask!(answers, "none current: cuCtxGetDevice", cuCtxGetDevice(&raw mut number));
    ask!(answers, "none current: cuCtxPopCurrent", cuCtxPopCurrent_v2(null_mut()));
    ask!(answers, "cuEventSynchronize of null", cuEventSynchronize(null_mut()));
    ask!(answers, "none current: cuMemFreeAsync", cuMemFreeAsync(pool, stream));
    ask!(answers, "none current: cuMemFree", cuMemFree_v2(memory));
    ask!(answers, "none current: cuMemFreeHost", cuMemFreeHost(host));
    ask!(answers, "none current: cuEventDestroy", cuEventDestroy_v2(event));
    ask!(answers, "none current: cuStreamDestroy", cuStreamDestroy_v2(stream));
}

fn resources(answers: &mut Answers, device: &Device) {
    let d = device.as_raw();
    let mut resource = CUdevResource::default();
    for kind in [0, 1, 1000, 10_000] {
        let of = CUdevResourceType(kind);
        ask!(
            answers,
            format!("cuDeviceGetDevResource of type {kind}"),
            cuDeviceGetDevResource(d, &raw mut resource, of)
        );
    }
    let input = sm_resource(device);
    let (mut count, mut rest) = (3, CUdevResource::default());
    let mut groups = [CUdevResource::default(); 3];
    let (first, input) = (groups.as_mut_ptr(), &raw const input);
    ask!(
        answers,
        "split into 3 groups of 16",
        cuDevSmResourceSplitByCount(first, &raw mut count, input, &raw mut rest, 0, 16)
    );
    let (mut again, mut more) = ([CUdevResource::default(); 3], 2);
    let (to, group) = (again.as_mut_ptr(), first.cast_const());
    ask!(
        answers,
        "split a group again",
        cuDevSmResourceSplitByCount(to, &raw mut more, group, null_mut(), 0, 8)
    );
    let rest = &raw const rest;
    ask!(
        answers,
        "split a remainder",
        cuDevSmResourceSplitByCount(to, &raw mut more, rest, null_mut(), 0, 8)
    );
    ask!(
        answers,
        "split with both flags",
        cuDevSmResourceSplitByCount(to, &raw mut more, input, null_mut(), 3, 8)
    );
    ask!(
        answers,
        "split of no resource",
        cuDevSmResourceSplitByCount(to, &raw mut more, null(), null_mut(), 0, 8)
    );
    ask!(
        answers,
        "split without a count",
        cuDevSmResourceSplitByCount(to, null_mut(), input, null_mut(), 0, 8)
    );
    let mut descriptor = null_mut();
    ask!(
        answers,
        "descriptor of null",
        cuDevResourceGenerateDesc(&raw mut descriptor, null_mut(), 0)
    );
    ask!(
        answers,
        "descriptor of 3 groups",
        cuDevResourceGenerateDesc(&raw mut descriptor, first, 3)
    );
}

fn green(answers: &mut Answers, device: &Device) {
    let d = device.as_raw();
    let input = sm_resource(device);
    let (mut count, mut group) = (1, CUdevResource::default());
    let (mut descriptor, mut green) = (null_mut(), null_mut());
    let (first, input) = (&raw mut group, &raw const input);
    ask!(
        answers,
        "split off one group",
        cuDevSmResourceSplitByCount(first, &raw mut count, input, null_mut(), 0, 16)
    );
    ask!(answers, "descriptor of it", cuDevResourceGenerateDesc(&raw mut descriptor, first, 1));
    ask!(answers, "cuGreenCtxCreate, no flag", cuGreenCtxCreate(&raw mut green, descriptor, d, 0));
    ask!(answers, "cuGreenCtxCreate", cuGreenCtxCreate(&raw mut green, descriptor, d, 1));
    let (mut view, mut stream, mut event, mut resource) =
        (null_mut(), null_mut(), null_mut(), CUdevResource::default());
    let sm = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
    ask!(answers, "its resource", cuGreenCtxGetDevResource(green, &raw mut resource, sm));
    ask!(answers, "its view", cuCtxFromGreenCtx(&raw mut view, green));
    ask!(answers, "a blocking stream", cuGreenCtxStreamCreate(&raw mut stream, green, 0, 0));
    ask!(answers, "a stream", cuGreenCtxStreamCreate(&raw mut stream, green, 1, 0));
    ask!(answers, "destroy its view", cuCtxDestroy_v2(view));
    ask!(answers, "push its view", cuCtxPushCurrent_v2(view));
    ask!(answers, "view current: create an event", cuEventCreate(&raw mut event, 0));
    ask!(answers, "view current: record on its stream", cuEventRecord(event, stream));
    ask!(answers, "view current: synchronize", cuCtxSynchronize());
    ask!(answers, "pop its view", cuCtxPopCurrent_v2(&raw mut view));
    ask!(answers, "destroy the event", cuEventDestroy_v2(event));
    ask!(answers, "destroy the stream", cuStreamDestroy_v2(stream));
    ask!(answers, "destroy the green context", cuGreenCtxDestroy(green));
    ask!(answers, "release the primary context", cuDevicePrimaryCtxRelease_v2(d));
}
