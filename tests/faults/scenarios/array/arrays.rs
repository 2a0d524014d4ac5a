//! Arrays, and the textures and surfaces of kernels.

use crate::scenarios::primary_and_streams;
use crate::trace::Trace;
use cuda_safe::array::{
    Array, ArrayOptions, ArrayShape, MipmappedArray, ReadMode, Sampler, SparseArray, Surface,
    SurfaceObject, Texture, TextureObject,
};
use cuda_safe::memory::{Extent, PitchedBuffer};
use cuda_safe::{
    DeviceBuffer, LaunchConfig, Module, PinnedBuffer, Result, attempt_deferred_releases,
};

const TEXTURE: &str = include_str!("../../../kernels/texture.ptx");

const PLANE: ArrayShape = ArrayShape::TwoD { width: 4, height: 2 };

pub(crate) fn copies(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let mut plane = Array::<u32>::new(&stream, PLANE)?;
    plane.copy_from_slice(&[3; 8])?;
    let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, 8)?;
    plane.copy_to(&mut buffer)?;
    let mut second = Array::<u32>::new(&stream, PLANE)?;
    second.copy_from(&buffer)?;
    second.as_mut().copy_from_array(&plane)?;
    let pinned = PinnedBuffer::<u32>::zeroed(&context, 8)?;
    let pinned = second.as_ref().copy_to_pinned(pinned)?.synchronize()?;
    trace.drop(plane.as_mut().copy_from_pinned(pinned)?.synchronize()?);
    assert_eq!(plane.to_vec()?, [3; 8]);
    assert_eq!(plane.descriptor()?.shape, PLANE);
    let mut levels = MipmappedArray::<u32>::new(&stream, PLANE, 3)?;
    levels.level_mut(1)?.copy_from_slice(&[4; 2])?;
    assert_eq!(levels.level(1)?.to_vec()?, [4; 2]);
    let other = context.stream()?;
    plane.rebind(&other)?;
    trace.drop(levels);
    trace.drops_from_here()
}

/// Tiles that are mapped, used, unmapped, and mapped again.
pub(crate) fn sparse(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let shape = ArrayShape::TwoD { width: 300, height: 200 };
    let mut plane = SparseArray::<u32>::new(&stream, shape)?;
    let dot = Extent::new_2d(1, 1);
    plane.map([0; 3], dot)?;
    plane.part_mut([0; 3], dot)?.copy_from_slice(&[5])?;
    assert_eq!(plane.part([0; 3], dot)?.to_vec()?, [5]);
    plane.unmap([0; 3], shape.extent())?;
    plane.map([0; 3], shape.extent())?;
    let other = context.stream()?;
    plane.rebind(&other)?;
    let texture = Texture::new(plane, &Sampler::default())?;
    assert_eq!(texture.sampler()?, Sampler::default());
    trace.drops_from_here()
}

pub(crate) fn objects(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let module = Module::from_ptx(&context, TEXTURE)?;
    let options = ArrayOptions { surface: true, ..ArrayOptions::default() };
    let mut plane = Array::<u32>::with(&stream, PLANE, options)?;
    plane.copy_from_slice(&[3; 8])?;
    let mut surface = Surface::new(plane)?;
    let add = module.kernel("add_to_surface")?;
    let add = add.typed::<(SurfaceObject, u32, u32, u32)>()?;
    let config = LaunchConfig::linear(1, 8);
    // SAFETY: the kernel writes the 4 x 2 texels of the surface.
    unsafe { add.launch(&stream, config, (&mut surface, 4, 2, 1)) }?;
    stream.synchronize()?;
    let mut plane = None;
    trace.drops(|| plane = Some(surface.into_target()));
    let Some(plane) = plane else {
        return Ok(());
    };
    let texture = Texture::new(&plane, &Sampler::default())?;
    assert_eq!(texture.sampler()?, Sampler::default());
    trace.drop(texture);
    assert_eq!(plane.to_vec()?, [4; 8]);

    let buffer = DeviceBuffer::from_slice(&stream, &[1.5f32; 8])?;
    let texture = Texture::linear(buffer, ReadMode::Element)?;
    let fetch = module.kernel("fetch")?;
    let fetch = fetch.typed::<(TextureObject, i32, &mut [[f32; 4]], u32)>()?;
    let mut results = DeviceBuffer::<[f32; 4]>::zeroed(&stream, 2)?;
    // SAFETY: the kernel reads the texture and writes 2 results.
    unsafe { fetch.launch(&stream, config, (&texture, 0, &mut results, 2)) }?;
    // The launch may not be complete, so the texture is destroyed later.
    trace.drop(texture);
    trace.drops_before(|| stream.synchronize())?;
    trace.drops(|| {
        attempt_deferred_releases();
    });
    assert_eq!(results.to_vec()?[1][0], 1.5);
    let rows = PitchedBuffer::<f32>::zeroed(&stream, 4, 2)?;
    let rows = Texture::new(rows, &Sampler::default())?;
    assert_eq!(rows.sampler()?, Sampler::default());
    trace.drop(rows);
    trace.drops_from_here()
}
