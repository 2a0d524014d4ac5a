//! Memory that the driver allocates in a context without a stream, as objects that are destroyed.

use crate::call::function::{Answer, answer};
use crate::release::{After, Destroy, Handle};
use core::ffi::c_void;
use cuda_sys::CUdeviceptr;

/// Device memory from `cuMemAlloc` or `cuMemAllocManaged`.
pub(crate) struct SyncMemory(pub(crate) CUdeviceptr);

impl Destroy for SyncMemory {
    #[inline]
    fn name(&self) -> &'static str {
        "device memory"
    }

    #[inline]
    unsafe fn destroy(&self) -> Answer {
        // SAFETY: this value stands for the memory, and the caller promises that this is the first call.
        // The events and streams of its uses were waited for, and the driver waits for all other work.
        unsafe { answer!(cuMemFree_v2(self.0)) }
    }

    #[inline]
    fn after(&self) -> After {
        After::Uses
    }
}

/// Page-locked host memory from `cuMemHostAlloc`.
pub(crate) struct PinnedMemory(pub(crate) Handle<*mut c_void>);

impl Destroy for PinnedMemory {
    #[inline]
    fn name(&self) -> &'static str {
        "pinned memory"
    }

    #[inline]
    unsafe fn destroy(&self) -> Answer {
        // SAFETY: this value stands for the memory, and the caller promises that this is the first call.
        // Safe copies of the memory are complete when they return, the events and streams of its uses
        // by address were waited for, and the driver waits for all other work.
        unsafe { answer!(cuMemFreeHost(self.0.0)) }
    }

    #[inline]
    fn after(&self) -> After {
        After::Uses
    }
}
