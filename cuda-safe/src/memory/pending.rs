//! Asynchronous copies between device and pinned memory: the operation owns the host memory.

use super::{DeviceBuffer, DeviceSlice, DeviceSliceMut, PinnedBuffer, same_length};
use crate::call::{Answer, answer, without_current};
use crate::capture::Operation;
use crate::error::{Error, Rejected, Result};
use crate::release;
use crate::report::{Report, report};
use crate::stream::{Stream, refuse_inside};
use bytemuck::{AnyBitPattern, NoUninit};
use std::fmt;
use std::mem::ManuallyDrop;

/// A copy that a stream is to make, with the pinned memory that it reads or writes.
///
/// [`wait`](Self::wait) gives the memory back. Dropping it waits as well; forgetting it leaks the
/// memory, and nothing else. Should the wait fail, nobody knows whether the device is done with the
/// memory: it is *stranded*, that is, leaked with its stream and context, and reported.
///
/// ```no_run
/// use cuda_safe::{Context, Device, DeviceBuffer, PinnedBuffer};
///
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// let buffer = DeviceBuffer::from_slice(&stream, &[1u32, 2, 3])?;
/// let pending = buffer.copy_to_pinned(PinnedBuffer::zeroed(&context, 3)?)?;
/// // ... other work of the host, and then:
/// let host = pending.wait()?;
/// assert_eq!(*host, [1, 2, 3]);
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[must_use = "dropping it waits for the copy"]
pub struct Pending<T> {
    buffer: ManuallyDrop<PinnedBuffer<T>>,
    stream: Stream,
}

impl<T: NoUninit> DeviceSliceMut<'_, T> {
    /// `cuMemcpyHtoDAsync(this, source, bytes, stream)`: copies `source` here, in the order of the
    /// memory's stream. Does not wait.
    ///
    /// # Errors
    /// With the source given back: [`Invalid::Lengths`](crate::Invalid::Lengths);
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured); [`Error::InHostFunction`]. If
    /// the driver refuses, its error may be of earlier work and the copy under way: the copy is waited for first. Should
    /// that fail too, the source is stranded, and what is given back is empty.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpyHtoDAsync_v2`](fn@cuda_sys::cuMemcpyHtoDAsync_v2).
    #[doc(alias = "cuMemcpyHtoDAsync")]
    #[inline]
    pub fn copy_from_pinned(
        &mut self,
        source: PinnedBuffer<T>,
    ) -> Result<Pending<T>, Rejected<PinnedBuffer<T>>> {
        let (to, from) = (self.as_raw(), source.as_ptr().cast());
        self.as_slice().copy_pinned(source, |bytes, stream| {
            // SAFETY: both sides hold `bytes` (the lengths are equal), the source without an
            // uninitialised byte; it is kept until the copy is done.
            unsafe { answer!(cuMemcpyHtoDAsync_v2(to, from, bytes, stream)) }
        })
    }
}

impl<T: AnyBitPattern> DeviceSlice<'_, T> {
    /// `cuMemcpyDtoHAsync(target, this, bytes, stream)`: copies all elements into `target`, in the
    /// order of their stream. Does not wait.
    ///
    /// # Errors
    /// As for [`DeviceSliceMut::copy_from_pinned`].
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpyDtoHAsync_v2`](fn@cuda_sys::cuMemcpyDtoHAsync_v2).
    #[doc(alias = "cuMemcpyDtoHAsync")]
    #[inline]
    pub fn copy_to_pinned(
        &self,
        mut target: PinnedBuffer<T>,
    ) -> Result<Pending<T>, Rejected<PinnedBuffer<T>>> {
        let (to, from) = (target.as_mut_ptr().cast(), self.as_raw());
        self.copy_pinned(target, |bytes, stream| {
            // SAFETY: both sides hold `bytes` (the lengths are equal), and any bits are a `T`; the
            // target is kept, and nobody looks at it, until the copy is done.
            unsafe { answer!(cuMemcpyDtoHAsync_v2(to, from, bytes, stream)) }
        })
    }
}

impl<T> DeviceSlice<'_, T> {
    #[inline]
    fn copy_pinned(
        &self,
        host: PinnedBuffer<T>,
        copy: impl Fn(usize, cuda_sys::CUstream) -> Answer,
    ) -> Result<Pending<T>, Rejected<PinnedBuffer<T>>> {
        release::drain();
        let stream = self.stream();
        let possible = same_length(host.len(), self.len())
            // Were the copy under way all the same, the wait for it would be refused.
            .and_then(|()| refuse_inside())
            .and_then(|()| stream.uncaptured(Operation::HostCopy));
        let _call = match possible {
            Ok(call) => call,
            Err(error) => return Err(Rejected::new(error, host)),
        };
        let pending = Pending {
            buffer: ManuallyDrop::new(host),
            stream: stream.clone(),
        };
        if self.size_bytes() == 0 {
            return Ok(pending);
        }
        let given = without_current(stream.context(), || copy(self.size_bytes(), stream.raw()));
        match given {
            Ok(()) => Ok(pending),
            // The code may be of earlier work, and the copy under way.
            Err(error) => match pending.wait() {
                Ok(host) => Err(Rejected::new(error, host)),
                Err(_) => Err(Rejected::new(error, PinnedBuffer::empty(stream.context()))),
            },
        }
    }
}

/// The whole buffer: as for its slices.
impl<T> DeviceBuffer<T> {
    /// Copies `source` here, without a wait: [`DeviceSliceMut::copy_from_pinned`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn copy_from_pinned(
        &mut self,
        source: PinnedBuffer<T>,
    ) -> Result<Pending<T>, Rejected<PinnedBuffer<T>>>
    where
        T: NoUninit,
    {
        self.as_mut_slice().copy_from_pinned(source)
    }

    /// Copies all elements into `target`, without a wait: [`DeviceSlice::copy_to_pinned`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn copy_to_pinned(
        &self,
        target: PinnedBuffer<T>,
    ) -> Result<Pending<T>, Rejected<PinnedBuffer<T>>>
    where
        T: AnyBitPattern,
    {
        self.as_slice().copy_to_pinned(target)
    }
}

impl<T> Pending<T> {
    /// Waits for the copy, and all work given to the stream before it, and gives the memory back.
    ///
    /// # Errors
    /// Those of the work; then the memory is stranded.
    pub fn wait(self) -> Result<PinnedBuffer<T>> {
        let mut this = ManuallyDrop::new(self);
        let waited = this.stream.wait_for_work();
        // SAFETY: `this` is not used any more: neither its Drop nor its fields.
        let stream = unsafe { std::ptr::read(&raw const this.stream) };
        // SAFETY: as above; the buffer is taken out once.
        let buffer = unsafe { ManuallyDrop::take(&mut this.buffer) };
        match waited {
            Ok(()) => Ok(buffer),
            Err(error) => {
                strand(buffer, stream, &error);
                Err(error)
            }
        }
    }

    /// Whether the copy is done.
    ///
    /// # Errors
    /// Those of the work.
    pub fn is_done(&self) -> Result<bool> {
        self.stream.is_idle()
    }

    /// The stream that makes the copy.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }
}

/// Leaks pinned memory that the device may still use, with the stream that does.
pub(super) fn strand<T>(buffer: PinnedBuffer<T>, stream: Stream, error: &Error) {
    std::mem::forget(buffer);
    std::mem::forget(stream);
    report(&Report::Leaked {
        what: "pinned memory that a copy may still use",
        error: error.clone(),
    });
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        let waited = self.stream.wait_for_work();
        // SAFETY: this is the end of the object, so the buffer is taken out once.
        let buffer = unsafe { ManuallyDrop::take(&mut self.buffer) };
        match waited {
            Ok(()) => drop(buffer),
            Err(error) => strand(buffer, self.stream.clone(), &error),
        }
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending")
            .field("len", &self.buffer.count())
            .field("stream", &self.stream)
            .finish()
    }
}
