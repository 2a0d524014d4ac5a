//! Memory, images and semaphores of Vulkan. Without Vulkan the tests are skipped with the reason.
//!
//! Those that need no semaphores and no images also run on Mesa's software Vulkan with the software driver: its memory is
//! a file in memory, which the software driver imports.
#![cfg(target_os = "linux")]

mod buffers;
#[path = "../../../examples/vulkan/device.rs"]
#[allow(dead_code, reason = "shared with examples")]
mod device;
mod exports;
mod frames;
mod images;
mod misuse;

use crate::{common, or_skip};
use ash::vk;
use cuda_safe::external::{ExternalMemory, ExternalMemoryOptions};
use cuda_safe::{Context, DeviceBuffer, LaunchConfig, Module, Stream, TypedKernel};
use device::{Binding, Resource, Shared, Vulkan};

/// The stage and accesses of a compute shader that changes a resource.
const COMPUTE: (vk::PipelineStageFlags, vk::AccessFlags) = (
    vk::PipelineStageFlags::COMPUTE_SHADER,
    vk::AccessFlags::from_raw(
        vk::AccessFlags::SHADER_READ.as_raw() | vk::AccessFlags::SHADER_WRITE.as_raw(),
    ),
);

/// The number of elements of the buffers.
const LEN: usize = 10_000;

/// The shader of Vulkan: `x[i] = x[i] * 3 + 1`.
const SHADER: &str = "
@group(0) @binding(0) var<storage, read_write> x: array<i32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&x)) {
        x[id.x] = x[id.x] * 3 + 1;
    }
}";

struct Stage {
    context: Context,
    stream: Stream,
    vulkan: Vulkan,
}

/// Returns the first device of CUDA, and the same one of Vulkan, or reports a skip.
#[track_caller]
fn stage() -> Option<Stage> {
    let (context, stream) = common::context_and_stream()?;
    let uuid = context.device().uuid().expect("a UUID").0;
    let opened = Vulkan::open(|id, kind| {
        id.device_uuid == uuid || (common::is_software() && kind == vk::PhysicalDeviceType::CPU)
    });
    match opened {
        Ok(vulkan) => Some(Stage { context, stream, vulkan }),
        Err(why) => {
            common::skip(&format!("needs Vulkan: {why}"));
            None
        }
    }
}

/// Returns the same if both APIs are those of a GPU.
#[track_caller]
fn gpu_stage() -> Option<Stage> {
    common::real_gpu()?;
    let stage = stage()?;
    if stage.vulkan.can_export_semaphores() {
        return Some(stage);
    }
    common::skip("this Vulkan does not export semaphores");
    None
}

impl Stage {
    /// Imports memory of Vulkan.
    fn import<R>(&self, shared: &Shared<R>, dedicated: bool) -> ExternalMemory {
        let fd = self.vulkan.export(shared.memory).expect("a descriptor");
        let options = ExternalMemoryOptions { dedicated, ..ExternalMemoryOptions::default() };
        // SAFETY: the descriptor is that of memory of this size, which is dedicated as the option says.
        unsafe { ExternalMemory::import(&self.context, fd, shared.size, options) }
            .expect("imported")
    }

    /// Maps elements of memory from an offset on.
    fn map(&self, memory: &ExternalMemory, offset: usize, len: usize) -> DeviceBuffer<i32> {
        let mapping = memory.map(offset, 4 * len).expect("mapped");
        // SAFETY: the tests order the accesses of both APIs.
        unsafe { mapping.into_buffer(&self.stream) }.expect("a buffer")
    }

    /// Returns a buffer of Vulkan with `LEN` elements, and the same memory as one of CUDA.
    fn shared(&self) -> (Shared<vk::Buffer>, DeviceBuffer<i32>) {
        let theirs = self.vulkan.buffer(4 * LEN, false).expect("a buffer");
        let ours = self.map(&self.import(&theirs, false), 0, LEN);
        (theirs, ours)
    }

    /// Records a launch of the shader between an acquire from CUDA and a release.
    fn frame(&self, buffer: vk::Buffer) -> vk::CommandBuffer {
        let vulkan = &self.vulkan;
        let shader = vulkan.compute(SHADER, &[Binding::Buffer(buffer)]).expect("a shader");
        vulkan
            .record(|commands| {
                let resource = Resource::Buffer(buffer);
                vulkan.acquire(commands, resource, COMPUTE);
                vulkan.dispatch(commands, &shader, [LEN.div_ceil(64) as u32, 1]);
                vulkan.release(commands, resource, COMPUTE);
                Ok(())
            })
            .expect("recorded")
    }
}

/// The kernel of CUDA: `x[i] = x[i] * 5 + 2`.
struct Scale(TypedKernel<(&'static mut [i32], i32, i32, u32)>);

impl Scale {
    fn new(context: &Context) -> Self {
        let module = Module::from_ptx(context, include_str!("../../kernels/vector.ptx"));
        let kernel = module.and_then(|module| module.kernel("scale")).expect("the test kernel");
        Self(kernel.typed().expect("its parameters"))
    }

    fn run(&self, stream: &Stream, x: &mut DeviceBuffer<i32>) {
        let config = LaunchConfig::for_elements(x.len(), 128).expect("a configuration");
        let len = x.len() as u32;
        // SAFETY: the kernel accesses the elements of the buffer.
        unsafe { self.0.launch(stream, config, (x, 5, 2, len)) }.expect("a launch");
    }
}

/// What the shader and then the kernel make of a value.
fn frame_of(value: i32) -> i32 {
    value.wrapping_mul(3).wrapping_add(1).wrapping_mul(5).wrapping_add(2)
}

/// Checks the elements of a buffer.
#[track_caller]
fn check(buffer: &DeviceBuffer<i32>, expected: impl Fn(usize) -> i32) {
    let found = buffer.to_vec().expect("a copy");
    let wrong = (0..found.len()).find(|at| found[*at] != expected(*at));
    if let Some(at) = wrong {
        panic!("element {at} is {}, not {}", found[at], expected(at));
    }
}
