//! Registered host memory as an object that is destroyed, with its owner.

use crate::call::{Answer, answer};
use crate::release::{After, Destroy, Handle, Leftover};
use core::ffi::c_void;
use std::alloc::{Layout, dealloc};

/// Memory registered with `cuMemHostRegister`, and the owner of the memory.
///
/// The owner is dropped after the memory was unregistered. It is leaked if that does not happen, because
/// the driver then continues to use its pages.
pub(crate) struct Registered<O> {
    start: Handle<*mut c_void>,
    is_registered: bool,
    owner: Option<O>,
}

impl<O> Registered<O> {
    pub(crate) fn new(start: *mut c_void, owner: O) -> Self {
        Self { start: Handle(start), is_registered: true, owner: Some(owner) }
    }
}

impl<O: Send + 'static> Destroy for Registered<O> {
    fn name(&self) -> &'static str {
        "registered host memory"
    }

    unsafe fn destroy(&self) -> Answer {
        // SAFETY: this value stands for the registration, and the caller promises that this is the first
        // call. Safe copies of the memory are complete when they return, the events and streams of its
        // uses by address were waited for, and the driver waits for all other work.
        unsafe { answer!(cuMemHostUnregister(self.start.0)) }
    }

    fn after(&self) -> After {
        After::Uses
    }

    fn leftover(&self) -> Leftover {
        Leftover::Object
    }

    /// The owner is dropped with the handle, after the release: its `Drop` may do anything.
    fn has_been_destroyed(&mut self) {
        self.is_registered = false;
    }
}

impl<O> Drop for Registered<O> {
    fn drop(&mut self) {
        if self.is_registered {
            std::mem::forget(self.owner.take());
        }
    }
}

/// The memory of a vector whose elements need no drop. It is freed when this is dropped.
#[derive(Debug)]
pub(crate) struct VectorMemory {
    start: *mut u8,
    layout: Layout,
}

// SAFETY: this is raw memory without values, and this object is its only owner.
unsafe impl Send for VectorMemory {}

impl VectorMemory {
    /// Takes the memory of a vector.
    ///
    /// # Safety
    /// `start` and `capacity` are those of a `Vec<T>` with at least one byte of memory. No other
    /// code frees the memory, and the elements need no drop.
    pub(crate) unsafe fn new<T>(start: *mut T, capacity: usize) -> Self {
        let size = capacity * size_of::<T>();
        // SAFETY: the vector was allocated with this layout, so the layout is valid.
        let layout = unsafe { Layout::from_size_align_unchecked(size, align_of::<T>()) };
        Self { start: start.cast(), layout }
    }
}

impl Drop for VectorMemory {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the global allocator allocated the memory with this layout, and no other code
        // frees it (see `new`).
        unsafe { dealloc(self.start, self.layout) };
    }
}
