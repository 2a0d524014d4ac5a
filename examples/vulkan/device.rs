//! Vulkan, as far as programs need it that share memory with CUDA: a device without a display, memory and semaphores that
//! are exported as file descriptors, and work on one queue.
//!
//! `interop_vulkan` and tests/gpu use this file. The objects of Vulkan have no owners here: the program destroys them, or
//! they end with its process.

use ash::{Entry, Instance, khr, vk};
use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

pub(crate) type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const OPAQUE: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;

/// A device with one queue.
pub(crate) struct Vulkan {
    pub(crate) device: ash::Device,
    pub(crate) queue: vk::Queue,
    /// The family of the queue.
    pub(crate) family: u32,
    pub(crate) name: String,
    commands: vk::CommandPool,
    memory: vk::PhysicalDeviceMemoryProperties,
    memory_fd: khr::external_memory_fd::Device,
    /// Exists if the device can export semaphores as opaque descriptors.
    semaphore_fd: Option<khr::external_semaphore_fd::Device>,
    instance: Instance,
    physical: vk::PhysicalDevice,
    /// The library, which must stay loaded.
    _entry: Entry,
}

/// Memory, with a resource that is bound at its start.
pub(crate) struct Shared<R> {
    pub(crate) resource: R,
    pub(crate) memory: vk::DeviceMemory,
    /// The size of the allocation, which an import needs.
    pub(crate) size: usize,
}

/// A compute shader with its resources.
pub(crate) struct Compute {
    pipeline: vk::Pipeline,
    layout: vk::PipelineLayout,
    set: vk::DescriptorSet,
}

/// What a compute shader accesses.
pub(crate) enum Binding {
    Buffer(vk::Buffer),
    /// A level of an image, in the layout `GENERAL`.
    Image(vk::ImageView),
}

impl Vulkan {
    /// Opens the first device that `is_it` accepts.
    pub(crate) fn open(
        is_it: impl Fn(&vk::PhysicalDeviceIDProperties<'_>, vk::PhysicalDeviceType) -> bool,
    ) -> Result<Self> {
        // SAFETY: the library is Vulkan's loader.
        let entry = unsafe { Entry::load() }?;
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: the description refers to variables, and so do those of all calls below.
        let instance = unsafe { entry.create_instance(&info, None) }?;
        // SAFETY: the instance is alive.
        let devices = unsafe { instance.enumerate_physical_devices() }?;
        let found = devices.into_iter().find_map(|physical| {
            let mut id = vk::PhysicalDeviceIDProperties::default();
            let mut its = vk::PhysicalDeviceProperties2::default().push_next(&mut id);
            // SAFETY: the device is one of the instance.
            unsafe { instance.get_physical_device_properties2(physical, &mut its) };
            let its = its.properties;
            let name = its.device_name_as_c_str().unwrap_or_default().to_string_lossy();
            is_it(&id, its.device_type).then(|| (physical, name.into_owned()))
        });
        let (physical, name) = found.ok_or("Vulkan does not have the device of CUDA")?;
        Self::of(entry, instance, physical, name)
    }

    fn of(
        entry: Entry,
        instance: Instance,
        physical: vk::PhysicalDevice,
        name: String,
    ) -> Result<Self> {
        // SAFETY: the device is one of the instance.
        let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
        let all = vk::QueueFlags::GRAPHICS | vk::QueueFlags::COMPUTE;
        let family = families.iter().position(|its| its.queue_flags.contains(all));
        let family = u32::try_from(family.ok_or("no queue for graphics")?)?;
        // SAFETY: as above.
        let known = unsafe { instance.enumerate_device_extension_properties(physical) }?;
        let has = |name: &CStr| known.iter().any(|its| its.extension_name_as_c_str() == Ok(name));
        if !has(khr::external_memory_fd::NAME) {
            return Err(format!("{name} does not export memory").into());
        }
        let exports =
            Self::exports_semaphores(&instance, physical) && has(khr::external_semaphore_fd::NAME);
        let mut names = vec![khr::external_memory_fd::NAME.as_ptr()];
        names.extend(exports.then(|| khr::external_semaphore_fd::NAME.as_ptr()));
        let queue = vk::DeviceQueueCreateInfo::default()
            .queue_family_index(family)
            .queue_priorities(&[1.0]);
        let mut timeline =
            vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
        let mut rendering =
            vk::PhysicalDeviceDynamicRenderingFeatures::default().dynamic_rendering(true);
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(std::slice::from_ref(&queue))
            .enabled_extension_names(&names)
            .push_next(&mut timeline)
            .push_next(&mut rendering);
        // SAFETY: as above.
        let device = unsafe { instance.create_device(physical, &info, None) }?;
        // SAFETY: the device was created with this queue.
        let queue = unsafe { device.get_device_queue(family, 0) };
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(family);
        // SAFETY: the device is alive, as in all calls below.
        let commands = unsafe { device.create_command_pool(&info, None) }?;
        Ok(Self {
            queue,
            family,
            name,
            commands,
            // SAFETY: the device is one of the instance.
            memory: unsafe { instance.get_physical_device_memory_properties(physical) },
            memory_fd: khr::external_memory_fd::Device::new(&instance, &device),
            semaphore_fd: exports
                .then(|| khr::external_semaphore_fd::Device::new(&instance, &device)),
            device,
            instance,
            physical,
            _entry: entry,
        })
    }

    /// Returns whether timeline semaphores can be exported.
    fn exports_semaphores(instance: &Instance, physical: vk::PhysicalDevice) -> bool {
        let mut kind =
            vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::PhysicalDeviceExternalSemaphoreInfo::default()
            .handle_type(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD)
            .push_next(&mut kind);
        let mut its = vk::ExternalSemaphoreProperties::default();
        // SAFETY: the device is one of the instance.
        unsafe {
            instance.get_physical_device_external_semaphore_properties(physical, &info, &mut its);
        }
        its.external_semaphore_features.contains(vk::ExternalSemaphoreFeatureFlags::EXPORTABLE)
    }

    pub(crate) fn can_export_semaphores(&self) -> bool {
        self.semaphore_fd.is_some()
    }

    /// Returns whether an exported image with these properties needs an allocation of its own.
    pub(crate) fn needs_dedicated(&self, info: &vk::ImageCreateInfo<'_>) -> Result<bool> {
        let mut external = vk::PhysicalDeviceExternalImageFormatInfo::default().handle_type(OPAQUE);
        let asked = vk::PhysicalDeviceImageFormatInfo2::default()
            .format(info.format)
            .ty(info.image_type)
            .tiling(info.tiling)
            .usage(info.usage)
            .push_next(&mut external);
        let mut answer = vk::ExternalImageFormatProperties::default();
        let mut its = vk::ImageFormatProperties2::default().push_next(&mut answer);
        // SAFETY: the device is one of the instance.
        unsafe {
            self.instance.get_physical_device_image_format_properties2(
                self.physical,
                &asked,
                &mut its,
            )
        }?;
        let features = answer.external_memory_properties.external_memory_features;
        if !features.contains(vk::ExternalMemoryFeatureFlags::EXPORTABLE) {
            return Err(format!("{} does not export such images", self.name).into());
        }
        Ok(features.contains(vk::ExternalMemoryFeatureFlags::DEDICATED_ONLY))
    }

    /// Returns the number of a type of memory.
    fn memory_type(&self, allowed: u32, flags: vk::MemoryPropertyFlags) -> Result<u32> {
        let types = self.memory.memory_types_as_slice();
        let found = (0..).zip(types).find(|(number, its)| {
            allowed & (1u32 << number) != 0 && its.property_flags.contains(flags)
        });
        Ok(found.ok_or("no such memory")?.0)
    }

    /// Creates a buffer without memory, which can be bound to memory that is exported.
    pub(crate) fn unbound_buffer(&self, size: usize) -> Result<vk::Buffer> {
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(OPAQUE);
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST;
        let info =
            vk::BufferCreateInfo::default().size(size as u64).usage(usage).push_next(&mut external);
        // SAFETY: the description is valid.
        Ok(unsafe { self.device.create_buffer(&info, None) }?)
    }

    /// Allocates memory that can be exported. With `dedicated`, the allocation is for that resource only.
    pub(crate) fn allocate(
        &self,
        needs: vk::MemoryRequirements,
        size: u64,
        dedicated: Option<vk::MemoryDedicatedAllocateInfo<'_>>,
    ) -> Result<vk::DeviceMemory> {
        let kind =
            self.memory_type(needs.memory_type_bits, vk::MemoryPropertyFlags::DEVICE_LOCAL)?;
        let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(OPAQUE);
        let mut dedicated = dedicated;
        let mut info = vk::MemoryAllocateInfo::default()
            .allocation_size(size)
            .memory_type_index(kind)
            .push_next(&mut export);
        if let Some(dedicated) = &mut dedicated {
            info = info.push_next(dedicated);
        }
        // SAFETY: the description is valid.
        Ok(unsafe { self.device.allocate_memory(&info, None) }?)
    }

    /// Returns what a buffer needs.
    pub(crate) fn needs_of(&self, buffer: vk::Buffer) -> vk::MemoryRequirements {
        // SAFETY: the buffer is alive.
        unsafe { self.device.get_buffer_memory_requirements(buffer) }
    }

    /// Binds a buffer to memory.
    pub(crate) fn bind(
        &self,
        buffer: vk::Buffer,
        memory: vk::DeviceMemory,
        offset: u64,
    ) -> Result<()> {
        // SAFETY: the buffer is not bound, and fits.
        Ok(unsafe { self.device.bind_buffer_memory(buffer, memory, offset) }?)
    }

    /// Creates a buffer in memory that can be exported.
    pub(crate) fn buffer(&self, size: usize, dedicated: bool) -> Result<Shared<vk::Buffer>> {
        let resource = self.unbound_buffer(size)?;
        let needs = self.needs_of(resource);
        let dedicated =
            dedicated.then(|| vk::MemoryDedicatedAllocateInfo::default().buffer(resource));
        let memory = self.allocate(needs, needs.size, dedicated)?;
        self.bind(resource, memory, 0)?;
        Ok(Shared { resource, memory, size: usize::try_from(needs.size)? })
    }

    /// Creates an image with the optimal layout in memory that can be exported.
    pub(crate) fn image(
        &self,
        info: vk::ImageCreateInfo<'_>,
        dedicated: bool,
    ) -> Result<Shared<vk::Image>> {
        let mut external = vk::ExternalMemoryImageCreateInfo::default().handle_types(OPAQUE);
        let info = info.push_next(&mut external);
        // SAFETY: the description is valid.
        let resource = unsafe { self.device.create_image(&info, None) }?;
        // SAFETY: the image is alive.
        let needs = unsafe { self.device.get_image_memory_requirements(resource) };
        let dedicated =
            dedicated.then(|| vk::MemoryDedicatedAllocateInfo::default().image(resource));
        let memory = self.allocate(needs, needs.size, dedicated)?;
        // SAFETY: the image is not bound, and the memory was allocated for it.
        unsafe { self.device.bind_image_memory(resource, memory, 0) }?;
        Ok(Shared { resource, memory, size: usize::try_from(needs.size)? })
    }

    /// Returns a new descriptor of memory.
    pub(crate) fn export(&self, memory: vk::DeviceMemory) -> Result<OwnedFd> {
        let info = vk::MemoryGetFdInfoKHR::default().memory(memory).handle_type(OPAQUE);
        // SAFETY: the memory is alive, and was allocated for this type of handle.
        let descriptor = unsafe { self.memory_fd.get_memory_fd(&info) }?;
        // SAFETY: the descriptor is new, and the caller's.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    /// Imports memory of another API, for a buffer. A success consumes the descriptor.
    pub(crate) fn import(
        &self,
        descriptor: OwnedFd,
        size: usize,
        buffer: vk::Buffer,
    ) -> Result<vk::DeviceMemory> {
        let needs = self.needs_of(buffer);
        let kind =
            self.memory_type(needs.memory_type_bits, vk::MemoryPropertyFlags::DEVICE_LOCAL)?;
        let mut import =
            vk::ImportMemoryFdInfoKHR::default().handle_type(OPAQUE).fd(descriptor.as_raw_fd());
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(size as u64)
            .memory_type_index(kind)
            .push_next(&mut import);
        // SAFETY: the description is valid, and the descriptor is open.
        let memory = unsafe { self.device.allocate_memory(&info, None) }?;
        let _consumed = descriptor.into_raw_fd();
        Ok(memory)
    }

    /// Destroys a buffer and frees its memory.
    pub(crate) fn free(&self, buffer: &Shared<vk::Buffer>) {
        // SAFETY: no work uses the buffer.
        unsafe { self.device.destroy_buffer(buffer.resource, None) };
        // SAFETY: the buffer is destroyed.
        unsafe { self.device.free_memory(buffer.memory, None) };
    }

    /// Creates a buffer that the host reads, with its memory.
    pub(crate) fn host_buffer(&self, size: usize) -> Result<Shared<vk::Buffer>> {
        let info = vk::BufferCreateInfo::default()
            .size(size as u64)
            .usage(vk::BufferUsageFlags::TRANSFER_DST);
        // SAFETY: the description is valid.
        let resource = unsafe { self.device.create_buffer(&info, None) }?;
        let needs = self.needs_of(resource);
        let flags = vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(needs.size)
            .memory_type_index(self.memory_type(needs.memory_type_bits, flags)?);
        // SAFETY: the description is valid.
        let memory = unsafe { self.device.allocate_memory(&info, None) }?;
        self.bind(resource, memory, 0)?;
        Ok(Shared { resource, memory, size })
    }

    /// Returns the bytes of a buffer that the host reads, after the work on it.
    pub(crate) fn read(&self, buffer: &Shared<vk::Buffer>) -> Result<Vec<u8>> {
        let flags = vk::MemoryMapFlags::empty();
        // SAFETY: the memory is visible for the host, and not mapped.
        let at = unsafe { self.device.map_memory(buffer.memory, 0, buffer.size as u64, flags) }?;
        // SAFETY: the memory is mapped, with this size, and no work writes it.
        let bytes = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), buffer.size) }.to_vec();
        // SAFETY: the memory is mapped, and the bytes were copied.
        unsafe { self.device.unmap_memory(buffer.memory) };
        Ok(bytes)
    }

    /// Creates a semaphore, and returns it with a descriptor. Binary ones have no initial value.
    pub(crate) fn semaphore(&self, kind: vk::SemaphoreType) -> Result<(vk::Semaphore, OwnedFd)> {
        let handle = vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD;
        let its = self.semaphore_fd.as_ref().ok_or("no semaphores are exported")?;
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(kind);
        let mut export = vk::ExportSemaphoreCreateInfo::default().handle_types(handle);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind).push_next(&mut export);
        // SAFETY: the description is valid.
        let semaphore = unsafe { self.device.create_semaphore(&info, None) }?;
        let info = vk::SemaphoreGetFdInfoKHR::default().semaphore(semaphore).handle_type(handle);
        // SAFETY: the semaphore is alive, and was created for this type of handle.
        let descriptor = unsafe { its.get_semaphore_fd(&info) }?;
        // SAFETY: the descriptor is new, and the caller's.
        Ok((semaphore, unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Creates a compute shader from WGSL, whose bindings in group 0 are these resources.
    pub(crate) fn compute(&self, wgsl: &str, bindings: &[Binding]) -> Result<Compute> {
        let types: Vec<vk::DescriptorType> = bindings
            .iter()
            .map(|its| match its {
                Binding::Buffer(_) => vk::DescriptorType::STORAGE_BUFFER,
                Binding::Image(_) => vk::DescriptorType::STORAGE_IMAGE,
            })
            .collect();
        let places: Vec<_> = (0..)
            .zip(&types)
            .map(|(number, kind)| {
                vk::DescriptorSetLayoutBinding::default()
                    .binding(number)
                    .descriptor_type(*kind)
                    .descriptor_count(1)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE)
            })
            .collect();
        let sizes: Vec<_> = types
            .iter()
            .map(|kind| vk::DescriptorPoolSize { ty: *kind, descriptor_count: 1 })
            .collect();
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&places);
        // SAFETY: the description is valid, as those of all calls below.
        let set_layout = unsafe { self.device.create_descriptor_set_layout(&info, None) }?;
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(1).pool_sizes(&sizes);
        // SAFETY: as above.
        let pool = unsafe { self.device.create_descriptor_pool(&info, None) }?;
        let info = vk::DescriptorSetAllocateInfo::default()
            .descriptor_pool(pool)
            .set_layouts(std::slice::from_ref(&set_layout));
        // SAFETY: the pool has one set of these types.
        let set = unsafe { self.device.allocate_descriptor_sets(&info) }?[0];
        for ((number, kind), binding) in (0..).zip(types).zip(bindings) {
            self.write(set, number, kind, binding);
        }
        let info =
            vk::PipelineLayoutCreateInfo::default().set_layouts(std::slice::from_ref(&set_layout));
        // SAFETY: as above.
        let layout = unsafe { self.device.create_pipeline_layout(&info, None) }?;
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(self.shader(wgsl)?)
            .name(c"main");
        let info = vk::ComputePipelineCreateInfo::default().layout(layout).stage(stage);
        let cache = vk::PipelineCache::null();
        // SAFETY: as above.
        let made = unsafe { self.device.create_compute_pipelines(cache, &[info], None) };
        let pipeline = made.map_err(|(_, error)| error)?[0];
        Ok(Compute { pipeline, layout, set })
    }

    fn write(
        &self,
        set: vk::DescriptorSet,
        number: u32,
        kind: vk::DescriptorType,
        binding: &Binding,
    ) {
        let (mut buffer, mut image) =
            (vk::DescriptorBufferInfo::default(), vk::DescriptorImageInfo::default());
        let write = vk::WriteDescriptorSet::default()
            .dst_set(set)
            .dst_binding(number)
            .descriptor_type(kind);
        let write = match *binding {
            Binding::Buffer(its) => {
                buffer = buffer.buffer(its).range(vk::WHOLE_SIZE);
                write.buffer_info(std::slice::from_ref(&buffer))
            }
            Binding::Image(its) => {
                image = image.image_view(its).image_layout(vk::ImageLayout::GENERAL);
                write.image_info(std::slice::from_ref(&image))
            }
        };
        // SAFETY: the resource is alive, and no work uses the set.
        unsafe { self.device.update_descriptor_sets(&[write], &[]) };
    }

    /// Compiles WGSL.
    pub(crate) fn shader(&self, wgsl: &str) -> Result<vk::ShaderModule> {
        use naga::back::spv;
        use naga::valid::{Capabilities, ValidationFlags, Validator};
        let module = naga::front::wgsl::parse_str(wgsl)?;
        let mut validator = Validator::new(ValidationFlags::all(), Capabilities::default());
        let info = validator.validate(&module)?;
        // Vulkan's coordinates: no changes of the position.
        let options = spv::Options { flags: spv::WriterFlags::empty(), ..spv::Options::default() };
        let code = spv::write_vec(&module, &info, &options, None)?;
        let info = vk::ShaderModuleCreateInfo::default().code(&code);
        // SAFETY: the code is valid SPIR-V.
        Ok(unsafe { self.device.create_shader_module(&info, None) }?)
    }

    /// Records commands, which can be submitted any number of times.
    pub(crate) fn record(
        &self,
        record: impl FnOnce(vk::CommandBuffer) -> Result<()>,
    ) -> Result<vk::CommandBuffer> {
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(self.commands)
            .command_buffer_count(1);
        // SAFETY: one thread uses the pool.
        let commands = unsafe { self.device.allocate_command_buffers(&info) }?[0];
        let info = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::SIMULTANEOUS_USE);
        // SAFETY: the buffer is new.
        unsafe { self.device.begin_command_buffer(commands, &info) }?;
        record(commands)?;
        // SAFETY: the buffer is being recorded.
        unsafe { self.device.end_command_buffer(commands) }?;
        Ok(commands)
    }

    /// Records a launch of a shader.
    pub(crate) fn dispatch(&self, commands: vk::CommandBuffer, shader: &Compute, groups: [u32; 2]) {
        let point = vk::PipelineBindPoint::COMPUTE;
        // SAFETY: the commands are being recorded, and the objects are alive until they are complete.
        unsafe { self.device.cmd_bind_pipeline(commands, point, shader.pipeline) };
        let (layout, sets) = (shader.layout, [shader.set]);
        // SAFETY: as above.
        unsafe { self.device.cmd_bind_descriptor_sets(commands, point, layout, 0, &sets, &[]) };
        // SAFETY: as above.
        unsafe { self.device.cmd_dispatch(commands, groups[0], groups[1], 1) };
    }

    /// Records the acquire of a resource from CUDA, before accesses of these stages.
    pub(crate) fn acquire(
        &self,
        commands: vk::CommandBuffer,
        resource: Resource,
        (stage, access): (vk::PipelineStageFlags, vk::AccessFlags),
    ) {
        let families = [vk::QUEUE_FAMILY_EXTERNAL, self.family];
        // The wait of the submission is at this stage too, so the barrier comes after it.
        self.barrier(
            commands,
            resource,
            (stage, vk::AccessFlags::empty()),
            (stage, access),
            families,
        );
    }

    /// Records the release of a resource to CUDA, after accesses of these stages.
    pub(crate) fn release(
        &self,
        commands: vk::CommandBuffer,
        resource: Resource,
        last: (vk::PipelineStageFlags, vk::AccessFlags),
    ) {
        let end = (vk::PipelineStageFlags::BOTTOM_OF_PIPE, vk::AccessFlags::empty());
        self.barrier(commands, resource, last, end, [self.family, vk::QUEUE_FAMILY_EXTERNAL]);
    }

    /// Records the first barrier of an image, whose contents are undefined before: it gets the layout `GENERAL`.
    pub(crate) fn initialize(
        &self,
        commands: vk::CommandBuffer,
        image: vk::Image,
        next: (vk::PipelineStageFlags, vk::AccessFlags),
    ) {
        let start = (vk::PipelineStageFlags::TOP_OF_PIPE, vk::AccessFlags::empty());
        let families = [vk::QUEUE_FAMILY_IGNORED; 2];
        let resource = Resource::Image(image, vk::ImageLayout::UNDEFINED);
        self.barrier(commands, resource, start, next, families);
    }

    /// Records that accesses of the queue to a resource come after others.
    pub(crate) fn order(
        &self,
        commands: vk::CommandBuffer,
        resource: Resource,
        last: (vk::PipelineStageFlags, vk::AccessFlags),
        next: (vk::PipelineStageFlags, vk::AccessFlags),
    ) {
        self.barrier(commands, resource, last, next, [vk::QUEUE_FAMILY_IGNORED; 2]);
    }

    fn barrier(
        &self,
        commands: vk::CommandBuffer,
        resource: Resource,
        (before, written): (vk::PipelineStageFlags, vk::AccessFlags),
        (after, read): (vk::PipelineStageFlags, vk::AccessFlags),
        [from, to]: [u32; 2],
    ) {
        let none = vk::DependencyFlags::empty();
        let (mut buffers, mut images) = (Vec::new(), Vec::new());
        match resource {
            Resource::Buffer(buffer) => buffers.push(
                vk::BufferMemoryBarrier::default()
                    .src_access_mask(written)
                    .dst_access_mask(read)
                    .src_queue_family_index(from)
                    .dst_queue_family_index(to)
                    .buffer(buffer)
                    .size(vk::WHOLE_SIZE),
            ),
            Resource::Image(image, layout) => images.push(
                vk::ImageMemoryBarrier::default()
                    .src_access_mask(written)
                    .dst_access_mask(read)
                    .old_layout(layout)
                    .new_layout(vk::ImageLayout::GENERAL)
                    .src_queue_family_index(from)
                    .dst_queue_family_index(to)
                    .image(image)
                    .subresource_range(levels(0, vk::REMAINING_MIP_LEVELS)),
            ),
        }
        // SAFETY: the commands are being recorded, and the resource is alive until they are complete.
        unsafe {
            self.device.cmd_pipeline_barrier(commands, before, after, none, &[], &buffers, &images);
        }
    }

    /// Submits commands after a wait for a semaphore and before a signal. Values are for timeline semaphores.
    pub(crate) fn submit(
        &self,
        commands: vk::CommandBuffer,
        wait: Option<(vk::Semaphore, u64)>,
        signal: Option<(vk::Semaphore, u64)>,
    ) -> Result<()> {
        let (waits, wait_values): (Vec<_>, Vec<_>) = wait.into_iter().unzip();
        let (signals, signal_values): (Vec<_>, Vec<_>) = signal.into_iter().unzip();
        let mut values = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&wait_values)
            .signal_semaphore_values(&signal_values);
        let stages = vec![vk::PipelineStageFlags::ALL_COMMANDS; waits.len()];
        let commands = [commands];
        let info = vk::SubmitInfo::default()
            .command_buffers(&commands)
            .wait_semaphores(&waits)
            .wait_dst_stage_mask(&stages)
            .signal_semaphores(&signals)
            .push_next(&mut values);
        // SAFETY: the commands and semaphores are alive until the work is complete.
        Ok(unsafe { self.device.queue_submit(self.queue, &[info], vk::Fence::null()) }?)
    }

    /// Submits commands and waits for them.
    pub(crate) fn run(&self, commands: vk::CommandBuffer) -> Result<()> {
        self.submit(commands, None, None)?;
        self.wait()
    }

    /// Waits for all work.
    pub(crate) fn wait(&self) -> Result<()> {
        // SAFETY: the device is alive.
        Ok(unsafe { self.device.device_wait_idle() }?)
    }

    /// Creates a view of a level of a two-dimensional image.
    pub(crate) fn view(
        &self,
        image: vk::Image,
        format: vk::Format,
        level: u32,
    ) -> Result<vk::ImageView> {
        let info = vk::ImageViewCreateInfo::default()
            .image(image)
            .view_type(vk::ImageViewType::TYPE_2D)
            .format(format)
            .subresource_range(levels(level, 1));
        // SAFETY: the image is alive.
        Ok(unsafe { self.device.create_image_view(&info, None) }?)
    }
}

/// What a barrier is for.
#[derive(Clone, Copy)]
pub(crate) enum Resource {
    Buffer(vk::Buffer),
    /// An image and its layout before.
    Image(vk::Image, vk::ImageLayout),
}

impl Resource {
    /// Returns an image in the layout that it has when CUDA uses it.
    pub(crate) fn image(image: vk::Image) -> Self {
        Self::Image(image, vk::ImageLayout::GENERAL)
    }
}

fn levels(first: u32, count: u32) -> vk::ImageSubresourceRange {
    vk::ImageSubresourceRange::default()
        .aspect_mask(vk::ImageAspectFlags::COLOR)
        .base_mip_level(first)
        .level_count(count)
        .layer_count(1)
}
