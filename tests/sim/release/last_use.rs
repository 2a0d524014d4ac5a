//! Objects that are released after the work on a stream: what the release does if the driver does not say
//! whether that work is complete.

use crate::prelude::*;
use cuda_safe::array::{ArrayOptions, Sampler, SparseArray, Surface, Texture};
use cuda_safe::attempt_deferred_releases;
use cuda_safe::virtual_memory::GrowableBuffer;

const PAGE: usize = 2 << 20;
const PLANE: ArrayShape = ArrayShape::TwoD { width: 4, height: 4 };

/// Returns mapped memory that work on the stream uses.
fn used(context: &Context, stream: &Stream) -> DeviceBuffer<u32> {
    let memory = PhysicalMemory::new(context.device(), PAGE).expect("memory");
    let mapping = Reservation::new(PAGE).expect("a reservation").map(0, memory).expect("a mapping");
    let mut buffer = mapping.into_buffer::<u32>(stream).expect("a buffer");
    buffer.fill(7).expect("a fill");
    buffer
}

#[test]
fn a_fatal_error_of_a_query_is_not_the_end_of_the_work() {
    let (_end, context) = in_child!(leaking());
    for (number, query) in (1..).zip(["cuStreamQuery", "cuEventRecord", "cuEventQuery"]) {
        let stream = context.stream().expect("a stream");
        let buffer = used(&context, &stream);
        let refused = fail(query, 1, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        drop(buffer);
        assert_eq!(refused.hits(), 1, "{query}");
        attempt_deferred_releases();
        // The fill writes to memory that is still mapped: the program runs without a misuse.
        stream.synchronize().expect("the fill");
        attempt_deferred_releases();
        assert_eq!((alive().mappings, alive().physical_allocations), (number, number));
    }
    assert!(cuda_safe::leaked() >= 3);
}

/// Fails one query of each release with `code`. Returns how often.
fn answer_once(context: &Context, query: &'static str, code: CUresult) -> u64 {
    let stream = context.stream().expect("a stream");
    let buffer = used(context, &stream);
    let other = context.stream().expect("a stream");
    let mut growable = GrowableBuffer::<u8>::new(&other, PAGE).expect("a buffer");
    growable.resize_zeroed(PAGE).expect("memory");
    let mut hits = 0;
    {
        let refused = fail(query, 1, code);
        drop(buffer);
        hits += refused.hits();
    }
    {
        let refused = fail(query, 1, code);
        growable.truncate(0).expect("an empty buffer");
        hits += refused.hits();
    }
    // The fills write to memory that is still mapped: the program runs without a misuse.
    stream.synchronize().expect("the fill");
    other.synchronize().expect("the fill");
    hits
}

#[test]
fn one_answer_that_all_work_has_ended_does_not_unmap_memory_under_it() {
    let (_end, context) = in_child!(leaking());
    for code in [CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED, CUresult::CUDA_ERROR_DEINITIALIZED] {
        for query in ["cuStreamQuery", "cuEventRecord", "cuEventQuery"] {
            // Some fills are complete when the driver is asked the first time.
            let hits: u64 = (0..8).map(|_| answer_once(&context, query, code)).sum();
            assert!(hits >= 4, "{query}: {hits}");
        }
    }
}

/// Destroys a context while work uses virtual memory, and then drops the memory. The other objects of the
/// context are misused afterwards.
fn destroy_under(context: &Context, destroy: impl FnOnce() -> CUresult) {
    let stream = context.stream().expect("a stream");
    let buffer = used(context, &stream);
    let mut growable = GrowableBuffer::<u8>::new(&stream, PAGE).expect("a buffer");
    growable.resize_zeroed(PAGE).expect("memory");
    assert!(destroy().is_success());
    drop((buffer, growable));
    assert_eq!((alive().mappings, alive().reservations), (0, 0));
    assert_eq!(cuda_safe::leaked(), 0);
    std::mem::forget(stream);
}

#[test]
fn memory_is_unmapped_after_a_reset_of_its_context() {
    in_child!();
    start(Profile::h200());
    let context = crate::context();
    // SAFETY: the objects of the context return errors from now on.
    destroy_under(&context, || unsafe { cuda_sys::cuDevicePrimaryCtxReset_v2(0) });
}

#[test]
fn memory_is_unmapped_after_its_context_was_destroyed() {
    in_child!();
    start(Profile::h200());
    let device = Device::get(0).expect("a device");
    let context = Context::new(&device, ContextFlags::empty()).expect("a context");
    // SAFETY: as above.
    destroy_under(&context, || unsafe { cuda_sys::cuCtxDestroy_v2(context.as_raw()) });
    std::mem::forget(context);
}

#[test]
fn a_leaked_mapping_is_counted_with_its_memory_and_addresses() {
    let (_end, context) = in_child!(leaking());
    let space = Reservation::new(2 * PAGE).expect("addresses");
    let map = |offset| {
        let memory = PhysicalMemory::new(context.device(), PAGE).expect("memory");
        space.map(offset, memory).expect("a mapping")
    };
    let mappings = [map(0), map(PAGE)];
    {
        let _refused = fail_from("cuMemUnmap", 1, CUresult::CUDA_ERROR_INVALID_VALUE);
        drop(mappings);
    }
    drop(space);
    let left = alive();
    let left = left.mappings + left.physical_allocations + left.reservations;
    assert_eq!((left, cuda_safe::leaked()), (5, 5));
}

#[test]
fn a_closure_of_the_log_can_use_a_buffer_whose_memory_cannot_be_unmapped() {
    let (_end, context) = in_child!(leaking());
    let stream = context.stream().expect("a stream");
    let mut buffer = GrowableBuffer::<u8>::new(&stream, 4 * PAGE).expect("a buffer");
    for pages in 1..=3 {
        buffer.resize_zeroed(pages * PAGE).expect("memory");
    }
    // The fills are not complete, so the memory is unmapped later.
    buffer.truncate(PAGE).expect("a shorter buffer");
    stream.synchronize().expect("the fills");
    let buffer = Arc::new(Mutex::new(buffer));
    let (its, seen) = (Arc::clone(&buffer), Arc::new(Mutex::new(Vec::new())));
    let log = Arc::clone(&seen);
    let callback = LogCallback::new(move |_, _| {
        let mut buffer = its.lock().expect("no panic");
        let mapped = buffer.mapped_bytes();
        let refused = match buffer.grow(3 * PAGE) {
            Err(Error::Invalid(reason)) => *reason == Invalid::MemoryIsBeingUnmapped,
            _ => false,
        };
        // Releases of the same memory, now and later.
        buffer.truncate(0).expect("a shorter buffer");
        attempt_deferred_releases();
        log.lock().expect("no panic").push((mapped, refused));
    });
    {
        let refused = fail("cuMemUnmap", 1, CUresult::CUDA_ERROR_INVALID_VALUE);
        attempt_deferred_releases();
        assert_eq!(refused.hits(), 1);
    }
    drop(callback.expect("registered"));
    let seen = seen.lock().expect("no panic").clone();
    assert!(!seen.is_empty());
    assert!(seen.iter().all(|its| *its == (3 * PAGE, true)), "{seen:?}");
    assert_eq!(cuda_safe::leaked(), 1);
    // The release that the closure caused unmaps all of it.
    attempt_deferred_releases();
    assert_eq!((alive().mappings, alive().physical_allocations), (0, 0));
    let mut buffer = buffer.lock().expect("no panic");
    buffer.grow(3 * PAGE).expect("memory");
    assert_eq!(buffer.mapped_bytes(), 3 * PAGE);
}

#[test]
fn a_fatal_error_leaves_the_tail_of_a_growable_buffer_mapped() {
    let (_end, context) = in_child!(leaking());
    let stream = context.stream().expect("a stream");
    let mut buffer = GrowableBuffer::<u8>::new(&stream, 4 * PAGE).expect("a buffer");
    buffer.resize_zeroed(3 * PAGE).expect("memory");
    {
        let refused = fail("cuStreamQuery", 1, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        buffer.truncate(0).expect("an empty buffer");
        assert_eq!((refused.hits(), buffer.mapped_bytes()), (1, 3 * PAGE));
    }
    // It is unmapped with the buffer.
    stream.synchronize().expect("the fill");
    drop(buffer);
    attempt_deferred_releases();
    assert_eq!((alive().mappings, alive().reservations), (0, 0));
}

#[test]
fn a_query_without_an_answer_defers_the_release() {
    let (_end, context) = in_child!(on(Profile::h200()));
    for query in ["cuStreamQuery", "cuEventRecord", "cuEventQuery"] {
        let stream = context.stream().expect("a stream");
        let buffer = used(&context, &stream);
        {
            let refused = fail_from(query, 1, CUresult::CUDA_ERROR_UNKNOWN);
            drop(buffer);
            assert_eq!((refused.hits(), alive().mappings), (1, 1), "{query}");
            attempt_deferred_releases();
        }
        stream.synchronize().expect("the fill");
        attempt_deferred_releases();
        assert_eq!((alive().mappings, cuda_safe::leaked()), (0, 0), "{query}");
    }
}

#[test]
fn textures_and_surfaces_stay_after_a_fatal_error() {
    let (_end, context) = in_child!(leaking());
    let stream = context.stream().expect("a stream");
    let options = ArrayOptions { surface: true, ..ArrayOptions::default() };
    let array = Array::<u32>::with(&stream, PLANE, options).expect("an array");
    let surface = Surface::new(array).expect("a surface");
    let fatal = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
    let refused = fail("cuStreamQuery", 1, fatal);
    let array = surface.into_target();
    assert_eq!((refused.hits(), alive().surfaces, cuda_safe::leaked()), (1, 1, 1));
    let texture = Texture::new(array, &Sampler::default()).expect("a texture");
    let refused = fail("cuStreamQuery", 1, fatal);
    let array = texture.into_source();
    assert_eq!((refused.hits(), alive().textures, cuda_safe::leaked()), (1, 1, 2));
    drop(array);
    assert_eq!((alive().arrays, cuda_safe::leaked()), (0, 2));
}

#[test]
fn a_sparse_array_that_is_not_destroyed_keeps_its_memory() {
    let (_end, context) = in_child!(leaking());
    let stream = context.stream().expect("a stream");
    let shape = ArrayShape::TwoD { width: 512, height: 512 };
    let mut array = SparseArray::<u32>::new(&stream, shape).expect("an array");
    array.map([0; 3], Extent::new_2d(1, 1)).expect("a mapping");
    let refused = fail("cuArrayDestroy", 1, CUresult::CUDA_ERROR_UNKNOWN);
    drop(array);
    assert_eq!((refused.hits(), cuda_safe::leaked()), (1, 2));
    assert_eq!((alive().arrays, alive().physical_allocations), (1, 1));
}

#[test]
fn tiles_whose_mapping_failed_are_not_used() {
    let (_end, _context, stream) = in_child!(on_stream());
    let shape = ArrayShape::TwoD { width: 512, height: 512 };
    let mut array = SparseArray::<u32>::new(&stream, shape).expect("an array");
    let dot = Extent::new_2d(1, 1);
    let failed = |function, array: &mut SparseArray<u32>| {
        let _refused = fail(function, 1, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        array.map([0; 3], dot).expect_err("a failure")
    };
    let error = failed("cuMemCreate", &mut array);
    assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    assert_eq!((array.memory_bytes(), array.mapped_tiles()), (0, 0));
    failed("cuMemMapArrayAsync", &mut array);
    assert_eq!((array.memory_bytes(), array.mapped_tiles()), (PAGE, 0));
    array.part([0; 3], dot).expect_err("no memory");
    // The other 31 tiles of the memory suffice for all 16 of the array.
    array.map([0; 3], shape.extent()).expect("a mapping");
    assert_eq!((array.memory_bytes(), array.mapped_tiles()), (PAGE, 16));
    {
        let _refused = fail("cuMemMapArrayAsync", 1, CUresult::CUDA_ERROR_UNKNOWN);
        array.unmap([0; 3], shape.extent()).expect_err("a failure");
    }
    assert_eq!(array.mapped_tiles(), 0);
    array.map([0; 3], shape.extent()).expect("a mapping");
    assert_eq!(array.memory_bytes(), 2 * PAGE);
    drop(array);
    assert_eq!((alive().arrays, alive().physical_allocations), (0, 0));
}
