//! A bounded set of values, which any thread may add to and take from without a lock: creating and dropping an
//! event takes one atomic exchange each, where a lock takes two and a check for panics of other threads.
//!
//! This module calls nothing. `tests/loom` runs it under every interleaving.

use crate::sync::atomic::{AtomicPtr, Ordering};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Arc;

/// A set of at most `N` values. It must be [closed](Self::close): a value may own the set, which then lives until it
/// is.
pub(crate) struct Slots<T, const N: usize>([AtomicPtr<T>; N]);

impl<T, const N: usize> Slots<T, N> {
    /// The content of every slot after [`close`](Self::close). No allocation has this address.
    const CLOSED: *mut T = without_provenance_mut(1);

    #[inline]
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicPtr::new(null_mut())))
    }

    /// Returns whether the content of a slot is a value.
    #[inline]
    fn is_value(content: *mut T) -> bool {
        !content.is_null() && content != Self::CLOSED
    }

    /// Adds a value.
    ///
    /// `slots` returns the set, which the value may own: the value is not touched after it was added,
    /// because another thread may have taken and dropped it.
    ///
    /// # Errors
    /// The value, if the set is full or closed.
    #[inline]
    pub(crate) fn add(
        value: Arc<T>,
        slots: impl FnOnce(&T) -> Option<&Self>,
    ) -> Result<(), Arc<T>> {
        let value = Arc::into_raw(value).cast_mut();
        // SAFETY: the pointer is from `Arc::into_raw`, and its reference count is not given up yet.
        let slots = slots(unsafe { &*value });
        for slot in slots.iter().flat_map(|slots| &slots.0) {
            let is_free = slot.load(Ordering::Relaxed).is_null();
            if is_free
                && slot
                    .compare_exchange(null_mut(), value, Ordering::Release, Ordering::Relaxed)
                    .is_ok()
            {
                return Ok(());
            }
        }
        // SAFETY: the pointer is from `Arc::into_raw`, and no slot has it.
        Err(unsafe { Arc::from_raw(value) })
    }

    /// Removes a value.
    #[inline]
    pub(crate) fn take(&self) -> Option<Arc<T>> {
        self.0.iter().find_map(|slot| {
            let value = slot.load(Ordering::Relaxed);
            if !Self::is_value(value)
                || slot
                    .compare_exchange(value, null_mut(), Ordering::Acquire, Ordering::Relaxed)
                    .is_err()
            {
                return None;
            }
            // SAFETY: the pointer is from `Arc::into_raw` in `add`, and this thread has removed it.
            Some(unsafe { Arc::from_raw(value) })
        })
    }

    /// Returns the number of values.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        let has_value = |slot: &&AtomicPtr<T>| Self::is_value(slot.load(Ordering::Relaxed));
        self.0.iter().filter(has_value).count()
    }

    /// Removes all values for ever: none can be added any more.
    #[inline]
    pub(crate) fn close(&self) -> Vec<Arc<T>> {
        let close = |slot: &AtomicPtr<T>| {
            let value = slot.swap(Self::CLOSED, Ordering::Acquire);
            // SAFETY: the pointer is from `Arc::into_raw` in `add`, and this thread has removed it.
            Self::is_value(value).then(|| unsafe { Arc::from_raw(value) })
        };
        self.0.iter().filter_map(close).collect()
    }
}
