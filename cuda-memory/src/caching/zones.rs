//! The software driver of `cuda-sim` finds accesses to bytes of the pool that belong to no block: those behind a block, up
//! to its rounding, and those of a freed block, from the free on in stream order. Other drivers cannot, as a slab is one
//! allocation for them.
//!
//! A slab is poisoned when the pool gets it. An allocation unpoisons as many bytes as were requested, in its order, and a
//! free poisons them again, in its order. A free without a stream poisons nothing, because work of any stream may still
//! use the memory; the next allocation of the block poisons what it does not return.

use core::ffi::{CStr, c_int};
use cuda_safe::manager::Order;
use cuda_safe::sys::{self, CU_STREAM_PER_THREAD, CUdeviceptr, CUstream};
use std::ptr::without_provenance_mut;

/// The type of `cuSimPoison` and `cuSimUnpoison`.
type Change = unsafe extern "C" fn(CUdeviceptr, usize, CUstream) -> c_int;

/// The stream of a change that waits for no work, `CU_SIM_AT_ONCE`.
const AT_ONCE: CUstream = without_provenance_mut(usize::MAX);

/// The functions of the software driver.
#[derive(Clone, Copy)]
pub(super) struct Zones {
    poison: Change,
    unpoison: Change,
    /// Whether the pool has virtual memory. It belongs to no context, so a handle of a default stream does not say which
    /// stream it is.
    is_virtual: bool,
}

impl Zones {
    /// Looks up the functions. Returns `None` with other drivers.
    #[inline(never)]
    pub(super) fn find(is_virtual: bool) -> Option<Self> {
        let find = |name: &CStr| {
            let address = sys::extension(name)?.as_ptr();
            // SAFETY: the software driver has functions of these names with this type, and no other driver has functions
            // of these names.
            Some(unsafe { core::mem::transmute::<*mut core::ffi::c_void, Change>(address) })
        };
        Some(Self { poison: find(c"cuSimPoison")?, unpoison: find(c"cuSimUnpoison")?, is_virtual })
    }

    /// Poisons memory that the pool has got.
    #[inline]
    pub(super) fn add(&self, address: u64, size: u64) {
        call(self.poison, address, size, AT_ONCE);
    }

    /// Unpoisons memory that the pool returns to its upstream manager.
    #[inline]
    pub(super) fn remove(&self, address: u64, size: u64) {
        call(self.unpoison, address, size, AT_ONCE);
    }

    /// Unpoisons the first `size` bytes of a block of `whole` bytes, and poisons the others, before an allocation returns
    /// the block.
    #[inline]
    pub(super) fn allocate(&self, address: u64, (size, whole): (u64, u64), order: Order<'_>) {
        let stream = self.stream(order).unwrap_or(AT_ONCE);
        call(self.poison, address + size, whole - size, stream);
        if !call(self.unpoison, address, size, stream) {
            call(self.unpoison, address, size, AT_ONCE);
        }
    }

    /// Poisons the `size` bytes of a block that is freed. Other threads must not be able to allocate it yet.
    #[inline]
    pub(super) fn free(&self, address: u64, size: u64, order: Order<'_>) {
        if let Some(stream) = self.stream(order) {
            call(self.poison, address, size, stream);
        }
    }

    /// Returns the stream of an order.
    #[inline]
    fn stream(&self, order: Order<'_>) -> Option<CUstream> {
        let is_known = |key: &usize| !self.is_virtual || *key > CU_STREAM_PER_THREAD.addr();
        order.key().filter(is_known).map(without_provenance_mut)
    }
}

/// Returns whether the software driver has made the change.
#[inline]
fn call(change: Change, address: u64, size: u64, stream: CUstream) -> bool {
    // The size is one of memory, so it is a `usize`.
    let size = size as usize;
    // SAFETY: the functions accept every address, size and stream, and report those that do not exist.
    unsafe { change(address, size, stream) == 0 }
}
