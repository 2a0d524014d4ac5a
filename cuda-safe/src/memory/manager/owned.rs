//! Pinned memory that belongs to an owner, which must stay alive until the memory is unregistered.

use crate::base::capture::StreamRef;
use crate::base::current::ContextHandle;
use crate::base::fork;
use crate::base::release::{Parent, Resource, release};
use crate::base::report::count_leak;
use crate::base::sync::Mutex;
use crate::memory::MemoryPool;
use core::ffi::c_void;
use cuda_sys::CUevent;
use std::any::Any;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// The owner of pinned memory. If this is dropped, the owner is leaked, because the driver still has
/// its pages registered.
#[derive(Debug)]
pub(super) struct PinnedOwner(ManuallyDrop<Box<dyn Any + Send>>);

impl PinnedOwner {
    pub(super) fn new(owner: Box<dyn Any + Send>) -> Self {
        Self(ManuallyDrop::new(owner))
    }
}

/// Unregisters the memory at `start`, and then drops its owner. In a forked child the owner is leaked.
pub(super) fn unregister(start: *mut c_void, owner: PinnedOwner, parent: impl Parent) {
    if fork::in_child() {
        return count_leak();
    }
    let owner = Arc::new(Mutex::new(ManuallyDrop::into_inner(owner.0)));
    release(Resource::RegisteredOf(start), &Owned { parent, owner });
}

/// The objects that pinned memory requires until it is unregistered.
struct Owned<P> {
    parent: P,
    owner: Arc<Mutex<Box<dyn Any + Send>>>,
}

impl<P: Parent> Parent for Owned<P> {
    fn context(&self) -> Option<&dyn ContextHandle> {
        self.parent.context()
    }

    fn ordered_on(&self) -> [Option<StreamRef<'_>>; 2] {
        self.parent.ordered_on()
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        Box::new(Owned {
            parent: self.parent.keep(),
            owner: Arc::clone(&self.owner),
        })
    }

    fn is_borrowed(&self) -> bool {
        self.parent.is_borrowed()
    }

    fn waited_for(&self) -> Vec<CUevent> {
        self.parent.waited_for()
    }

    /// The owner is leaked too, as the driver may still have its pages registered.
    fn has_leaked(&self) {
        std::mem::forget(Arc::clone(&self.owner));
    }
}

impl Parent for Box<dyn Parent + Send> {
    fn context(&self) -> Option<&dyn ContextHandle> {
        (**self).context()
    }

    fn ordered_on(&self) -> [Option<StreamRef<'_>>; 2] {
        (**self).ordered_on()
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        (**self).keep()
    }

    fn is_borrowed(&self) -> bool {
        (**self).is_borrowed()
    }

    fn waited_for(&self) -> Vec<CUevent> {
        (**self).waited_for()
    }

    fn has_been_freed(&self) {
        (**self).has_been_freed();
    }

    fn has_leaked(&self) {
        (**self).has_leaked();
    }
}

/// The objects that memory of a manager's own pool requires until it is freed.
pub(crate) struct OfPool<P> {
    pub(crate) parent: P,
    pub(crate) pool: MemoryPool,
}

impl<P: Parent> Parent for OfPool<P> {
    fn context(&self) -> Option<&dyn ContextHandle> {
        self.parent.context()
    }

    fn ordered_on(&self) -> [Option<StreamRef<'_>>; 2] {
        self.parent.ordered_on()
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        Box::new(OfPool {
            parent: self.parent.keep(),
            pool: self.pool.clone(),
        })
    }

    fn is_borrowed(&self) -> bool {
        self.parent.is_borrowed()
    }

    /// The pool is leaked too: a driver (580) continues to use a pool that is destroyed before its
    /// memory.
    fn has_leaked(&self) {
        self.parent.has_leaked();
        self.pool.never_destroy();
    }
}
