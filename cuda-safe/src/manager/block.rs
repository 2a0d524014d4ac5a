//! What managers hand out and take back.

use cuda_sys::CUdeviceptr;
use std::ptr::NonNull;

/// Device memory as a [manager](super::MemoryManager) has it: a value that is given back as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where it begins.
    pub address: CUdeviceptr,
    /// The bytes that were asked for.
    pub size: usize,
    /// What the manager knows it by.
    pub token: u64,
}

/// Pinned host memory, likewise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostBlock {
    /// Where it begins for the host.
    pub start: NonNull<u8>,
    /// The bytes that were asked for.
    pub size: usize,
    /// Where it begins for the device, if it is mapped; else 0.
    pub address: CUdeviceptr,
    /// What the manager knows it by.
    pub token: u64,
}

// SAFETY: it only says where memory is.
unsafe impl Send for HostBlock {}
// SAFETY: as for Send.
unsafe impl Sync for HostBlock {}
