//! Textures and surfaces of further shapes: cubemaps, layers, levels, gathers, and accesses outside.

use crate::common;
use cuda_safe::array::{
    Array, ArrayOptions, ArrayShape, FilterMode, MipmappedArray, Sampler, SparseArray, Surface,
    SurfaceObject, Texel, Texture, TextureObject,
};
use cuda_safe::device::attribute::{MAXIMUM_TEXTURE2D_WIDTH, SPARSE_CUDA_ARRAY_SUPPORTED};
use cuda_safe::launch::Params;
use cuda_safe::memory::Extent;
use cuda_safe::{DeviceBuffer, LaunchConfig, Module, Stream, TypedKernel};

const SHAPES: &str = include_str!("../../kernels/shapes.ptx");
const TEXTURE: &str = include_str!("../../kernels/texture.ptx");

type Samples = (TextureObject, &'static [[f32; 4]], &'static mut [[f32; 4]], u32);

fn stage() -> Option<Stream> {
    common::context_and_stream().map(|(_, stream)| stream)
}

fn kernel<P: Params>(stream: &Stream, image: &str, name: &str) -> TypedKernel<P> {
    let module = Module::from_ptx(stream.context(), &common::alone(image, name)).expect("a module");
    let kernel = module.kernel(name).expect("a kernel");
    kernel.typed().expect("its parameters")
}

/// Reads a texture at coordinates with the kernel `name`.
fn sample<S>(image: &str, name: &str, texture: &Texture<S>, at: &[[f32; 4]]) -> Vec<[f32; 4]> {
    let stream = texture.stream();
    let kernel = kernel::<Samples>(stream, image, name);
    let at = DeviceBuffer::from_slice(stream, at).expect("memory");
    let mut results = DeviceBuffer::<[f32; 4]>::zeroed(stream, at.len()).expect("memory");
    let config = LaunchConfig::for_elements(at.len(), 64).expect("a configuration");
    let count = u32::try_from(at.len()).expect("a few");
    // SAFETY: the kernel reads the texture at these coordinates, and writes as many results.
    unsafe { kernel.launch(stream, config, (texture, &at, &mut results, count)) }
        .expect("a launch");
    results.to_vec().expect("the results")
}

/// Runs a kernel for each texel of a surface.
fn run<S>(name: &str, surface: &mut Surface<S>, extent: Extent) {
    let stream = surface.stream().clone();
    let kernel = kernel::<(SurfaceObject, u32, u32, u32)>(&stream, SHAPES, name);
    let texels = extent.width * extent.height * extent.depth;
    let config = LaunchConfig::for_elements(texels, 64).expect("a configuration");
    let [width, height, texels] =
        [extent.width, extent.height, texels].map(|its| u32::try_from(its).expect("a few"));
    // SAFETY: the surface has these texels, each of which one thread accesses.
    unsafe { kernel.launch(&stream, config, (surface, width, height, texels)) }.expect("a launch");
}

fn array<T: Texel>(stream: &Stream, shape: ArrayShape, texels: &[T]) -> Array<T> {
    let mut array = Array::new(stream, shape).expect("an array");
    array.copy_from_slice(texels).expect("a copy");
    array
}

fn surface<T: Texel>(stream: &Stream, shape: ArrayShape, texels: &[T]) -> Surface<Array<T>> {
    let options = ArrayOptions { surface: true, ..ArrayOptions::default() };
    let mut array = Array::with(stream, shape, options).expect("an array");
    array.copy_from_slice(texels).expect("a copy");
    Surface::new(array).expect("a surface")
}

/// Numbers from 0 on, which `f32` has exactly.
fn numbers(count: u16) -> Vec<f32> {
    (0..count).map(f32::from).collect()
}

fn first(found: Vec<[f32; 4]>) -> Vec<f32> {
    found.into_iter().map(|its| its[0]).collect()
}

/// Returns a direction to a point of a face, from -1 to 1 along both of its axes.
fn direction(face: usize, [s, t]: [f32; 2]) -> [f32; 3] {
    match face {
        0 => [1.0, -t, -s],
        1 => [-1.0, -t, s],
        2 => [s, 1.0, t],
        3 => [s, -1.0, -t],
        4 => [s, -t, 1.0],
        _ => [-s, -t, -1.0],
    }
}

/// The centers of the texels of cubes with four texels in a row, in the order of the texels.
fn directions(cubes: u8) -> Vec<[f32; 4]> {
    let center = |at: usize| (at as f32 + 0.5) / 2.0 - 1.0;
    let mut directions = Vec::new();
    for cube in 0..cubes {
        for face in 0..6 {
            for (row, column) in (0..16).map(|i| (i / 4, i % 4)) {
                let [x, y, z] = direction(face, [center(column), center(row)]);
                directions.push([x, y, z, f32::from(cube)]);
            }
        }
    }
    directions
}

#[test]
fn a_cubemap_is_read_by_directions() {
    let stream = or_skip!(stage());
    let texels = numbers(96);
    let cube = array(&stream, ArrayShape::Cubemap { width: 4 }, &texels);
    let texture = Texture::new(&cube, &Sampler::default()).expect("a texture");
    let found = sample(SHAPES, "sample_cube", &texture, &directions(1));
    assert_eq!(first(found), texels);

    let texels = numbers(192);
    let cubes = ArrayShape::CubemapLayered { width: 4, cubes: 2 };
    let cubes = array(&stream, cubes, &texels);
    let texture = Texture::new(&cubes, &Sampler::default()).expect("a texture");
    let found = sample(SHAPES, "sample_cubes", &texture, &directions(2));
    assert_eq!(first(found), texels);
}

#[test]
fn layers_of_lines_are_not_interpolated() {
    let stream = or_skip!(stage());
    let lines = ArrayShape::OneDLayered { width: 4, layers: 3 };
    let lines = array(&stream, lines, &numbers(12));
    let linear = Sampler { filter: FilterMode::Linear, ..Sampler::default() };
    let texture = Texture::new(&lines, &linear).expect("a texture");
    let at = [0.0, 1.0, 2.0].map(|layer| [2.0, layer, 0.0, 0.0]);
    let found = sample(SHAPES, "sample_lines", &texture, &at);
    assert_eq!(first(found), [1.5, 5.5, 9.5]);
}

#[test]
fn levels_are_interpolated_clamped_and_biased() {
    let stream = or_skip!(stage());
    let shape = ArrayShape::TwoD { width: 4, height: 4 };
    let mut levels = MipmappedArray::<f32>::new(&stream, shape, 3).expect("an array");
    for (level, value) in [10.0, 20.0, 40.0].into_iter().enumerate() {
        let mut its = levels.level_mut(level as u32).expect("a level");
        let texels = vec![value; its.len()];
        its.copy_from_slice(&texels).expect("a copy");
    }
    let at = [0.0, 0.5, 1.0, 1.5, 2.0, 5.0].map(|level| [0.5, 0.5, level, 0.0]);
    let all = Sampler { normalized_coordinates: true, max_mipmap_level: 2.0, ..Sampler::default() };
    let read = |sampler| {
        let texture = Texture::new(&levels, &sampler).expect("a texture");
        first(sample(SHAPES, "sample_level", &texture, &at))
    };
    let mipmap_filter = FilterMode::Linear;
    let linear = Sampler { mipmap_filter, ..all };
    assert_eq!(read(linear), [10.0, 15.0, 20.0, 30.0, 40.0, 40.0]);
    let clamped = Sampler { min_mipmap_level: 1.0, max_mipmap_level: 1.5, ..linear };
    assert_eq!(read(clamped), [20.0, 20.0, 20.0, 30.0, 30.0, 30.0]);
    let biased = Sampler { mipmap_level_bias: 1.0, ..linear };
    assert_eq!(read(biased), [20.0, 30.0, 40.0, 40.0, 40.0, 40.0]);
    let nearest = read(all);
    assert_eq!([nearest[0], nearest[2], nearest[4]], [10.0, 20.0, 40.0]);
}

#[test]
fn a_gather_reads_four_texels() {
    let stream = or_skip!(stage());
    let options = ArrayOptions { gather: true, ..ArrayOptions::default() };
    let shape = ArrayShape::TwoD { width: 4, height: 4 };
    let mut plane = Array::with(&stream, shape, options).expect("an array");
    plane.copy_from_slice(&numbers(16)).expect("a copy");
    let texture = Texture::new(&plane, &Sampler::default()).expect("a texture");
    let found = sample(SHAPES, "gather", &texture, &[[2.0, 2.0, 0.0, 0.0]]);
    // The texels around the point, from the lower left on against the clock.
    assert_eq!(found, [[9.0, 10.0, 6.0, 5.0]]);
}

#[test]
fn kernels_write_volumes_and_layers() {
    let stream = or_skip!(stage());
    let (width, height, depth) = (5, 4, 3);
    let extent = Extent::new_3d(width, height, depth);
    let volume = ArrayShape::ThreeD { width, height, depth };
    let layers = ArrayShape::TwoDLayered { width, height, layers: depth };
    let expected: Vec<u32> = (0..60).collect();
    for (shape, name) in [(volume, "number_volume"), (layers, "number_layers")] {
        let mut surface = surface(&stream, shape, &[99u32; 60]);
        run(name, &mut surface, extent);
        assert_eq!(surface.into_target().to_vec().expect("a copy"), expected);
    }
}

#[test]
fn kernels_write_texels_of_four_channels() {
    let stream = or_skip!(stage());
    let shape = ArrayShape::TwoD { width: 3, height: 2 };
    let extent = Extent::new_2d(3, 2);
    let bytes: Vec<[u8; 4]> = (0..6).map(|i| [i, 10 + i, 20 + i, 30 + i]).collect();
    let mut reversed = surface(&stream, shape, &bytes);
    run("reverse_bytes", &mut reversed, extent);
    let expected: Vec<_> = bytes.iter().map(|&[a, b, c, d]| [d, c, b, a]).collect();
    assert_eq!(reversed.into_target().to_vec().expect("a copy"), expected);

    let floats: Vec<[f32; 4]> = (0..6u8).map(|i| [f32::from(i), 0.5, -1.0, 3.25]).collect();
    let mut doubled = surface(&stream, shape, &floats);
    run("double_floats", &mut doubled, extent);
    let expected: Vec<_> = floats.iter().map(|its| its.map(|f| 2.0 * f)).collect();
    assert_eq!(doubled.into_target().to_vec().expect("a copy"), expected);
}

#[test]
fn a_surface_access_outside_is_zero_or_the_nearest_texel() {
    let stream = or_skip!(stage());
    let mut line = surface(&stream, ArrayShape::OneD { width: 3 }, &[5u32, 6, 7]);
    let kernel = kernel::<(SurfaceObject, &mut [[u32; 2]], u32)>(&stream, SHAPES, "read_beyond");
    let mut results = DeviceBuffer::<[u32; 2]>::zeroed(&stream, 5).expect("memory");
    let config = LaunchConfig::linear(1, 5);
    // SAFETY: the kernel writes 5 results. Its accesses outside of the surface do not trap.
    unsafe { kernel.launch(&stream, config, (&mut line, &mut results, 5)) }.expect("a launch");
    let found = results.to_vec().expect("the results");
    assert_eq!(found, [[0, 5], [5, 5], [6, 6], [7, 7], [0, 7]]);
}

#[test]
fn mapped_tiles_of_a_sparse_array_are_read() {
    let stream = or_skip!(stage());
    let device = stream.context().device();
    if !device.attribute(SPARSE_CUDA_ARRAY_SUPPORTED).expect("an attribute") {
        return common::skip("the device has no sparse arrays");
    }
    let shape = ArrayShape::TwoD { width: 1000, height: 600 };
    let mut plane = SparseArray::<f32>::new(&stream, shape).expect("an array");
    let tile = plane.tile();
    // A tile in the middle, and the corner, where a tile is cut off.
    let corner = ([1000 - 4, 600 - 4, 0], Extent::new_2d(4, 4));
    let middle = ([tile.width, tile.height, 0], Extent::new_2d(4, 4));
    for (number, (at, extent)) in [corner, middle].into_iter().enumerate() {
        plane.map(at, extent).expect("a mapping");
        let texels: Vec<f32> = numbers(16).iter().map(|its| its + number as f32).collect();
        let mut part = plane.part_mut(at, extent).expect("a part");
        part.copy_from_slice(&texels).expect("a copy");
        assert_eq!(part.as_ref().to_vec().expect("a copy"), texels);
    }
    assert_eq!(plane.mapped_tiles(), 2);
    let texture = Texture::new(plane, &Sampler::default()).expect("a texture");
    let points = [corner, middle].map(|([x, y, _], _)| [x as f32 + 1.5, y as f32 + 2.5, 0.0, 0.0]);
    let found = sample(TEXTURE, "sample_2d", &texture, &points);
    assert_eq!(first(found), [9.0, 10.0]);
    let mut plane = texture.into_source();
    plane.unmap([0; 3], shape.extent()).expect("no mapping");
    plane.map(middle.0, middle.1).expect("a mapping");
    let mut part = plane.part_mut(middle.0, middle.1).expect("a part");
    part.copy_from_slice(&numbers(16)).expect("a copy");
    assert_eq!(part.as_ref().to_vec().expect("a copy"), numbers(16));
}

#[test]
fn an_array_is_as_wide_as_the_device_allows() {
    let stream = or_skip!(stage());
    let most = stream.context().device().attribute(MAXIMUM_TEXTURE2D_WIDTH).expect("known");
    let new = |width| Array::<u8>::new(&stream, ArrayShape::TwoD { width, height: 1 });
    assert_eq!(new(most as usize).expect("an array").shape().extent().width, most as usize);
    let refused = common::invalid(new(most as usize + 1)).to_string();
    assert!(refused.contains("the width") && refused.ends_with(&most.to_string()), "{refused}");
}
