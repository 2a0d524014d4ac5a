//! Device memory that every stream may read.

use super::DeviceBuffer;
use super::allocation::Allocation;
use super::slice::{self, DeviceSlice};
use crate::context::Context;
use crate::error::{Rejected, Result};
use crate::event::Event;
use crate::invalid::Invalid;
use crate::release::{Parent, Resource, release};
use crate::stream::{OrderedOn, Stream, same_context};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// Device memory that is written no more, and that every stream may read; of
/// [`DeviceBuffer::share`].
///
/// [`on`](Self::on) gives the right to read it on a stream. Clones share the memory. It is released
/// in the order of the stream that it was written on, behind the work of all readers; nothing of
/// this waits on the host.
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
    /// Behind all that was written.
    written: Event,
}

/// The right to read a [`SharedBuffer`] on a stream; of [`SharedBuffer::on`].
///
/// It is a [`DeviceSlice`] of that stream, for copies and kernels. Dropping it waits for nothing:
/// it records an event behind the work that was given to the stream (`cuEventRecord`), and makes
/// the stream that the memory was written on wait for it (`cuStreamWaitEvent`), unless that is the
/// same. Should that fail, the memory is never released, and
/// [`set_report_hook`](crate::set_report_hook)'s function hears of it.
#[must_use = "it is the right to read, as long as it lives"]
pub struct SharedReader<T> {
    reading: Reading,
    len: usize,
    elements: PhantomData<Arc<T>>,
}

/// A reader without a type.
#[derive(Clone)]
struct Reading {
    /// What to record behind the reads; none on the stream that wrote.
    end: Option<Event>,
    stream: Stream,
    memory: Arc<Memory>,
}

impl<T> DeviceBuffer<T> {
    /// Gives up writing, so that all streams may read: makes an event and records it behind what
    /// was written (`cuEventRecord`). The thread does not wait.
    ///
    /// # Errors
    /// With the buffer given back: [`Invalid::ForeignMemory`], as those who keep it think of its
    /// stream; [`Invalid::StreamIsCaptured`]; those of the driver.
    pub fn share(self) -> Result<SharedBuffer<T>, Rejected<Self>> {
        match self.mark_written() {
            Ok(written) => {
                let len = self.len();
                let allocation = self.into_allocation();
                Ok(SharedBuffer {
                    memory: Arc::new(Memory {
                        allocation,
                        written,
                    }),
                    len,
                    elements: PhantomData,
                })
            }
            Err(error) => Err(Rejected::new(error, self)),
        }
    }

    fn mark_written(&self) -> Result<Event> {
        if self.is_foreign() {
            return Err(Invalid::ForeignMemory.into());
        }
        let written = self.stream().context().event()?;
        written.record_uncaptured(self.stream())?;
        Ok(written)
    }
}

impl<T> SharedBuffer<T> {
    /// The right to read on `stream`: makes it wait for what was written (`cuStreamWaitEvent`), and
    /// makes an event for the end of the reads. On the stream that wrote, neither.
    ///
    /// # Errors
    /// A stream of another context; [`Invalid::StreamIsCaptured`]; those of the driver.
    ///
    /// Since CUDA 3.2. Raw: [`cuStreamWaitEvent`](fn@cuda_sys::cuStreamWaitEvent).
    #[doc(alias = "cuStreamWaitEvent")]
    pub fn on(&self, stream: &Stream) -> Result<SharedReader<T>> {
        same_context("the stream", stream.context(), self.stream().context())?;
        self.reader(stream)
    }

    /// The right to read on a stream of any context and device.
    pub(super) fn reader(&self, stream: &Stream) -> Result<SharedReader<T>> {
        let end = if self.stream() == stream {
            None
        } else {
            let end = stream.context().event()?;
            stream.wait_private(&self.memory.written)?;
            Some(end)
        };
        Ok(SharedReader {
            reading: Reading {
                end,
                stream: stream.clone(),
                memory: Arc::clone(&self.memory),
            },
            len: self.len,
            elements: PhantomData,
        })
    }

    /// The buffer, to be written again, if there is no other clone and no reader.
    ///
    /// # Errors
    /// There is one; this is given back.
    pub fn into_buffer(self) -> Result<DeviceBuffer<T>, Self> {
        let Self { memory, len, .. } = self;
        match Arc::try_unwrap(memory) {
            // The stream comes behind the reads: each reader saw to that at its end.
            Ok(memory) => Ok(DeviceBuffer::of_allocation(memory.allocation, len)),
            Err(memory) => Err(Self {
                memory,
                len,
                elements: PhantomData,
            }),
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The stream that it was written on, and that it is released on.
    pub fn stream(&self) -> &Stream {
        self.memory.allocation.stream()
    }
}

impl<T> SharedReader<T> {
    /// The memory, to read on the reader's stream.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        let address = self.reading.memory.allocation.address();
        DeviceSlice::new(address, self.len, &self.reading.stream)
    }

    /// The stream that it may be read on.
    pub fn stream(&self) -> &Stream {
        &self.reading.stream
    }

    /// The stream that the memory was written on.
    pub(super) fn home(&self) -> &Stream {
        self.reading.memory.allocation.stream()
    }
}

impl<'a, T> From<&'a SharedReader<T>> for DeviceSlice<'a, T> {
    fn from(reader: &'a SharedReader<T>) -> Self {
        reader.as_slice()
    }
}

impl<T> Drop for SharedReader<T> {
    fn drop(&mut self) {
        let Reading {
            end,
            stream,
            memory,
        } = &self.reading;
        if let Some(end) = end {
            let reads = Resource::Reads {
                end: end.raw(),
                stream: stream.raw(),
                home: memory.allocation.stream().raw(),
            };
            release(reads, &self.reading);
        }
    }
}

impl Parent for Reading {
    fn context(&self) -> Option<&Context> {
        Some(self.stream.context())
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        Box::new(self.clone())
    }

    fn is_borrowed(&self) -> bool {
        self.stream.is_borrowed() || self.memory.allocation.stream().is_borrowed()
    }

    fn ordered_on(&self) -> [Option<OrderedOn<'_>>; 2] {
        let home = self.memory.allocation.stream();
        [&self.stream, home].map(|its| Some(OrderedOn::Stream(its)))
    }
}

impl<T> Clone for SharedBuffer<T> {
    fn clone(&self) -> Self {
        Self {
            memory: Arc::clone(&self.memory),
            len: self.len,
            elements: PhantomData,
        }
    }
}

impl<T> fmt::Debug for SharedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.memory.allocation.address();
        let all = DeviceSlice::<T>::new(address, self.len, self.stream());
        slice::debug("SharedBuffer", &all, f)
    }
}

impl<T> fmt::Debug for SharedReader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        slice::debug("SharedReader", &self.as_slice(), f)
    }
}
