//! CUDA arrays: shapes, formats, copies, levels, and refusals.

pub(crate) mod shapes;
pub(crate) mod sparse;
pub(crate) mod tensor_copies;
pub(crate) mod tensor_maps;
pub(crate) mod textures;

use crate::common::{self, invalid};
use crate::module::kernels::Busy;
use cuda_safe::array::{
    Array, ArrayOptions, ArrayShape, Half, MipmappedArray, Normalized, Sampler, Texel, TexelFormat,
    Texture,
};
use cuda_safe::capture::CaptureMode;
use cuda_safe::device::attribute::MAXIMUM_SURFACE1D_WIDTH;
use cuda_safe::memory::{Extent, Region};
use cuda_safe::{DeviceBuffer, Error, Invalid, PinnedBuffer, Stream};
use std::fmt::Debug;

/// Returns the rejected property of an array or a texture.
pub(crate) fn rejected<T>(result: Result<T, impl Into<Error>>) -> &'static str {
    match invalid(result) {
        Invalid::Array { what, .. } | Invalid::Texture { what, .. } => what,
        other => panic!("{other:?}"),
    }
}

const PLANE: ArrayShape = ArrayShape::TwoD { width: 5, height: 4 };

fn numbered(shape: ArrayShape) -> Vec<u32> {
    let extent = shape.extent();
    (0..).take(extent.width * extent.height * extent.depth).collect()
}

fn array(stream: &Stream, shape: ArrayShape) -> Array<u32> {
    let mut array = Array::new(stream, shape).expect("an array");
    array.copy_from_slice(&numbered(shape)).expect("a copy");
    array
}

const SHAPES: [ArrayShape; 7] = [
    ArrayShape::OneD { width: 7 },
    PLANE,
    ArrayShape::ThreeD { width: 4, height: 3, depth: 2 },
    ArrayShape::OneDLayered { width: 6, layers: 3 },
    ArrayShape::TwoDLayered { width: 3, height: 2, layers: 4 },
    ArrayShape::Cubemap { width: 4 },
    ArrayShape::CubemapLayered { width: 4, cubes: 2 },
];

#[test]
fn a_copy_returns_the_texels_of_every_shape() {
    let (context, stream) = or_skip!(common::context_and_stream());
    for shape in SHAPES {
        let all = numbered(shape);
        let made = array(&stream, shape);
        assert_eq!(made.shape(), shape);
        assert_eq!(made.len(), all.len());
        assert_eq!(made.to_vec().expect("a copy"), all, "{shape:?}");

        let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, all.len()).expect("memory");
        made.copy_to(&mut buffer).expect("a copy");
        assert_eq!(buffer.to_vec().expect("a copy"), all, "{shape:?}");

        let mut second = Array::<u32>::new(&stream, shape).expect("an array");
        second.copy_from(&buffer).expect("a copy");
        assert_eq!(second.to_vec().expect("a copy"), all, "{shape:?}");

        let mut third = Array::<u32>::new(&stream, shape).expect("an array");
        third.as_mut().copy_from_array(&second).expect("a copy");
        let pinned = PinnedBuffer::<u32>::zeroed(&context, all.len()).expect("memory");
        let pending = third.as_ref().copy_to_pinned(pinned).expect("a copy");
        let pinned = pending.synchronize().expect("the copy");
        assert_eq!(*pinned, *all, "{shape:?}");
        drop(second.as_mut().copy_from_pinned(pinned).expect("a copy"));
        assert_eq!(second.to_vec().expect("a copy"), all, "{shape:?}");
    }
}

#[test]
fn the_descriptor_names_shape_format_and_options() {
    fn check<T: Texel>(stream: &Stream, format: TexelFormat, channels: u32) {
        let array = Array::<T>::new(stream, PLANE).expect("an array");
        let its = array.descriptor().expect("a descriptor");
        assert_eq!((its.format, its.channels), (Some(format), channels));
        assert_eq!((its.shape, its.flags), (PLANE, 0));
    }
    let (_, stream) = or_skip!(common::context_and_stream());
    check::<u8>(&stream, TexelFormat::Unsigned8, 1);
    check::<[u8; 2]>(&stream, TexelFormat::Unsigned8, 2);
    check::<[u16; 4]>(&stream, TexelFormat::Unsigned16, 4);
    check::<u32>(&stream, TexelFormat::Unsigned32, 1);
    check::<[i8; 4]>(&stream, TexelFormat::Signed8, 4);
    check::<i16>(&stream, TexelFormat::Signed16, 1);
    check::<[i32; 2]>(&stream, TexelFormat::Signed32, 2);
    check::<[f32; 4]>(&stream, TexelFormat::Float, 4);
    check::<Half<[u16; 2]>>(&stream, TexelFormat::Half, 2);
    check::<Normalized<u8>>(&stream, TexelFormat::Unorm8, 1);
    check::<Normalized<[u16; 2]>>(&stream, TexelFormat::Unorm16, 2);
    check::<Normalized<[i8; 4]>>(&stream, TexelFormat::Snorm8, 4);
    check::<Normalized<i16>>(&stream, TexelFormat::Snorm16, 1);
    for shape in SHAPES {
        let options = ArrayOptions { surface: true, ..ArrayOptions::default() };
        let array = Array::<f32>::with(&stream, shape, options).expect("an array");
        let its = array.descriptor().expect("a descriptor");
        assert_eq!((its.shape, its.options), (shape, options));
    }
}

#[test]
fn a_part_is_copied_from_and_to_buffers_slices_and_arrays() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let whole = ArrayShape::ThreeD { width: 5, height: 4, depth: 3 };
    let part = Extent::new_3d(2, 3, 2);
    let at = [3, 1, 1];
    let mut target = array(&stream, whole);
    // A region of a larger buffer.
    let all = Extent::new_3d(4, 4, 4);
    let source: Vec<u32> = (100..164).collect();
    let buffer = DeviceBuffer::from_slice(&stream, &source).expect("memory");
    let from = Region::new(all).at(1, 0, 2);
    let mut inside = target.as_mut().part(at, part).expect("a part");
    inside.copy_3d_from(&buffer, from).expect("a copy");

    let mut expected = numbered(whole);
    let mut within = Vec::new();
    for z in 0..part.depth {
        for y in 0..part.height {
            for x in 0..part.width {
                let value = source[((z + 2) * 4 + y) * 4 + x + 1];
                expected[((z + at[2]) * 4 + y + at[1]) * 5 + x + at[0]] = value;
                within.push(value);
            }
        }
    }
    assert_eq!(target.to_vec().expect("a copy"), expected);
    let read = target.as_ref().part(at, part).expect("a part");
    assert_eq!(read.to_vec().expect("a copy"), within);

    let mut back = DeviceBuffer::<u32>::zeroed(&stream, 64).expect("memory");
    read.copy_3d_to(&mut back, from).expect("a copy");
    let back = back.to_vec().expect("a copy");
    assert_eq!(back.iter().filter(|its| **its != 0).count(), within.len());
    assert_eq!(back[from.offset], within[0]);

    let mut other = Array::<u32>::new(&stream, PLANE).expect("an array");
    other.copy_from_slice(&[7; 20]).expect("a copy");
    let slice = read.part([0; 3], Extent::new_2d(2, 3)).expect("a part");
    let mut corner = other.as_mut();
    corner = corner.part([0, 1, 0], Extent::new_2d(2, 3)).expect("a part");
    corner.copy_from_array(slice).expect("a copy");
    let other = other.to_vec().expect("a copy");
    assert_eq!(other[..5], [7; 5]);
    assert_eq!(other[5..8], [within[0], within[1], 7]);
    assert_eq!(other[15..17], within[4..6]);
}

#[test]
fn a_part_beyond_the_array_is_refused() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let array = array(&stream, PLANE);
    let one = Extent::new_2d(1, 1);
    for (at, extent) in [
        ([5, 0, 0], one),
        ([0, 4, 0], one),
        ([0, 0, 1], one),
        ([1, 0, 0], Extent::new_2d(5, 1)),
        ([0, 0, 0], Extent::new_3d(1, 1, 2)),
        ([usize::MAX, 0, 0], one),
    ] {
        assert_eq!(rejected(array.as_ref().part(at, extent)), "the part");
    }
    array.as_ref().part([4, 3, 0], one).expect("the last texel");
}

#[test]
fn copies_of_other_sizes_and_streams_are_refused() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let mut made = array(&stream, PLANE);
    let lengths = Invalid::Lengths { source: 19, target: 20 };
    assert_eq!(invalid(made.copy_from_slice(&[0; 19])), lengths);
    let short = DeviceBuffer::<u32>::zeroed(&stream, 19).expect("memory");
    assert_eq!(invalid(made.copy_from(&short)), lengths);
    let pinned = PinnedBuffer::<u32>::zeroed(&context, 19).expect("memory");
    let refused = made.as_mut().try_copy_from_pinned(pinned);
    // The memory is returned with the error.
    assert_eq!(refused.expect_err("too short").value.len(), 19);

    let other = context.stream().expect("a stream");
    let elsewhere = DeviceBuffer::<u32>::zeroed(&other, 20).expect("memory");
    let second = array(&other, PLANE);
    for refused in [made.copy_from(&elsewhere), made.as_mut().copy_from_array(&second)] {
        assert!(matches!(invalid(refused), Invalid::OtherStream { .. }));
    }
    let line = array(&stream, ArrayShape::OneD { width: 20 });
    assert_eq!(rejected(made.as_mut().copy_from_array(&line)), "the extent of the source");
}

#[test]
fn arrays_that_a_device_cannot_access_are_refused() {
    let (context, stream) = or_skip!(common::context_and_stream());
    fn new(stream: &Stream, shape: ArrayShape) -> &'static str {
        rejected(Array::<u8>::new(stream, shape))
    }
    let large = 1 << 20;
    let empty = ArrayShape::TwoD { width: 4, height: 0 };
    assert_eq!(new(&stream, empty), "the shape");
    assert_eq!(new(&stream, ArrayShape::OneD { width: 0 }), "the shape");
    assert_eq!(new(&stream, ArrayShape::OneD { width: large }), "the width");
    // The driver accepts a depth that no texture has.
    let deep = ArrayShape::ThreeD { width: 1, height: 1, depth: large };
    assert_eq!(new(&stream, deep), "the depth");
    let layered = ArrayShape::OneDLayered { width: 1, layers: large };
    assert_eq!(new(&stream, layered), "the number of layers");

    let wide = ArrayShape::OneD { width: 32769 };
    let surface = ArrayOptions { surface: true, ..ArrayOptions::default() };
    let most = context.device().attribute(MAXIMUM_SURFACE1D_WIDTH).expect("an attribute");
    if most == 32768 {
        Array::<u8>::new(&stream, wide).expect("a texture can be wider than a surface");
        let refused = rejected(Array::<u8>::with(&stream, wide, surface));
        assert_eq!(refused, "the width of a surface");
    }
    let gather = ArrayOptions { gather: true, ..ArrayOptions::default() };
    Array::<u8>::with(&stream, PLANE, gather).expect("an array");
    let line = ArrayShape::OneD { width: 4 };
    assert_eq!(rejected(Array::<u8>::with(&stream, line, gather)), "the option gather");
}

#[test]
fn levels_of_a_mipmapped_array_halve() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let shape = ArrayShape::TwoDLayered { width: 8, height: 3, layers: 2 };
    assert_eq!(shape.max_levels(), 4);
    let mut made = MipmappedArray::<u32>::new(&stream, shape, 4).expect("an array");
    let extents = [(8, 3), (4, 1), (2, 1), (1, 1)].map(|(x, y)| Extent::new_3d(x, y, 2));
    for (level, extent) in (0..).zip(extents) {
        let mut its = made.level_mut(level).expect("a level");
        assert_eq!(its.extent(), extent);
        let texels = vec![level; its.len()];
        its.copy_from_slice(&texels).expect("a copy");
    }
    for (level, extent) in (0..).zip(extents) {
        let texels = made.level(level).expect("a level").to_vec();
        let count = extent.width * extent.height * extent.depth;
        assert_eq!(texels.expect("a copy"), vec![level; count]);
    }
    assert_eq!(rejected(made.level(4)), "the level");
    for levels in [0, 5] {
        let refused = MipmappedArray::<u32>::new(&stream, shape, levels);
        assert_eq!(rejected(refused), "the number of levels");
    }
}

#[test]
fn an_array_moves_to_another_stream_with_its_work() {
    let (context, [stream, other]) = or_skip!(common::context_and_streams());
    let mut made = array(&stream, PLANE);
    let busy = Busy::new(&context, &stream);
    let ones = DeviceBuffer::from_slice(&stream, &[1u32; 20]).expect("memory");
    made.copy_from(&ones).expect("a copy");
    made.rebind(&other).expect("another stream");
    assert_eq!(made.stream(), &other);
    assert_eq!(made.to_vec().expect("a copy"), [1; 20]);
    drop((busy, ones));
}

#[test]
fn an_array_of_other_code_has_the_format_of_its_type() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let (raw, stream) = array(&stream, PLANE).into_raw();
    assert!(!raw.is_null());
    // SAFETY: the handle is an array of this context.
    let refused = unsafe { Array::<f32>::borrow_raw(raw, &stream) };
    assert_eq!(rejected(refused), "the format");
    {
        // SAFETY: the array is alive, and no other code uses it meanwhile.
        let mut borrowed = unsafe { Array::<u32>::borrow_raw(raw, &stream) }.expect("an array");
        assert_eq!(borrowed.shape(), PLANE);
        let other = stream.context().stream().expect("a stream");
        assert_eq!(invalid(borrowed.rebind(&other)), Invalid::ForeignMemory);
    }
    // SAFETY: nothing else owns the array.
    let owned = unsafe { Array::<u32>::from_raw(raw, &stream) }.expect("an array");
    assert_eq!(owned.to_vec().expect("a copy"), numbered(PLANE));
    // SAFETY: a null handle is refused.
    let refused = unsafe { Array::<u32>::from_raw(std::ptr::null_mut(), &stream) };
    assert!(matches!(invalid(refused), Invalid::Handle { .. }));
}

#[test]
fn a_mipmapped_array_of_other_code_has_the_levels_of_its_shape() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let shape = ArrayShape::TwoD { width: 8, height: 4 };
    let mut levels = MipmappedArray::<u32>::new(&stream, shape, 3).expect("an array");
    let mut last = levels.level_mut(2).expect("a level");
    last.copy_from_slice(&[7, 8]).expect("a copy");
    let (raw, same) = levels.into_raw();
    assert_eq!(same, stream);
    // SAFETY: the array is alive, and has three levels.
    let refused = unsafe { MipmappedArray::<f32>::from_raw(raw, 3, &stream) };
    assert_eq!(rejected(refused), "the format");
    // SAFETY: as above.
    let refused = unsafe { MipmappedArray::<u32>::from_raw(raw, 0, &stream) };
    assert_eq!(rejected(refused), "the number of levels");
    // SAFETY: a null handle is refused.
    let refused = unsafe { MipmappedArray::<u32>::from_raw(std::ptr::null_mut(), 3, &stream) };
    assert!(matches!(invalid(refused), Invalid::Handle { .. }));
    let other = context.stream().expect("a stream");
    {
        // SAFETY: the array outlives this object, and no other code uses it meanwhile.
        let borrowed = unsafe { MipmappedArray::<u32>::borrow_raw(raw, 2, &stream) };
        let mut borrowed = borrowed.expect("an array");
        assert_eq!((borrowed.shape(), borrowed.levels()), (shape, 2));
        assert_eq!(invalid(borrowed.rebind(&other)), Invalid::ForeignMemory);
        // SAFETY: as above.
        let foreign = unsafe { MipmappedArray::<u32>::from_foreign(raw, 3, &stream, ()) };
        assert_eq!(foreign.expect("an array").levels(), 3);
    }
    // SAFETY: this is the only owner.
    let levels = unsafe { MipmappedArray::<u32>::from_raw(raw, 3, &stream) };
    let mut levels = levels.expect("an array");
    levels.rebind(&other).expect("another stream");
    let last = levels.level(2).expect("a level");
    assert_eq!(last.stream(), &other);
    assert_eq!(last.to_vec().expect("a copy"), [7, 8]);
}

#[test]
fn an_array_is_created_and_dropped_beside_a_capture() {
    let (_context, [stream, other]) = or_skip!(common::context_and_streams());
    let captured = array(&other, PLANE);
    let capture = other.begin_capture(CaptureMode::ThreadLocal).expect("a capture");
    // None of these calls breaks the capture of the other stream.
    let made = Array::<u32>::new(&stream, PLANE).expect("an array");
    let shape = ArrayShape::OneD { width: 4 };
    drop(MipmappedArray::<u32>::new(&stream, shape, 2).expect("an array"));
    drop(Texture::new(made, &Sampler::default()).expect("a texture"));
    let refused = invalid(Array::<u32>::new(&other, PLANE));
    assert_eq!(refused, Invalid::StreamIsCaptured);
    // Destroyed after the capture.
    let refused = Texture::try_new(captured, &Sampler::default()).expect_err("a capture");
    assert!(matches!(invalid(Err::<(), _>(refused.error)), Invalid::StreamIsCaptured));
    drop(refused.value);
    capture.end().expect("an unbroken capture");
}

#[test]
fn copies_of_arrays_are_not_captured() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let mut first = array(&stream, PLANE);
    let second = array(&stream, PLANE);
    let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, first.len()).expect("memory");
    let extent = PLANE.extent();
    let capture = stream.begin_capture(CaptureMode::ThreadLocal).expect("a capture");
    let refused = [
        first.copy_from(&buffer),
        first.as_mut().copy_3d_from(&buffer, Region::new(extent)),
        first.as_mut().copy_from_array(&second),
        first.copy_from_slice(&[1; 20]),
        first.copy_to(&mut buffer),
        first.as_ref().copy_3d_to(&mut buffer, Region::new(extent)),
        first.to_vec().map(drop),
    ];
    for refused in refused {
        assert_eq!(invalid(refused), Invalid::StreamIsCaptured);
    }
    // The graph has no copy of the arrays, which are destroyed before it is instantiated.
    let graph = capture.end().expect("an unbroken capture");
    drop((first, second));
    graph.instantiate().expect("an executable graph");
}

fn shown(value: &impl Debug, parts: &[&str]) {
    let text = format!("{value:?}");
    for part in parts {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn debug_output_names_texel_and_shape() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let mut array = array(&stream, PLANE);
    shown(&array, &["Array", "u32", "width: 5", "height: 4"]);
    shown(&array.as_mut(), &["ArrayMut", "u32", "width: 5"]);
    let shape = ArrayShape::Cubemap { width: 2 };
    let levels = MipmappedArray::<[f32; 2]>::new(&stream, shape, 2).expect("an array");
    shown(&levels, &["[f32; 2]", "Cubemap", "levels: 2"]);
}
