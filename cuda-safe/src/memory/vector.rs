//! The memory of a vector, without its type.

use std::alloc::{Layout, dealloc};
use std::any::Any;

/// The memory of a vector whose elements need no drop. It is freed by [`free`](Self::free), and
/// where that is not called it is leaked.
#[derive(Debug)]
pub(crate) struct VectorMemory {
    start: *mut u8,
    layout: Layout,
}

impl VectorMemory {
    /// # Safety
    /// `start` and `capacity` are those of a `Vec<T>` with at least one byte of memory, which
    /// nobody else frees, and whose elements need no drop.
    pub(crate) unsafe fn new<T>(start: *mut T, capacity: usize) -> Self {
        let size = capacity * size_of::<T>();
        // SAFETY: the vector was allocated with this layout, so it is one.
        let layout = unsafe { Layout::from_size_align_unchecked(size, align_of::<T>()) };
        Self {
            start: start.cast(),
            layout,
        }
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    /// As something that frees it when it is dropped.
    pub(crate) fn into_owner(self) -> Box<dyn Any + Send> {
        Box::new(Freed(Some(self)))
    }

    pub(crate) fn free(self) {
        // SAFETY: the memory is of the global allocator with this layout, and nobody else frees it
        // (see `new`).
        unsafe { dealloc(self.start, self.layout) };
    }
}

/// The memory of a vector that is freed with this.
struct Freed(Option<VectorMemory>);

// SAFETY: it is memory without values, and this has it alone.
unsafe impl Send for Freed {}

impl Drop for Freed {
    fn drop(&mut self) {
        if let Some(vector) = self.0.take() {
            vector.free();
        }
    }
}
