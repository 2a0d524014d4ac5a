//! Memory and semaphores of other APIs. Memory is a file in memory, of this driver or of a test, and a semaphore is a
//! file with a word ([`ExternalSemaphore`](crate::external::ExternalSemaphore)).
//!
//! The codes were measured on an H200 with driver 580, unless a comment says otherwise.

pub(crate) mod graphics;

use crate::api::array;
use crate::api::prelude::*;
use crate::exec::Work;
use crate::memory::{Content, Signal, open};
use crate::state::array::Array;
use crate::state::external::{ExternalMemory, ExternalSemaphore};
use crate::state::graph::node::{Kind as NodeKind, SemaphoresNode};
use cuda_sys::{
    CUDA_ARRAY3D_COLOR_ATTACHMENT, CUDA_ARRAY3D_DESCRIPTOR, CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
    CUDA_EXTERNAL_MEMORY_DEDICATED, CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC,
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, CUexternalMemory,
    CUexternalMemoryHandleType as MemoryType, CUexternalSemaphore,
    CUexternalSemaphoreHandleType as SemaphoreType, CUmipmappedArray,
    CUstreamWaitValue_flags as Condition, CudaVersion,
};

const NOT_SUPPORTED: CUresult = CUresult::CUDA_ERROR_NOT_SUPPORTED;
const UNKNOWN: CUresult = CUresult::CUDA_ERROR_UNKNOWN;

/// Closes a descriptor that the driver owns.
fn take(descriptor: c_int) {
    #[cfg(target_os = "linux")]
    if std::fs::symlink_metadata(format!("/proc/self/fd/{descriptor}")).is_ok() {
        use std::os::fd::{FromRawFd, OwnedFd};
        // SAFETY: the descriptor is open, and the caller of the driver gives it up.
        drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
    }
    #[cfg(not(target_os = "linux"))]
    let _ = descriptor;
}

pub(crate) fn import_memory(
    world: &mut World,
    description: &CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
) -> Answer<CUexternalMemory> {
    let (context, device) = world.home()?;
    world.forbidden_in_capture()?;
    let is_dma_buf = match description.type_ {
        MemoryType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD => false,
        MemoryType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD
            if world.settings.profile.driver >= CudaVersion::new(13, 0) =>
        {
            true
        }
        MemoryType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32
        | MemoryType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32_KMT
        | MemoryType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_HEAP
        | MemoryType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_NVSCIBUF => return Err(NOT_SUPPORTED),
        _ => return Err(INVALID),
    };
    let known = if is_dma_buf { 0 } else { CUDA_EXTERNAL_MEMORY_DEDICATED };
    fail_if(description.size == 0 || description.flags & !known != 0, INVALID)?;
    // SAFETY: the types above select this field.
    let descriptor = unsafe { description.handle.fd };
    let (file, start) = match open(descriptor) {
        // That of another API is accepted so that tests can import one: a real driver supports that on Tegra only.
        Some((Content::Own, _)) if is_dma_buf => return Err(NOT_SUPPORTED),
        Some((Content::Own, file)) => (file, 0),
        Some((Content::Other(start), file)) => (file, start),
        // Measured: the driver accepts it.
        Some((Content::Semaphore(_), file)) => {
            misuse("the descriptor of a semaphore is imported as memory");
            (file, 0)
        }
        // The descriptor is closed, unlike after other errors, and unlike that of a semaphore.
        None => {
            take(descriptor);
            return Err(UNKNOWN);
        }
    };
    let file_size = file.metadata().map_err(|_| UNKNOWN)?.len().saturating_sub(start);
    if description.size > file_size {
        misuse(format!(
            "{} bytes of external memory are imported from memory of {file_size} bytes",
            description.size
        ));
    }
    take(descriptor);
    Ok(pointer(world.add_external_memory(ExternalMemory {
        context,
        device,
        file,
        start,
        size: description.size,
        file_size,
        is_dedicated: description.flags & CUDA_EXTERNAL_MEMORY_DEDICATED != 0,
        is_dma_buf,
        mapped: Vec::new(),
    })))
}

/// Waits for nothing.
pub(crate) fn destroy_memory(world: &mut World, memory: CUexternalMemory) -> Answer {
    world.external_memory(memory.addr())?;
    world.remove_external_memory(memory.addr());
    Ok(())
}

/// Maps a part of external memory. Returns its address.
fn map(world: &mut World, memory: usize, offset: u64, size: u64) -> Answer<u64> {
    let its = world.external_memory(memory)?;
    let end = offset.checked_add(size).ok_or(INVALID)?;
    fail_if(size == 0 || end > its.size.min(its.file_size), INVALID)?;
    let (context, device, start) = (its.context, its.device, its.start);
    let file = its.file.try_clone().map_err(|_| UNKNOWN)?;
    let size = usize::try_from(size).map_err(|_| INVALID)?;
    let mapped = world.objects.memory.map_file((&file, start + offset), size, context, device);
    let address = mapped.ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    world.external_memory(memory)?.mapped.push(address);
    Ok(address)
}

pub(crate) fn map_buffer(
    world: &mut World,
    memory: CUexternalMemory,
    description: &CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
) -> Answer<CUdeviceptr> {
    world.home()?;
    world.forbidden_in_capture()?;
    fail_if(description.flags != 0, INVALID)?;
    let is_dedicated = world.external_memory(memory.addr())?.is_dedicated;
    fail_if(is_dedicated && description.offset != 0, INVALID)?;
    map(world, memory.addr(), description.offset, description.size)
}

/// The levels follow each other, and so do the rows of a level. A real driver has a layout of its own.
pub(crate) fn map_mipmapped(
    world: &mut World,
    memory: CUexternalMemory,
    description: &CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
) -> Answer<CUmipmappedArray> {
    world.home()?;
    world.forbidden_in_capture()?;
    let its = world.external_memory(memory.addr())?;
    let (context, is_dedicated) = (its.context, its.is_dedicated);
    fail_if(its.is_dma_buf, NOT_SUPPORTED)?;
    let descriptor = description.arrayDesc;
    // Only arrays of other APIs can have this flag.
    let flags = descriptor.Flags & !CUDA_ARRAY3D_COLOR_ATTACHMENT;
    let format = array::check(&CUDA_ARRAY3D_DESCRIPTOR { Flags: flags, ..descriptor })?;
    let levels = description.numLevels;
    fail_if(!(1..=array::max_levels(&descriptor)).contains(&levels), INVALID)?;
    fail_if(is_dedicated && description.offset != 0, INVALID)?;
    let mut offset = description.offset;
    array::make_mipmapped(world, descriptor, levels, |world, descriptor| {
        let mut its = Array { context, descriptor, format, storage: 0, is_level: true };
        let size = its.size() as u64;
        its.storage = map(world, memory.addr(), offset, size)?;
        offset += size;
        Ok(world.add_array(its))
    })
}

pub(crate) fn import_semaphore(
    world: &mut World,
    description: &CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC,
) -> Answer<CUexternalSemaphore> {
    let (context, device) = world.home()?;
    world.forbidden_in_capture()?;
    let signal = match description.type_ {
        SemaphoreType::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD => Signal::Binary,
        SemaphoreType::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD => Signal::Timeline,
        SemaphoreType(1..=10) => return Err(NOT_SUPPORTED),
        _ => return Err(INVALID),
    };
    fail_if(description.flags != 0, INVALID)?;
    // SAFETY: the types above select this field.
    let descriptor = unsafe { description.handle.fd };
    let (content, file) = open(descriptor).ok_or(UNKNOWN)?;
    match content {
        Content::Semaphore(its) if its == signal => {}
        // Measured: the driver accepts both.
        Content::Semaphore(_) => misuse("a semaphore is imported as one of another type"),
        Content::Own | Content::Other(_) => {
            misuse("the descriptor of memory is imported as a semaphore, whose signals write it");
        }
    }
    let word = world.objects.memory.map_signal(&file, signal, context, device);
    let word = word.ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    take(descriptor);
    Ok(pointer(world.add_external_semaphore(ExternalSemaphore { context, signal, word })))
}

/// Waits for nothing.
pub(crate) fn destroy_semaphore(world: &mut World, semaphore: CUexternalSemaphore) -> Answer {
    let word = world.external_semaphore(semaphore.addr())?.word;
    if world.runs.executor.uses_word(word) {
        misuse("an external semaphore is destroyed before its signals and waits are complete");
    }
    world.remove_external_semaphore(semaphore.addr());
    Ok(())
}

/// Returns the operations of a list of signals. An element is a semaphore, a value and flags.
pub(crate) fn signals(world: &World, list: &[(usize, u64, u32)]) -> Answer<SemaphoresNode> {
    node(world, list, |its, value| match its.signal {
        Signal::Binary => vec![Work::WriteValue { at: its.word, bytes: vec![1, 0, 0, 0] }],
        Signal::Timeline => {
            vec![Work::WriteValue { at: its.word, bytes: value.to_le_bytes().to_vec() }]
        }
    })
}

/// Returns the operations of a list of waits. A wait for a binary semaphore resets it.
pub(crate) fn waits(world: &World, list: &[(usize, u64, u32)]) -> Answer<SemaphoresNode> {
    node(world, list, |its, value| {
        let (at, size) = (its.word, its.signal.size());
        let wait = |value, condition: Condition| Work::WaitValue {
            at,
            value,
            size,
            condition: condition.0,
        };
        match its.signal {
            Signal::Binary => vec![
                wait(1, Condition::CU_STREAM_WAIT_VALUE_AND),
                Work::WriteValue { at, bytes: vec![0; size] },
            ],
            Signal::Timeline => vec![wait(value, Condition::CU_STREAM_WAIT_VALUE_GEQ)],
        }
    })
}

fn node(
    world: &World,
    list: &[(usize, u64, u32)],
    works: impl Fn(&ExternalSemaphore, u64) -> Vec<Work>,
) -> Answer<SemaphoresNode> {
    let mut node = SemaphoresNode { list: list.to_vec(), works: Vec::new() };
    for (semaphore, value, _) in list {
        node.works.extend(works(world.external_semaphore(*semaphore)?, *value));
    }
    Ok(node)
}

/// Reads semaphores, and the values and flags of their parameters.
///
/// # Safety
/// Both arrays are null or have `count` elements.
pub(crate) unsafe fn list<P>(
    semaphores: *const CUexternalSemaphore,
    parameters: *const P,
    count: c_uint,
    read: impl Fn(&P) -> (u64, u32),
) -> Answer<Vec<(usize, u64, u32)>> {
    fail_if(count != 0 && (semaphores.is_null() || parameters.is_null()), INVALID)?;
    let at = |index: usize| {
        // SAFETY: the caller passes `count` semaphores.
        let semaphore = unsafe { semaphores.add(index) };
        // SAFETY: the caller passes `count` parameters.
        let its = unsafe { parameters.add(index) };
        // SAFETY: as above, and the element is initialized.
        let semaphore = unsafe { semaphore.read() };
        // SAFETY: as above.
        let (value, flags) = read(unsafe { &*its });
        (semaphore.addr(), value, flags)
    };
    Ok((0..count as usize).map(at).collect())
}

pub(crate) fn of_signal(its: &CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS) -> (u64, u32) {
    (its.params.fence.value, its.flags)
}

pub(crate) fn of_wait(its: &CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS) -> (u64, u32) {
    (its.params.fence.value, its.flags)
}

/// Enqueues operations on semaphores, or captures a node of them.
fn enqueue(
    world: &mut World,
    stream: CUstream,
    node: impl FnOnce(&World) -> Answer<SemaphoresNode>,
    kind: fn(Box<SemaphoresNode>) -> NodeKind,
) -> Answer {
    let stream = world.stream(stream.addr())?;
    let capture = world.recording(stream)?;
    let node = node(world)?;
    if let Some(capture) = capture {
        return world.capture_node(capture, stream, kind(Box::new(node)));
    }
    for work in node.works {
        world.give(stream, work, Vec::new());
    }
    Ok(())
}

pub(crate) fn signal(
    world: &mut World,
    semaphores: *const CUexternalSemaphore,
    parameters: *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
    count: c_uint,
    stream: CUstream,
) -> Answer {
    // SAFETY: the caller passes `count` semaphores and parameters.
    let list = unsafe { list(semaphores, parameters, count, of_signal) }?;
    enqueue(world, stream, |world| signals(world, &list), NodeKind::Signal)
}

pub(crate) fn wait(
    world: &mut World,
    semaphores: *const CUexternalSemaphore,
    parameters: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    count: c_uint,
    stream: CUstream,
) -> Answer {
    // SAFETY: the caller passes `count` semaphores and parameters.
    let list = unsafe { list(semaphores, parameters, count, of_wait) }?;
    enqueue(world, stream, |world| waits(world, &list), NodeKind::Await)
}
