//! Wrapper managers that forward most methods to an inner manager.

/// Implements the named methods of [`MemoryManager`](crate::memory::manager::MemoryManager) by forwarding them to the
/// manager in the field `inner`, of type `M`.
macro_rules! forward {
    ($($method:ident)*) => {
        $($crate::policy::forward::forward!(@ $method);)*
    };
    (@ version) => {
        fn interface_version() -> u32 {
            M::interface_version()
        }
    };
    (@ current) => {
        fn needs_current_context(&self) -> bool {
            self.inner.needs_current_context()
        }
    };
    (@ base) => {
        fn base(&self) -> &$crate::memory::manager::DriverMemory {
            self.inner.base()
        }
    };
    (@ wrapped) => {
        fn wrapped(&self) -> Option<&dyn $crate::memory::manager::MemoryManager> {
            Some(&self.inner)
        }
    };
    (@ initialize) => {
        fn initialize(&self) -> $crate::base::error::Result<()> {
            self.inner.initialize()
        }
    };
    (@ reset) => {
        fn reset(&self) {
            self.inner.reset();
        }
    };
    (@ allocate) => {
        fn allocate(
            &self,
            size: usize,
            order: $crate::memory::manager::Order<'_>,
        ) -> $crate::base::error::Result<$crate::memory::manager::Block> {
            self.inner.allocate(size, order)
        }
    };
    (@ free) => {
        unsafe fn free(&self, block: $crate::memory::manager::Block, order: $crate::memory::manager::Order<'_>) {
            // SAFETY: the caller's promise; the block is of the inner manager.
            unsafe { self.inner.free(block, order) }
        }
    };
    (@ host) => {
        fn allocate_host(
            &self,
            size: usize,
            flags: $crate::memory::PinnedFlags,
        ) -> $crate::base::error::Result<$crate::memory::manager::HostBlock> {
            self.inner.allocate_host(size, flags)
        }

        unsafe fn free_host(
            &self,
            block: $crate::memory::manager::HostBlock,
            order: $crate::memory::manager::Order<'_>,
        ) {
            // SAFETY: the caller's promise; the block is of the inner manager.
            unsafe { self.inner.free_host(block, order) }
        }
    };
    (@ pin) => {
        unsafe fn pin(
            &self,
            start: std::ptr::NonNull<u8>,
            size: usize,
            flags: $crate::memory::PinnedFlags,
        ) -> $crate::base::error::Result<$crate::memory::manager::HostBlock> {
            // SAFETY: the caller's promise.
            unsafe { self.inner.pin(start, size, flags) }
        }

        unsafe fn unpin(&self, block: $crate::memory::manager::HostBlock) -> $crate::base::error::Result<()> {
            // SAFETY: the caller's promise; the block is of the inner manager.
            unsafe { self.inner.unpin(block) }
        }

        unsafe fn release_pin(
            &self,
            block: $crate::memory::manager::HostBlock,
            owner: Box<dyn std::any::Any + Send>,
            order: $crate::memory::manager::Order<'_>,
        ) {
            // SAFETY: the caller's promise; the block is of the inner manager.
            unsafe { self.inner.release_pin(block, owner, order) }
        }
    };
    (@ managed) => {
        fn allocate_managed(
            &self,
            size: usize,
            global: bool,
        ) -> $crate::base::error::Result<$crate::memory::manager::Block> {
            self.inner.allocate_managed(size, global)
        }

        unsafe fn free_managed(
            &self,
            block: $crate::memory::manager::Block,
            order: $crate::memory::manager::Order<'_>,
        ) {
            // SAFETY: the caller's promise; the block is of the inner manager.
            unsafe { self.inner.free_managed(block, order) }
        }
    };
    (@ memory_info) => {
        fn memory_info(&self) -> $crate::base::error::Result<$crate::driver::context::MemoryInfo> {
            self.inner.memory_info()
        }
    };
    (@ ipc_handle) => {
        fn ipc_handle(
            &self,
            block: &$crate::memory::manager::Block,
        ) -> $crate::base::error::Result<$crate::memory::manager::IpcHandle> {
            self.inner.ipc_handle(block)
        }
    };
    (@ defer_cleanup) => {
        fn defer_cleanup(&self) -> $crate::memory::manager::CleanupGuard {
            self.inner.defer_cleanup()
        }
    };
    (@ trim) => {
        fn trim(&self, keep: usize) -> $crate::base::error::Result<usize> {
            self.inner.trim(keep)
        }
    };
}
pub(super) use forward;
