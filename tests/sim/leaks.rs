//! The places of a program that leak memory.

use crate::prelude::*;
use cuda_sim::{Leak, leaks};

/// Starts the driver, makes the primary context current, and returns a stream of it.
fn stream_on(profile: Profile) -> Stream {
    start(profile);
    let context = context();
    succeeds!(cuCtxSetCurrent(context.as_raw()));
    context.stream().expect("a stream")
}

#[inline(never)]
fn raw(size: usize) -> CUdeviceptr {
    out!(cuMemAlloc_v2(size))
}

#[inline(never)]
fn safe(stream: &Stream, len: usize) -> DeviceBuffer<u32> {
    DeviceBuffer::zeroed(stream, len).expect("memory")
}

#[inline(never)]
fn pinned() -> PinnedBuffer<u8> {
    PinnedBuffer::zeroed(&context(), 100).expect("memory")
}

/// What a test compares of leaks: the function, the type, the number and the bytes.
fn found() -> Vec<(String, &'static str, usize, u64)> {
    let function = |its: &Leak| {
        let site = its.site.as_deref().expect("tests have symbols");
        // A file follows if there is debug information, which may have the name without its path.
        let name = site.split(" at ").next().unwrap_or_default();
        name.rsplit("::").next().unwrap_or_default().to_owned()
    };
    leaks().iter().map(|its| (function(its), its.kind, its.count, its.bytes)).collect()
}

/// Returns whether the binary has the names of its functions. A packed one has not.
pub(crate) fn has_symbols() -> bool {
    std::backtrace::Backtrace::force_capture().to_string().contains("has_symbols")
}

#[test]
fn leaks_are_listed_by_the_function_that_called_the_driver_or_a_crate_on_it() {
    if !has_symbols() {
        return common::skip("the binary has no symbols");
    }
    let stream = &in_child!(stream_on(Profile::h200().with_leak_sites()));
    let kept: Vec<_> = (0..3).map(|_| safe(stream, 100)).collect();
    let [first, second] = [raw(2000), raw(3000)];
    let host = pinned();
    let buffers = ("safe".to_owned(), "stream-ordered memory", 3, 1200);
    let bytes = ("pinned".to_owned(), "pinned memory", 1, 100);
    let all = [("raw".to_owned(), "device memory", 2, 5000), buffers, bytes];
    assert_eq!(found(), all);
    let text = cuda_sim::report().to_string();
    let line = "\n  2 allocations of device memory, 5000 bytes, by ";
    assert!(text.contains(line) && text.contains("places that leak memory: 3\n"), "{text}");
    succeeds!(cuMemFree_v2(first));
    assert_eq!(found()[0], ("raw".to_owned(), "device memory", 1, 3000));
    succeeds!(cuMemFree_v2(second));
    drop(host);
    // Frees in stream order have run.
    drop(kept);
    assert_eq!(found(), []);
    assert!(!cuda_sim::report().to_string().contains("leak memory"));
}

#[test]
fn memory_that_its_context_frees_was_leaked_too() {
    in_child!(start(Profile::h200().with_leak_sites()));
    succeeds!(cuInit(0));
    let context: CUcontext = out!(cuCtxCreate_v4(null_mut(), 0, 0));
    raw(500);
    let pinned: *mut c_void = out!(cuMemAllocHost_v2(64));
    assert!(leaks().iter().all(|its| !its.ended_with_context));
    succeeds!(cuCtxDestroy_v2(context));
    let all = leaks();
    let [memory, host] = &all[..] else { panic!("{pinned:p}: {all:?}") };
    assert!(memory.ended_with_context && host.ended_with_context);
    assert_eq!((memory.kind, memory.bytes), ("device memory", 500));
    assert_eq!((host.kind, host.bytes), ("pinned memory", 64));
    assert!(memory.to_string().ends_with(", until the context ended"), "{memory}");
}

/// Makes an array of 64 × 16 bytes, and one with levels of 64 × 16 and 32 × 8 bytes.
#[inline(never)]
fn arrays() -> (CUarray, CUmipmappedArray) {
    let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
        Width: 64,
        Height: 16,
        Format: CUarray_format::CU_AD_FORMAT_UNSIGNED_INT8,
        NumChannels: 1,
        ..Default::default()
    };
    let array = out!(cuArray3DCreate_v2(&raw const descriptor));
    (array, out!(cuMipmappedArrayCreate(&raw const descriptor, 2)))
}

#[cfg(target_os = "linux")]
#[inline(never)]
fn physical(device: Device, pages: usize) -> PhysicalMemory {
    PhysicalMemory::new(device, pages * PAGE).expect("memory")
}

#[test]
fn arrays_are_listed_with_their_levels_until_they_are_destroyed() {
    if !has_symbols() {
        return common::skip("the binary has no symbols");
    }
    in_child!(start(Profile::h200().with_leak_sites()));
    succeeds!(cuInit(0));
    let context: CUcontext = out!(cuCtxCreate_v4(null_mut(), 0, 0));
    let (array, mipmapped) = arrays();
    let of_array = ("arrays".to_owned(), "array memory", 1, 1024);
    let of_mipmapped = ("arrays".to_owned(), "mipmapped array memory", 1, 1024 + 256);
    assert_eq!(found(), [of_mipmapped, of_array.clone()]);
    succeeds!(cuMipmappedArrayDestroy(mipmapped));
    assert_eq!(found(), [of_array]);
    succeeds!(cuArrayDestroy(array));
    assert_eq!(found(), []);
    arrays();
    succeeds!(cuCtxDestroy_v2(context));
    let all = leaks();
    assert!(all.len() == 2 && all.iter().all(|its| its.ended_with_context), "{all:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn physical_memory_is_listed_while_a_handle_or_a_mapping_keeps_it() {
    if !has_symbols() {
        return common::skip("the binary has no symbols");
    }
    in_child!(start(Profile::h200().with_leak_sites()));
    let context = context();
    let device = context.device();
    let (kept, released) = (physical(device, 2), physical(device, 1));
    let reservation = Reservation::new(2 * PAGE).expect("addresses");
    let listed = |count, pages| {
        let bytes = (pages * PAGE) as u64;
        assert_eq!(found(), [("physical".to_owned(), "physical memory", count, bytes)]);
    };
    listed(2, 3);
    drop(released);
    listed(1, 2);
    // The program releases its handle, and the mapping keeps the memory.
    let (at, handle) = (reservation.address(), kept.into_raw());
    succeeds!(cuMemMap(at, 2 * PAGE, 0, handle, 0));
    succeeds!(cuMemRelease(handle));
    listed(1, 2);
    succeeds!(cuMemUnmap(at, 2 * PAGE));
    assert_eq!(found(), []);
}

#[test]
fn without_the_mode_no_places_are_noted() {
    let stream = &in_child!(stream_on(Profile::h200()));
    let memory = raw(8);
    let buffer = safe(stream, 8);
    assert_eq!(leaks(), []);
    drop(buffer);
    succeeds!(cuMemFree_v2(memory));
}
