//! Memory that the driver allocates in a context without a stream, as objects that are destroyed.

use super::Context;
use crate::call::{Result, answer, call, out};
use crate::release::{Handle, destroy};
use core::ffi::c_void;
use cuda_sys::CUdeviceptr;

/// Device memory from `cuMemAlloc` or `cuMemAllocManaged`.
pub(crate) struct SyncMemory(pub(crate) CUdeviceptr);

destroy! {
    SyncMemory as "device memory", after Uses;
    // SAFETY: this value stands for the memory, and the caller promises that this is the first call.
    // The events and streams of its uses were waited for, and the driver waits for all other work.
    |its| unsafe { answer!(cuMemFree_v2(its.0)) }
}

/// Page-locked host memory from `cuMemHostAlloc`.
pub(crate) struct PinnedMemory(pub(crate) Handle<*mut c_void>);

destroy! {
    PinnedMemory as "pinned memory", after Uses;
    // SAFETY: this value stands for the memory, and the caller promises that this is the first call.
    // Safe copies of the memory are complete when they return, the events and streams of its uses
    // by address were waited for, and the driver waits for all other work.
    |its| unsafe { answer!(cuMemFreeHost(its.0.0)) }
}

impl Context {
    /// Returns the address on the device of mapped memory of this context.
    #[inline]
    pub(crate) fn device_address(&self, start: *mut c_void) -> Result<CUdeviceptr> {
        let _current = self.enter()?;
        // SAFETY: `out` passes a valid pointer. The driver only looks the other one up, as a number.
        out(|place| unsafe { call!(cuMemHostGetDevicePointer_v2(place, start, 0)) })
    }
}
