//! Work of both APIs on a buffer, a texture and an image.

use super::{Stage, stage};
use crate::common::invalid;
use crate::or_skip;
use cuda_safe::array::{ArrayShape, Sampler, Surface, SurfaceObject, Texture, TextureObject};
use cuda_safe::external::{
    AccessHint, EglImage, OpenGlDevices, RegisteredBuffer, RegisteredImage, RegisteredImageOptions,
};
use cuda_safe::{Device, DeviceBuffer, Invalid, LaunchConfig, Module, TypedKernel};
use glow::{HasContext, NativeBuffer, NativeTexture};
use std::ffi::c_void;

const LEN: usize = 10_000;
const WIDTH: usize = 64;
const HEIGHT: usize = 32;
pub(super) const LEVELS: u32 = 3;

/// `x[i] = x[i] * 3 + 1`
const SHADER: &str = "#version 430
layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer Data { int x[]; };
void main() {
    if (gl_GlobalInvocationID.x < x.length()) {
        x[gl_GlobalInvocationID.x] = x[gl_GlobalInvocationID.x] * 3 + 1;
    }
}";

fn bytes(numbers: &[i32]) -> Vec<u8> {
    numbers.iter().flat_map(|its| its.to_ne_bytes()).collect()
}

impl Stage {
    /// Creates a buffer of OpenGL.
    pub(super) fn buffer(&self, numbers: &[i32]) -> NativeBuffer {
        let gl = &self.opengl.gl;
        // SAFETY: the context is current, as in all calls of this file.
        let buffer = unsafe { gl.create_buffer() }.expect("a buffer");
        // SAFETY: as above.
        unsafe { gl.bind_buffer(glow::SHADER_STORAGE_BUFFER, Some(buffer)) };
        // SAFETY: as above.
        unsafe {
            gl.buffer_data_u8_slice(
                glow::SHADER_STORAGE_BUFFER,
                &bytes(numbers),
                glow::DYNAMIC_COPY,
            );
        }
        buffer
    }

    /// Reads a buffer with OpenGL.
    fn read(&self, buffer: NativeBuffer, len: usize) -> Vec<i32> {
        let gl = &self.opengl.gl;
        let mut found = vec![0; 4 * len];
        // SAFETY: the context is current.
        unsafe { gl.bind_buffer(glow::COPY_READ_BUFFER, Some(buffer)) };
        // SAFETY: the buffer has this size.
        unsafe { gl.get_buffer_sub_data(glow::COPY_READ_BUFFER, 0, &mut found) };
        found.chunks_exact(4).map(|its| i32::from_ne_bytes(its.try_into().expect("4"))).collect()
    }

    /// Creates a texture of OpenGL with three levels, the first of which has these bytes.
    pub(super) fn texture(
        &self,
        format: u32,
        (channels, kind): (u32, u32),
        texels: &[u8],
    ) -> NativeTexture {
        let gl = &self.opengl.gl;
        // SAFETY: the context is current.
        let texture = unsafe { gl.create_texture() }.expect("a texture");
        // SAFETY: as above.
        unsafe { gl.bind_texture(glow::TEXTURE_2D, Some(texture)) };
        let (width, height) = (WIDTH as i32, HEIGHT as i32);
        // SAFETY: as above.
        unsafe { gl.tex_storage_2d(glow::TEXTURE_2D, LEVELS as i32, format, width, height) };
        let texels = glow::PixelUnpackData::Slice(Some(texels));
        // SAFETY: the texels are those of the level.
        unsafe {
            gl.tex_sub_image_2d(glow::TEXTURE_2D, 0, 0, 0, width, height, channels, kind, texels);
        }
        // SAFETY: as above.
        unsafe { gl.generate_mipmap(glow::TEXTURE_2D) };
        texture
    }

    /// Reads the first level of a texture with OpenGL.
    fn texels(&self, texture: NativeTexture, channels: u32, kind: u32) -> Vec<u8> {
        let gl = &self.opengl.gl;
        let mut found = vec![0; 4 * WIDTH * HEIGHT];
        // SAFETY: the context is current.
        unsafe { gl.bind_texture(glow::TEXTURE_2D, Some(texture)) };
        let to = glow::PixelPackData::Slice(Some(&mut found));
        // SAFETY: the level has this many bytes.
        unsafe { gl.get_tex_image(glow::TEXTURE_2D, 0, channels, kind, to) };
        found
    }

    fn scale(&self) -> TypedKernel<(&'static mut [i32], i32, i32, u32)> {
        let module = Module::from_ptx(&self.context, include_str!("../../kernels/vector.ptx"));
        let kernel = module.and_then(|module| module.kernel("scale")).expect("the test kernel");
        kernel.typed().expect("its parameters")
    }

    /// Registers a buffer.
    fn register(&self, buffer: NativeBuffer) -> RegisteredBuffer {
        let access = AccessHint::ReadWrite;
        // SAFETY: the context of OpenGL is current in this thread, and the test ends the accesses before it maps.
        unsafe { RegisteredBuffer::from_opengl(&self.context, buffer.0.get(), access) }
            .expect("registered")
    }

    /// Registers a texture.
    pub(super) fn register_texture(
        &self,
        texture: NativeTexture,
        surface: bool,
    ) -> RegisteredImage {
        let options =
            RegisteredImageOptions { surface, levels: LEVELS, ..RegisteredImageOptions::default() };
        let (name, target) = (texture.0.get(), glow::TEXTURE_2D);
        // SAFETY: as for a buffer.
        unsafe { RegisteredImage::from_opengl(&self.context, name, target, options) }
            .expect("registered")
    }
}

#[test]
fn the_devices_of_a_context_have_the_device() {
    let stage = or_skip!(stage());
    for list in [OpenGlDevices::All, OpenGlDevices::CurrentFrame] {
        let devices = Device::of_opengl(list).expect("devices");
        assert_eq!(devices, [stage.context.device()]);
    }
}

#[test]
fn a_shader_and_a_kernel_change_a_buffer_in_turn() {
    let stage = or_skip!(stage());
    let gl = &stage.opengl.gl;
    let numbers: Vec<i32> = (0..LEN as i32).collect();
    let buffer = stage.buffer(&numbers);
    let mut registered = stage.register(buffer);
    // SAFETY: the context is current, as below.
    let shader = unsafe { gl.create_shader(glow::COMPUTE_SHADER) }.expect("a shader");
    // SAFETY: as above.
    unsafe { gl.shader_source(shader, SHADER) };
    // SAFETY: as above.
    unsafe { gl.compile_shader(shader) };
    // SAFETY: as above.
    let program = unsafe { gl.create_program() }.expect("a program");
    // SAFETY: as above.
    unsafe { gl.attach_shader(program, shader) };
    // SAFETY: as above.
    unsafe { gl.link_program(program) };
    // SAFETY: as above.
    assert!(unsafe { gl.get_program_link_status(program) });
    // SAFETY: as above.
    unsafe { gl.use_program(Some(program)) };
    // SAFETY: as above.
    unsafe { gl.bind_buffer_base(glow::SHADER_STORAGE_BUFFER, 0, Some(buffer)) };
    let (scale, config) =
        (stage.scale(), LaunchConfig::for_elements(LEN, 128).expect("a configuration"));
    let frames = 100;
    for _ in 0..frames {
        // SAFETY: as above.
        unsafe { gl.dispatch_compute(LEN.div_ceil(64) as u32, 1, 1) };
        // SAFETY: as above.
        unsafe { gl.memory_barrier(glow::ALL_BARRIER_BITS) };
        let mut mapped = registered.map::<i32>(&stage.stream).expect("mapped");
        assert_eq!(mapped.len(), LEN);
        let arguments = (mapped.as_mut_slice(), 5, 2, LEN as u32);
        // SAFETY: the kernel accesses the elements of the buffer.
        unsafe { scale.launch(&stage.stream, config, arguments) }.expect("a launch");
        mapped.end().expect("unmapped");
    }
    let of = |value: i32| value.wrapping_mul(3).wrapping_add(1).wrapping_mul(5).wrapping_add(2);
    let found = stage.read(buffer, LEN);
    for (at, found) in found.into_iter().enumerate() {
        assert_eq!(found, (0..frames).fold(at as i32, |its, _| of(its)), "element {at}");
    }
}

#[test]
fn a_mapping_ends_with_its_guard() {
    let stage = or_skip!(stage());
    let buffer = stage.buffer(&[1, 2, 3, 4]);
    let mut registered = stage.register(buffer);
    for number in 0..3 {
        let mut mapped = registered.map::<i32>(&stage.stream).expect("mapped");
        mapped.as_mut_slice().fill(number).expect("a fill");
    }
    assert_eq!(stage.read(buffer, 4), [2; 4]);
    registered.set_access(AccessHint::ReadOnly).expect("a hint");
    let mapped = registered.map::<u8>(&stage.stream).expect("mapped");
    assert_eq!(mapped.len(), 16);
    assert_eq!(mapped.to_vec().expect("a copy")[..4], 2i32.to_ne_bytes());
}

#[test]
fn a_level_of_a_texture_is_an_array() {
    let stage = or_skip!(stage());
    let numbers: Vec<f32> = (0..WIDTH * HEIGHT).map(|at| at as f32).collect();
    let texels: Vec<u8> = numbers.iter().flat_map(|its| its.to_ne_bytes()).collect();
    let texture = stage.texture(glow::R32F, (glow::RED, glow::FLOAT), &texels);
    let mut registered = stage.register_texture(texture, true);
    let mut mapped = registered.map::<f32>(&stage.stream, 0, 0).expect("mapped");
    assert_eq!(mapped.shape(), ArrayShape::TwoD { width: WIDTH, height: HEIGHT });
    assert_eq!(mapped.to_vec().expect("a copy"), numbers);
    let doubled: Vec<f32> = numbers.iter().map(|its| 2.0 * its).collect();
    mapped.as_mut().copy_from_slice(&doubled).expect("a copy");
    mapped.end().expect("unmapped");
    let found = stage.texels(texture, glow::RED, glow::FLOAT);
    let doubled: Vec<u8> = doubled.iter().flat_map(|its| its.to_ne_bytes()).collect();
    assert!(found == doubled);
    let refused = invalid(registered.map::<u32>(&stage.stream, 0, 0));
    assert!(matches!(refused, Invalid::Array { .. }), "{refused}");
    let half = registered.map::<f32>(&stage.stream, 0, 1).expect("mapped");
    assert_eq!(half.shape(), ArrayShape::TwoD { width: WIDTH / 2, height: HEIGHT / 2 });
}

#[test]
fn a_kernel_samples_the_levels_of_a_texture() {
    let stage = or_skip!(stage());
    let texels: Vec<u8> = 100f32.to_ne_bytes().repeat(WIDTH * HEIGHT);
    let texture = stage.texture(glow::R32F, (glow::RED, glow::FLOAT), &texels);
    let mut registered = stage.register_texture(texture, false);
    let mut mapped = registered.map_levels::<f32>(&stage.stream).expect("mapped");
    for level in 1..LEVELS {
        let mut its = mapped.level_mut(level).expect("a level");
        let texels = vec![100.0 + level as f32; its.len()];
        its.copy_from_slice(&texels).expect("a copy");
    }
    let sampler =
        Sampler { normalized_coordinates: true, max_mipmap_level: 2.0, ..Sampler::default() };
    let texture = Texture::new(&*mapped, &sampler).expect("a texture");
    type Params = (TextureObject, &'static [[f32; 4]], &'static mut [[f32; 4]], u32);
    let module = Module::from_ptx(&stage.context, include_str!("../../kernels/shapes.ptx"));
    let kernel = module.and_then(|module| module.kernel("sample_level")).expect("a kernel");
    let kernel = kernel.typed::<Params>().expect("its parameters");
    let at = [0.0, 1.0, 2.0].map(|level| [0.5, 0.5, level, 0.0]);
    let at = DeviceBuffer::from_slice(&stage.stream, &at).expect("memory");
    let mut results = DeviceBuffer::zeroed(&stage.stream, 3).expect("memory");
    let config = LaunchConfig::linear(1, 32);
    // SAFETY: the kernel reads the texture at these coordinates, and writes as many results.
    unsafe { kernel.launch(&stage.stream, config, (&texture, &at, &mut results, 3)) }
        .expect("a launch");
    let found: Vec<f32> = results.to_vec().expect("a copy").iter().map(|its| its[0]).collect();
    assert_eq!(found, [100.0, 101.0, 102.0]);
}

/// Returns an image of EGL whose texels are all the same, and which OpenGL has written.
fn image_of_egl(stage: &Stage) -> (*mut c_void, EglImage) {
    let gl = &stage.opengl.gl;
    // SAFETY: the context is current, as in all calls of this file.
    let texture = unsafe { gl.create_texture() }.expect("a texture");
    // SAFETY: as above.
    unsafe { gl.bind_texture(glow::TEXTURE_2D, Some(texture)) };
    let (width, height) = (WIDTH as i32, HEIGHT as i32);
    // An image of a texture with several levels is zero for CUDA (measured, driver 580).
    // SAFETY: as above.
    unsafe { gl.tex_storage_2d(glow::TEXTURE_2D, 1, glow::RGBA8, width, height) };
    let texels = [10, 20, 30, 40].repeat(WIDTH * HEIGHT);
    let texels = glow::PixelUnpackData::Slice(Some(&texels));
    let (format, kind) = (glow::RGBA, glow::UNSIGNED_BYTE);
    // SAFETY: the texels are those of the level.
    unsafe {
        gl.tex_sub_image_2d(glow::TEXTURE_2D, 0, 0, 0, width, height, format, kind, texels);
    }
    let image = stage.opengl.image(texture.0).expect("an image");
    stage.opengl.finish();
    // SAFETY: the image exists, and the tests order the accesses by waits.
    let registered = unsafe { EglImage::register(&stage.context, image, AccessHint::ReadWrite) };
    (image, registered.expect("registered"))
}

/// Returns the texels of an image as OpenGL reads them. (It may have a copy of those of the first texture.)
fn texels_of_egl(stage: &Stage, image: *mut c_void) -> Vec<u8> {
    let gl = &stage.opengl.gl;
    // SAFETY: the context is current.
    let texture = unsafe { gl.create_texture() }.expect("a texture");
    // SAFETY: as above.
    unsafe { gl.bind_texture(glow::TEXTURE_2D, Some(texture)) };
    stage.opengl.target(image);
    stage.texels(texture, glow::RGBA, glow::UNSIGNED_BYTE)
}

#[test]
fn a_kernel_writes_an_image_of_egl() {
    let stage = or_skip!(stage());
    let (image, registered) = image_of_egl(&stage);
    let frame = registered.frame().expect("a frame");
    assert_eq!((frame.width(), frame.height(), frame.planes()), (WIDTH, HEIGHT, 1));
    assert_eq!((frame.channels(), frame.is_pitched()), (4, false));
    // SAFETY: the test orders the accesses by waits.
    let mut array = unsafe { frame.array::<[u8; 4]>(0, &stage.stream) }.expect("an array");
    let found = array.to_vec().expect("a copy");
    assert!(found.iter().all(|its| *its == [10, 20, 30, 40]), "{:?}", found[0]);
    // The array keeps the registration.
    drop((registered, frame));
    let written: Vec<[u8; 4]> = (0..WIDTH * HEIGHT).map(|at| [at as u8, 1, 2, 255]).collect();
    array.copy_from_slice(&written).expect("a copy");
    stage.stream.synchronize().expect("a wait");
    assert!(texels_of_egl(&stage, image) == written.as_flattened());
    let mut surface = Surface::new(array.as_mut()).expect("a surface");
    let module = Module::from_ptx(&stage.context, include_str!("../../kernels/texture.ptx"));
    let kernel = module.and_then(|module| module.kernel("add_to_surface")).expect("a kernel");
    let kernel = kernel.typed::<(SurfaceObject, u32, u32, u32)>().expect("its parameters");
    let arguments = (&mut surface, WIDTH as u32, HEIGHT as u32, 0x0000_0500);
    let config = LaunchConfig::for_elements(WIDTH * HEIGHT, 128).expect("a configuration");
    // SAFETY: the surface has this extent.
    unsafe { kernel.launch(&stage.stream, config, arguments) }.expect("a launch");
    stage.stream.synchronize().expect("a wait");
    let found = texels_of_egl(&stage, image);
    assert!(found.chunks_exact(4).all(|its| its[1..] == [6, 2, 255]));
}
