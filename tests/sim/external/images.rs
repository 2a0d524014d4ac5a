//! Images of external memory.

use super::{SIZE, import};
use crate::prelude::*;
use cuda_safe::array::{ArrayOptions, MipmappedArray, Sampler, Surface, Texture};
use cuda_safe::external::{ExternalMemory, ExternalMemoryOptions, ImageOptions};
use cuda_sim::external::memory;
use std::fs::File;
use std::os::unix::fs::FileExt;

const SHAPE: ArrayShape = ArrayShape::TwoD { width: 4, height: 4 };

fn stage() -> (AtEnd, Context, Stream, File, ExternalMemory) {
    let (end, context, stream) = on_stream();
    let file = memory(SIZE as u64).expect("memory");
    let memory = import(&context, &file, ExternalMemoryOptions::default());
    (end, context, stream, file, memory)
}

fn map(
    memory: &ExternalMemory,
    stream: &Stream,
    levels: u32,
    options: ImageOptions,
) -> Result<MipmappedArray<[u8; 4]>> {
    // SAFETY: the test orders its accesses.
    unsafe { memory.map_image(stream, SHAPE, levels, options) }
}

#[test]
fn the_levels_share_the_bytes_of_the_file() {
    let (_end, _context, stream, file, memory) = in_child!(stage());
    let bytes: Vec<u8> = (0..80).collect();
    file.write_all_at(&bytes, 256).expect("written");
    let options = ImageOptions { offset: 256, ..ImageOptions::default() };
    let mut image = map(&memory, &stream, 2, options).expect("an image");
    assert_eq!((image.levels(), image.shape()), (2, SHAPE));
    let first = image.level(0).expect("a level").to_vec().expect("a copy");
    assert_eq!(first.as_flattened(), &bytes[..64]);
    let second = image.level(1).expect("a level").to_vec().expect("a copy");
    assert_eq!(second.as_flattened(), &bytes[64..]);
    image.level_mut(1).expect("a level").copy_from_slice(&[[9; 4]; 4]).expect("a copy");
    stream.synchronize().expect("a wait");
    let mut read = [0; 17];
    file.read_exact_at(&mut read, 256 + 63).expect("read");
    assert_eq!(read, [63, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9]);
}

#[test]
fn a_texture_and_a_surface_use_an_image() {
    let (_end, _context, stream, _file, memory) = in_child!(stage());
    let array = ArrayOptions { surface: true, ..ArrayOptions::default() };
    let options = ImageOptions { array, color_attachment: true, ..ImageOptions::default() };
    let mut image = map(&memory, &stream, 3, options).expect("an image");
    assert!(image.options().surface);
    let sampler = Sampler { normalized_coordinates: true, ..Sampler::default() };
    Texture::new(&image, &sampler).expect("a texture");
    Surface::new(image.level_mut(2).expect("a level")).expect("a surface");
}

#[test]
fn an_image_keeps_the_memory_and_its_stream() {
    let (_end, context, stream, _file, memory) = in_child!(stage());
    let mut image = map(&memory, &stream, 1, ImageOptions::default()).expect("an image");
    drop(memory);
    assert_eq!(alive().external_memories, 1);
    let other = context.stream().expect("a stream");
    assert_eq!(invalid(image.rebind(&other)), Invalid::ForeignMemory);
    let mut calls = calls(|| drop(image));
    calls.retain(|call| !["cuCtxGetCurrent", "cuThreadExchangeStreamCaptureMode"].contains(call));
    let expected = ["cuStreamSynchronize", "cuMipmappedArrayDestroy", "cuDestroyExternalMemory"];
    assert_eq!(calls, expected);
}

/// The drop cannot wait for the work on a borrowed stream that is captured, nor be deferred.
#[test]
fn a_leaked_image_keeps_the_memory() {
    let (_end, context) = in_child!(leaking());
    let owner = context.stream().expect("a stream");
    // SAFETY: the owner outlives the borrowed stream.
    let stream = unsafe { Stream::borrow_raw(owner.as_raw(), &context) }.expect("a stream");
    let file = memory(SIZE as u64).expect("memory");
    let memory = import(&context, &file, ExternalMemoryOptions::default());
    let image = map(&memory, &stream, 1, ImageOptions::default()).expect("an image");
    let capture = stream.begin_capture(CaptureMode::Relaxed).expect("begins");
    let mut calls = calls(|| drop((image, memory)));
    calls.retain(|call| ["cuMipmappedArrayDestroy", "cuDestroyExternalMemory"].contains(call));
    assert_eq!(calls, [""; 0]);
    drop(capture);
    assert_eq!((cuda_safe::leaked(), cuda_safe::deferred_releases()), (1, 0));
    assert_eq!((alive().mipmapped_arrays, alive().external_memories), (1, 1));
}

#[test]
fn an_image_that_does_not_fit_is_refused() {
    let (_end, context, stream, _file, memory) = in_child!(stage());
    let at_end = ImageOptions { offset: SIZE - 64, ..ImageOptions::default() };
    map(&memory, &stream, 1, at_end).expect("one level fits");
    let error = map(&memory, &stream, 2, at_end).map(drop).expect_err("the second does not");
    assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_INVALID_VALUE));
    for levels in [0, 4] {
        let refused = invalid(map(&memory, &stream, levels, ImageOptions::default()));
        assert!(matches!(refused, Invalid::Array { .. }), "{refused}");
    }
    let other = Context::new(&context.device(), ContextFlags::SCHED_YIELD).expect("a context");
    let other = other.stream().expect("a stream");
    let refused = invalid(map(&memory, &other, 1, ImageOptions::default()));
    assert!(matches!(refused, Invalid::OtherContext { .. }), "{refused}");
}

#[test]
fn an_image_is_destroyed_if_its_description_is_not_known() {
    let (_end, _context, stream, _file, memory) = in_child!(stage());
    for function in ["cuMipmappedArrayGetLevel", "cuArray3DGetDescriptor_v2"] {
        let fault = fail(function, 1, CUresult::CUDA_ERROR_UNKNOWN);
        map(&memory, &stream, 1, ImageOptions::default()).map(drop).expect_err("a fault");
        assert_eq!(fault.hits(), 1);
        assert_eq!(alive().mipmapped_arrays, 0);
    }
}
