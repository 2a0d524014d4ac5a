//! Asynchronous copies between device memory and pinned memory, which own the pinned memory, or borrow it
//! in a scope that ends with a wait.

use crate::call::{
    Answer, Error, Rejected, Report, Result, answer, copy_without_current, debug_struct,
    refuse_in_host_function, report,
};
use crate::capture_state::Operation;
use crate::context::Context;
use crate::event::Event;
use crate::memory::{
    CopyBatch, DeviceBuffer, DeviceSlice, DeviceSliceMut, PinnedBuffer, PinnedRange, same_length,
};
use crate::stream::{Stream, same_stream};
use bytemuck::{AnyBitPattern, NoUninit};
use cuda_sys::CUstream;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A copy in progress on a stream, which owns the pinned memory that it reads or writes.
///
/// [`DeviceBuffer::copy_from_pinned`] and [`DeviceBuffer::copy_to_pinned`] return one.
/// [`synchronize`](Self::synchronize) waits for the copy and returns the pinned memory: a
/// [`PinnedBuffer`], or a [`PinnedRange`] of one. Dropping this also waits and then drops the memory.
/// Forgetting it leaks the memory but has no other effect.
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
/// let host = pending.synchronize()?;
/// assert_eq!(*host, [1, 2, 3]);
/// # Ok::<_, cuda_safe::Error>(())
/// ```
///
/// # A queue of copies
/// A queue whose copies are waited for before the next one is pushed needs the type of its elements:
/// `Pending<T>` for buffers, and `Pending<T, PinnedRange<T>>` for ranges. The ranges of one buffer can be
/// waited for one by one, so that the host works on one part while the others are copied:
///
/// ```no_run
/// use cuda_safe::{DeviceBuffer, PinnedBuffer, Result};
/// use cuda_safe::memory::{Pending, PinnedRange};
/// use std::collections::VecDeque;
///
/// /// Copies the elements to the host in parts, with at most two copies in progress.
/// fn sum(data: &DeviceBuffer<u32>, host: PinnedBuffer<u32>) -> Result<u32> {
///     let mut sum = 0;
///     let mut queue: VecDeque<Pending<u32, PinnedRange<u32>>> = VecDeque::with_capacity(2);
///     let mut start = 0;
///     for part in host.into_chunks(1 << 20)? {
///         if queue.len() == 2 {
///             if let Some(pending) = queue.pop_front() {
///                 sum += pending.synchronize()?.iter().sum::<u32>();
///             }
///         }
///         let end = start + part.len();
///         queue.push_back(data.slice(start..end)?.copy_to_pinned(part)?);
///         start = end;
///     }
///     for pending in queue {
///         sum += pending.synchronize()?.iter().sum::<u32>();
///     }
///     Ok(sum)
/// }
///
/// # let context = cuda_safe::Context::primary(&cuda_safe::Device::get(0)?)?;
/// # let stream = context.stream()?;
/// let data = DeviceBuffer::from_slice(&stream, &vec![1; 3_000_000])?;
/// assert_eq!(sum(&data, PinnedBuffer::zeroed(&context, 3_000_000)?)?, 3_000_000);
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[must_use = "dropping it waits for the copy"]
pub struct Pending<T, H: Pinned<T> = PinnedBuffer<T>> {
    /// Taken exactly once, by a wait or by the drop. (An `Option` would cost 7 instructions of 130 for each
    /// copy: `cargo xtask cost`.)
    host: ManuallyDrop<H>,
    stream: Stream,
    elements: PhantomData<T>,
}

/// Pinned host memory that an asynchronous copy can own: a [`PinnedBuffer`] or a [`PinnedRange`].
///
/// This trait is sealed: no other types can implement it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not pinned memory that a copy can own",
    note = "pass a `PinnedBuffer` or a `PinnedRange` with the same elements by value; \
            `PinnedBuffer::into_chunks` divides a buffer into ranges"
)]
pub trait Pinned<T>: sealed::Host<T> {}

impl<T> Pinned<T> for PinnedBuffer<T> {}

impl<T> Pinned<T> for PinnedRange<T> {}

mod sealed {
    use super::{Context, Result, Stream};

    /// What a copy does with the pinned memory that it owns.
    pub trait Host<T>: Sized {
        /// The name of the memory in reports of a leak.
        const NAME: &'static str;

        /// Returns memory without elements.
        fn empty(context: &Context) -> Self;
        /// Returns the number of elements, without creating a slice.
        fn count(&self) -> usize;
        /// Returns the address of the first element.
        fn start(&self) -> *mut T;
        /// Creates what is needed to wait for a copy on `stream`, before the copy is enqueued.
        fn before_copy(&mut self, stream: &Stream) -> Result<()>;
        /// Marks the end of a copy that was just enqueued on `stream`.
        fn after_copy(&self, stream: &Stream) -> Result<()>;
        /// Waits for the copy that was marked on `stream`.
        fn synchronize(&mut self, stream: &Stream) -> Result<()>;
        /// Returns whether the copy that was marked on `stream` has completed.
        fn is_complete(&self, stream: &Stream) -> Result<bool>;
    }
}

/// A copy of a whole buffer is waited for with its stream.
impl<T> sealed::Host<T> for PinnedBuffer<T> {
    const NAME: &'static str = "pinned memory that a copy may still use";

    fn empty(context: &Context) -> Self {
        Self::empty(context)
    }

    #[inline]
    fn count(&self) -> usize {
        self.count()
    }

    #[inline]
    fn start(&self) -> *mut T {
        self.start()
    }

    #[inline]
    fn before_copy(&mut self, _: &Stream) -> Result<()> {
        Ok(())
    }

    #[inline]
    fn after_copy(&self, _: &Stream) -> Result<()> {
        Ok(())
    }

    #[inline]
    fn synchronize(&mut self, stream: &Stream) -> Result<()> {
        stream.wait_for_work()
    }

    fn is_complete(&self, stream: &Stream) -> Result<bool> {
        stream.is_complete()
    }
}

/// The copies of several ranges can be in progress on one stream, so each range has an event.
impl<T> sealed::Host<T> for PinnedRange<T> {
    const NAME: &'static str = "a range of pinned memory that a copy may still use";

    fn empty(context: &Context) -> Self {
        Self::empty(context)
    }

    fn count(&self) -> usize {
        self.count()
    }

    fn start(&self) -> *mut T {
        self.start()
    }

    fn before_copy(&mut self, stream: &Stream) -> Result<()> {
        self.prepare_event(stream)
    }

    fn after_copy(&self, stream: &Stream) -> Result<()> {
        // The copy is counted as a call on the stream, so the record is not captured either.
        self.event().map_or(Ok(()), |event| event.enqueue_record(stream))
    }

    fn synchronize(&mut self, _: &Stream) -> Result<()> {
        self.wait_for_event()
    }

    fn is_complete(&self, _: &Stream) -> Result<bool> {
        self.event().map_or(Ok(true), Event::is_complete)
    }
}

impl<T: NoUninit> DeviceSliceMut<'_, T> {
    /// Enqueues a copy from pinned memory to this memory. Does not block the host, except for
    /// [deferred releases](crate::reference::releases#deferred-releases).
    ///
    /// Calls `cuMemcpyHtoDAsync(this, source, bytes, stream)` on the stream that this memory is
    /// bound to. The source is a [`PinnedBuffer`] or a [`PinnedRange`]. For a range, also records
    /// an event (`cuEventRecord`), which the first copy of the range creates.
    ///
    /// # Errors
    /// On an error, the source is dropped. [`try_copy_from_pinned`](Self::try_copy_from_pinned) returns
    /// it with the error.
    ///
    /// - [`Invalid::Lengths`](crate::Invalid::Lengths) if the lengths differ.
    /// - [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    /// - [`Error::InHostFunction`] inside a host function.
    /// - Errors from the driver. The error may be from earlier work while the copy is in progress,
    ///   so the function waits for the stream before it returns. If that wait also fails, the
    ///   source is leaked and reported.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpyHtoDAsync_v2`](fn@cuda_sys::cuMemcpyHtoDAsync_v2).
    #[doc(alias = "cuMemcpyHtoDAsync")]
    #[inline]
    pub fn copy_from_pinned<H: Pinned<T>>(&mut self, source: H) -> Result<Pending<T, H>> {
        Ok(self.try_copy_from_pinned(source)?)
    }

    /// Does the same as [`copy_from_pinned`](Self::copy_from_pinned), but returns the source with the
    /// error. The returned memory is empty if the source was leaked.
    ///
    /// # Errors
    /// See [`copy_from_pinned`](Self::copy_from_pinned).
    #[inline]
    pub fn try_copy_from_pinned<H: Pinned<T>>(
        &mut self,
        source: H,
    ) -> Result<Pending<T, H>, Rejected<H>> {
        let (to, from) = (self.as_raw(), source.start().cast_const().cast());
        self.as_slice().copy_pinned(source, |bytes, stream| {
            // SAFETY: both sides hold `bytes` (the lengths are equal), and the source has no
            // uninitialized bytes. The source is kept until the copy has completed.
            unsafe { answer!(cuMemcpyHtoDAsync_v2(to, from, bytes, stream)) }
        })
    }
}

impl<T: AnyBitPattern> DeviceSlice<'_, T> {
    /// Enqueues a copy of all elements into pinned memory. Does not block the host, except for
    /// [deferred releases](crate::reference::releases#deferred-releases).
    ///
    /// Calls `cuMemcpyDtoHAsync(target, this, bytes, stream)` on the stream that this memory is
    /// bound to. The target is a [`PinnedBuffer`] or a [`PinnedRange`]. For a range, also records
    /// an event (`cuEventRecord`), which the first copy of the range creates.
    ///
    /// # Errors
    /// See [`DeviceSliceMut::copy_from_pinned`]. On an error, the target is dropped.
    /// [`try_copy_to_pinned`](Self::try_copy_to_pinned) returns it with the error.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpyDtoHAsync_v2`](fn@cuda_sys::cuMemcpyDtoHAsync_v2).
    #[doc(alias = "cuMemcpyDtoHAsync")]
    #[inline]
    pub fn copy_to_pinned<H: Pinned<T>>(&self, target: H) -> Result<Pending<T, H>> {
        Ok(self.try_copy_to_pinned(target)?)
    }

    /// Does the same as [`copy_to_pinned`](Self::copy_to_pinned), but returns the target with the error.
    /// The returned memory is empty if the target was leaked.
    ///
    /// # Errors
    /// See [`copy_to_pinned`](Self::copy_to_pinned).
    #[inline]
    pub fn try_copy_to_pinned<H: Pinned<T>>(
        &self,
        target: H,
    ) -> Result<Pending<T, H>, Rejected<H>> {
        let (to, from) = (target.start().cast(), self.as_raw());
        self.copy_pinned(target, |bytes, stream| {
            // SAFETY: both sides hold `bytes` (the lengths are equal), and every bit pattern is a
            // valid `T`. The target is kept, and no code accesses it, until the copy has completed.
            unsafe { answer!(cuMemcpyDtoHAsync_v2(to, from, bytes, stream)) }
        })
    }
}

impl<T> DeviceSlice<'_, T> {
    #[inline]
    pub(crate) fn copy_pinned<H: Pinned<T>>(
        &self,
        mut host: H,
        copy: impl Fn(usize, cuda_sys::CUstream) -> Answer,
    ) -> Result<Pending<T, H>, Rejected<H>> {
        let stream = self.stream();
        let possible = same_length(host.count(), self.len())
            // If the call fails while the copy is in progress, this function must wait, which is
            // rejected inside a host function.
            .and_then(|()| refuse_in_host_function())
            .and_then(|()| stream.uncaptured(Operation::HostCopy))
            .and_then(|call| host.before_copy(stream).map(|()| call));
        let (_call, host) = Rejected::unless(possible, host)?;
        let given = match self.size_bytes() {
            0 => Ok(()),
            bytes => copy_without_current(stream.context(), || copy(bytes, stream.raw()))
                .and_then(|()| host.after_copy(stream)),
        };
        let pending = Pending {
            host: ManuallyDrop::new(host),
            stream: stream.clone(),
            elements: PhantomData,
        };
        match given {
            Ok(()) => Ok(pending),
            // The error may be from earlier work, and the copy may be in progress. Its end may not
            // be marked, so this waits for the stream.
            Err(error) => match pending.end(|_, stream| stream.wait_for_work()) {
                Ok(host) => Err(Rejected::new(error, host)),
                Err(_) => Err(Rejected::new(error, H::empty(stream.context()))),
            },
        }
    }
}

/// Asynchronous copies of the whole buffer.
impl<T> DeviceBuffer<T> {
    /// Enqueues a copy from pinned memory to this buffer. Does not block the host, except for
    /// [deferred releases](crate::reference::releases#deferred-releases).
    ///
    /// See [`DeviceSliceMut::copy_from_pinned`].
    ///
    /// # Errors
    /// See [`DeviceSliceMut::copy_from_pinned`]. On an error, the source is dropped.
    /// [`DeviceSliceMut::try_copy_from_pinned`] of [`as_mut_slice`](Self::as_mut_slice) returns it with
    /// the error.
    #[inline]
    pub fn copy_from_pinned<H: Pinned<T>>(&mut self, source: H) -> Result<Pending<T, H>>
    where
        T: NoUninit,
    {
        self.as_mut_slice().copy_from_pinned(source)
    }

    /// Enqueues a copy of all elements into pinned memory. Does not block the host, except for
    /// [deferred releases](crate::reference::releases#deferred-releases).
    ///
    /// See [`DeviceSlice::copy_to_pinned`].
    ///
    /// # Errors
    /// See [`DeviceSlice::copy_to_pinned`]. On an error, the target is dropped.
    /// [`DeviceSlice::try_copy_to_pinned`] of [`as_slice`](Self::as_slice) returns it with the error.
    #[inline]
    pub fn copy_to_pinned<H: Pinned<T>>(&self, target: H) -> Result<Pending<T, H>>
    where
        T: AnyBitPattern,
    {
        self.as_slice().copy_to_pinned(target)
    }
}

impl<T, H: Pinned<T>> Pending<T, H> {
    /// Blocks the host until the copy has completed, and returns the pinned memory.
    ///
    /// For a [`PinnedRange`], waits for the copy and for the work enqueued on the stream before it
    /// (`cuEventSynchronize`). For a [`PinnedBuffer`], waits for all work on the stream
    /// (`cuStreamSynchronize`).
    ///
    /// # Errors
    /// Errors from the work on the stream. The memory is then leaked and reported.
    pub fn synchronize(self) -> Result<H> {
        self.end(H::synchronize)
    }

    /// Takes the memory if `wait` succeeds, and leaks it otherwise.
    #[inline]
    fn end(self, wait: impl FnOnce(&mut H, &Stream) -> Result<()>) -> Result<H> {
        let mut this = ManuallyDrop::new(self);
        let this = &mut *this;
        let waited = wait(&mut this.host, &this.stream);
        // SAFETY: `this` is not used after this point: neither its `Drop` implementation nor its
        // fields.
        let stream = unsafe { std::ptr::read(&raw const this.stream) };
        // SAFETY: as above, `this` is not used after this point, so the memory is taken exactly
        // once.
        let host = unsafe { ManuallyDrop::take(&mut this.host) };
        match waited {
            Ok(()) => Ok(host),
            Err(error) => {
                leak_in_use(host, stream, &error);
                Err(error)
            }
        }
    }

    /// Returns whether the copy has completed. Does not block the host.
    ///
    /// # Errors
    /// Errors from the work on the stream.
    pub fn is_complete(&self) -> Result<bool> {
        self.host.is_complete(&self.stream)
    }

    /// Returns the stream that the copy is enqueued on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }
}

/// Leaks pinned memory that the device may still use, together with the stream that uses it.
pub(crate) fn leak_in_use<T, H: Pinned<T>>(host: H, stream: Stream, error: &Error) {
    std::mem::forget(host);
    std::mem::forget(stream);
    report(&Report::Leaked { what: H::NAME, error: error.clone() });
}

impl<T, H: Pinned<T>> Drop for Pending<T, H> {
    fn drop(&mut self) {
        let waited = self.host.synchronize(&self.stream);
        // SAFETY: the object is being dropped, so the memory is taken exactly once.
        let host = unsafe { ManuallyDrop::take(&mut self.host) };
        match waited {
            Ok(()) => drop(host),
            Err(error) => leak_in_use(host, self.stream.clone(), &error),
        }
    }
}

debug_struct! {
    [T, H: Pinned<T>] Pending<T, H> |its| { len: its.host.count(), stream: its.stream }
}

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
    /// [`Report::Leaked`]. The borrowed buffers are left empty.
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
