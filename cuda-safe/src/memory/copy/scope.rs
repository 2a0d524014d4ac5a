//! Asynchronous copies between the device and borrowed pinned memory. They run in a scope that ends with
//! a wait.

use crate::call::{
    Answer, Error, Result, answer, copy_without_current, debug_struct, refuse_in_host_function,
};
use crate::capture_state::Operation;
use crate::memory::copy::pending::leak_in_use;
use crate::memory::{CopyBatch, DeviceSlice, DeviceSliceMut, PinnedBuffer, same_length};
use crate::stream::{Stream, same_stream};
use bytemuck::{AnyBitPattern, NoUninit};
use cuda_sys::CUstream;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A scope for asynchronous copies from and to borrowed pinned memory. [`Stream::copy_scope`] passes it
/// to its closure.
pub struct CopyScope<'scope, 'env: 'scope> {
    stream: &'env Stream,
    /// The buffers that the stream may use until the wait at the end of the scope.
    borrowed: RefCell<Vec<&'scope mut (dyn LeakInUse + 'scope)>>,
    /// As in `std::thread::Scope`, both lifetimes are invariant, so that neither can be shortened.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl Stream {
    /// Runs `f`, which can enqueue copies from and to borrowed pinned memory on this stream. Then
    /// blocks the host until all work on the stream has completed.
    ///
    /// Calls `cuStreamSynchronize` after `f`, even if `f` fails or panics. The pinned memory stays
    /// borrowed until then. `f` may return any error type that implements `From<Error>`, such as the
    /// error type of a library.
    ///
    /// The stream cannot become part of a capture before the scope has ended: beginning a capture of it, and
    /// making it wait for an event of a capture or for one that other code knows, return
    /// [`Invalid::CallsInProgress`](crate::Invalid::CallsInProgress).
    ///
    /// If the wait fails, it is repeated a few times, and captures of other streams do not affect these waits. If
    /// they also fail, it is unknown whether the device still uses the memory. The memory is then leaked together with
    /// the stream and its context, and reported as
    /// [`Report::Leaked`](crate::Report::Leaked). The borrowed buffers are left empty.
    ///
    /// # Errors
    /// - [`Error::InHostFunction`] inside a host function. `f` is not run.
    /// - [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured). `f` is not run.
    /// - Errors from the work on the stream.
    /// - The error of `f`, if the wait succeeds.
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
    /// })?;
    /// assert_eq!(*back, *host);
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    ///
    /// Since CUDA 2.0. Raw: [`cuStreamSynchronize`](fn@cuda_sys::cuStreamSynchronize).
    #[doc(alias = "cuStreamSynchronize")]
    pub fn copy_scope<'env, R, E: From<Error>>(
        &'env self,
        f: impl for<'scope> FnOnce(&'scope CopyScope<'scope, 'env>) -> Result<R, E>,
    ) -> Result<R, E> {
        // Inside a host function, the wait at the end of the scope would be rejected.
        refuse_in_host_function()?;
        // Counted until the wait has returned. A captured stream cannot be waited for, and the memory of the
        // copies is borrowed no longer than this call.
        let _call = self.uncaptured(Operation::CopyScope)?;
        let scope = CopyScope {
            stream: self,
            borrowed: RefCell::default(),
            scope: PhantomData,
            env: PhantomData,
        };
        let done = catch_unwind(AssertUnwindSafe(|| f(&scope)));
        let waited = self.wait_for_host_copies(|error| {
            for buffer in scope.borrowed.take() {
                buffer.leak_in_use(self, error);
            }
        });
        match done {
            Ok(done) => {
                waited?;
                done
            }
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl<'scope> CopyScope<'scope, '_> {
    /// Returns the stream that the copies are enqueued on.
    #[inline]
    pub fn stream(&self) -> &Stream {
        self.stream
    }

    /// Enqueues a copy from pinned memory to the device. Does not block the host until the scope
    /// ends.
    ///
    /// Calls `cuMemcpyHtoDAsync(target, source, bytes, stream)`.
    ///
    /// # Errors
    /// - [`Invalid::Lengths`](crate::Invalid::Lengths) if the lengths differ.
    /// - [`Invalid::OtherStream`](crate::Invalid::OtherStream) if `target` is bound to another
    ///   stream.
    /// - Errors from the driver.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpyHtoDAsync_v2`](fn@cuda_sys::cuMemcpyHtoDAsync_v2).
    #[doc(alias = "cuMemcpyHtoDAsync")]
    pub fn copy_from_pinned<'a, T: NoUninit>(
        &self,
        target: impl Into<DeviceSliceMut<'a, T>>,
        source: &'scope mut PinnedBuffer<T>,
    ) -> Result<()> {
        let target = target.into();
        self.check(&target.as_slice(), |its| (source.len(), its))?;
        let (to, from, bytes) = (target.as_raw(), source.as_ptr(), target.size_bytes());
        self.keep_borrowed(source);
        self.enqueue_copy(bytes, |stream| {
            // SAFETY: source and target have `bytes` bytes each (the lengths are equal), and the source
            // has no uninitialized bytes. The source stays borrowed until a wait confirms that the
            // copy has completed.
            unsafe { answer!(cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, stream)) }
        })
    }

    /// Enqueues a copy from the device to pinned memory. Does not block the host until the scope
    /// ends.
    ///
    /// Calls `cuMemcpyDtoHAsync(target, source, bytes, stream)`.
    ///
    /// # Errors
    /// See [`copy_from_pinned`](Self::copy_from_pinned).
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpyDtoHAsync_v2`](fn@cuda_sys::cuMemcpyDtoHAsync_v2).
    #[doc(alias = "cuMemcpyDtoHAsync")]
    pub fn copy_to_pinned<'a, T: AnyBitPattern>(
        &self,
        source: impl Into<DeviceSlice<'a, T>>,
        target: &'scope mut PinnedBuffer<T>,
    ) -> Result<()> {
        let source = source.into();
        self.check(&source, |its| (its, target.len()))?;
        let (to, from, bytes) = (target.as_mut_ptr(), source.as_raw(), source.size_bytes());
        self.keep_borrowed(target);
        self.enqueue_copy(bytes, |stream| {
            // SAFETY: source and target have `bytes` bytes each (the lengths are equal), and every bit
            // pattern is a valid `T`. The target stays borrowed, and no code accesses it, until a wait
            // confirms that the copy has completed.
            unsafe { answer!(cuMemcpyDtoHAsync_v2(to.cast(), from, bytes, stream)) }
        })
    }

    /// Enqueues a batch of copies. Does not block the host until the scope ends. The host memory of the
    /// batch stays borrowed until then.
    ///
    /// Slices of more than 64 KiB in total can block the host.
    ///
    /// # Errors
    /// - [`Invalid::OtherStream`](crate::Invalid::OtherStream) if the batch was created for another
    ///   stream.
    /// - The errors of [`CopyBatch::enqueue`].
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, DeviceBuffer, PinnedBuffer};
    /// use cuda_safe::memory::CopyBatch;
    ///
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let stream = context.stream()?;
    /// let mut host = PinnedBuffer::<f32>::zeroed(&context, 1000)?;
    /// let mut weights = DeviceBuffer::<f32>::zeroed(&stream, 1000)?;
    /// let mut bias = DeviceBuffer::<f32>::zeroed(&stream, 4)?;
    /// stream.copy_scope(|scope| {
    ///     let mut batch = CopyBatch::new(&stream);
    ///     batch.push_from_pinned(&mut weights, &mut host)?;
    ///     batch.push_from_slice(&mut bias, &[0.0, 1.0, 0.0, 1.0])?;
    ///     scope.enqueue(batch)
    /// })?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    ///
    /// Since CUDA 12.8. Raw: [`cuMemcpyBatchAsync_v2`](fn@cuda_sys::cuMemcpyBatchAsync_v2).
    #[doc(alias = "cuMemcpyBatchAsync")]
    #[inline]
    pub fn enqueue(&self, mut batch: CopyBatch<'scope>) -> Result<()> {
        same_stream("the batch of copies", batch.stream(), self.stream)?;
        for buffer in batch.take_pinned() {
            self.borrowed.borrow_mut().push(buffer);
        }
        batch.enqueue_in_scope()
    }

    /// Checks that the copy is valid on this stream.
    fn check<T>(
        &self,
        device: &DeviceSlice<'_, T>,
        lengths: impl FnOnce(usize) -> (usize, usize),
    ) -> Result<()> {
        let (source, target) = lengths(device.len());
        same_length(source, target)?;
        same_stream("the memory of the copy", device.stream(), self.stream)
    }

    /// Keeps a buffer borrowed until the wait at the end of the scope, even if its copy fails.
    fn keep_borrowed<T: 'scope>(&self, buffer: &'scope mut PinnedBuffer<T>) {
        self.borrowed.borrow_mut().push(buffer);
    }

    fn enqueue_copy(&self, bytes: usize, copy: impl Fn(CUstream) -> Answer) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        copy_without_current(self.stream.context(), || copy(self.stream.raw()))
    }
}

/// A pinned buffer, independent of its element type.
pub(crate) trait LeakInUse {
    /// Leaks the memory, which the device may still use, and leaves an empty buffer.
    fn leak_in_use(&mut self, stream: &Stream, error: &Error);
}

impl<T> LeakInUse for PinnedBuffer<T> {
    fn leak_in_use(&mut self, stream: &Stream, error: &Error) {
        let empty = Self::empty(self.context());
        leak_in_use(std::mem::replace(self, empty), stream.clone(), error);
    }
}

debug_struct! { CopyScope<'_, '_> |its| { stream: its.stream, .. } }
