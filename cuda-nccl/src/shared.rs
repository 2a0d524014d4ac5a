//! The handle of a communicator: calls, one at a time, and the destruction.
//!
//! NCCL frees a communicator in `ncclCommDestroy` and `ncclCommAbort`, and has no protection against a call of another
//! thread at that time. So each call holds the lock of the handle, and so does the end, which replaces the handle by
//! null. An abort first sets a flag. A thread that waits for another rank while it holds the lock looks at the flag,
//! and then aborts the communicator itself.
//!
//! The object ends with its last owner: the [`Communicator`](crate::Communicator), and the graphs of captures. A handle
//! for aborts and registered memory do not own it.

use crate::call::{Progress, failed, nccl, result};
use crate::error::{Error, Result};
use crate::registration::Registrations;
use crate::sys::{self, ncclComm_t, ncclResult_t};
use cuda_safe::manager::{in_forked_child, may_block, report_leak, without_invalidating_captures};
use cuda_safe::{Context, Stream};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::Duration;

#[cfg(feature = "explore")]
use cuda_safe::explore::sync::{Mutex, MutexGuard};
#[cfg(not(feature = "explore"))]
use std::sync::{Mutex, MutexGuard};

/// The state that all objects of a communicator share.
pub(crate) struct Shared {
    handle: Mutex<Handle>,
    /// Whether the communicator was aborted, or will be.
    pub(crate) aborted: Arc<AtomicBool>,
    /// The context in which NCCL works, and which it makes current.
    pub(crate) primary: Context,
    pub(crate) stream: Stream,
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    /// Whether the work of a call may continue after it has returned, even if it has returned `ncclSuccess` (measured:
    /// a split of NCCL 2.28).
    pub(crate) is_interruptible: bool,
}

/// The handle of NCCL, and the registrations.
pub(crate) struct Handle {
    /// Null after the end of the communicator.
    raw: ncclComm_t,
    pub(crate) registrations: Registrations,
}

// SAFETY: NCCL allows any thread to use a communicator, one at a time. The lock ensures that.
unsafe impl Send for Handle {}

/// A communicator that one thread uses.
pub(crate) type Locked<'a> = MutexGuard<'a, Handle>;

impl fmt::Debug for Shared {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("rank", &self.rank)
            .field("ranks", &self.ranks)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Takes ownership of a communicator.
    #[inline]
    pub(crate) fn new(
        raw: ncclComm_t,
        home: (&Context, &Stream),
        (rank, ranks): (u32, u32),
        is_interruptible: bool,
    ) -> Self {
        Self {
            handle: Mutex::new(Handle { raw, registrations: Registrations::default() }),
            aborted: Arc::default(),
            primary: home.0.clone(),
            stream: home.1.clone(),
            rank,
            ranks,
            is_interruptible,
        }
    }

    /// Waits until no other thread uses the communicator.
    ///
    /// # Errors
    /// [`Error::Aborted`].
    #[inline]
    pub(crate) fn lock(&self) -> Result<Locked<'_>> {
        let mut handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_aborted() {
            self.abort_locked(&mut handle)?;
        }
        match handle.raw.is_null() {
            true => Err(Error::Aborted),
            false => Ok(handle),
        }
    }

    #[inline]
    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// Makes a call with the primary context current, and waits until it is complete.
    ///
    /// # Errors
    /// [`Error::Aborted`]; the errors of `call`; errors of the driver.
    #[inline]
    pub(crate) fn call(&self, call: impl FnOnce(ncclComm_t) -> Result<Progress>) -> Result<()> {
        let mut handle = self.lock()?;
        let raw = handle.raw();
        let progress = self.primary.with_current(|_| call(raw))??;
        self.complete(&mut handle, progress)
    }

    /// Makes a call that may allocate memory or wait for the device. It must not invalidate the captures of other
    /// threads.
    ///
    /// # Errors
    /// See [`call`](Self::call).
    #[inline]
    pub(crate) fn slow_call(
        &self,
        call: impl FnOnce(ncclComm_t) -> Result<Progress>,
    ) -> Result<()> {
        outside_captures(|| self.call(call))
    }

    /// Waits for the end of a call whose work continues.
    ///
    /// # Errors
    /// [`Error::Aborted`]; the error of that work.
    #[inline]
    pub(crate) fn complete(&self, handle: &mut Handle, progress: Progress) -> Result<()> {
        match progress {
            Progress::Complete if !self.is_interruptible => Ok(()),
            _ => self.wait(handle, None),
        }
    }

    /// Waits for the end of the work of a call, at most for a time.
    #[inline(never)]
    pub(crate) fn wait(&self, handle: &mut Handle, timeout: Option<Duration>) -> Result<()> {
        let mut patience = Patience::new(timeout);
        loop {
            match async_error(handle.raw)? {
                ncclResult_t::ncclSuccess => return Ok(()),
                ncclResult_t::ncclInProgress => {}
                code => return Err(failed("ncclCommGetAsyncError", code)),
            }
            if self.is_aborted() {
                self.abort_locked(handle)?;
                return Err(Error::Aborted);
            }
            if !patience.pause() {
                self.abort_locked(handle)?;
                return Err(Error::Timeout(timeout.unwrap_or_default()));
            }
        }
    }

    /// Returns the state of the communicator, or `None` if a call is under way.
    ///
    /// # Errors
    /// [`Error::Aborted`]; the error that has occurred.
    #[inline]
    pub(crate) fn poll(&self) -> Option<Result<()>> {
        // The flag is set before operations end, so a program that finds it unset after a wait has their results.
        if self.is_aborted() {
            return Some(Err(Error::Aborted));
        }
        let handle = match self.handle.try_lock() {
            Ok(handle) => handle,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if handle.raw.is_null() {
            return Some(Err(Error::Aborted));
        }
        Some(match async_error(handle.raw) {
            Ok(ncclResult_t::ncclSuccess | ncclResult_t::ncclInProgress) => Ok(()),
            Ok(code) => Err(failed("ncclCommGetAsyncError", code)),
            Err(error) => Err(error),
        })
    }

    /// Aborts the communicator now. Waits for a call that is under way, which ends if it looks at the flag.
    ///
    /// # Errors
    /// Errors of NCCL and the driver. The communicator is not used again.
    #[inline]
    pub(crate) fn abort(&self) -> Result<()> {
        self.aborted.store(true, Ordering::Release);
        let mut handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        self.abort_locked(&mut handle)
    }

    /// Aborts the communicator, unless it has ended.
    #[inline(never)]
    fn abort_locked(&self, handle: &mut Handle) -> Result<()> {
        let raw = std::mem::replace(&mut handle.raw, core::ptr::null_mut());
        if raw.is_null() {
            return Ok(());
        }
        outside_captures(|| {
            // SAFETY: the handle was valid, and this is its last use.
            self.primary.with_current(|_| unsafe { nccl!(ncclCommAbort(raw)) })?
        })?;
        Ok(())
    }

    /// Completes the work of the communicator and destroys it, or aborts it.
    #[inline]
    fn end(&mut self) {
        let mut handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        if handle.raw.is_null() || in_forked_child() {
            return;
        }
        let ended = match std::thread::panicking() || !self.wait_for_stream() {
            // Other ranks may not make the calls that the work waits for.
            true => self.abort_locked(&mut handle),
            false => self.destroy(&mut handle),
        };
        drop(handle);
        if let Err(Error::Driver(error)) = ended {
            report_leak("a communicator", error);
        }
    }

    /// Waits until the work of the stream is complete. Returns whether it is, which an abort can prevent.
    #[inline]
    pub(crate) fn wait_for_stream(&self) -> bool {
        let mut patience = Patience::new(None);
        loop {
            if self.is_aborted() {
                return false;
            }
            match self.stream.is_complete() {
                Ok(false) => {}
                Ok(true) => return true,
                // A stream that is captured has no work of this communicator that runs.
                Err(error) => return !error.is_fatal(),
            }
            patience.pause();
        }
    }

    /// Completes the work of the communicator and destroys it.
    ///
    /// # Errors
    /// [`Error::Aborted`]; errors of the work, after which the communicator is aborted.
    #[inline]
    pub(crate) fn finalize(&self) -> Result<()> {
        let mut handle = self.lock()?;
        if !self.wait_for_stream() {
            self.abort_locked(&mut handle)?;
            return Err(Error::Aborted);
        }
        let raw = handle.raw;
        let registrations = std::mem::take(&mut handle.registrations);
        let finalized = outside_captures(|| {
            self.primary.with_current(|_| {
                // SAFETY: the communicator is alive, and its work is complete.
                unsafe { registrations.end(raw) };
                // SAFETY: the communicator is alive.
                unsafe { nccl!(ncclCommFinalize(raw)) }
            })?
        });
        match finalized.and_then(|progress| self.complete(&mut handle, progress)) {
            Ok(()) => self.destroy(&mut handle),
            Err(error) => {
                self.abort_locked(&mut handle)?;
                Err(error)
            }
        }
    }

    #[inline]
    fn destroy(&self, handle: &mut Handle) -> Result<()> {
        let raw = std::mem::replace(&mut handle.raw, core::ptr::null_mut());
        let registrations = std::mem::take(&mut handle.registrations);
        outside_captures(|| {
            self.primary.with_current(|_| {
                // SAFETY: the communicator is alive, and its work is complete.
                unsafe { registrations.end(raw) };
                // SAFETY: the handle was valid, and this is its last use.
                unsafe { nccl!(ncclCommDestroy(raw)) }
            })?
        })?;
        Ok(())
    }
}

impl Drop for Shared {
    #[inline]
    fn drop(&mut self) {
        if may_block() {
            self.end();
            return;
        }
        // A callback thread of the driver: NCCL would call the driver, which refuses calls there.
        let parts = Self {
            handle: Mutex::new(Handle {
                raw: core::ptr::null_mut(),
                registrations: Registrations::default(),
            }),
            aborted: Arc::clone(&self.aborted),
            primary: self.primary.clone(),
            stream: self.stream.clone(),
            rank: self.rank,
            ranks: self.ranks,
            is_interruptible: self.is_interruptible,
        };
        let its = self.handle.get_mut().unwrap_or_else(PoisonError::into_inner);
        if its.raw.is_null() {
            return;
        }
        std::mem::swap(its, &mut parts.handle.lock().unwrap_or_else(PoisonError::into_inner));
        // If there is no thread, the closure is dropped here, which would end in the same place again.
        let parts = std::mem::ManuallyDrop::new(parts);
        let end = move || drop(std::mem::ManuallyDrop::into_inner(parts));
        if std::thread::Builder::new().spawn(end).is_err() {
            let error = cuda_safe::Error::InHostFunction;
            report_leak("a communicator", error);
        }
    }
}

impl Handle {
    /// Returns the handle for a call.
    #[inline]
    pub(crate) fn raw(&self) -> ncclComm_t {
        self.raw
    }
}

/// Returns the state of a communicator that is alive.
#[inline]
fn async_error(raw: ncclComm_t) -> Result<ncclResult_t> {
    let mut code = ncclResult_t::ncclSuccess;
    // SAFETY: the communicator is alive, and the pointer is valid for a write.
    let called = unsafe { sys::ncclCommGetAsyncError(raw, &raw mut code) };
    result("ncclCommGetAsyncError", called)?;
    Ok(code)
}

/// Makes calls of NCCL that create or destroy objects of CUDA.
#[inline]
pub(crate) fn outside_captures<T>(calls: impl FnOnce() -> Result<T>) -> Result<T> {
    let mut done = None;
    without_invalidating_captures(|| {
        done = Some(calls());
        Ok(())
    })?;
    done.unwrap_or(Err(Error::Aborted))
}

/// The pauses of a loop that waits for another thread or process.
pub(crate) struct Patience {
    pauses: u32,
    #[cfg_attr(feature = "explore", allow(dead_code, reason = "explored time does not pass"))]
    end: Option<std::time::Instant>,
}

impl Patience {
    #[inline]
    pub(crate) fn new(timeout: Option<Duration>) -> Self {
        let end = timeout.and_then(|timeout| std::time::Instant::now().checked_add(timeout));
        Self { pauses: 0, end }
    }

    /// Pauses: first shortly, later for up to a millisecond. Returns false when the time is over.
    #[inline]
    pub(crate) fn pause(&mut self) -> bool {
        #[cfg(feature = "explore")]
        cuda_safe::explore::yield_now();
        #[cfg(not(feature = "explore"))]
        match self.pauses {
            0..100 => std::thread::yield_now(),
            100..1000 => std::thread::sleep(Duration::from_micros(20)),
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
        self.pauses = self.pauses.saturating_add(1);
        self.end.is_none_or(|end| std::time::Instant::now() < end)
    }
}
