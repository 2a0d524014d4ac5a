//! A buffer that wgpu and CUDA share.

use ash::{khr, vk};
use cuda_safe::device::Uuid;
use cuda_safe::external::{ExternalMemory, ExternalMemoryOptions};
use cuda_safe::{DeviceBuffer, Stream};
use std::error::Error;
use std::os::fd::{FromRawFd, OwnedFd};
use wgpu::hal::{api, vulkan};

/// The type of the exported memory.
const OPAQUE: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;

/// Returns the UUID of an adapter of Vulkan, which is that of a device of CUDA.
pub fn uuid(adapter: &wgpu::Adapter) -> Option<Uuid> {
    // SAFETY: the adapter is not destroyed.
    let adapter = unsafe { adapter.as_hal::<api::Vulkan>() }?;
    let mut id = vk::PhysicalDeviceIDProperties::default();
    let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut id);
    let (instance, physical) = (adapter.shared_instance(), adapter.raw_physical_device());
    // SAFETY: the device is one of the instance.
    unsafe { instance.raw_instance().get_physical_device_properties2(physical, &mut all) };
    Some(Uuid(id.device_uuid))
}

/// Creates a buffer with `len` elements. The device was created with `VULKAN_EXTERNAL_MEMORY_FD`.
///
/// # Safety
/// The device of wgpu is that of the stream, or memory of the one can be imported by the other. As long as both buffers
/// exist, the host waits for the work of the one API on them before it enqueues work of the other.
pub unsafe fn create<T>(
    device: &wgpu::Device,
    stream: &Stream,
    len: usize,
) -> Result<(wgpu::Buffer, DeviceBuffer<T>), Box<dyn Error>> {
    let size = len * size_of::<T>();
    // SAFETY: the device is not destroyed.
    let hal = unsafe { device.as_hal::<api::Vulkan>() }.ok_or("not a device of Vulkan")?;
    let (raw, instance) = (hal.raw_device(), hal.shared_instance().raw_instance());

    let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(OPAQUE);
    let usage = vk::BufferUsageFlags::STORAGE_BUFFER
        | vk::BufferUsageFlags::TRANSFER_SRC
        | vk::BufferUsageFlags::TRANSFER_DST;
    let info =
        vk::BufferCreateInfo::default().size(size as u64).usage(usage).push_next(&mut external);
    // SAFETY: the description is valid.
    let buffer = unsafe { raw.create_buffer(&info, None) }?;
    // SAFETY: the buffer is alive.
    let needs = unsafe { raw.get_buffer_memory_requirements(buffer) };
    let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(OPAQUE);
    let info = vk::MemoryAllocateInfo::default()
        .allocation_size(needs.size)
        .memory_type_index(memory_type(instance, hal.raw_physical_device(), &needs)?)
        .push_next(&mut export);
    // SAFETY: the description is valid.
    let memory = unsafe { raw.allocate_memory(&info, None) }?;
    // SAFETY: the buffer is not bound, and the memory is large enough.
    unsafe { raw.bind_buffer_memory(buffer, memory, 0) }?;
    let info = vk::MemoryGetFdInfoKHR::default().memory(memory).handle_type(OPAQUE);
    let exporter = khr::external_memory_fd::Device::new(instance, raw);
    // SAFETY: the memory was allocated for this type of handle, and the device has the extension.
    let descriptor = unsafe { exporter.get_memory_fd(&info) }?;
    // SAFETY: the descriptor is new.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };

    let options = ExternalMemoryOptions::default();
    let whole = usize::try_from(needs.size)?;
    // SAFETY: the descriptor is that of memory of this size, which is not dedicated.
    let imported = unsafe { ExternalMemory::import(stream.context(), descriptor, whole, options) }?;
    let mapping = imported.map(0, size)?;
    // SAFETY: the caller promises the order of accesses.
    let ours = unsafe { mapping.into_buffer(stream) }?;

    // SAFETY: no other code uses the buffer and the memory. wgpu destroys both.
    let theirs = unsafe { vulkan::Buffer::from_raw_managed(buffer, memory, 0, needs.size) };
    drop(hal);
    let description = wgpu::BufferDescriptor {
        label: Some("shared with CUDA"),
        size: size as u64,
        usage: wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_SRC
            | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    };
    // SAFETY: the buffer is one of the device, and has this size and these uses.
    let theirs = unsafe { device.create_buffer_from_hal::<api::Vulkan>(theirs, &description) };
    Ok((theirs, ours))
}

fn memory_type(
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
    needs: &vk::MemoryRequirements,
) -> Result<u32, Box<dyn Error>> {
    // SAFETY: the device is one of the instance.
    let memory = unsafe { instance.get_physical_device_memory_properties(physical) };
    let local = vk::MemoryPropertyFlags::DEVICE_LOCAL;
    let found = (0..).zip(memory.memory_types_as_slice()).find(|(number, its)| {
        needs.memory_type_bits & (1u32 << number) != 0 && its.property_flags.contains(local)
    });
    Ok(found.ok_or("no memory of the device")?.0)
}
