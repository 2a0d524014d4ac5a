//! Objects that a room above keeps after their drop, for the next creation.

use super::Context;
use crate::call::fork;
use crate::sync::{Mutex, lock};
use std::sync::{Arc, PoisonError, Weak};

/// Dropped objects of a context object of the user. Events use it.
pub(crate) trait Reserve: Send + Sync {
    /// Returns the number of objects.
    fn len(&self) -> usize;

    /// Destroys the objects.
    fn clear(&self);

    /// Destroys the objects and keeps no others, because the context object is dropped.
    fn close(&self);
}

/// The reserves of a context object.
pub(super) enum Reserves {
    /// Those of a user's context object, which closes them when it is dropped.
    Own(Mutex<Vec<Arc<dyn Reserve>>>),
    /// Those of the user's context object from which this one was derived.
    Shared,
    /// None: objects of this context object are not kept.
    None,
}

/// The reserves of all contexts.
static ALL: Mutex<Vec<Weak<dyn Reserve>>> = Mutex::new(Vec::new());

impl Reserves {
    #[inline]
    pub(super) fn close(&mut self) {
        let Self::Own(reserves) = self else { return };
        // In a forked child, nothing is destroyed.
        if fork::in_child() {
            return;
        }
        let reserves = reserves.get_mut().unwrap_or_else(PoisonError::into_inner);
        reserves.iter().for_each(|reserve| reserve.close());
    }
}

impl Context {
    /// Returns the [address](Self::address) that identifies the reserves, if objects of this context
    /// object are kept.
    #[inline]
    pub(crate) fn reserves(&self) -> Option<usize> {
        match self.inner.reserves {
            Reserves::None => None,
            _ => Some(self.address()),
        }
    }

    /// Adds a reserve. Returns a context object for its objects, which does not keep the user's context
    /// object alive, or `None` if this is not a user's context object.
    #[inline]
    pub(crate) fn add_reserve(&self, reserve: Arc<dyn Reserve>) -> Option<Self> {
        let Reserves::Own(reserves) = &self.inner.reserves else { return None };
        let mut all = lock(&ALL);
        all.retain(|its| its.strong_count() != 0);
        all.push(Arc::downgrade(&reserve));
        drop(all);
        lock(reserves).push(reserve);
        Some(self.sharing_release(self.inner.slot.clone(), Reserves::Shared))
    }
}

/// Returns the reserves of all contexts.
#[inline]
pub(crate) fn all_reserves() -> Vec<Arc<dyn Reserve>> {
    // In a forked child, a lock may be held forever by a thread that does not exist there.
    if fork::in_child() {
        return Vec::new();
    }
    lock(&ALL).iter().filter_map(Weak::upgrade).collect()
}

/// Destroys the objects in the reserves of all contexts.
#[inline]
pub(crate) fn clear_reserves() {
    all_reserves().iter().for_each(|reserve| reserve.clear());
}
