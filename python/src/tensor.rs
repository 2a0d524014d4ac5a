//! The memory that arrays hold, and the release of tensors and host memory after their work.

use crate::error::Failure;
use crate::primary::is_gone;
use crate::stream_handle::StreamHandle;
use cuda_safe::interop::dlpack::ManagedTensor;
use cuda_safe::manager::{in_forked_child, may_block, report_leak};
use cuda_safe::memory::ManagedBuffer;
use cuda_safe::sys::CUresult;
use cuda_safe::{DeviceBuffer, PinnedBuffer};
use std::any::Any;
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

#[allow(dead_code, reason = "held, not read")]
pub(crate) enum Hold {
    /// Memory of this package, which is freed in stream order.
    Buffer(DeviceBuffer<u8>),
    /// Pinned memory of this package. Its work must be complete when it is freed.
    Pinned(PinnedBuffer<MaybeUninit<u8>>),
    /// Managed memory of this package. Its work must be complete when it is freed.
    Managed(ManagedBuffer<u8>),
    /// Memory of a producer that the arrays themselves keep alive.
    Foreign,
    /// Memory of a producer that is notified when the memory is no longer used.
    Tensor(ManagedTensor),
    /// Memory of this package that a consumer has used.
    Exported(Arc<dyn Any + Send + Sync>),
}

impl Hold {
    /// Returns the name of the memory in reports of a leak.
    fn name(&self) -> &'static str {
        match self {
            Self::Buffer(_) => "device memory of an array",
            Self::Pinned(_) => "pinned memory of an array",
            Self::Managed(_) => "managed memory of an array",
            Self::Foreign | Self::Tensor(_) => "memory of an imported tensor",
            Self::Exported(_) => "memory of an exported tensor",
        }
    }

    /// Releases the memory after other code has reset its context, which has freed memory of this package
    /// and destroyed the stream. No work runs any more, so producers are notified.
    pub(crate) fn after_reset(self, lane: Option<StreamHandle>) {
        std::mem::forget(lane);
        match self {
            Self::Buffer(_) | Self::Pinned(_) | Self::Managed(_) => std::mem::forget(self),
            Self::Foreign | Self::Tensor(_) | Self::Exported(_) => drop(self),
        }
    }
}

/// Tensors, and pinned and managed memory, that could not be released because their streams were being
/// captured, or because their last reference was dropped on a callback thread of the driver.
static DEFERRED: Mutex<Vec<(Hold, StreamHandle)>> = Mutex::new(Vec::new());

/// Releases a tensor, and the deferred ones, after the work on their streams. A capturing stream cannot
/// be waited for, and a callback thread of the driver cannot wait: their tensors are deferred.
pub(crate) fn release_tensors(last: Option<(Hold, StreamHandle)>) {
    let mut tensors = take_deferred();
    tensors.extend(last);
    if tensors.is_empty() {
        return;
    }
    let waits = in_forked_child() || may_block();
    let mut deferred = Vec::new();
    for (hold, lane) in tensors {
        if is_gone(lane.context()) {
            hold.after_reset(Some(lane));
        } else if !waits || matches!(lane.is_capturing(), Ok(true)) {
            deferred.push((hold, lane));
        } else if let Err(failure) = lane.settle() {
            // The work may still be running, so the producer must not be notified.
            match failure {
                // The process exits, and nothing remains to be done.
                Failure::Cuda(error)
                    if error.code() == Some(CUresult::CUDA_ERROR_DEINITIALIZED) => {}
                Failure::Cuda(error) => report_leak(hold.name(), error),
                _ => {}
            }
            std::mem::forget(hold);
        }
    }
    if !deferred.is_empty() {
        let mut all = DEFERRED.lock().unwrap_or_else(PoisonError::into_inner);
        all.append(&mut deferred);
    }
}

fn take_deferred() -> Vec<(Hold, StreamHandle)> {
    match DEFERRED.try_lock() {
        Ok(mut all) => std::mem::take(&mut all),
        Err(TryLockError::Poisoned(all)) => std::mem::take(&mut all.into_inner()),
        // Another thread takes them, or did so when this process was forked.
        Err(TryLockError::WouldBlock) => Vec::new(),
    }
}
