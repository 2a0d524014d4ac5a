//! Functions that programs call and the crates of this workspace do not, by their names in the library.

use crate::common;
use crate::lookup::on;
use cuda_sys::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUarray,
    CUarray_format, CUcontext, CUfunction_attribute, CUmem_range_attribute, CUmemorytype, CUresult,
    CUstreamCaptureMode, CUstreamCaptureStatus, Zeroable, abi, cuArrayCreate_v2, cuArrayDestroy,
    cuCtxSetCurrent, cuCtxSynchronize, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRetain,
    cuEventCreate, cuEventDestroy_v2, cuGraphDestroy, cuInit, cuIpcGetEventHandle,
    cuIpcOpenEventHandle, cuKernelGetAttribute, cuLibraryGetKernel, cuLibraryLoadData,
    cuLibraryUnload, cuMemAlloc_v2, cuMemAllocHost_v2, cuMemAllocManaged, cuMemFree_v2,
    cuMemFreeHost, cuMemRangeGetAttribute, cuMemRangeGetAttributes, cuMemcpy, cuMemcpy2D_v2,
    cuMemcpy2DUnaligned_v2, cuMemcpy3D_v2, cuMemcpy3DPeer, cuMemcpyAtoA_v2, cuMemcpyAtoD_v2,
    cuMemcpyAtoH_v2, cuMemcpyDtoA_v2, cuMemcpyDtoD_v2, cuMemcpyDtoH_v2, cuMemcpyHtoA_v2,
    cuMemcpyHtoD_v2, cuMemcpyPeer, cuMemsetD2D8_v2, cuMemsetD2D16_v2, cuMemsetD2D32_v2,
    cuMemsetD8_v2, cuMemsetD16_v2, cuMemsetD32_v2, cuModuleLoad, cuModuleUnload, cuProfilerStart,
    cuProfilerStop, cuStreamBeginCapture_v2, cuStreamCreate, cuStreamDestroy_v2,
    cuStreamEndCapture, cuStreamGetCaptureInfo_v3, ptds,
};
use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};

const KERNELS: &str = include_str!("../kernels/vector.ptx");
const BYTES: usize = 64;

/// Makes a call that must succeed.
macro_rules! succeeds {
    ($call:expr) => {{
        // SAFETY: the pointers refer to local variables or are null, and the handles and the memory are alive.
        let code = unsafe { $call };
        assert_eq!(code, CUresult::CUDA_SUCCESS, "{}", stringify!($call));
    }};
}

/// Makes a call that must fail with a code.
macro_rules! refused {
    ($code:ident, $call:expr) => {{
        // SAFETY: the pointers refer to local variables, and the driver refuses the call.
        let code = unsafe { $call };
        assert_eq!(code, CUresult::$code, "{}", stringify!($call));
    }};
}

/// Calls a function, or its variant for the per-thread default stream.
macro_rules! variant {
    ($per_thread:expr, $name:ident | $variant:ident ($($argument:expr),*)) => {
        if $per_thread {
            succeeds!(ptds::$variant($($argument),*))
        } else {
            succeeds!($name($($argument),*))
        }
    };
}

fn current() -> CUcontext {
    let mut context = null_mut();
    succeeds!(cuInit(0));
    succeeds!(cuDevicePrimaryCtxRetain(&raw mut context, 0));
    succeeds!(cuCtxSetCurrent(context));
    context
}

fn release() {
    succeeds!(cuCtxSetCurrent(null_mut()));
    succeeds!(cuDevicePrimaryCtxRelease_v2(0));
}

fn device_memory() -> u64 {
    let mut start = 0;
    succeeds!(cuMemAlloc_v2(&raw mut start, BYTES));
    start
}

fn array() -> CUarray {
    let descriptor = CUDA_ARRAY_DESCRIPTOR {
        Width: BYTES,
        Height: 0,
        Format: CUarray_format::CU_AD_FORMAT_UNSIGNED_INT8,
        NumChannels: 1,
    };
    let mut array = null_mut();
    succeeds!(cuArrayCreate_v2(&raw mut array, &raw const descriptor));
    array
}

/// Passes bytes through all synchronous copies.
#[test]
fn every_synchronous_copy_is_simulated() {
    on("h200", || {
        let context = current();
        let (a, b) = (device_memory(), device_memory());
        let (first, second) = (array(), array());
        let mut pinned = null_mut();
        succeeds!(cuMemAllocHost_v2(&raw mut pinned, BYTES));
        for t in [false, true] {
            let bytes: [u8; BYTES] = std::array::from_fn(|index| index as u8 + u8::from(t));
            let from: *const c_void = bytes.as_ptr().cast();
            let mut copy = [0_u8; BYTES];
            let to: *mut c_void = copy.as_mut_ptr().cast();
            variant!(t, cuMemcpyHtoD_v2 | cuMemcpyHtoD_v2_ptds(a, from, BYTES));
            variant!(t, cuMemcpyDtoD_v2 | cuMemcpyDtoD_v2_ptds(b, a, BYTES));
            variant!(t, cuMemcpyDtoA_v2 | cuMemcpyDtoA_v2_ptds(first, 0, b, BYTES));
            variant!(t, cuMemcpyAtoA_v2 | cuMemcpyAtoA_v2_ptds(second, 0, first, 0, BYTES));
            variant!(t, cuMemsetD8_v2 | cuMemsetD8_v2_ptds(a, 0, BYTES));
            variant!(t, cuMemcpyAtoD_v2 | cuMemcpyAtoD_v2_ptds(a, second, 0, BYTES));
            variant!(t, cuMemcpyDtoH_v2 | cuMemcpyDtoH_v2_ptds(pinned, a, BYTES));
            variant!(t, cuMemcpyHtoA_v2 | cuMemcpyHtoA_v2_ptds(first, 0, pinned, BYTES));
            variant!(t, cuMemcpyAtoH_v2 | cuMemcpyAtoH_v2_ptds(to, first, 0, BYTES));
            assert_eq!(copy, bytes);

            let (host, copied) = (from.expose_provenance(), to.expose_provenance());
            variant!(t, cuMemcpy | cuMemcpy_ptds(b, host as u64, BYTES));
            variant!(t, cuMemcpyPeer | cuMemcpyPeer_ptds(a, context, b, context, BYTES));
            copy.fill(0);
            variant!(t, cuMemcpy | cuMemcpy_ptds(copied as u64, a, BYTES));
            assert_eq!(copy, bytes);

            // Two rows of 32 bytes, from the host to `b`, to `a` and back.
            let mut plane = CUDA_MEMCPY2D::zeroed();
            (plane.srcMemoryType, plane.srcHost) = (CUmemorytype::CU_MEMORYTYPE_HOST, from);
            (plane.dstMemoryType, plane.dstDevice) = (CUmemorytype::CU_MEMORYTYPE_DEVICE, b);
            (plane.srcPitch, plane.dstPitch) = (32, 32);
            (plane.WidthInBytes, plane.Height) = (32, 2);
            variant!(t, cuMemsetD32_v2 | cuMemsetD32_v2_ptds(b, 0, BYTES / 4));
            variant!(t, cuMemcpy2D_v2 | cuMemcpy2D_v2_ptds(&raw const plane));
            (plane.dstDevice, plane.srcDevice) = (a, b);
            plane.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_DEVICE;
            variant!(t, cuMemsetD16_v2 | cuMemsetD16_v2_ptds(a, 0, BYTES / 2));
            let shape = &raw const plane;
            variant!(t, cuMemcpy2DUnaligned_v2 | cuMemcpy2DUnaligned_v2_ptds(shape));
            let mut volume = CUDA_MEMCPY3D::zeroed();
            (volume.srcMemoryType, volume.srcDevice) = (CUmemorytype::CU_MEMORYTYPE_DEVICE, a);
            (volume.dstMemoryType, volume.dstDevice) = (CUmemorytype::CU_MEMORYTYPE_DEVICE, b);
            (volume.srcPitch, volume.dstPitch) = (32, 32);
            (volume.srcHeight, volume.dstHeight) = (1, 1);
            (volume.WidthInBytes, volume.Height, volume.Depth) = (32, 1, 2);
            variant!(t, cuMemsetD2D8_v2 | cuMemsetD2D8_v2_ptds(b, 32, 0, 32, 2));
            variant!(t, cuMemcpy3D_v2 | cuMemcpy3D_v2_ptds(&raw const volume));
            let mut between = CUDA_MEMCPY3D_PEER::zeroed();
            (between.srcMemoryType, between.srcDevice) = (CUmemorytype::CU_MEMORYTYPE_DEVICE, b);
            (between.dstMemoryType, between.dstDevice) = (CUmemorytype::CU_MEMORYTYPE_DEVICE, a);
            (between.srcContext, between.dstContext) = (context, context);
            (between.srcPitch, between.dstPitch) = (32, 32);
            (between.srcHeight, between.dstHeight) = (1, 1);
            (between.WidthInBytes, between.Height, between.Depth) = (32, 1, 2);
            variant!(t, cuMemsetD2D32_v2 | cuMemsetD2D32_v2_ptds(a, 32, 0, 8, 2));
            variant!(t, cuMemcpy3DPeer | cuMemcpy3DPeer_ptds(&raw const between));
            copy.fill(0);
            variant!(t, cuMemcpyDtoH_v2 | cuMemcpyDtoH_v2_ptds(to, a, BYTES));
            assert_eq!(copy, bytes);
            variant!(t, cuMemsetD2D16_v2 | cuMemsetD2D16_v2_ptds(a, 32, 0, 16, 2));
            succeeds!(cuCtxSynchronize());
        }
        succeeds!(cuMemFreeHost(pinned));
        succeeds!(cuArrayDestroy(first));
        succeeds!(cuArrayDestroy(second));
        succeeds!(cuMemFree_v2(a));
        succeeds!(cuMemFree_v2(b));
        release();
    });
}

#[test]
fn code_from_files_attributes_of_kernels_and_the_profiler_are_simulated() {
    on("h200", || {
        current();
        succeeds!(cuProfilerStart());
        let path = common::scratch().join(format!("played-{}.ptx", std::process::id()));
        std::fs::write(&path, KERNELS).expect("a temporary file");
        let name = CString::new(path.to_str().expect("text")).expect("no NUL");
        let mut module = null_mut();
        succeeds!(cuModuleLoad(&raw mut module, name.as_ptr()));
        succeeds!(cuModuleUnload(module));
        std::fs::remove_file(&path).expect("removed");

        let image = CString::new(KERNELS).expect("no NUL");
        let (mut library, mut kernel, mut value) = (null_mut(), null_mut(), 0);
        let (data, keys, values) = (image.as_ptr().cast(), null_mut(), null_mut());
        let out = &raw mut library;
        succeeds!(cuLibraryLoadData(out, data, keys, values, 0, null_mut(), null_mut(), 0));
        succeeds!(cuLibraryGetKernel(&raw mut kernel, library, c"add".as_ptr()));
        let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
        succeeds!(cuKernelGetAttribute(&raw mut value, most, kernel, 0));
        assert_eq!(value, 1024);
        succeeds!(cuLibraryUnload(library));
        succeeds!(cuProfilerStop());
        release();
    });
}

#[test]
fn handles_of_events_and_attributes_of_managed_memory_are_simulated() {
    on("h200", || {
        current();
        // Interprocess, without timing.
        let (mut shared, mut private) = (null_mut(), null_mut());
        succeeds!(cuEventCreate(&raw mut shared, 4 | 2));
        succeeds!(cuEventCreate(&raw mut private, 2));
        let (mut handle, mut opened) = (Zeroable::zeroed(), null_mut());
        refused!(CUDA_ERROR_INVALID_HANDLE, cuIpcGetEventHandle(&raw mut handle, private));
        succeeds!(cuIpcGetEventHandle(&raw mut handle, shared));
        refused!(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenEventHandle(&raw mut opened, handle));
        handle.reserved[0] ^= 1;
        refused!(CUDA_ERROR_MAP_FAILED, cuIpcOpenEventHandle(&raw mut opened, handle));
        succeeds!(cuEventDestroy_v2(shared));
        succeeds!(cuEventDestroy_v2(private));

        let mut managed = 0;
        succeeds!(cuMemAllocManaged(&raw mut managed, 4096, 1));
        let mut kind = CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION;
        let (mut one, mut same, mut size) = (7_i32, 7_i32, 4_usize);
        let place = (&raw mut one).cast();
        succeeds!(cuMemRangeGetAttribute(place, 4, kind, managed, 4096));
        let mut place: *mut c_void = (&raw mut same).cast();
        let (places, sizes) = (&raw mut place, &raw mut size);
        succeeds!(cuMemRangeGetAttributes(places, sizes, &raw mut kind, 1, managed, 4096));
        // CU_DEVICE_INVALID: there is no preferred location.
        assert_eq!((one, same), (-2, -2));
        succeeds!(cuMemFree_v2(managed));
        release();
    });
}

#[test]
fn each_version_of_the_capture_information_is_simulated() {
    on("h200", || {
        current();
        let mut stream = null_mut();
        succeeds!(cuStreamCreate(&raw mut stream, 1));
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        succeeds!(cuStreamBeginCapture_v2(stream, mode));
        let active = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE;
        let mut ids = [0; 6];
        let (mut graph, mut nodes, mut edges, mut count) = (null_mut(), null(), null(), 0);
        let (graph, nodes) = (&raw mut graph, &raw mut nodes);
        let (edges, count) = (&raw mut edges, &raw mut count);
        for (index, id) in ids.iter_mut().enumerate() {
            let mut status = CUstreamCaptureStatus(7);
            let (told, id) = (&raw mut status, &raw mut *id);
            match index {
                0 => succeeds!(abi::cuStreamGetCaptureInfo(stream, told, id)),
                1 => succeeds!(ptds::cuStreamGetCaptureInfo_ptsz(stream, told, id)),
                2 => {
                    succeeds!(abi::cuStreamGetCaptureInfo_v2(stream, told, id, graph, nodes, count))
                }
                3 => {
                    succeeds!(ptds::cuStreamGetCaptureInfo_v2_ptsz(
                        stream, told, id, graph, nodes, count
                    ));
                }
                4 => {
                    succeeds!(cuStreamGetCaptureInfo_v3(
                        stream, told, id, graph, nodes, edges, count
                    ));
                }
                _ => {
                    succeeds!(ptds::cuStreamGetCaptureInfo_v3_ptsz(
                        stream, told, id, graph, nodes, edges, count
                    ));
                }
            }
            assert_eq!(status, active, "{index}");
        }
        assert_ne!(ids[0], 0);
        assert_eq!(ids, [ids[0]; 6]);
        let mut graph = null_mut();
        succeeds!(cuStreamEndCapture(stream, &raw mut graph));
        succeeds!(cuGraphDestroy(graph));
        succeeds!(cuStreamDestroy_v2(stream));
        release();
    });
}
