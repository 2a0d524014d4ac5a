//! Memory and semaphores of other APIs.

mod graphics;

use super::{Action, Row, Stage, field, value};
use crate::prelude::*;
use cuda_safe::array::ArrayOptions;
use cuda_safe::external::{
    BinarySemaphore, ExternalMemory, ExternalMemoryOptions, ImageOptions, MemoryDescriptor,
    TimelineSemaphore,
};
use cuda_sim::external::{ExternalSemaphore, memory};
use std::os::fd::OwnedFd;

const SIZE: usize = 1 << 16;

fn dedicated() -> ExternalMemoryOptions {
    ExternalMemoryOptions { dedicated: true, ..ExternalMemoryOptions::default() }
}

fn import(s: &Stage, options: ExternalMemoryOptions) -> Result<ExternalMemory> {
    let file = OwnedFd::from(memory(SIZE as u64).expect("memory"));
    // SAFETY: the descriptor is that of memory of this size.
    unsafe { ExternalMemory::import(&s.context, file, SIZE, options) }
}

fn imported<T: PartialEq + Debug + 'static>(
    name: &str,
    options: ExternalMemoryOptions,
    find: fn(&CUDA_EXTERNAL_MEMORY_HANDLE_DESC) -> T,
    raw: T,
) -> Row {
    let act = move |s: &Stage| import(s, options).map(drop);
    Row::new(name, act, "cuImportExternalMemory", field("description", find), raw)
}

fn memories() -> Vec<Row> {
    let plain = ExternalMemoryOptions::default();
    let dma_buf = ExternalMemoryOptions { descriptor: MemoryDescriptor::DmaBuf, ..plain };
    let opaque = CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
    let of_linux = CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD;
    let description = |field: &str| format!("CUDA_EXTERNAL_MEMORY_HANDLE_DESC::{field}");
    let kind =
        |kind: &str| format!("CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_{kind}");
    let size = SIZE as u64;
    vec![
        imported(&description("type_"), plain, |its| its.type_, opaque),
        imported(&kind("OPAQUE_FD"), plain, |its| its.type_, opaque),
        imported(&kind("DMABUF_FD"), dma_buf, |its| its.type_, of_linux),
        imported(&description("size"), plain, |its| its.size, size),
        imported(&description("flags"), plain, |its| its.flags, 0),
        imported(&description("flags"), dedicated(), |its| its.flags, 1),
        // SAFETY: the field is an integer.
        imported(&description("handle"), plain, |its| unsafe { its.handle.fd } > 2, true),
        imported("cuImportExternalMemory", plain, |its| its.size, size),
    ]
}

/// Maps a range of memory.
fn mapped(s: &Stage) -> Result<CUexternalMemory> {
    let memory = import(s, ExternalMemoryOptions::default())?;
    memory.map(512, 1024)?;
    Ok(memory.as_raw())
}

/// Maps an image with two levels.
fn image(s: &Stage, options: ImageOptions) -> Result<CUexternalMemory> {
    // An image in dedicated memory has no offset.
    let plain = ExternalMemoryOptions::default();
    let memory = import(s, if options.offset == 0 { dedicated() } else { plain })?;
    let shape = ArrayShape::TwoD { width: 8, height: 8 };
    // SAFETY: the memory is used for nothing else.
    unsafe { memory.map_image::<f32>(&s.stream, shape, 2, options) }?;
    Ok(memory.as_raw())
}

fn mappings() -> Vec<Row> {
    const BUFFER: &str = "cuExternalMemoryGetMappedBuffer";
    const IMAGE: &str = "cuExternalMemoryGetMappedMipmappedArray";
    let range = |name: &str, find: fn(&CUDA_EXTERNAL_MEMORY_BUFFER_DESC) -> u64, raw| {
        let name = format!("CUDA_EXTERNAL_MEMORY_BUFFER_DESC::{name}");
        Row::new(&name, |s| mapped(s).map(drop), BUFFER, field("description", find), raw)
    };
    let described =
        |name: &str, options, find: fn(&CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC) -> u64, raw| {
            let act = move |s: &Stage| image(s, options).map(drop);
            Row::new(name, act, IMAGE, field("description", find), raw)
        };
    let of_image = |name: &str| format!("CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC::{name}");
    let plain = ImageOptions::default();
    let surface = ArrayOptions { surface: true, ..ArrayOptions::default() };
    let surface = ImageOptions { array: surface, ..plain };
    let offset = ImageOptions { offset: 4096, ..plain };
    let target = ImageOptions { color_attachment: true, ..plain };
    let told = |action: Action<_>, function| action.calls(function).with_told(value("memory"));
    vec![
        range("offset", |its| its.offset, 512),
        range("size", |its| its.size, 1024),
        told(Row::of(BUFFER, mapped), BUFFER),
        described(&of_image("offset"), offset, |its| its.offset, 4096),
        described(&of_image("numLevels"), plain, |its| its.numLevels.into(), 2),
        described(&of_image("arrayDesc"), plain, |its| its.arrayDesc.Width as u64, 8),
        described(&of_image("arrayDesc"), surface, |its| its.arrayDesc.Flags.into(), 2),
        described(
            "CUDA_ARRAY3D::CUDA_ARRAY3D_COLOR_ATTACHMENT",
            target,
            |its| its.arrayDesc.Flags.into(),
            u64::from(CUDA_ARRAY3D_COLOR_ATTACHMENT),
        ),
        told(Row::of(IMAGE, move |s| image(s, plain)), IMAGE),
        Row::of("cuDestroyExternalMemory", mapped)
            .calls("cuDestroyExternalMemory")
            .with_told(value("memory")),
    ]
}

fn timeline(s: &Stage) -> Result<TimelineSemaphore> {
    let exported = ExternalSemaphore::timeline(0).and_then(|its| its.export());
    // SAFETY: the descriptor is that of a timeline semaphore.
    unsafe { TimelineSemaphore::import(&s.context, exported.expect("a semaphore")) }
}

fn binary(s: &Stage) -> Result<BinarySemaphore> {
    let exported = ExternalSemaphore::binary().and_then(|its| its.export());
    // SAFETY: the descriptor is that of a binary semaphore.
    unsafe { BinarySemaphore::import(&s.context, exported.expect("a semaphore")) }
}

/// Signals a semaphore and waits for it.
fn used(s: &Stage) -> Result<CUexternalSemaphore> {
    let mut semaphore = timeline(s)?;
    s.stream.signal_timeline(&mut semaphore, 7)?;
    s.stream.wait_timeline(&semaphore, 5)?;
    s.stream.synchronize()?;
    Ok(semaphore.as_raw())
}

fn semaphores() -> Vec<Row> {
    const IMPORT: &str = "cuImportExternalSemaphore";
    const SIGNAL: &str = "cuSignalExternalSemaphoresAsync";
    const WAIT: &str = "cuWaitExternalSemaphoresAsync";
    let description = |name: &str| format!("CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC::{name}");
    let kind = |kind: &str| {
        format!("CUexternalSemaphoreHandleType::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_{kind}")
    };
    let type_of = || field("description", |its: &CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC| its.type_);
    let opaque = CUexternalSemaphoreHandleType::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD;
    let with_value =
        CUexternalSemaphoreHandleType::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
    let timeline = |s: &Stage| timeline(s).map(drop);
    let binary_of = |s: &Stage| binary(s).map(drop);
    let is_open = field("description", |its: &CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC| {
        // SAFETY: the field is an integer.
        unsafe { its.handle.fd > 2 }
    });
    let one = |s: &Stage| {
        let mut semaphore = binary(s)?;
        s.stream.signal_binary(&mut semaphore)?;
        s.stream.wait_binary(&mut semaphore)?;
        s.stream.synchronize()
    };
    let signal = |its: &CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS| its.params.fence.value;
    let wait = |its: &CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS| its.params.fence.value;
    let used_by = |name, function| Row::of(name, used).calls(function);
    vec![
        Row::new(&description("type_"), timeline, IMPORT, type_of(), with_value),
        Row::new(&kind("TIMELINE_SEMAPHORE_FD"), timeline, IMPORT, type_of(), with_value),
        Row::new(&kind("OPAQUE_FD"), binary_of, IMPORT, type_of(), opaque),
        Row::new(&description("type_"), binary_of, IMPORT, type_of(), opaque),
        Row::new(&description("handle"), timeline, IMPORT, is_open, true),
        Row::call(IMPORT, timeline),
        used_by("CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS::params", SIGNAL)
            .with(field("parameters", signal), 7_u64),
        used_by("CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS::params", WAIT)
            .with(field("parameters", wait), 5_u64),
        used_by(SIGNAL, SIGNAL).with_told(value("semaphores")),
        used_by(WAIT, WAIT).with_told(value("semaphores")),
        Row::new(SIGNAL, one, SIGNAL, value("count"), 1_u32),
        Row::new(WAIT, one, WAIT, value("count"), 1_u32),
        used_by("cuDestroyExternalSemaphore", "cuDestroyExternalSemaphore")
            .with_told(value("semaphore")),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = memories();
    rows.extend(mappings());
    rows.extend(semaphores());
    rows.extend(graphics::rows());
    rows
}
