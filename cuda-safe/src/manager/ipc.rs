//! Memory of other processes.

use super::{AutoFreePointer, Block};
use crate::call::call;
use crate::context::Context;
use crate::device::{Device, Uuid};
use crate::error::{Error, Result};
use crate::invalid::Invalid;
use crate::release::{self, Resource, release};
use core::ffi::c_char;
use cuda_sys::{CUdeviceptr, CUipcMem_flags, CUipcMemHandle, CUresult};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What another process of the machine needs to open memory: the driver's handle of the allocation, where
/// in it the memory lies, how long it is, and whose device's it is. Plain data, which goes there
/// [as bytes](Self::to_bytes), or by serde with the feature of that name.
///
/// ```no_run
/// use cuda_safe::manager::{AutoFreePointer, CachingManager, IpcHandle, MemoryPointer};
/// use cuda_safe::manager::set_memory_manager;
/// use cuda_safe::{Context, Device};
///
/// # fn send(_: &[u8]) {}
/// # fn receive() -> [u8; IpcHandle::BYTES] { [0; IpcHandle::BYTES] }
/// // In one process:
/// set_memory_manager(CachingManager::new)?;
/// let context = Context::primary(&Device::get(0)?)?;
/// let memory = AutoFreePointer::from(MemoryPointer::allocate(&context, 1 << 20)?);
/// let exported = memory.export()?; // keeps the memory
/// send(&exported.handle().to_bytes());
///
/// // In another one:
/// let handle = IpcHandle::from_bytes(&receive());
/// // SAFETY: the bytes are of a handle, and the first process keeps the memory until this one is done.
/// let memory = unsafe { context.open_memory(&handle) }?;
/// println!("{} bytes at {:#x}", memory.size(), memory.as_raw());
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "Vec<u8>", try_from = "Vec<u8>"))]
pub struct IpcHandle {
    handle: [u8; 64],
    offset: u64,
    size: u64,
    device: [u8; 16],
}

impl IpcHandle {
    /// The bytes that a handle is.
    pub const BYTES: usize = 96;

    /// `cuMemGetAddressRange` and `cuIpcGetMemHandle`: the handle of the allocation that a block lies in, and
    /// where.
    ///
    /// # Errors
    /// [`Invalid::NotShareable`]: it is stream-ordered memory, managed memory, or none of the driver's;
    /// `CUDA_ERROR_NOT_SUPPORTED` where processes cannot share.
    ///
    /// Since CUDA 4.1. Raw: [`cuIpcGetMemHandle`](fn@cuda_sys::cuIpcGetMemHandle).
    #[doc(alias = "cuIpcGetMemHandle")]
    pub fn of(context: &Context, block: &Block) -> Result<Self> {
        let range = context.address_range(block.address)?;
        let mut raw = CUipcMemHandle::default();
        let place = &raw mut raw;
        {
            let _current = context.enter()?;
            // SAFETY: the pointer is to a local; the address is a number to the driver, which looks it up.
            unsafe { call!(cuIpcGetMemHandle(place, range.start)) }.map_err(not_shareable)?;
        }
        Ok(Self {
            handle: raw.reserved.map(byte),
            offset: block.address - range.start,
            size: block.size as u64,
            device: context.device().uuid()?.0,
        })
    }

    /// The driver's handle of the allocation.
    pub fn as_bytes(&self) -> &[u8; 64] {
        &self.handle
    }

    /// Where the memory begins in that.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes that were handed out.
    pub fn size(&self) -> usize {
        usize::try_from(self.size).unwrap_or(usize::MAX)
    }

    /// Whose device's memory it is.
    pub fn device_uuid(&self) -> Uuid {
        Uuid(self.device)
    }

    /// That device as this process knows it, whatever its number here; none if it does not see it.
    ///
    /// # Errors
    /// Those of asking each device who it is.
    pub fn device(&self) -> Result<Option<Device>> {
        for device in Device::all()? {
            if device.uuid()? == self.device_uuid() {
                return Ok(Some(device));
            }
        }
        Ok(None)
    }

    /// All of it, to send.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..64].copy_from_slice(&self.handle);
        bytes[64..72].copy_from_slice(&self.offset.to_le_bytes());
        bytes[72..80].copy_from_slice(&self.size.to_le_bytes());
        bytes[80..].copy_from_slice(&self.device);
        bytes
    }

    /// What came; whether it is a handle shows when it is opened.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let number = |start: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[start..start + 8]);
            u64::from_le_bytes(number)
        };
        let (mut handle, mut device) = ([0; 64], [0; 16]);
        handle.copy_from_slice(&bytes[..64]);
        device.copy_from_slice(&bytes[80..]);
        Self {
            handle,
            offset: number(64),
            size: number(72),
            device,
        }
    }
}

impl From<IpcHandle> for Vec<u8> {
    fn from(handle: IpcHandle) -> Self {
        handle.to_bytes().to_vec()
    }
}

impl TryFrom<Vec<u8>> for IpcHandle {
    type Error = &'static str;

    fn try_from(bytes: Vec<u8>) -> Result<Self, &'static str> {
        let bytes = <[u8; Self::BYTES]>::try_from(bytes);
        let bytes = bytes.map_err(|_| "a handle of memory is of 96 bytes")?;
        Ok(Self::from_bytes(&bytes))
    }
}

/// C's char is signed on some targets.
fn byte(byte: c_char) -> u8 {
    let [byte] = byte.to_ne_bytes();
    byte
}

fn not_shareable(error: Error) -> Error {
    match error.code() {
        Some(CUresult::CUDA_ERROR_INVALID_VALUE) => Invalid::NotShareable {
            memory: "stream-ordered, managed or virtual",
        }
        .into(),
        _ => error,
    }
}

impl fmt::Debug for IpcHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IpcHandle")
            .field("offset", &self.offset)
            .field("size", &self.size)
            .field("device", &self.device_uuid())
            .finish_non_exhaustive()
    }
}

/// A handle, and the memory that it is of, which stays for as long.
#[derive(Clone, Debug)]
pub struct ExportedMemory {
    handle: IpcHandle,
    memory: AutoFreePointer,
}

impl ExportedMemory {
    /// For another process.
    pub fn handle(&self) -> &IpcHandle {
        &self.handle
    }

    /// The memory here.
    pub fn memory(&self) -> &AutoFreePointer {
        &self.memory
    }
}

impl AutoFreePointer {
    /// For another process; the memory stays for as long as this is there.
    ///
    /// # Errors
    /// Those of [`MemoryManager::ipc_handle`](super::MemoryManager::ipc_handle);
    /// [`Invalid::NotShareable`]: it is no manager's device memory.
    pub fn export(&self) -> Result<ExportedMemory> {
        let no_block = Invalid::NotShareable {
            memory: "managed or somebody else's",
        };
        let all = self.memory().block().ok_or(no_block)?;
        let part = Block {
            address: self.as_raw(),
            size: self.size(),
            token: all.token,
        };
        let manager = self.memory().context().expect_manager()?;
        Ok(ExportedMemory {
            handle: manager.ipc_handle(&part)?,
            memory: self.clone(),
        })
    }
}

/// Allocations of other processes that are open here, by their handles and contexts.
static OPEN: Mutex<Option<HashMap<Key, Weak<Opened>>>> = Mutex::new(None);

type Key = ([u8; 64], usize);

fn lock() -> MutexGuard<'static, Option<HashMap<Key, Weak<Opened>>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An allocation of another process, open here.
struct Opened {
    base: CUdeviceptr,
    context: Context,
}

impl Drop for Opened {
    fn drop(&mut self) {
        release(Resource::IpcMemory(self.base), &self.context);
    }
}

/// Memory of another process; of [`Context::open_memory`]. Clones share it.
#[derive(Clone)]
pub struct IpcMemory {
    opened: Arc<Opened>,
    address: CUdeviceptr,
    size: usize,
}

impl IpcMemory {
    /// The address here.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.address
    }

    /// The bytes that were handed out there.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The context that it is open in.
    pub fn context(&self) -> &Context {
        &self.opened.context
    }
}

impl fmt::Debug for IpcMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IpcMemory")
            .field("address", &format_args!("{:#x}", self.address))
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

/// How often it is looked whether what another thread closes is closed.
const PATIENCE: u32 = 64;

impl Context {
    /// `cuIpcOpenMemHandle(&base, handle, LAZY_ENABLE_PEER_ACCESS)`: memory of another process. One
    /// allocation is opened once, whichever parts of it are, and closed (`cuIpcCloseMemHandle`) with the last.
    ///
    /// # Errors
    /// [`Invalid::MemoryOfOtherDevice`] ([`IpcHandle::device`] is the right one);
    /// `CUDA_ERROR_INVALID_CONTEXT` for memory of this process; what the driver has against the handle.
    ///
    /// # Safety
    /// The handle is one that another process of this machine got from its driver; that process keeps the
    /// memory until all that is opened here is dropped, and what used it is done; and before the last is
    /// dropped, work of this process on it is done.
    ///
    /// Since CUDA 4.1. Raw: [`cuIpcOpenMemHandle_v2`](fn@cuda_sys::cuIpcOpenMemHandle_v2),
    /// [`cuIpcCloseMemHandle`](fn@cuda_sys::cuIpcCloseMemHandle).
    #[doc(alias = "cuIpcOpenMemHandle")]
    #[doc(alias = "cuIpcCloseMemHandle")]
    pub unsafe fn open_memory(&self, handle: &IpcHandle) -> Result<IpcMemory> {
        release::drain();
        let own = self.device().uuid()?;
        if handle.device_uuid() != own {
            return Err(Invalid::MemoryOfOtherDevice {
                its: handle.device_uuid().to_string(),
                expected: own.to_string(),
            }
            .into());
        }
        // SAFETY: the caller's promise.
        let opened = unsafe { self.opened(handle.as_bytes()) }?;
        Ok(IpcMemory {
            address: opened.base + handle.offset,
            size: handle.size(),
            opened,
        })
    }

    /// # Safety
    /// As for [`open_memory`](Self::open_memory).
    unsafe fn opened(&self, handle: &[u8; 64]) -> Result<Arc<Opened>> {
        let key = (*handle, self.as_raw().addr());
        let mut tries = 0;
        loop {
            {
                let mut open = lock();
                let open = open.get_or_insert_default();
                if let Some(opened) = open.get(&key).and_then(Weak::upgrade) {
                    return Ok(opened);
                }
                open.retain(|_, opened| opened.strong_count() != 0);
                // SAFETY: the caller's promise.
                match unsafe { self.open(handle) } {
                    Ok(opened) => {
                        let opened = Arc::new(opened);
                        open.insert(key, Arc::downgrade(&opened));
                        return Ok(opened);
                    }
                    Err(error) if is_open_still(&error) && tries < PATIENCE => {}
                    Err(error) => return Err(error),
                }
            }
            // Another thread is about to close it.
            tries += 1;
            std::thread::yield_now();
            release::drain();
        }
    }

    /// # Safety
    /// As for [`open_memory`](Self::open_memory).
    unsafe fn open(&self, handle: &[u8; 64]) -> Result<Opened> {
        let handle = CUipcMemHandle {
            reserved: handle.map(|byte| c_char::from_ne_bytes([byte])),
        };
        let flags = CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.0;
        let mut base = 0;
        let place = &raw mut base;
        let _current = self.enter()?;
        // SAFETY: the pointer is to a local, and the current context is this one; for the handle the
        // caller's promise.
        unsafe { call!(cuIpcOpenMemHandle_v2(place, handle, flags)) }?;
        Ok(Opened {
            base,
            context: self.clone(),
        })
    }
}

fn is_open_still(error: &Error) -> bool {
    error.code() == Some(CUresult::CUDA_ERROR_ALREADY_MAPPED)
}
