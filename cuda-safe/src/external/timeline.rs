//! Timeline semaphores.

use super::semaphore::{Semaphore, signal_of, wait_of};
use crate::call::{Invalid, Result, debug_struct, expect_handle, refuse_if};
use crate::context::Context;
use crate::stream::Stream;
use cuda_sys::CUexternalSemaphore;
#[cfg(unix)]
use {crate::call::Rejected, cuda_sys::CUexternalSemaphoreHandleType, std::os::fd::OwnedFd};

/// A semaphore of another API whose value grows (`VK_SEMAPHORE_TYPE_TIMELINE`).
///
/// [`Stream::signal_timeline`] sets the value, and [`Stream::wait_timeline`] waits until it has at least a value. Both
/// are ordered with the work of the stream, and block no thread.
///
/// # Ordering
/// The page of the [module](super#ordering) says what the other API releases before a signal and acquires after a wait.
///
/// # Deadlocks
/// A wait may be enqueued before the signal, by this API or the other one. If nothing signals the value, the stream
/// waits forever, and so does everything that waits for the stream, such as a free of synchronous memory. (The software
/// driver reports this instead.) The value never decreases: a signal with a value that is not larger than those before
/// is an error, as far as they were signaled by this object. A signal of the other API with a larger value than the next
/// one here is not seen, and the smaller value then replaces it (measured, driver 580).
///
/// # Drop
/// Dropping the semaphore does not block: it is destroyed after the work on its streams
/// ([deferred](crate::reference::releases)). It keeps these streams until then.
///
/// ```no_run
/// use cuda_safe::external::TimelineSemaphore;
/// use cuda_safe::{DeviceBuffer, Result, Stream};
///
/// /// The other API signals an odd number when its frame is ready, and waits for the next number.
/// fn frame(
///     stream: &Stream,
///     semaphore: &mut TimelineSemaphore,
///     image: &mut DeviceBuffer<u32>,
///     number: u64,
/// ) -> Result<()> {
///     stream.wait_timeline(semaphore, 2 * number + 1)?;
///     image.fill(0)?;
///     stream.signal_timeline(semaphore, 2 * number + 2)
/// }
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct TimelineSemaphore {
    semaphore: Semaphore,
    /// The value of the last signal.
    last: u64,
}

impl TimelineSemaphore {
    /// Imports a semaphore from a file descriptor, which is closed in any case. Calls
    /// `cuImportExternalSemaphore`.
    ///
    /// # Errors
    /// `CUDA_ERROR_UNKNOWN` or a similar code if the descriptor is not one of a semaphore.
    ///
    /// # Safety
    /// The descriptor is that of a timeline semaphore of the device of the context. The driver also accepts that of a
    /// binary semaphore, and a descriptor of memory, into which signals then write (measured, driver 580).
    ///
    /// Since CUDA 11.2. Raw: [`cuImportExternalSemaphore`](fn@cuda_sys::cuImportExternalSemaphore),
    /// [`cuDestroyExternalSemaphore`](fn@cuda_sys::cuDestroyExternalSemaphore).
    #[cfg(unix)]
    #[doc(alias = "cuImportExternalSemaphore", alias = "cuDestroyExternalSemaphore")]
    #[inline]
    pub unsafe fn import(context: &Context, descriptor: OwnedFd) -> Result<Self> {
        // SAFETY: the caller's promise.
        Ok(unsafe { Self::try_import(context, descriptor) }?)
    }

    /// Does the same as [`import`](Self::import), but returns the descriptor with the error. The driver gets a duplicate,
    /// which stays open after an error of the driver.
    ///
    /// # Errors
    /// See [`import`](Self::import).
    ///
    /// # Safety
    /// See [`import`](Self::import).
    ///
    /// Since CUDA 11.2. Raw: [`cuImportExternalSemaphore`](fn@cuda_sys::cuImportExternalSemaphore).
    #[cfg(unix)]
    #[doc(alias = "cuImportExternalSemaphore")]
    #[inline]
    pub unsafe fn try_import(
        context: &Context,
        descriptor: OwnedFd,
    ) -> Result<Self, Rejected<OwnedFd>> {
        let kind =
            CUexternalSemaphoreHandleType::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
        // SAFETY: the caller's promise.
        Ok(Self::new(unsafe { Semaphore::import(context, kind, descriptor) }?))
    }

    /// Takes ownership of a handle.
    ///
    /// # Errors
    /// [`Invalid::Handle`] if the handle is null.
    ///
    /// # Safety
    /// `raw` is a timeline semaphore that was imported in this context, and no other code destroys it.
    #[inline]
    pub unsafe fn from_raw(raw: CUexternalSemaphore, context: &Context) -> Result<Self> {
        expect_handle("external semaphore", raw)?;
        Ok(Self::new(Semaphore::own(raw, context)))
    }

    #[inline]
    pub(super) fn new(semaphore: Semaphore) -> Self {
        Self { semaphore, last: 0 }
    }

    /// Returns the raw handle without giving up ownership. Do not destroy it.
    #[inline]
    pub fn as_raw(&self) -> CUexternalSemaphore {
        self.semaphore.raw()
    }

    /// Returns the handle and leaks the semaphore: the handle, its context and its streams stay alive until the
    /// process ends.
    #[inline]
    pub fn into_raw(self) -> CUexternalSemaphore {
        let raw = self.as_raw();
        std::mem::forget(self);
        raw
    }

    /// Returns the context that the semaphore was imported in.
    #[inline]
    pub fn context(&self) -> &Context {
        self.semaphore.context()
    }

    /// Returns the value of the last signal that this object has enqueued, or 0.
    #[inline]
    pub fn last_signal(&self) -> u64 {
        self.last
    }

    /// Returns a signal for [`Graph::add_semaphore_signals`](crate::Graph::add_semaphore_signals). Change its value
    /// before each launch: the value of a semaphore must not decrease.
    #[cfg(feature = "graph")]
    #[inline]
    pub fn graph_signal(&self, value: u64) -> crate::graph::SemaphoreSignal {
        (self.as_raw(), signal_of(value))
    }

    /// Returns a wait for [`Graph::add_semaphore_waits`](crate::Graph::add_semaphore_waits).
    #[cfg(feature = "graph")]
    #[inline]
    pub fn graph_wait(&self, value: u64) -> crate::graph::SemaphoreWait {
        (self.as_raw(), wait_of(value))
    }
}

impl Stream {
    /// Enqueues a signal: after all earlier work of the stream, the semaphore has this value. Calls
    /// `cuSignalExternalSemaphoresAsync`.
    ///
    /// If the signal before is on another stream, this stream first waits for the work there (`cuEventRecord`,
    /// `cuStreamWaitEvent`), so that the value never decreases.
    ///
    /// # Errors
    /// - [`Invalid::TimelineValue`] if the value is not larger than that of the signal before.
    /// - [`Invalid::OtherContext`].
    /// - [`Invalid::StreamIsCaptured`]: each launch of the graph would signal the same value. See
    ///   [`TimelineSemaphore::graph_signal`].
    ///
    /// Since CUDA 11.2. Raw:
    /// [`cuSignalExternalSemaphoresAsync`](fn@cuda_sys::cuSignalExternalSemaphoresAsync).
    #[doc(alias = "cuSignalExternalSemaphoresAsync")]
    #[inline]
    pub fn signal_timeline(&self, semaphore: &mut TimelineSemaphore, value: u64) -> Result<()> {
        let last = semaphore.last;
        refuse_if!(value <= last, Invalid::TimelineValue { value, last });
        semaphore.semaphore.signal(self, &signal_of(value))?;
        semaphore.last = value;
        Ok(())
    }

    /// Makes all later work in the stream wait until the semaphore has at least this value. The thread does not wait.
    /// Calls `cuWaitExternalSemaphoresAsync`.
    ///
    /// If nothing signals the value, the stream waits forever: see [`TimelineSemaphore`].
    ///
    /// # Errors
    /// [`Invalid::OtherContext`]; [`Invalid::StreamIsCaptured`].
    ///
    /// Since CUDA 11.2. Raw:
    /// [`cuWaitExternalSemaphoresAsync`](fn@cuda_sys::cuWaitExternalSemaphoresAsync).
    #[doc(alias = "cuWaitExternalSemaphoresAsync")]
    #[inline]
    pub fn wait_timeline(&self, semaphore: &TimelineSemaphore, value: u64) -> Result<()> {
        semaphore.semaphore.wait(self, &wait_of(value))
    }
}

debug_struct! { TimelineSemaphore |its| { raw: its.as_raw(), context: its.context(), .. } }
