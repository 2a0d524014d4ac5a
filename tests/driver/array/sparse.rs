//! Sparse arrays: tiles that are mapped and unmapped in the order of a stream.

use super::rejected;
use crate::common;
use cuda_safe::array::{Array, ArrayOptions, ArrayShape, Sampler, SparseArray, Surface, Texture};
use cuda_safe::capture::CaptureMode;
use cuda_safe::device::attribute::SPARSE_CUDA_ARRAY_SUPPORTED;
use cuda_safe::memory::Extent;
use cuda_safe::{CUresult, Context, Invalid, Stream};

fn stage() -> Option<(Context, Stream)> {
    let (context, stream) = common::context_and_stream()?;
    common::has(&context.device(), SPARSE_CUDA_ARRAY_SUPPORTED, "the device has no sparse arrays")?;
    Some((context, stream))
}

const SHAPE: ArrayShape = ArrayShape::TwoD { width: 1000, height: 600 };
const ALL: Extent = Extent::new_2d(1000, 600);
const DOT: Extent = Extent::new_2d(1, 1);

fn plane(stream: &Stream) -> SparseArray<u32> {
    SparseArray::new(stream, SHAPE).expect("an array")
}

#[test]
fn a_region_is_mapped_by_tiles() {
    let (_context, stream) = or_skip!(stage());
    let mut plane = plane(&stream);
    let tile = plane.tile();
    assert_eq!(tile.depth, 1);
    assert_eq!((plane.mapped_tiles(), plane.memory_bytes()), (0, 0));
    // A point that two rows and two columns of tiles surround.
    let corner = [tile.width - 1, tile.height - 1, 0];
    let square = Extent::new_2d(2, 2);
    plane.map(corner, square).expect("a mapping");
    assert_eq!(plane.mapped_tiles(), 4);
    assert!(plane.is_mapped([0; 3], tile).expect("a region"));
    assert!(!plane.is_mapped([0; 3], ALL).expect("a region"));
    let bytes = plane.memory_bytes();
    assert!(bytes >= 4 * tile.width * tile.height * 4, "{bytes}");
    plane.map(corner, square).expect("no change");
    assert_eq!((plane.mapped_tiles(), plane.memory_bytes()), (4, bytes));
    // Only whole tiles are unmapped.
    plane.unmap(corner, square).expect("no change");
    assert_eq!(plane.mapped_tiles(), 4);
    plane.unmap([0; 3], Extent::new_2d(tile.width + 1, tile.height)).expect("a tile");
    assert_eq!(plane.mapped_tiles(), 3);
    assert!(!plane.is_mapped([0; 3], DOT).expect("a region"));
    // The tile at the corner of the array is smaller.
    plane.map([999, 599, 0], DOT).expect("a mapping");
    plane.unmap([0; 3], ALL).expect("no mapping");
    assert_eq!(plane.mapped_tiles(), 0);
    // Memory of unmapped tiles is used again.
    plane.map([0; 3], tile).expect("a mapping");
    assert_eq!(plane.memory_bytes(), bytes);
    let empty = Extent::new_2d(0, 0);
    plane.map([999, 599, 0], empty).expect("nothing");
    plane.unmap([999, 599, 0], empty).expect("nothing");
    assert_eq!(plane.mapped_tiles(), 1);
}

#[test]
fn copies_need_mapped_tiles() {
    let (_context, stream) = or_skip!(stage());
    let mut plane = plane(&stream);
    assert_eq!(rejected(plane.part([0; 3], DOT)), "the part");
    assert_eq!(rejected(plane.part([1000, 0, 0], DOT)), "the part");
    assert_eq!(rejected(plane.map([0; 3], Extent::new_2d(1001, 1))), "the part");
    assert_eq!(rejected(plane.unmap([0, 0, 1], DOT)), "the part");
    assert_eq!(rejected(plane.is_mapped([0, usize::MAX, 0], DOT)), "the part");
    plane.map([0; 3], DOT).expect("a mapping");
    let square = Extent::new_2d(4, 4);
    let texels: Vec<u32> = (0..16).collect();
    let mut part = plane.part_mut([0; 3], square).expect("a part");
    part.copy_from_slice(&texels).expect("a copy");
    let part = plane.part([0; 3], square).expect("a part");
    assert_eq!(part.to_vec().expect("a copy"), texels);
    let mut small =
        Array::<u32>::new(&stream, ArrayShape::TwoD { width: 4, height: 4 }).expect("an array");
    small.as_mut().copy_from_array(part).expect("a copy");
    assert_eq!(small.to_vec().expect("a copy"), texels);
    plane.unmap([0; 3], ALL).expect("no mapping");
    assert_eq!(rejected(plane.part([0; 3], square)), "the part");
}

#[test]
fn layers_and_volumes_have_tiles_of_their_own() {
    let (_context, stream) = or_skip!(stage());
    let layers = ArrayShape::TwoDLayered { width: 512, height: 512, layers: 3 };
    let mut layers = SparseArray::<u32>::new(&stream, layers).expect("an array");
    layers.map([0, 0, 2], DOT).expect("a mapping");
    assert_eq!(layers.mapped_tiles(), 1);
    assert!(!layers.is_mapped([0, 0, 1], DOT).expect("a region"));
    layers.map([0; 3], Extent::new_3d(1, 1, 3)).expect("a mapping");
    assert_eq!(layers.mapped_tiles(), 3);

    let volume = ArrayShape::ThreeD { width: 256, height: 256, depth: 256 };
    let mut volume = SparseArray::<u32>::new(&stream, volume).expect("an array");
    let tile = volume.tile();
    volume.map([0, 0, tile.depth - 1], Extent::new_3d(1, 1, 2)).expect("a mapping");
    assert_eq!(volume.mapped_tiles(), 2);
}

#[test]
fn an_array_moves_to_another_stream_with_its_tiles() {
    let (context, stream) = or_skip!(stage());
    let other = context.stream().expect("a stream");
    let mut plane = plane(&stream);
    plane.map([0; 3], DOT).expect("a mapping");
    let mut part = plane.part_mut([0; 3], DOT).expect("a part");
    part.copy_from_slice(&[7]).expect("a copy");
    plane.rebind(&other).expect("another stream");
    assert_eq!(plane.stream(), &other);
    let part = plane.part([0; 3], DOT).expect("a part");
    assert_eq!(part.to_vec().expect("a copy"), [7]);
    let text = format!("{plane:?}");
    assert!(text.contains("u32") && text.contains("mapped_tiles: 1"), "{text}");
}

#[test]
fn textures_and_surfaces_own_or_borrow_a_sparse_array() {
    let (_context, stream) = or_skip!(stage());
    let options = ArrayOptions { surface: true, ..ArrayOptions::default() };
    let mut plane = self::plane(&stream);
    plane.map([0; 3], DOT).expect("a mapping");
    drop(Texture::new(&plane, &Sampler::default()).expect("a texture"));
    let texture = Texture::new(plane, &Sampler::default()).expect("a texture");
    assert_eq!(texture.into_source().mapped_tiles(), 1);
    let mut plane = match SparseArray::<u32>::with(&stream, SHAPE, options) {
        // Driver 580 has no sparse arrays for surfaces on an H200.
        Err(error) if error.code() == Some(CUresult::CUDA_ERROR_INVALID_VALUE) => return,
        plane => plane.expect("an array"),
    };
    assert_eq!((plane.shape(), plane.options()), (SHAPE, options));
    plane.map([0; 3], DOT).expect("a mapping");
    drop(Surface::new(&mut plane).expect("a surface"));
    let texture = Texture::new(plane, &Sampler::default()).expect("a texture");
    let surface = Surface::new(texture.into_source()).expect("a surface");
    assert_eq!(surface.into_target().mapped_tiles(), 1);
}

#[test]
fn tiles_of_a_captured_stream_are_not_changed() {
    let (_context, stream) = or_skip!(stage());
    let mut plane = plane(&stream);
    plane.map([0; 3], DOT).expect("a mapping");
    let capture = stream.begin_capture(CaptureMode::ThreadLocal).expect("a capture");
    for refused in [plane.map([500, 500, 0], DOT), plane.unmap([0; 3], ALL)] {
        assert_eq!(common::invalid(refused), Invalid::StreamIsCaptured);
    }
    assert_eq!(plane.mapped_tiles(), 1);
    // Destroyed after the capture.
    drop(plane);
    capture.end().expect("an unbroken capture");
}
