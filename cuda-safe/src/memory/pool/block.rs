//! Blocks of a memory pool as objects that are destroyed.

use crate::call::{Answer, answer};
use crate::memory::MemoryPool;
use crate::release::{After, Destroy, Handle, Keep, Leftover};
use cuda_sys::{CU_STREAM_LEGACY, CUdeviceptr, CUstream};

/// Memory of a memory pool that a manager allocated.
pub(crate) struct PoolBlock {
    pub(crate) address: CUdeviceptr,
    /// The stream on which the memory is freed. `None` if the memory is not ordered on one stream, and is
    /// freed after all work.
    pub(crate) stream: Option<Handle<CUstream>>,
    /// The pool, unless other code keeps it alive.
    pub(crate) pool: Option<MemoryPool>,
}

impl Destroy for PoolBlock {
    #[inline]
    fn name(&self) -> &'static str {
        "stream-ordered device memory"
    }

    #[inline]
    unsafe fn destroy(&self) -> Answer {
        let stream = self.stream.map_or(CU_STREAM_LEGACY, |stream| stream.0);
        // SAFETY: this value stands for the memory, and the caller promises that this is the first call.
        // The stream orders the free after the uses of the memory. Without a stream, all work is
        // complete, and the context is current, so this is its default stream.
        unsafe { answer!(cuMemFreeAsync(self.address, stream)) }
    }

    #[inline]
    fn after(&self) -> After {
        match self.stream {
            Some(_) => After::StreamOrder,
            // `cuMemFree` does not wait for kernels that use pool memory (measured).
            None => After::AllWork,
        }
    }

    #[inline]
    fn leftover(&self) -> Leftover {
        Leftover::Object
    }

    /// A driver (580) continues to use a pool that is destroyed before its memory.
    #[inline]
    fn has_leaked(&self, _owners: &dyn Keep) {
        if let Some(pool) = &self.pool {
            pool.never_destroy();
        }
    }
}
