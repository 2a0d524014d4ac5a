//! Memory of CUDA that Vulkan imports.

use super::{LEN, Scale, Stage, check, frame_of, gpu_stage, or_skip};
use crate::common::child;
use cuda_safe::device::attribute;
use cuda_safe::external::{ExportedMemory, MemoryDescriptor};
use cuda_safe::memory::{DmaBufOptions, MemoryPool, MemoryPoolOptions};
use cuda_safe::virtual_memory::{PhysicalMemory, PhysicalOptions, Reservation, Shareable};
use cuda_safe::{Device, DeviceBuffer};
use std::os::fd::OwnedFd;

const SIZE: usize = 4 << 20;

#[test]
fn vulkan_imports_physical_memory() {
    let stage = or_skip!(gpu_stage());
    let Stage { context, stream, vulkan } = &stage;
    let options = PhysicalOptions::new(context.device()).shareable(Shareable::Descriptor);
    let memory = PhysicalMemory::with(SIZE, &options).expect("memory");
    let exported = ExportedMemory::of_physical(&memory).expect("exported");
    assert_eq!((exported.size, exported.dedicated), (SIZE, false));
    assert_eq!(exported.kind, MemoryDescriptor::OpaqueFd);
    let device = exported.device.expect("memory of a device");
    assert_eq!(Device::by_uuid(device).expect("known"), Some(context.device()));
    let mapping = Reservation::new(SIZE).expect("addresses").map(0, memory).expect("mapped");
    let mut ours = mapping.into_buffer::<i32>(stream).expect("a buffer");
    ours.fill(3).expect("a fill");
    stream.synchronize().expect("a wait");
    let theirs = vulkan.unbound_buffer(4 * LEN).expect("a buffer");
    let imported = vulkan.import(exported.descriptor, exported.size, theirs).expect("imported");
    vulkan.bind(theirs, imported, 0).expect("bound");
    vulkan.run(stage.frame(theirs)).expect("a frame");
    Scale::new(context).run(stream, &mut ours);
    check(&ours, |at| if at < LEN { frame_of(3) } else { 17 });
}

/// In a process of its own: after such an import, Vulkan has refused later ones that were right (driver 580).
#[test]
fn vulkan_refuses_other_descriptors_and_larger_sizes() {
    child::in_child(&[], refuse);
}

fn refuse() {
    let stage = or_skip!(gpu_stage());
    let Stage { context, stream, vulkan } = &stage;
    let import = |descriptor: OwnedFd, size| {
        let theirs = vulkan.unbound_buffer(4 * LEN).expect("a buffer");
        vulkan.import(descriptor, size, theirs).is_ok()
    };
    let options = MemoryPoolOptions { shareable: true, ..MemoryPoolOptions::default() };
    let pool = MemoryPool::new(context, options).expect("a pool");
    assert!(!import(pool.export().expect("exported"), SIZE));
    let options = PhysicalOptions::new(context.device()).shareable(Shareable::Descriptor);
    let memory = PhysicalMemory::with(SIZE, &options).expect("memory");
    assert!(!import(memory.export().expect("exported"), 2 * SIZE));
    assert!(import(memory.export().expect("exported"), SIZE / 2));
    if context.device().attribute(attribute::DMA_BUF_SUPPORTED).expect("known") {
        let buffer = DeviceBuffer::<u8>::zeroed_sync(stream, SIZE).expect("memory");
        let exported = ExportedMemory::of_range(buffer.as_slice(), DmaBufOptions::default());
        let exported = exported.expect("exported");
        assert_eq!((exported.kind, exported.size), (MemoryDescriptor::DmaBuf, SIZE));
        // It is no opaque descriptor.
        assert!(!import(exported.descriptor, SIZE));
    }
}
