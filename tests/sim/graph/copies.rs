//! Memcpy and memset nodes on the software driver: their effects and refusals. The codes are those of driver 580.

use crate::prelude::*;

#[test]
fn a_copy_from_pageable_memory_is_read_by_the_launch() {
    let bench = &in_child!(without_misuse());
    let (graph, device) = (graph(), memory(8));
    let mut source = [1u32, 2];
    let place = &raw mut source;
    copy_node(graph, &[], &copy(Side::Host(place.cast()), Side::Device(device), 8));
    let executable = instantiate(graph);
    // SAFETY: the pointer is to a local variable, which the driver reads only in the launch.
    unsafe { place.write([3, 4]) };
    bench.launch(executable);
    // SAFETY: as above.
    unsafe { place.write([5, 6]) };
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(read(device), [3, 4]);
}

#[test]
fn a_copy_from_pinned_memory_is_read_when_the_node_runs() {
    let bench = &in_child!(without_misuse());
    let (graph, device) = (graph(), memory(4));
    let host: *mut c_void = out!(cuMemHostAlloc(4, 0));
    // SAFETY: the memory has 4 bytes.
    unsafe { host.cast::<u32>().write(1) };
    copy_node(graph, &[], &copy(Side::Host(host), Side::Device(device), 4));
    let executable = instantiate(graph);
    bench.launch(executable);
    // SAFETY: as above, and the copy has not run.
    unsafe { host.cast::<u32>().write(2) };
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(read(device), [2]);
    succeeds!(cuMemFreeHost(host));
}

#[test]
fn a_launch_waits_for_copies_to_pageable_memory() {
    let bench = &in_child!(without_misuse());
    let (graph, device) = (graph(), memory(4));
    let mut target = [0u32];
    let filled = fill_node(graph, &[], &fill(device, 8, 1));
    let to = Side::Host(target.as_mut_ptr().cast());
    copy_node(graph, &[filled], &copy(Side::Device(device), to, 4));
    bench.append(graph, &[filled], 1);
    let executable = instantiate(graph);
    bench.launch(executable);
    assert_eq!(target, [8]);
    succeeds!(cuStreamSynchronize(bench.stream));
}

#[test]
fn copies_of_planes_and_volumes_use_pitches_and_positions() {
    let bench = &in_child!(without_misuse());
    let (graph, from, to) = (graph(), memory(256), memory(256));
    let filled: Vec<_> =
        (0..64).map(|at| fill_node(graph, &[], &fill(from + 4 * at, at as u32, 1))).collect();
    let cleared = fill_node(graph, &filled, &fill(to, 99, 64));
    let mut volume = copy(Side::Device(from), Side::Device(to), 8);
    (volume.srcPitch, volume.srcHeight) = (16, 2);
    (volume.dstPitch, volume.dstHeight) = (8, 2);
    (volume.srcXInBytes, volume.srcZ) = (4, 1);
    (volume.Height, volume.Depth) = (2, 2);
    let node = copy_node(graph, &[cleared], &volume);
    let mut shown = CUDA_MEMCPY3D::zeroed();
    succeeds!(cuGraphMemcpyNodeGetParams(node, &raw mut shown));
    assert_eq!((shown.srcPitch, shown.srcHeight), (16, 2));
    assert_eq!((shown.dstPitch, shown.dstHeight), (8, 2));
    bench.run(graph);
    // Two slices of 32 bytes; each has two rows of 16 bytes, of which the middle 8 are copied.
    assert_eq!(read(to), [9, 10, 13, 14, 17, 18, 21, 22, 99]);
}

#[test]
fn copies_that_cannot_run_are_refused() {
    let _bench = in_child!(without_misuse());
    let (graph, device, freed) = (graph(), memory(16), memory(16));
    free_memory(freed);
    let host = Side::Host(null::<c_void>().wrapping_add(0x1234));
    let good = copy(host, Side::Device(device), 16);
    let mut bad = vec![
        copy(host, Side::Device(device), 0),
        copy(host, Side::Device(device), 17),
        copy(host, Side::Device(freed), 16),
        copy(host, Side::Device(0x7000), 16),
        CUDA_MEMCPY3D { Height: 2, dstPitch: 4, ..good },
    ];
    bad.push(CUDA_MEMCPY3D { srcLOD: 1, ..good });
    let mut node = null_mut();
    for copy in &bad {
        let copy = from_ref(copy);
        refused!(INVALID, cuGraphAddMemcpyNode(&raw mut node, graph, null(), 0, copy, null_mut()));
    }
    // Measured: host memory is not checked.
    let node = copy_node(graph, &[], &good);
    let mut shown = CUDA_MEMCPY3D::zeroed();
    succeeds!(cuGraphMemcpyNodeGetParams(node, &raw mut shown));
    assert_eq!((shown.dstDevice, shown.WidthInBytes), (device, 16));
    shown.WidthInBytes = 8;
    succeeds!(cuGraphMemcpyNodeSetParams(node, &raw const shown));
    shown.WidthInBytes = 80;
    refused!(INVALID, cuGraphMemcpyNodeSetParams(node, &raw const shown));
}

#[test]
fn fills_of_lines_and_planes_run_and_invalid_ones_are_refused() {
    let bench = &in_child!(without_misuse());
    let (graph, device) = (graph(), memory(32));
    let zeros = fill_node(graph, &[], &fill(device, 0, 8));
    let plane = CUDA_MEMSET_NODE_PARAMS { pitch: 16, height: 2, ..fill(device, 7, 2) };
    let node = fill_node(graph, &[zeros], &plane);
    bench.run(graph);
    assert_eq!(read(device), [7, 7, 0, 0, 7, 7, 0, 0]);
    let mut shown = CUDA_MEMSET_NODE_PARAMS::zeroed();
    succeeds!(cuGraphMemsetNodeGetParams(node, &raw mut shown));
    assert_eq!((shown.height, shown.pitch, shown.width), (2, 16, 2));
    let line = fill(device, 0, 8);
    let bad = [
        CUDA_MEMSET_NODE_PARAMS { elementSize: 3, ..line },
        CUDA_MEMSET_NODE_PARAMS { width: 0, ..line },
        CUDA_MEMSET_NODE_PARAMS { width: 9, ..line },
        CUDA_MEMSET_NODE_PARAMS { pitch: 4, height: 2, ..line },
    ];
    let mut refused = null_mut();
    for params in &bad {
        let params = from_ref(params);
        let add =
            code!(cuGraphAddMemsetNode(&raw mut refused, graph, null(), 0, params, null_mut()));
        assert_eq!(add, INVALID);
        refused!(INVALID, cuGraphMemsetNodeSetParams(node, params));
    }
}

#[test]
fn pool_memory_whose_free_was_enqueued_is_refused() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let address: u64 = out!(cuMemAllocAsync(16, bench.stream));
    fill_node(graph, &[], &fill(address, 1, 4));
    succeeds!(cuMemFreeAsync(address, bench.stream));
    let (mut node, params) = (null_mut(), fill(address, 1, 4));
    let params = &raw const params;
    refused!(INVALID, cuGraphAddMemsetNode(&raw mut node, graph, null(), 0, params, null_mut()));
}

/// Captures one copy of 4 bytes between any two addresses.
fn captured_copy(bench: &Bench, to: CUdeviceptr, from: CUdeviceptr) -> CUgraphExec {
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    succeeds!(cuStreamBeginCapture_v2(bench.stream, mode));
    succeeds!(cuMemcpyAsync(to, from, 4, bench.stream));
    let mut graph = null_mut();
    succeeds!(cuStreamEndCapture(bench.stream, &raw mut graph));
    instantiate(graph)
}

#[test]
fn a_captured_copy_of_freed_device_memory_is_an_illegal_access() {
    let bench = &in_child!(misused("0x7"));
    let (from, to) = (memory(4), memory(4));
    let executable = captured_copy(bench, to, from);
    free_memory(from);
    free_memory(to);
    bench.launch(executable);
    assert_eq!(code!(cuStreamSynchronize(bench.stream)), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
}

/// A real driver crashes.
#[test]
fn a_captured_copy_to_freed_pinned_memory_is_an_illegal_access() {
    let bench = &in_child!(misused("pinned memory of a copy, 4 bytes, was freed"));
    let [from, to]: [*mut c_void; 2] = [(); 2].map(|()| out!(cuMemHostAlloc(4, 0)));
    let address = |host: *mut c_void| host.expose_provenance() as u64;
    let executable = captured_copy(bench, address(to), address(from));
    succeeds!(cuMemFreeHost(to));
    let code = code!(cuGraphLaunch(executable, bench.stream));
    assert_eq!(code, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
}
