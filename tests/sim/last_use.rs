//! Objects that are released after the work on a stream: what the release does if the driver does not say
//! whether that work is complete.

use crate::on;
use crate::releases::{fail, fail_from, leaking};
use cuda_safe::array::{Array, ArrayOptions, ArrayShape, Sampler, SparseArray, Surface, Texture};
use cuda_safe::virtual_memory::{GrowableBuffer, PhysicalMemory, Reservation};
use cuda_safe::{Context, DeviceBuffer, Extent, Stream, attempt_deferred_releases};
use cuda_sim::{Profile, alive};
use cuda_sys::CUresult;

const PAGE: usize = 2 << 20;
const PLANE: ArrayShape = ArrayShape::TwoD {
    width: 4,
    height: 4,
};

/// Returns mapped memory that work on the stream uses.
fn used(context: &Context, stream: &Stream) -> DeviceBuffer<u32> {
    let memory = PhysicalMemory::new(context.device(), PAGE).expect("memory");
    let space = Reservation::new(PAGE).expect("a reservation");
    let mapping = space.map(0, memory).expect("a mapping");
    let mut buffer = mapping.into_buffer::<u32>(stream).expect("a buffer");
    buffer.fill(7).expect("a fill");
    buffer
}

#[test]
fn a_fatal_error_of_a_query_is_not_the_end_of_the_work() {
    leaking(|context| {
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
            assert_eq!(
                (alive().mappings, alive().physical_allocations),
                (number, number)
            );
        }
        assert!(cuda_safe::leaked() >= 3);
    });
}

#[test]
fn a_fatal_error_leaves_the_tail_of_a_growable_buffer_mapped() {
    leaking(|context| {
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
    });
}

#[test]
fn a_query_without_an_answer_defers_the_release() {
    on(Profile::h200(), |context| {
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
    });
}

#[test]
fn textures_and_surfaces_stay_after_a_fatal_error() {
    leaking(|context| {
        let stream = context.stream().expect("a stream");
        let options = ArrayOptions {
            surface: true,
            ..ArrayOptions::default()
        };
        let array = Array::<u32>::with_options(&stream, PLANE, options).expect("an array");
        let surface = Surface::new(array).expect("a surface");
        let fatal = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
        let refused = fail("cuStreamQuery", 1, fatal);
        let array = surface.into_target();
        assert_eq!(
            (refused.hits(), alive().surfaces, cuda_safe::leaked()),
            (1, 1, 1)
        );
        let texture = Texture::new(array, &Sampler::default()).expect("a texture");
        let refused = fail("cuStreamQuery", 1, fatal);
        let array = texture.into_source();
        assert_eq!(
            (refused.hits(), alive().textures, cuda_safe::leaked()),
            (1, 1, 2)
        );
        drop(array);
        assert_eq!((alive().arrays, cuda_safe::leaked()), (0, 2));
    });
}

#[test]
fn a_sparse_array_that_is_not_destroyed_keeps_its_memory() {
    leaking(|context| {
        let stream = context.stream().expect("a stream");
        let shape = ArrayShape::TwoD {
            width: 512,
            height: 512,
        };
        let mut array = SparseArray::<u32>::new(&stream, shape).expect("an array");
        array.map([0; 3], Extent::new_2d(1, 1)).expect("a mapping");
        let refused = fail("cuArrayDestroy", 1, CUresult::CUDA_ERROR_UNKNOWN);
        drop(array);
        assert_eq!((refused.hits(), cuda_safe::leaked()), (1, 2));
        assert_eq!((alive().arrays, alive().physical_allocations), (1, 1));
    });
}

#[test]
fn tiles_whose_mapping_failed_are_not_used() {
    on(Profile::h200(), |context| {
        let stream = context.stream().expect("a stream");
        let shape = ArrayShape::TwoD {
            width: 512,
            height: 512,
        };
        let mut array = SparseArray::<u32>::new(&stream, shape).expect("an array");
        let dot = Extent::new_2d(1, 1);
        let failed = |function, array: &mut SparseArray<u32>| {
            let _refused = fail(function, 1, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
            array.map([0; 3], dot).expect_err("a failure")
        };
        let error = failed("cuMemCreate", &mut array);
        assert!(matches!(error, cuda_safe::Error::OutOfMemory(_)), "{error}");
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
    });
}
