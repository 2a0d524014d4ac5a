//! The handle of a communicator: calls, one at a time, and the destruction.
//!
//! NCCL frees a communicator in `ncclCommDestroy` and `ncclCommAbort`, and has no protection against a call of another
//! thread at that time. So each call holds the lock of the handle, and so does the end, which replaces the handle by
//! null. An abort first sets a flag. A thread that waits for another rank while it holds the lock looks at the flag,
//! and then aborts the communicator itself.
//!
//! The state lives as long as anyone needs it, and its drop destroys nothing. An [`Owner`] destroys the communicator: the
//! [`Communicator`](crate::Communicator) has it, and so do the graphs of captures. A handle for aborts and registered memory
//! have only the state. Registered memory waits for the lock, and learns whether its registration has ended.

use crate::call::{Progress, failed, nccl, result};
use crate::error::{Error, Invalid, Result};
use crate::registration::Registrations;
use crate::sys::{self, ncclComm_t, ncclResult_t};
use cuda_safe::capture::CaptureStatus;
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
    aborted: AtomicBool,
    /// Whether the owner was dropped.
    is_dropped: AtomicBool,
    /// The context in which NCCL works, and which it makes current.
    pub(crate) primary: Context,
    pub(crate) stream: Stream,
    /// Whether the work of an operation may continue after its call has returned, even if that was `ncclSuccess`.
    pub(crate) is_interruptible: bool,
}

/// The owner of a communicator. Its drop completes the work and destroys the communicator, or aborts it.
pub(crate) struct Owner(pub(crate) Arc<Shared>);

/// The handle of NCCL, and the registrations.
pub(crate) struct Handle {
    /// Null after the end of the communicator.
    raw: ncclComm_t,
    /// Registrations that have not ended. What an end of the communicator leaves here never ends: other ranks may use the
    /// memory further.
    pub(crate) registrations: Registrations,
    /// Whether operations were ended before they were complete. Other ranks may then still use registered memory, although
    /// the stream is complete.
    is_interrupted: bool,
}

// SAFETY: NCCL allows any thread to use a communicator, one at a time. The lock ensures that.
unsafe impl Send for Handle {}

/// A communicator that one thread uses.
pub(crate) type Locked<'a> = MutexGuard<'a, Handle>;

/// What is known of the work of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Complete,
    Runs,
    /// The stream is captured. Work from before the capture may still run, and the driver cannot be asked.
    Captured,
    /// The driver has returned an error.
    Unknown,
}

impl fmt::Debug for Shared {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Shared {
    /// Takes a communicator. An [`Owner`] destroys it.
    #[inline]
    pub(crate) fn new(raw: ncclComm_t, home: (&Context, &Stream), is_interruptible: bool) -> Self {
        Self {
            handle: Mutex::new(Handle {
                raw,
                registrations: Registrations::default(),
                is_interrupted: false,
            }),
            aborted: AtomicBool::new(false),
            is_dropped: AtomicBool::new(false),
            primary: home.0.clone(),
            stream: home.1.clone(),
            is_interruptible,
        }
    }

    /// Waits until no other thread uses the communicator, which may have ended.
    #[inline]
    pub(crate) fn hold(&self) -> Locked<'_> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other thread uses the communicator.
    ///
    /// # Errors
    /// [`Error::Aborted`].
    #[inline]
    pub(crate) fn lock(&self) -> Result<Locked<'_>> {
        let mut handle = self.hold();
        if self.is_aborted() {
            self.abort_locked(&mut handle)?;
        }
        match handle.raw.is_null() {
            true => Err(Error::Aborted),
            false => Ok(handle),
        }
    }

    /// Returns whether the owner was dropped.
    #[inline]
    pub(crate) fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// Makes a call that may allocate memory or wait for the device, with the primary context current, and waits until it
    /// is complete. It must not invalidate the captures of other threads.
    ///
    /// The state is asked for in any case: `NCCL_COMM_BLOCKING=0` in the environment makes a call return before its work
    /// is complete, whatever the configuration says, and the call may then have returned `ncclSuccess` (measured: a split
    /// of NCCL 2.28).
    ///
    /// # Errors
    /// [`Error::Aborted`]; the errors of `call`; errors of the driver.
    #[inline]
    pub(crate) fn slow_call(
        &self,
        call: impl FnOnce(ncclComm_t) -> Result<Progress>,
    ) -> Result<()> {
        outside_captures(|| {
            let mut handle = self.lock()?;
            let raw = handle.raw();
            self.primary.with_current(|_| call(raw))??;
            self.wait(&mut handle, None)
        })
    }

    /// Waits for the end of an operation's call whose work continues.
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

    /// Waits until the creation of a communicator from this one has ended on both. Returns the states of both, and the new
    /// handle, which is null if there is none.
    ///
    /// A thread of NCCL uses this communicator until then, so it stays locked, and an abort ends the new one first.
    #[inline(never)]
    pub(crate) fn wait_for_child(
        &self,
        handle: &mut Handle,
        child: impl Fn() -> ncclComm_t,
    ) -> Result<([ncclResult_t; 2], ncclComm_t)> {
        let mut patience = Patience::new(None);
        loop {
            let own = async_error(handle.raw)?;
            let new = child();
            let its = match own == ncclResult_t::ncclInProgress || new.is_null() {
                true => own,
                false => async_error(new)?,
            };
            if its != ncclResult_t::ncclInProgress {
                return Ok(([own, its], new));
            }
            if self.is_aborted() {
                if !new.is_null() {
                    // SAFETY: NCCL has written the handle, and no other code knows it.
                    unsafe { self.abort_raw(new) }?;
                }
                self.abort_locked(handle)?;
                return Err(Error::Aborted);
            }
            patience.pause();
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
        let mut handle = self.hold();
        self.abort_locked(&mut handle)
    }

    /// Aborts the communicator, unless it has ended. The registrations end if no other rank can use them.
    #[inline(never)]
    pub(crate) fn abort_locked(&self, handle: &mut Handle) -> Result<()> {
        if handle.raw.is_null() {
            return Ok(());
        }
        // Another rank may be in the middle of an operation that is not complete here, and learns nothing of the abort.
        let is_interrupted = handle.is_interrupted || self.work() != Work::Complete;
        let raw = std::mem::replace(&mut handle.raw, core::ptr::null_mut());
        // SAFETY: the handle was valid, and this is its last use.
        unsafe { self.abort_raw(raw) }?;
        if !is_interrupted {
            handle.registrations.clear();
        }
        Ok(())
    }

    /// Aborts a communicator on the device of this one.
    ///
    /// # Safety
    /// The communicator is alive, and not used afterwards.
    #[inline]
    pub(crate) unsafe fn abort_raw(&self, raw: ncclComm_t) -> Result<()> {
        outside_captures(|| {
            // SAFETY: the caller's promise.
            self.primary.with_current(|_| unsafe { nccl!(ncclCommAbort(raw)) })?
        })?;
        Ok(())
    }

    /// Notes that the next call ends operations that are not complete.
    #[inline]
    pub(crate) fn will_interrupt(&self, handle: &mut Handle) {
        handle.is_interrupted |= self.work() != Work::Complete;
    }

    /// Completes the work of the communicator and destroys it, or aborts it.
    #[inline]
    fn end(&self, is_panicking: bool) {
        let mut handle = self.hold();
        if handle.raw.is_null() {
            return;
        }
        let mut patience = Patience::new(None);
        let ended = loop {
            if is_panicking {
                // Other ranks may not make the calls that the work waits for.
                break self.abort_locked(&mut handle);
            }
            match self.wait_for_stream() {
                Work::Complete => break self.destroy(&mut handle),
                // Another thread ends the capture.
                Work::Captured => _ = patience.pause(),
                Work::Runs | Work::Unknown => break self.abort_locked(&mut handle),
            }
        };
        drop(handle);
        if let Err(Error::Driver(error)) = ended {
            report_leak("a communicator", error);
        }
    }

    /// Returns what is known of the work of the stream.
    #[inline]
    pub(crate) fn work(&self) -> Work {
        let is_captured = || match self.stream.capture_status() {
            Ok(CaptureStatus::None) => None,
            Ok(_) => Some(Work::Captured),
            Err(_) => Some(Work::Unknown),
        };
        if let Some(work) = is_captured() {
            return work;
        }
        // A query would invalidate a capture, so none of this crate begins between the two questions.
        let asked = self.stream.enqueue_retaining(Vec::new, || {
            is_captured().unwrap_or_else(|| match self.stream.is_complete() {
                Ok(true) => Work::Complete,
                Ok(false) => Work::Runs,
                Err(_) => Work::Unknown,
            })
        });
        match asked {
            Ok(work) => work,
            // Another thread may be about to let the stream join a capture.
            Err(cuda_safe::Error::Invalid(_)) => Work::Captured,
            Err(_) => Work::Unknown,
        }
    }

    /// Waits until the work of the stream is complete. Returns [`Work::Runs`] only after an abort.
    #[inline]
    pub(crate) fn wait_for_stream(&self) -> Work {
        let mut patience = Patience::new(None);
        loop {
            match self.work() {
                Work::Runs if !self.is_aborted() => patience.pause(),
                // Operations may have ended by the abort.
                Work::Complete if self.is_aborted() => return Work::Runs,
                work => return work,
            };
        }
    }

    /// Completes the work of the communicator and destroys it.
    ///
    /// # Errors
    /// [`Error::Aborted`]; errors of the work, after which the communicator is aborted.
    #[inline]
    pub(crate) fn finalize(&self) -> Result<()> {
        let mut handle = self.lock()?;
        match self.wait_for_stream() {
            Work::Complete => {}
            // The drop ends it after the capture.
            Work::Captured => return Err(Invalid::Captured.into()),
            Work::Runs | Work::Unknown => {
                self.abort_locked(&mut handle)?;
                return Err(Error::Aborted);
            }
        }
        let raw = handle.raw;
        let finalized = outside_captures(|| {
            self.primary.with_current(|_| {
                // SAFETY: the communicator is alive, and its work is complete.
                unsafe { handle.registrations.end(raw) };
                // SAFETY: the communicator is alive.
                unsafe { nccl!(ncclCommFinalize(raw)) }
            })?
        });
        match finalized.and_then(|_| self.wait(&mut handle, None)) {
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
        outside_captures(|| {
            self.primary.with_current(|_| {
                // SAFETY: the communicator is alive, and its work is complete.
                unsafe { handle.registrations.end(raw) };
                // SAFETY: the handle was valid, and this is its last use.
                unsafe { nccl!(ncclCommDestroy(raw)) }
            })?
        })?;
        if !handle.is_interrupted {
            // NCCL has freed what is left with the communicator.
            handle.registrations.clear();
        }
        Ok(())
    }
}

impl Drop for Owner {
    #[inline]
    fn drop(&mut self) {
        let Self(shared) = self;
        // In a forked process, the lock may be held forever.
        if in_forked_child() {
            return;
        }
        shared.is_dropped.store(true, Ordering::Release);
        let is_panicking = std::thread::panicking();
        if may_block() && (is_panicking || shared.work() != Work::Captured) {
            return shared.end(is_panicking);
        }
        // A callback thread of the driver, where the driver refuses the calls of NCCL, or a capture that only this thread
        // may be able to end.
        let shared = Arc::clone(shared);
        if std::thread::Builder::new().spawn(move || shared.end(is_panicking)).is_err() {
            report_leak("a communicator", cuda_safe::Error::InHostFunction);
        }
    }
}

impl Handle {
    /// Returns whether the communicator has ended.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.raw.is_null()
    }

    /// Returns whether operations were ended before they were complete.
    #[inline]
    pub(crate) fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

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
