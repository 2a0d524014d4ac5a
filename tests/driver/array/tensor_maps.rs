//! The encoding of tensor maps, and tensor maps as arguments of launches.

use crate::common;
use cuda_safe::device::attribute;
use cuda_safe::sys::CUtensorMap;
use cuda_safe::tensor_map::{
    GraphTensorMap, Im2colBox, Im2colWideBox, Im2colWideMode, Swizzle, TensorDataType, TensorFill,
    TensorLayout, TensorMap, TensorMapOptions, TiledBox,
};
use cuda_safe::{Context, DeviceBuffer, Graph, Invalid, LaunchConfig, Module, Result, Stream};

const TENSOR: &str = include_str!("../../kernels/tensor.ptx");

const LAYOUT: TensorLayout<'_> =
    TensorLayout { data_type: TensorDataType::F32, dims: &[32, 16, 8], strides: &[128, 2048] };
const SHAPE: TiledBox<'_> = TiledBox::new(&[8, 4, 2]);
const COLUMN: Im2colBox<'_> = Im2colBox {
    lower_corner: &[-1],
    upper_corner: &[1],
    channels_per_pixel: 32,
    pixels_per_column: 16,
    element_strides: &[],
};
const WIDE: Im2colWideBox<'_> = Im2colWideBox {
    lower_corner_width: -1,
    upper_corner_width: 1,
    channels_per_pixel: 32,
    pixels_per_column: 16,
    element_strides: &[],
    mode: Im2colWideMode::W,
};

/// Returns the context of a device with tensor maps, a stream, and memory for a tensor, or reports a
/// skip.
fn stage() -> Option<(Context, Stream, DeviceBuffer<f32>)> {
    let context = common::context_since(12, 0)?;
    let tensor_maps = attribute::TENSOR_MAP_ACCESS_SUPPORTED;
    common::has(&context.device(), tensor_maps, "needs a device with tensor maps")?;
    let stream = context.stream().expect("a stream");
    let memory = memory(&stream);
    Some((context, stream, memory))
}

fn memory(stream: &Stream) -> DeviceBuffer<f32> {
    DeviceBuffer::zeroed(stream, 32 * 16 * 8).expect("memory")
}

#[track_caller]
fn check_refused<T>(done: Result<T>, parameter: &str) {
    match common::invalid(done) {
        Invalid::TensorMap { parameter: named, .. } => assert_eq!(named, parameter),
        other => panic!("{parameter}: {other}"),
    }
}

#[test]
fn a_map_describes_a_tensor_in_memory() {
    let (_, stream, first) = or_skip!(stage());
    let mut second = memory(&stream);
    let options = TensorMapOptions {
        swizzle: Swizzle::Span32,
        fill: TensorFill::NanRequestZeroFma,
        ..TensorMapOptions::default()
    };
    let mut map = TensorMap::new(&first, LAYOUT, SHAPE, options).expect("a map");
    assert_eq!((map.extent_bytes(), map.stream()), (32 * 16 * 8 * 4, &stream));
    assert!(!map.is_writable());
    let before = map.as_raw().opaque;
    map.replace_memory(&first).expect("the same memory");
    assert_eq!(map.as_raw().opaque, before);
    map.replace_memory_mut(&mut second).expect("other memory");
    assert!(map.is_writable());
    assert_ne!(map.as_raw().opaque[0], before[0]);
    assert_eq!(map.as_raw().opaque[1..], before[1..]);
    let text = format!("{map:?}");
    assert!(text.starts_with("TensorMap") && text.contains("extent_bytes"), "{text}");
}

#[test]
fn maps_of_one_to_five_dimensions_are_encoded() {
    let (_context, _stream, memory) = or_skip!(stage());
    let (dims, strides) = ([16, 8, 4, 2, 2], [64, 512, 2048, 4096]);
    for rank in 1..=5 {
        let layout = TensorLayout {
            data_type: TensorDataType::F32,
            dims: &dims[..rank],
            strides: &strides[..rank - 1],
        };
        let shape =
            TiledBox { dims: &[4, 2, 2, 2, 1][..rank], element_strides: &[1, 2, 1, 1, 1][..rank] };
        TensorMap::new(&memory, layout, shape, TensorMapOptions::default())
            .unwrap_or_else(|error| panic!("{rank} dimensions: {error}"));
    }
}

#[test]
fn maps_for_convolutions_are_encoded() {
    let (_context, _stream, mut memory) = or_skip!(stage());
    let options = TensorMapOptions::default();
    TensorMap::new(&memory, LAYOUT, COLUMN, options).expect("a map");
    let map = TensorMap::new_mut(&mut memory, LAYOUT, COLUMN, options).expect("a map");
    assert!(map.is_writable());
}

#[test]
fn maps_for_wide_convolutions_are_encoded() {
    let (_context, _stream, mut memory) = or_skip!(stage());
    or_skip!(common::since(12, 8));
    let options = TensorMapOptions::default();
    TensorMap::new(&memory, LAYOUT, WIDE, options).expect("a map");
    TensorMap::new_mut(&mut memory, LAYOUT, WIDE, options).expect("a map");
}

#[test]
fn a_tensor_outside_of_its_memory_is_refused() {
    let (_context, stream, memory) = or_skip!(stage());
    let options = TensorMapOptions::default();
    let len = memory.len();
    let short = memory.slice(..len - 1).expect("a part");
    check_refused(TensorMap::new(short, LAYOUT, SHAPE, options), "memory");
    let shifted = memory.slice(1..).expect("a part");
    check_refused(TensorMap::new(shifted, LAYOUT, SHAPE, options), "memory");
    let empty = DeviceBuffer::<f32>::zeroed(&stream, 0).expect("no memory");
    check_refused(TensorMap::new(&empty, LAYOUT, SHAPE, options), "memory");
    let mut map = TensorMap::new(&memory, LAYOUT, SHAPE, options).expect("a map");
    let raw = map.as_raw().opaque;
    check_refused(map.replace_memory(short), "memory");
    check_refused(map.replace_memory(shifted), "memory");
    assert_eq!(map.as_raw().opaque, raw, "unchanged");
    let huge = TensorLayout {
        data_type: TensorDataType::F32,
        dims: &[1 << 32, 1 << 32, 1 << 32],
        strides: &[1 << 34, (1 << 40) - 16],
    };
    check_refused(TensorMap::new(&memory, huge, SHAPE, options), "strides");
}

#[test]
fn shapes_of_tensors_are_checked() {
    let (_context, _stream, memory) = or_skip!(stage());
    let cases: [(&[u64], &[u64], &str); 12] = [
        (&[], &[], "dims"),
        (&[1; 6], &[16; 5], "dims"),
        (&[32, 0, 8], &[128, 2048], "dims"),
        (&[32, (1 << 32) + 1, 8], &[128, 2048], "dims"),
        (&[32, 16, 8], &[128], "strides"),
        (&[32, 16, 8], &[128, 2048, 4096], "strides"),
        (&[32, 16, 8], &[136, 2048], "strides"),
        (&[32, 16, 8], &[128, 1 << 40], "strides"),
        // Overlaps, which a driver accepts.
        (&[32, 16, 8], &[0, 2048], "strides"),
        (&[32, 16, 8], &[112, 2048], "strides"),
        (&[32, 16, 8], &[128, 1024], "strides"),
        (&[32, 16, 8], &[128, 128], "strides"),
    ];
    for (dims, strides, parameter) in cases {
        let layout = TensorLayout { data_type: TensorDataType::F32, dims, strides };
        let options = TensorMapOptions::default();
        check_refused(TensorMap::new(&memory, layout, SHAPE, options), parameter);
    }
    // In another order, and with a dimension whose stride is irrelevant.
    for strides in [[1024, 128], [128, 0]] {
        let dims = &[32, 4, if strides[1] == 0 { 1 } else { 8 }];
        let layout = TensorLayout { dims, strides: &strides, ..LAYOUT };
        TensorMap::new(&memory, layout, SHAPE, TensorMapOptions::default()).expect("a map");
    }
}

#[test]
fn boxes_and_options_are_checked() {
    let (_context, _stream, memory) = or_skip!(stage());
    let tiled = |dims: &[u32], element_strides: &[u32], swizzle| {
        let shape = TiledBox { dims, element_strides };
        let options = TensorMapOptions { swizzle, ..TensorMapOptions::default() };
        TensorMap::new(&memory, LAYOUT, shape, options).map(drop)
    };
    let none = Swizzle::None;
    check_refused(tiled(&[8, 4], &[], none), "box dims");
    check_refused(tiled(&[8, 0, 1], &[], none), "box dims");
    check_refused(tiled(&[8, 257, 1], &[], none), "box dims");
    check_refused(tiled(&[6, 1, 1], &[], none), "box dims");
    check_refused(tiled(&[16, 1, 1], &[], Swizzle::Span32), "box dims");
    check_refused(tiled(&[32, 1, 1], &[], Swizzle::Span64), "box dims");
    check_refused(tiled(&[36, 1, 1], &[], Swizzle::Span128), "box dims");
    check_refused(tiled(&[8, 1, 1], &[1, 1], none), "element_strides");
    check_refused(tiled(&[8, 1, 1], &[1, 9, 1], none), "element_strides");
    check_refused(tiled(&[8, 1, 1], &[1, 0, 1], none), "element_strides");
    tiled(&[32, 1, 1], &[1, 8, 8], Swizzle::Span128).expect("a map");
    let options =
        TensorMapOptions { fill: TensorFill::NanRequestZeroFma, ..TensorMapOptions::default() };
    let integers = TensorLayout { data_type: TensorDataType::I32, ..LAYOUT };
    check_refused(TensorMap::new(&memory, integers, SHAPE, options), "fill");
}

#[test]
fn columns_of_convolutions_are_checked() {
    let (_context, _stream, memory) = or_skip!(stage());
    let options = TensorMapOptions::default();
    let im2col = |shape| TensorMap::new(&memory, LAYOUT, shape, options).map(drop);
    let with = |lower_corner, upper_corner| Im2colBox { lower_corner, upper_corner, ..COLUMN };
    check_refused(im2col(with(&[], &[1])), "lower_corner");
    check_refused(im2col(with(&[-1], &[1, 1])), "upper_corner");
    check_refused(im2col(with(&[-(1 << 15) - 1], &[1])), "lower_corner");
    check_refused(im2col(with(&[-1], &[1 << 15])), "upper_corner");
    let channels = |channels_per_pixel, pixels_per_column| Im2colBox {
        channels_per_pixel,
        pixels_per_column,
        ..COLUMN
    };
    check_refused(im2col(channels(0, 1)), "channels_per_pixel");
    check_refused(im2col(channels(257, 1)), "channels_per_pixel");
    check_refused(im2col(channels(3, 1)), "channels_per_pixel");
    check_refused(im2col(channels(4, 0)), "pixels_per_column");
    check_refused(im2col(channels(4, 1025)), "pixels_per_column");
    let plane = TensorLayout { dims: &[32, 16], strides: &[128], ..LAYOUT };
    check_refused(TensorMap::new(&memory, plane, COLUMN, options), "dims");
    check_refused(TensorMap::new(&memory, plane, WIDE, options), "dims");
    let wide = |shape| TensorMap::new(&memory, LAYOUT, shape, options).map(drop);
    let lower = Im2colWideBox { lower_corner_width: 1 << 15, ..WIDE };
    check_refused(wide(lower), "lower_corner_width");
    let upper = Im2colWideBox { upper_corner_width: -(1 << 15) - 1, ..WIDE };
    check_refused(wide(upper), "upper_corner_width");
}

#[test]
fn a_launch_refuses_a_map_of_another_stream() {
    let (context, _stream, memory) = or_skip!(stage());
    let other = context.stream().expect("a stream");
    let module = Module::from_ptx(&context, TENSOR).expect("a module");
    let kernel = module.kernel("store_box").expect("a kernel");
    let typed = kernel.clone().typed::<(CUtensorMap, i32, i32)>().expect("the types");
    let options = TensorMapOptions::default();
    let map = TensorMap::new(&memory, LAYOUT, SHAPE, options).expect("a map");
    let config = LaunchConfig::linear(1, 32);
    // SAFETY: the launch is refused.
    let refused = unsafe { typed.launch(&other, config, (&map, 0, 0)) };
    let mut builder = kernel.launch_builder(&other);
    builder.arg(&map).arg(0_i32).arg(0_i32);
    // SAFETY: the launch is refused.
    let built = unsafe { builder.launch(config) };
    for refused in [refused, built] {
        assert!(matches!(common::invalid(refused), Invalid::OtherStream { .. }));
    }
}

#[test]
fn a_map_of_other_code_keeps_its_memory_borrowed() {
    let (_context, _stream, memory) = or_skip!(stage());
    let options = TensorMapOptions::default();
    let map = TensorMap::new(&memory, LAYOUT, SHAPE, options).expect("a map");
    let raw = *map.as_raw();
    // SAFETY: the map was encoded for this memory, and no kernel uses it.
    let same = unsafe { cuda_safe::tensor_map::TensorMap::from_raw(raw, &memory) };
    assert_eq!(same.as_raw().opaque, raw.opaque);
    assert_eq!(same.extent_bytes(), memory.size_bytes());
}

#[test]
fn nodes_that_use_one_tensor_must_be_ordered_if_one_writes() {
    let (context, _stream, memory) = or_skip!(stage());
    or_skip!(common::since(12, 3));
    let module = Module::from_ptx(&context, TENSOR).expect("a module");
    let kernel = module.kernel("store_box").expect("a kernel");
    let kernel = kernel.typed::<(CUtensorMap, i32, i32)>().expect("the types");
    let mut graph = Graph::new(&context).expect("a graph");
    let mut data = graph.own(memory).expect("memory of the graph");
    let options = TensorMapOptions::default();
    let config = LaunchConfig::linear(1, 32);
    for _ in 0..2 {
        let map = GraphTensorMap::new(data.as_slice(), LAYOUT, SHAPE, options).expect("a map");
        assert!(format!("{map:?}").starts_with("GraphTensorMap"));
        // SAFETY: the graph is not launched.
        unsafe { graph.add_kernel(&[], &context, &kernel, config, (map, 0, 0)) }.expect("a node");
    }
    drop(graph.instantiate().expect("both read"));
    let map = GraphTensorMap::new_mut(data.as_mut_slice(), LAYOUT, SHAPE, options);
    let map = map.expect("a map");
    // SAFETY: the graph is not launched.
    unsafe { graph.add_kernel(&[], &context, &kernel, config, (map, 0, 0)) }.expect("a node");
    match common::invalid(graph.instantiate()) {
        Invalid::UnorderedAccess { buffer, .. } => assert_eq!(buffer, data.number()),
        other => panic!("{other}"),
    }
    let short = data.slice(1..).expect("a part");
    check_refused(GraphTensorMap::new(short, LAYOUT, SHAPE, options), "memory");
    GraphTensorMap::new(data.as_slice(), LAYOUT, COLUMN, options).expect("a map");
    GraphTensorMap::new_mut(data.as_mut_slice(), LAYOUT, COLUMN, options).expect("a map");
    if common::offers(12, 8) {
        GraphTensorMap::new(data.as_slice(), LAYOUT, WIDE, options).expect("a map");
        let map = GraphTensorMap::new_mut(data.as_mut_slice(), LAYOUT, WIDE, options);
        map.expect("a map");
    }
}
