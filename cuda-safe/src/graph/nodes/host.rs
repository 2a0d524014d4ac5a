//! Host functions of graphs.

use crate::call::error::Result;
use crate::call::fork;
use crate::call::host_panic::HostPanic;
use crate::call::report::count_leak;
use crate::stream::run_inside;
use core::ffi::c_void;
use cuda_sys::CUDA_HOST_NODE_PARAMS;
use std::fmt;
use std::sync::Arc;

/// A function that each launch of a graph runs.
pub(crate) struct HostFunction {
    /// `None` only while this value is dropped.
    function: Option<Box<dyn Fn() + Send + Sync>>,
    panicked: HostPanic,
}

impl HostFunction {
    pub(crate) fn new(function: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { function: Some(Box::new(function)), panicked: HostPanic::default() })
    }

    /// Returns the parameters of a node that runs the function. They are valid as long as `self` is
    /// alive.
    #[inline]
    pub(crate) fn parameters(self: &Arc<Self>) -> CUDA_HOST_NODE_PARAMS {
        CUDA_HOST_NODE_PARAMS { fn_: Some(run), userData: Arc::as_ptr(self).cast_mut().cast() }
    }

    /// Returns the first panic that was not returned yet.
    #[inline]
    pub(crate) fn take_panic(&self) -> Result<()> {
        self.panicked.take()
    }
}

/// The function that the driver calls.
///
/// # Safety
/// `data` points to a [`HostFunction`], which lives until this function returns.
#[inline]
unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: the caller guarantees that the function is alive. It is only shared.
    let host = unsafe { &*data.cast_const().cast::<HostFunction>() };
    run_inside(&host.panicked, || {
        if let Some(function) = &host.function {
            function();
        }
    });
}

impl Drop for HostFunction {
    #[inline]
    fn drop(&mut self) {
        #[cfg(feature = "freed-hook")]
        if !fork::in_child() {
            crate::call::report::freed(core::ptr::from_ref(self).cast());
        }
        // In a forked child, what the function owns might call the driver.
        if fork::in_child() {
            count_leak();
            std::mem::forget(self.function.take());
        }
    }
}

impl fmt::Debug for HostFunction {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostFunction").finish_non_exhaustive()
    }
}
