//! A manager for device memory only. The built-in manager allocates its host memory.

use super::manager_as;
use crate::common::{self, child};
use cuda_safe::Context;
use cuda_safe::manager::{
    Block, DriverManager, DriverMemory, MappedMemory, MemoryManager, MemoryPointer, Order,
    PinnedMemory, set_memory_manager,
};
use cuda_safe::memory::PinnedFlags;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of allocations of [`DeviceOnly`].
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

/// A manager with only the required methods.
#[derive(Debug)]
struct DeviceOnly(DriverManager);

// SAFETY: the inner manager allocates the memory.
unsafe impl MemoryManager for DeviceOnly {
    fn interface_version() -> u32 {
        1
    }

    fn base(&self) -> &DriverMemory {
        self.0.base()
    }

    fn allocate(&self, size: usize, order: Order<'_>) -> cuda_safe::Result<Block> {
        ALLOCATED.fetch_add(1, Ordering::SeqCst);
        self.0.allocate(size, order)
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        // SAFETY: the caller upholds the same contract.
        unsafe { self.0.free(block, order) }
    }
}

/// Returns a context with such a manager.
fn context() -> Option<Context> {
    let device = common::gpu()?;
    set_memory_manager(|context| Ok(DeviceOnly(DriverManager::new(context)?))).expect("it fits");
    Some(Context::primary(&device).expect("a context"))
}

/// Returns how many frees the built-in manager has deferred.
fn deferred(context: &Context) -> usize {
    manager_as::<DeviceOnly>(context).base().pending().0
}

#[test]
fn a_device_memory_manager_gets_host_memory_from_the_built_in_manager() {
    child::in_child(&[], || {
        let context = or_skip!(context());
        let pinned = PinnedMemory::allocate(&context, 100, PinnedFlags::empty()).expect("memory");
        assert!(pinned.owner().is_none(), "the first owner");
        let mapped = MappedMemory::allocate(&context, 100, PinnedFlags::empty()).expect("memory");
        assert_ne!(mapped.as_raw(), 0);
        let mut bytes = vec![7u8; 8192];
        let start = NonNull::new(bytes.as_mut_ptr()).expect("not null");
        let empty = PinnedFlags::empty();
        // SAFETY: the vector is kept alive as the owner, and its bytes do not move.
        let registered = unsafe { PinnedMemory::pin(&context, bytes, start, 8192, empty) };
        assert_eq!(registered.expect("pinned").size(), 8192);
        assert_eq!(ALLOCATED.load(Ordering::SeqCst), 0, "only host memory is deferred");
        drop(MemoryPointer::allocate(&context, 100).expect("memory"));
        assert_eq!(ALLOCATED.load(Ordering::SeqCst), 1);
        drop((pinned, mapped));
    });
}

#[test]
fn the_built_in_manager_defers_and_cleans_up_host_memory_for_other_managers() {
    child::in_child(&[], || {
        let context = or_skip!(context());
        let manager = context.memory_manager().expect("made").expect("the chosen manager");
        let free = || drop(PinnedMemory::allocate(&context, 100, PinnedFlags::empty()));
        let guard = manager.defer_cleanup();
        (0..20).for_each(|_| free());
        assert_eq!(deferred(&context), 20, "the guard defers them");
        drop(guard);
        free();
        assert_eq!(deferred(&context), 0);
        free();
        assert_eq!(deferred(&context), 1);
        manager.reset();
        assert_eq!(deferred(&context), 0);
    });
}
