//! Whose the memory of arrays is, and in which order it is used.

use crate::current;
use crate::device::{default_stream, is_default_stream};
use crate::ending::detached;
use crate::error::{Failure, Result, check};
use crate::lane::Lane;
use core::ffi::c_void;
use cuda_safe::interop::ByteRange;
use cuda_safe::interop::dlpack::{ManagedTensor, MemoryKind};
use cuda_safe::sys::{self, CUmemorytype, CUpointer_attribute as Attribute, CUresult};
use cuda_safe::{Context, DeviceBuffer, Stream};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Memory that arrays are views of.
pub(crate) struct Memory {
    hold: Hold,
    /// Where all work on it runs. None if its producer named no stream: then work is done when a call
    /// returns, as there is nothing that the producer would come behind.
    lane: Option<Lane>,
    context: Context,
    kind: MemoryKind,
    /// Whether work was given to the lane, or others may have.
    is_used: AtomicBool,
    /// Whether other devices were granted access.
    is_granted: AtomicBool,
}

#[allow(dead_code, reason = "held, not read")]
pub(crate) enum Hold {
    /// Ours, freed in the order of its stream.
    Buffer(DeviceBuffer<u8>),
    /// Of a producer whom the arrays themselves keep alive.
    Foreign,
    /// Of a producer who is told when it is used no more.
    Tensor(ManagedTensor),
}

impl Drop for Memory {
    /// DLPack does not say what the producer goes on with: what was given to our stream is waited for.
    fn drop(&mut self) {
        if !*self.is_used.get_mut() {
            return;
        }
        if let (Hold::Tensor(_), Some(lane)) = (&self.hold, &self.lane) {
            if lane.settle().is_err() {
                // Nobody knows when the producer may go on: it is not told.
                let hold = std::mem::replace(&mut self.hold, Hold::Foreign);
                std::mem::forget(hold);
            }
        }
    }
}

impl Memory {
    /// New memory, and where it is.
    pub(crate) fn allocate(stream: &Stream, bytes: usize) -> Result<(Self, u64)> {
        let buffer = match DeviceBuffer::uninit(stream, bytes) {
            // A device without pools.
            Err(error) if error.code() == Some(CUresult::CUDA_ERROR_NOT_SUPPORTED) => {
                DeviceBuffer::plain_zeroed(stream, bytes)
            }
            Err(cuda_safe::Error::Missing(_)) => DeviceBuffer::plain_zeroed(stream, bytes),
            buffer => buffer,
        }?;
        let address = buffer.as_raw();
        let memory = Self {
            lane: Some(Lane::Stream(stream.clone())),
            context: stream.context().clone(),
            kind: MemoryKind::Device,
            hold: Hold::Buffer(buffer),
            is_used: AtomicBool::new(true),
            is_granted: AtomicBool::new(false),
        };
        Ok((memory, address))
    }

    /// Somebody else's.
    pub(crate) fn foreign(
        hold: Hold,
        lane: Option<Lane>,
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
        }
    }

    /// Lets other devices use memory of this package, as consumers of an exported array expect. A failure
    /// leaves an array for its own device.
    pub(crate) fn grant_peer_access(&self, py: Python<'_>) {
        let Hold::Buffer(buffer) = &self.hold else {
            return;
        };
        if self.is_granted.swap(true, Ordering::Relaxed) {
            return;
        }
        let _ = detached(py, || {
            // SAFETY: the buffer is borrowed.
            unsafe { cuda_safe::interop::grant_peer_access(&self.context, buffer.as_raw()) }
        });
    }

    /// Notes that there may be work on it under way from now on.
    pub(crate) fn set_used(&self) {
        self.is_used.store(true, Ordering::Relaxed);
    }

    pub(crate) fn lane(&self) -> Option<&Lane> {
        self.lane.as_ref()
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Which kind of memory it is.
    pub(crate) fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// Whether letting go of it may wait: for the work on it; or with a stream, for all of the green
    /// context that goes with that.
    pub(crate) fn may_wait(&self) -> bool {
        let is_used = self.is_used.load(Ordering::Relaxed);
        let ends_stream =
            matches!(&self.lane, Some(Lane::Stream(stream)) if !is_default_stream(stream));
        ends_stream || is_used && !matches!(self.hold, Hold::Foreign)
    }
}

/// Where work on some memory runs, and what comes before and after it.
pub(crate) struct Order {
    lane: Lane,
    /// Those of the other memory that is used.
    others: Vec<Lane>,
    wait: bool,
}

impl Order {
    pub(crate) fn of(py: Python<'_>, memory: &Memory) -> Result<Self> {
        memory.set_used();
        let lane = match memory.lane() {
            Some(lane) => lane.clone(),
            // In order with the legacy default stream, at least.
            None => Lane::Stream(default_stream(py, memory.context().device().ordinal())?),
        };
        Ok(Self {
            lane,
            others: Vec::new(),
            wait: memory.lane().is_none(),
        })
    }

    /// The same, with other memory that is read.
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
            Some(lane) if lane.is_same(&self.lane) => {}
            Some(lane) => self.others.push(lane.clone()),
            None => self.wait = true,
        }
        Ok(self)
    }

    /// Runs work behind all that was given to the streams, and lets those go on behind it.
    pub(crate) fn run(self, work: impl FnOnce(&Lane) -> Result<()>) -> Result<()> {
        for other in &self.others {
            self.lane.follow(other)?;
        }
        let worked = work(&self.lane);
        // Even if it failed: a part of it may be under way.
        let ended = self.end();
        worked.and(ended)
    }

    fn end(&self) -> Result<()> {
        for other in &self.others {
            other.follow(&self.lane)?;
        }
        if self.wait {
            self.lane.settle()?;
        }
        Ok(())
    }
}

/// What the driver knows of an address.
pub(crate) struct Known {
    /// Of the device that the memory is on.
    pub(crate) ordinal: u32,
    /// The address by which devices reach it.
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

/// Asks the driver, in one call, where memory is, and whether all of an array is in it; if not, `refused`
/// says what that means.
pub(crate) fn locate(
    py: Python<'_>,
    address: u64,
    range: ByteRange,
    refused: impl Fn(String) -> Failure,
) -> Result<Known> {
    current::start(py)?;
    let mut asked = ASKED;
    // The driver writes the lowest bytes of each.
    let mut answers = [0u64; ASKED.len()];
    let mut places: [*mut c_void; ASKED.len()] = [std::ptr::null_mut(); ASKED.len()];
    for (place, answer) in places.iter_mut().zip(&mut answers) {
        *place = (&raw mut *answer).cast();
    }
    // SAFETY: there are as many attributes as places, each a number of our own that is as large as the
    // largest answer. The address is a number to the driver, which looks it up.
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
            "the driver knows of no memory at {address:#x} that devices reach"
        )));
    }
    let ordinal = u32::try_from(ordinal)
        .ok()
        .filter(|ordinal| i32::try_from(*ordinal).is_ok())
        .ok_or_else(|| refused(format!("the memory at {address:#x} is on no device")))?;
    // None where no context is current: then it is the one that was given.
    let at = if at == 0 { address } else { at };
    let first = i128::from(at) + range.start as i128;
    let end = i128::from(at) + range.end as i128;
    let (start, behind) = (i128::from(start), i128::from(start) + i128::from(size));
    if size != 0 && (first < start || end > behind) {
        return Err(refused(format!(
            "the array at {first:#x}..{end:#x} goes beyond the allocation {start:#x}..{behind:#x}"
        )));
    }
    let is_host = memory_type == u64::from(CUmemorytype::CU_MEMORYTYPE_HOST.0);
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
