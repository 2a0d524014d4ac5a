//! Copies of borrowed pinned memory, within a scope that ends with a wait.

use super::pending::strand;
use super::{DeviceSlice, DeviceSliceMut, PinnedBuffer, same_length};
use crate::call::{Answer, answer, without_current};
use crate::capture::{CallGuard, Operation};
use crate::error::{Error, Result};
use crate::release;
use crate::stream::{Stream, refuse_inside};
use bytemuck::{AnyBitPattern, NoUninit};
use cuda_sys::CUstream;
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Where pinned memory is copied that is only borrowed; of [`Stream::copy_scope`].
pub struct CopyScope<'scope, 'env: 'scope> {
    stream: &'env Stream,
    /// What a stream may still use until the wait at the end.
    lent: RefCell<Vec<&'scope mut (dyn Strand + 'scope)>>,
    /// As in `std::thread::Scope`: neither lifetime is to shrink.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl Stream {
    /// Runs `f`, which may give copies of borrowed pinned memory to this stream, and then waits
    /// (`cuStreamSynchronize`): also when `f` panics.
    ///
    /// The memory is borrowed until then. Should the wait fail, nobody knows whether the device is
    /// done with it: it is *stranded*, that is, leaked with the stream and its context, and
    /// reported, and the borrowed buffers are left empty.
    ///
    /// # Errors
    /// Those of the work that it waits for; [`Error::InHostFunction`] and
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured), and `f` is not run.
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, DeviceBuffer, PinnedBuffer};
    ///
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let stream = context.stream()?;
    /// let mut host = PinnedBuffer::<f32>::zeroed(&context, 1000)?;
    /// let mut back = PinnedBuffer::<f32>::zeroed(&context, 1000)?;
    /// let mut buffer = DeviceBuffer::<f32>::zeroed(&stream, 1000)?;
    /// stream.copy_scope(|scope| {
    ///     scope.copy_from_pinned(&mut buffer, &mut host)?;
    ///     scope.copy_to_pinned(&buffer, &mut back)
    /// })??;
    /// assert_eq!(*back, *host);
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    ///
    /// Since CUDA 2.0. Raw: [`cuStreamSynchronize`](fn@cuda_sys::cuStreamSynchronize).
    #[doc(alias = "cuStreamSynchronize")]
    pub fn copy_scope<'env, R>(
        &'env self,
        f: impl for<'scope> FnOnce(&'scope CopyScope<'scope, 'env>) -> R,
    ) -> Result<R> {
        // Inside of a host function the wait at the end would be refused.
        refuse_inside()?;
        release::drain();
        drop(self.uncaptured(Operation::HostCopy)?);
        let scope = CopyScope {
            stream: self,
            lent: RefCell::default(),
            scope: PhantomData,
            env: PhantomData,
        };
        let done = catch_unwind(AssertUnwindSafe(|| f(&scope)));
        let waited = self.wait_for_work();
        if let Err(error) = &waited {
            for buffer in scope.lent.borrow_mut().drain(..) {
                buffer.strand(self, error);
            }
        }
        match done {
            Ok(done) => waited.map(|()| done),
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl<'scope> CopyScope<'scope, '_> {
    /// The stream that makes the copies.
    pub fn stream(&self) -> &Stream {
        self.stream
    }

    /// `cuMemcpyHtoDAsync(target, source, bytes, stream)`: copies `source` to the device. Does not
    /// wait.
    ///
    /// # Errors
    /// [`Invalid::Lengths`](crate::Invalid::Lengths);
    /// [`Invalid::OtherStream`](crate::Invalid::OtherStream);
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured); those of the driver.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpyHtoDAsync_v2`](fn@cuda_sys::cuMemcpyHtoDAsync_v2).
    #[doc(alias = "cuMemcpyHtoDAsync")]
    pub fn copy_from_pinned<'a, T: NoUninit>(
        &self,
        target: impl Into<DeviceSliceMut<'a, T>>,
        source: &'scope mut PinnedBuffer<T>,
    ) -> Result<()> {
        let target = target.into();
        let _call = self.check(&target.as_slice(), |its| (source.len(), its))?;
        let (to, from, bytes) = (target.as_raw(), source.as_ptr(), target.size_bytes());
        self.lend(source);
        self.give(bytes, |stream| {
            // SAFETY: both sides hold `bytes` (the lengths are equal), the source without an
            // uninitialised byte; it is lent until a wait says that the copy is done.
            unsafe { answer!(cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, stream)) }
        })
    }

    /// `cuMemcpyDtoHAsync(target, source, bytes, stream)`: copies `source` to the host. Does not
    /// wait.
    ///
    /// # Errors
    /// As for [`copy_from_pinned`](Self::copy_from_pinned).
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpyDtoHAsync_v2`](fn@cuda_sys::cuMemcpyDtoHAsync_v2).
    #[doc(alias = "cuMemcpyDtoHAsync")]
    pub fn copy_to_pinned<'a, T: AnyBitPattern>(
        &self,
        source: impl Into<DeviceSlice<'a, T>>,
        target: &'scope mut PinnedBuffer<T>,
    ) -> Result<()> {
        let source = source.into();
        let _call = self.check(&source, |its| (its, target.len()))?;
        let (to, from, bytes) = (target.as_mut_ptr(), source.as_raw(), source.size_bytes());
        self.lend(target);
        self.give(bytes, |stream| {
            // SAFETY: both sides hold `bytes` (the lengths are equal), and any bits are a `T`; the
            // target is lent, and nobody looks at it, until a wait says that the copy is done.
            unsafe { answer!(cuMemcpyDtoHAsync_v2(to.cast(), from, bytes, stream)) }
        })
    }

    /// Refuses what cannot be copied on this stream, and counts the copy.
    fn check<T>(
        &self,
        device: &DeviceSlice<'_, T>,
        lengths: impl FnOnce(usize) -> (usize, usize),
    ) -> Result<CallGuard<'_>> {
        let (source, target) = lengths(device.len());
        same_length(source, target)?;
        device.check_stream(|| "the memory of the copy".to_owned(), self.stream)?;
        self.stream.uncaptured(Operation::HostCopy)
    }

    /// Keeps a buffer until the wait at the end, whatever comes of its copy.
    fn lend<T: 'scope>(&self, buffer: &'scope mut PinnedBuffer<T>) {
        self.lent.borrow_mut().push(buffer);
    }

    fn give(&self, bytes: usize, copy: impl Fn(CUstream) -> Answer) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        without_current(self.stream.context(), || copy(self.stream.raw()))
    }
}

/// Pinned memory of any type.
trait Strand {
    /// Leaks the memory, which the device may still use, and leaves an empty buffer.
    fn strand(&mut self, stream: &Stream, error: &Error);
}

impl<T> Strand for PinnedBuffer<T> {
    fn strand(&mut self, stream: &Stream, error: &Error) {
        let empty = Self::empty(self.context());
        strand(std::mem::replace(self, empty), stream.clone(), error);
    }
}

impl fmt::Debug for CopyScope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyScope")
            .field("stream", self.stream)
            .finish_non_exhaustive()
    }
}
