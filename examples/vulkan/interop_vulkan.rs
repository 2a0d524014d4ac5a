//! How do Vulkan and CUDA share a picture? Vulkan renders it without a display, CUDA blurs it, and a PNG is written.
//!
//! `cargo run -p vulkan-examples --example interop_vulkan [FILE]`, with `-- --sim PROFILE` on the software driver.
//!
//! The picture stays on the GPU: it is in memory of Vulkan that CUDA has imported, and a timeline semaphore orders the work
//! of both. To sample an image directly, as a texture, see `tests/gpu/vulkan/images.rs`.
//!
//! Without a GPU, Mesa's software Vulkan (`mesa-vulkan-drivers`) and the software driver of this project share the buffer:
//! Mesa exports memory as a file. Mesa exports no semaphores, so the host waits between the two. Its images have a layout
//! of their own, so CUDA could not map one.

#[allow(dead_code, reason = "shared with tests")]
mod device;
#[path = "../support/mod.rs"]
mod support;

use ash::vk;
use cuda_safe::external::{ExternalMemory, ExternalMemoryOptions, TimelineSemaphore};
use cuda_safe::{Context, Device, DeviceBuffer, LaunchConfig, Module, Stream};
use device::{Resource, Result, Shared, Vulkan};
use std::process::ExitCode;

const WIDTH: u32 = 640;
const HEIGHT: u32 = 480;
const RADIUS: u32 = 6;
const PIXELS: usize = (WIDTH * HEIGHT) as usize;

/// Rings with hard edges.
const SHADERS: &str = "
@vertex
fn corner(@builtin(vertex_index) index: u32) -> @builtin(position) vec4<f32> {
    // A triangle that covers the picture.
    return vec4<f32>(f32(index & 1u) * 4.0 - 1.0, f32(index >> 1u) * 4.0 - 1.0, 0.0, 1.0);
}

@fragment
fn color(@builtin(position) at: vec4<f32>) -> @location(0) vec4<f32> {
    let from_center = length(at.xy - vec2<f32>(320.0, 240.0));
    let ring = u32(from_center / 30.0);
    let shade = at.xy / vec2<f32>(640.0, 480.0);
    if ring % 2u == 0u {
        return vec4<f32>(shade.x, 0.2, shade.y, 1.0);
    }
    return vec4<f32>(1.0, 1.0, 1.0, 1.0);
}";

const DRAW: (vk::PipelineStageFlags, vk::AccessFlags) =
    (vk::PipelineStageFlags::COLOR_ATTACHMENT_OUTPUT, vk::AccessFlags::COLOR_ATTACHMENT_WRITE);
const READ: (vk::PipelineStageFlags, vk::AccessFlags) =
    (vk::PipelineStageFlags::TRANSFER, vk::AccessFlags::TRANSFER_READ);
const WRITE: (vk::PipelineStageFlags, vk::AccessFlags) =
    (vk::PipelineStageFlags::TRANSFER, vk::AccessFlags::TRANSFER_WRITE);

fn main() -> ExitCode {
    support::main(run)
}

fn run() -> Result<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let sim = support::take_sim(&mut arguments)?;
    let software = support::choose(sim.as_deref())?;
    if let Some(line) = &software {
        support::say(line, false);
    }
    let file = arguments.first().map_or("interop_vulkan.png", String::as_str);

    let context = Context::primary(&Device::get(0)?)?;
    let stream = context.stream()?;
    let uuid = context.device().uuid()?;
    let vulkan = Vulkan::open(|id, kind| match software {
        // The software driver shares memory with a Vulkan on the CPU.
        Some(_) => kind == vk::PhysicalDeviceType::CPU,
        None => id.device_uuid == uuid.0,
    })?;

    let picture = vulkan.buffer(4 * PIXELS, false)?;
    let rendered = submit(&vulkan, &picture, &context)?;
    let blurred = blur(&vulkan, &picture, rendered, &stream)?;
    write(file, &blurred)?;
    println!("{file}: rendered by {}, blurred by {}", vulkan.name, context.device().name()?);
    Ok(())
}

/// Submits the rendering of the picture. Returns the semaphore that is 1 when Vulkan has released the buffer, or waits for
/// that and returns `None`.
fn submit(
    vulkan: &Vulkan,
    picture: &Shared<vk::Buffer>,
    context: &Context,
) -> Result<Option<TimelineSemaphore>> {
    let commands = render(vulkan, picture.resource)?;
    if !vulkan.can_export_semaphores() {
        vulkan.run(commands)?;
        return Ok(None);
    }
    let (semaphore, descriptor) = vulkan.semaphore(vk::SemaphoreType::TIMELINE)?;
    // SAFETY: the descriptor is that of a timeline semaphore of this device.
    let imported = unsafe { TimelineSemaphore::import(context, descriptor) }?;
    vulkan.submit(commands, None, Some((semaphore, 1)))?;
    Ok(Some(imported))
}

/// Blurs the picture with CUDA.
fn blur(
    vulkan: &Vulkan,
    picture: &Shared<vk::Buffer>,
    rendered: Option<TimelineSemaphore>,
    stream: &Stream,
) -> Result<Vec<u32>> {
    let context = stream.context();
    let (descriptor, options) = (vulkan.export(picture.memory)?, ExternalMemoryOptions::default());
    // SAFETY: the descriptor is that of memory of this device with this size, which is not dedicated.
    let memory = unsafe { ExternalMemory::import(context, descriptor, picture.size, options) }?;
    let mapping = memory.map(0, 4 * PIXELS)?;
    // SAFETY: Vulkan accesses the buffer before the semaphore is signaled or the host has waited, and not afterwards.
    let picture = unsafe { mapping.into_buffer::<u32>(stream) }?;
    let mut blurred = DeviceBuffer::<u32>::zeroed(stream, PIXELS)?;
    let kernel = Module::from_ptx(context, include_str!("blur.ptx"))?.kernel("blur")?;
    let kernel = kernel.typed::<(&[u32], &mut [u32], u32, u32, u32)>()?;
    let config = LaunchConfig::new([WIDTH.div_ceil(16), HEIGHT.div_ceil(16), 1], [16, 16, 1]);
    if let Some(rendered) = &rendered {
        stream.wait_timeline(rendered, 1)?;
    }
    // SAFETY: the kernel reads and writes a picture with this extent, which each of the buffers has.
    unsafe { kernel.launch(stream, config, (&picture, &mut blurred, WIDTH, HEIGHT, RADIUS)) }?;
    Ok(blurred.to_vec()?)
}

fn write(file: &str, pixels: &[u32]) -> Result<()> {
    let bytes: Vec<u8> = pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
    let mut encoder = png::Encoder::new(std::fs::File::create(file)?, WIDTH, HEIGHT);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(&bytes)?;
    Ok(())
}

/// Records the rendering of the picture into an image, a copy into the buffer, and its release to CUDA.
fn render(vulkan: &Vulkan, picture: vk::Buffer) -> Result<vk::CommandBuffer> {
    let format = vk::Format::R8G8B8A8_UNORM;
    let extent = vk::Extent3D { width: WIDTH, height: HEIGHT, depth: 1 };
    let info = vk::ImageCreateInfo::default()
        .image_type(vk::ImageType::TYPE_2D)
        .format(format)
        .extent(extent)
        .mip_levels(1)
        .array_layers(1)
        .samples(vk::SampleCountFlags::TYPE_1)
        .tiling(vk::ImageTiling::OPTIMAL)
        .usage(vk::ImageUsageFlags::COLOR_ATTACHMENT | vk::ImageUsageFlags::TRANSFER_SRC);
    let image = vulkan.image(info, vulkan.needs_dedicated(&info)?)?.resource;
    let view = vulkan.view(image, format, 0)?;
    let pipeline = pipeline(vulkan, format)?;
    let area =
        vk::Rect2D { extent: vk::Extent2D { width: WIDTH, height: HEIGHT }, ..Default::default() };
    vulkan.record(|commands| {
        let device = &vulkan.device;
        vulkan.initialize(commands, image, DRAW);
        let target = vk::RenderingAttachmentInfo::default()
            .image_view(view)
            .image_layout(vk::ImageLayout::GENERAL)
            .load_op(vk::AttachmentLoadOp::DONT_CARE)
            .store_op(vk::AttachmentStoreOp::STORE);
        let rendering = vk::RenderingInfo::default()
            .render_area(area)
            .layer_count(1)
            .color_attachments(std::slice::from_ref(&target));
        // SAFETY: the commands are being recorded, and the objects live until the process ends, as below.
        unsafe { device.cmd_begin_rendering(commands, &rendering) };
        // SAFETY: as above.
        unsafe { device.cmd_bind_pipeline(commands, vk::PipelineBindPoint::GRAPHICS, pipeline) };
        // SAFETY: as above. The shaders read no vertices.
        unsafe { device.cmd_draw(commands, 3, 1, 0, 0) };
        // SAFETY: as above.
        unsafe { device.cmd_end_rendering(commands) };
        vulkan.order(commands, Resource::image(image), DRAW, READ);
        let layers = vk::ImageSubresourceLayers::default()
            .aspect_mask(vk::ImageAspectFlags::COLOR)
            .layer_count(1);
        let region = vk::BufferImageCopy::default().image_subresource(layers).image_extent(extent);
        let layout = vk::ImageLayout::GENERAL;
        // SAFETY: as above, and the buffer has the size of the picture.
        unsafe { device.cmd_copy_image_to_buffer(commands, image, layout, picture, &[region]) };
        vulkan.release(commands, Resource::Buffer(picture), WRITE);
        Ok(())
    })
}

/// Creates the pipeline that draws the triangle.
fn pipeline(vulkan: &Vulkan, format: vk::Format) -> Result<vk::Pipeline> {
    let module = vulkan.shader(SHADERS)?;
    let stage = |stage, name| {
        vk::PipelineShaderStageCreateInfo::default().stage(stage).module(module).name(name)
    };
    let stages = [
        stage(vk::ShaderStageFlags::VERTEX, c"corner"),
        stage(vk::ShaderStageFlags::FRAGMENT, c"color"),
    ];
    let vertices = vk::PipelineVertexInputStateCreateInfo::default();
    let triangles = vk::PipelineInputAssemblyStateCreateInfo::default()
        .topology(vk::PrimitiveTopology::TRIANGLE_LIST);
    let viewport =
        [vk::Viewport::default().width(WIDTH as f32).height(HEIGHT as f32).max_depth(1.0)];
    let scissor = [vk::Rect2D::default().extent(vk::Extent2D { width: WIDTH, height: HEIGHT })];
    let viewport =
        vk::PipelineViewportStateCreateInfo::default().viewports(&viewport).scissors(&scissor);
    let raster = vk::PipelineRasterizationStateCreateInfo::default()
        .polygon_mode(vk::PolygonMode::FILL)
        .cull_mode(vk::CullModeFlags::NONE)
        .line_width(1.0);
    let samples = vk::PipelineMultisampleStateCreateInfo::default()
        .rasterization_samples(vk::SampleCountFlags::TYPE_1);
    let blend = [vk::PipelineColorBlendAttachmentState::default()
        .color_write_mask(vk::ColorComponentFlags::RGBA)];
    let blend = vk::PipelineColorBlendStateCreateInfo::default().attachments(&blend);
    let formats = [format];
    let mut rendering =
        vk::PipelineRenderingCreateInfo::default().color_attachment_formats(&formats);
    let layout = vk::PipelineLayoutCreateInfo::default();
    // SAFETY: the device is alive, and the descriptions refer to variables.
    let layout = unsafe { vulkan.device.create_pipeline_layout(&layout, None) }?;
    let info = vk::GraphicsPipelineCreateInfo::default()
        .stages(&stages)
        .vertex_input_state(&vertices)
        .input_assembly_state(&triangles)
        .viewport_state(&viewport)
        .rasterization_state(&raster)
        .multisample_state(&samples)
        .color_blend_state(&blend)
        .layout(layout)
        .push_next(&mut rendering);
    let cache = vk::PipelineCache::null();
    // SAFETY: as above.
    let made = unsafe { vulkan.device.create_graphics_pipelines(cache, &[info], None) };
    Ok(made.map_err(|(_, error)| error)?[0])
}
