//! Wrapper managers that forward most methods to an inner manager.

/// Implements the named methods of [`MemoryManager`](cuda_safe::manager::MemoryManager) by forwarding them to the
/// manager in the field `inner`, of type `M`.
macro_rules! forward {
    ($($method:ident)*) => {
        $($crate::forward::forward!(@ $method);)*
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
        fn base(&self) -> &cuda_safe::manager::DriverMemory {
            self.inner.base()
        }
    };
    (@ wrapped) => {
        fn wrapped(&self) -> Option<&dyn cuda_safe::manager::MemoryManager> {
            Some(&self.inner)
        }
    };
    (@ initialize) => {
        fn initialize(&self) -> cuda_safe::Result<()> {
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
            order: cuda_safe::manager::Order<'_>,
        ) -> cuda_safe::Result<cuda_safe::manager::Block> {
            self.inner.allocate(size, order)
        }
    };
    (@ free) => {
        unsafe fn free(&self, block: cuda_safe::manager::Block, order: cuda_safe::manager::Order<'_>) {
            // SAFETY: the caller's promise; the block is of the inner manager.
            unsafe { self.inner.free(block, order) }
        }
    };
    (@ host) => {
        fn allocate_host(
            &self,
            size: usize,
            flags: cuda_safe::memory::PinnedFlags,
        ) -> cuda_safe::Result<cuda_safe::manager::HostBlock> {
            self.inner.allocate_host(size, flags)
        }

        unsafe fn free_host(
            &self,
            block: cuda_safe::manager::HostBlock,
            order: cuda_safe::manager::Order<'_>,
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
            flags: cuda_safe::memory::PinnedFlags,
        ) -> cuda_safe::Result<cuda_safe::manager::HostBlock> {
            // SAFETY: the caller's promise.
            unsafe { self.inner.pin(start, size, flags) }
        }

        unsafe fn unpin(&self, block: cuda_safe::manager::HostBlock) -> cuda_safe::Result<()> {
            // SAFETY: the caller's promise; the block is of the inner manager.
            unsafe { self.inner.unpin(block) }
        }

        unsafe fn release_pin(
            &self,
            block: cuda_safe::manager::HostBlock,
            owner: Box<dyn std::any::Any + Send>,
            order: cuda_safe::manager::Order<'_>,
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
        ) -> cuda_safe::Result<cuda_safe::manager::Block> {
            self.inner.allocate_managed(size, global)
        }

        unsafe fn free_managed(
            &self,
            block: cuda_safe::manager::Block,
            order: cuda_safe::manager::Order<'_>,
        ) {
            // SAFETY: the caller's promise; the block is of the inner manager.
            unsafe { self.inner.free_managed(block, order) }
        }
    };
    (@ memory_info) => {
        fn memory_info(&self) -> cuda_safe::Result<cuda_safe::context::MemoryInfo> {
            self.inner.memory_info()
        }
    };
    (@ ipc_handle) => {
        fn ipc_handle(
            &self,
            block: &cuda_safe::manager::Block,
        ) -> cuda_safe::Result<cuda_safe::manager::IpcHandle> {
            self.inner.ipc_handle(block)
        }
    };
    (@ defer_cleanup) => {
        fn defer_cleanup(&self) -> cuda_safe::manager::CleanupGuard {
            self.inner.defer_cleanup()
        }
    };
    (@ trim) => {
        fn trim(&self, keep: usize) -> cuda_safe::Result<usize> {
            self.inner.trim(keep)
        }
    };
}
pub(crate) use forward;
