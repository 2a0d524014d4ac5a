//! Imports of handles of Windows, and keyed mutexes. Unverified (from documentation).
//!
//! The items have no aliases, because the pages that are generated from aliases are for all systems.

use super::memory::{self, ExternalMemory};
use super::semaphore::{self, Semaphore};
use super::{BinarySemaphore, TimelineSemaphore};
use crate::call::{Result, c_enum, debug_struct};
use crate::context::Context;
use crate::stream::Stream;
use cuda_sys::{
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    CUexternalMemoryHandleType, CUexternalSemaphore, CUexternalSemaphoreHandleType, Zeroable,
};
use std::os::windows::io::RawHandle;

c_enum! {
    /// What a handle of memory is (`CUexternalMemoryHandleType`). Unverified (from documentation).
    #[non_exhaustive]
    pub enum WindowsMemory = CUexternalMemoryHandleType {
        /// An NT handle (`VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32_BIT`).
        Opaque = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32,
        /// A global share handle, which does not keep the memory.
        OpaqueKmt = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32_KMT,
        /// An `ID3D12Heap`.
        D3d12Heap = CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_HEAP,
        /// A committed `ID3D12Resource`, which is dedicated.
        D3d12Resource = CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_RESOURCE,
        /// An `ID3D11Resource`, which is dedicated.
        D3d11Resource = CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_RESOURCE,
        /// An `ID3D11Resource` by a global share handle, which does not keep it. It is dedicated.
        D3d11ResourceKmt = CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_RESOURCE_KMT,
    }
}

c_enum! {
    /// What a handle of a semaphore with a value is (`CUexternalSemaphoreHandleType`). Unverified (from documentation).
    #[non_exhaustive]
    pub enum WindowsTimeline = CUexternalSemaphoreHandleType {
        /// A timeline semaphore of Vulkan.
        Timeline = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_WIN32,
        /// An `ID3D12Fence`.
        D3d12Fence = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D12_FENCE,
        /// An `ID3D11Fence`.
        D3d11Fence = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_FENCE,
    }
}

c_enum! {
    /// What a handle of a binary semaphore or a keyed mutex is (`CUexternalSemaphoreHandleType`). Unverified (from
    /// documentation).
    #[non_exhaustive]
    pub enum WindowsSemaphore = CUexternalSemaphoreHandleType {
        /// A binary semaphore by an NT handle.
        Binary = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32,
        /// A binary semaphore by a global share handle, which does not keep it.
        BinaryKmt = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32_KMT,
        /// A keyed mutex (`IDXGIKeyedMutex`) by an NT handle.
        KeyedMutex = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX,
        /// A keyed mutex by a global share handle, which does not keep it.
        KeyedMutexKmt = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX_KMT,
    }
}

impl ExternalMemory {
    /// Imports memory from a handle, which the caller closes afterwards if it is an NT handle. Calls
    /// `cuImportExternalMemory`. Unverified (from documentation).
    ///
    /// `size` is the size of the allocation in bytes: for a resource of Direct3D 12 that of
    /// `GetResourceAllocationInfo`.
    ///
    /// # Errors
    /// Errors of the driver.
    ///
    /// # Safety
    /// The handle is of this type, and is that of memory of the device of the context, with this size. It is dedicated
    /// exactly if the flag says so.
    ///
    /// Since CUDA 10.0. Raw: [`cuImportExternalMemory`](fn@cuda_sys::cuImportExternalMemory).
    #[inline]
    pub unsafe fn import_handle(
        context: &Context,
        handle: RawHandle,
        kind: WindowsMemory,
        size: usize,
        is_dedicated: bool,
    ) -> Result<Self> {
        let mut description = memory::description(kind.raw(), size, is_dedicated);
        description.handle.win32.handle = handle.cast();
        // SAFETY: the caller's promise.
        unsafe { Self::import_from(context, &description) }
    }
}

/// # Safety
/// The handle is that of a semaphore of this type.
#[inline]
unsafe fn import(
    context: &Context,
    handle: RawHandle,
    kind: CUexternalSemaphoreHandleType,
) -> Result<Semaphore> {
    let mut description = semaphore::description(kind);
    description.handle.win32.handle = handle.cast();
    // SAFETY: the caller's promise.
    unsafe { Semaphore::import_from(context, &description) }
}

impl TimelineSemaphore {
    /// Imports a semaphore or a fence from a handle, which the caller closes afterwards. Calls
    /// `cuImportExternalSemaphore`. Unverified (from documentation).
    ///
    /// # Errors
    /// Errors of the driver.
    ///
    /// # Safety
    /// The handle is that of an object of this type, of the device of the context.
    ///
    /// Since CUDA 11.2. Raw: [`cuImportExternalSemaphore`](fn@cuda_sys::cuImportExternalSemaphore).
    #[inline]
    pub unsafe fn import_handle(
        context: &Context,
        handle: RawHandle,
        kind: WindowsTimeline,
    ) -> Result<Self> {
        // SAFETY: the caller's promise.
        Ok(Self::new(unsafe { import(context, handle, kind.raw()) }?))
    }
}

impl BinarySemaphore {
    /// Imports a semaphore from a handle, which the caller closes afterwards if it is an NT handle. Calls
    /// `cuImportExternalSemaphore`. Unverified (from documentation).
    ///
    /// # Errors
    /// Errors of the driver.
    ///
    /// # Safety
    /// The handle is that of a binary semaphore of this type, of the device of the context.
    ///
    /// Since CUDA 10.0. Raw: [`cuImportExternalSemaphore`](fn@cuda_sys::cuImportExternalSemaphore).
    #[inline]
    pub unsafe fn import_handle(
        context: &Context,
        handle: RawHandle,
        kind: WindowsSemaphore,
    ) -> Result<Self> {
        // SAFETY: the caller's promise.
        Ok(Self::new(unsafe { import(context, handle, kind.raw()) }?))
    }
}

/// A keyed mutex of Direct3D 11 (`IDXGIKeyedMutex`). The API that acquires it with a key waits until the other one has
/// released it with this key. Unverified (from documentation).
///
/// If nothing releases the key, the stream waits until the timeout. See
/// [`TimelineSemaphore`] for the drop.
pub struct KeyedMutex {
    semaphore: Semaphore,
}

impl KeyedMutex {
    /// Imports a keyed mutex from a handle, which the caller closes afterwards if it is an NT handle. Calls
    /// `cuImportExternalSemaphore`.
    ///
    /// # Errors
    /// Errors of the driver.
    ///
    /// # Safety
    /// The handle is that of a keyed mutex of this type, of the device of the context.
    ///
    /// Since CUDA 10.2. Raw: [`cuImportExternalSemaphore`](fn@cuda_sys::cuImportExternalSemaphore).
    #[inline]
    pub unsafe fn import_handle(
        context: &Context,
        handle: RawHandle,
        kind: WindowsSemaphore,
    ) -> Result<Self> {
        // SAFETY: the caller's promise.
        Ok(Self { semaphore: unsafe { import(context, handle, kind.raw()) }? })
    }

    /// Returns the raw handle without giving up ownership. Do not destroy it.
    #[inline]
    pub fn as_raw(&self) -> CUexternalSemaphore {
        self.semaphore.raw()
    }
}

debug_struct! { KeyedMutex |its| { raw: its.as_raw(), .. } }

impl Stream {
    /// Makes all later work in the stream wait until the mutex is released with this key, or the timeout in milliseconds
    /// ends (`u32::MAX`: never). Calls `cuWaitExternalSemaphoresAsync`. Unverified (from documentation).
    ///
    /// # Errors
    /// [`Invalid::OtherContext`](crate::Invalid::OtherContext);
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    ///
    /// Since CUDA 10.2. Raw:
    /// [`cuWaitExternalSemaphoresAsync`](fn@cuda_sys::cuWaitExternalSemaphoresAsync).
    #[inline]
    pub fn acquire_keyed_mutex(
        &self,
        mutex: &mut KeyedMutex,
        key: u64,
        timeout: u32,
    ) -> Result<()> {
        let mut parameters = CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS::zeroed();
        parameters.params.keyedMutex.key = key;
        parameters.params.keyedMutex.timeoutMs = timeout;
        mutex.semaphore.wait_in_order(self, &parameters)
    }

    /// Releases the mutex with this key after all earlier work of the stream. Calls `cuSignalExternalSemaphoresAsync`.
    /// Unverified (from documentation).
    ///
    /// # Errors
    /// See [`acquire_keyed_mutex`](Self::acquire_keyed_mutex).
    ///
    /// Since CUDA 10.2. Raw:
    /// [`cuSignalExternalSemaphoresAsync`](fn@cuda_sys::cuSignalExternalSemaphoresAsync).
    #[inline]
    pub fn release_keyed_mutex(&self, mutex: &mut KeyedMutex, key: u64) -> Result<()> {
        let mut parameters = CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS::zeroed();
        parameters.params.keyedMutex.key = key;
        mutex.semaphore.signal(self, &parameters)
    }
}
