//! Blocks: the values that managers allocate and free.

use cuda_sys::CUdeviceptr;
use std::ptr::NonNull;

/// A block of device memory of a [manager](super::MemoryManager). It is a plain value, which must be
/// passed to the free function unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The address of its first byte.
    pub address: CUdeviceptr,
    /// The requested size in bytes.
    pub size: usize,
    /// The manager's identifier of the block.
    pub token: u64,
}

/// A block of pinned host memory of a [manager](super::MemoryManager). It is a plain value, which must
/// be passed to the free function unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostBlock {
    /// The host address of its first byte.
    pub start: NonNull<u8>,
    /// The requested size in bytes.
    pub size: usize,
    /// The device address of its first byte if it is mapped, otherwise 0.
    pub address: CUdeviceptr,
    /// The manager's identifier of the block.
    pub token: u64,
}

// SAFETY: the value only describes where memory is. It does not access the memory.
unsafe impl Send for HostBlock {}
// SAFETY: the value only describes where memory is. It does not access the memory.
unsafe impl Sync for HostBlock {}
