//! Memory and semaphores of other APIs. Files in memory play the other API.

use super::{LEN, Operations};
use cuda_safe::Stream;
use cuda_safe::array::ArrayShape;
use cuda_safe::external::{
    BinarySemaphore, ExternalMapping, ExternalMemory, ExternalMemoryOptions, ImageOptions,
    MemoryDescriptor, TimelineSemaphore,
};
use cuda_sim::external::{ExternalSemaphore, memory};
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
];
