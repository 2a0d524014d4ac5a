//! Arrays and mipmapped arrays on the software driver, through the raw calls. The codes are those of an
//! H200 with driver 580.

pub(crate) mod tensor_maps;
pub(crate) mod textures;

use crate::prelude::*;

pub(crate) const FLOAT: u32 = 32;
pub(crate) const LAYERED: u32 = 1;
pub(crate) const SURFACE: u32 = 2;
const CUBEMAP: u32 = 4;
const SPARSE: u32 = 0x40;
const DEFERRED: u32 = 0x80;

pub(crate) fn shape(format: u32, channels: u32, extent: [usize; 3]) -> CUDA_ARRAY3D_DESCRIPTOR {
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: extent[0],
        Height: extent[1],
        Depth: extent[2],
        Format: CUarray_format(format),
        NumChannels: channels,
        Flags: 0,
    }
}

pub(crate) fn array(format: u32, channels: u32, extent: [usize; 3], flags: u32) -> CUarray {
    let descriptor = CUDA_ARRAY3D_DESCRIPTOR { Flags: flags, ..shape(format, channels, extent) };
    out!(cuArray3DCreate_v2(&raw const descriptor))
}

fn array_code(format: u32, channels: u32, extent: [usize; 3], flags: u32) -> CUresult {
    let descriptor = CUDA_ARRAY3D_DESCRIPTOR { Flags: flags, ..shape(format, channels, extent) };
    let mut array = null_mut();
    let code = code!(cuArray3DCreate_v2(&raw mut array, &raw const descriptor));
    if code.is_success() {
        succeeds!(cuArrayDestroy(array));
    }
    code
}

/// Copies host memory with tight rows to the whole of a 2-D array.
pub(crate) fn write_plane(array: CUarray, row: usize, rows: usize, from: *const c_void) {
    let mut copy = CUDA_MEMCPY2D::zeroed();
    copy.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
    (copy.srcHost, copy.srcPitch) = (from, row);
    copy.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array;
    (copy.WidthInBytes, copy.Height) = (row, rows);
    succeeds!(cuMemcpy2D_v2(&raw const copy));
}

#[test]
fn formats_channels_and_extents_are_checked() {
    let _bench = in_child!(without_misuse());
    let good = CUresult::CUDA_SUCCESS;
    for (format, channels, expected) in [
        (FLOAT, 1, good),
        (1, 4, good),
        (16, 2, good),
        (FLOAT, 3, INVALID),
        (FLOAT, 0, INVALID),
        (194, 4, good),
        (194, 1, INVALID),
        (145, 4, good),
        (145, 1, INVALID),
        (155, 3, good),
        (176, 3, INVALID),
        (7, 1, INVALID),
    ] {
        assert_eq!(array_code(format, channels, [64, 64, 0], 0), expected, "{format}");
    }
    for (extent, flags, expected) in [
        ([0, 0, 0], 0, INVALID),
        ([131_072, 0, 0], 0, good),
        ([131_073, 0, 0], 0, INVALID),
        ([8, 65_537, 0], 0, INVALID),
        ([16_385, 8, 8], 0, INVALID),
        ([8, 16_384, 8], 0, good),
        ([8, 16_385, 8], 0, INVALID),
        ([2, 2, 16_385], 0, good),
        ([8, 8, 2048], LAYERED, good),
        ([8, 8, 2049], LAYERED, INVALID),
        ([8, 8, 6], CUBEMAP, good),
        ([8, 4, 6], CUBEMAP, INVALID),
        ([8, 8, 12], CUBEMAP | LAYERED, good),
        ([8, 8, 7], CUBEMAP | LAYERED, INVALID),
        ([8, 8, 0], SPARSE | DEFERRED, INVALID),
        ([8, 8, 0], 0x10, INVALID),
        ([8, 8, 0], 0x1000, INVALID),
        ([40_000, 8, 0], SURFACE, good),
    ] {
        assert_eq!(array_code(FLOAT, 1, extent, flags), expected, "{extent:?} {flags:#x}");
    }
    assert_eq!(array_code(145, 4, [64, 64, 0], SURFACE), UNSUPPORTED);
}

#[test]
fn descriptors_are_returned_without_a_context() {
    let bench = &in_child!(without_misuse());
    let plain = CUDA_ARRAY_DESCRIPTOR {
        Width: 8,
        Height: 4,
        Format: CUarray_format(FLOAT),
        NumChannels: 2,
    };
    let array: CUarray = out!(cuArrayCreate_v2(&raw const plain));
    succeeds!(cuCtxSetCurrent(null_mut()));
    let mut descriptor: CUDA_ARRAY_DESCRIPTOR = out!(cuArrayGetDescriptor_v2(array));
    assert_eq!((descriptor.Width, descriptor.Height, descriptor.NumChannels), (8, 4, 2));
    let shown: CUDA_ARRAY3D_DESCRIPTOR = out!(cuArray3DGetDescriptor_v2(array));
    assert_eq!((shown.Depth, shown.Flags), (0, 0));
    let mut other = null_mut();
    refused!(
        CUresult::CUDA_ERROR_INVALID_CONTEXT,
        cuArrayCreate_v2(&raw mut other, &raw const plain)
    );
    refused!(INVALID, cuArrayGetPlane(&raw mut other, array, 0));
    let invalid_handle = code!(cuArrayGetDescriptor_v2(&raw mut descriptor, null_mut()));
    refused!(invalid_handle, cuArrayGetPlane(&raw mut other, null_mut(), 0));
    assert_ne!(invalid_handle, INVALID);
    succeeds!(cuArrayDestroy(array));
    succeeds!(cuCtxSetCurrent(bench.context));
}

#[test]
fn rows_are_copied_between_arrays_and_all_other_memory() {
    let bench = &in_child!(without_misuse());
    let (first, second) = (array(FLOAT, 1, [4, 3, 0], 0), array(FLOAT, 1, [4, 3, 0], 0));
    let values: Vec<u32> = (0..12).collect();
    write_plane(first, 16, 3, values.as_ptr().cast());
    // A part of one array to a part of another.
    let mut copy = CUDA_MEMCPY2D::zeroed();
    copy.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_ARRAY;
    copy.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_ARRAY;
    (copy.srcArray, copy.dstArray) = (first, second);
    (copy.srcXInBytes, copy.srcY, copy.dstXInBytes) = (4, 1, 8);
    (copy.WidthInBytes, copy.Height) = (8, 2);
    succeeds!(cuMemcpy2DAsync_v2(&raw const copy, bench.stream));
    // To device memory, and to pageable memory, for which the call waits.
    let device = memory(16);
    copy.srcArray = second;
    (copy.srcXInBytes, copy.srcY) = (8, 0);
    copy.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_DEVICE;
    (copy.dstDevice, copy.dstPitch, copy.dstXInBytes) = (device, 8, 0);
    succeeds!(cuMemcpy2DAsync_v2(&raw const copy, bench.stream));
    let mut host = [0u32; 4];
    copy.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
    copy.dstHost = (&raw mut host).cast();
    succeeds!(cuMemcpy2DAsync_v2(&raw const copy, bench.stream));
    assert_eq!(host, [5, 6, 9, 10]);
    assert_eq!(read::<4>(device), [5, 6, 9, 10]);
    // Parts outside of the array are refused, parts of a texel and nothing are not.
    for (x, y, width) in [(12, 0, 8), (0, 2, 8), (0, 0, 20)] {
        let mut wrong = copy;
        (wrong.srcXInBytes, wrong.srcY, wrong.WidthInBytes) = (x, y, width);
        wrong.dstPitch = 32;
        refused!(INVALID, cuMemcpy2D_v2(&raw const wrong));
    }
    (copy.WidthInBytes, copy.Height) = (3, 1);
    succeeds!(cuMemcpy2D_v2(&raw const copy));
    copy.WidthInBytes = 0;
    succeeds!(cuMemcpy2D_v2(&raw const copy));
    succeeds!(cuArrayDestroy(first));
    succeeds!(cuArrayDestroy(second));
}

#[test]
fn layers_are_slices_of_a_volume() {
    let _bench = in_child!(without_misuse());
    let layered = array(FLOAT, 1, [2, 2, 3], LAYERED);
    let values: Vec<u32> = (0..4).collect();
    let mut copy = CUDA_MEMCPY3D::zeroed();
    copy.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
    copy.srcHost = values.as_ptr().cast();
    (copy.srcPitch, copy.srcHeight) = (8, 2);
    copy.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_ARRAY;
    copy.dstArray = layered;
    copy.dstZ = 2;
    (copy.WidthInBytes, copy.Height, copy.Depth) = (8, 2, 1);
    succeeds!(cuMemcpy3D_v2(&raw const copy));
    copy.dstZ = 3;
    refused!(INVALID, cuMemcpy3D_v2(&raw const copy));
    let mut last = [9u32; 4];
    let mut back = CUDA_MEMCPY3D::zeroed();
    back.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_ARRAY;
    back.srcArray = layered;
    back.srcZ = 2;
    back.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
    back.dstHost = last.as_mut_ptr().cast();
    (back.dstPitch, back.dstHeight) = (8, 2);
    (back.WidthInBytes, back.Height, back.Depth) = (8, 2, 1);
    succeeds!(cuMemcpy3D_v2(&raw const back));
    assert_eq!(last, [0, 1, 2, 3]);
    succeeds!(cuArrayDestroy(layered));
}

#[test]
fn a_copy_by_an_offset_stays_in_the_first_row() {
    let _bench = in_child!(without_misuse());
    let plane = array(FLOAT, 1, [4, 2, 0], 0);
    let values = [1u32, 2, 3, 4, 5, 6, 7, 8];
    let from = values.as_ptr().cast();
    succeeds!(cuMemcpyHtoA_v2(plane, 8, from, 8));
    refused!(INVALID, cuMemcpyHtoA_v2(plane, 8, from, 16));
    refused!(INVALID, cuMemcpyHtoA_v2(plane, 16, from, 16));
    // The array of a copy of no bytes is not checked.
    succeeds!(cuMemcpyHtoA_v2(core::ptr::null_mut(), 0, from, 0));
    refused!(INVALID, cuMemcpyHtoA_v2(core::ptr::null_mut(), 0, from, 4));
    succeeds!(cuArrayDestroy(plane));
}

#[test]
fn lines_are_copied_by_offsets() {
    let bench = &in_child!(without_misuse());
    let (first, second) = (array(FLOAT, 1, [4, 0, 0], 0), array(FLOAT, 1, [4, 0, 0], 0));
    let device = memory(16);
    let values = [1u32, 2, 3, 4];
    let from = values.as_ptr().cast();
    succeeds!(cuMemcpyHtoAAsync_v2(first, 0, from, 16, bench.stream));
    succeeds!(cuStreamSynchronize(bench.stream));
    succeeds!(cuMemcpyHtoA_v2(second, 8, from, 8));
    succeeds!(cuMemcpyAtoA_v2(second, 0, first, 8, 8));
    succeeds!(cuMemcpyAtoD_v2(device, second, 0, 16));
    assert_eq!(read::<4>(device), [3, 4, 1, 2]);
    succeeds!(cuMemsetD32Async(device, 7, 4, bench.stream));
    succeeds!(cuStreamSynchronize(bench.stream));
    succeeds!(cuMemcpyDtoA_v2(first, 4, device, 8));
    let mut host = [0u32; 4];
    let to = host.as_mut_ptr().cast();
    succeeds!(cuMemcpyAtoHAsync_v2(to, first, 0, 16, bench.stream));
    assert_eq!(host, [1, 7, 7, 4]);
    refused!(INVALID, cuMemcpyHtoA_v2(first, 4, from, 16));
    succeeds!(cuArrayDestroy(first));
    succeeds!(cuArrayDestroy(second));
}

#[test]
fn levels_belong_to_their_mipmapped_array() {
    let _bench = in_child!(without_misuse());
    let descriptor = shape(FLOAT, 1, [64, 16, 0]);
    let count = |levels: u32| {
        let mipmapped: CUmipmappedArray =
            out!(cuMipmappedArrayCreate(&raw const descriptor, levels));
        let mut level = null_mut();
        let mut count = 0;
        while code!(cuMipmappedArrayGetLevel(&raw mut level, mipmapped, count)).is_success() {
            count += 1;
        }
        succeeds!(cuMipmappedArrayDestroy(mipmapped));
        count
    };
    assert_eq!([0, 3, 9].map(count), [1, 3, 7]);
    let mipmapped: CUmipmappedArray = out!(cuMipmappedArrayCreate(&raw const descriptor, 3));
    let level: CUarray = out!(cuMipmappedArrayGetLevel(mipmapped, 2));
    let same: CUarray = out!(cuMipmappedArrayGetLevel(mipmapped, 2));
    assert_eq!(level, same);
    let shown: CUDA_ARRAY3D_DESCRIPTOR = out!(cuArray3DGetDescriptor_v2(level));
    assert_eq!((shown.Width, shown.Height), (16, 4));
    let values = [1u32; 64];
    write_plane(level, 64, 4, values.as_ptr().cast());
    let alive = cuda_sim::alive();
    assert_eq!((alive.arrays, alive.mipmapped_arrays), (0, 1));
    succeeds!(cuMipmappedArrayDestroy(mipmapped));
}

#[test]
#[cfg(target_os = "linux")]
fn sparse_and_deferred_arrays_tell_their_needs() {
    let bench = &in_child!(without_misuse());
    let sparse = array(FLOAT, 1, [1024, 1024, 0], SPARSE);
    let shown: CUDA_ARRAY_SPARSE_PROPERTIES = out!(cuArrayGetSparseProperties(sparse));
    let tile = shown.tileExtent;
    assert_eq!((tile.width, tile.height, tile.depth), (128, 128, 1));
    let deferred = array(FLOAT, 1, [4096, 4096, 0], DEFERRED);
    let shown: CUDA_ARRAY_MEMORY_REQUIREMENTS = out!(cuArrayGetMemoryRequirements(deferred, 0));
    assert_eq!((shown.size, shown.alignment), (64 << 20, 64 << 10));
    let plain = array(FLOAT, 1, [8, 8, 0], 0);
    let mut properties = CUDA_ARRAY_SPARSE_PROPERTIES::zeroed();
    refused!(INVALID, cuArrayGetSparseProperties(&raw mut properties, plain));
    let mut needs = CUDA_ARRAY_MEMORY_REQUIREMENTS::zeroed();
    refused!(INVALID, cuArrayGetMemoryRequirements(&raw mut needs, plain, 0));
    // Tiles are mapped from memory of tile pools only.
    let mut wanted = crate::virtual_memory::properties();
    let other = out!(cuMemCreate(2 << 20, &raw const wanted, 0));
    wanted.allocFlags.usage = 1;
    let pool = out!(cuMemCreate(2 << 20, &raw const wanted, 0));
    let mut map = CUarrayMapInfo::zeroed();
    map.resourceType = CUresourcetype::CU_RESOURCE_TYPE_ARRAY;
    map.resource.array = sparse;
    map.memOperationType = CUmemOperationType::CU_MEM_OPERATION_TYPE_MAP;
    map.memHandle.memHandle = pool;
    succeeds!(cuMemMapArrayAsync(&raw mut map, 1, bench.stream));
    map.memHandle.memHandle = other;
    refused!(INVALID, cuMemMapArrayAsync(&raw mut map, 1, bench.stream));
    succeeds!(cuMemRelease(pool));
    succeeds!(cuMemRelease(other));
    for array in [sparse, deferred, plain] {
        succeeds!(cuArrayDestroy(array));
    }
}

#[test]
fn a_tile_of_a_sparse_array_has_the_shape_of_its_texels() {
    let _bench = in_child!(without_misuse());
    for (format, channels, plane, volume) in [
        (1, 1, [256, 256, 1], [64, 32, 32]),
        (1, 2, [256, 128, 1], [32, 32, 32]),
        (FLOAT, 1, [128, 128, 1], [32, 32, 16]),
        (FLOAT, 2, [128, 64, 1], [32, 16, 16]),
        (FLOAT, 4, [64, 64, 1], [16, 16, 16]),
    ] {
        for (extent, expected) in [([64, 64, 0], plane), ([64, 64, 64], volume)] {
            let sparse = array(format, channels, extent, SPARSE);
            let shown: CUDA_ARRAY_SPARSE_PROPERTIES = out!(cuArrayGetSparseProperties(sparse));
            let tile = shown.tileExtent;
            assert_eq!([tile.width, tile.height, tile.depth], expected, "{format}, {channels}");
            succeeds!(cuArrayDestroy(sparse));
        }
    }
}

#[test]
fn creating_and_destroying_invalidates_captures() {
    let bench = &in_child!(without_misuse());
    let plain = array(FLOAT, 1, [8, 0, 0], 0);
    let unsupported = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    let invalidated = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    let mut graph = null_mut();
    succeeds!(cuStreamBeginCapture_v2(bench.stream, mode));
    assert_eq!(array_code(FLOAT, 1, [8, 0, 0], 0), unsupported);
    refused!(invalidated, cuStreamEndCapture(bench.stream, &raw mut graph));
    succeeds!(cuStreamBeginCapture_v2(bench.stream, mode));
    refused!(unsupported, cuArrayDestroy(plain));
    refused!(invalidated, cuStreamEndCapture(bench.stream, &raw mut graph));
    succeeds!(cuArrayDestroy(plain));
}

#[test]
fn destroying_waits_for_all_work() {
    let bench = &in_child!(without_misuse());
    let (plain, device) = (array(FLOAT, 1, [8, 0, 0], 0), memory(4));
    succeeds!(cuMemsetD32Async(device, 3, 1, bench.stream));
    succeeds!(cuArrayDestroy(plain));
    assert!(code!(cuStreamQuery(bench.stream)).is_success());
    let descriptor = shape(FLOAT, 1, [8, 8, 0]);
    let mipmapped: CUmipmappedArray = out!(cuMipmappedArrayCreate(&raw const descriptor, 2));
    succeeds!(cuMemsetD32Async(device, 3, 1, bench.stream));
    succeeds!(cuMipmappedArrayDestroy(mipmapped));
    assert!(code!(cuStreamQuery(bench.stream)).is_success());
}

unsafe extern "C" fn destroy_array(array: *mut c_void) {
    let array: CUarray = array.cast();
    refused!(CUresult::CUDA_ERROR_NOT_PERMITTED, cuArrayDestroy(array));
}

#[test]
fn destroying_in_a_host_function_is_reported() {
    let bench = &in_child!(misused("a real driver hangs"));
    let plain = array(FLOAT, 1, [8, 0, 0], 0);
    succeeds!(cuLaunchHostFunc(bench.stream, Some(destroy_array), plain.cast()));
    succeeds!(cuStreamSynchronize(bench.stream));
}

#[test]
fn a_destroyed_array_is_reported() {
    let _bench = in_child!(misused("after it was destroyed"));
    let plain = array(FLOAT, 1, [8, 0, 0], 0);
    succeeds!(cuArrayDestroy(plain));
    assert!(!code!(cuArrayDestroy(plain)).is_success());
}

#[test]
fn a_level_of_a_destroyed_mipmapped_array_is_reported() {
    let _bench = in_child!(misused("after it was destroyed"));
    let descriptor = shape(FLOAT, 1, [8, 8, 0]);
    let mipmapped: CUmipmappedArray = out!(cuMipmappedArrayCreate(&raw const descriptor, 2));
    let level: CUarray = out!(cuMipmappedArrayGetLevel(mipmapped, 1));
    succeeds!(cuMipmappedArrayDestroy(mipmapped));
    let mut shown = CUDA_ARRAY3D_DESCRIPTOR::zeroed();
    assert!(!code!(cuArray3DGetDescriptor_v2(&raw mut shown, level)).is_success());
}

#[test]
fn an_array_that_was_destroyed_before_a_reset_is_reported() {
    let _bench = in_child!(misused("after it was destroyed"));
    let descriptor = shape(FLOAT, 1, [8, 8, 0]);
    let mipmapped: CUmipmappedArray = out!(cuMipmappedArrayCreate(&raw const descriptor, 2));
    succeeds!(cuMipmappedArrayDestroy(mipmapped));
    succeeds!(cuDevicePrimaryCtxReset_v2(0));
    refused!(CUresult::CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayDestroy(mipmapped));
}

#[test]
fn a_reset_destroys_arrays() {
    let _bench = in_child!(crate::graph::calls::misused(""));
    let plain = array(FLOAT, 1, [8, 0, 0], 0);
    succeeds!(cuDevicePrimaryCtxReset_v2(0));
    refused!(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED, cuArrayDestroy(plain));
    assert_eq!(cuda_sim::alive().arrays, 0);
    // Only this use is a misuse.
    assert_eq!(cuda_sim::misuses(), [""; 0]);
    assert!(!code!(cuArrayDestroy(plain.wrapping_byte_add(16))).is_success());
}
