//! The log that the driver keeps about failed calls, for CUDA 12.9 and later.
//!
//! An [`Error`] contains the entries of its own call: see [`DriverError::log`]. This module
//! reads the log as a whole, and passes each entry to a closure when it is written.
//!
//! The driver keeps one log for the process. It has the last 100 entries of all threads, including calls
//! of other libraries. A successful call writes nothing. Most failed calls write a reason, and all
//! of them write the code and the function: `Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuMemAlloc_v2`.
//! A fault of a kernel has no reason, and is logged by the call that reports it.
//!
//! ```no_run
//! use cuda_safe::process::logs::LogCallback;
//!
//! let callback = LogCallback::new(|level, text| eprintln!("cuda {level:?}: {text}"))?;
//! // From here on, failed calls print their reasons.
//! drop(callback);
//! # Ok::<_, cuda_safe::Error>(())
//! ```
//!
//! [`DriverError::log`]: crate::error::DriverError::log

use crate::call::{
    Closures, Error, Result, answer, argument, c_enum, c_text, call, debug_struct, driver_log,
    fork, out, run_report_hook,
};
use crate::release::{Handle, Root, destroy, release_now};
use cuda_sys::{CUlogLevel, CUlogsCallbackHandle};
use std::ffi::{CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

c_enum! {
    /// The severity of a log entry (`CUlogLevel`).
    pub enum LogLevel = CUlogLevel or Other {
        /// A failure.
        Error = CU_LOG_LEVEL_ERROR,
        /// A warning.
        Warning = CU_LOG_LEVEL_WARNING,
    }
}

type Closure = dyn Fn(LogLevel, &str) + Send + Sync;

static CLOSURES: Closures<Closure> = Closures::new();

/// A closure that receives each entry of the driver's log. Dropping this unregisters the closure.
///
/// # The closure
/// It runs on the thread of the failing call, before the call returns, so it may run inside any function
/// of this crate and of other libraries. It must not lock a mutex that this thread may hold around a call.
/// It may call the driver. It must not allocate memory of a [manager](crate::manager), because the manager
/// may be inside an operation.
///
/// Entries that the calls of a closure cause are not passed to any closure, because that could recurse
/// without end. Entries of calls in the [report hook](crate::set_report_hook) are not passed either. A
/// panic in the closure is ignored.
///
/// While this is dropped on one thread, the closure may still be running on another one, and return after
/// the drop. The closure itself may drop it.
#[must_use = "dropping this unregisters the closure"]
pub struct LogCallback {
    number: usize,
    raw: Handle<CUlogsCallbackHandle>,
}

impl LogCallback {
    /// Registers a closure. Calls `cuLogsRegisterCallback`. Does not need [`init`](crate::init).
    ///
    /// Several closures may be registered; each receives every entry.
    ///
    /// # Errors
    /// [`Error::Missing`] before CUDA 12.9.
    ///
    /// Since CUDA 12.9. Raw: [`cuLogsRegisterCallback`](fn@cuda_sys::cuLogsRegisterCallback),
    /// [`cuLogsUnregisterCallback`](fn@cuda_sys::cuLogsUnregisterCallback).
    #[doc(alias = "cuLogsRegisterCallback", alias = "cuLogsUnregisterCallback")]
    pub fn new(closure: impl Fn(LogLevel, &str) + Send + Sync + 'static) -> Result<Self> {
        fork::refuse_in_child()?;
        let number = CLOSURES.insert(Arc::new(closure));
        let mut raw = std::ptr::null_mut();
        // SAFETY: the function takes any argument, and the pointer is to a local variable.
        let done =
            unsafe { call!(cuLogsRegisterCallback(Some(run), argument(number), &raw mut raw)) };
        if let Err(error) = done {
            CLOSURES.remove(number);
            return Err(error);
        }
        Ok(Self { number, raw: Handle(raw) })
    }

    /// Passes each entry to the [`tracing`](https://docs.rs/tracing) subscriber of the thread, as an event
    /// of the target `cuda`. Needs the feature `tracing`. See [`new`](Self::new).
    ///
    /// # Errors
    /// See [`new`](Self::new).
    #[cfg(feature = "tracing")]
    #[inline]
    pub fn to_tracing() -> Result<Self> {
        Self::new(|level, text| match level {
            LogLevel::Error => tracing::error!(target: "cuda", "{text}"),
            LogLevel::Warning => tracing::warn!(target: "cuda", "{text}"),
            LogLevel::Other(_) => tracing::info!(target: "cuda", "{text}"),
        })
    }
}

debug_struct! { LogCallback |_its| { .. } }

impl Drop for LogCallback {
    #[inline]
    fn drop(&mut self) {
        // A forked child may have inherited the table in a locked state.
        let closure = (!fork::in_child()).then(|| CLOSURES.remove(self.number));
        release_now(self.raw, &Root { is_borrowed: false });
        // Its drop may panic.
        drop(closure);
    }
}

// The driver crashes if a callback is unregistered twice, so its handle is passed to one release.
destroy! {
    Handle<CUlogsCallbackHandle> as "a log callback", quiet true;
    // SAFETY: the caller guarantees that the callback is still registered.
    |its| unsafe { answer!(cuLogsUnregisterCallback(its.0)) }
}

#[inline]
unsafe extern "C" fn run(
    data: *mut c_void,
    level: CUlogLevel,
    message: *mut c_char,
    length: usize,
) {
    // A forked child may have inherited the table in a locked state.
    if message.is_null() || fork::in_child() {
        return;
    }
    run_report_hook(|| {
        // A panic must not unwind into the driver. The closure is also dropped inside: this may be the
        // last reference.
        let done = catch_unwind(AssertUnwindSafe(|| {
            // A closure that was dropped meanwhile is no longer in the table.
            let Some(closure) = CLOSURES.get(data) else { return };
            // SAFETY: the driver passes a message of `length` bytes, which is valid during the callback.
            let bytes = unsafe { std::slice::from_raw_parts(message.cast::<u8>(), length) };
            closure(LogLevel::from_raw(level), &String::from_utf8_lossy(bytes));
        }));
        if let Err(payload) = done {
            // The drop of the payload could panic, too.
            std::mem::forget(payload);
        }
    });
}

/// Returns all entries that the driver still has, one on each line: `[time][thread][CUDA][E] text`. Calls
/// `cuLogsDumpToMemory`. If older entries are lost, the first line says so.
///
/// # Errors
/// [`Error::Missing`] before CUDA 12.9.
///
/// Since CUDA 12.9. Raw: [`cuLogsDumpToMemory`](fn@cuda_sys::cuLogsDumpToMemory).
#[doc(alias = "cuLogsDumpToMemory")]
#[inline]
pub fn entries() -> Result<String> {
    driver_log::dump(None)
}

/// A position in the driver's log (`CUlogIterator`). Reading from it moves it to the end of the log.
///
/// ```no_run
/// use cuda_safe::process::logs::LogPosition;
///
/// let mut position = LogPosition::end()?;
/// // ... calls that may fail ...
/// print!("{}", position.read()?);
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LogPosition {
    iterator: u32,
}

impl LogPosition {
    /// Returns the end of the log, where the next entry will be. Calls `cuLogsCurrent`.
    ///
    /// # Errors
    /// [`Error::Missing`] before CUDA 12.9.
    ///
    /// Since CUDA 12.9. Raw: [`cuLogsCurrent`](fn@cuda_sys::cuLogsCurrent).
    #[doc(alias = "cuLogsCurrent")]
    #[inline]
    pub fn end() -> Result<Self> {
        // SAFETY: `out` passes a valid pointer.
        let iterator = out(|place| unsafe { call!(cuLogsCurrent(place, 0)) })?;
        Ok(Self { iterator })
    }

    /// Returns the entries from this position on, and moves the position to the end of the log. Calls
    /// `cuLogsDumpToMemory`. See [`entries`].
    ///
    /// # Errors
    /// See [`entries`].
    ///
    /// Since CUDA 12.9. Raw: [`cuLogsDumpToMemory`](fn@cuda_sys::cuLogsDumpToMemory).
    #[doc(alias = "cuLogsDumpToMemory")]
    #[inline]
    pub fn read(&mut self) -> Result<String> {
        driver_log::dump(Some(&mut self.iterator))
    }

    /// Writes the entries from this position on to a file, and moves the position to the end of the
    /// log. Calls `cuLogsDumpToFile`.
    ///
    /// # Errors
    /// [`Invalid::NulInText`](crate::Invalid::NulInText) or
    /// [`Invalid::PathEncoding`](crate::Invalid::PathEncoding) for a path that the driver cannot receive; the
    /// error of the driver if it cannot write the file.
    ///
    /// Since CUDA 12.9. Raw: [`cuLogsDumpToFile`](fn@cuda_sys::cuLogsDumpToFile).
    #[doc(alias = "cuLogsDumpToFile")]
    pub fn write_to_file(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = path_text(path.as_ref())?;
        let iterator = &raw mut self.iterator;
        // SAFETY: the pointers refer to the iterator and to a string that ends with a NUL.
        unsafe { call!(cuLogsDumpToFile(iterator, path.as_ptr(), 0)) }
    }
}

/// Returns a path as the driver receives it.
#[inline]
pub(crate) fn path_text(path: &Path) -> Result<CString, Error> {
    #[cfg(unix)]
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
    #[cfg(not(unix))]
    let bytes = path.to_str().ok_or(crate::call::Invalid::PathEncoding)?.as_bytes();
    Ok(c_text(bytes)?)
}
