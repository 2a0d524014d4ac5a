//! Device memory that several streams can read.

use crate::call::{Invalid, Outcome, Rejected, Result, answer, convert, debug, refuse_if};
use crate::capture_state::{Retain, retain};
use crate::event::Event;
use crate::memory::DeviceBuffer;
use crate::memory::buffer::allocation::Allocation;
use crate::memory::buffer::slice;
use crate::memory::buffer::slice::DeviceSlice;
use crate::release::{Handle, Keep, destroy, owners, release};
use crate::stream::{Stream, same_context};
use cuda_sys::{CUdeviceptr, CUevent, CUstream};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// Read-only device memory that several streams can read.
///
/// [`DeviceBuffer::share`] returns one. [`on`](Self::on) returns the right to read the memory on a
/// stream. Clones share the memory. The memory is released on the stream that it was written on, in
/// stream order and after the work of all readers. None of this blocks the host.
///
/// ```no_run
/// use cuda_safe::{Context, Device, DeviceBuffer};
///
/// let context = Context::primary(&Device::get(0)?)?;
/// let weights = DeviceBuffer::from_slice(&context.stream()?, &[1.0f32; 1024])?.share()?;
/// for _ in 0..4 {
///     let stream = context.stream()?;
///     let mut own = DeviceBuffer::<f32>::zeroed(&stream, 1024)?;
///     own.copy_from(&weights.on(&stream)?)?;
/// }
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct SharedBuffer<T> {
    memory: Arc<Memory>,
    len: usize,
    elements: PhantomData<Arc<T>>,
}

struct Memory {
    allocation: Allocation,
    /// Recorded after the last write.
    written: Event,
}

/// The right to read a [`SharedBuffer`] on a stream. It converts to a [`DeviceSlice`] of that
/// stream, for copies and kernels.
///
/// [`SharedBuffer::on`] returns one. Dropping it does not block. The drop records an event after
/// the work that was enqueued on the reader's stream (`cuEventRecord`), and makes the stream that
/// the memory was written on wait for it (`cuStreamWaitEvent`), unless both are the same stream. If
/// this fails, the memory is never released, and the leak is reported to the function given to
/// [`set_report_hook`](crate::set_report_hook).
#[must_use = "the right to read ends when it is dropped"]
pub struct SharedReader<T> {
    reading: Reading,
    len: usize,
    elements: PhantomData<Arc<T>>,
}

/// A reader without an element type.
#[derive(Clone)]
struct Reading {
    /// The event to record after the reads, or `None` if the reader's stream is the one that wrote.
    end: Option<Event>,
    stream: Stream,
    memory: Arc<Memory>,
}

impl<T> DeviceBuffer<T> {
    /// Makes the memory read-only, so that several streams can read it. Does not block.
    ///
    /// Creates an event and records it after the writes (`cuEventRecord`).
    ///
    /// # Errors
    /// On an error, the buffer is dropped. [`try_share`](Self::try_share) returns it with the error.
    ///
    /// - [`Invalid::ForeignMemory`] if the buffer does not own its memory, because the lifetime of
    ///   the memory was promised for the buffer's stream.
    /// - [`Invalid::StreamIsCaptured`].
    /// - Errors from the driver.
    pub fn share(self) -> Result<SharedBuffer<T>> {
        Ok(self.try_share()?)
    }

    /// Does the same as [`share`](Self::share), but returns the unchanged buffer with the error.
    ///
    /// # Errors
    /// See [`share`](Self::share).
    pub fn try_share(self) -> Result<SharedBuffer<T>, Rejected<Self>> {
        let (written, buffer) = Rejected::unless(self.mark_written(), self)?;
        let (len, allocation) = (buffer.len(), buffer.into_allocation());
        let memory = Arc::new(Memory { allocation, written });
        Ok(SharedBuffer { memory, len, elements: PhantomData })
    }

    pub(crate) fn mark_written(&self) -> Result<Event> {
        refuse_if!(self.is_foreign(), Invalid::ForeignMemory);
        let written = self.stream().context().event()?;
        written.record_uncaptured(self.stream())?;
        Ok(written)
    }
}

impl<T> SharedBuffer<T> {
    /// Returns the right to read the memory on `stream`.
    ///
    /// Makes `stream` wait for the writes (`cuStreamWaitEvent`) and creates an event that marks the
    /// end of the reads. If `stream` is the stream that the memory was written on, neither is
    /// necessary.
    ///
    /// # Errors
    /// - [`Invalid::OtherContext`] if the stream belongs to another
    ///   context.
    /// - [`Invalid::StreamIsCaptured`].
    /// - Errors from the driver.
    ///
    /// Since CUDA 3.2. Raw: [`cuStreamWaitEvent`](fn@cuda_sys::cuStreamWaitEvent).
    #[doc(alias = "cuStreamWaitEvent")]
    pub fn on(&self, stream: &Stream) -> Result<SharedReader<T>> {
        same_context("the stream", stream.context(), self.stream().context())?;
        self.reader(stream)
    }

    /// Returns the right to read the memory on a stream of any context and device.
    pub(crate) fn reader(&self, stream: &Stream) -> Result<SharedReader<T>> {
        let end = if self.stream() == stream {
            None
        } else {
            let end = stream.context().event()?;
            stream.wait_private(&self.memory.written)?;
            Some(end)
        };
        Ok(SharedReader {
            reading: Reading { end, stream: stream.clone(), memory: Arc::clone(&self.memory) },
            len: self.len,
            elements: PhantomData,
        })
    }

    /// Returns the device address.
    pub(crate) fn address(&self) -> CUdeviceptr {
        self.memory.allocation.address()
    }

    /// Returns the object that keeps the memory, and the event after which it can be read.
    pub(crate) fn retained(&self) -> (Arc<dyn Retain>, &Event) {
        let memory = Arc::<Memory>::clone(&self.memory);
        (memory, &self.memory.written)
    }

    /// Returns the buffer for writing, if there are no other clones and no readers.
    ///
    /// # Errors
    /// If other clones or readers exist, this `SharedBuffer` is returned.
    pub fn into_buffer(self) -> Result<DeviceBuffer<T>, Self> {
        let Self { memory, len, .. } = self;
        match Arc::try_unwrap(memory) {
            // The stream is ordered after all reads: each reader ensured this when it was dropped.
            Ok(memory) => Ok(DeviceBuffer::of_allocation(memory.allocation, len)),
            Err(memory) => Err(Self { memory, len, elements: PhantomData }),
        }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the memory has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the stream that the memory was written on and is released on.
    pub fn stream(&self) -> &Stream {
        self.memory.allocation.stream()
    }
}

impl<T> SharedReader<T> {
    /// Returns the memory for reading on the reader's stream.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        let address = self.reading.memory.allocation.address();
        DeviceSlice::new(address, self.len, &self.reading.stream)
    }

    /// Returns the stream on which the memory may be read.
    pub fn stream(&self) -> &Stream {
        &self.reading.stream
    }

    /// Returns the stream that the memory was written on.
    pub(crate) fn home(&self) -> &Stream {
        self.reading.memory.allocation.stream()
    }
}

convert! { ['a, T] |reader: &'a SharedReader<T>| -> DeviceSlice<'a, T> { reader.as_slice() } }

retain! {
    Memory |its, other| {
        is_same: std::ptr::eq(its, other),
        is_borrowed: its.allocation.stream().is_borrowed(),
    }
}

impl fmt::Debug for Memory {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemory")
            .field("address", &format_args!("{:#x}", self.allocation.address()))
            .finish_non_exhaustive()
    }
}

impl<T> Drop for SharedReader<T> {
    fn drop(&mut self) {
        let Reading { end, stream, memory } = &self.reading;
        if let Some(end) = end {
            let home = memory.allocation.stream();
            release(Reads::new(end, stream.raw(), home.raw()), &self.reading);
        }
    }
}

owners! {
    Reading |its| {
        context: Some(its.stream.context()),
        is_borrowed: its.stream.is_borrowed() || its.memory.allocation.stream().is_borrowed(),
        streams: {
            let home = its.memory.allocation.stream();
            [&its.stream, home].map(|its| Some(its.by_ref()))

        },
    }
}

/// The right to read memory on a stream. When it ends, the memory's home stream, on which the memory
/// will be written or freed, waits for the reads. If that is not possible, the memory is leaked.
///
/// The owners keep the event, both streams and the memory alive.
pub(crate) struct Reads {
    end: Handle<CUevent>,
    stream: Handle<CUstream>,
    home: Handle<CUstream>,
}

impl Reads {
    /// Returns the right to read on `stream`, which the event `end` will be recorded on.
    #[inline]
    pub(crate) fn new(end: &Event, stream: CUstream, home: CUstream) -> Self {
        Self { end: Handle(end.raw()), stream: Handle(stream), home: Handle(home) }
    }
}

destroy! {
    Reads as "shared memory that a reader may still use", after StreamOrder, leaves MemoryInUse, quiet true;
    |its| {
        // SAFETY: the owners keep the event and the stream alive.
        let recorded = unsafe { answer!(cuEventRecord(its.end.0, its.stream.0)) };
        if !recorded.is_done() {
            return recorded;
        }
        // SAFETY: the owners keep the stream and the event alive.
        unsafe { answer!(cuStreamWaitEvent(its.home.0, its.end.0, 0)) }
    };

    /// Memory that may still be read must never be written or freed.
    #[inline]
    fn has_leaked(&self, owners: &dyn Keep) {
        owners.leak();
    }
}

impl<T> Clone for SharedBuffer<T> {
    fn clone(&self) -> Self {
        Self { memory: Arc::clone(&self.memory), len: self.len, elements: PhantomData }
    }
}

impl<T> fmt::Debug for SharedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.memory.allocation.address();
        let all = DeviceSlice::<T>::new(address, self.len, self.stream());
        slice::debug("SharedBuffer", &all, f)
    }
}

debug! { [T] SharedReader<T> |its, f| slice::debug("SharedReader", &its.as_slice(), f) }
