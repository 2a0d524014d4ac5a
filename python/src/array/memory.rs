//! Memory of arrays: its owner, and the stream order of work on it.

use crate::current;
use crate::error::{Failure, Result, check};
use crate::lifetime::ending::detached;
use crate::lifetime::hold::Owner;
use crate::primary::{default_stream, is_default_stream, is_gone, primary};
use crate::stream_handle::StreamHandle;
use crate::tensor::{Hold, release_tensors};
use core::ffi::c_void;
use cuda_safe::interop::ByteRange;
use cuda_safe::interop::dlpack::MemoryKind;
use cuda_safe::memory::{ManagedBuffer, PinnedOptions};
use cuda_safe::sys::{self, CUmemorytype, CUpointer_attribute as Attribute, CUresult};
use cuda_safe::{Context, DeviceBuffer, PinnedBuffer, Stream};
use pyo3::prelude::*;
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Memory that arrays are views of.
pub(crate) struct Memory {
    hold: Hold,
    /// The stream on which all work on the memory runs. If it is None, the producer named no stream
    /// and orders nothing after this work; calls then return only when their work is complete.
    lane: Option<StreamHandle>,
    context: Context,
    kind: MemoryKind,
    /// Whether work may have been submitted to the stream, by this package or by others.
    is_used: AtomicBool,
    /// Whether access was granted to other devices.
    is_granted: AtomicBool,
    /// What graphs keep alive of this memory.
    in_graphs: Mutex<Weak<InGraphs>>,
}

/// Memory that graphs keep alive, with the producer of foreign memory.
pub(crate) struct InGraphs {
    #[allow(dead_code, reason = "held, not read")]
    memory: Arc<Memory>,
    #[allow(dead_code, reason = "held, not read")]
    owner: Option<Owner>,
}

impl Drop for Memory {
    /// Waits for the work submitted to the stream, unless the memory is freed in stream order or by
    /// others: a memory manager may reuse pinned memory as soon as it is freed, and DLPack does not
    /// name a stream for the producer's later work.
    fn drop(&mut self) {
        if is_gone(&self.context) {
            let hold = std::mem::replace(&mut self.hold, Hold::Foreign);
            return hold.after_reset(self.lane.take());
        }
        if !*self.is_used.get_mut() {
            return;
        }
        if matches!(self.hold, Hold::Buffer(_) | Hold::Foreign) {
            return;
        }
        if let Some(lane) = self.lane.take() {
            let hold = std::mem::replace(&mut self.hold, Hold::Foreign);
            release_tensors(Some((hold, lane)));
        }
    }
}

impl Memory {
    /// Allocates memory and returns it with its address.
    pub(crate) fn allocate(stream: &Stream, bytes: usize) -> Result<(Self, u64)> {
        let buffer = match DeviceBuffer::uninit(stream, bytes) {
            // The device does not support memory pools.
            Err(error) if error.code() == Some(CUresult::CUDA_ERROR_NOT_SUPPORTED) => {
                DeviceBuffer::zeroed_sync(stream, bytes)
            }
            Err(cuda_safe::Error::Missing(_)) => DeviceBuffer::zeroed_sync(stream, bytes),
            buffer => buffer,
        }?;
        let address = buffer.as_raw();
        let memory = Self {
            lane: Some(StreamHandle::Stream(stream.clone())),
            context: stream.context().clone(),
            kind: MemoryKind::Device,
            hold: Hold::Buffer(buffer),
            is_used: AtomicBool::new(true),
            is_granted: AtomicBool::new(false),
            in_graphs: Mutex::default(),
        };
        Ok((memory, address))
    }

    /// Allocates memory of a kind that a device can access, and returns it with its address for
    /// the device, or for the host if it is pinned.
    pub(crate) fn allocate_in(
        stream: &Stream,
        bytes: usize,
        kind: MemoryKind,
    ) -> Result<(Self, u64)> {
        release_tensors(None);
        let (hold, address) = match kind {
            MemoryKind::Pinned => {
                let options = PinnedOptions { mapped: true, ..PinnedOptions::default() };
                let mut buffer = PinnedBuffer::uninit_with(stream.context(), bytes, options)?;
                let address = buffer.as_mut_ptr().expose_provenance() as u64;
                (Hold::Pinned(buffer), address)
            }
            MemoryKind::Managed => {
                let buffer = ManagedBuffer::zeroed(stream, bytes)?;
                let address = buffer.as_raw();
                (Hold::Managed(buffer), address)
            }
            _ => return Self::allocate(stream, bytes),
        };
        let lane = Some(StreamHandle::Stream(stream.clone()));
        let memory = Self::new(hold, lane, stream.context().clone(), kind);
        memory.set_used();
        Ok((memory, address))
    }

    /// Creates the memory that `hold` keeps alive.
    pub(crate) fn new(
        hold: Hold,
        lane: Option<StreamHandle>,
        context: Context,
        kind: MemoryKind,
    ) -> Self {
        Self {
            hold,
            lane,
            context,
            kind,
            is_used: AtomicBool::new(false),
            is_granted: AtomicBool::new(false),
            in_graphs: Mutex::default(),
        }
    }

    /// Returns what a graph keeps alive of this memory. All graphs share it.
    pub(crate) fn in_graphs(
        self: &Arc<Self>,
        owner: impl FnOnce() -> Option<Owner>,
    ) -> Arc<dyn Any + Send + Sync> {
        let lock = || self.in_graphs.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().upgrade();
        if let Some(known) = known {
            return known;
        }
        // Without the lock, because this waits for the GIL.
        let made = Arc::new(InGraphs { memory: Arc::clone(self), owner: owner() });
        *lock() = Arc::downgrade(&made);
        made
    }

    /// Grants other devices access to memory of this package, as consumers of an exported array
    /// expect. After a failure, only the array's own device has access.
    pub(crate) fn grant_peer_access(&self, py: Python<'_>) {
        let Hold::Buffer(buffer) = &self.hold else {
            return;
        };
        // Reading first is faster, and is enough except at the first export.
        let is_granted = &self.is_granted;
        if is_granted.load(Ordering::Relaxed) || is_granted.swap(true, Ordering::Relaxed) {
            return;
        }
        let _ = detached(py, || {
            // SAFETY: `buffer` is borrowed during the call.
            unsafe { cuda_safe::interop::grant_peer_access(&self.context, buffer.as_raw()) }
        });
    }

    /// Notes that work on the memory may be pending from now on.
    pub(crate) fn set_used(&self) {
        self.is_used.store(true, Ordering::Relaxed);
    }

    pub(crate) fn lane(&self) -> Option<&StreamHandle> {
        self.lane.as_ref()
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the kind of memory.
    pub(crate) fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// Returns whether releasing the memory may block: to wait for the work on it or, if a stream
    /// is released with it, for all work of the stream's green context.
    pub(crate) fn may_wait(&self) -> bool {
        let is_used = self.is_used.load(Ordering::Relaxed);
        let ends_stream =
            matches!(&self.lane, Some(StreamHandle::Stream(stream)) if !is_default_stream(stream));
        // The driver waits for all work when it frees such memory.
        let waits = matches!(self.hold, Hold::Pinned(_) | Hold::Managed(_));
        ends_stream || waits || is_used && !matches!(self.hold, Hold::Foreign)
    }
}

/// The stream on which work on some memory runs, and the streams that are ordered with this work.
pub(crate) struct Order {
    lane: StreamHandle,
    /// The streams of other memory that the work uses.
    others: Vec<StreamHandle>,
    wait: bool,
}

impl Order {
    pub(crate) fn of(py: Python<'_>, memory: &Memory) -> Result<Self> {
        memory.set_used();
        let lane = match memory.lane() {
            Some(lane) => lane.clone(),
            // This stream is at least in order with the legacy default stream.
            None => StreamHandle::Stream(default_stream(py, memory.context().device().ordinal())?),
        };
        Ok(Self { lane, others: Vec::new(), wait: memory.lane().is_none() })
    }

    /// Returns the order of work on a stream that uses no memory yet.
    pub(crate) fn on(lane: StreamHandle) -> Self {
        Self { lane, others: Vec::new(), wait: false }
    }

    /// Adds a stream that is ordered with the work.
    pub(crate) fn with_stream(mut self, other: StreamHandle) -> Self {
        let mut known = std::iter::once(&self.lane).chain(&self.others);
        if !known.any(|lane| lane.is_same(&other)) {
            self.others.push(other);
        }
        self
    }

    /// Adds other memory that the work uses.
    pub(crate) fn and(mut self, other: &Memory) -> Result<Self> {
        other.set_used();
        let (its, others) = (self.lane.context().device(), other.context().device());
        if its != others {
            return Err(Failure::invalid(format!(
                "arrays of the devices {} and {}: copy over the host",
                its.ordinal(),
                others.ordinal()
            )));
        }
        match other.lane() {
            Some(lane) => return Ok(self.with_stream(lane.clone())),
            None => self.wait = true,
        }
        Ok(self)
    }

    /// Runs the work after all work submitted to the streams so far, and orders later work of these
    /// streams after it.
    ///
    /// If the stream is captured by this package, the graph keeps `objects` alive.
    pub(crate) fn run(
        self,
        objects: impl FnOnce() -> Vec<Arc<dyn Any + Send + Sync>>,
        work: impl FnOnce(&StreamHandle) -> Result<()>,
    ) -> Result<()> {
        if self.wait && !matches!(self.lane, StreamHandle::Legacy(_)) && self.lane.is_capturing()? {
            return Err(Failure::invalid(
                "an array without a stream cannot be used in a capture, because each call waits for \
                 its work",
            ));
        }
        for other in &self.others {
            self.lane.wait_stream(other)?;
        }
        let worked = self.lane.submit(objects, || work(&self.lane));
        // This is necessary even if the work failed, because a part of it may be running.
        let ended = self.end();
        worked.and(ended)
    }

    fn end(&self) -> Result<()> {
        for other in &self.others {
            other.wait_stream(&self.lane)?;
        }
        if self.wait {
            self.lane.settle()?;
        }
        Ok(())
    }
}

/// Returns the address that the host uses for pinned or managed memory, or None if the driver knows
/// no such address. An address of 0 belongs to an empty array and stays the same.
pub(crate) fn host_address(py: Python<'_>, address: u64) -> Result<Option<u64>> {
    if address == 0 {
        return Ok(Some(0));
    }
    current::start(py)?;
    let answer = address_as(Attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER, address)?;
    Ok((answer != 0).then_some(answer))
}

/// Returns the address that the device uses for pinned memory, by its address for the host. The driver
/// knows it only in a context.
pub(crate) fn device_address(context: &Context, address: u64) -> Result<u64> {
    let ask = |_: &_| address_as(Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address);
    let answer = context.with_current(ask)??;
    // Memory that is not mapped has no such address.
    Ok(if answer == 0 { address } else { answer })
}

/// Returns a pointer attribute that is an address.
fn address_as(mut asked: Attribute, address: u64) -> Result<u64> {
    let mut answer = 0u64;
    let mut place: *mut c_void = (&raw mut answer).cast();
    // SAFETY: there is one attribute, whose value is a pointer, and the answer is a local integer of
    // this size. The driver only looks the address up.
    let code = unsafe { sys::cuPointerGetAttributes(1, &raw mut asked, &raw mut place, address) };
    check("cuPointerGetAttributes", code)?;
    Ok(answer)
}

/// Attributes of the memory at an address.
pub(crate) struct Known {
    /// The ordinal of the memory's device.
    pub(crate) ordinal: u32,
    /// The address that devices use.
    pub(crate) address: u64,
    pub(crate) kind: MemoryKind,
}

const ASKED: [Attribute; 6] = [
    Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
    Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
    Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
    Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
];

/// Asks the driver in one call where the memory is, and checks that the whole array is in one
/// allocation. Otherwise returns the error that `refused` creates from the message.
pub(crate) fn locate(
    py: Python<'_>,
    address: u64,
    range: ByteRange,
    refused: impl Fn(String) -> Failure,
) -> Result<Known> {
    current::start(py)?;
    let mut asked = ASKED;
    // The driver writes the lowest bytes of each answer.
    let mut answers = [0u64; ASKED.len()];
    let mut places: [*mut c_void; ASKED.len()] = [std::ptr::null_mut(); ASKED.len()];
    for (place, answer) in places.iter_mut().zip(&mut answers) {
        *place = (&raw mut *answer).cast();
    }
    // SAFETY: there are as many attributes as answers, and each answer is a local integer as large
    // as the largest attribute. The driver only looks the address up.
    let code = unsafe {
        sys::cuPointerGetAttributes(
            ASKED.len() as u32,
            asked.as_mut_ptr(),
            places.as_mut_ptr(),
            address,
        )
    };
    check("cuPointerGetAttributes", code)?;
    let [memory_type, ordinal, at, start, size, is_managed] = answers;
    if memory_type == u64::from(CUmemorytype::default().0) {
        return Err(refused(format!(
            "the driver knows no memory at {address:#x} that a device can access"
        )));
    }
    let ordinal = u32::try_from(ordinal)
        .ok()
        .filter(|ordinal| i32::try_from(*ordinal).is_ok())
        .ok_or_else(|| refused(format!("the memory at {address:#x} is on no device")))?;
    let is_host = memory_type == u64::from(CUmemorytype::CU_MEMORYTYPE_HOST.0);
    let at = match at {
        // No context is current. The address of host memory may be another one for the device.
        0 if is_host => device_address(&primary(py, ordinal)?, address)?,
        0 => address,
        at => at,
    };
    let first = i128::from(at) + range.start as i128;
    let end = i128::from(at) + range.end as i128;
    let (start, behind) = (i128::from(start), i128::from(start) + i128::from(size));
    if size != 0 && (first < start || end > behind) {
        return Err(refused(format!(
            "the array at {first:#x}..{end:#x} exceeds the allocation {start:#x}..{behind:#x}"
        )));
    }
    Ok(Known {
        ordinal,
        address: at,
        kind: match is_managed {
            0 if is_host => MemoryKind::Pinned,
            0 => MemoryKind::Device,
            _ => MemoryKind::Managed,
        },
    })
}
