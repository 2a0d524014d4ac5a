//! Images of Vulkan as mipmapped arrays.

use super::{Binding, COMPUTE, Resource, Shared, Stage, gpu_stage, or_skip};
use ash::vk;
use cuda_safe::array::{
    ArrayOptions, ArrayShape, MipmappedArray, Sampler, Surface, SurfaceObject, Texel, Texture,
    TextureObject,
};
use cuda_safe::external::ImageOptions;
use cuda_safe::{DeviceBuffer, LaunchConfig, Module};

pub(super) const WIDTH: usize = 64;
pub(super) const HEIGHT: usize = 32;
const SHAPE: ArrayShape = ArrayShape::TwoD { width: WIDTH, height: HEIGHT };
const LEVELS: u32 = 3;

/// Fills a level: 100 for each row, and 1 for each column.
const FILL: &str = "
@group(0) @binding(0) var level: texture_storage_2d<r32float, write>;

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let size = textureDimensions(level);
    if (id.x < size.x && id.y < size.y) {
        let value = f32(size.x) * 10000.0 + f32(id.y) * 100.0 + f32(id.x);
        textureStore(level, vec2<i32>(id.xy), vec4<f32>(value, 0.0, 0.0, 0.0));
    }
}";

/// What `FILL` stores.
fn value(width: usize, x: usize, y: usize) -> f32 {
    width as f32 * 10000.0 + y as f32 * 100.0 + x as f32
}

/// Describes an image with the optimal layout.
pub(super) fn description(
    format: vk::Format,
    levels: u32,
    usage: vk::ImageUsageFlags,
) -> vk::ImageCreateInfo<'static> {
    vk::ImageCreateInfo::default()
        .image_type(vk::ImageType::TYPE_2D)
        .format(format)
        .extent(vk::Extent3D { width: WIDTH as u32, height: HEIGHT as u32, depth: 1 })
        .mip_levels(levels)
        .array_layers(1)
        .samples(vk::SampleCountFlags::TYPE_1)
        .tiling(vk::ImageTiling::OPTIMAL)
        .usage(usage | vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST)
        .initial_layout(vk::ImageLayout::UNDEFINED)
}

/// Maps an image of Vulkan.
fn map<T: Texel>(
    stage: &Stage,
    image: &Shared<vk::Image>,
    levels: u32,
    color_attachment: bool,
) -> MipmappedArray<T> {
    let memory = stage.import(image, true);
    let array = ArrayOptions { surface: true, ..ArrayOptions::default() };
    let options = ImageOptions { array, color_attachment, ..ImageOptions::default() };
    // SAFETY: the image has these properties, and the test orders its accesses.
    unsafe { memory.map_image(&stage.stream, SHAPE, levels, options) }.expect("an image")
}

/// Returns the texels of a level, as Vulkan reads them after an acquire.
fn read(stage: &Stage, image: vk::Image, level: u32, texel: usize) -> Vec<u8> {
    let (width, height) = (WIDTH >> level, HEIGHT >> level);
    let copied = stage.vulkan.host_buffer(width * height * texel).expect("a buffer");
    let vulkan = &stage.vulkan;
    let copy = (vk::PipelineStageFlags::TRANSFER, vk::AccessFlags::TRANSFER_READ);
    let commands = vulkan.record(|commands| {
        vulkan.acquire(commands, Resource::image(image), copy);
        let layers = vk::ImageSubresourceLayers::default()
            .aspect_mask(vk::ImageAspectFlags::COLOR)
            .mip_level(level)
            .layer_count(1);
        let extent = vk::Extent3D { width: width as u32, height: height as u32, depth: 1 };
        let region = vk::BufferImageCopy::default().image_subresource(layers).image_extent(extent);
        let (layout, to) = (vk::ImageLayout::GENERAL, copied.resource);
        // SAFETY: the commands are being recorded, and the objects are alive.
        unsafe { vulkan.device.cmd_copy_image_to_buffer(commands, image, layout, to, &[region]) };
        vulkan.release(commands, Resource::image(image), copy);
        Ok(())
    });
    vulkan.run(commands.expect("recorded")).expect("a copy");
    vulkan.read(&copied).expect("the texels")
}

/// Returns an image whose levels `FILL` has filled, and which Vulkan has released.
pub(super) fn filled(stage: &Stage) -> Shared<vk::Image> {
    let vulkan = &stage.vulkan;
    let info = description(vk::Format::R32_SFLOAT, LEVELS, vk::ImageUsageFlags::STORAGE);
    let image = vulkan.image(info, true).expect("an image");
    let commands = vulkan.record(|commands| {
        vulkan.initialize(commands, image.resource, COMPUTE);
        for level in 0..LEVELS {
            let view = vulkan.view(image.resource, vk::Format::R32_SFLOAT, level)?;
            let shader = vulkan.compute(FILL, &[Binding::Image(view)])?;
            vulkan.dispatch(commands, &shader, [WIDTH as u32 / 8, HEIGHT as u32 / 8]);
        }
        vulkan.release(commands, Resource::image(image.resource), COMPUTE);
        Ok(())
    });
    vulkan.run(commands.expect("recorded")).expect("filled");
    image
}

/// Records that the first level of an image gets a color.
pub(super) fn clear(stage: &Stage, commands: vk::CommandBuffer, image: vk::Image, color: [f32; 4]) {
    let color = vk::ClearColorValue { float32: color };
    let range = vk::ImageSubresourceRange::default()
        .aspect_mask(vk::ImageAspectFlags::COLOR)
        .level_count(1)
        .layer_count(1);
    let (device, layout) = (&stage.vulkan.device, vk::ImageLayout::GENERAL);
    // SAFETY: the commands are being recorded, and the image is alive.
    unsafe { device.cmd_clear_color_image(commands, image, layout, &color, &[range]) };
}

#[test]
fn levels_have_the_texels_of_the_image() {
    let stage = or_skip!(gpu_stage());
    let image = filled(&stage);
    let mut ours = map::<f32>(&stage, &image, LEVELS, false);
    assert_eq!((ours.levels(), ours.shape()), (LEVELS, SHAPE));
    for level in 0..LEVELS {
        let (width, height) = (WIDTH >> level, HEIGHT >> level);
        let expected: Vec<f32> =
            (0..width * height).map(|at| value(width, at % width, at / width)).collect();
        let found = ours.level(level).expect("a level").to_vec().expect("a copy");
        assert_eq!(found, expected, "level {level}");
    }
    let texels: Vec<f32> = (0..WIDTH * HEIGHT / 4).map(|at| at as f32 * 0.5).collect();
    ours.level_mut(1).expect("a level").copy_from_slice(&texels).expect("a copy");
    stage.stream.synchronize().expect("a wait");
    let bytes = read(&stage, image.resource, 1, 4);
    let found: Vec<f32> =
        bytes.chunks_exact(4).map(|its| f32::from_le_bytes(its.try_into().expect("4"))).collect();
    assert_eq!(found, texels);
}

#[test]
fn a_texture_samples_the_levels_of_an_image() {
    let stage = or_skip!(gpu_stage());
    let image = filled(&stage);
    let ours = map::<f32>(&stage, &image, LEVELS, false);
    let sampler =
        Sampler { normalized_coordinates: true, max_mipmap_level: 2.0, ..Sampler::default() };
    let texture = Texture::new(&ours, &sampler).expect("a texture");
    let points: Vec<(u32, usize, usize)> =
        vec![(0, 0, 0), (0, 63, 31), (0, 17, 5), (1, 31, 15), (1, 3, 9), (2, 15, 7), (2, 2, 6)];
    let center = |at: usize, len: usize| (at as f32 + 0.5) / len as f32;
    let at: Vec<[f32; 4]> = points
        .iter()
        .map(|&(level, x, y)| {
            [center(x, WIDTH >> level), center(y, HEIGHT >> level), level as f32, 0.0]
        })
        .collect();
    type Params = (TextureObject, &'static [[f32; 4]], &'static mut [[f32; 4]], u32);
    let module = Module::from_ptx(&stage.context, include_str!("../../kernels/shapes.ptx"));
    let kernel = module.and_then(|module| module.kernel("sample_level")).expect("a kernel");
    let kernel = kernel.typed::<Params>().expect("its parameters");
    let at = DeviceBuffer::from_slice(&stage.stream, &at).expect("memory");
    let mut results = DeviceBuffer::zeroed(&stage.stream, at.len()).expect("memory");
    let arguments = (&texture, &at, &mut results, at.len() as u32);
    // SAFETY: the kernel reads the texture at these coordinates, and writes as many results.
    unsafe { kernel.launch(&stage.stream, LaunchConfig::linear(1, 32), arguments) }
        .expect("a launch");
    let found: Vec<f32> = results.to_vec().expect("the results").iter().map(|its| its[0]).collect();
    let expected: Vec<f32> =
        points.iter().map(|&(level, x, y)| value(WIDTH >> level, x, y)).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_kernel_writes_an_image_that_vulkan_rendered_to() {
    let stage = or_skip!(gpu_stage());
    let vulkan = &stage.vulkan;
    let usage = vk::ImageUsageFlags::COLOR_ATTACHMENT;
    let info = description(vk::Format::R8G8B8A8_UNORM, 1, usage);
    let image = vulkan.image(info, true).expect("an image");
    let fill = (vk::PipelineStageFlags::TRANSFER, vk::AccessFlags::TRANSFER_WRITE);
    let commands = vulkan.record(|commands| {
        vulkan.initialize(commands, image.resource, fill);
        clear(&stage, commands, image.resource, [0.2, 0.4, 0.6, 1.0]);
        vulkan.release(commands, Resource::image(image.resource), fill);
        Ok(())
    });
    vulkan.run(commands.expect("recorded")).expect("cleared");
    let mut ours = map::<[u8; 4]>(&stage, &image, 1, true);
    let found = ours.level(0).expect("a level").to_vec().expect("a copy");
    assert!(found.iter().all(|its| *its == [51, 102, 153, 255]));
    let mut surface = Surface::new(ours.level_mut(0).expect("a level")).expect("a surface");
    let module = Module::from_ptx(&stage.context, include_str!("../../kernels/texture.ptx"));
    let kernel = module.and_then(|module| module.kernel("add_to_surface")).expect("a kernel");
    let kernel = kernel.typed::<(SurfaceObject, u32, u32, u32)>().expect("its parameters");
    let arguments = (&mut surface, WIDTH as u32, HEIGHT as u32, 0x0004_0302);
    let config = LaunchConfig::for_elements(WIDTH * HEIGHT, 128).expect("a configuration");
    // SAFETY: the surface has this extent.
    unsafe { kernel.launch(&stage.stream, config, arguments) }.expect("a launch");
    stage.stream.synchronize().expect("a wait");
    let bytes = read(&stage, image.resource, 0, 4);
    assert!(bytes.chunks_exact(4).all(|its| its == [53, 105, 157, 255]));
}
