//! Binary semaphores.

use super::semaphore::{Semaphore, signal_of, wait_of};
use crate::call::{Invalid, Result, debug_struct, expect_handle};
use crate::context::Context;
use crate::stream::Stream;
use cuda_sys::CUexternalSemaphore;
#[cfg(unix)]
use {crate::call::Rejected, cuda_sys::CUexternalSemaphoreHandleType, std::os::fd::OwnedFd};

/// A semaphore of another API that one wait resets after each signal (`VK_SEMAPHORE_TYPE_BINARY`).
///
/// Signals and waits alternate. The semaphore knows those of this API, and learns those of the other API from
/// [`signal_submitted`](Self::signal_submitted) and [`wait_submitted`](Self::wait_submitted). An operation that does not
/// follow is an error, so no signal is waited for twice.
///
/// # Ordering, deadlocks, drop
/// See [`TimelineSemaphore`](super::TimelineSemaphore). A binary semaphore must be signaled by the other API, or its signal be submitted, before a
/// wait is enqueued.
///
/// ```no_run
/// use cuda_safe::external::BinarySemaphore;
/// use cuda_safe::{DeviceBuffer, Result, Stream};
///
/// fn frame(
///     stream: &Stream,
///     ready: &mut BinarySemaphore,
///     done: &mut BinarySemaphore,
///     image: &mut DeviceBuffer<u32>,
/// ) -> Result<()> {
///     // The other API submits its frame, which signals `ready`.
///     ready.signal_submitted()?;
///     stream.wait_binary(ready)?;
///     image.fill(0)?;
///     stream.signal_binary(done)?;
///     // The other API submits its next frame, which waits for `done`.
///     done.wait_submitted()
/// }
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct BinarySemaphore {
    semaphore: Semaphore,
    /// Whether there is a signal without a wait.
    is_signaled: bool,
}

impl BinarySemaphore {
    /// Imports a semaphore from a file descriptor, which is closed in any case. Calls
    /// `cuImportExternalSemaphore`.
    ///
    /// # Errors
    /// `CUDA_ERROR_UNKNOWN` or a similar code if the descriptor is not one of a semaphore.
    ///
    /// # Safety
    /// The descriptor is that of a binary semaphore of the device of the context. The driver also accepts that of a
    /// timeline semaphore, and a descriptor of memory, into which signals then write (measured, driver 580).
    ///
    /// Since CUDA 10.0. Raw: [`cuImportExternalSemaphore`](fn@cuda_sys::cuImportExternalSemaphore),
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
    /// Since CUDA 10.0. Raw: [`cuImportExternalSemaphore`](fn@cuda_sys::cuImportExternalSemaphore).
    #[cfg(unix)]
    #[doc(alias = "cuImportExternalSemaphore")]
    #[inline]
    pub unsafe fn try_import(
        context: &Context,
        descriptor: OwnedFd,
    ) -> Result<Self, Rejected<OwnedFd>> {
        let kind = CUexternalSemaphoreHandleType::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD;
        // SAFETY: the caller's promise.
        Ok(Self::new(unsafe { Semaphore::import(context, kind, descriptor) }?))
    }

    /// Takes ownership of a handle.
    ///
    /// # Errors
    /// [`Invalid::Handle`] if the handle is null.
    ///
    /// # Safety
    /// `raw` is a binary semaphore that was imported in this context, and no other code destroys it.
    #[inline]
    pub unsafe fn from_raw(raw: CUexternalSemaphore, context: &Context) -> Result<Self> {
        expect_handle("external semaphore", raw)?;
        Ok(Self::new(Semaphore::own(raw, context)))
    }

    #[inline]
    pub(super) fn new(semaphore: Semaphore) -> Self {
        Self { semaphore, is_signaled: false }
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

    /// Returns whether there is a signal without a wait, as far as this object knows.
    #[inline]
    pub fn is_signaled(&self) -> bool {
        self.is_signaled
    }

    /// Notes that the other API has submitted a signal.
    ///
    /// # Errors
    /// [`Invalid::SemaphoreSignaled`] if nothing waits for the signal before.
    #[inline]
    pub fn signal_submitted(&mut self) -> Result<()> {
        self.expect(false)?;
        self.is_signaled = true;
        Ok(())
    }

    /// Notes that the other API has submitted a wait.
    ///
    /// # Errors
    /// [`Invalid::SemaphoreNotSignaled`] if there is no signal to wait for.
    #[inline]
    pub fn wait_submitted(&mut self) -> Result<()> {
        self.expect(true)?;
        self.is_signaled = false;
        Ok(())
    }

    /// Checks that the semaphore is signaled, or that it is not.
    #[inline]
    fn expect(&self, is_signaled: bool) -> Result<()> {
        match (self.is_signaled, is_signaled) {
            (true, false) => Err(Invalid::SemaphoreSignaled.into()),
            (false, true) => Err(Invalid::SemaphoreNotSignaled.into()),
            _ => Ok(()),
        }
    }

    /// Returns a signal for [`Graph::add_semaphore_signals`](crate::Graph::add_semaphore_signals). The object does not
    /// know the signals of launches.
    #[cfg(feature = "graph")]
    #[inline]
    pub fn graph_signal(&self) -> crate::graph::SemaphoreSignal {
        (self.as_raw(), signal_of(0))
    }

    /// Returns a wait for [`Graph::add_semaphore_waits`](crate::Graph::add_semaphore_waits). The object does not know
    /// the waits of launches.
    #[cfg(feature = "graph")]
    #[inline]
    pub fn graph_wait(&self) -> crate::graph::SemaphoreWait {
        (self.as_raw(), wait_of(0))
    }
}

impl Stream {
    /// Enqueues a signal: after all earlier work of the stream, the semaphore is signaled. Calls
    /// `cuSignalExternalSemaphoresAsync`.
    ///
    /// If the operation before is on another stream, this stream first waits for the work there.
    ///
    /// # Errors
    /// - [`Invalid::SemaphoreSignaled`] if nothing waits for the signal before.
    /// - [`Invalid::OtherContext`]; [`Invalid::StreamIsCaptured`].
    ///
    /// Since CUDA 10.0. Raw:
    /// [`cuSignalExternalSemaphoresAsync`](fn@cuda_sys::cuSignalExternalSemaphoresAsync).
    #[doc(alias = "cuSignalExternalSemaphoresAsync")]
    #[inline]
    pub fn signal_binary(&self, semaphore: &mut BinarySemaphore) -> Result<()> {
        semaphore.expect(false)?;
        semaphore.semaphore.signal(self, &signal_of(0))?;
        semaphore.is_signaled = true;
        Ok(())
    }

    /// Makes all later work in the stream wait until the semaphore is signaled, and resets it. The thread does not wait.
    /// Calls `cuWaitExternalSemaphoresAsync`.
    ///
    /// If the operation before is on another stream, this stream first waits for the work there. If the other API never
    /// executes its signal, the stream waits forever: see [`TimelineSemaphore`](super::TimelineSemaphore).
    ///
    /// # Errors
    /// - [`Invalid::SemaphoreNotSignaled`] if there is no signal to wait for: call
    ///   [`signal_submitted`](BinarySemaphore::signal_submitted) for each signal of the other API.
    /// - [`Invalid::OtherContext`]; [`Invalid::StreamIsCaptured`].
    ///
    /// Since CUDA 10.0. Raw:
    /// [`cuWaitExternalSemaphoresAsync`](fn@cuda_sys::cuWaitExternalSemaphoresAsync).
    #[doc(alias = "cuWaitExternalSemaphoresAsync")]
    #[inline]
    pub fn wait_binary(&self, semaphore: &mut BinarySemaphore) -> Result<()> {
        semaphore.expect(true)?;
        semaphore.semaphore.wait_in_order(self, &wait_of(0))?;
        semaphore.is_signaled = false;
        Ok(())
    }
}

debug_struct! { BinarySemaphore |its| { raw: its.as_raw(), context: its.context(), .. } }
