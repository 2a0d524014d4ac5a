//! Virtual memory on the software driver, through the raw calls. The codes are those of an H200 with
//! driver 580.
#![cfg(target_os = "linux")]

pub(crate) mod endpoints;
pub(crate) mod fabric;
pub(crate) mod leaks;
pub(crate) mod logical_endpoints;
pub(crate) mod misuse;
pub(crate) mod multicast;
pub(crate) mod multicast_objects;
pub(crate) mod multimem;
pub(crate) mod shared;

use crate::prelude::*;

const MIB: usize = 1 << 20;
pub(crate) const PAGE: usize = 2 * MIB;
pub(crate) const READ: u32 = 1;
pub(crate) const READ_WRITE: u32 = 3;
const OUT_OF_MEMORY: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
const NOT_PERMITTED: CUresult = CUresult::CUDA_ERROR_NOT_PERMITTED;

pub(crate) fn location(kind: u32, id: c_int) -> CUmemLocation {
    let mut location = CUmemLocation::zeroed();
    location.type_ = CUmemLocationType(kind);
    location.__bindgen_anon_1.id = id;
    location
}

fn on_device() -> CUmemLocation {
    location(1, 0)
}

pub(crate) fn properties() -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        location: on_device(),
        ..CUmemAllocationProp::zeroed()
    }
}

pub(crate) fn shareable() -> CUmemAllocationProp {
    CUmemAllocationProp { requestedHandleTypes: CUmemAllocationHandleType(1), ..properties() }
}

pub(crate) fn reserve(size: usize) -> u64 {
    out!(cuMemAddressReserve(size, 0, 0, 0))
}

pub(crate) fn create(size: usize) -> u64 {
    out!(cuMemCreate(size, &properties(), 0))
}

/// Creates memory on a device.
pub(crate) fn create_on(device: c_int) -> u64 {
    let wanted = CUmemAllocationProp { location: location(1, device), ..properties() };
    out!(cuMemCreate(PAGE, &raw const wanted, 0))
}

pub(crate) fn set_access(address: u64, size: usize, flags: u32) {
    let access = access_of(on_device(), flags);
    succeeds!(cuMemSetAccess(address, size, &raw const access, 1));
}

pub(crate) fn access_of(location: CUmemLocation, flags: u32) -> CUmemAccessDesc {
    CUmemAccessDesc { location, flags: CUmemAccess_flags(flags) }
}

fn access(address: u64) -> u64 {
    let location = on_device();
    out!(cuMemGetAccess(&raw const location, address))
}

/// Creates memory and maps it, readable and writable. The mapping keeps it.
pub(crate) fn map_new(address: u64, size: usize) {
    let handle = create(size);
    succeeds!(cuMemMap(address, size, 0, handle, 0));
    set_access(address, size, READ_WRITE);
    succeeds!(cuMemRelease(handle));
}

/// Launches the kernel that appends `value` to the log at an address.
pub(crate) fn append(bench: &Bench, log: u64, value: u32, stream: CUstream) {
    let mut arguments: [*mut c_void; 2] =
        [(&raw const log).cast_mut().cast(), (&raw const value).cast_mut().cast()];
    let params = arguments.as_mut_ptr();
    let launched = crate::graph::calls::code!(cuLaunchKernel(
        bench.append,
        1,
        1,
        1,
        1,
        1,
        1,
        0,
        stream,
        params,
        null_mut()
    ));
    assert!(launched.is_success());
}

#[test]
fn adjacent_mappings_are_used_as_one() {
    let bench = &in_child!(without_misuse());
    let start = reserve(8 * PAGE);
    map_new(start, PAGE);
    map_new(start + PAGE as u64, 2 * PAGE);
    assert_eq!(read::<1>(start + PAGE as u64), [0]);
    let border = start + PAGE as u64 - 8;
    let values = [3u32, 10, 20, 30, 5];
    succeeds!(cuMemcpyHtoD_v2(border, values.as_ptr().cast(), 20));
    append(bench, border, 40, bench.stream);
    succeeds!(cuMemsetD32Async(border + 20, 7, 2, bench.stream));
    succeeds!(cuMemcpyDtoDAsync_v2(start, border, 28, bench.stream));
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(read::<7>(start), [4, 10, 20, 30, 40, 7, 7]);
    assert_eq!(read::<7>(border), [4, 10, 20, 30, 40, 7, 7]);
    succeeds!(cuMemUnmap(start, 3 * PAGE));
    succeeds!(cuMemAddressFree(start, 8 * PAGE));
}

#[test]
fn a_large_reservation_grows_and_large_memory_is_allocated_lazily() {
    let bench = &in_child!(without_misuse());
    let size = 1 << 40;
    let start = reserve(size);
    for page in 0..1000 {
        let at = start + (page * PAGE) as u64;
        map_new(at, PAGE);
        succeeds!(cuMemsetD32Async(at, page as u32, 1, bench.stream));
    }
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(read::<1>(start + (999 * PAGE) as u64), [999]);
    assert_eq!(cuda_sim::alive().mappings, 1000);
    succeeds!(cuMemUnmap(start, 1000 * PAGE));

    let large = 64 << 30;
    map_new(start, large);
    succeeds!(cuMemsetD32Async(start + large as u64 - 4, 5, 1, bench.stream));
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(read::<1>(start + large as u64 - 4), [5]);
    let plain: u64 = out!(cuMemAlloc_v2(large));
    succeeds!(cuMemsetD32Async(plain + large as u64 - 4, 6, 1, bench.stream));
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(read::<1>(plain + large as u64 - 4), [6]);
    succeeds!(cuMemFree_v2(plain));
    succeeds!(cuMemUnmap(start, large));
    succeeds!(cuMemAddressFree(start, size));
    let many: Vec<u64> = (0..40).map(|_| reserve(size)).collect();
    for start in many {
        succeeds!(cuMemAddressFree(start, size));
    }
}

#[test]
fn reservations_check_sizes_alignments_and_flags() {
    let _bench = in_child!(without_misuse());
    let mut address = 0;
    let place = &raw mut address;
    for size in [0, 1, MIB, 3 * MIB] {
        refused!(INVALID, cuMemAddressReserve(place, size, 0, 0, 0));
    }
    refused!(OUT_OF_MEMORY, cuMemAddressReserve(place, 100 << 40, 0, 0, 0));
    for alignment in [3, 3 * MIB] {
        refused!(INVALID, cuMemAddressReserve(place, PAGE, alignment, 0, 0));
    }
    refused!(OUT_OF_MEMORY, cuMemAddressReserve(place, PAGE, 64 << 40, 0, 0));
    refused!(INVALID, cuMemAddressReserve(place, PAGE, 0, 4096, 0));
    refused!(OUT_OF_MEMORY, cuMemAddressReserve(place, PAGE, 0, 1 << 47, 0));
    refused!(INVALID, cuMemAddressReserve(place, PAGE, 0, 0, 1));
    refused!(INVALID, cuMemAddressReserve(null_mut(), PAGE, 0, 0, 0));
    for alignment in [4096, 1 << 30] {
        let address: u64 = out!(cuMemAddressReserve(PAGE, alignment, 0, 0));
        assert_eq!(address % alignment.max(PAGE) as u64, 0);
        refused!(INVALID, cuMemAddressFree(address, 2 * PAGE));
        refused!(INVALID, cuMemAddressFree(address + 1, PAGE));
        succeeds!(cuMemAddressFree(address, PAGE));
        refused!(INVALID, cuMemAddressFree(address, PAGE));
    }
    // A wish is honored if the addresses are free.
    let wish = 0x6000_0000_0000;
    let first: u64 = out!(cuMemAddressReserve(PAGE, 0, wish, 0));
    assert_eq!(first, wish);
    let second: u64 = out!(cuMemAddressReserve(PAGE, 0, wish, 0));
    assert_ne!(second, wish);
    succeeds!(cuMemAddressFree(first, PAGE));
    succeeds!(cuMemAddressFree(second, PAGE));
}

#[test]
fn physical_memory_checks_its_properties_and_counts() {
    let _bench = in_child!(without_misuse());
    let mut size = 0;
    for option in [0, 1] {
        let option = CUmemAllocationGranularity_flags(option);
        let wanted = properties();
        succeeds!(cuMemGetAllocationGranularity(&raw mut size, &raw const wanted, option));
        assert_eq!(size, PAGE);
    }
    let refuse = |code: CUresult, size: usize, wanted: CUmemAllocationProp| {
        let mut handle = 0;
        refused!(code, cuMemCreate(&raw mut handle, size, &raw const wanted, 0));
    };
    for size in [0, 1, MIB, 3 * MIB] {
        refuse(INVALID, size, properties());
    }
    for size in [200 << 30, 2 << 40, 1 << 60] {
        refuse(OUT_OF_MEMORY, size, properties());
    }
    let with_type = |kind: u32| CUmemAllocationProp {
        requestedHandleTypes: CUmemAllocationHandleType(kind),
        ..properties()
    };
    refuse(NOT_PERMITTED, PAGE, with_type(8));
    refuse(INVALID, PAGE, with_type(2));
    let at = |kind, id| CUmemAllocationProp { location: location(kind, id), ..properties() };
    refuse(CUresult::CUDA_ERROR_INVALID_DEVICE, PAGE, at(1, 1));
    refuse(INVALID, PAGE, at(3, 1));
    refuse(INVALID, PAGE, at(4, 0));
    let mut wanted = properties();
    wanted.type_ = CUmemAllocationType(0);
    refuse(INVALID, PAGE, wanted);
    wanted = properties();
    wanted.allocFlags.reserved[0] = 1;
    refuse(INVALID, PAGE, wanted);
    wanted = properties();
    wanted.allocFlags.compressionType = 2;
    refuse(INVALID, PAGE, wanted);
    let mut handle = 0;
    refused!(INVALID, cuMemCreate(&raw mut handle, PAGE, null(), 0));

    let (mut before, mut after, mut total) = (0, 0, 0);
    succeeds!(cuMemGetInfo_v2(&raw mut before, &raw mut total));
    let all: Vec<u64> = (0..139).map(|_| create(1 << 30)).collect();
    refuse(OUT_OF_MEMORY, 1 << 30, properties());
    for handle in all {
        succeeds!(cuMemRelease(handle));
    }
    succeeds!(cuMemGetInfo_v2(&raw mut after, &raw mut total));
    assert_eq!(before, after);

    wanted = shareable();
    wanted.allocFlags.compressionType = 1;
    let handle = out!(cuMemCreate(PAGE, &raw const wanted, 0));
    let shown: CUmemAllocationProp = out!(cuMemGetAllocationPropertiesFromHandle(handle));
    assert_eq!(shown.requestedHandleTypes.0, 1);
    assert_eq!(shown.allocFlags.compressionType, 1);
    assert_eq!(shown.location.type_.0, 1);
    succeeds!(cuMemRelease(handle));
}

#[test]
fn only_whole_memory_is_mapped_and_only_where_nothing_is() {
    let _bench = in_child!(without_misuse());
    let start = reserve(4 * PAGE);
    let handle = create(2 * PAGE);
    let len = 2 * PAGE;
    refused!(UNSUPPORTED, cuMemMap(start, PAGE, 0, handle, 0));
    refused!(UNSUPPORTED, cuMemMap(start, 2 * PAGE, PAGE, handle, 0));
    refused!(INVALID, cuMemMap(start, 0, 0, handle, 0));
    refused!(INVALID, cuMemMap(start + 65536, len, 0, handle, 0));
    refused!(INVALID, cuMemMap(start, len, 0, handle, 1));
    refused!(INVALID, cuMemMap(start, len, 0, 0, 0));
    refused!(INVALID, cuMemMap(start + (4 * PAGE) as u64, len, 0, handle, 0));
    succeeds!(cuMemMap(start + PAGE as u64, len, 0, handle, 0));
    refused!(INVALID, cuMemMap(start, len, 0, handle, 0));
    refused!(INVALID, cuMemMap(start + PAGE as u64, len, 0, handle, 0));
    refused!(INVALID, cuMemAddressFree(start, 4 * PAGE));
    refused!(INVALID, cuMemUnmap(start, 2 * PAGE));
    refused!(INVALID, cuMemUnmap(start, 0));
    succeeds!(cuMemUnmap(start, 4 * PAGE));
    succeeds!(cuMemUnmap(start, 4 * PAGE));
    succeeds!(cuMemRelease(handle));
    succeeds!(cuMemAddressFree(start, 4 * PAGE));
    refused!(INVALID, cuMemUnmap(start, 4 * PAGE));
}

#[test]
fn copies_and_fills_need_rights_and_are_refused_without_harm() {
    let bench = &in_child!(without_misuse());
    let start = reserve(4 * PAGE);
    let word = 7u32;
    let write = || crate::graph::calls::code!(cuMemcpyHtoD_v2(start, (&raw const word).cast(), 4));
    let fill = || crate::graph::calls::code!(cuMemsetD8_v2(start, 1, 4));
    let read_code = || {
        let mut word = 0u32;
        crate::graph::calls::code!(cuMemcpyDtoH_v2((&raw mut word).cast(), start, 4))
    };
    assert_eq!([write(), fill(), read_code()], [INVALID; 3]);
    let handle = create(PAGE);
    succeeds!(cuMemMap(start, PAGE, 0, handle, 0));
    assert_eq!(access(start + 5), 0);
    assert_eq!([write(), fill(), read_code()], [INVALID; 3]);
    set_access(start, PAGE, READ_WRITE);
    assert_eq!(access(start), 3);
    assert!([write(), read_code()].iter().all(|its| its.is_success()));
    set_access(start, PAGE, READ);
    assert_eq!([write(), fill()], [INVALID; 2]);
    assert_eq!(read::<1>(start), [7]);

    // The rights of an alias are its own, and the memory is the same.
    let alias = start + PAGE as u64;
    succeeds!(cuMemMap(alias, PAGE, 0, handle, 0));
    set_access(alias, PAGE, READ_WRITE);
    append(bench, alias + 64, 9, bench.stream);
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(read::<2>(start + 64), [1, 9]);

    // The memory keeps its contents without a mapping; the rights are lost.
    succeeds!(cuMemUnmap(start, 2 * PAGE));
    succeeds!(cuMemMap(start, PAGE, 0, handle, 0));
    assert_eq!(access(start), 0);
    set_access(start, PAGE, READ);
    assert_eq!(read::<1>(start), [7]);

    // A copy that runs into a part that is not mapped.
    set_access(start, PAGE, READ_WRITE);
    refused!(INVALID, cuMemsetD8_v2(start + PAGE as u64 - 4, 1, 8));
    succeeds!(cuMemUnmap(start, PAGE));
    succeeds!(cuMemRelease(handle));
    succeeds!(cuMemAddressFree(start, 4 * PAGE));
}

#[test]
fn rights_are_set_for_whole_mappings_of_known_locations() {
    let _bench = in_child!(without_misuse());
    let start = reserve(4 * PAGE);
    map_new(start, 2 * PAGE);
    map_new(start + (2 * PAGE) as u64, PAGE);
    let refuse = |code, address, size, access: &[CUmemAccessDesc]| {
        refused!(code, cuMemSetAccess(address, size, access.as_ptr(), access.len()));
    };
    let good = access_of(on_device(), READ);
    for (address, size) in [
        (start, PAGE),
        (start, 4 * PAGE),
        (start + PAGE as u64, 2 * PAGE),
        (start, 0),
        (start, 4096),
        (start + (3 * PAGE) as u64, PAGE),
    ] {
        refuse(INVALID, address, size, &[good]);
    }
    refuse(INVALID, start, 2 * PAGE, &[access_of(on_device(), 2)]);
    refuse(INVALID, start, 2 * PAGE, &[access_of(location(1, 1), READ)]);
    refuse(UNSUPPORTED, start, 2 * PAGE, &[access_of(location(2, 0), READ)]);
    refuse(INVALID, start, 2 * PAGE, &[]);
    // The last of several rights of one location counts.
    let both = [access_of(on_device(), READ_WRITE), good];
    succeeds!(cuMemSetAccess(start, 3 * PAGE, both.as_ptr(), 2));
    assert_eq!([access(start), access(start + (2 * PAGE) as u64)], [1, 1]);
    let device = on_device();
    let mut flags = 0;
    let unmapped = start + (3 * PAGE) as u64;
    refused!(INVALID, cuMemGetAccess(&raw mut flags, &raw const device, unmapped));
    let plain: u64 = out!(cuMemAlloc_v2(4));
    assert_eq!(access(plain), 3);
    succeeds!(cuMemFree_v2(plain));
    succeeds!(cuMemUnmap(start, 4 * PAGE));
    succeeds!(cuMemAddressFree(start, 4 * PAGE));
}

#[test]
fn host_memory_is_used_by_the_host_at_the_same_address() {
    let bench = &in_child!(without_misuse());
    let start = reserve(2 * PAGE);
    let wanted = CUmemAllocationProp { location: location(3, 0), ..properties() };
    let handle = out!(cuMemCreate(PAGE, &raw const wanted, 0));
    succeeds!(cuMemMap(start, PAGE, 0, handle, 0));
    let both = [access_of(location(3, 0), READ_WRITE), access_of(on_device(), READ_WRITE)];
    succeeds!(cuMemSetAccess(start, PAGE, both.as_ptr(), 2));
    let host = core::ptr::with_exposed_provenance_mut::<u32>(start as usize);
    // SAFETY: the host has rights to the memory, and no work uses it.
    unsafe { host.write(0) };
    append(bench, start, 12, bench.stream);
    succeeds!(cuStreamSynchronize(bench.stream));
    // SAFETY: as above.
    assert_eq!(unsafe { host.wrapping_add(1).read() }, 12);
    succeeds!(cuMemUnmap(start, PAGE));
    succeeds!(cuMemRelease(handle));
    succeeds!(cuMemAddressFree(start, 2 * PAGE));
}

#[test]
fn handles_are_retained_from_addresses_and_mappings_keep_memory() {
    let _bench = in_child!(without_misuse());
    let start = reserve(2 * PAGE);
    map_new(start, PAGE);
    let inside = core::ptr::with_exposed_provenance_mut::<c_void>(start as usize + 5);
    let first: u64 = out!(cuMemRetainAllocationHandle(inside));
    let second: u64 = out!(cuMemRetainAllocationHandle(inside));
    assert_eq!(first, second);
    succeeds!(cuMemUnmap(start, PAGE));
    succeeds!(cuMemRelease(first));
    assert_eq!(cuda_sim::alive().physical_allocations, 1);
    succeeds!(cuMemRelease(first));
    assert_eq!(cuda_sim::alive().physical_allocations, 0);
    let mut handle = 0;
    refused!(INVALID, cuMemRetainAllocationHandle(&raw mut handle, inside));
    refused!(INVALID, cuMemRelease(0));
    succeeds!(cuMemAddressFree(start, 2 * PAGE));
}

#[test]
fn other_functions_refuse_mapped_memory() {
    let bench = &in_child!(without_misuse());
    let start = reserve(4 * PAGE);
    map_new(start + PAGE as u64, PAGE);
    let inside = start + PAGE as u64 + 8;
    refused!(INVALID, cuMemFree_v2(start + PAGE as u64));
    refused!(INVALID, cuMemFreeAsync(start + PAGE as u64, bench.stream));
    let (mut base, mut size) = (0, 0);
    succeeds!(cuMemGetAddressRange_v2(&raw mut base, &raw mut size, inside));
    assert_eq!((base, size), (start + PAGE as u64, PAGE));
    refused!(
        CUresult::CUDA_ERROR_NOT_FOUND,
        cuMemGetAddressRange_v2(&raw mut base, &raw mut size, start)
    );
    let later = start + 2 * PAGE as u64;
    let handle = create(PAGE);
    succeeds!(cuMemMap(later, PAGE, 0, handle, 0));
    let not_found = CUresult::CUDA_ERROR_NOT_FOUND;
    refused!(not_found, cuMemGetAddressRange_v2(&raw mut base, &raw mut size, later));
    set_access(later, PAGE, READ_WRITE);
    succeeds!(cuMemGetAddressRange_v2(&raw mut base, &raw mut size, later));
    succeeds!(cuMemUnmap(later, PAGE));
    succeeds!(cuMemRelease(handle));
    let attribute = |number: u32, address: u64| {
        use cuda_safe::sys::{CUpointer_attribute, cuPointerGetAttribute};
        let mut value = 0u64;
        let place = (&raw mut value).cast();
        let attribute = CUpointer_attribute(number);
        let code = crate::graph::calls::code!(cuPointerGetAttribute(place, attribute, address));
        code.is_success().then_some(value)
    };
    // The context, the type, whether IPC can share it, the range, the rights, and the mapping.
    let shown = [1, 2, 10, 11, 12, 16, 18, 19].map(|number| attribute(number, inside));
    let page = PAGE as u64;
    assert_eq!(shown, [0, 2, 0, start, 4 * page, 3, page, start + page].map(Some));
    assert_eq!(attribute(4, inside), None);
    assert_eq!(attribute(2, start), None);
    succeeds!(cuMemUnmap(start, 4 * PAGE));
    succeeds!(cuMemAddressFree(start, 4 * PAGE));
}

#[test]
fn calls_need_no_context_and_keep_captures() {
    let bench = &in_child!(without_misuse());
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    succeeds!(cuStreamBeginCapture_v2(bench.stream, mode));
    succeeds!(cuCtxSetCurrent(null_mut()));
    let start = reserve(PAGE);
    map_new(start, PAGE);
    assert_eq!(access(start), 3);
    succeeds!(cuMemUnmap(start, PAGE));
    succeeds!(cuCtxSetCurrent(bench.context));
    // A capture accepts work on memory that is not mapped, and the graph cannot be instantiated.
    succeeds!(cuMemsetD32Async(start, 5, 4, bench.stream));
    let mut graph = null_mut();
    succeeds!(cuStreamEndCapture(bench.stream, &raw mut graph));
    let mut executable = null_mut();
    refused!(INVALID, cuGraphInstantiateWithFlags(&raw mut executable, graph, 0));
    map_new(start, PAGE);
    let executable = instantiate(graph);
    // It runs on the memory that is mapped at the launch.
    succeeds!(cuMemUnmap(start, PAGE));
    map_new(start, PAGE);
    succeeds!(cuGraphLaunch(executable, bench.stream));
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(read::<1>(start), [5]);
    destroy_executable(executable);
    succeeds!(cuGraphDestroy(graph));
    succeeds!(cuMemUnmap(start, PAGE));
    succeeds!(cuMemAddressFree(start, PAGE));
}

#[test]
fn graph_nodes_fill_mapped_memory() {
    let bench = &in_child!(without_misuse());
    let start = reserve(PAGE);
    map_new(start, PAGE);
    let graph = graph();
    fill_node(graph, &[], &fill(start, 3, 2));
    bench.run(graph);
    assert_eq!(read::<3>(start), [3, 3, 0]);
    destroy(graph);
    succeeds!(cuMemUnmap(start, PAGE));
    succeeds!(cuMemAddressFree(start, PAGE));
}

unsafe extern "C" fn unmap_page(address: *mut c_void) {
    let address = address.expose_provenance() as u64;
    refused!(NOT_PERMITTED, cuMemUnmap(address, PAGE));
    refused!(NOT_PERMITTED, cuMemAddressFree(address, PAGE));
}

#[test]
fn host_functions_may_not_call() {
    let bench = &in_child!(without_misuse());
    let start = reserve(PAGE);
    let data = core::ptr::with_exposed_provenance_mut(start as usize);
    succeeds!(cuLaunchHostFunc(bench.stream, Some(unmap_page), data));
    succeeds!(cuStreamSynchronize(bench.stream));
    succeeds!(cuMemAddressFree(start, PAGE));
}

#[test]
fn memory_of_a_locality_domain_belongs_to_its_device() {
    let profile = "b200@13.4".parse().expect("a profile");
    let _bench = in_child!(without_misuse_on(profile));
    let mut wanted = properties();
    wanted.location = location(6, 1 << 8);
    let handle: u64 = out!(cuMemCreate(PAGE, &raw const wanted, 0));
    let start = reserve(PAGE);
    succeeds!(cuMemMap(start, PAGE, 0, handle, 0));
    set_access(start, PAGE, READ_WRITE);
    succeeds!(cuMemsetD8_v2(start, 1, 4));
    assert_eq!(read::<1>(start), [0x0101_0101]);
    let mut other = 0;
    wanted.location = location(6, 2 << 8);
    refused!(INVALID, cuMemCreate(&raw mut other, PAGE, &raw const wanted, 0));
    succeeds!(cuMemUnmap(start, PAGE));
    succeeds!(cuMemRelease(handle));
    succeeds!(cuMemAddressFree(start, PAGE));
}
