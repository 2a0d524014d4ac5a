//! A ledger of a manager: which memory it has allocated and freed.

use cuda_safe::Result;
use cuda_safe::context::MemoryInfo;
use cuda_safe::manager::{
    Block, CleanupGuard, DriverMemory, HostBlock, IpcHandle, MemoryManager, Order,
};
use cuda_safe::memory::PinnedFlags;
use std::any::Any;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

/// The kind of memory, which selects the method that frees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Device,
    Managed,
    Host,
    Pinned,
}

#[derive(Debug, Default)]
struct Books {
    /// The allocated memory by kind and address, each with its size and token.
    out: BTreeMap<(Kind, u64), (usize, u64)>,
    given: BTreeMap<Kind, usize>,
    wrong: Vec<String>,
}

impl Books {
    fn give(&mut self, kind: Kind, address: u64, size: usize, token: u64) {
        *self.given.entry(kind).or_default() += 1;
        if let Some(before) = self.out.insert((kind, address), (size, token)) {
            let what = format!("{kind:?} {address:#x} was allocated twice: {before:?}");
            self.wrong.push(what);
        }
    }

    fn take(&mut self, kind: Kind, address: u64, size: usize, token: u64) {
        let its = self.out.remove(&(kind, address));
        if its != Some((size, token)) {
            let what = format!("{kind:?} {address:#x} was freed with {size} bytes: {its:?}");
            self.wrong.push(what);
        }
    }
}

/// Wraps a manager and records its allocations.
#[derive(Debug)]
pub(super) struct Ledger<M> {
    pub(super) inner: M,
    books: Mutex<Books>,
}

impl<M> Ledger<M> {
    pub(super) fn new(inner: M) -> Self {
        Self { inner, books: Mutex::default() }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().expect("no panic while it was locked")
    }

    fn give(&self, kind: Kind, block: &Block) {
        self.books().give(kind, block.address, block.size, block.token);
    }

    fn take(&self, kind: Kind, block: &Block) {
        self.books().take(kind, block.address, block.size, block.token);
    }

    fn give_host(&self, kind: Kind, block: &HostBlock) {
        let address = block.start.as_ptr().addr() as u64;
        self.books().give(kind, address, block.size, block.token);
    }

    fn take_host(&self, kind: Kind, block: &HostBlock) {
        let address = block.start.as_ptr().addr() as u64;
        self.books().take(kind, address, block.size, block.token);
    }

    /// Checks that all memory was freed once by the right method, and that memory of each kind was
    /// allocated.
    pub(super) fn balance(&self) {
        let books = self.books();
        assert_eq!(books.wrong, [""; 0]);
        assert!(books.out.is_empty(), "{:?}", books.out);
        assert_eq!(books.given.len(), 4, "{:?}", books.given);
    }
}

// SAFETY: every call is forwarded to the inner manager.
unsafe impl<M: MemoryManager> MemoryManager for Ledger<M> {
    fn interface_version() -> u32 {
        M::interface_version()
    }

    fn needs_current_context(&self) -> bool {
        self.inner.needs_current_context()
    }

    fn base(&self) -> &DriverMemory {
        self.inner.base()
    }

    fn wrapped(&self) -> Option<&dyn MemoryManager> {
        Some(&self.inner)
    }

    fn initialize(&self) -> Result<()> {
        self.inner.initialize()
    }

    fn reset(&self) {
        self.inner.reset();
    }

    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        let block = self.inner.allocate(size, order)?;
        self.give(Kind::Device, &block);
        Ok(block)
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        // Recorded before the free, because afterwards another thread may get the same memory.
        self.take(Kind::Device, &block);
        // SAFETY: the caller upholds the same contract.
        unsafe { self.inner.free(block, order) }
    }

    fn allocate_host(&self, size: usize, flags: PinnedFlags) -> Result<HostBlock> {
        let block = self.inner.allocate_host(size, flags)?;
        self.give_host(Kind::Host, &block);
        Ok(block)
    }

    unsafe fn free_host(&self, block: HostBlock, order: Order<'_>) {
        self.take_host(Kind::Host, &block);
        // SAFETY: the caller upholds the same contract.
        unsafe { self.inner.free_host(block, order) }
    }

    unsafe fn pin(&self, start: NonNull<u8>, size: usize, flags: PinnedFlags) -> Result<HostBlock> {
        // SAFETY: the caller upholds the same contract.
        let block = unsafe { self.inner.pin(start, size, flags) }?;
        self.give_host(Kind::Pinned, &block);
        Ok(block)
    }

    unsafe fn unpin(&self, block: HostBlock) -> Result<()> {
        // SAFETY: the caller upholds the same contract.
        unsafe { self.inner.unpin(block) }?;
        self.take_host(Kind::Pinned, &block);
        Ok(())
    }

    unsafe fn release_pin(&self, block: HostBlock, owner: Box<dyn Any + Send>, order: Order<'_>) {
        self.take_host(Kind::Pinned, &block);
        // SAFETY: the caller upholds the same contract.
        unsafe { self.inner.release_pin(block, owner, order) }
    }

    fn allocate_managed(&self, size: usize, global: bool) -> Result<Block> {
        let block = self.inner.allocate_managed(size, global)?;
        self.give(Kind::Managed, &block);
        Ok(block)
    }

    unsafe fn free_managed(&self, block: Block, order: Order<'_>) {
        self.take(Kind::Managed, &block);
        // SAFETY: the caller upholds the same contract.
        unsafe { self.inner.free_managed(block, order) }
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        self.inner.memory_info()
    }

    fn ipc_handle(&self, block: &Block) -> Result<IpcHandle> {
        self.inner.ipc_handle(block)
    }

    fn defer_cleanup(&self) -> CleanupGuard {
        self.inner.defer_cleanup()
    }

    fn trim(&self, keep: usize) -> Result<usize> {
        self.inner.trim(keep)
    }
}
