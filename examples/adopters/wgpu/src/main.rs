//! A buffer of wgpu that is a `DeviceBuffer` and a DLPack tensor too: see README.md.

mod shared;

use cuda_safe::interop::dlpack::ManagedTensor;
use cuda_safe::{Context, Device, Error, LaunchConfig, Module};

const LEN: usize = 1 << 16;

/// Fills the buffer with 0, 1, 2, …
const SHADER: &str = "
@group(0) @binding(0) var<storage, read_write> x: array<i32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    x[id.x] = i32(id.x);
}";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let is_software = match Device::count() {
        Err(Error::Load(_)) => {
            cuda_sim::install(cuda_sim::Profile::h200())?;
            true
        }
        other => other.map(|_| false)?,
    };
    let context = Context::primary(&Device::get(0)?)?;
    let stream = context.stream()?;
    let (device, queue) = open(&context, is_software)?;

    // SAFETY: the devices match, and the host waits below.
    let (theirs, mut ours) = unsafe { shared::create::<i32>(&device, &stream, LEN) }?;
    fill(&device, &queue, &theirs);
    device.poll(wgpu::PollType::wait_indefinitely())?;

    // The kernel of CUDA: x[i] = x[i] * 2 + 1.
    let ptx = include_str!("../../../../tests/kernels/vector.ptx");
    let scale = Module::from_ptx(&context, ptx)?.kernel("scale")?;
    let scale = scale.typed::<(&mut [i32], i32, i32, u32)>()?;
    let config = LaunchConfig::for_elements(LEN, 256)?;
    // SAFETY: the kernel changes the elements of the buffer.
    unsafe { scale.launch(&stream, config, (&mut ours, 2, 1, LEN as u32)) }?;
    stream.synchronize()?;

    let read = read(&device, &queue, &theirs)?;
    assert!((0..).zip(&read).all(|(index, value)| *value == 2 * index + 1));
    println!("wgpu reads {:?}, … of {LEN} elements", &read[..4]);

    // What `__dlpack__` returns to PyTorch. The tensor owns the mapping, and so the memory.
    let address = ours.as_raw();
    let tensor = ours.into_dlpack()?.into_raw_versioned();
    drop(theirs);
    // SAFETY: no other code has the pointer.
    let tensor = unsafe { ManagedTensor::from_raw_versioned(tensor.as_ptr()) }?;
    println!("DLPack: {tensor:?}");
    assert_ne!(address, 0);
    Ok(())
}

/// Opens the device of wgpu that is the device of CUDA. The software driver shares memory with a Vulkan on the CPU.
fn open(
    context: &Context,
    is_software: bool,
) -> Result<(wgpu::Device, wgpu::Queue), Box<dyn std::error::Error>> {
    let wanted = context.device().uuid()?;
    let instance = wgpu::Instance::default();
    let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::VULKAN));
    let adapter = adapters.into_iter().find(|adapter| match is_software {
        true => adapter.get_info().device_type == wgpu::DeviceType::Cpu,
        false => shared::uuid(adapter) == Some(wanted),
    });
    let adapter = adapter.ok_or("Vulkan does not have the device of CUDA")?;
    let description = wgpu::DeviceDescriptor {
        required_features: wgpu::Features::VULKAN_EXTERNAL_MEMORY_FD,
        ..Default::default()
    };
    Ok(pollster::block_on(adapter.request_device(&description))?)
}

/// Submits the shader.
fn fill(device: &wgpu::Device, queue: &wgpu::Queue, buffer: &wgpu::Buffer) {
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(SHADER.into()),
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: None,
        compilation_options: Default::default(),
        cache: None,
    });
    let bindings = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[wgpu::BindGroupEntry { binding: 0, resource: buffer.as_entire_binding() }],
    });
    let mut encoder = device.create_command_encoder(&Default::default());
    let mut pass = encoder.begin_compute_pass(&Default::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &bindings, &[]);
    pass.dispatch_workgroups(LEN as u32 / 64, 1, 1);
    drop(pass);
    queue.submit([encoder.finish()]);
}

/// Reads a buffer with wgpu.
fn read(
    device: &wgpu::Device,
    queue: &wgpu::Queue,
    buffer: &wgpu::Buffer,
) -> Result<Vec<i32>, Box<dyn std::error::Error>> {
    let staging = device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: buffer.size(),
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let mut encoder = device.create_command_encoder(&Default::default());
    encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, buffer.size());
    queue.submit([encoder.finish()]);
    staging.map_async(wgpu::MapMode::Read, .., |_| ());
    device.poll(wgpu::PollType::wait_indefinitely())?;
    let bytes = staging.get_mapped_range(..)?;
    Ok(bytes
        .chunks_exact(4)
        .filter_map(|its| Some(i32::from_le_bytes(its.try_into().ok()?)))
        .collect())
}
