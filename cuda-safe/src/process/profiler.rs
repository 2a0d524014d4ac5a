//! Ranges that a profiler records.
//!
//! A profiler such as Nsight Compute or Nsight Systems can be told to record only what the program marks
//! (`--profile-from-start off`, `--capture-range=cudaProfilerApi`). Without a profiler the calls have no
//! effect.

use crate::call::{Report, Result, call, report};
use crate::context::Context;
use std::mem::ManuallyDrop;

/// A range that a profiler records. Dropping this ends the range.
///
/// Ranges are not counted by the driver: the end of a range inside another one ends both.
#[derive(Debug)]
#[must_use = "dropping this ends the range"]
pub struct ProfilerRange {
    context: Context,
}

impl Context {
    /// Makes an attached profiler start to record. Calls `cuProfilerStart`.
    ///
    /// The work before this call may still be running: [`synchronize`](Self::synchronize) first, so that
    /// the range contains only later work.
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device};
    ///
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let range = context.profiler_range()?;
    /// // ... work that is profiled ...
    /// context.synchronize()?;
    /// range.end()?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    ///
    /// Since CUDA 4.0. Raw: [`cuProfilerStart`](fn@cuda_sys::cuProfilerStart),
    /// [`cuProfilerStop`](fn@cuda_sys::cuProfilerStop).
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    #[doc(alias = "cuProfilerStart", alias = "cuProfilerStop")]
    #[inline]
    pub fn profiler_range(&self) -> Result<ProfilerRange> {
        let _current = self.enter()?;
        // SAFETY: the function takes no argument.
        unsafe { call!(cuProfilerStart()) }?;
        Ok(ProfilerRange { context: self.clone() })
    }
}

impl ProfilerRange {
    /// Ends the range and returns the error that a drop could only report. Calls `cuProfilerStop`.
    ///
    /// Since CUDA 4.0. Raw: [`cuProfilerStop`](fn@cuda_sys::cuProfilerStop).
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    #[doc(alias = "cuProfilerStop")]
    #[inline]
    pub fn end(self) -> Result<()> {
        let mut range = ManuallyDrop::new(self);
        let done = range.stop();
        // SAFETY: the context is not used again, as the drop of the range does not run.
        unsafe { std::ptr::drop_in_place(&raw mut range.context) };
        done
    }

    #[inline]
    fn stop(&self) -> Result<()> {
        let _current = self.context.enter()?;
        // SAFETY: the function takes no argument.
        unsafe { call!(cuProfilerStop()) }
    }
}

impl Drop for ProfilerRange {
    #[inline]
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            report(&Report::Guard { what: "profiling", error });
        }
    }
}
