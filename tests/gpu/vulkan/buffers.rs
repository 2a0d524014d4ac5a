//! Buffers of Vulkan, ordered by the host.

use super::{
    ExternalMemory, ExternalMemoryOptions, LEN, Resource, Scale, check, frame_of, or_skip, stage,
};
use cuda_safe::Invalid;

#[test]
fn a_shader_and_a_kernel_change_a_buffer_in_turn() {
    let stage = or_skip!(stage());
    for dedicated in [false, true] {
        let theirs = stage.vulkan.buffer(4 * LEN, dedicated).expect("a buffer");
        let mut ours = stage.map(&stage.import(&theirs, dedicated), 0, LEN);
        let frame = stage.frame(theirs.resource);
        let scale = Scale::new(&stage.context);
        ours.copy_from_slice(&numbers()).expect("a copy");
        for _ in 0..3 {
            stage.stream.synchronize().expect("a wait");
            stage.vulkan.run(frame).expect("a frame");
            scale.run(&stage.stream, &mut ours);
        }
        let expected: Vec<i32> =
            numbers().into_iter().map(|its| frame_of(frame_of(frame_of(its)))).collect();
        check(&ours, |at| expected[at]);
    }
}

fn numbers() -> Vec<i32> {
    (0..LEN as i32).collect()
}

#[test]
fn two_buffers_of_an_allocation_are_mapped_at_their_offsets() {
    let stage = or_skip!(stage());
    let vulkan = &stage.vulkan;
    let [first, second] = [0, 1].map(|_| vulkan.unbound_buffer(4 * LEN).expect("a buffer"));
    let needs = vulkan.needs_of(second);
    let offset = needs.size.next_multiple_of(needs.alignment);
    let size = offset + needs.size;
    let memory = vulkan.allocate(needs, size, None).expect("memory");
    vulkan.bind(first, memory, 0).expect("bound");
    vulkan.bind(second, memory, offset).expect("bound");
    let both = super::Shared { resource: (), memory, size: size as usize };
    let imported = stage.import(&both, false);
    let mut ours = stage.map(&imported, offset as usize, LEN);
    ours.fill(7).expect("a fill");
    stage.stream.synchronize().expect("a wait");
    // The shader changes the first buffer only.
    let zero = vulkan
        .record(|commands| {
            let all = ash::vk::WHOLE_SIZE;
            // SAFETY: the commands are being recorded, and the buffer is alive.
            unsafe { vulkan.device.cmd_fill_buffer(commands, first, 0, all, 0) };
            let copy =
                (ash::vk::PipelineStageFlags::TRANSFER, ash::vk::AccessFlags::TRANSFER_WRITE);
            vulkan.release(commands, Resource::Buffer(first), copy);
            Ok(())
        })
        .expect("recorded");
    vulkan.run(zero).expect("a fill");
    vulkan.run(stage.frame(first)).expect("a frame");
    check(&ours, |_| 7);
    check(&stage.map(&imported, 0, LEN), |_| 1);
    let end = imported.size() + 4;
    let refused = crate::common::invalid(imported.map(offset as usize, end - offset as usize));
    assert!(matches!(refused, Invalid::Range { .. }), "{refused}");
}

#[test]
fn a_duplicate_is_imported_after_the_memory_was_freed() {
    let stage = or_skip!(stage());
    let vulkan = &stage.vulkan;
    let theirs = vulkan.buffer(4 * LEN, false).expect("a buffer");
    let descriptor = vulkan.export(theirs.memory).expect("a descriptor");
    let duplicate = descriptor.try_clone().expect("a duplicate");
    let import = |descriptor| {
        let options = ExternalMemoryOptions::default();
        // SAFETY: the descriptor is that of memory of this size, which is not dedicated.
        unsafe { ExternalMemory::import(&stage.context, descriptor, theirs.size, options) }
            .expect("imported")
    };
    let mut first = stage.map(&import(descriptor), 0, LEN);
    first.fill(4).expect("a fill");
    stage.stream.synchronize().expect("a wait");
    vulkan.run(stage.frame(theirs.resource)).expect("a frame");
    drop(first);
    vulkan.free(&theirs);
    let mut second = stage.map(&import(duplicate), 0, LEN);
    check(&second, |_| 13);
    Scale::new(&stage.context).run(&stage.stream, &mut second);
    check(&second, |_| 67);
}
