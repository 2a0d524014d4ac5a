//! Memory that is shared with other processes.

use crate::call::{Error, Invalid, Result, call, convert, debug_struct, out};
use crate::context::Context;
use crate::device::{Device, Uuid};
use crate::manager::{AutoFreePointer, Block};
use core::ffi::c_char;
use cuda_sys::{CUdeviceptr, CUipcMemHandle, CUmemPoolPtrExportData, CUresult};
use std::fmt;

/// A handle with which another process of the same machine opens memory. It consists of the driver's
/// handle of the allocation, the offset and size of the memory in it, the device, and the
/// [kind](Self::kind) of memory. It is plain data, which can be sent [as bytes](Self::to_bytes), or
/// with serde if the feature `serde` is enabled.
///
/// Synchronous memory is opened by a [context](Context::open_memory). Memory of a memory pool is opened
/// by the pool that the other process has [imported](crate::memory::pool::ImportedPool).
///
/// ```no_run
/// use cuda_safe::manager::{AutoFreePointer, DriverManager, IpcHandle, MemoryPointer};
/// use cuda_safe::manager::set_memory_manager;
/// use cuda_safe::{Context, Device};
///
/// # fn send(_: &[u8]) {}
/// # fn receive() -> [u8; IpcHandle::BYTES] { [0; IpcHandle::BYTES] }
/// // In the first process:
/// set_memory_manager(DriverManager::new)?;
/// let context = Context::primary(&Device::get(0)?)?;
/// let memory = AutoFreePointer::from(MemoryPointer::allocate(&context, 1 << 20)?);
/// let exported = memory.export()?; // keeps the memory alive
/// send(&exported.handle().to_bytes());
///
/// // In the second process:
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

/// The kind of memory that a handle is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IpcKind {
    /// Synchronous memory (`cuMemAlloc`).
    Synchronous,
    /// Memory of a pool that is shared between processes.
    Pool,
    /// A kind that is defined by a newer version of this crate, with its number.
    Other(u64),
}

impl IpcKind {
    #[inline]
    fn number(self) -> u64 {
        match self {
            Self::Synchronous => 0,
            Self::Pool => 1,
            Self::Other(number) => number,
        }
    }

    #[inline]
    fn of_number(number: u64) -> Self {
        match number {
            0 => Self::Synchronous,
            1 => Self::Pool,
            other => Self::Other(other),
        }
    }

    /// Returns the name of the driver function that opens such memory.
    #[inline]
    pub(crate) fn opens(self) -> &'static str {
        match self {
            Self::Pool => "cuMemPoolImportPointer",
            Self::Synchronous | Self::Other(_) => "cuIpcOpenMemHandle_v2",
        }
    }
}

/// The text for error messages.
impl fmt::Display for IpcKind {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Synchronous => f.write_str("synchronous memory"),
            Self::Pool => f.write_str("memory of a pool"),
            Self::Other(number) => write!(f, "memory of unknown kind {number}"),
        }
    }
}

impl IpcHandle {
    /// The size of a handle in bytes.
    pub const BYTES: usize = 104;

    /// Returns the handle of the allocation that a block lies in, with the position of the block in it.
    /// Calls `cuMemGetAddressRange` and `cuIpcGetMemHandle`.
    ///
    /// # Errors
    /// [`Invalid::NotShareable`] if the block is stream-ordered memory, managed memory, or not memory
    /// of the driver; `CUDA_ERROR_NOT_SUPPORTED` if the platform does not support sharing between
    /// processes.
    ///
    /// Since CUDA 4.1. Raw: [`cuIpcGetMemHandle`](fn@cuda_sys::cuIpcGetMemHandle).
    #[doc(alias = "cuIpcGetMemHandle")]
    #[inline]
    pub fn of(context: &Context, block: &Block) -> Result<Self> {
        let range = context.address_range(block.address)?;
        let current = context.enter()?;
        // SAFETY: `out` passes a valid pointer; the driver only looks the address up, as a number.
        let raw: CUipcMemHandle =
            out(|place| unsafe { call!(cuIpcGetMemHandle(place, range.start)) })
                .map_err(|error| not_shareable("stream-ordered, managed or virtual", error))?;
        drop(current);
        let (handle, offset) = (raw.reserved.map(byte), block.address - range.start);
        Self::new(context, handle, offset, block.size, IpcKind::Synchronous)
    }

    /// Returns the handle of the memory at `offset` in the allocation that begins at `start`, of a pool
    /// that was exported.
    #[inline]
    pub(crate) fn of_exported_memory(
        context: &Context,
        start: CUdeviceptr,
        offset: u64,
        size: usize,
    ) -> Result<Self> {
        let _current = context.enter()?;
        // SAFETY: `out` passes a valid pointer; the driver only looks the address up, as a number.
        let raw: CUmemPoolPtrExportData =
            out(|place| unsafe { call!(cuMemPoolExportPointer(place, start)) })
                .map_err(not_of_a_shared_pool)?;
        Self::new(context, raw.reserved, offset, size, IpcKind::Pool)
    }

    #[inline]
    fn new(
        context: &Context,
        handle: [u8; 64],
        offset: u64,
        size: usize,
        kind: IpcKind,
    ) -> Result<Self> {
        let device = context.device().uuid()?.0;
        Ok(Self { handle, offset, size: size as u64, device, kind })
    }

    /// Returns the kind of memory, which determines how it is opened.
    #[inline]
    pub fn kind(&self) -> IpcKind {
        self.kind
    }

    #[inline]
    pub(crate) fn check_kind(&self, expected: IpcKind) -> Result<()> {
        if self.kind == expected {
            return Ok(());
        }
        Err(Invalid::IpcKind { its: self.kind.to_string(), expected: expected.to_string() }.into())
    }

    /// Returns the driver's handle of the allocation.
    #[inline]
    pub fn as_bytes(&self) -> &[u8; 64] {
        &self.handle
    }

    /// Returns the offset of the memory in the allocation, in bytes.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the size of the memory in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        usize::try_from(self.size).unwrap_or(usize::MAX)
    }

    /// Returns the UUID of the device that the memory is on.
    #[inline]
    pub fn device_uuid(&self) -> Uuid {
        Uuid(self.device)
    }

    /// Returns the device that the memory is on, which may have another ordinal in this process, or
    /// `None` if it is not visible here.
    ///
    /// # Errors
    /// Errors of the queries for the UUID of each device.
    #[inline]
    pub fn device(&self) -> Result<Option<Device>> {
        for device in Device::all()? {
            if device.uuid()? == self.device_uuid() {
                return Ok(Some(device));
            }
        }
        Ok(None)
    }

    /// Returns the handle as bytes, to be sent to another process.
    #[inline]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..64].copy_from_slice(&self.handle);
        bytes[64..72].copy_from_slice(&self.offset.to_le_bytes());
        bytes[72..80].copy_from_slice(&self.size.to_le_bytes());
        bytes[80..96].copy_from_slice(&self.device);
        bytes[96..].copy_from_slice(&self.kind.number().to_le_bytes());
        bytes
    }

    /// Creates a handle from received bytes. They are validated only when the handle is opened.
    #[inline]
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

convert! { |handle: IpcHandle| -> Vec<u8> { handle.to_bytes().to_vec() } }

impl TryFrom<Vec<u8>> for IpcHandle {
    type Error = &'static str;

    #[inline]
    fn try_from(bytes: Vec<u8>) -> Result<Self, &'static str> {
        let bytes = <[u8; Self::BYTES]>::try_from(bytes);
        let bytes = bytes.map_err(|_| "an IPC handle of memory has 104 bytes")?;
        Ok(Self::from_bytes(&bytes))
    }
}

/// Converts a `c_char`, which is signed on some targets.
#[inline]
fn byte(byte: c_char) -> u8 {
    let [byte] = byte.to_ne_bytes();
    byte
}

/// The memory of a pool that is not shareable, for messages.
pub(crate) const UNSHAREABLE_POOL: &str = "an unshareable pool's";

/// Translates the error that the driver returns for pools that are not shareable.
#[inline]
pub(crate) fn not_of_a_shared_pool(error: Error) -> Error {
    not_shareable(UNSHAREABLE_POOL, error)
}

/// Explains the error of a driver that does not share memory of a kind.
#[inline]
fn not_shareable(memory: &'static str, error: Error) -> Error {
    match error.code() {
        Some(CUresult::CUDA_ERROR_INVALID_VALUE) => Invalid::NotShareable { memory }.into(),
        _ => error,
    }
}

debug_struct! {
    IpcHandle |its| { kind: its.kind, offset: its.offset, size: its.size, device: its.device_uuid(), .. }
}

/// A handle, and the memory that it is for. The memory stays allocated until this is dropped.
#[derive(Clone, Debug)]
pub struct ExportedMemory {
    handle: IpcHandle,
    memory: AutoFreePointer,
}

impl ExportedMemory {
    /// Returns the handle, for another process.
    #[inline]
    pub fn handle(&self) -> &IpcHandle {
        &self.handle
    }

    /// Returns the memory in this process.
    #[inline]
    pub fn memory(&self) -> &AutoFreePointer {
        &self.memory
    }
}

impl AutoFreePointer {
    /// Exports the memory for another process. The memory stays allocated as long as the returned value
    /// is alive.
    ///
    /// If the memory is stream-ordered, the other process may use it only after the stream has reached
    /// the allocation. So the sender must wait for that before it sends the handle, or send an
    /// [event](crate::Event::ipc_handle) that was recorded after the allocation.
    ///
    /// # Errors
    /// See [`MemoryManager::ipc_handle`](crate::manager::MemoryManager::ipc_handle). [`Invalid::NotShareable`]
    /// if this is not device memory of a manager.
    #[inline]
    pub fn export(&self) -> Result<ExportedMemory> {
        let no_block = Invalid::NotShareable { memory: "managed or foreign-owned" };
        let all = self.memory().block().ok_or(no_block)?;
        let part = Block { address: self.as_raw(), size: self.size(), token: all.token };
        let manager = self.memory().context().expect_manager()?;
        Ok(ExportedMemory { handle: manager.ipc_handle(&part)?, memory: self.clone() })
    }
}
