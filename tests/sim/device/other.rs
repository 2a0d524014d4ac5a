//! Virtual memory and events that are used from another device. The codes are those of driver 580 with two H100.
#![cfg(target_os = "linux")]

use crate::prelude::*;
use crate::virtual_memory::{access_of, create_on, location};

/// The primary context of each device, and a blocking stream in it.
struct Both([(CUcontext, CUstream); 2]);

impl Both {
    fn new(bench: &Bench) -> Self {
        let second: CUcontext = out!(cuDevicePrimaryCtxRetain(1));
        Self([bench.context, second].map(|context| {
            succeeds!(cuCtxSetCurrent(context));
            (context, out!(cuStreamCreate(0)))
        }))
    }

    fn enter(&self, device: usize) {
        succeeds!(cuCtxSetCurrent(self.0[device].0));
    }

    fn event(&self, device: usize) -> CUevent {
        self.enter(device);
        out!(cuEventCreate(0))
    }
}

#[track_caller]
fn on_both(body: impl FnOnce(&Both)) {
    on_both_of(without_misuse_on, Profile::h200(), body);
}

#[track_caller]
fn on_both_of(bench: fn(Profile) -> Bench, profile: Profile, body: impl FnOnce(&Both)) {
    let bench = &in_child!(bench(profile.with_devices(2)));
    let both = Both::new(bench);
    body(&both);
    for (_, stream) in both.0 {
        succeeds!(cuStreamDestroy_v2(stream));
    }
    both.enter(0);
    succeeds!(cuDevicePrimaryCtxRelease_v2(1));
}

/// Maps memory of the first device, which some devices may access.
fn mapped(access: &[c_int]) -> u64 {
    let (start, handle) = (reserve(PAGE), create_on(0));
    succeeds!(cuMemMap(start, PAGE, 0, handle, 0));
    for device in access {
        let access = access_of(location(1, *device), READ_WRITE);
        succeeds!(cuMemSetAccess(start, PAGE, &raw const access, 1));
    }
    succeeds!(cuMemRelease(handle));
    start
}

fn answer(is_allowed: bool) -> CUresult {
    match is_allowed {
        true => CUresult::CUDA_SUCCESS,
        false => INVALID,
    }
}

#[test]
fn a_copy_between_contexts_needs_the_access_of_the_device_whose_context_it_names() {
    on_both(|both| {
        let [(first, _), (second, _)] = both.0;
        both.enter(1);
        let other = memory(64);
        for access in [&[][..], &[0], &[1], &[0, 1]] {
            let start = mapped(access);
            let expected = answer(access.contains(&0));
            for (device, (_, stream)) in both.0.into_iter().enumerate() {
                both.enter(device);
                let codes = [
                    code!(cuMemcpyPeer(start, first, other, second, 64)),
                    code!(cuMemcpyPeer(other, second, start, first, 64)),
                    code!(cuMemcpyPeerAsync(start, first, other, second, 64, stream)),
                    code!(cuMemcpyPeerAsync(other, second, start, first, 64, stream)),
                ];
                assert_eq!(codes, [expected; 4], "access of {access:?}, current: {device}");
                succeeds!(cuCtxSynchronize());
            }
            succeeds!(cuMemUnmap(start, PAGE));
            succeeds!(cuMemAddressFree(start, PAGE));
        }
        free_memory(other);
    });
}

#[test]
fn work_on_virtual_memory_needs_the_access_of_the_device_of_its_stream() {
    on_both(|both| {
        both.enter(1);
        let (other, host, mut node) = (memory(64), out!(cuMemAllocHost_v2(64)), null_mut());
        for access in [&[][..], &[0], &[1], &[0, 1]] {
            let start = mapped(access);
            for (device, (_, stream)) in both.0.into_iter().enumerate() {
                both.enter(device);
                let expected = answer(access.contains(&(device as c_int)));
                let codes = [
                    code!(cuMemcpyDtoDAsync_v2(start, other, 64, stream)),
                    code!(cuMemcpyDtoDAsync_v2(other, start, 64, stream)),
                    code!(cuMemcpyDtoD_v2(start, other, 64)),
                    code!(cuMemcpyHtoD_v2(start, host, 64)),
                    code!(cuMemcpyHtoDAsync_v2(start, host, 64, stream)),
                    code!(cuMemcpyDtoH_v2(host, start, 64)),
                    code!(cuMemcpyDtoHAsync_v2(host, start, 64, stream)),
                    code!(cuMemcpyAsync(start, host.addr() as u64, 64, stream)),
                    code!(cuMemsetD8_v2(start, 1, 64)),
                    code!(cuMemsetD8Async(start, 1, 64, stream)),
                    code!(cuMemsetD2D8Async(start, 16, 1, 8, 4, stream)),
                    code!(cuStreamWriteValue32_v2(stream, start, 0, 0)),
                ];
                assert_eq!(codes, [expected; 12], "access of {access:?}, stream of {device}");
                succeeds!(cuCtxSynchronize());
                let graph = graph();
                let fill = CUDA_MEMSET_NODE_PARAMS {
                    dst: start,
                    elementSize: 1,
                    width: 64,
                    height: 1,
                    ..Default::default()
                };
                let mut copy = CUDA_MEMCPY3D {
                    srcMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
                    srcHost: host,
                    dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
                    dstDevice: start,
                    WidthInBytes: 64,
                    Height: 1,
                    Depth: 1,
                    ..Default::default()
                };
                let (node, context) = (&raw mut node, both.0[device].0);
                let added =
                    code!(cuGraphAddMemsetNode(node, graph, null(), 0, &raw const fill, context));
                assert_eq!(added, expected);
                let added =
                    code!(cuGraphAddMemcpyNode(node, graph, null(), 0, &raw const copy, context));
                assert_eq!(added, expected);
                copy.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_DEVICE;
                copy.srcDevice = other;
                let added =
                    code!(cuGraphAddMemcpyNode(node, graph, null(), 0, &raw const copy, context));
                assert_eq!(added, expected);
                destroy(graph);
            }
            succeeds!(cuMemUnmap(start, PAGE));
            succeeds!(cuMemAddressFree(start, PAGE));
        }
        free_memory(other);
        succeeds!(cuMemFreeHost(host));
    });
}

type Add = unsafe fn(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, CUevent) -> CUresult;
const ADD: [Add; 2] = [cuGraphAddEventRecordNode, cuGraphAddEventWaitNode];

#[test]
fn an_event_node_may_use_an_event_of_another_device() {
    on_both(|both| {
        for (graph_of, event_of, launched_on) in [(0, 1, 0), (1, 0, 1), (0, 0, 1), (0, 1, 1)] {
            let event = both.event(event_of);
            both.enter(graph_of);
            let graph = graph();
            for add in ADD {
                let mut node = null_mut();
                succeeds!(add(&raw mut node, graph, null(), 0, event));
            }
            let executable = instantiate(graph);
            let (context, stream) = both.0[launched_on];
            succeeds!(cuCtxSetCurrent(context));
            succeeds!(cuGraphLaunch(executable, stream));
            succeeds!(cuStreamSynchronize(stream));
            succeeds!(cuEventQuery(event));
            destroy_executable(executable);
            destroy(graph);
            succeeds!(cuEventDestroy_v2(event));
        }
    });
}

#[test]
fn only_a_graph_that_is_not_executable_takes_an_event_of_another_device_later() {
    on_both(|both| {
        let events = [0, 1].map(|device| both.event(device));
        let (_, stream) = both.0[0];
        both.enter(0);
        let graph = graph();
        let [record, wait] = ADD.map(|add| {
            let mut node = null_mut();
            succeeds!(add(&raw mut node, graph, null(), 0, events[0]));
            node
        });
        let executable = instantiate(graph);
        for (event, expected) in [(events[1], INVALID), (events[0], CUresult::CUDA_SUCCESS)] {
            let codes = [
                code!(cuGraphExecEventRecordNodeSetEvent(executable, record, event)),
                code!(cuGraphExecEventWaitNodeSetEvent(executable, wait, event)),
            ];
            assert_eq!(codes, [expected; 2]);
        }
        succeeds!(cuGraphEventRecordNodeSetEvent(record, events[1]));
        succeeds!(cuGraphEventWaitNodeSetEvent(wait, events[1]));
        let mut why = CUgraphExecUpdateResultInfo::default();
        let updated = code!(cuGraphExecUpdate_v2(executable, graph, &raw mut why));
        assert_eq!(updated, CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
        let changed = CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
        assert_eq!(why.result, changed);
        let changed = instantiate(graph);
        for executable in [executable, changed] {
            succeeds!(cuGraphLaunch(executable, stream));
            succeeds!(cuStreamSynchronize(stream));
            destroy_executable(executable);
        }
        destroy(graph);
        for event in events {
            succeeds!(cuEventDestroy_v2(event));
        }
    });
}

#[test]
fn a_capture_records_an_external_event_of_another_device() {
    on_both(|both| {
        let event = both.event(1);
        let (_, stream) = both.0[0];
        both.enter(0);
        assert_eq!(code!(cuEventRecord(event, stream)), CUresult::CUDA_ERROR_INVALID_HANDLE);
        succeeds!(cuStreamWaitEvent(stream, event, 0));
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        succeeds!(cuStreamBeginCapture_v2(stream, mode));
        succeeds!(cuEventRecordWithFlags(event, stream, 1));
        succeeds!(cuStreamWaitEvent(stream, event, 1));
        let mut graph = null_mut();
        succeeds!(cuStreamEndCapture(stream, &raw mut graph));
        let executable = instantiate(graph);
        succeeds!(cuGraphLaunch(executable, stream));
        succeeds!(cuStreamSynchronize(stream));
        destroy_executable(executable);
        destroy(graph);
        succeeds!(cuEventDestroy_v2(event));
    });
}

static RUNS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn count(_: *mut core::ffi::c_void) {
    RUNS.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_wait_node_waits_for_work_of_another_device() {
    on_both(|both| {
        let event = both.event(1);
        let [(_, here), (_, there)] = both.0;
        succeeds!(cuLaunchHostFunc(there, Some(count), null_mut()));
        succeeds!(cuEventRecord(event, there));
        both.enter(0);
        let graph = graph();
        let mut node = null_mut();
        succeeds!(cuGraphAddEventWaitNode(&raw mut node, graph, null(), 0, event));
        let executable = instantiate(graph);
        succeeds!(cuGraphLaunch(executable, here));
        succeeds!(cuStreamSynchronize(here));
        assert_eq!(RUNS.load(Ordering::Relaxed), 1);
        destroy_executable(executable);
        destroy(graph);
        succeeds!(cuEventDestroy_v2(event));
    });
}

/// Copies four bytes between devices in the default stream, by one row or by two.
type Copy = fn(CUdeviceptr, CUdeviceptr);

fn copy_one_row(target: CUdeviceptr, source: CUdeviceptr) {
    succeeds!(cuMemcpyDtoDAsync_v2(target, source, 4, null_mut()));
}

fn copy_two_rows(target: CUdeviceptr, source: CUdeviceptr) {
    let copy = CUDA_MEMCPY2D {
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcDevice: source,
        srcPitch: 2,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstDevice: target,
        dstPitch: 2,
        WidthInBytes: 2,
        Height: 2,
        ..Default::default()
    };
    succeeds!(cuMemcpy2DAsync_v2(&raw const copy, null_mut()));
}

/// Fills memory of the second device with 7 by `before`, copies it to the first device, and then calls `later`. The
/// memory must have been copied before `later` fills it with another value. Without an order, there is a race.
#[track_caller]
fn copy_between(copy: Copy, before: fn(&Both, CUdeviceptr), later: fn(&Both, CUdeviceptr)) {
    on_both_of(without_misuse_on, Profile::h200().with_race_detection(), |both| {
        both.enter(1);
        let source: CUdeviceptr = out!(cuMemAlloc_v2(4));
        before(both, source);
        both.enter(0);
        let target: CUdeviceptr = out!(cuMemAlloc_v2(4));
        copy(target, source);
        both.enter(1);
        later(both, source);
        both.enter(0);
        let mut copied = [0_u8; 4];
        succeeds!(cuMemcpyDtoH_v2(copied.as_mut_ptr().cast(), target, 4));
        assert_eq!(copied, [7; 4]);
        succeeds!(cuMemFree_v2(target));
        both.enter(1);
        succeeds!(cuMemFree_v2(source));
    });
}

fn fill(both: &Both, source: CUdeviceptr) {
    succeeds!(cuMemsetD8Async(source, 7, 4, both.0[1].1));
}

/// Fills the memory on a stream of its device.
fn fill_again_on(stream: CUstream, source: CUdeviceptr) {
    succeeds!(cuMemsetD8Async(source, 9, 4, stream));
    succeeds!(cuStreamSynchronize(stream));
}

#[test]
fn a_copy_between_devices_in_the_default_stream_is_ordered_with_the_work_of_both() {
    copy_between(copy_one_row, fill, |both, source| fill_again_on(both.0[1].1, source));
}

#[test]
fn a_copy_of_rows_between_devices_in_the_default_stream_is_ordered_with_the_work_of_both() {
    copy_between(copy_two_rows, fill, |both, source| fill_again_on(both.0[1].1, source));
}

#[test]
fn a_copy_between_devices_in_the_default_stream_of_a_green_context_is_ordered_with_the_work_of_both()
 {
    let copy = |target, source| {
        let mut sms = CUdevResource::default();
        let kind = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
        succeeds!(cuDeviceGetDevResource(0, &raw mut sms, kind));
        let description: CUdevResourceDesc = out!(cuDevResourceGenerateDesc(&raw mut sms, 1));
        let green: CUgreenCtx = out!(cuGreenCtxCreate(description, 0, 1));
        let view: CUcontext = out!(cuCtxFromGreenCtx(green));
        succeeds!(cuCtxSetCurrent(view));
        copy_one_row(target, source);
        succeeds!(cuGreenCtxDestroy(green));
    };
    copy_between(copy, fill, |both, source| fill_again_on(both.0[1].1, source));
}

#[test]
fn a_copy_between_devices_in_the_default_stream_is_ordered_with_that_of_the_other_device() {
    let fill_there = |_: &Both, source| succeeds!(cuMemsetD8Async(source, 7, 4, null_mut()));
    copy_between(copy_one_row, fill_there, |_, source| fill_again_on(null_mut(), source));
}

/// Measured with two H200: the copy reads the memory before the earlier work of a nonblocking stream has written it.
#[test]
fn a_copy_between_devices_in_the_default_stream_has_no_order_with_nonblocking_streams() {
    on_both_of(Bench::new, Profile::h200().with_race_detection(), |both| {
        both.enter(1);
        let [source, target]: [CUdeviceptr; 2] = [out!(cuMemAlloc_v2(4)), {
            both.enter(0);
            out!(cuMemAlloc_v2(4))
        }];
        let races_of = |calls: &dyn Fn(CUstream)| {
            both.enter(1);
            let stream: CUstream = out!(cuStreamCreate(1));
            calls(stream);
            succeeds!(cuStreamDestroy_v2(stream));
            for device in 0..2 {
                both.enter(device);
                succeeds!(cuCtxSynchronize());
            }
            cuda_sim::races().len()
        };
        let fill = |stream| succeeds!(cuMemsetD8Async(source, 7, 4, stream));
        let copy = || {
            both.enter(0);
            copy_one_row(target, source);
        };
        let before = races_of(&|stream| {
            fill(stream);
            copy();
        });
        let after = races_of(&|stream| {
            copy();
            both.enter(1);
            fill(stream);
        });
        assert_eq!((before, after), (1, 2));
        both.enter(0);
        succeeds!(cuMemFree_v2(target));
        both.enter(1);
        succeeds!(cuMemFree_v2(source));
    });
}

#[test]
fn a_copy_between_devices_in_the_default_stream_waits_for_work_of_destroyed_streams() {
    let fill_and_destroy = |_: &Both, source| {
        let stream: CUstream = out!(cuStreamCreate(0));
        succeeds!(cuMemsetD8Async(source, 7, 4, stream));
        succeeds!(cuStreamDestroy_v2(stream));
    };
    copy_between(copy_one_row, fill_and_destroy, |_, _| {});
}

#[test]
fn a_new_stream_waits_for_a_copy_between_devices_although_its_context_waits_for_an_event() {
    copy_between(copy_one_row, fill, |both, source| {
        let [recorded, never_recorded] = [both.event(1), both.event(1)];
        let before_the_copy: CUstream = out!(cuStreamCreate(1));
        succeeds!(cuEventRecord(recorded, before_the_copy));
        succeeds!(cuStreamDestroy_v2(before_the_copy));
        for event in [recorded, never_recorded] {
            succeeds!(cuCtxWaitEvent(both.0[1].0, event));
            succeeds!(cuEventDestroy_v2(event));
        }
        let stream: CUstream = out!(cuStreamCreate(0));
        fill_again_on(stream, source);
        succeeds!(cuStreamDestroy_v2(stream));
    });
}

#[test]
fn an_event_of_a_context_comes_after_a_copy_between_devices_in_the_default_stream() {
    copy_between(copy_one_row, fill, |both, _| {
        let event = both.event(1);
        succeeds!(cuCtxRecordEvent(both.0[1].0, event));
        succeeds!(cuEventSynchronize(event));
        succeeds!(cuEventDestroy_v2(event));
        both.enter(0);
        assert_eq!(code!(cuStreamQuery(null_mut())), CUresult::CUDA_SUCCESS);
    });
}
