//! Memory of a pool of another device, which a device uses only with the access that the pool gives it. That
//! copies and fills on a stream are refused otherwise is from a test of NVIDIA's cuda.core. The other calls
//! are unverified.

use crate::graph::calls::kernel_node;
use crate::prelude::*;

const BYTES: usize = 256;

fn location(device: i32) -> CUmemLocation {
    let mut location = CUmemLocation {
        type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        ..CUmemLocation::default()
    };
    location.__bindgen_anon_1.id = device;
    location
}

/// Memory of a pool of the second device, while the context of the first is current.
struct Shared {
    pool: CUmemoryPool,
    stream: CUstream,
    start: u64,
}

impl Shared {
    fn new(bench: &Bench) -> Self {
        let context = out!(cuDevicePrimaryCtxRetain(1));
        succeeds!(cuCtxSetCurrent(context));
        let stream = out!(cuStreamCreate(1));
        let props = CUmemPoolProps {
            allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            location: location(1),
            ..CUmemPoolProps::default()
        };
        let pool = out!(cuMemPoolCreate(&raw const props));
        let start = out!(cuMemAllocFromPoolAsync(BYTES, pool, stream));
        succeeds!(cuStreamSynchronize(stream));
        succeeds!(cuCtxSetCurrent(bench.context));
        Self { pool, stream, start }
    }

    /// Sets the access of the first device: 0, or 3 to read and write.
    fn set_access(&self, flags: u32) {
        let access = CUmemAccessDesc { location: location(0), flags: CUmemAccess_flags(flags) };
        succeeds!(cuMemPoolSetAccess(self.pool, &raw const access, 1));
    }

    fn end(self) {
        succeeds!(cuMemFreeAsync(self.start, self.stream));
        succeeds!(cuStreamSynchronize(self.stream));
        succeeds!(cuStreamDestroy_v2(self.stream));
        succeeds!(cuMemPoolDestroy(self.pool));
        succeeds!(cuDevicePrimaryCtxRelease_v2(1));
    }
}

/// Makes each call that copies or fills on the first device, and returns its code.
fn all_calls(bench: &Bench, there: u64, here: u64) -> Vec<(&'static str, CUresult)> {
    let mut host = [7_u8; BYTES];
    let place = host.as_mut_ptr();
    let (host, stream) = (place.expose_provenance() as u64, bench.stream);
    let mut plane = CUDA_MEMCPY2D::zeroed();
    plane.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
    plane.srcHost = place.cast();
    plane.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_DEVICE;
    plane.dstDevice = there;
    (plane.srcPitch, plane.dstPitch) = (16, 16);
    (plane.WidthInBytes, plane.Height) = (16, 4);
    let mut out = copy(Side::Device(there), Side::Host(place.cast()), BYTES);
    (out.srcPitch, out.dstPitch) = (BYTES, BYTES);
    (out.srcHeight, out.dstHeight) = (1, 1);
    let mut set = CUmemcpyAttributes {
        srcAccessOrder: CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
        ..CUmemcpyAttributes::zeroed()
    };
    let batch = |mut to: u64, mut from: u64, set: &mut CUmemcpyAttributes| {
        let (mut size, mut first) = (BYTES, 0);
        let (to, from) = (&raw mut to, &raw mut from);
        let (size, first) = (&raw mut size, &raw mut first);
        code!(cuMemcpyBatchAsync_v2(to, from, size, 1, set, first, 1, stream))
    };
    let codes = vec![
        ("to", code!(cuMemcpyHtoD_v2(there, place.cast(), BYTES))),
        ("from", code!(cuMemcpyDtoH_v2(place.cast(), there, BYTES))),
        ("between, to", code!(cuMemcpyDtoD_v2(there, here, BYTES))),
        ("between, from", code!(cuMemcpyDtoD_v2(here, there, BYTES))),
        ("any, to", code!(cuMemcpy(there, host, BYTES))),
        ("any, from", code!(cuMemcpy(host, there, BYTES))),
        ("any on a stream", code!(cuMemcpyAsync(there, here, BYTES, stream))),
        ("to on a stream", code!(cuMemcpyHtoDAsync_v2(there, place.cast(), BYTES, stream))),
        ("from on a stream", code!(cuMemcpyDtoHAsync_v2(place.cast(), there, BYTES, stream))),
        ("between on a stream", code!(cuMemcpyDtoDAsync_v2(here, there, BYTES, stream))),
        ("plane", code!(cuMemcpy2D_v2(&raw const plane))),
        ("plane on a stream", code!(cuMemcpy2DAsync_v2(&raw const plane, stream))),
        ("volume", code!(cuMemcpy3D_v2(&raw const out))),
        ("volume on a stream", code!(cuMemcpy3DAsync_v2(&raw const out, stream))),
        ("batch, to", batch(there, here, &mut set)),
        ("batch, from", batch(here, there, &mut set)),
        ("fill of bytes", code!(cuMemsetD8_v2(there, 1, BYTES))),
        ("fill of words", code!(cuMemsetD32_v2(there, 1, BYTES / 4))),
        ("fill of a plane", code!(cuMemsetD2D8_v2(there, 16, 1, 8, 4))),
        ("fill on a stream", code!(cuMemsetD8Async(there, 1, BYTES, stream))),
    ];
    succeeds!(cuStreamSynchronize(stream));
    codes
}

/// Adds a node for a copy and one for a fill, and returns the codes.
fn nodes(graph: CUgraph, there: u64, here: u64) -> [CUresult; 3] {
    let add = |from, to| {
        let (mut node, copy) = (null_mut(), copy(Side::Device(from), Side::Device(to), BYTES));
        let (node, copy) = (&raw mut node, &raw const copy);
        code!(cuGraphAddMemcpyNode(node, graph, null(), 0, copy, null_mut()))
    };
    let (mut node, fill) = (null_mut(), fill(there, 1, 4));
    let (node, fill) = (&raw mut node, &raw const fill);
    [
        add(there, here),
        add(here, there),
        code!(cuGraphAddMemsetNode(node, graph, null(), 0, fill, null_mut())),
    ]
}

/// Captures a copy and a fill, and returns the codes.
fn captured(bench: &Bench, there: u64, here: u64) -> [CUresult; 2] {
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    succeeds!(cuStreamBeginCapture_v2(bench.stream, mode));
    let codes = [
        code!(cuMemcpyDtoDAsync_v2(there, here, BYTES, bench.stream)),
        code!(cuMemsetD8Async(there, 1, BYTES, bench.stream)),
    ];
    let graph = out!(cuStreamEndCapture_of(bench.stream));
    succeeds!(cuGraphDestroy(graph));
    codes
}

/// `cuStreamEndCapture`, with the output first.
#[allow(non_snake_case, reason = "NVIDIA's name")]
unsafe fn cuStreamEndCapture_of(graph: *mut CUgraph, stream: CUstream) -> CUresult {
    // SAFETY: the caller passes a place for a graph.
    unsafe { cuStreamEndCapture(stream, graph) }
}

#[test]
fn copies_and_fills_use_the_pool_memory_of_another_device_only_with_access() {
    let bench = &in_child!(without_misuse_on(Profile::h200().with_devices(2)));
    let shared = Shared::new(bench);
    let (there, here) = (shared.start, memory(BYTES));
    for flags in [0, 3, 0] {
        shared.set_access(flags);
        let expected = match flags {
            0 => INVALID,
            _ => CUresult::CUDA_SUCCESS,
        };
        for (call, code) in all_calls(bench, there, here) {
            assert_eq!(code, expected, "{call} with access {flags}");
        }
        let graph = graph();
        assert_eq!(nodes(graph, there, here), [expected; 3]);
        destroy(graph);
        assert_eq!(captured(bench, there, here), [expected; 2]);
    }
    // A copy between contexts names the context of each side.
    let second = out!(cuDevicePrimaryCtxRetain(1));
    succeeds!(cuMemcpyPeer(there, second, here, bench.context, BYTES));
    succeeds!(cuDevicePrimaryCtxRelease_v2(1));
    free_memory(here);
    shared.end();
}

#[test]
fn a_node_of_a_kernel_uses_the_pool_memory_of_another_device_with_access() {
    let bench = &in_child!(without_misuse_on(Profile::h200().with_devices(2)));
    let shared = Shared::new(bench);
    shared.set_access(3);
    succeeds!(cuMemsetD8_v2(shared.start, 0, BYTES));
    assert_eq!(run(bench, shared.start), CUresult::CUDA_SUCCESS);
    shared.end();
}

#[test]
fn a_node_of_a_kernel_that_uses_pool_memory_of_another_device_without_access_is_fatal() {
    in_child!();
    let bench = Bench::new(Profile::h200().with_devices(2));
    let shared = Shared::new(&bench);
    assert_eq!(run(&bench, shared.start), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    crate::software::misuses::found("is memory of device 1");
}

/// Runs a graph with a kernel that uses the memory, and waits.
fn run(bench: &Bench, memory: u64) -> CUresult {
    let (graph, value) = (graph(), 1_u32);
    let arguments = [(&raw const memory).cast(), (&raw const value).cast()];
    kernel_node(graph, &[], bench.append, &arguments);
    let executable = crate::graph::calls::instantiate(graph);
    succeeds!(cuGraphLaunch(executable, bench.stream));
    let code = code!(cuStreamSynchronize(bench.stream));
    destroy_executable(executable);
    destroy(graph);
    code
}

/// Measured with driver 580.
#[test]
fn an_allocation_of_no_bytes_from_a_pool_succeeds_and_is_freed() {
    let bench = &in_child!(without_misuse_on(Profile::h200()));
    let props = CUmemPoolProps {
        allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        location: location(0),
        ..CUmemPoolProps::default()
    };
    let pool = out!(cuMemPoolCreate(&raw const props));
    let first: u64 = out!(cuMemAllocFromPoolAsync(0, pool, bench.stream));
    let second: u64 = out!(cuMemAllocFromPoolAsync(0, pool, bench.stream));
    let third: u64 = out!(cuMemAllocAsync(0, bench.stream));
    assert_eq!([first, second, third], [0; 3]);
    for address in [first, second, third] {
        succeeds!(cuMemFreeAsync(address, bench.stream));
    }
    succeeds!(cuStreamSynchronize(bench.stream));
    succeeds!(cuMemPoolDestroy(pool));
    // Synchronous memory has at least one byte (documented).
    let mut none = 0;
    refused!(INVALID, cuMemAlloc_v2(&raw mut none, 0));
}
