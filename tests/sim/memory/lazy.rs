//! Memory that is larger than the memory of the host: pages that were not written take none.

use crate::prelude::*;
use crate::software::misuses::succeeds;

const ALL: usize = 64 << 30;
const GIB: usize = 1 << 30;
const MIB: usize = 1 << 20;
/// What the other tests of the process, and page tables, may use meanwhile.
const LITTLE: usize = 1 << 30;

/// Returns the memory of the host that this process uses, in bytes.
fn used() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    kib.and_then(|kib| kib.parse::<usize>().ok()).expect("a number") << 10
}

/// Runs a test that must use little memory of the host.
fn with_little(test: impl FnOnce(&Context, &Stream)) {
    let (_end, context) = in_child!(on(Profile::h200()));
    let _current = context.make_current().expect("current");
    let stream = context.stream().expect("a stream");
    let before = used();
    test(&context, &stream);
    stream.synchronize().expect("the work");
    let after = used();
    assert!(
        after < before + LITTLE,
        "the process used {before} bytes before and {after} bytes after"
    );
    assert_eq!(cuda_sim::misuses(), [""; 0]);
}

/// Writes and copies a mebibyte at both ends of memory, and reads what was not written.
fn use_ends(start: u64, size: usize, unwritten: u8, stream: CUstream) {
    let end = start + size as u64;
    let place = |gib: u64| start + gib * GIB as u64;
    // SAFETY: the memory is alive and is larger than all of these ranges together.
    succeeds(unsafe { cuMemsetD8Async(start, 7, MIB, stream) });
    // SAFETY: as above.
    succeeds(unsafe { cuMemcpyDtoDAsync_v2(end - MIB as u64, start, MIB, stream) });
    // SAFETY: as above. This copies pages that were not written.
    succeeds(unsafe { cuMemcpyDtoDAsync_v2(place(2) + 5, place(1), MIB, stream) });
    for (address, expected) in
        [(start, 7), (end - 1, 7), (place(1), unwritten), (place(2) + 5, unwritten)]
    {
        // SAFETY: the stream is alive.
        succeeds(unsafe { cuStreamSynchronize(stream) });
        let mut byte = 0_u8;
        // SAFETY: the memory is alive, and the target has one byte.
        succeeds(unsafe { cuMemcpyDtoH_v2((&raw mut byte).cast(), address, 1) });
        assert_eq!(byte, expected, "at {address:#x}");
    }
}

/// The value of memory that was never written.
const UNINIT: u8 = 0xa5;

#[test]
fn unused_parts_of_a_synchronous_allocation_take_no_memory_of_the_host() {
    with_little(|_, stream| {
        let mut address = 0;
        // SAFETY: the pointer is to a local variable.
        succeeds(unsafe { cuMemAlloc_v2(&raw mut address, ALL) });
        use_ends(address, ALL, UNINIT, stream.as_raw());
        // SAFETY: the memory is alive and is not used again.
        succeeds(unsafe { cuMemFree_v2(address) });
    });
}

#[test]
fn unused_parts_of_a_stream_ordered_allocation_take_no_memory_of_the_host() {
    with_little(|_, stream| {
        let mut address = 0;
        // SAFETY: the pointer is to a local variable.
        succeeds(unsafe { cuMemAllocAsync(&raw mut address, ALL, stream.as_raw()) });
        use_ends(address, ALL, UNINIT, stream.as_raw());
        // SAFETY: the memory is alive and is not used again.
        succeeds(unsafe { cuMemFreeAsync(address, stream.as_raw()) });
    });
}

#[test]
fn many_allocations_that_are_not_written_take_no_memory_of_the_host() {
    with_little(|_, stream| {
        let raw = stream.as_raw();
        let mut all = Vec::new();
        // The size of a segment of a caching allocator.
        for _ in 0..ALL / (20 * MIB) {
            let mut address = 0;
            // SAFETY: the pointer is to a local variable.
            succeeds(unsafe { cuMemAllocAsync(&raw mut address, 20 * MIB, raw) });
            // SAFETY: the memory is alive and larger than this.
            succeeds(unsafe { cuMemsetD8Async(address, 1, 4096, raw) });
            all.push(address);
        }
        stream.synchronize().expect("the work");
        for address in all {
            // SAFETY: the memory is alive and is not used again.
            succeeds(unsafe { cuMemFreeAsync(address, raw) });
        }
    });
}

#[test]
fn unused_parts_of_pinned_and_managed_memory_take_no_memory_of_the_host() {
    with_little(|_, stream| {
        let mut start = null_mut();
        // SAFETY: the pointer is to a local variable.
        succeeds(unsafe { cuMemHostAlloc(&raw mut start, ALL, 0) });
        use_ends(start.addr() as u64, ALL, 0, stream.as_raw());
        // SAFETY: the memory is alive and is not used again.
        succeeds(unsafe { cuMemFreeHost(start) });

        let (mut address, global) = (0, CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL.0);
        // SAFETY: the pointer is to a local variable.
        succeeds(unsafe { cuMemAllocManaged(&raw mut address, ALL, global) });
        let mut device = CUmemLocation::zeroed();
        device.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        let advice = CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
        // SAFETY: the memory is alive.
        succeeds(unsafe { cuMemAdvise_v2(address, ALL, advice, device) });
        use_ends(address, ALL, 0, stream.as_raw());
        // SAFETY: the memory is alive and is not used again.
        succeeds(unsafe { cuMemFree_v2(address) });
    });
}

#[test]
fn unused_parts_of_mapped_memory_take_no_memory_of_the_host() {
    with_little(|_, stream| {
        let mut properties = CUmemAllocationProp::zeroed();
        properties.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        let access = CUmemAccessDesc {
            location: properties.location,
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let (mut memory, mut address) = (0, 0);
        // SAFETY: the pointers refer to local variables.
        succeeds(unsafe { cuMemCreate(&raw mut memory, ALL, &raw const properties, 0) });
        // SAFETY: the pointer is to a local variable.
        succeeds(unsafe { cuMemAddressReserve(&raw mut address, ALL, 0, 0, 0) });
        // SAFETY: the range is reserved, and the memory is as large.
        succeeds(unsafe { cuMemMap(address, ALL, 0, memory, 0) });
        // SAFETY: the range is mapped.
        succeeds(unsafe { cuMemSetAccess(address, ALL, &raw const access, 1) });
        use_ends(address, ALL, 0, stream.as_raw());
        // SAFETY: the range is mapped and is not used again.
        succeeds(unsafe { cuMemUnmap(address, ALL) });
        // SAFETY: the range is reserved and not mapped.
        succeeds(unsafe { cuMemAddressFree(address, ALL) });
        // SAFETY: the memory is not used again.
        succeeds(unsafe { cuMemRelease(memory) });
    });
}

#[test]
fn unused_parts_of_an_array_take_no_memory_of_the_host() {
    with_little(|_, _| {
        let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
            Width: 16_384,
            Height: 16_384,
            Depth: 16,
            Format: CUarray_format::CU_AD_FORMAT_FLOAT,
            NumChannels: 4,
            Flags: 0,
        };
        let mut array = null_mut();
        // SAFETY: the pointers refer to local variables.
        succeeds(unsafe { cuArray3DCreate_v2(&raw mut array, &raw const descriptor) });
        // SAFETY: the array is alive and is not used again.
        succeeds(unsafe { cuArrayDestroy(array) });
    });
}
