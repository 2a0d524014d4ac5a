//! Memory and semaphores of other APIs on the software driver. Files in memory and `ExternalSemaphore` play the other
//! API.
#![cfg(target_os = "linux")]

pub(crate) mod graphics;
pub(crate) mod images;
pub(crate) mod misuse;
pub(crate) mod nodes;
pub(crate) mod semaphores;

use crate::prelude::*;
use cuda_safe::external::{ExternalMemory, ExternalMemoryOptions, MemoryDescriptor};
use cuda_sim::external::memory;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

const SIZE: usize = 64 << 10;

fn options() -> ExternalMemoryOptions {
    ExternalMemoryOptions::default()
}

/// Imports the memory of a file.
pub(crate) fn import(
    context: &Context,
    file: &File,
    options: ExternalMemoryOptions,
) -> ExternalMemory {
    let size = usize::try_from(file.metadata().expect("a file").len()).expect("small");
    let descriptor = OwnedFd::from(file.try_clone().expect("a duplicate"));
    // SAFETY: the descriptor is that of memory of this size.
    unsafe { ExternalMemory::import(context, descriptor, size, options) }.expect("imported")
}

fn map(memory: &ExternalMemory, stream: &Stream, offset: usize, len: usize) -> DeviceBuffer<u32> {
    let mapping = memory.map(offset, 4 * len).expect("mapped");
    // SAFETY: the test orders its accesses.
    unsafe { mapping.into_buffer(stream) }.expect("a buffer")
}

/// Returns four bytes of a file.
fn word(file: &File, offset: u64) -> u32 {
    let mut word = [0; 4];
    file.read_exact_at(&mut word, offset).expect("a word");
    u32::from_le_bytes(word)
}

#[test]
fn a_mapping_and_the_file_share_their_bytes() {
    let (_end, context, stream) = in_child!(on_stream());
    let file = memory(SIZE as u64).expect("memory");
    let memory = import(&context, &file, options());
    // Offsets that are no multiples of the page size.
    for offset in [0, 400, 4100, 8188] {
        file.write_all_at(&7u32.to_le_bytes(), offset as u64 + 4).expect("written");
        let mut buffer = map(&memory, &stream, offset, 3);
        assert_eq!(buffer.as_raw() % 512, offset as u64 % 512);
        assert_eq!(buffer.to_vec().expect("a copy"), [0, 7, 0], "{offset}");
        buffer.fill(offset as u32 + 1).expect("a fill");
        stream.synchronize().expect("a wait");
        let words = [0, 4, 8, 12].map(|at| word(&file, (offset + at) as u64));
        assert_eq!(words, [offset as u32 + 1, offset as u32 + 1, offset as u32 + 1, 0]);
    }
}

#[test]
fn a_kernel_uses_a_mapping() {
    let (_end, context, stream) = in_child!(on_stream());
    let file = memory(SIZE as u64).expect("memory");
    let mut buffer = map(&import(&context, &file, options()), &stream, 4100, 100);
    buffer.fill(3).expect("a fill");
    let module = Module::from_ptx(&context, VECTOR).expect("a module");
    let scale = module.kernel("scale").expect("found");
    let scale = scale.typed::<(&mut [u32], i32, i32, u32)>().expect("the types");
    let config = LaunchConfig::for_elements(100, 64).expect("a configuration");
    // SAFETY: the kernel changes the elements of the buffer.
    unsafe { scale.launch(&stream, config, (&mut buffer, 2, 1, 100)) }.expect("a launch");
    stream.synchronize().expect("a wait");
    assert_eq!([4096, 4100, 4496, 4500].map(|at| word(&file, at)), [0, 7, 7, 0]);
}

#[test]
fn the_address_is_aligned_for_the_elements() {
    let (_end, context, stream) = in_child!(on_stream());
    let file = memory(SIZE as u64).expect("memory");
    let memory = import(&context, &file, options());
    let mapping = memory.map(6, 16).expect("mapped");
    let address = mapping.address();
    // SAFETY: nothing uses the memory.
    let refused = invalid(unsafe { mapping.into_buffer::<u32>(&stream) });
    assert_eq!(refused, Invalid::Cast { address, size: 16, element: 4, align: 4 });
    let mapping = memory.map(6, 17).expect("mapped");
    // SAFETY: as above.
    let buffer = unsafe { mapping.into_buffer::<u16>(&stream) }.expect("aligned");
    assert_eq!(buffer.len(), 8);
}

#[test]
fn a_successful_import_closes_the_descriptor() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let file = memory(SIZE as u64).expect("memory");
    let duplicate = OwnedFd::from(file.try_clone().expect("a duplicate"));
    let path = format!("/proc/self/fd/{}", duplicate.as_raw_fd());
    // SAFETY: the driver refuses the size.
    let refused = unsafe { ExternalMemory::try_import(&context, duplicate, 0, options()) };
    let rejected = refused.map(drop).expect_err("no memory has 0 bytes");
    assert!(std::fs::metadata(&path).is_ok());
    // SAFETY: the descriptor is that of memory of this size.
    let made = unsafe { ExternalMemory::import(&context, rejected.value, SIZE, options()) };
    // The driver has closed the number, and has a descriptor with another one.
    assert!(std::fs::metadata(&path).is_err());
    drop(made);
    let refused = {
        let duplicate = OwnedFd::from(file.try_clone().expect("a duplicate"));
        let _fault = fail("cuImportExternalMemory", 1, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        // SAFETY: as above.
        unsafe { ExternalMemory::import(&context, duplicate, SIZE, options()) }
    };
    assert!(refused.is_err());
    // The plain function has dropped the descriptor.
    assert!(std::fs::metadata(&path).is_err());
}

#[test]
fn mappings_are_freed_before_the_import_is_destroyed() {
    let (_end, context, stream) = in_child!(on_stream());
    let file = memory(SIZE as u64).expect("memory");
    let memory = import(&context, &file, options());
    let mut buffer = map(&memory, &stream, 0, 4);
    let unbound = memory.map(4096, 4096).expect("mapped");
    buffer.fill(1).expect("a fill");
    let released = |body: &mut dyn FnMut()| {
        let mut calls = calls(body);
        calls.retain(|call| {
            ["cuStreamSynchronize", "cuMemFree_v2", "cuDestroyExternalMemory"].contains(call)
        });
        calls
    };
    let mut all = (Some(memory), Some(buffer), Some(unbound));
    assert_eq!(released(&mut || drop(all.0.take())), [""; 0]);
    assert_eq!(released(&mut || drop(all.1.take())), ["cuStreamSynchronize", "cuMemFree_v2"]);
    assert_eq!(released(&mut || drop(all.2.take())), ["cuMemFree_v2", "cuDestroyExternalMemory"]);
}

#[test]
fn imports_and_mappings_are_no_memory_of_the_device() {
    let (_end, context, stream) = in_child!(on_stream());
    let before = context.memory_info().expect("known").free;
    let file = memory(SIZE as u64).expect("memory");
    let memory = import(&context, &file, options());
    let buffer = map(&memory, &stream, 0, 4);
    let its = alive();
    assert_eq!((its.external_memories, its.device_allocations, its.device_bytes), (1, 1, 0));
    assert_eq!(context.memory_info().expect("known").free, before);
    drop((buffer, memory));
}

#[test]
fn a_dma_buf_needs_cuda_13() {
    let (_end, context) = in_child!(on("h200@12.9".parse().expect("a profile")));
    let file = memory(SIZE as u64).expect("memory");
    let options = ExternalMemoryOptions { descriptor: MemoryDescriptor::DmaBuf, ..options() };
    // SAFETY: this crate refuses the descriptor.
    let refused = unsafe { ExternalMemory::try_import(&context, file.into(), SIZE, options) };
    let rejected = refused.map(drop).expect_err("an old driver");
    assert!(rejected.error.to_string().contains("DMA-BUF needs CUDA 13.0"), "{}", rejected.error);
}

#[test]
fn a_dma_buf_is_mapped_as_a_range_only() {
    let (_end, context, stream) = in_child!(on_stream());
    let file = memory(SIZE as u64).expect("memory");
    let options = ExternalMemoryOptions { descriptor: MemoryDescriptor::DmaBuf, ..options() };
    let memory = import(&context, &file, options);
    map(&memory, &stream, 0, 4).fill(2).expect("a fill");
    stream.synchronize().expect("a wait");
    assert_eq!(word(&file, 12), 2);
    let shape = ArrayShape::TwoD { width: 4, height: 4 };
    // SAFETY: the driver refuses the image.
    let refused = unsafe { memory.map_image::<u8>(&stream, shape, 1, Default::default()) };
    let error = refused.map(drop).expect_err("a DMA-BUF");
    assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_NOT_SUPPORTED));
}

#[test]
fn a_drop_after_the_context_was_destroyed_is_a_misuse() {
    in_child!(start(Profile::h200()));
    let primary = context();
    let made = Context::new(&primary.device(), ContextFlags::SCHED_YIELD).expect("a context");
    let file = memory(SIZE as u64).expect("memory");
    let memory = import(&made, &file, options());
    let (_theirs, semaphore) = semaphores::timeline(&made);
    succeeds!(cuCtxDestroy_v2(made.as_raw()));
    assert_eq!((alive().external_memories, alive().external_semaphores), (0, 0));
    drop((memory, semaphore));
    // The driver of an H200 crashes.
    let found = cuda_sim::misuses();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|its| its.contains("after its context was destroyed")), "{found:?}");
    assert_eq!(cuda_safe::leaked(), 2);
    // The object of the context would destroy it again.
    std::mem::forget(made);
}
