//! Buffers over variables of modules.

use crate::call::{Invalid, Result};
use crate::memory::DeviceBuffer;
use crate::module::Global;
use crate::stream::Stream;
use cuda_sys::CUdeviceptr;

impl Global {
    /// Returns the variable as a buffer of `T`, bound to `stream`, for stream-ordered copies, fills and
    /// launches.
    ///
    /// The buffer keeps the module loaded. Dropping it frees no memory.
    ///
    /// # Errors
    /// [`Invalid::GlobalLayout`]; the stream belongs to another context.
    ///
    /// # Safety
    /// Kernels access the variable by its name, which this crate cannot see. Until the buffer and every
    /// object created from it are dropped and the work on them is complete:
    /// - Other accesses to the variable, by kernels through its name or by other code, must be ordered
    ///   with respect to the buffer's stream: enqueued on that stream, complete before or waited for by
    ///   that stream, or enqueued on another stream after it has waited for that stream. Reads need no
    ///   order with respect to other reads.
    /// - No other buffer of the variable may exist, unless both are only read.
    /// - Bits written through the buffer must be valid for the module's kernels: for example, an index
    ///   must be in bounds, and a pointer must refer to existing memory.
    pub unsafe fn buffer<T: 'static>(&self, stream: &Stream) -> Result<DeviceBuffer<T>> {
        crate::stream::same_context("the variable", &self.context, stream.context())?;
        let (element, align) = (size_of::<T>(), align_of::<T>());
        let whole = self.size.checked_rem(element) == Some(0);
        if !whole || self.address % align as CUdeviceptr != 0 {
            return Err(Invalid::GlobalLayout {
                name: self.name().to_owned(),
                size: self.size,
                address: self.address,
                element,
                align,
            }
            .into());
        }
        let (len, owner) = (self.size / element, self.clone());
        // SAFETY: the module owns the memory, and `owner` keeps the module loaded. The memory has `len`
        // elements with the required alignment. The caller guarantees that no other code uses it. If
        // `owner` is the last owner of the module, unloading the module waits for all work.
        unsafe { DeviceBuffer::from_foreign(self.address, len, stream, owner) }
    }
}
