//! Memory of other processes.

mod open;

pub use open::IpcMemory;

use super::{AutoFreePointer, Block};
use crate::call::call;
use crate::context::Context;
use crate::device::{Device, Uuid};
use crate::error::{Error, Result};
use crate::invalid::Invalid;
use crate::memory::not_shareable as not_of_a_shared_pool;
use core::ffi::c_char;
use cuda_sys::{CUdeviceptr, CUipcMemHandle, CUmemPoolPtrExportData, CUresult};
use std::fmt;

/// What another process of the machine needs to open memory: the driver's handle of the allocation, where
/// in it the memory lies, how long it is, whose device's it is, and of which [kind](Self::kind). Plain data,
/// which goes there [as bytes](Self::to_bytes), or by serde with the feature of that name.
///
/// Plain memory is opened by a [context](Context::open_memory), that of a memory pool by the pool, which the
/// other process has [imported](crate::pool::ImportedPool).
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
    kind: IpcKind,
}

/// What a handle is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IpcKind {
    /// Plain memory.
    Plain,
    /// Memory of a pool that processes share.
    Pool,
    /// What a newer version of this crate knows, by its number.
    Other(u64),
}

impl IpcKind {
    fn number(self) -> u64 {
        match self {
            Self::Plain => 0,
            Self::Pool => 1,
            Self::Other(number) => number,
        }
    }

    fn of_number(number: u64) -> Self {
        match number {
            0 => Self::Plain,
            1 => Self::Pool,
            other => Self::Other(other),
        }
    }

    /// The function that opens such memory.
    fn opens(self) -> &'static str {
        match self {
            Self::Pool => "cuMemPoolImportPointer",
            Self::Plain | Self::Other(_) => "cuIpcOpenMemHandle_v2",
        }
    }
}

/// For error texts.
impl fmt::Display for IpcKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => f.write_str("plain memory"),
            Self::Pool => f.write_str("memory of a pool"),
            Self::Other(number) => write!(f, "memory of the unknown kind {number}"),
        }
    }
}

impl IpcHandle {
    /// The bytes that a handle is.
    pub const BYTES: usize = 104;

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
            kind: IpcKind::Plain,
        })
    }

    /// `cuMemPoolExportPointer`: the same of memory of a pool that was made
    /// [shareable](crate::MemoryPoolOptions::shareable); `start` is where the allocation begins, and the
    /// memory at `offset` in it.
    pub(crate) fn of_pool_memory(
        context: &Context,
        start: CUdeviceptr,
        offset: u64,
        size: usize,
    ) -> Result<Self> {
        let mut raw = CUmemPoolPtrExportData::default();
        let place = &raw mut raw;
        {
            let _current = context.enter()?;
            // SAFETY: the pointer is to a local; the address is a number to the driver, which looks it up.
            unsafe { call!(cuMemPoolExportPointer(place, start)) }.map_err(not_of_a_shared_pool)?;
        }
        Ok(Self {
            handle: raw.reserved,
            offset,
            size: size as u64,
            device: context.device().uuid()?.0,
            kind: IpcKind::Pool,
        })
    }

    /// What it is of, and so who opens it.
    pub fn kind(&self) -> IpcKind {
        self.kind
    }

    fn check_kind(&self, expected: IpcKind) -> Result<()> {
        if self.kind == expected {
            return Ok(());
        }
        Err(Invalid::IpcKind {
            its: self.kind,
            expected,
        }
        .into())
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
        bytes[80..96].copy_from_slice(&self.device);
        bytes[96..].copy_from_slice(&self.kind.number().to_le_bytes());
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
        device.copy_from_slice(&bytes[80..96]);
        Self {
            handle,
            offset: number(64),
            size: number(72),
            device,
            kind: IpcKind::of_number(number(96)),
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
        let bytes = bytes.map_err(|_| "a handle of memory is of 104 bytes")?;
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
            .field("kind", &self.kind)
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
    /// For another process; the memory stays for as long as this is there. Memory in the order of a stream
    /// is the other's to use when that has come to its allocation: whoever sends the handle waits for that
    /// first, or sends an [event](crate::Event::ipc_handle) behind it.
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
