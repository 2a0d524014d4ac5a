//! File descriptors as shareable handles of the driver.

use core::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Takes ownership of a descriptor that the driver has returned. Returns `None` if it is negative.
///
/// # Safety
/// The driver has opened the descriptor for the caller.
#[inline]
pub(crate) unsafe fn receive(descriptor: c_int) -> Option<OwnedFd> {
    if descriptor < 0 {
        return None;
    }
    // SAFETY: the caller owns the descriptor.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // The duplicate is closed on exec. If duplicating fails, the driver's descriptor is used.
    Some(descriptor.try_clone().unwrap_or(descriptor))
}

/// A descriptor as an argument of a C function, which takes it as a pointer.
pub(crate) struct DescriptorArgument<'a> {
    given: BorrowedFd<'a>,
    duplicate: Option<OwnedFd>,
}

impl<'a> DescriptorArgument<'a> {
    /// Drivers reject a null pointer, which descriptor 0 (the standard input) would be. A duplicate, which
    /// has another number, is passed instead.
    #[inline]
    pub(crate) fn new(descriptor: &'a impl AsFd) -> Self {
        let given = descriptor.as_fd();
        let duplicate = match given.as_raw_fd() {
            0 => given.try_clone_to_owned().ok(),
            _ => None,
        };
        Self { given, duplicate }
    }

    /// Returns the pointer. The descriptor is open until this object is dropped.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut c_void {
        let passed = self.duplicate.as_ref().map_or(self.given, OwnedFd::as_fd);
        let number = usize::try_from(passed.as_raw_fd()).unwrap_or(usize::MAX);
        std::ptr::without_provenance_mut(number)
    }
}
