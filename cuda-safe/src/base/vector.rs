//! The memory of a vector, without its element type.

use std::alloc::{Layout, dealloc};
use std::any::Any;

/// The memory of a vector whose elements need no drop. [`free`](Self::free) frees it. If `free` is
/// not called, the memory is leaked.
#[derive(Debug)]
pub(crate) struct VectorMemory {
    start: *mut u8,
    layout: Layout,
}

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
        Self {
            start: start.cast(),
            layout,
        }
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    /// Returns an owner that frees the memory when it is dropped.
    pub(crate) fn into_owner(self) -> Box<dyn Any + Send> {
        Box::new(Freed(Some(self)))
    }

    pub(crate) fn free(self) {
        // SAFETY: the global allocator allocated the memory with this layout, and no other code
        // frees it (see `new`).
        unsafe { dealloc(self.start, self.layout) };
    }
}

/// The memory of a vector, which is freed when this is dropped.
struct Freed(Option<VectorMemory>);

// SAFETY: this is raw memory without values, and this object is its only owner.
unsafe impl Send for Freed {}

impl Drop for Freed {
    fn drop(&mut self) {
        if let Some(vector) = self.0.take() {
            vector.free();
        }
    }
}
