//! Pools of managed memory, and allocation nodes of managed memory. The amounts are small, because too much
//! managed memory can hang a GPU.

use crate::call::raw::succeeds;
use crate::common;
use crate::module::kernels::Scale;
use core::ptr::{null, null_mut};
use cuda_safe::device::attribute;
use cuda_safe::memory::{ManagedBuffer, MemoryLocation, MemoryPool, MemoryPoolOptions, MemoryType};
use cuda_safe::sys::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUmemAllocationType, CUmemLocationType, CUresult, CUstream,
    CUstreamCaptureMode, Zeroable, cuGraphAddMemAllocNode, cuGraphCreate, cuGraphDestroy,
    cuGraphExecDestroy, cuGraphInstantiateWithFlags, cuGraphLaunch, cuGraphMemAllocNodeGetParams,
    cuMemAllocFromPoolAsync, cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardBatchAsync,
    cuMemFreeAsync, cuMemPrefetchBatchAsync, cuMemsetD8Async, cuStreamBeginCapture_v2,
    cuStreamEndCapture,
};
use cuda_safe::{Context, Device, DeviceBuffer, Error, Stream};

/// Returns the primary context of a device whose driver has managed pools, a stream, and the location of
/// the device, or reports a skip.
#[track_caller]
fn stage() -> Option<(Context, Stream, MemoryLocation)> {
    let context = common::context_since(13, 0)?;
    let has = |device: &Device| {
        let concurrent = device.attribute(attribute::CONCURRENT_MANAGED_ACCESS);
        concurrent.expect("known")
    };
    if !Device::all().expect("devices").iter().all(has) {
        common::skip("a device has no concurrent managed access");
        return None;
    }
    let stream = context.stream().expect("a stream");
    let device = MemoryLocation::Device(context.device());
    Some((context, stream, device))
}

const NOWHERE: MemoryLocation = MemoryLocation::Other { kind: 0, id: 0 };

/// Returns a managed pool. It prefers no location, or the given one.
fn pool(context: &Context, location: Option<MemoryLocation>) -> MemoryPool {
    let location = Some(location.unwrap_or(NOWHERE));
    let options = MemoryPoolOptions { managed: true, location, ..Default::default() };
    MemoryPool::new(context, options).expect("a pool")
}

#[test]
fn memory_of_a_managed_pool_is_used_by_the_host_and_the_device() {
    const LEN: usize = if cfg!(miri) { 50 } else { 5000 };
    let (context, stream, device) = or_skip!(stage());
    let scale = Scale::new(&context);
    for location in [None, Some(device), Some(MemoryLocation::Host)] {
        let pool = pool(&context, location);
        let mut buffer =
            DeviceBuffer::<i32>::zeroed_from_pool(&pool, &stream, LEN).expect("memory");
        scale.run(&stream, &mut buffer, 1, 7).expect("a launch");
        stream.synchronize().expect("a wait");
        let info = context.pointer_info(buffer.as_raw()).expect("a query").expect("known memory");
        assert!(info.managed, "{info:?}");
        assert_eq!(info.memory_type, MemoryType::Device);
        assert_eq!(info.host_address, Some(buffer.as_raw()));
        assert_eq!(info.device_address, Some(buffer.as_raw()));
        assert!(info.context.is_null() && info.pool == pool.as_raw());
        let first: *mut i32 = core::ptr::with_exposed_provenance_mut(buffer.as_raw() as usize);
        // SAFETY: the memory is managed, `LEN` elements long, and the device does not use it.
        let there = unsafe { core::slice::from_raw_parts_mut(first, LEN) };
        assert_eq!(*there, [7; LEN]);
        there.fill(9);
        scale.run(&stream, &mut buffer, 2, 1).expect("a launch");
        assert_eq!(buffer.to_vec().expect("a copy"), [19; LEN]);
    }
}

#[test]
fn memory_of_a_managed_pool_is_prefetched_and_prefers_the_location_of_the_pool() {
    let (context, stream, device) = or_skip!(stage());
    for location in [None, Some(device), Some(MemoryLocation::Host)] {
        let pool = pool(&context, location);
        // Memory of whole pages, which no other memory of the pool uses.
        const LEN: usize = 2 << 20;
        let memory = DeviceBuffer::<u8>::zeroed_from_pool(&pool, &stream, LEN).expect("memory");
        // SAFETY: the memory outlives this buffer and is not used otherwise meanwhile.
        let buffer = unsafe { ManagedBuffer::<u8>::borrow_raw(memory.as_raw(), LEN, &stream) };
        let buffer = buffer.expect("managed memory");
        let range = buffer.range(..).expect("within");
        let info = range.info().expect("known");
        assert_eq!(info.preferred_location, location);
        assert_eq!(info.last_prefetch, None);
        for to in [device, MemoryLocation::Host] {
            range.prefetch(to).expect("a prefetch");
            assert_eq!(range.info().expect("known").last_prefetch, Some(to));
        }
        stream.prefetch_batch(&[(range, device)]).expect("a prefetch");
        let range = buffer.range(..).expect("within");
        assert_eq!(range.info().expect("known").last_prefetch, Some(device));
        assert_eq!(memory.to_vec().expect("a copy"), [0; LEN]);
        let range = buffer.range(..).expect("within");
        // SAFETY: the contents are not read before they are written.
        unsafe { stream.discard_and_prefetch_batch(&[(range, MemoryLocation::Host)]) }
            .expect("a discard");
        let range = buffer.range(..).expect("within");
        // SAFETY: as above.
        unsafe { stream.discard_batch(&[range]) }.expect("a discard");
        let mut buffer = buffer;
        buffer.device_mut().expect("access").fill(3).expect("a fill");
        drop(buffer);
        assert_eq!(memory.to_vec().expect("a copy"), [3; LEN]);
    }
}

#[test]
fn a_managed_pool_is_neither_limited_nor_shared() {
    let (context, ..) = or_skip!(stage());
    let managed = MemoryPoolOptions { managed: true, ..Default::default() };
    for options in [
        MemoryPoolOptions { max_size: 64 << 20, ..managed },
        MemoryPoolOptions { hw_decompress: true, ..managed },
        MemoryPoolOptions { shareable: true, ..managed },
    ] {
        let error = MemoryPool::new(&context, options).expect_err("refused");
        // A device without shareable pools has another error.
        if let Some(code) = error.code() {
            assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE, "{options:?}");
        } else {
            assert!(matches!(error, Error::Invalid(_)), "{error}");
        }
    }
}

#[test]
fn each_location_has_its_own_default_pool_of_managed_memory() {
    let (context, _, device) = or_skip!(stage());
    let at = |location, managed| {
        let pool = MemoryPool::default_at(&context, location, managed);
        pool.expect("a pool").as_raw()
    };
    let pools =
        [at(device, true), at(MemoryLocation::Host, true), at(NOWHERE, true), at(device, false)];
    for (index, pool) in pools.iter().enumerate() {
        assert!(!pools[..index].contains(pool), "{pools:?}");
    }
    let pinned = MemoryPool::default_at(&context, NOWHERE, false);
    assert_eq!(pinned.expect_err("no location").code(), Some(CUresult::CUDA_ERROR_INVALID_VALUE));
}

#[test]
fn the_legacy_default_stream_takes_no_batches_of_prefetches() {
    let (context, stream, _) = or_skip!(stage());
    let buffer = ManagedBuffer::<u8>::zeroed(&stream, 4096).expect("memory");
    let (mut address, mut size, mut first) = (buffer.as_raw(), 4096, 0);
    let (address, size) = (&raw mut address, &raw mut size);
    let mut place = cuda_safe::sys::CUmemLocation {
        type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST,
        ..Default::default()
    };
    let (place, first) = (&raw mut place, &raw mut first);
    let legacy: CUstream = null_mut();
    let current = context.make_current().expect("current");
    // SAFETY: the pointers refer to local variables, and the range is managed memory.
    let prefetch = unsafe { cuMemPrefetchBatchAsync(address, size, 1, place, first, 1, 0, legacy) };
    // SAFETY: as above.
    let discard = unsafe { cuMemDiscardBatchAsync(address, size, 1, 0, legacy) };
    // SAFETY: as above.
    let both =
        unsafe { cuMemDiscardAndPrefetchBatchAsync(address, size, 1, place, first, 1, 0, legacy) };
    assert_eq!([prefetch, discard, both], [CUresult::CUDA_ERROR_INVALID_VALUE; 3]);
    // SAFETY: as above.
    succeeds(unsafe {
        cuMemPrefetchBatchAsync(address, size, 1, place, first, 1, 0, stream.as_raw())
    });
    drop(current);
    stream.synchronize().expect("a wait");
}

#[test]
fn an_allocation_node_can_have_managed_memory_that_prefers_a_device() {
    let (context, stream, _) = or_skip!(stage());
    let mut params = CUDA_MEM_ALLOC_NODE_PARAMS::zeroed();
    params.poolProps.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED;
    params.poolProps.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    params.poolProps.location.__bindgen_anon_1.id = context.device().as_raw();
    params.bytesize = 4096;
    let (mut graph, mut node) = (null_mut(), null_mut());
    let params = &raw mut params;
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuGraphCreate(&raw mut graph, 0) });
    // SAFETY: the graph is alive, and the pointers refer to local variables.
    succeeds(unsafe { cuGraphAddMemAllocNode(&raw mut node, graph, null(), 0, params) });
    let mut found = CUDA_MEM_ALLOC_NODE_PARAMS::zeroed();
    // SAFETY: the node is alive, and the pointer refers to a local variable.
    succeeds(unsafe { cuGraphMemAllocNodeGetParams(node, &raw mut found) });
    assert_eq!(found.poolProps.allocType, CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED);
    assert_eq!(found.bytesize, 4096);
    assert_ne!(found.dptr, 0);
    let _current = context.make_current().expect("current");
    let mut executable = null_mut();
    // SAFETY: the graph is alive, and the pointer refers to a local variable.
    succeeds(unsafe { cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) });
    // SAFETY: the executable graph and the stream are alive.
    succeeds(unsafe { cuGraphLaunch(executable, stream.as_raw()) });
    // SAFETY: the launch has allocated the memory, which nothing else uses or frees.
    let buffer = unsafe { DeviceBuffer::<u8>::from_raw(found.dptr, 4096, &stream) };
    let mut buffer = buffer.expect("memory");
    buffer.fill(6).expect("a fill");
    assert_eq!(buffer.to_vec().expect("a copy"), [6; 4096]);
    drop(buffer);
    stream.synchronize().expect("a wait");
    // SAFETY: nothing uses the executable graph any more.
    succeeds(unsafe { cuGraphExecDestroy(executable) });
    // SAFETY: nothing uses the graph any more.
    succeeds(unsafe { cuGraphDestroy(graph) });
}

#[test]
fn an_allocation_from_a_managed_pool_of_a_device_is_captured() {
    let (context, stream, device) = or_skip!(stage());
    let pool = pool(&context, Some(device));
    let raw = stream.as_raw();
    let _current = context.make_current().expect("current");
    let (mut address, mut graph, mut executable) = (0, null_mut(), null_mut());
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: the stream is alive.
    succeeds(unsafe { cuStreamBeginCapture_v2(raw, mode) });
    // SAFETY: the pool and the stream are alive, and the pointer refers to a local variable.
    succeeds(unsafe { cuMemAllocFromPoolAsync(&raw mut address, 4096, pool.as_raw(), raw) });
    // SAFETY: the memory is 4096 bytes long, and the fill is ordered after the allocation.
    succeeds(unsafe { cuMemsetD8Async(address, 1, 4096, raw) });
    // SAFETY: the free is ordered after all uses of the memory.
    succeeds(unsafe { cuMemFreeAsync(address, raw) });
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuStreamEndCapture(raw, &raw mut graph) });
    // SAFETY: the graph is alive, and the pointer refers to a local variable.
    succeeds(unsafe { cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) });
    for _ in 0..2 {
        // SAFETY: the executable graph and the stream are alive.
        succeeds(unsafe { cuGraphLaunch(executable, raw) });
    }
    stream.synchronize().expect("a wait");
    // SAFETY: nothing uses the executable graph any more.
    succeeds(unsafe { cuGraphExecDestroy(executable) });
    // SAFETY: nothing uses the graph any more.
    succeeds(unsafe { cuGraphDestroy(graph) });
}
