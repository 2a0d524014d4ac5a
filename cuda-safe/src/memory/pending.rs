//! Asynchronous copies between device memory and pinned memory, which own the pinned memory.

use super::{DeviceBuffer, DeviceSlice, DeviceSliceMut, PinnedBuffer, same_length};
use crate::base::call::{Answer, answer, without_current};
use crate::base::capture::Operation;
use crate::base::error::{Error, Rejected, Result};
use crate::base::release;
use crate::base::report::{Report, report};
use crate::base::zone::refuse_in_host_function;
use crate::driver::stream::Stream;
use bytemuck::{AnyBitPattern, NoUninit};
use std::fmt;
use std::mem::ManuallyDrop;

/// A copy in progress on a stream, which owns the pinned memory that it reads or writes.
///
/// [`DeviceBuffer::copy_from_pinned`] and [`DeviceBuffer::copy_to_pinned`] return one.
/// [`wait`](Self::wait) waits for the copy and returns the pinned memory. Dropping this also waits
/// and then frees the memory. Forgetting it leaks the memory but has no other effect.
///
/// If a wait fails, it is unknown whether the device still uses the memory. The memory is then
/// leaked together with its stream and context, and reported as
/// [`Report::Leaked`].
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
    /// Enqueues a copy from pinned memory to this memory, without blocking.
    ///
    /// Calls `cuMemcpyHtoDAsync(this, source, bytes, stream)` on the stream that this memory is
    /// bound to.
    ///
    /// # Errors
    /// On failure the source is returned with the error.
    ///
    /// - [`Invalid::Lengths`](crate::Invalid::Lengths) if the lengths differ.
    /// - [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    /// - [`Error::InHostFunction`] inside a host function.
    /// - Errors from the driver. The error may be from earlier work while the copy is in progress,
    ///   so the function waits for the stream before it returns. If that wait also fails, the
    ///   source is leaked and reported, and the returned buffer is empty.
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
            // SAFETY: both sides hold `bytes` (the lengths are equal), and the source has no
            // uninitialized bytes. The source is kept until the copy has completed.
            unsafe { answer!(cuMemcpyHtoDAsync_v2(to, from, bytes, stream)) }
        })
    }
}

impl<T: AnyBitPattern> DeviceSlice<'_, T> {
    /// Enqueues a copy of all elements into pinned memory, without blocking.
    ///
    /// Calls `cuMemcpyDtoHAsync(target, this, bytes, stream)` on the stream that this memory is
    /// bound to.
    ///
    /// # Errors
    /// See [`DeviceSliceMut::copy_from_pinned`]. The returned buffer is `target`.
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
            // SAFETY: both sides hold `bytes` (the lengths are equal), and every bit pattern is a
            // valid `T`. The target is kept, and no code accesses it, until the copy has completed.
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
            // If the call fails while the copy is in progress, this function must wait, which is
            // rejected inside a host function.
            .and_then(|()| refuse_in_host_function())
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
            // The error may be from earlier work, and the copy may be in progress.
            Err(error) => match pending.wait() {
                Ok(host) => Err(Rejected::new(error, host)),
                Err(_) => Err(Rejected::new(error, PinnedBuffer::empty(stream.context()))),
            },
        }
    }
}

/// Asynchronous copies of the whole buffer.
impl<T> DeviceBuffer<T> {
    /// Enqueues a copy from pinned memory to this buffer, without blocking.
    ///
    /// # Errors
    /// See [`DeviceSliceMut::copy_from_pinned`].
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

    /// Enqueues a copy of all elements into pinned memory, without blocking.
    ///
    /// # Errors
    /// See [`DeviceSlice::copy_to_pinned`].
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
    /// Waits for the copy, and for all work enqueued on the stream before it, and returns the
    /// pinned memory.
    ///
    /// # Errors
    /// Errors from the work on the stream. The memory is then leaked and reported.
    pub fn wait(self) -> Result<PinnedBuffer<T>> {
        let mut this = ManuallyDrop::new(self);
        let waited = this.stream.wait_for_work();
        // SAFETY: `this` is not used after this point: neither its `Drop` implementation nor its
        // fields.
        let stream = unsafe { std::ptr::read(&raw const this.stream) };
        // SAFETY: as above, `this` is not used after this point, so the buffer is taken exactly
        // once.
        let buffer = unsafe { ManuallyDrop::take(&mut this.buffer) };
        match waited {
            Ok(()) => Ok(buffer),
            Err(error) => {
                leak_in_use(buffer, stream, &error);
                Err(error)
            }
        }
    }

    /// Returns whether the copy has completed.
    ///
    /// # Errors
    /// Errors from the work on the stream.
    pub fn is_done(&self) -> Result<bool> {
        self.stream.is_idle()
    }

    /// Returns the stream that the copy is enqueued on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }
}

/// Leaks pinned memory that the device may still use, together with the stream that uses it.
pub(super) fn leak_in_use<T>(buffer: PinnedBuffer<T>, stream: Stream, error: &Error) {
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
        // SAFETY: the object is being dropped, so the buffer is taken exactly once.
        let buffer = unsafe { ManuallyDrop::take(&mut self.buffer) };
        match waited {
            Ok(()) => drop(buffer),
            Err(error) => leak_in_use(buffer, self.stream.clone(), &error),
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
