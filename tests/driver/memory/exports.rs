//! Device memory as a DMA-BUF, and the locations of managed memory.

use crate::common;
use cuda_safe::device::attribute;
use cuda_safe::memory::ManagedBuffer;
use cuda_safe::{DeviceBuffer, Invalid, Result};

#[cfg(target_os = "linux")]
mod dma_buf {
    use super::{DeviceBuffer, Invalid, Result, attribute, common};
    use cuda_safe::Context;
    use cuda_safe::memory::DmaBufOptions;
    use std::os::fd::{AsFd, OwnedFd};

    /// Returns the context of a device that exports its memory, or reports a skip.
    fn context() -> Option<Context> {
        let context = common::context()?;
        common::since(11, 7)?;
        let has = context.device().attribute(attribute::DMA_BUF_SUPPORTED);
        if !has.expect("known") {
            common::skip("needs a device that exports DMA-BUFs");
            return None;
        }
        Some(context)
    }

    /// The greatest page of a host.
    const PAGE: usize = 64 << 10;

    /// Returns the index of the first byte that is at the start of a page.
    fn first_page(memory: &DeviceBuffer<u8>) -> usize {
        let offset = memory.as_raw().next_multiple_of(PAGE as u64) - memory.as_raw();
        usize::try_from(offset).expect("less than a page")
    }

    #[track_caller]
    fn check_refused(done: Result<OwnedFd>) {
        let invalid = common::invalid(done);
        assert!(matches!(invalid, Invalid::DmaBuf { .. }), "{invalid}");
    }

    #[test]
    fn memory_is_exported_as_a_descriptor() {
        let context = or_skip!(context());
        let stream = context.stream().expect("a stream");
        let memory = DeviceBuffer::<u8>::zeroed_sync(&stream, 4 << 20).expect("memory");
        let options = DmaBufOptions::default();
        let start = first_page(&memory);
        let whole = memory.slice(start..start + (3 << 20)).expect("a part");
        let whole = whole.export_dma_buf(options).expect("a descriptor");
        let part = memory.slice(start + PAGE..start + 3 * PAGE).expect("a part");
        let part = part.export_dma_buf(options).expect("a descriptor");
        assert!(
            whole.as_fd().try_clone_to_owned().is_ok() && part.as_fd().try_clone_to_owned().is_ok()
        );
        drop(memory);
    }

    #[test]
    fn memory_without_whole_pages_is_not_exported() {
        let context = or_skip!(context());
        let stream = context.stream().expect("a stream");
        let memory = DeviceBuffer::<u8>::zeroed_sync(&stream, 4 << 20).expect("memory");
        let options = DmaBufOptions::default();
        let start = first_page(&memory);
        let shifted = memory.slice(start + 1..start + 1 + PAGE).expect("a part");
        check_refused(shifted.export_dma_buf(options));
        let short = memory.slice(start..start + 1000).expect("a part");
        check_refused(short.export_dma_buf(options));
        let empty = memory.slice(..0).expect("nothing");
        check_refused(empty.export_dma_buf(options));
    }
}

#[test]
fn parts_and_samples_of_managed_memory_are_checked() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let has = context.device().attribute(attribute::MANAGED_MEMORY);
    if !has.expect("known") {
        return common::skip("needs a device with managed memory");
    }
    let buffer = ManagedBuffer::<u8>::zeroed(&stream, 100).expect("memory");
    let range = buffer.range(..).expect("the whole");
    for (part, sample) in [(0, 0), (101, 1), (10, 11)] {
        let invalid = common::invalid(range.residency(part, sample));
        assert!(matches!(invalid, Invalid::Residency { .. }), "{invalid}");
    }
}
