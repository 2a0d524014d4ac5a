//! The driver calls that the software driver has recorded, and orders of raw streams.

use crate::prelude::*;

/// Returns the driver functions that `body` calls.
pub(crate) fn calls(body: impl FnOnce()) -> Vec<&'static str> {
    cuda_sim::clear_calls();
    body();
    cuda_sim::calls().iter().map(|call| call.function).collect()
}

/// Returns how often `body` calls a driver function.
pub(crate) fn count(function: &str, body: impl FnOnce()) -> usize {
    cuda_sim::clear_calls();
    body();
    called(function)
}

/// Returns how often a driver function was called since the record was cleared.
pub(crate) fn called(function: &str) -> usize {
    let its = |call: &&Call| call.function == function;
    cuda_sim::calls().iter().filter(its).count()
}

/// Returns a persistent order. The test keeps the stream alive; default streams are never destroyed.
pub(crate) fn persistent<'a>(stream: CUstream) -> Order<'a> {
    // SAFETY: the caller keeps the stream alive.
    unsafe { Order::persistent(stream) }
}

/// Returns a transient order. The test keeps the stream alive during the call.
pub(crate) fn transient<'a>(stream: CUstream) -> Order<'a> {
    // SAFETY: the caller keeps the stream alive.
    unsafe { Order::transient(stream) }
}
