//! Managed pools on the software driver. The codes and values are those of an H200 with driver 580.

use crate::prelude::*;

const BYTES: usize = 4096;
const MANAGED: CUmemAllocationType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED;
const PINNED: CUmemAllocationType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
const NOWHERE: CUmemLocationType = CUmemLocationType::CU_MEM_LOCATION_TYPE_NONE;
const DEVICE: CUmemLocationType = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
const HOST: CUmemLocationType = CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST;
const NUMA: CUmemLocationType = CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA;
const NEAREST: CUmemLocationType = CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
const UNKNOWN: CUmemLocationType = CUmemLocationType(99);
const DONE: CUresult = CUresult::CUDA_SUCCESS;

fn location(kind: CUmemLocationType, id: i32) -> CUmemLocation {
    let mut location = CUmemLocation { type_: kind, ..CUmemLocation::default() };
    location.__bindgen_anon_1.id = id;
    location
}

fn props(kind: CUmemAllocationType, place: CUmemLocationType, id: i32) -> CUmemPoolProps {
    CUmemPoolProps { allocType: kind, location: location(place, id), ..CUmemPoolProps::default() }
}

fn pool(kind: CUmemAllocationType, place: CUmemLocationType) -> CUmemoryPool {
    let props = props(kind, place, 0);
    out!(cuMemPoolCreate(&raw const props))
}

/// Returns memory of a managed pool that prefers a location, with the pool.
fn memory(place: CUmemLocationType, stream: CUstream) -> (CUmemoryPool, CUdeviceptr) {
    let pool = pool(MANAGED, place);
    let address = out!(cuMemAllocFromPoolAsync(BYTES, pool, stream));
    succeeds!(cuStreamSynchronize(stream));
    (pool, address)
}

fn end(pool: CUmemoryPool, address: CUdeviceptr, stream: CUstream) {
    succeeds!(cuMemFreeAsync(address, stream));
    succeeds!(cuMemPoolDestroy(pool));
    succeeds!(cuStreamSynchronize(stream));
}

/// Returns the preferred location and the location of the last prefetch of a page. Each is the device, or
/// the CPU, the kind of the location and its id.
fn places(address: CUdeviceptr) -> [[i32; 3]; 2] {
    use CUmem_range_attribute as Attribute;
    [
        [
            Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
            Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE,
            Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID,
        ],
        [
            Attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
            Attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE,
            Attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID,
        ],
    ]
    .map(|attributes| {
        attributes.map(|attribute| {
            let mut value = 77i32;
            let place = (&raw mut value).cast();
            succeeds!(cuMemRangeGetAttribute(place, 4, attribute, address, BYTES));
            value
        })
    })
}

const NONE: [i32; 3] = [CU_DEVICE_INVALID, 0, CU_DEVICE_INVALID];

#[test]
fn the_properties_of_a_managed_pool_are_checked() {
    let _bench = in_child!(without_misuse());
    for (expected, place, id) in [
        (DONE, NOWHERE, 0),
        (DONE, NOWHERE, -1),
        (DONE, DEVICE, 0),
        (DONE, HOST, -1),
        (DONE, NUMA, 0),
        (DONE, NEAREST, 0),
        (INVALID, NUMA, 1),
        (INVALID, DEVICE, 63),
        (UNSUPPORTED, UNKNOWN, 0),
    ] {
        let (props, mut pool) = (props(MANAGED, place, id), null_mut());
        refused!(expected, cuMemPoolCreate(&raw mut pool, &raw const props));
        if expected == DONE {
            succeeds!(cuMemPoolDestroy(pool));
        }
    }
    let plain = props(MANAGED, DEVICE, 0);
    let fd = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    for props in [
        CUmemPoolProps { maxSize: 32 << 20, ..plain },
        CUmemPoolProps { usage: 2, ..plain },
        CUmemPoolProps { handleTypes: fd, ..plain },
        CUmemPoolProps { gpuDirectRDMACapable: 1, ..plain },
    ] {
        let mut pool = null_mut();
        refused!(INVALID, cuMemPoolCreate(&raw mut pool, &raw const props));
    }
}

#[test]
fn a_location_without_pools_has_no_default_pool() {
    let _bench = in_child!(without_misuse());
    for (expected, kind, place, id) in [
        (DONE, MANAGED, NOWHERE, -1),
        (INVALID, PINNED, NOWHERE, 0),
        (INVALID, MANAGED, NUMA, 1),
        (INVALID, MANAGED, DEVICE, 63),
        (INVALID, PINNED, DEVICE, 63),
        (UNSUPPORTED, MANAGED, NEAREST, 0),
        (UNSUPPORTED, PINNED, NEAREST, 0),
        (UNSUPPORTED, MANAGED, UNKNOWN, 0),
    ] {
        let (mut place, mut pool) = (location(place, id), null_mut());
        let place = &raw mut place;
        refused!(expected, cuMemGetDefaultMemPool(&raw mut pool, place, kind));
        refused!(expected, cuMemGetMemPool(&raw mut pool, place, kind));
    }
}

#[test]
fn a_managed_pool_of_a_device_replaces_only_its_managed_pool() {
    let _bench = in_child!(without_misuse());
    let pool = pool(MANAGED, DEVICE);
    let mut place = location(DEVICE, 0);
    let place = &raw mut place;
    refused!(INVALID, cuMemSetMemPool(place, PINNED, pool));
    let mut nowhere = location(NOWHERE, 0);
    refused!(INVALID, cuMemSetMemPool(&raw mut nowhere, MANAGED, pool));
    succeeds!(cuDeviceSetMemPool(0, pool));
    let default: CUmemoryPool = out!(cuDeviceGetDefaultMemPool(0));
    let current: CUmemoryPool = out!(cuDeviceGetMemPool(0));
    assert_eq!(current, default);
    let managed: CUmemoryPool = out!(cuMemGetMemPool(place, MANAGED));
    assert_eq!(managed, pool);
    let default: CUmemoryPool = out!(cuMemGetDefaultMemPool(place, MANAGED));
    refused!(INVALID, cuMemPoolDestroy(default));
    succeeds!(cuMemPoolDestroy(pool));
}

#[test]
fn a_system_without_concurrent_access_has_no_managed_pools() {
    let profile = Profile::h200().without_concurrent_managed_access();
    let _bench = in_child!(without_misuse_on(profile));
    let (props, mut pool) = (props(MANAGED, DEVICE, 0), null_mut());
    refused!(UNSUPPORTED, cuMemPoolCreate(&raw mut pool, &raw const props));
    let mut place = location(NOWHERE, 0);
    let place = &raw mut place;
    refused!(UNSUPPORTED, cuMemGetMemPool(&raw mut pool, place, MANAGED));
}

#[test]
fn memory_of_a_managed_pool_is_no_memory_of_the_device() {
    let bench = &in_child!(without_misuse());
    let free = || {
        let (mut free, mut total) = (0, 0);
        succeeds!(cuMemGetInfo_v2(&raw mut free, &raw mut total));
        free
    };
    let (before, alive) = (free(), cuda_sim::alive());
    let (pool, address) = memory(DEVICE, bench.stream);
    assert_eq!(free(), before);
    let now = cuda_sim::alive();
    assert_eq!(now.device_bytes, alive.device_bytes);
    assert_eq!(now.device_allocations, alive.device_allocations);
    assert_eq!(now.managed_allocations, alive.managed_allocations + 1);
    let mut synchronous = false;
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
    let place = (&raw mut synchronous).cast();
    succeeds!(cuPointerGetAttribute(place, attribute, address));
    assert!(synchronous);
    let (mut start, mut size) = (0, 0);
    succeeds!(cuMemGetAddressRange_v2(&raw mut start, &raw mut size, address + 5));
    assert_eq!((start, size), (address, BYTES));
    let host = core::ptr::with_exposed_provenance_mut(address as usize);
    refused!(INVALID, cuMemHostRegister_v2(host, BYTES, 0));
    let mut other = 0;
    refused!(INVALID, cuMemHostGetDevicePointer_v2(&raw mut other, host, 0));
    for flags in [1, 2, 4] {
        refused!(INVALID, cuStreamAttachMemAsync(bench.stream, address, 0, flags));
    }
    end(pool, address, bench.stream);
    let (pool, second) = memory(DEVICE, bench.stream);
    assert_ne!(second, address, "an address is not reused");
    end(pool, second, bench.stream);
}

#[test]
fn a_copy_from_managed_memory_reads_it_in_stream_order() {
    let bench = &in_child!(without_misuse());
    let (pool, from) = memory(NOWHERE, bench.stream);
    let to = out!(cuMemAllocFromPoolAsync(BYTES, pool, bench.stream));
    succeeds!(cuMemsetD8Async(from, 3, BYTES, bench.stream));
    let host = core::ptr::with_exposed_provenance(from as usize);
    succeeds!(cuMemcpyHtoDAsync_v2(to, host, BYTES, bench.stream));
    let mut bytes = [0u8; BYTES];
    succeeds!(cuStreamSynchronize(bench.stream));
    succeeds!(cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), to, BYTES));
    assert_eq!(bytes, [3; BYTES]);
    succeeds!(cuMemFreeAsync(to, bench.stream));
    end(pool, from, bench.stream);
}

#[test]
fn memory_of_a_managed_pool_takes_no_advice() {
    use CUmem_advise as Advice;
    let bench = &in_child!(without_misuse());
    for (place, preferred) in [
        (NOWHERE, NONE),
        (DEVICE, [0, 1, 0]),
        (HOST, [CU_DEVICE_CPU, 2, 0]),
        (NUMA, [CU_DEVICE_CPU, 3, 0]),
    ] {
        let (pool, address) = memory(place, bench.stream);
        for advice in [
            Advice::CU_MEM_ADVISE_SET_READ_MOSTLY,
            Advice::CU_MEM_ADVISE_UNSET_READ_MOSTLY,
            Advice::CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
            Advice::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION,
            Advice::CU_MEM_ADVISE_SET_ACCESSED_BY,
            Advice::CU_MEM_ADVISE_UNSET_ACCESSED_BY,
        ] {
            let of_processor = matches!(
                advice,
                Advice::CU_MEM_ADVISE_SET_ACCESSED_BY | Advice::CU_MEM_ADVISE_UNSET_ACCESSED_BY
            );
            for (expected, place) in [
                (UNSUPPORTED, DEVICE),
                (UNSUPPORTED, HOST),
                (if of_processor { INVALID } else { DONE }, NUMA),
            ] {
                refused!(expected, cuMemAdvise_v2(address, BYTES, advice, location(place, 0)));
            }
        }
        assert_eq!(places(address), [preferred, NONE]);
        end(pool, address, bench.stream);
    }
}

#[test]
fn the_location_of_the_last_prefetch_is_returned_as_it_was_passed() {
    let bench = &in_child!(without_misuse());
    let (pool, of_pool) = memory(NOWHERE, bench.stream);
    let managed = out!(cuMemAllocManaged(BYTES, 1));
    for address in [of_pool, managed] {
        for (kind, expected) in [
            (DEVICE, [0, 1, 0]),
            (HOST, [CU_DEVICE_CPU, 2, CU_DEVICE_CPU]),
            (NUMA, [CU_DEVICE_CPU, 3, 0]),
            (NEAREST, [CU_DEVICE_CPU, 4, 0]),
        ] {
            let place = location(kind, 0);
            succeeds!(cuMemPrefetchAsync_v2(address, BYTES, place, 0, bench.stream));
            assert_eq!(places(address), [NONE, expected]);
        }
        let (mut at, mut size, mut place, mut first) = (address, BYTES, location(HOST, 0), 0);
        succeeds!(cuMemPrefetchBatchAsync(
            &raw mut at,
            &raw mut size,
            1,
            &raw mut place,
            &raw mut first,
            1,
            0,
            bench.stream
        ));
        assert_eq!(places(address), [NONE, [CU_DEVICE_CPU, 2, 0]]);
        let (mut both, mut sizes) = ([address; 2], [BYTES; 2]);
        let (mut targets, mut firsts) = ([location(HOST, 0); 2], [0; 2]);
        refused!(
            INVALID,
            cuMemPrefetchBatchAsync(
                both.as_mut_ptr(),
                sizes.as_mut_ptr(),
                2,
                targets.as_mut_ptr(),
                firsts.as_mut_ptr(),
                2,
                0,
                bench.stream
            )
        );
        let place = location(DEVICE, 0);
        let stream = bench.stream;
        for more in [BYTES + 1, usize::MAX] {
            refused!(INVALID, cuMemPrefetchAsync_v2(address, more, place, 0, stream));
        }
    }
    succeeds!(cuMemFree_v2(managed));
    end(pool, of_pool, bench.stream);
}

#[test]
fn prefetches_and_discards_are_not_captured() {
    let bench = &in_child!(without_misuse());
    let (pool, address) = memory(NOWHERE, bench.stream);
    let (mut at, mut size, mut place, mut first) = (address, BYTES, location(HOST, 0), 0);
    let (at, size) = (&raw mut at, &raw mut size);
    let (places, first) = (&raw mut place, &raw mut first);
    let stream = bench.stream;
    let calls: [&dyn Fn() -> CUresult; 4] = [
        &|| code!(cuMemPrefetchAsync_v2(address, BYTES, location(HOST, 0), 0, stream)),
        &|| code!(cuMemPrefetchBatchAsync(at, size, 1, places, first, 1, 0, stream)),
        &|| code!(cuMemDiscardBatchAsync(at, size, 1, 0, stream)),
        &|| code!(cuMemDiscardAndPrefetchBatchAsync(at, size, 1, places, first, 1, 0, stream)),
    ];
    for call in calls {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        succeeds!(cuStreamBeginCapture_v2(stream, mode));
        assert_eq!(call(), CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        let mut graph = null_mut();
        refused!(
            CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
            cuStreamEndCapture(stream, &raw mut graph)
        );
    }
    end(pool, address, stream);
}

#[test]
fn advice_and_attributes_need_a_current_context() {
    let bench = &in_child!(without_misuse());
    let (pool, address) = memory(NOWHERE, bench.stream);
    succeeds!(cuCtxSetCurrent(null_mut()));
    let none = CUresult::CUDA_ERROR_INVALID_CONTEXT;
    let advice = CUmem_advise::CU_MEM_ADVISE_SET_READ_MOSTLY;
    let place = location(DEVICE, 0);
    refused!(none, cuMemAdvise_v2(address, BYTES, advice, place));
    let mut value = 0i32;
    let attribute = CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
    let output = (&raw mut value).cast();
    refused!(none, cuMemRangeGetAttribute(output, 4, attribute, address, BYTES));
    let stream = bench.stream;
    succeeds!(cuMemPrefetchAsync_v2(address, BYTES, place, 0, stream));
    end(pool, address, stream);
    succeeds!(cuCtxSetCurrent(bench.context));
}

#[test]
fn a_managed_pool_has_no_access_that_only_reads() {
    let _bench = in_child!(without_misuse());
    let pool = pool(MANAGED, NOWHERE);
    for place in [DEVICE, HOST, NUMA] {
        for (expected, flags) in [
            (DONE, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
            (UNSUPPORTED, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ),
            (DONE, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE),
        ] {
            let mut access = CUmemAccessDesc::zeroed();
            (access.location, access.flags) = (location(place, 0), flags);
            refused!(expected, cuMemPoolSetAccess(pool, &raw const access, 1));
        }
    }
    succeeds!(cuMemPoolDestroy(pool));
}

#[test]
fn a_prefetch_after_the_free_is_a_misuse() {
    let bench = &in_child!(misused("after their free was enqueued"));
    let (_, address) = memory(NOWHERE, bench.stream);
    succeeds!(cuMemFreeAsync(address, bench.stream));
    let (place, stream) = (location(DEVICE, 0), bench.stream);
    refused!(INVALID, cuMemPrefetchAsync_v2(address, BYTES, place, 0, stream));
}

#[test]
fn managed_memory_that_another_stream_uses_before_its_allocation_is_a_misuse() {
    let bench = &in_child!(misused("before their stream has executed the allocation"));
    let pool = pool(MANAGED, NOWHERE);
    let other: CUstream = out!(cuStreamCreate(1));
    // Nothing sets the word, so the allocation does not run.
    let word = crate::graph::calls::memory(4);
    succeeds!(cuMemsetD32_v2(word, 0, 1));
    succeeds!(cuStreamSynchronize(null_mut()));
    succeeds!(cuStreamWaitValue32_v2(bench.stream, word, 1, 0));
    let address = out!(cuMemAllocFromPoolAsync(BYTES, pool, bench.stream));
    succeeds!(cuMemsetD8Async(address, 1, BYTES, other));
    refused!(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(other));
}

#[test]
fn a_stream_ordered_free_of_other_managed_memory_is_a_misuse() {
    let bench = &in_child!(misused("cuMemFreeAsync of memory of cuMemAllocManaged"));
    let address: CUdeviceptr = out!(cuMemAllocManaged(BYTES, 1));
    refused!(UNSUPPORTED, cuMemFreeAsync(address, bench.stream));
}

fn node(graph: CUgraph, props: CUmemPoolProps, size: usize) -> (CUresult, CUgraphNode, u64) {
    let mut params = CUDA_MEM_ALLOC_NODE_PARAMS::zeroed();
    (params.poolProps, params.bytesize) = (props, size);
    let mut node = null_mut();
    let place = &raw mut params;
    (code!(cuGraphAddMemAllocNode(&raw mut node, graph, null(), 0, place)), node, params.dptr)
}

#[test]
fn an_allocation_node_has_memory_of_a_device_only() {
    let _bench = in_child!(without_misuse());
    let graph = graph();
    for (expected, kind, place, id) in [
        (DONE, MANAGED, DEVICE, 0),
        (UNSUPPORTED, MANAGED, NOWHERE, 0),
        (UNSUPPORTED, MANAGED, HOST, 0),
        (UNSUPPORTED, MANAGED, NUMA, 0),
        (INVALID, MANAGED, NUMA, 1),
        (UNSUPPORTED, MANAGED, NEAREST, 0),
        (INVALID, MANAGED, DEVICE, 63),
        (UNSUPPORTED, MANAGED, UNKNOWN, 0),
        (DONE, PINNED, DEVICE, 0),
        (INVALID, PINNED, NOWHERE, 0),
        (UNSUPPORTED, PINNED, HOST, 0),
        (UNSUPPORTED, PINNED, NUMA, 0),
        (INVALID, PINNED, NUMA, 1),
        (INVALID, PINNED, NEAREST, 0),
        (INVALID, PINNED, DEVICE, 63),
    ] {
        let (code, made, address) = node(graph, props(kind, place, id), BYTES);
        assert_eq!(code, expected, "{kind:?} {place:?} {id}");
        assert_eq!(address != 0, expected == DONE);
        if expected == DONE {
            let found: CUDA_MEM_ALLOC_NODE_PARAMS = {
                let mut found = CUDA_MEM_ALLOC_NODE_PARAMS::zeroed();
                succeeds!(cuGraphMemAllocNodeGetParams(made, &raw mut found));
                found
            };
            assert_eq!(found.poolProps.allocType, kind);
        }
    }
    let plain = props(MANAGED, DEVICE, 0);
    let limited = CUmemPoolProps { maxSize: 32 << 20, ..plain };
    let shared = CUmemPoolProps {
        handleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        ..plain
    };
    for (props, size) in [(limited, BYTES), (shared, BYTES), (plain, 0)] {
        assert_eq!(node(graph, props, size).0, INVALID);
    }
}

#[test]
fn memory_of_a_managed_node_belongs_to_the_device_and_not_to_the_host() {
    use CUpointer_attribute as Attribute;
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let (code, _, address) = node(graph, props(MANAGED, DEVICE, 0), BYTES);
    assert_eq!(code, DONE);
    let executable = instantiate(graph);
    bench.launch(executable);
    succeeds!(cuStreamSynchronize(bench.stream));
    for attribute in [
        Attribute::CU_POINTER_ATTRIBUTE_CONTEXT,
        Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
        Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
    ] {
        let mut value = 0u64;
        let place = (&raw mut value).cast();
        succeeds!(cuPointerGetAttribute(place, attribute, address));
        assert_eq!(value, 0, "{attribute:?}");
    }
    let (mut value, host) = (0u64, Attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER);
    let place = (&raw mut value).cast();
    refused!(INVALID, cuPointerGetAttribute(place, host, address));
    let (place, stream) = (location(HOST, 0), bench.stream);
    refused!(INVALID, cuMemPrefetchAsync_v2(address, BYTES, place, 0, stream));
    succeeds!(cuMemFreeAsync(address, stream));
}

#[test]
fn the_access_to_an_allocation_node_of_managed_memory_is_full() {
    let _bench = in_child!(without_misuse());
    let graph = graph();
    for place in [DEVICE, HOST] {
        for (expected, flags) in [
            (DONE, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
            (UNSUPPORTED, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ),
            (UNSUPPORTED, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE),
        ] {
            let mut access = CUmemAccessDesc::zeroed();
            (access.location, access.flags) = (location(place, 0), flags);
            let mut params = CUDA_MEM_ALLOC_NODE_PARAMS::zeroed();
            (params.poolProps, params.bytesize) = (props(MANAGED, DEVICE, 0), BYTES);
            (params.accessDescs, params.accessDescCount) = (&raw const access, 1);
            let (mut node, params) = (null_mut(), &raw mut params);
            refused!(expected, cuGraphAddMemAllocNode(&raw mut node, graph, null(), 0, params));
        }
    }
}

#[test]
fn a_capture_continues_after_an_allocation_that_cannot_be_captured() {
    let bench = &in_child!(without_misuse());
    for (expected, kind, place) in [
        (INVALID, MANAGED, NOWHERE),
        (DONE, MANAGED, DEVICE),
        (UNSUPPORTED, MANAGED, HOST),
        (UNSUPPORTED, MANAGED, NUMA),
        (UNSUPPORTED, PINNED, HOST),
        (UNSUPPORTED, PINNED, NUMA),
        (DONE, PINNED, DEVICE),
    ] {
        let pool = pool(kind, place);
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        succeeds!(cuStreamBeginCapture_v2(bench.stream, mode));
        let mut address = 0;
        let stream = bench.stream;
        refused!(expected, cuMemAllocFromPoolAsync(&raw mut address, BYTES, pool, stream));
        let status: CUstreamCaptureStatus = {
            let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
            succeeds!(cuStreamIsCapturing(stream, &raw mut status));
            status
        };
        assert_eq!(status, CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE);
        let mut graph = null_mut();
        succeeds!(cuStreamEndCapture(stream, &raw mut graph));
        let (mut node, mut count) = (null_mut(), 1);
        succeeds!(cuGraphGetNodes(graph, &raw mut node, &raw mut count));
        assert_eq!(count, usize::from(expected == DONE));
        if expected == DONE {
            let mut found = CUDA_MEM_ALLOC_NODE_PARAMS::zeroed();
            succeeds!(cuGraphMemAllocNodeGetParams(node, &raw mut found));
            assert_eq!(found.poolProps.allocType, PINNED);
        }
        destroy(graph);
        succeeds!(cuMemPoolDestroy(pool));
    }
}
