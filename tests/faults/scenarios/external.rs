//! Memory and semaphores of other APIs. The driver and files in memory play the other API.

use super::{answer, expect, primary_and_streams};
use crate::trace::Trace;
use cuda_safe::array::ArrayShape;
use cuda_safe::external::{
    AccessHint, BinarySemaphore, EglConsumer, EglImage, EglLocation, EglProducer, ExportedMemory,
    ExternalMemory, ExternalMemoryOptions, ImageOptions, OpenGlDevices, RegisteredBuffer,
    RegisteredImage, RegisteredImageOptions, TimelineSemaphore,
};
use cuda_safe::memory::DmaBufOptions;
use cuda_safe::sys::{CUDA_ARRAY3D_DESCRIPTOR, CUarray_format, Zeroable};
use cuda_safe::virtual_memory::{PhysicalMemory, PhysicalOptions, Shareable};
use cuda_safe::{CUresult, Context, ContextFlags, Device, DeviceBuffer, Event, Graph, Result};
use cuda_sim::external::{ExternalSemaphore, egl_image, memory, opengl_buffer, opengl_texture};

const SIZE: usize = 64 << 10;

/// Memory that is mapped as ranges and as an image.
pub(super) fn memories(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let import = |options| {
        let file = memory(SIZE as u64).expect("memory");
        // SAFETY: the descriptor is that of memory of this size.
        unsafe { ExternalMemory::try_import(&context, file.into(), SIZE, options) }
    };
    let ranges = import(ExternalMemoryOptions::default())?;
    let mapping = ranges.map(4096, 4096)?;
    // SAFETY: all work on the range is on one stream.
    let mut buffer = unsafe { mapping.into_buffer::<u32>(&stream) }?;
    buffer.fill(7)?;
    assert_eq!(buffer.slice(..2)?.to_vec()?, [7; 2]);
    let unbound = ranges.map(8192, 4096)?;
    let options = ExternalMemoryOptions { dedicated: true, ..ExternalMemoryOptions::default() };
    let memory = import(options)?;
    let shape = ArrayShape::TwoD { width: 16, height: 16 };
    // SAFETY: no other code uses the memory.
    let image = unsafe { memory.map_image::<u8>(&stream, shape, 2, ImageOptions::default()) }?;
    assert_eq!(image.levels(), 2);
    trace.drop((buffer, ranges, memory, unbound));
    trace.drop((image, stream));
    trace.drops_from_here()
}

/// Semaphores on two streams, and in a graph.
pub(super) fn semaphores(trace: &mut Trace) -> Result<()> {
    let (context, [stream, other]) = primary_and_streams()?;
    let theirs = ExternalSemaphore::timeline(0).expect("a semaphore");
    let exported = theirs.export().expect("a descriptor");
    // SAFETY: the descriptor is that of a timeline semaphore.
    let mut timeline = unsafe { TimelineSemaphore::import(&context, exported) }?;
    let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    theirs.signal(1).expect("signaled");
    stream.wait_timeline(&timeline, 1)?;
    buffer.fill(3)?;
    stream.signal_timeline(&mut timeline, 2)?;
    other.signal_timeline(&mut timeline, 3)?;
    other.synchronize()?;
    assert_eq!(theirs.value().expect("a value"), 3);
    assert_eq!(buffer.to_vec()?, [3; 4]);

    let exported = ExternalSemaphore::binary().and_then(|its| its.export());
    // SAFETY: the descriptor is that of a binary semaphore.
    let imported = unsafe { BinarySemaphore::try_import(&context, exported.expect("a semaphore")) };
    let mut binary = imported?;
    stream.signal_binary(&mut binary)?;
    other.wait_binary(&mut binary)?;
    other.synchronize()?;

    let mut graph = Graph::new(&context)?;
    // SAFETY: the semaphores outlive the graph.
    let node = unsafe { graph.add_semaphore_signals(&[], &[timeline.graph_signal(4)]) }?;
    // SAFETY: as above.
    unsafe { graph.add_semaphore_waits(&[node.id()], &[timeline.graph_wait(4)]) }?;
    let executable = graph.instantiate()?;
    executable.launch(&stream)?;
    stream.synchronize()?;
    assert_eq!(theirs.value().expect("a value"), 4);
    trace.drop((executable, graph));
    trace.drop((timeline, binary, buffer, stream, other));
    trace.drops_from_here()
}

/// Resources of OpenGL and EGL: registered, mapped, and used.
pub(super) fn resources(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let mut texels = CUDA_ARRAY3D_DESCRIPTOR::zeroed();
    (texels.Width, texels.Height, texels.NumChannels) = (4, 4, 1);
    texels.Format = CUarray_format::CU_AD_FORMAT_UNSIGNED_INT8;
    opengl_buffer(1, 64).expect("a buffer");
    opengl_texture(2, texels, 2).expect("a texture");
    egl_image(3, texels).expect("an image");
    assert_eq!(Device::of_opengl(OpenGlDevices::All)?[0], context.device());

    // SAFETY: the buffer exists.
    let mut buffer = unsafe { RegisteredBuffer::from_opengl(&context, 1, AccessHint::ReadWrite) }?;
    buffer.set_access(AccessHint::WriteDiscard)?;
    let mut mapped = buffer.map::<u32>(&stream)?;
    mapped.as_mut_slice().fill(7)?;
    mapped.end()?;
    let mapped = buffer.map::<u32>(&stream)?;
    assert_eq!(mapped.to_vec()?, [7; 16]);
    trace.drop(mapped);

    let options = RegisteredImageOptions { levels: 2, ..Default::default() };
    // SAFETY: the texture exists.
    let mut texture = unsafe { RegisteredImage::from_opengl(&context, 2, 0x0DE1, options) }?;
    let mapped = texture.map::<u8>(&stream, 0, 1)?;
    assert_eq!(mapped.to_vec()?, [0; 4]);
    mapped.end()?;
    let mut levels = texture.map_levels::<u8>(&stream)?;
    levels.level_mut(0)?.copy_from_slice(&[1; 16])?;
    trace.drop(levels);

    let raw = std::ptr::without_provenance_mut(3);
    // SAFETY: the image exists, and all accesses are on one stream.
    let image = unsafe { EglImage::register(&context, raw, AccessHint::ReadWrite) }?;
    let frame = image.frame()?;
    // SAFETY: as above.
    let array = unsafe { frame.array::<u8>(0, &stream) }?;
    assert_eq!(array.to_vec()?, [0; 16]);
    trace.drop((buffer, texture, frame, image));
    trace.drop((array, stream));
    trace.drops_from_here()
}

/// What the software driver does not play, and exports.
pub(super) fn refused_and_exported(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let device = context.device();
    assert_eq!(Device::by_uuid(device.uuid()?)?, Some(device));
    let options = PhysicalOptions::new(device).shareable(Shareable::Descriptor);
    let memory = PhysicalMemory::with(2 << 20, &options)?;
    assert_eq!(ExportedMemory::of_physical(&memory)?.size, 2 << 20);
    let buffer = DeviceBuffer::<u8>::zeroed_sync(&stream, 2 * 4096)?;
    let start = (buffer.as_raw().next_multiple_of(4096) - buffer.as_raw()) as usize;
    let page = buffer.slice(start..start + 4096)?;
    let exported = ExportedMemory::of_range(page, DmaBufOptions::default());
    assert_eq!(exported?.size, 4096);

    let handle = std::ptr::without_provenance_mut(1);
    let unsupported = CUresult::CUDA_ERROR_NOT_SUPPORTED;
    // SAFETY: the driver refuses the stream, as below the object and the surfaces.
    let made =
        trace.provoke(|| unsafe { EglConsumer::connect(&context, handle, EglLocation::Device) });
    expect(made, answer("cuEGLStreamConsumerConnectWithFlags", unsupported))?;
    // SAFETY: as above.
    let made = trace.provoke(|| unsafe { EglProducer::connect(&context, handle, 4, 4) });
    expect(made, answer("cuEGLStreamProducerConnect", unsupported))?;
    // SAFETY: as above.
    let made = trace.provoke(|| unsafe { Event::from_egl_sync(&context, handle) });
    expect(made, answer("cuEventCreateFromEGLSync", unsupported))?;
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    // SAFETY: as above.
    let found = trace.provoke(|| unsafe { Device::of_vdpau(1, None) });
    expect(found, answer("cuVDPAUGetDevice", invalid))?;
    let flags = ContextFlags::SCHED_YIELD;
    // SAFETY: as above.
    let made = trace.provoke(|| unsafe { Context::with_vdpau(&device, flags, 1, None) });
    expect(made, answer("cuVDPAUCtxCreate_v2", unsupported))?;
    let access = AccessHint::ReadOnly;
    // SAFETY: as above.
    let made = trace.provoke(|| unsafe { RegisteredImage::from_vdpau_video(&context, 1, access) });
    expect(made, answer("cuGraphicsVDPAURegisterVideoSurface", unsupported))?;
    // SAFETY: as above.
    let made = trace.provoke(|| unsafe { RegisteredImage::from_vdpau_output(&context, 1, access) });
    expect(made, answer("cuGraphicsVDPAURegisterOutputSurface", unsupported))?;
    trace.drop((memory, buffer, stream));
    trace.drops_from_here()
}
