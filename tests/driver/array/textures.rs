//! Textures and surfaces: kernels read what the host computes.

use super::rejected;
use crate::common;
use crate::green::{partition, resource_alone};
use crate::module::kernels::{Busy, TEXTURE, kernel};
use cuda_safe::array::{
    AddressMode, Array, ArrayOptions, ArrayShape, FilterMode, Half, MipmappedArray, Normalized,
    ReadMode, Sampler, Surface, SurfaceObject, Texel, Texture, TextureObject,
};
use cuda_safe::bytemuck::Pod;
use cuda_safe::memory::{Extent, PitchedBuffer};
use cuda_safe::{
    DeviceBuffer, Error, Invalid, LaunchConfig, Module, Stream, attempt_deferred_releases,
};

const WIDTH: usize = 4;
const HEIGHT: usize = 3;
const PLANE: ArrayShape = ArrayShape::TwoD { width: WIDTH, height: HEIGHT };

fn array<T: Texel>(stream: &Stream, shape: ArrayShape, texels: &[T]) -> Array<T> {
    let mut array = Array::new(stream, shape).expect("an array");
    array.copy_from_slice(texels).expect("a copy");
    array
}

/// Returns texels whose values are no linear function of the position.
fn bumps() -> Vec<f32> {
    (0..WIDTH * HEIGHT).map(|i| ((i * i) % 7) as f32).collect()
}

/// Reads a texture at coordinates with the kernel `name`.
fn sample<S>(name: &str, texture: &Texture<S>, at: &[[f32; 4]]) -> Vec<[f32; 4]> {
    sample_as(name, texture, at)
}

fn sample_integers<S>(texture: &Texture<S>, at: &[[f32; 4]]) -> Vec<[u32; 4]> {
    sample_as("sample_integers", texture, at)
}

fn sample_as<S, T: Pod>(name: &str, texture: &Texture<S>, at: &[[f32; 4]]) -> Vec<[T; 4]> {
    type Params<T> = (TextureObject, &'static [[f32; 4]], &'static mut [[T; 4]], u32);
    let stream = texture.stream();
    let kernel = kernel::<Params<T>>(stream.context(), TEXTURE, name);
    let at = DeviceBuffer::from_slice(stream, at).expect("memory");
    let mut results = DeviceBuffer::<[T; 4]>::zeroed(stream, at.len()).expect("memory");
    let config = LaunchConfig::for_elements(at.len(), 64).expect("a configuration");
    let count = u32::try_from(at.len()).expect("a few");
    // SAFETY: the kernel reads the texture at these coordinates, and writes as many results.
    unsafe { kernel.launch(stream, config, (texture, &at, &mut results, count)) }
        .expect("a launch");
    results.to_vec().expect("the results")
}

fn fetch<S>(texture: &Texture<S>, first: i32, count: u32) -> Vec<[f32; 4]> {
    type Params = (TextureObject, i32, &'static mut [[f32; 4]], u32);
    let stream = texture.stream();
    let kernel = kernel::<Params>(stream.context(), TEXTURE, "fetch");
    let mut results = DeviceBuffer::<[f32; 4]>::zeroed(stream, count as usize).expect("memory");
    let config = LaunchConfig::linear(1, count);
    // SAFETY: the kernel reads linear memory, outside of which it reads zero, and writes `count` results.
    unsafe { kernel.launch(stream, config, (texture, first, &mut results, count)) }
        .expect("a launch");
    results.to_vec().expect("the results")
}

fn add<S>(surface: &mut Surface<S>, [width, height]: [usize; 2], by: u32) -> Result<(), Error> {
    let stream = surface.stream().clone();
    let kernel =
        kernel::<(SurfaceObject, u32, u32, u32)>(stream.context(), TEXTURE, "add_to_surface");
    let config = LaunchConfig::linear(1, 64);
    let (width, height) = (width as u32, height as u32);
    // SAFETY: the surface has this extent, and at most 64 texels.
    unsafe { kernel.launch(&stream, config, (surface, width, height, by)) }
}

/// Returns the index of a texel along a dimension, or `None` for the border.
fn place(at: i64, len: usize, mode: AddressMode) -> Option<usize> {
    let len = len as i64;
    let index = match mode {
        AddressMode::Wrap => at.rem_euclid(len),
        AddressMode::Clamp => at.clamp(0, len - 1),
        AddressMode::Mirror => {
            let at = at.rem_euclid(2 * len);
            at.min(2 * len - 1 - at)
        }
        AddressMode::Border if !(0..len).contains(&at) => return None,
        AddressMode::Border => at,
    };
    Some(index as usize)
}

const BORDER: f32 = 20.0;

/// Returns what a texture of `bumps` has at coordinates in texels.
fn expected(x: f32, y: f32, mode: AddressMode, filter: FilterMode) -> f32 {
    let texels = bumps();
    let texel = |x: i64, y: i64| match (place(x, WIDTH, mode), place(y, HEIGHT, mode)) {
        (Some(x), Some(y)) => texels[y * WIDTH + x],
        _ => BORDER,
    };
    match filter {
        FilterMode::Point => texel(x.floor() as i64, y.floor() as i64),
        FilterMode::Linear => {
            let (x, y) = (x - 0.5, y - 0.5);
            let (left, top) = (x.floor() as i64, y.floor() as i64);
            let (right, lower) = (x - x.floor(), y - y.floor());
            texel(left, top) * (1.0 - right) * (1.0 - lower)
                + texel(left + 1, top) * right * (1.0 - lower)
                + texel(left, top + 1) * (1.0 - right) * lower
                + texel(left + 1, top + 1) * right * lower
        }
    }
}

/// Points in texels, also outside of the texture, none of them at an edge between texels.
fn points() -> Vec<[f32; 2]> {
    let steps = |len: usize| {
        let steps = (-9..=4 * len as i32 + 9).step_by(if cfg!(miri) { 9 } else { 1 });
        steps.map(|step| step as f32 * 0.25 + 0.0625)
    };
    steps(WIDTH).flat_map(|x| steps(HEIGHT).map(move |y| [x, y])).collect()
}

#[test]
fn a_texture_is_filtered_and_addressed_as_the_sampler_says() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let plane = array(&stream, PLANE, &bumps());
    let points = points();
    for filter in [FilterMode::Point, FilterMode::Linear] {
        for (mode, is_normalized) in [
            (AddressMode::Clamp, false),
            (AddressMode::Border, false),
            (AddressMode::Clamp, true),
            (AddressMode::Border, true),
            (AddressMode::Wrap, true),
            (AddressMode::Mirror, true),
        ] {
            let sampler = Sampler {
                address_modes: [mode; 3],
                filter,
                normalized_coordinates: is_normalized,
                border_color: [BORDER; 4],
                ..Sampler::default()
            };
            let texture = Texture::new(&plane, &sampler).expect("a texture");
            let [across, down] = match is_normalized {
                true => [WIDTH as f32, HEIGHT as f32],
                false => [1.0; 2],
            };
            let at = points.iter().map(|[x, y]| [x / across, y / down, 0.0, 0.0]);
            let found = sample("sample_2d", &texture, &at.collect::<Vec<_>>());
            for ([x, y], [found, ..]) in points.iter().zip(found) {
                let expected = expected(*x, *y, mode, filter);
                // The hardware's weights have 8 bits.
                assert!(
                    (found - expected).abs() <= 0.2,
                    "{found} instead of {expected} at ({x}, {y}): {sampler:?}"
                );
            }
        }
    }
}

#[test]
fn every_format_is_read_as_its_sampler_says() {
    fn read<T: Texel>(stream: &Stream, texel: T, read: ReadMode) -> [f32; 4] {
        let shape = ArrayShape::OneD { width: 1 };
        let line = array(stream, shape, &[texel]);
        let sampler = Sampler { read, ..Sampler::default() };
        let texture = Texture::new(&line, &sampler).expect("a texture");
        sample("sample_1d", &texture, &[[0.5; 4]])[0]
    }
    #[track_caller]
    fn near(found: [f32; 4], expected: &[f32]) {
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-4, "{found}, not {expected}");
        }
    }
    let (_, stream) = or_skip!(common::context_and_stream());
    let fractions = ReadMode::Normalized;
    near(read(&stream, 51u8, fractions), &[0.2]);
    near(read(&stream, [0u8, 255, 102, 51], fractions), &[0.0, 1.0, 0.4, 0.2]);
    near(read(&stream, [65535u16, 13107], fractions), &[1.0, 0.2]);
    near(read(&stream, [127i8, -127, 0, -128], fractions), &[1.0, -1.0, 0.0, -1.0]);
    near(read(&stream, -32767i16, fractions), &[-1.0]);
    near(read(&stream, [1.5f32, -2.0], ReadMode::Element), &[1.5, -2.0]);
    // 1.5 and -2.0 in half precision.
    near(read(&stream, Half([0x3e00u16, 0xc000]), ReadMode::Element), &[1.5, -2.0]);
    for mode in [ReadMode::Element, ReadMode::Normalized] {
        near(read(&stream, Normalized([51u8, 255]), mode), &[0.2, 1.0]);
        near(read(&stream, Normalized(-32767i16), mode), &[-1.0]);
    }
}

#[test]
fn integers_are_read_as_integers_or_fractions() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let texels: Vec<[u8; 4]> = (0..12).map(|i| [i, 2 * i, 3 * i, 255]).collect();
    let mut plane = array(&stream, PLANE, &texels);
    let sampler = Sampler::default();
    let texture = Texture::new(&plane, &sampler).expect("a texture");
    let at = [[1.5, 1.5, 0.0, 0.0], [3.5, 2.5, 0.0, 0.0]];
    assert_eq!(sample_integers(&texture, &at), [[5, 10, 15, 255], [11, 22, 33, 255]]);
    assert_eq!(texture.sampler().expect("the sampler"), sampler);
    drop(texture);
    // The array is written while no texture exists.
    plane.copy_from_slice(&[[9; 4]; 12]).expect("a copy");
    let texture = Texture::new(&plane, &sampler).expect("a texture");
    assert_eq!(sample_integers(&texture, &at), [[9; 4]; 2]);

    let signed = array(&stream, ArrayShape::TwoD { width: 1, height: 1 }, &[-5i16]);
    let texture = Texture::new(signed, &sampler).expect("a texture");
    assert_eq!(sample_integers(&texture, &at[..1])[0][0] as i32, -5);
    assert_eq!(texture.into_source().to_vec().expect("a copy"), [-5]);
}

#[test]
fn volumes_and_layers_are_sampled() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let texels: Vec<f32> = (0..24u8).map(f32::from).collect();
    let (width, height, depth) = (4, 3, 2);
    let volume = ArrayShape::ThreeD { width, height, depth };
    let volume = array(&stream, volume, &texels);
    let linear = Sampler { filter: FilterMode::Linear, ..Sampler::default() };
    let texture = Texture::new(&volume, &linear).expect("a texture");
    let at = [[1.0, 1.0, 1.0, 0.0], [2.5, 1.5, 0.5, 0.0], [2.5, 1.5, 1.25, 0.0]];
    let found: Vec<f32> = sample("sample_3d", &texture, &at).iter().map(|its| its[0]).collect();
    // The values are a linear function of the position.
    assert_eq!(found, [8.5, 6.0, 15.0]);

    let layers = ArrayShape::TwoDLayered { width, height, layers: depth };
    let layers = array(&stream, layers, &texels);
    let texture = Texture::new(&layers, &linear).expect("a texture");
    let at = [[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]];
    let found: Vec<f32> = sample("sample_layers", &texture, &at).iter().map(|its| its[0]).collect();
    // Layers are not interpolated.
    assert_eq!(found, [2.5, 14.5]);
}

#[test]
fn linear_memory_is_fetched_by_index() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let elements: Vec<f32> = (0..100u8).map(|i| f32::from(i) * 0.5).collect();
    let buffer = DeviceBuffer::from_slice(&stream, &elements).expect("memory");
    let first = |found: Vec<[f32; 4]>| found.iter().map(|its| its[0]).collect::<Vec<f32>>();
    {
        let texture = Texture::linear(&buffer, ReadMode::Element).expect("a texture");
        assert_eq!(first(fetch(&texture, 40, 3)), [20.0, 20.5, 21.0]);
        // Outside of the object it is zero.
        assert_eq!(first(fetch(&texture, 99, 2)), [49.5, 0.0]);
        assert_eq!(first(fetch(&texture, -1, 2)), [0.0, 0.0]);
    }
    let part = buffer.slice(..50).expect("a part");
    let texture = Texture::linear(part, ReadMode::Element).expect("a texture");
    assert_eq!(first(fetch(&texture, 49, 2)), [24.5, 0.0]);
    drop(texture);

    let colors = DeviceBuffer::from_slice(&stream, &[[0u8, 51, 102, 255]; 8]).expect("memory");
    let texture = Texture::linear(colors, ReadMode::Normalized).expect("a texture");
    let found = fetch(&texture, 3, 1)[0];
    for (found, expected) in found.iter().zip([0.0, 0.2, 0.4, 1.0]) {
        assert!((found - expected).abs() < 1e-4, "{found}");
    }
    let colors = texture.into_source();
    assert_eq!(colors.to_vec().expect("a copy").len(), 8);

    // Readers on other streams.
    let shared = buffer.share().expect("a shared buffer");
    let other = stream.context().stream().expect("a stream");
    let reader = shared.on(&other).expect("a reader");
    let texture = Texture::linear(reader.as_slice(), ReadMode::Element).expect("a texture");
    assert_eq!(texture.stream(), &other);
    assert_eq!(first(fetch(&texture, 2, 2)), [1.0, 1.5]);
}

#[test]
fn pitched_memory_is_filtered() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let mut plane = PitchedBuffer::<f32>::zeroed(&stream, WIDTH, HEIGHT).expect("memory");
    plane.copy_from_slice(&bumps()).expect("a copy");
    let sampler = Sampler { filter: FilterMode::Linear, ..Sampler::default() };
    let texture = Texture::new(&plane, &sampler).expect("a texture");
    let points = points();
    let at = points.iter().map(|[x, y]| [*x, *y, 0.0, 0.0]);
    let found = sample("sample_2d", &texture, &at.collect::<Vec<_>>());
    for ([x, y], [found, ..]) in points.iter().zip(found) {
        let expected = expected(*x, *y, AddressMode::Clamp, FilterMode::Linear);
        assert!((found - expected).abs() <= 0.1, "{found}, not {expected} at ({x}, {y})");
    }
}

#[test]
fn a_level_is_a_texture_of_its_own() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let shape = ArrayShape::TwoD { width: 4, height: 4 };
    let mut levels = MipmappedArray::<f32>::new(&stream, shape, 3).expect("an array");
    for (level, texels) in (0..).zip([16, 4, 1]) {
        let value = [level as f32 + 1.0; 16];
        let mut its = levels.level_mut(level).expect("a level");
        its.copy_from_slice(&value[..texels]).expect("a copy");
    }
    let middle = [[0.5, 0.5, 0.0, 0.0]];
    for level in 0..3 {
        let its = levels.level(level).expect("a level");
        let texture = Texture::new(its, &Sampler::default()).expect("a texture");
        assert_eq!(sample("sample_2d", &texture, &middle)[0][0], level as f32 + 1.0);
    }
    // The coordinates of all levels are the same.
    let refused = Texture::new(&levels, &Sampler::default());
    assert_eq!(rejected(refused), "the coordinates");
    let normalized = Sampler { normalized_coordinates: true, ..Sampler::default() };
    let texture = Texture::new(&levels, &normalized).expect("a texture");
    assert_eq!(sample("sample_2d", &texture, &middle)[0][0], 1.0);
    drop(texture);
    Texture::new(levels, &normalized).expect("a texture");
}

#[test]
fn kernels_write_surfaces_that_textures_then_read() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let options = ArrayOptions { surface: true, ..ArrayOptions::default() };
    let mut plane = Array::<u32>::with(&stream, PLANE, options).expect("an array");
    let texels: Vec<u32> = (0..12).collect();
    plane.copy_from_slice(&texels).expect("a copy");
    {
        let mut surface = Surface::new(&mut plane).expect("a surface");
        add(&mut surface, [WIDTH, HEIGHT], 100).expect("a launch");
        add(&mut surface, [WIDTH, 1], 1000).expect("a launch");
    }
    let mut expected: Vec<u32> = (100..112).collect();
    expected[..4].iter_mut().for_each(|its| *its += 1000);
    assert_eq!(plane.to_vec().expect("a copy"), expected);

    let texture = Texture::new(plane, &Sampler::default()).expect("a texture");
    let found = sample_integers(&texture, &[[1.5, 0.5, 0.0, 0.0], [2.5, 2.5, 0.0, 0.0]]);
    assert_eq!([found[0][0], found[1][0]], [1101, 110]);

    let mut owned = Surface::new(texture.into_source()).expect("a surface");
    add(&mut owned, [WIDTH, HEIGHT], 1).expect("a launch");
    let plane = owned.into_target();
    assert_eq!(plane.to_vec().expect("a copy")[11], 112);

    let shape = ArrayShape::TwoD { width: 8, height: 8 };
    let levels = MipmappedArray::<u32>::with(&stream, shape, 2, options);
    let mut levels = levels.expect("an array");
    let mut level = levels.level_mut(1).expect("a level");
    level.copy_from_slice(&[3; 16]).expect("a copy");
    let mut surface = Surface::new(level).expect("a surface");
    add(&mut surface, [4, 4], 4).expect("a launch");
    drop(surface);
    assert_eq!(levels.level(1).expect("a level").to_vec().expect("a copy"), [7; 16]);
}

/// A green context has a context of its own in the driver, and handles of other contexts mean other objects.
#[test]
fn textures_and_surfaces_are_used_on_a_stream_of_a_green_context() {
    let (_alone, resource) = or_skip!(resource_alone());
    let green = partition(resource);
    let stream = green.stream().expect("a stream");
    let options = ArrayOptions { surface: true, ..ArrayOptions::default() };
    let mut plane = Array::<u32>::with(&stream, PLANE, options).expect("an array");
    let texels: Vec<u32> = (0..12).collect();
    plane.copy_from_slice(&texels).expect("a copy");
    let mut surface = Surface::new(plane).expect("a surface");
    add(&mut surface, [WIDTH, HEIGHT], 100).expect("a launch");
    let texture = Texture::new(surface.into_target(), &Sampler::default()).expect("a texture");
    let found = sample_integers(&texture, &[[1.5, 0.5, 0.0, 0.0], [2.5, 2.5, 0.0, 0.0]]);
    assert_eq!([found[0][0], found[1][0]], [101, 110]);
}

#[test]
fn a_launch_on_another_stream_is_refused() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let options = ArrayOptions { surface: true, ..ArrayOptions::default() };
    let other = context.stream().expect("a stream");
    let made = Array::<u32>::with(&stream, PLANE, options).expect("an array");
    let texture = Texture::new(&made, &Sampler::default()).expect("a texture");
    let fetch = kernel::<(TextureObject, i32, &mut [[f32; 4]], u32)>(&context, TEXTURE, "fetch");
    let mut results = DeviceBuffer::<[f32; 4]>::zeroed(&other, 1).expect("memory");
    let config = LaunchConfig::linear(1, 1);
    // SAFETY: the launch is refused.
    let refused = unsafe { fetch.launch(&other, config, (&texture, 0, &mut results, 1)) };
    let refused = common::invalid(refused);
    assert!(refused.to_string().contains("argument 0"), "{refused}");
    drop(texture);
    let mut surface = Surface::new(made).expect("a surface");
    let module = Module::from_ptx(&context, &common::alone(TEXTURE, "add_to_surface"));
    let add = module.expect("the test kernels").kernel("add_to_surface").expect("a kernel");
    let mut launch = add.launch_builder(&other);
    launch.arg(&mut surface).arg(1u32).arg(1u32).arg(1u32);
    // SAFETY: the launch is refused.
    let refused = common::invalid(unsafe { launch.launch(config) });
    assert!(matches!(refused, Invalid::OtherStream { .. }), "{refused}");
}

#[test]
fn textures_that_the_driver_would_accept_are_refused() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let integers = array(&stream, PLANE, &[0u8; 12]);
    let wide = array(&stream, PLANE, &[0u32; 12]);
    let new = |sampler: Sampler| rejected(Texture::new(&integers, &sampler));
    let base = Sampler::default();
    assert_eq!(new(Sampler { filter: FilterMode::Linear, ..base }), "the filter");
    assert_eq!(new(Sampler { max_anisotropy: 17, ..base }), "the anisotropy");
    for mode in [AddressMode::Wrap, AddressMode::Mirror] {
        let address_modes = [AddressMode::Clamp, mode, AddressMode::Clamp];
        assert_eq!(new(Sampler { address_modes, ..base }), "the address modes");
    }
    assert_eq!(new(Sampler { srgb: true, ..base }), "the option srgb");
    let fractions = Sampler { read: ReadMode::Normalized, ..base };
    assert_eq!(rejected(Texture::new(&wide, &fractions)), "the read mode");

    let part = wide.as_ref().part([0; 3], Extent::new_2d(2, 2)).expect("a part");
    assert_eq!(rejected(Texture::new(part, &base)), "the part");
    assert_eq!(rejected(Surface::new(wide)), "the surface");

    let empty = DeviceBuffer::<f32>::zeroed(&stream, 0).expect("no memory");
    assert_eq!(rejected(Texture::linear(empty, ReadMode::Element)), "the memory");
    let buffer = DeviceBuffer::<f32>::zeroed(&stream, 1000).expect("memory");
    let refused = Texture::linear(buffer.slice(1..).expect("a part"), ReadMode::Element);
    assert_eq!(rejected(refused), "the address");
    // The memory is returned with the error.
    let integers = DeviceBuffer::<u32>::zeroed(&stream, 10).expect("memory");
    let refused = Texture::try_linear(integers, ReadMode::Normalized).expect_err("no fractions");
    assert_eq!(refused.value.len(), 10);
    let bytes = DeviceBuffer::<Normalized<u8>>::zeroed(&stream, 10).expect("memory");
    assert_eq!(rejected(Texture::linear(bytes, ReadMode::Element)), "the format");
}

#[test]
fn objects_are_destroyed_after_the_work_that_uses_them() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let buffer = DeviceBuffer::from_slice(&stream, &[2.5f32; 64]).expect("memory");
    let fetch = kernel::<(TextureObject, i32, &mut [[f32; 4]], u32)>(&context, TEXTURE, "fetch");
    let mut results = DeviceBuffer::<[f32; 4]>::zeroed(&stream, 4).expect("memory");
    let busy = Busy::new(&context, &stream);
    let texture = Texture::linear(&buffer, ReadMode::Element).expect("a texture");
    let config = LaunchConfig::linear(1, 4);
    // SAFETY: the kernel reads the texture and writes 4 results.
    unsafe { fetch.launch(&stream, config, (&texture, 0, &mut results, 4)) }.expect("a launch");
    drop(texture);
    // A texture that would get the number of the first one, if it were destroyed.
    let zeros = DeviceBuffer::<f32>::zeroed(&stream, 64).expect("memory");
    let second = Texture::linear(&zeros, ReadMode::Element).expect("a texture");
    let found = results.to_vec().expect("the results");
    assert_eq!(found.iter().map(|its| its[0]).collect::<Vec<_>>(), [2.5; 4]);
    drop((busy, second));
    attempt_deferred_releases();
}

#[test]
fn an_object_is_dropped_with_another_context_or_none_current() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let array = array(&stream, PLANE, &bumps());
    let texture = Texture::new(&array, &Sampler::default()).expect("a texture");
    let kept = Texture::new(&array, &Sampler::default()).expect("a texture");
    std::thread::scope(|scope| {
        scope.spawn(move || drop(texture));
    });
    let at = [[1.5, 0.5, 0.0, 0.0]];
    assert_eq!(sample("sample_2d", &kept, &at)[0][0], bumps()[1]);
    drop(kept);
    drop((array, stream, context));
}

#[test]
fn a_forgotten_texture_only_leaks() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let mut array = array(&stream, PLANE, &bumps());
    std::mem::forget(Texture::new(&array, &Sampler::default()).expect("a texture"));
    array.copy_from_slice(&[1.0; 12]).expect("a copy");
    drop(array);
    stream.synchronize().expect("a wait");
}
