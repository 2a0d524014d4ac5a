//! The memory that arrays hold, and the release of tensors and host memory after their work.

use crate::stream_handle::StreamHandle;
use cuda_safe::interop::dlpack::ManagedTensor;
use cuda_safe::{DeviceBuffer, ManagedBuffer, PinnedBuffer};
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError, TryLockError};

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
}

/// Tensors, and pinned and managed memory, whose streams were being captured when they were released.
static DEFERRED: Mutex<Vec<(Hold, StreamHandle)>> = Mutex::new(Vec::new());

/// Releases a tensor, and the deferred ones, after the work on their streams. A capturing stream cannot
/// be waited for: its tensors are deferred.
pub(crate) fn release_tensors(last: Option<(Hold, StreamHandle)>) {
    let mut tensors = take_deferred();
    tensors.extend(last);
    let mut deferred = Vec::new();
    for (hold, lane) in tensors {
        if matches!(lane.is_capturing(), Ok(true)) {
            deferred.push((hold, lane));
        } else if lane.settle().is_err() {
            // The work may still be running, so the producer must not be notified.
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
