//! Memory and semaphores of other APIs. Files in memory play the other API.

use super::{LEN, Operations};
use cuda_safe::array::ArrayShape;
use cuda_safe::external::{
    AccessHint, BinarySemaphore, EglImage, ExportedMemory, ExternalMapping, ExternalMemory,
    ExternalMemoryOptions, ImageOptions, MemoryDescriptor, OpenGlDevices, RegisteredBuffer,
    RegisteredImage, RegisteredImageOptions, TimelineSemaphore,
};
use cuda_safe::memory::DmaBufOptions;
use cuda_safe::sys::{CUDA_ARRAY3D_DESCRIPTOR, CUarray_format, Zeroable};
use cuda_safe::virtual_memory::{PhysicalMemory, PhysicalOptions, Shareable};
use cuda_safe::{Device, DeviceBuffer, Stream};
use cuda_sim::external::{ExternalSemaphore, egl_image, memory, opengl_buffer, opengl_texture};
use std::os::fd::OwnedFd;

const SIZE: usize = 16 << 10;

/// A semaphore of both APIs, whose frames are on one stream.
struct Frames {
    stream: Stream,
    theirs: ExternalSemaphore,
    ours: TimelineSemaphore,
}

pub(super) const EXTERNAL: Operations = &[
    ("import memory", |s| {
        let file = OwnedFd::from(memory(SIZE as u64).expect("memory"));
        let options = ExternalMemoryOptions {
            descriptor: MemoryDescriptor::OpaqueFd,
            dedicated: true,
            ..ExternalMemoryOptions::default()
        };
        // SAFETY: the descriptor is that of memory of this size.
        let memory = unsafe { ExternalMemory::import(s.context(), file, SIZE, options) }?;
        let _ = (memory.size(), memory.context(), memory.as_raw());
        Ok(s.put(memory))
    }),
    ("drop imported memory", |s| Ok(drop(s.take::<ExternalMemory>()?))),
    ("map imported memory", |s| {
        let memory = s.get::<ExternalMemory>()?;
        // Dedicated memory is mapped from its beginning.
        Ok(s.put(memory.map(0, 4 * LEN)?))
    }),
    ("buffer of imported memory", |s| {
        let (mapping, stream, value) = (s.take::<ExternalMapping>()?, s.get()?, s.fresh());
        let _ = (mapping.address(), mapping.size());
        // SAFETY: other buffers may share the memory. All work of this driver runs under one lock, and the contents of
        // the buffer are not compared.
        let mut buffer = unsafe { mapping.into_buffer::<u32>(&stream) }?;
        buffer.fill(value)?;
        let _: Vec<u32> = buffer.to_vec()?;
        if s.one_in(2) {
            buffer.rebind(&s.get()?)?;
            buffer.fill(value)?;
        }
        Ok(())
    }),
    ("image of imported memory", |s| {
        let (memory, stream) = (s.get::<ExternalMemory>()?, s.get()?);
        let shape = ArrayShape::TwoD { width: 8, height: 8 };
        // SAFETY: as above.
        let image = unsafe { memory.map_image::<u8>(&stream, shape, 2, ImageOptions::default()) }?;
        let _: Vec<u8> = image.level(1)?.to_vec()?;
        Ok(())
    }),
    ("import a semaphore", |s| {
        let stream = s.get::<Stream>()?;
        let theirs = ExternalSemaphore::timeline(0).expect("a semaphore");
        let exported = theirs.export().expect("a descriptor");
        // SAFETY: the descriptor is that of a timeline semaphore.
        let ours = unsafe { TimelineSemaphore::import(stream.context(), exported) }?;
        Ok(s.put(Frames { stream, theirs, ours }))
    }),
    ("frame", |s| {
        // Dropped after an error.
        let mut frames = s.take::<Frames>()?;
        frames.stream.synchronize()?;
        let number = frames.ours.last_signal();
        frames.theirs.signal(number + 1).expect("the last signal is complete");
        frames.stream.wait_timeline(&frames.ours, number + 1)?;
        frames.stream.signal_timeline(&mut frames.ours, number + 2)?;
        let _ = (frames.ours.context(), frames.ours.as_raw());
        Ok(s.put(frames))
    }),
    ("drop a semaphore", |s| Ok(drop(s.take::<Frames>()?))),
    ("a binary semaphore between streams", |s| {
        let (first, second) = (s.get::<Stream>()?, s.get::<Stream>()?);
        let exported = ExternalSemaphore::binary().and_then(|its| its.export());
        let exported = exported.expect("a semaphore");
        // SAFETY: the descriptor is that of a binary semaphore.
        let mut semaphore = unsafe { BinarySemaphore::import(first.context(), exported) }?;
        first.signal_binary(&mut semaphore)?;
        let _ = semaphore.is_signaled();
        second.wait_binary(&mut semaphore)?;
        Ok(())
    }),
    ("buffer of OpenGL", |s| {
        let (stream, value) = (s.get::<Stream>()?, s.fresh());
        opengl_buffer(1, 4 * LEN as u64).expect("a buffer");
        let _ = Device::of_opengl(OpenGlDevices::All)?;
        // SAFETY: the buffer exists.
        let made =
            unsafe { RegisteredBuffer::from_opengl(stream.context(), 1, AccessHint::ReadWrite) };
        let mut registered = made?;
        registered.set_access(AccessHint::WriteDiscard)?;
        let _ = (registered.context(), registered.as_raw());
        let mut mapped = registered.map::<u32>(&stream)?;
        mapped.as_mut_slice().fill(value)?;
        let _ = mapped.stream();
        if s.one_in(2) {
            mapped.end()?;
            let _: Vec<u32> = registered.map(&stream)?.to_vec()?;
        }
        Ok(())
    }),
    ("texture of OpenGL", |s| {
        let stream = s.get::<Stream>()?;
        opengl_texture(2, texels(), 2).expect("a texture");
        let (context, options) =
            (stream.context(), RegisteredImageOptions { levels: 2, ..Default::default() });
        // SAFETY: the texture exists.
        let made = unsafe { RegisteredImage::from_opengl(context, 2, 0x0DE1, options) };
        let mut registered = made?;
        registered.set_access(AccessHint::ReadWrite)?;
        let _ = (registered.context(), registered.as_raw(), registered.levels());
        let mut level = registered.map::<u8>(&stream, 0, 1)?;
        level.as_mut().copy_from_slice(&[1; 4])?;
        drop(level);
        let mut levels = registered.map_levels::<u8>(&stream)?;
        levels.level_mut(0)?.copy_from_slice(&[2; 16])?;
        Ok(())
    }),
    ("image of EGL", |s| {
        let stream = s.get::<Stream>()?;
        egl_image(3, texels()).expect("an image");
        let (context, raw) = (stream.context(), std::ptr::without_provenance_mut(3));
        // SAFETY: the image exists, and its contents are not compared.
        let image = unsafe { EglImage::register(context, raw, AccessHint::ReadWrite) }?;
        let _ = (image.as_raw(), image.context());
        let frame = image.frame()?;
        let _ = (frame.as_raw(), frame.width(), frame.height(), frame.pitch(), frame.planes());
        let _ = (frame.channels(), frame.format(), frame.color_format(), frame.is_pitched());
        // SAFETY: as above.
        let array = unsafe { frame.array::<u8>(0, &stream) }?;
        drop((image, frame));
        let _: Vec<u8> = array.to_vec()?;
        Ok(())
    }),
    ("export memory", |s| {
        let device = s.context().device();
        assert_eq!(Device::by_uuid(device.uuid()?)?, Some(device));
        let options = PhysicalOptions::new(device).shareable(Shareable::Descriptor);
        let _ = ExportedMemory::of_physical(&PhysicalMemory::with(2 << 20, &options)?)?;
        let buffer = DeviceBuffer::<u8>::zeroed_sync(&s.get()?, 2 * 4096)?;
        let start = (buffer.as_raw().next_multiple_of(4096) - buffer.as_raw()) as usize;
        let page = buffer.slice(start..start + 4096)?;
        let _ = ExportedMemory::of_range(page, DmaBufOptions::default())?;
        Ok(())
    }),
];

/// Describes an image of 4 x 4 bytes.
fn texels() -> CUDA_ARRAY3D_DESCRIPTOR {
    let mut texels = CUDA_ARRAY3D_DESCRIPTOR::zeroed();
    (texels.Width, texels.Height, texels.NumChannels) = (4, 4, 1);
    texels.Format = CUarray_format::CU_AD_FORMAT_UNSIGNED_INT8;
    texels
}
