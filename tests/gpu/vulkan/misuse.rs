//! Wrong uses: what this crate or the driver refuses, and what the driver accepts (measured, driver 580).

use super::{LEN, Resource, Shared, Stage, gpu_stage, images, or_skip};
use crate::common::invalid;
use ash::vk;
use cuda_safe::array::{ArrayShape, Texel};
use cuda_safe::external::{
    BinarySemaphore, ExternalMemory, ExternalMemoryOptions, ImageOptions, TimelineSemaphore,
};
use cuda_safe::{CUresult, Error, Invalid};
use std::os::fd::OwnedFd;

const INVALID_VALUE: Option<CUresult> = Some(CUresult::CUDA_ERROR_INVALID_VALUE);

/// Imports memory with a size and options that may be wrong.
fn import(stage: &Stage, descriptor: OwnedFd, size: usize, dedicated: bool) -> ExternalMemory {
    let options = ExternalMemoryOptions { dedicated, ..ExternalMemoryOptions::default() };
    // SAFETY: the promise is broken on purpose. The test accesses no bytes that are not those of the memory.
    unsafe { ExternalMemory::import(&stage.context, descriptor, size, options) }.expect("accepted")
}

fn import_timeline(stage: &Stage, descriptor: OwnedFd) -> TimelineSemaphore {
    // SAFETY: the promise is broken on purpose, or the descriptor is that of a timeline semaphore.
    unsafe { TimelineSemaphore::import(&stage.context, descriptor) }.expect("accepted")
}

fn import_binary(stage: &Stage, descriptor: OwnedFd) -> BinarySemaphore {
    // SAFETY: the promise is broken on purpose, or the descriptor is that of a binary semaphore.
    unsafe { BinarySemaphore::import(&stage.context, descriptor) }.expect("accepted")
}

#[test]
fn an_import_accepts_each_size_and_a_mapping_only_the_memory() {
    let stage = or_skip!(gpu_stage());
    let theirs = stage.vulkan.buffer(4 * LEN, false).expect("a buffer");
    let exported = || stage.vulkan.export(theirs.memory).expect("a descriptor");
    for size in [2 * theirs.size, 64 << 20, 1 << 40] {
        let memory = import(&stage, exported(), size, false);
        let error = memory.map(0, size).map(drop).expect_err("there is less memory");
        assert_eq!(error.code(), INVALID_VALUE, "{size}");
        memory.map(0, theirs.size).expect("its memory");
    }
    let memory = import(&stage, exported(), theirs.size / 2, false);
    let refused = invalid(memory.map(0, theirs.size));
    assert!(matches!(refused, Invalid::Range { .. }), "{refused}");
}

#[test]
fn whether_an_allocation_is_dedicated_is_not_checked() {
    let stage = or_skip!(gpu_stage());
    for dedicated in [false, true] {
        let theirs = stage.vulkan.buffer(4 * LEN, dedicated).expect("a buffer");
        let exported = || stage.vulkan.export(theirs.memory).expect("a descriptor");
        // The option decides what can be mapped, not the allocation.
        import(&stage, exported(), theirs.size, false).map(4096, 4096).expect("mapped");
        let memory = import(&stage, exported(), theirs.size, true);
        memory.map(0, theirs.size).expect("mapped");
        let error = memory.map(4096, 4096).map(drop).expect_err("not from its start");
        assert_eq!(error.code(), INVALID_VALUE);
    }
}

#[test]
fn descriptors_of_other_objects_are_accepted() {
    let stage = or_skip!(gpu_stage());
    let (_one, timeline) = stage.vulkan.semaphore(vk::SemaphoreType::TIMELINE).expect("made");
    let (_other, binary) = stage.vulkan.semaphore(vk::SemaphoreType::BINARY).expect("made");
    import(&stage, timeline.try_clone().expect("a duplicate"), 4096, false);
    import_binary(&stage, timeline);
    import_timeline(&stage, binary);
    // The signal of a semaphore that is memory writes its value and a time into the memory: 16 bytes.
    let (theirs, mut ours) = stage.shared();
    ours.fill(5).expect("a fill");
    let exported = || stage.vulkan.export(theirs.memory).expect("a descriptor");
    let mut binary = import_binary(&stage, exported());
    stage.stream.signal_binary(&mut binary).expect("a signal");
    let start = |ours: &cuda_safe::DeviceBuffer<i32>| {
        let words = ours.slice(..5).and_then(|its| its.to_vec()).expect("a copy");
        [words[0], words[1], words[4]]
    };
    assert_eq!(start(&ours), [1, 0, 5]);
    let mut timeline = import_timeline(&stage, exported());
    stage.stream.signal_timeline(&mut timeline, 7).expect("a signal");
    assert_eq!(start(&ours), [7, 0, 5]);
}

#[test]
fn a_value_decreases_if_two_objects_signal_it() {
    let stage = or_skip!(gpu_stage());
    let (theirs, descriptor) = stage.vulkan.semaphore(vk::SemaphoreType::TIMELINE).expect("made");
    let duplicate = descriptor.try_clone().expect("a duplicate");
    let (mut first, mut second) =
        (import_timeline(&stage, descriptor), import_timeline(&stage, duplicate));
    let value = || {
        stage.stream.synchronize().expect("a wait");
        // SAFETY: the semaphore is alive.
        unsafe { stage.vulkan.device.get_semaphore_counter_value(theirs) }.expect("a value")
    };
    stage.stream.signal_timeline(&mut first, 5).expect("a signal");
    assert_eq!(value(), 5);
    let refused = invalid(stage.stream.signal_timeline(&mut first, 5));
    assert_eq!(refused, Invalid::TimelineValue { value: 5, last: 5 });
    // The driver does not check what the other object does not know.
    stage.stream.signal_timeline(&mut second, 2).expect("a signal");
    assert_eq!(value(), 2);
}

#[test]
fn an_import_keeps_a_semaphore() {
    let stage = or_skip!(gpu_stage());
    let (theirs, descriptor) = stage.vulkan.semaphore(vk::SemaphoreType::TIMELINE).expect("made");
    let mut ours = import_timeline(&stage, descriptor);
    stage.stream.wait_timeline(&ours, 3).expect("a wait");
    // SAFETY: no work of Vulkan uses the semaphore.
    unsafe { stage.vulkan.device.destroy_semaphore(theirs, None) };
    assert!(!stage.stream.is_complete().expect("a query"));
    // A signal on the same stream would come after the wait.
    let other = stage.context.stream().expect("a stream");
    other.signal_timeline(&mut ours, 3).expect("a signal");
    stage.stream.synchronize().expect("a wait");
}

/// Maps an image with another description than its own.
fn map_as<T: Texel>(
    stage: &Stage,
    image: &Shared<vk::Image>,
    [width, height]: [usize; 2],
    levels: u32,
    offset: usize,
) -> Result<(), Error> {
    let memory =
        import(stage, stage.vulkan.export(image.memory).expect("exported"), image.size, true);
    let options = ImageOptions { offset, ..ImageOptions::default() };
    let shape = ArrayShape::TwoD { width, height };
    // SAFETY: the promise is broken on purpose. No texel is accessed.
    unsafe { memory.map_image::<T>(&stage.stream, shape, levels, options) }.map(drop)
}

#[test]
fn an_image_is_mapped_with_each_description_that_fits() {
    let stage = or_skip!(gpu_stage());
    let image = images::filled(&stage);
    let [width, height] = [images::WIDTH, images::HEIGHT];
    map_as::<f32>(&stage, &image, [height, width], 3, 0).expect("transposed");
    map_as::<f32>(&stage, &image, [width / 2, height], 3, 0).expect("smaller");
    map_as::<u8>(&stage, &image, [width, height], 3, 0).expect("of smaller texels");
    map_as::<f32>(&stage, &image, [width, height], 7, 0).expect("with more levels");
    let refused =
        |done: Result<(), Error>| assert_eq!(done.map_err(|its| its.code()), Err(INVALID_VALUE));
    refused(map_as::<[f32; 4]>(&stage, &image, [width, height], 3, 0));
    refused(map_as::<f32>(&stage, &image, [1024, 1024], 1, 0));
    refused(map_as::<f32>(&stage, &image, [width, height], 1, 512));
    for levels in [0, 8] {
        let refused = invalid(map_as::<f32>(&stage, &image, [width, height], levels, 0));
        assert!(matches!(refused, Invalid::Array { .. }), "{refused}");
    }
}

#[test]
fn an_image_in_an_allocation_that_is_not_dedicated_is_mapped() {
    let stage = or_skip!(gpu_stage());
    let info = images::description(vk::Format::R32_SFLOAT, 1, vk::ImageUsageFlags::STORAGE);
    assert!(!stage.vulkan.needs_dedicated(&info).expect("it can be exported"));
    let image = stage.vulkan.image(info, false).expect("an image");
    let clear = (vk::PipelineStageFlags::TRANSFER, vk::AccessFlags::TRANSFER_WRITE);
    let commands = stage.vulkan.record(|commands| {
        stage.vulkan.initialize(commands, image.resource, clear);
        images::clear(&stage, commands, image.resource, [2.5, 0.0, 0.0, 0.0]);
        stage.vulkan.release(commands, Resource::image(image.resource), clear);
        Ok(())
    });
    stage.vulkan.run(commands.expect("recorded")).expect("cleared");
    let memory = stage.import(&image, false);
    let shape = ArrayShape::TwoD { width: images::WIDTH, height: images::HEIGHT };
    // SAFETY: the image has this shape, and Vulkan has released it.
    let ours = unsafe { memory.map_image::<f32>(&stage.stream, shape, 1, ImageOptions::default()) };
    let ours = ours.expect("mapped");
    let texels = ours.level(0).and_then(|its| its.to_vec()).expect("a copy");
    assert!(texels.iter().all(|its| *its == 2.5));
}
