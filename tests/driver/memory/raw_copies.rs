//! Answers of raw calls that copy and fill memory, measured on an H200 (driver 580).

use crate::call::raw::succeeds;
use crate::common;
use core::ffi::c_void;
use cuda_safe::sys::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUdeviceptr, CUgraph, CUgraphExec, CUgraphNode,
    CUmemorytype as Type, CUresult, CUstream, CUstreamCaptureMode, Zeroable, cuGraphAddMemcpyNode,
    cuGraphCreate, cuGraphDestroy, cuGraphExecDestroy, cuGraphExecMemcpyNodeSetParams,
    cuGraphGetNodes, cuGraphInstantiateWithFlags, cuGraphLaunch, cuGraphMemcpyNodeGetParams,
    cuLaunchHostFunc, cuMemcpy, cuMemcpy2D_v2, cuMemcpy2DAsync_v2, cuMemcpy3D_v2,
    cuMemcpy3DAsync_v2, cuMemcpyAsync, cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, cuMemcpyDtoH_v2,
    cuMemcpyDtoHAsync_v2, cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, cuMemsetD2D8_v2, cuMemsetD8_v2,
    cuMemsetD8Async, cuMemsetD32_v2, cuStreamBeginCapture_v2, cuStreamEndCapture,
};
use cuda_safe::{Context, DeviceBuffer, PinnedBuffer, Stream};
use std::ptr::{null, null_mut, with_exposed_provenance, with_exposed_provenance_mut};
use std::time::Duration;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
pub(crate) const HOST: Type = Type::CU_MEMORYTYPE_HOST;
pub(crate) const DEVICE: Type = Type::CU_MEMORYTYPE_DEVICE;
const UNIFIED: Type = Type::CU_MEMORYTYPE_UNIFIED;

/// Calls a function of the driver. The arguments are checked by the driver, or refer to memory that lives until the work
/// is complete.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the arguments of each use are described above.
        unsafe { $function($($argument),*) }
    };
}
pub(crate) use call;

/// Returns the graph that a stream captures while `enqueue` runs.
fn captured(stream: &Stream, enqueue: impl FnOnce(CUstream)) -> CUgraph {
    let raw = stream.as_raw();
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    succeeds(call!(cuStreamBeginCapture_v2(raw, mode)));
    enqueue(raw);
    let mut graph = null_mut();
    succeeds(call!(cuStreamEndCapture(raw, &raw mut graph)));
    graph
}

fn nodes(graph: CUgraph) -> Vec<CUgraphNode> {
    let mut count = 0;
    succeeds(call!(cuGraphGetNodes(graph, null_mut(), &raw mut count)));
    if count == 0 {
        // The driver refuses an array without room.
        return Vec::new();
    }
    let mut nodes = vec![null_mut(); count];
    succeeds(call!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count)));
    nodes
}

pub(crate) fn host<T>(address: CUdeviceptr) -> *mut T {
    with_exposed_provenance_mut(usize::try_from(address).expect("an address of the host"))
}

/// A 3-D copy of one row. The address is that of host memory or of device memory, as the type says.
pub(crate) fn row(sides: [(Type, CUdeviceptr); 2], len: usize) -> CUDA_MEMCPY3D {
    let [(from_type, from), (to_type, to)] = sides;
    CUDA_MEMCPY3D {
        srcMemoryType: from_type,
        srcHost: host::<c_void>(from).cast_const(),
        srcDevice: from,
        dstMemoryType: to_type,
        dstHost: host(to),
        dstDevice: to,
        WidthInBytes: len,
        Height: 1,
        Depth: 1,
        ..CUDA_MEMCPY3D::zeroed()
    }
}

/// The same as a 2-D copy.
pub(crate) fn plane(copy: &CUDA_MEMCPY3D) -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcPitch: copy.srcPitch,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstPitch: copy.dstPitch,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        ..CUDA_MEMCPY2D::zeroed()
    }
}

/// Adds a copy to a new graph, and returns the answer.
fn added(context: &Context, copy: &CUDA_MEMCPY3D) -> CUresult {
    let (graph, _, code) = graph_of(context, copy);
    succeeds(call!(cuGraphDestroy(graph)));
    code
}

/// Returns a new graph, the node of a copy in it, and the answer to adding the node.
fn graph_of(context: &Context, copy: &CUDA_MEMCPY3D) -> (CUgraph, CUgraphNode, CUresult) {
    let (mut graph, mut node, context) = (null_mut(), null_mut(), context.as_raw());
    succeeds(call!(cuGraphCreate(&raw mut graph, 0)));
    let code = call!(cuGraphAddMemcpyNode(&raw mut node, graph, null(), 0, copy, context));
    (graph, node, code)
}

fn instantiated(graph: CUgraph) -> CUgraphExec {
    let mut executable = null_mut();
    succeeds(call!(cuGraphInstantiateWithFlags(&raw mut executable, graph, 0)));
    executable
}

#[test]
fn copies_and_fills_of_no_bytes_succeed_at_every_address_and_are_not_captured() {
    let context = or_skip!(common::context_since(13, 0));
    let _current = context.make_current().expect("current");
    let stream = context.stream().expect("a stream");
    let buffer = DeviceBuffer::<u8>::zeroed(&stream, 64).expect("memory");
    stream.synchronize().expect("zeroed");
    let device = buffer.as_raw();
    let local = [0_u8; 4];
    let addresses =
        [0, device, device + 64, 0x1234_0001, local.as_ptr().expose_provenance() as u64];
    let pairs = || (addresses.iter()).flat_map(|to| addresses.iter().map(|from| (*to, *from)));
    for (to, from) in pairs() {
        let name = format!("{to:#x} from {from:#x}");
        let answers = [
            call!(cuMemcpy(to, from, 0)),
            call!(cuMemcpyDtoD_v2(to, from, 0)),
            call!(cuMemcpyHtoD_v2(to, host::<c_void>(from), 0)),
            call!(cuMemcpyDtoH_v2(host(to), from, 0)),
            call!(cuMemcpyAsync(to, from, 0, stream.as_raw())),
            call!(cuMemsetD8_v2(to, 1, 0)),
            call!(cuMemsetD32_v2(to, 1, 0)),
            call!(cuMemsetD2D8_v2(to, 0, 1, 0, 2)),
            call!(cuMemsetD2D8_v2(to, 64, 1, 2, 0)),
            call!(cuMemsetD8Async(to, 1, 0, stream.as_raw())),
        ];
        assert_eq!(answers, [SUCCESS; 10], "{name}");
        let graph = captured(&stream, |stream| {
            succeeds(call!(cuMemcpyAsync(to, from, 0, stream)));
            succeeds(call!(cuMemcpyDtoDAsync_v2(to, from, 0, stream)));
            succeeds(call!(cuMemcpyHtoDAsync_v2(to, host::<c_void>(from), 0, stream)));
            succeeds(call!(cuMemcpyDtoHAsync_v2(host(to), from, 0, stream)));
        });
        assert_eq!(nodes(graph), [], "{name}");
        let (mut node, mut count) = (null_mut(), 0);
        let code = call!(cuGraphGetNodes(graph, &raw mut node, &raw mut count));
        assert_eq!(code, INVALID, "an array without room");
        succeeds(call!(cuGraphDestroy(graph)));
    }
    for extent in [[0, 1, 1], [4, 0, 1], [4, 1, 0], [0, 0, 0]] {
        let [width, height, depth] = extent;
        let copy = CUDA_MEMCPY3D {
            WidthInBytes: width,
            Height: height,
            Depth: depth,
            ..row([(DEVICE, device), (DEVICE, device)], 4)
        };
        succeeds(call!(cuMemcpy3D_v2(&raw const copy)));
        let graph = captured(&stream, |stream| {
            succeeds(call!(cuMemcpy3DAsync_v2(&raw const copy, stream)));
        });
        assert_eq!(nodes(graph), [], "{extent:?}");
        succeeds(call!(cuGraphDestroy(graph)));
        assert_eq!(added(&context, &copy), INVALID, "{extent:?}");
    }
}

#[test]
fn a_pitch_and_a_height_of_0_stand_for_rows_and_slices_without_gaps() {
    // A wait for the context invalidates the captures of other tests.
    if !crate::common::child::entered(&[]) {
        return;
    }
    let context = or_skip!(common::context_since(13, 0));
    let _current = context.make_current().expect("current");
    let stream = context.stream().expect("a stream");
    let source: Vec<u8> = (1..=250).collect();
    let from = source.as_ptr().expose_provenance() as u64;
    let target = DeviceBuffer::<u8>::zeroed(&stream, 128).expect("memory");
    stream.synchronize().expect("zeroed");
    let volume =
        CUDA_MEMCPY3D { Height: 2, Depth: 2, ..row([(HOST, from), (DEVICE, target.as_raw())], 4) };
    let contents = |code: CUresult| {
        succeeds(code);
        let bytes = target.to_vec().expect("a copy");
        succeeds(call!(cuMemsetD8_v2(target.as_raw(), 0, 128)));
        context.synchronize().expect("filled");
        let places = bytes.iter().enumerate().filter(|(_, byte)| **byte != 0);
        places.map(|(place, byte)| (place, *byte)).collect::<Vec<_>>()
    };
    // The rows as pairs of the places in the target and in the source.
    let rows = |starts: &[(usize, u8)]| {
        let row = |(to, from): &(usize, u8)| {
            let (to, from) = (*to, *from);
            (0..4).map(move |column| (to + column, from + 1 + u8::try_from(column).expect("small")))
        };
        starts.iter().flat_map(row).collect::<Vec<_>>()
    };
    let packed = rows(&[(0, 0), (4, 4), (8, 8), (12, 12)]);
    assert_eq!(contents(call!(cuMemcpy3D_v2(&raw const volume))), packed);
    // A row begins where the last one ends, and a slice where the last row ends: offsets count.
    let shifted = CUDA_MEMCPY3D { srcXInBytes: 1, srcY: 1, dstXInBytes: 3, dstY: 2, ..volume };
    assert_eq!(
        contents(call!(cuMemcpy3D_v2(&raw const shifted))),
        rows(&[(17, 6), (24, 11), (45, 21), (52, 26)])
    );
    let wide = CUDA_MEMCPY3D { dstPitch: 16, dstHeight: 3, ..volume };
    assert_eq!(
        contents(call!(cuMemcpy3D_v2(&raw const wide))),
        rows(&[(0, 0), (16, 4), (48, 8), (64, 12)])
    );
    let flat = plane(&shifted);
    assert_eq!(contents(call!(cuMemcpy2D_v2(&raw const flat))), rows(&[(17, 6), (24, 11)]));
    let graph = captured(&stream, |stream| {
        succeeds(call!(cuMemcpy2DAsync_v2(&raw const flat, stream)));
    });
    let mut params = CUDA_MEMCPY3D::zeroed();
    succeeds(call!(cuGraphMemcpyNodeGetParams(nodes(graph)[0], &raw mut params)));
    assert_eq!([params.srcPitch, params.dstPitch], [0; 2]);
    assert_eq!([params.srcXInBytes, params.dstY], [1, 2]);
    succeeds(call!(cuGraphDestroy(graph)));
}

#[test]
fn rows_and_slices_that_overlap_are_refused_even_if_there_is_only_one() {
    // A wait for the context invalidates the captures of other tests.
    if !crate::common::child::entered(&[]) {
        return;
    }
    let context = or_skip!(common::context_since(13, 0));
    let _current = context.make_current().expect("current");
    let stream = context.stream().expect("a stream");
    let memory = DeviceBuffer::<u8>::zeroed_sync(&stream, 4096).expect("memory");
    stream.synchronize().expect("zeroed");
    let device = memory.as_raw();
    let (from, to) = ((DEVICE, device), (DEVICE, device + 2048));
    let cases = [
        // The offset and the width in a row, the pitch, and whether the copy is refused.
        (0, 64, 63, true),
        (8, 64, 64, true),
        (8, 64, 71, true),
        (8, 64, 72, false),
        (0, 64, 1 << 20, false),
    ];
    // In pool memory, the driver does not count the offset.
    let pool = DeviceBuffer::<u8>::zeroed(&stream, 4096).expect("memory");
    stream.synchronize().expect("zeroed");
    for (width, pitch, expected) in [(64, 64, SUCCESS), (64, 63, INVALID)] {
        let copy = CUDA_MEMCPY3D {
            srcXInBytes: 8,
            srcPitch: pitch,
            ..row([(DEVICE, pool.as_raw()), to], width)
        };
        assert_eq!(call!(cuMemcpy3D_v2(&raw const copy)), expected, "{pitch}");
    }
    for (offset, width, pitch, is_refused) in cases {
        let copy = CUDA_MEMCPY3D { srcXInBytes: offset, srcPitch: pitch, ..row([from, to], width) };
        let expected = if is_refused { INVALID } else { SUCCESS };
        let flat = plane(&copy);
        let answers = [
            call!(cuMemcpy2D_v2(&raw const flat)),
            call!(cuMemcpy2DAsync_v2(&raw const flat, stream.as_raw())),
            call!(cuMemcpy3D_v2(&raw const copy)),
            call!(cuMemcpy3DAsync_v2(&raw const copy, stream.as_raw())),
            added(&context, &copy),
        ];
        assert_eq!(answers, [expected; 5], "{width} from {offset}, {pitch}");
    }
    // The first row, the rows and the slices of a copy, and the rows of a slice in memory.
    for (first, height, depth, rows) in [(0, 2, 1, 1), (1, 2, 1, 2), (1, 2, 2, 2), (5, 1, 1, 1)] {
        let copy = CUDA_MEMCPY3D {
            srcY: first,
            srcHeight: rows,
            Height: height,
            Depth: depth,
            ..row([from, to], 4)
        };
        let name = format!("{height} rows from {first}, {depth} slices of {rows}");
        assert_eq!(call!(cuMemcpy3D_v2(&raw const copy)), INVALID, "{name}");
        assert_eq!(added(&context, &copy), INVALID, "{name}");
    }
    // The copies within the device.
    context.synchronize().expect("copied");
}

unsafe extern "C" fn fill_later(place: *mut c_void) {
    std::thread::sleep(Duration::from_millis(50));
    // SAFETY: the test passes memory of 4 bytes that lives until the work is complete.
    unsafe { place.cast::<u32>().write_unaligned(7) };
}

/// The launch waits for the copy, and the copy for the work before it.
#[test]
fn a_launch_waits_for_copies_within_host_memory() {
    let context = or_skip!(common::context_since(13, 0));
    let _current = context.make_current().expect("current");
    let stream = context.stream().expect("a stream");
    for (source_is_pinned, target_is_pinned) in
        [(false, false), (false, true), (true, false), (true, true)]
    {
        let mut pinned =
            [(); 2].map(|()| PinnedBuffer::<u32>::zeroed(&context, 1).expect("pinned"));
        let mut pageable = [[0_u32]; 2];
        let mut address = |index: usize, is_pinned: bool| {
            let place = match is_pinned {
                true => pinned[index].as_mut_ptr(),
                false => pageable[index].as_mut_ptr(),
            };
            place.expose_provenance() as u64
        };
        let (from, to) = (address(0, source_is_pinned), address(1, target_is_pinned));
        let by_capture = captured(&stream, |stream| {
            succeeds(call!(cuLaunchHostFunc(stream, Some(fill_later), host(from))));
            succeeds(call!(cuMemcpyAsync(to, from, 4, stream)));
        });
        let mut params = CUDA_MEMCPY3D::zeroed();
        let last = *nodes(by_capture).last().expect("two nodes");
        succeeds(call!(cuGraphMemcpyNodeGetParams(last, &raw mut params)));
        assert_eq!([params.srcMemoryType, params.dstMemoryType], [UNIFIED; 2]);
        assert_eq!([params.srcPitch, params.dstHeight], [0; 2]);
        let (by_hand, _, code) = graph_of(&context, &row([(HOST, from), (HOST, to)], 4));
        succeeds(code);
        for (graph, is_captured) in [(by_capture, true), (by_hand, false)] {
            for place in [from, to] {
                // SAFETY: the memory has 4 bytes, and no work uses it.
                unsafe { host::<u32>(place).write_unaligned(0) };
            }
            let executable = instantiated(graph);
            if !is_captured {
                let raw = stream.as_raw();
                succeeds(call!(cuLaunchHostFunc(raw, Some(fill_later), host(from))));
            }
            succeeds(call!(cuGraphLaunch(executable, stream.as_raw())));
            let name = format!("{source_is_pinned}, {target_is_pinned}, {is_captured}");
            let place = with_exposed_provenance::<u32>(usize::try_from(to).expect("an address"));
            // SAFETY: the memory has 4 bytes, and the launch has waited for the copy.
            assert_eq!(unsafe { place.read_unaligned() }, 7, "{name}");
            stream.synchronize().expect("the graph runs");
            succeeds(call!(cuGraphExecDestroy(executable)));
            succeeds(call!(cuGraphDestroy(graph)));
        }
    }
}

#[test]
fn an_executable_graph_keeps_the_types_of_memory_of_its_copies() {
    let context = or_skip!(common::context_since(13, 0));
    let _current = context.make_current().expect("current");
    let stream = context.stream().expect("a stream");
    let memory = DeviceBuffer::<u8>::zeroed_sync(&stream, 64).expect("memory");
    let pinned = PinnedBuffer::<u8>::zeroed(&context, 64).expect("pinned");
    let pageable = [0_u8; 64];
    let pinned = pinned.as_ptr().expose_provenance() as u64;
    let sides = [
        (HOST, pageable.as_ptr().expose_provenance() as u64),
        (HOST, pinned),
        (UNIFIED, pinned),
        (UNIFIED, memory.as_raw()),
        (DEVICE, memory.as_raw()),
    ];
    let pairs = || (sides.iter()).flat_map(|from| sides.iter().map(|to| [*from, *to]));
    // Miri compares some of the pairs.
    let step = if cfg!(miri) { 3 } else { 1 };
    for old in pairs().step_by(step) {
        let (graph, node, code) = graph_of(&context, &row(old, 64));
        succeeds(code);
        let executable = instantiated(graph);
        for new in pairs().step_by(step) {
            let (copy, its) = (row(new, 64), context.as_raw());
            let code =
                call!(cuGraphExecMemcpyNodeSetParams(executable, node, &raw const copy, its));
            let keeps = old.map(|its| its.0) == new.map(|its| its.0);
            let expected = if keeps { SUCCESS } else { INVALID };
            assert_eq!(code, expected, "{old:?} to {new:?}");
        }
        succeeds(call!(cuGraphExecDestroy(executable)));
        succeeds(call!(cuGraphDestroy(graph)));
    }
}
