//! Batches of copies and copies with attributes on the software driver, through the raw calls. The codes,
//! and the times at which memory is accessed, are those of an H200 with driver 580.

use crate::prelude::*;

const STREAM: u32 = 1;
const DURING_CALL: u32 = 2;
const ANY: u32 = 3;
const UNSUPPORTED_IN_CAPTURE: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;

fn attributes(order: u32) -> CUmemcpyAttributes {
    CUmemcpyAttributes {
        srcAccessOrder: CUmemcpySrcAccessOrder(order),
        ..CUmemcpyAttributes::zeroed()
    }
}

/// Makes copies, each a target, a source and a size.
fn batch(copies: &[(u64, u64, usize)], order: u32, stream: CUstream) -> CUresult {
    with_sets(copies, &mut [attributes(order)], &mut [0], stream)
}

fn with_sets(
    copies: &[(u64, u64, usize)],
    sets: &mut [CUmemcpyAttributes],
    firsts: &mut [usize],
    stream: CUstream,
) -> CUresult {
    let mut to: Vec<u64> = copies.iter().map(|its| its.0).collect();
    let mut from: Vec<u64> = copies.iter().map(|its| its.1).collect();
    let mut sizes: Vec<usize> = copies.iter().map(|its| its.2).collect();
    code!(cuMemcpyBatchAsync_v2(
        to.as_mut_ptr(),
        from.as_mut_ptr(),
        sizes.as_mut_ptr(),
        copies.len(),
        sets.as_mut_ptr(),
        firsts.as_mut_ptr(),
        sets.len(),
        stream
    ))
}

fn address<T>(values: &mut [T]) -> u64 {
    values.as_mut_ptr().expose_provenance() as u64
}

/// Enqueues a fill, so that the stream is not idle.
fn busy(bench: &Bench) {
    succeeds!(cuMemsetD32Async(bench.log, 0, 1, bench.stream));
}

#[test]
fn one_batch_copies_between_all_kinds_of_memory() {
    let bench = &in_child!(without_misuse());
    let (first, second) = (memory(16), memory(16));
    let pinned: *mut c_void = out!(cuMemHostAlloc(16, 0));
    let mut pageable = [1u32, 2, 3, 4];
    let mut target = [0u32; 4];
    let pinned_address = pinned.expose_provenance() as u64;
    assert!(batch(&[(first, address(&mut pageable), 16)], STREAM, bench.stream).is_success());
    let copies = [
        (second, first, 16),
        (pinned_address, first, 16),
        (address(&mut target), first, 16),
        (bench.log, pinned_address, 16),
    ];
    assert!(batch(&copies, ANY, bench.stream).is_success());
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!([read::<4>(second), target], [[1, 2, 3, 4]; 2]);
    let mut other = [0u32; 4];
    let on_host = [(address(&mut other), address(&mut target), 16)];
    assert!(batch(&on_host, STREAM, bench.stream).is_success());
    assert_eq!(other, [1, 2, 3, 4]);
    succeeds!(cuMemFreeHost(pinned));
}

#[test]
fn attributes_and_sizes_are_checked() {
    let bench = &in_child!(without_misuse());
    let (first, second) = (memory(16), memory(16));
    let copies = [(second, first, 8), (second + 8, first + 8, 8)];
    let stream = bench.stream;
    for order in [0, 4] {
        assert_eq!(batch(&copies, order, stream), INVALID);
    }
    let mut flags = attributes(STREAM);
    flags.flags = 2;
    assert_eq!(with_sets(&copies, &mut [flags], &mut [0], stream), INVALID);
    let set = attributes(STREAM);
    for firsts in [[0, 0], [0, 2], [1, 0]] {
        let refused = with_sets(&copies, &mut [set; 2], &mut firsts.clone(), stream);
        assert_eq!(refused, INVALID);
    }
    assert_eq!(with_sets(&copies, &mut [set; 3], &mut [0, 1, 2], stream), INVALID);
    assert_eq!(with_sets(&copies, &mut [], &mut [], stream), INVALID);
    assert_eq!(batch(&[], STREAM, stream), INVALID);
    assert_eq!(batch(&[(second, first, 0)], STREAM, stream), INVALID);
    assert_eq!(batch(&[(second, first, 17)], STREAM, stream), INVALID);
    assert_eq!(batch(&[(second, 0, 8)], STREAM, stream), INVALID);
    // Neither form of the legacy default stream.
    for stream in [0, 1] {
        assert_eq!(batch(&copies, STREAM, without_provenance_mut(stream)), INVALID);
    }
    let per_thread = without_provenance_mut(2);
    assert!(batch(&copies, STREAM, per_thread).is_success());
    succeeds!(cuStreamSynchronize(per_thread));
    succeeds!(cuCtxSetCurrent(null_mut()));
    assert_eq!(batch(&copies, STREAM, stream), INVALID);
    succeeds!(cuCtxSetCurrent(bench.context));
    assert!(with_sets(&copies, &mut [set, attributes(ANY)], &mut [0, 1], stream).is_success());
    succeeds!(cuStreamSynchronize(stream));
}

#[test]
fn the_copies_before_one_that_fails_are_made() {
    let bench = &in_child!(without_misuse());
    let (first, second) = (memory(16), memory(16));
    succeeds!(cuMemsetD32Async(first, 7, 4, bench.stream));
    succeeds!(cuMemsetD32Async(second, 1, 4, bench.stream));
    let mut to = [second, second + 4, second + 8];
    let mut from = [first, first, first];
    let mut sizes = [4, 4, 17];
    let (mut set, mut index) = (attributes(STREAM), 0);
    let mut failed = 0;
    let mut old = |count: usize, sizes: &mut [usize; 3], set: &mut CUmemcpyAttributes| {
        code!(abi::cuMemcpyBatchAsync(
            to.as_mut_ptr(),
            from.as_mut_ptr(),
            sizes.as_mut_ptr(),
            count,
            set,
            &raw mut index,
            1,
            &raw mut failed,
            bench.stream
        ))
    };
    assert_eq!(old(3, &mut sizes, &mut set), INVALID);
    let first_failed = failed;
    assert_eq!(first_failed, 2);
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(read::<4>(second), [7, 7, 1, 1]);
}

/// Copies `len` bytes of ones behind other work, and overwrites the source with twos as soon as the call
/// returns. Returns the first word that arrives.
fn arrived(bench: &Bench, pinned: bool, len: usize, order: u32) -> u32 {
    let device = memory(len);
    let mut pageable = vec![1u32; len / 4];
    let host: *mut c_void = out!(cuMemHostAlloc(len, 0));
    let source = if pinned { host.cast() } else { pageable.as_mut_ptr() };
    // SAFETY: the source has `len` bytes, and no work uses it.
    unsafe { source.write(1) };
    busy(bench);
    let copy = [(device, source.expose_provenance() as u64, len)];
    assert!(batch(&copy, order, bench.stream).is_success());
    // SAFETY: as above; the software driver runs work only in a call.
    unsafe { source.write(2) };
    succeeds!(cuStreamSynchronize(bench.stream));
    let [word] = read::<1>(device);
    succeeds!(cuMemFreeHost(host));
    free_memory(device);
    word
}

#[test]
fn sources_are_read_when_their_order_says_except_large_ones_during_the_call() {
    let bench = &in_child!(without_misuse());
    let small = [STREAM, DURING_CALL, ANY].map(|order| arrived(bench, false, 4096, order));
    assert_eq!(small, [1, 1, 1]);
    let large = [STREAM, DURING_CALL, ANY].map(|order| arrived(bench, false, 1 << 18, order));
    // The real driver reads the large source after the call, although the order forbids it.
    assert_eq!(large, [1, 2, 2]);
    let pinned = [STREAM, DURING_CALL, ANY].map(|order| arrived(bench, true, 4096, order));
    assert_eq!(pinned, [2, 1, 2]);
}

#[test]
fn a_batch_to_pageable_memory_may_write_after_it_has_returned() {
    let bench = &in_child!(without_misuse());
    let device = memory(4);
    succeeds!(cuMemsetD32Async(device, 5, 1, bench.stream));
    let written = [STREAM, DURING_CALL, ANY].map(|order| {
        let mut target = [0u32];
        busy(bench);
        let copy = [(address(&mut target), device, 4)];
        assert!(batch(&copy, order, bench.stream).is_success());
        let before = target[0];
        succeeds!(cuStreamSynchronize(bench.stream));
        assert_eq!(target, [5]);
        before
    });
    assert_eq!(written, [0, 5, 0]);
}

#[test]
fn a_batch_keeps_the_capture_that_it_cannot_join() {
    let bench = &in_child!(without_misuse());
    let (first, second) = (memory(4), memory(4));
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    succeeds!(cuStreamBeginCapture_v2(bench.stream, mode));
    assert_eq!(batch(&[(second, first, 4)], STREAM, bench.stream), UNSUPPORTED_IN_CAPTURE);
    let mut graph = null_mut();
    succeeds!(cuStreamEndCapture(bench.stream, &raw mut graph));
    let mut count = 0;
    succeeds!(cuGraphGetNodes(graph, null_mut(), &raw mut count));
    assert_eq!(count, 0);
    succeeds!(cuGraphDestroy(graph));
}

#[test]
fn an_unknown_device_address_is_reported() {
    let bench = &in_child!(misused("takes them for host memory"));
    let (first, second) = (memory(4), memory(4));
    free_memory(second);
    assert_eq!(batch(&[(second, first, 4)], STREAM, bench.stream), INVALID);
}

fn operand(address: u64, row_length: usize, rows: usize) -> CUmemcpy3DOperand {
    let mut operand = CUmemcpy3DOperand::zeroed();
    operand.type_ = CUmemcpy3DOperandType::CU_MEMCPY_OPERAND_TYPE_POINTER;
    operand.op.ptr.ptr = address;
    operand.op.ptr.rowLength = row_length;
    operand.op.ptr.layerHeight = rows;
    operand
}

fn volume(to: u64, from: u64) -> CUDA_MEMCPY3D_BATCH_OP {
    let mut copy = CUDA_MEMCPY3D_BATCH_OP::zeroed();
    copy.src = operand(from, 16, 2);
    copy.dst = operand(to, 0, 0);
    (copy.extent.width, copy.extent.height, copy.extent.depth) = (8, 2, 2);
    copy.srcAccessOrder = CUmemcpySrcAccessOrder(STREAM);
    copy
}

#[test]
fn batches_of_volumes_use_row_lengths_and_layer_heights() {
    let bench = &in_child!(without_misuse());
    let (from, to) = (memory(64), memory(36));
    for word in 0..16 {
        succeeds!(cuMemsetD32Async(from + 4 * word, word as u32, 1, bench.stream));
    }
    succeeds!(cuMemsetD32Async(to, 99, 9, bench.stream));
    let mut copies = [volume(to, from)];
    let place = copies.as_mut_ptr();
    succeeds!(cuMemcpy3DBatchAsync_v2(1, place, 0, bench.stream));
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(read::<9>(to), [0, 1, 4, 5, 8, 9, 12, 13, 99]);
    refused!(INVALID, cuMemcpy3DBatchAsync_v2(1, place, 1, bench.stream));
    refused!(INVALID, cuMemcpy3DBatchAsync_v2(0, place, 0, bench.stream));
    refused!(INVALID, cuMemcpy3DBatchAsync_v2(1, place, 0, null_mut()));
    let refuse = |change: fn(&mut CUDA_MEMCPY3D_BATCH_OP)| {
        let mut copy = volume(to, from);
        change(&mut copy);
        refused!(INVALID, cuMemcpy3DBatchAsync_v2(1, &raw mut copy, 0, bench.stream));
    };
    refuse(|copy| copy.srcAccessOrder = CUmemcpySrcAccessOrder(0));
    refuse(|copy| copy.extent.depth = 0);
    refuse(|copy| copy.extent.depth = 3);
    refuse(|copy| copy.dst.op.ptr.rowLength = 4);
}

#[test]
fn single_copies_take_attributes() {
    let profile = "h200@13.4".parse().expect("a profile");
    let bench = &in_child!(without_misuse_on(profile));
    let (from, to) = (memory(64), memory(32));
    succeeds!(cuMemsetD32Async(from, 6, 16, bench.stream));
    let mut set = attributes(STREAM);
    succeeds!(cuMemcpyWithAttributesAsync(to, from, 8, &raw mut set, bench.stream));
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(read::<2>(to), [6, 6]);
    let mut copy = volume(to, from);
    succeeds!(cuMemcpy3DWithAttributesAsync(&raw mut copy, 0, bench.stream));
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(read::<8>(to), [6; 8]);
    set.flags = 2;
    refused!(INVALID, cuMemcpyWithAttributesAsync(to, from, 8, &raw mut set, bench.stream));
}

#[test]
fn volumes_are_copied_between_contexts() {
    let bench = &in_child!(without_misuse());
    let (from, to) = (memory(32), memory(16));
    succeeds!(cuMemsetD32Async(from, 4, 8, bench.stream));
    let mut copy = CUDA_MEMCPY3D_PEER::zeroed();
    copy.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_DEVICE;
    copy.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_DEVICE;
    (copy.srcDevice, copy.dstDevice) = (from, to);
    (copy.srcContext, copy.dstContext) = (bench.context, bench.context);
    (copy.srcPitch, copy.dstPitch) = (16, 8);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (8, 2, 1);
    succeeds!(cuMemcpy3DPeerAsync(&raw const copy, bench.stream));
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(read::<4>(to), [4; 4]);
    succeeds!(cuMemcpy3DPeer(&raw const copy));
    copy.dstContext = null_mut();
    assert!(!code!(cuMemcpy3DPeer(&raw const copy)).is_success());
}
