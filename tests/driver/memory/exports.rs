//! Device memory as a DMA-BUF, and the locations of managed memory.

use crate::common;
use crate::memory::managed::stage;
use cuda_safe::device::attribute;
use cuda_safe::memory::ManagedBuffer;
use cuda_safe::{DeviceBuffer, Invalid};

#[cfg(target_os = "linux")]
mod dma_buf {
    use super::{DeviceBuffer, Invalid, attribute, common};

    use cuda_safe::memory::DmaBufOptions;
    use std::os::fd::AsFd;

    /// The greatest page of a host.
    const PAGE: usize = 64 << 10;

    /// Returns 4 MiB of a device that exports its memory, and the index of the first byte that is at
    /// the start of a page, or reports a skip.
    fn memory() -> Option<(DeviceBuffer<u8>, usize)> {
        let context = common::context_since(11, 7)?;
        let exports = attribute::DMA_BUF_SUPPORTED;
        common::has(&context.device(), exports, "needs a device that exports DMA-BUFs")?;
        let stream = context.stream().expect("a stream");
        let memory = DeviceBuffer::<u8>::zeroed_sync(&stream, 4 << 20).expect("memory");
        let offset = memory.as_raw().next_multiple_of(PAGE as u64) - memory.as_raw();
        Some((memory, usize::try_from(offset).expect("less than a page")))
    }

    #[test]
    fn memory_is_exported_as_a_descriptor() {
        let (memory, start) = or_skip!(memory());
        let options = DmaBufOptions::default();
        let whole = memory.slice(start..start + (3 << 20)).expect("a part");
        let whole = whole.export_dma_buf(options).expect("a descriptor");
        let part = memory.slice(start + PAGE..start + 3 * PAGE).expect("a part");
        let part = part.export_dma_buf(options).expect("a descriptor");
        for descriptor in [whole, part] {
            descriptor.as_fd().try_clone_to_owned().expect("a descriptor");
        }
        drop(memory);
    }

    #[test]
    fn memory_without_whole_pages_is_not_exported() {
        let (memory, start) = or_skip!(memory());
        let options = DmaBufOptions::default();
        // A shifted part, a short one and an empty one.
        for part in [start + 1..start + 1 + PAGE, start..start + 1000, 0..0] {
            let part = memory.slice(part).expect("a part");
            let invalid = common::invalid(part.export_dma_buf(options));
            assert!(matches!(invalid, Invalid::DmaBuf { .. }), "{invalid}");
        }
    }
}

#[test]
fn parts_and_samples_of_managed_memory_are_checked() {
    let (_context, stream) = or_skip!(stage());
    let buffer = ManagedBuffer::<u8>::zeroed(&stream, 100).expect("memory");
    let range = buffer.range(..).expect("the whole");
    for (part, sample) in [(0, 0), (101, 1), (10, 11)] {
        let invalid = common::invalid(range.residency(part, sample));
        assert!(matches!(invalid, Invalid::Residency { .. }), "{invalid}");
    }
}
