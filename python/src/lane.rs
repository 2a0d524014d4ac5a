//! Where work on an array runs, and the calls of the driver that do it.
//!
//! `cuda-safe` has a type for streams that are objects, and another for default streams, which are
//! those of the current context; arrays of others come with either, as a number. Here both are one.

use crate::error::{Failure, Result, check};
use cuda_safe::sys::{
    self, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUDA_MEMCPY2D, CUmemorytype, CUresult, CUstream,
    CUstreamCaptureStatus,
};
use cuda_safe::{CaptureMode, Context, Event, Invalid, Stream};

/// A stream that work is given to.
#[derive(Clone)]
pub(crate) enum Lane {
    /// One of ours, or of somebody who is kept alive with it.
    Stream(Stream),
    /// Somebody's, who is kept alive by whoever has this and keeps the stream.
    Handle(Handle, Context),
    /// The legacy default stream of a context.
    Legacy(Context),
    /// The default stream of the thread that uses it, in a context.
    PerThread(Context),
}

/// The handle of a stream that is no default stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle(CUstream);

// SAFETY: the driver lets any thread use a stream, and this only names one.
unsafe impl Send for Handle {}
// SAFETY: as for Send.
unsafe impl Sync for Handle {}

impl Handle {
    pub(crate) fn raw(self) -> CUstream {
        self.0
    }

    pub(crate) fn new(number: u64) -> Result<Self> {
        let address = usize::try_from(number)
            .map_err(|_| Failure::invalid(format!("{number} is no handle of a stream")))?;
        Ok(Self(std::ptr::with_exposed_provenance_mut(address)))
    }
}

impl Lane {
    /// A stream of others by its number, whose default streams are 1 and 2.
    pub(crate) fn of_number(number: u64, context: Context) -> Result<Self> {
        Ok(match number {
            1 => Self::Legacy(context),
            2 => Self::PerThread(context),
            handle => Self::Handle(Handle::new(handle)?, context),
        })
    }

    /// Whether both are in order without an event: the same, or a blocking stream of ours and the legacy
    /// default stream of its context.
    pub(crate) fn is_in_order_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stream(stream), Self::Legacy(context))
            | (Self::Legacy(context), Self::Stream(stream)) => {
                stream.context() == context && crate::device::is_default_stream(stream)
            }
            _ => self.is_same(other),
        }
    }

    /// The handle, 1 or 2 for a default stream.
    pub(crate) fn raw(&self) -> CUstream {
        match self {
            Self::Stream(stream) => stream.as_raw(),
            Self::Handle(handle, _) => handle.0,
            Self::Legacy(_) => CU_STREAM_LEGACY,
            Self::PerThread(_) => CU_STREAM_PER_THREAD,
        }
    }

    /// The handle as others write it.
    pub(crate) fn number(&self) -> u64 {
        self.raw().expose_provenance() as u64
    }

    pub(crate) fn context(&self) -> &Context {
        match self {
            Self::Stream(stream) => stream.context(),
            Self::Handle(_, context) | Self::Legacy(context) | Self::PerThread(context) => context,
        }
    }

    fn is_default(&self) -> bool {
        matches!(self, Self::Legacy(_) | Self::PerThread(_))
    }

    /// Whether both are one stream. (That of a thread is another one in the next.)
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.raw() == other.raw() && (!self.is_default() || self.context() == other.context())
    }

    /// Makes a call with the stream, with its context current if it is a default one.
    fn call(&self, name: &'static str, call: impl FnOnce(CUstream) -> CUresult) -> Result<()> {
        // The crate knows whether this process is a fork.
        cuda_safe::init()?;
        let code = match self.is_default() {
            true => self.context().with_current(|_| call(self.raw()))?,
            false => call(self.raw()),
        };
        check(name, code)
    }

    /// Waits until all work given to the stream is done.
    pub(crate) fn synchronize(&self) -> Result<()> {
        if let Self::Stream(stream) = self {
            return Ok(stream.synchronize()?);
        }
        self.call("cuStreamSynchronize", |stream| {
            // SAFETY: the stream is alive, or a default one of the current context.
            unsafe { sys::cuStreamSynchronize(stream) }
        })
    }

    /// The same where nobody asked for it: breaks nobody's capture of another stream, which waits do that
    /// are made in the capture mode of PyTorch and others.
    pub(crate) fn settle(&self) -> Result<()> {
        CaptureMode::Relaxed.with(|| self.synchronize())?
    }

    /// Whether all work given to the stream is done.
    pub(crate) fn is_idle(&self) -> Result<bool> {
        if let Self::Stream(stream) = self {
            return Ok(stream.is_idle()?);
        }
        let mut is_idle = true;
        self.call("cuStreamQuery", |stream| {
            // SAFETY: as for `synchronize`.
            match unsafe { sys::cuStreamQuery(stream) } {
                CUresult::CUDA_ERROR_NOT_READY => {
                    is_idle = false;
                    CUresult::CUDA_SUCCESS
                }
                code => code,
            }
        })?;
        Ok(is_idle)
    }

    /// Marks what the stream has been given up to now.
    pub(crate) fn record(&self, event: &Event) -> Result<()> {
        if let Self::Stream(stream) = self {
            return Ok(event.record(stream)?);
        }
        self.call("cuEventRecord", |stream| {
            // SAFETY: as for `synchronize`; the event is alive.
            unsafe { sys::cuEventRecord(event.as_raw(), stream) }
        })
    }

    /// Lets what the stream is given from now on begin after what the event has recorded.
    pub(crate) fn wait(&self, event: &Event) -> Result<()> {
        if let Self::Stream(stream) = self {
            return Ok(stream.wait(event)?);
        }
        self.call("cuStreamWaitEvent", |stream| {
            // SAFETY: as for `synchronize`; the event is alive.
            unsafe { sys::cuStreamWaitEvent(stream, event.as_raw(), 0) }
        })
    }

    /// Lets what the stream is given from now on begin after what `other` has been given up to now.
    pub(crate) fn follow(&self, other: &Self) -> Result<()> {
        if self.is_in_order_with(other) {
            return Ok(());
        }
        // Of a capture it would be no order of what is done, and this stream would become part of it.
        other.refuse_captured()?;
        // Ours alone: recorded by somebody else in between, it would be another order.
        let event = other.context().event()?;
        other.record(&event)?;
        self.wait(&event)
    }

    /// Refuses a stream that is captured: a graph would use later what nobody keeps for it.
    pub(crate) fn refuse_captured(&self) -> Result<()> {
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        self.call("cuStreamIsCapturing", |stream| {
            // SAFETY: as for `synchronize`; the pointer is to a local.
            unsafe { sys::cuStreamIsCapturing(stream, &raw mut status) }
        })?;
        if status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
            return Err(Invalid::StreamIsCaptured.into());
        }
        Ok(())
    }

    /// Copies host memory to the device, and waits.
    ///
    /// # Safety
    /// `from` is readable, and `to` device memory that may be written in the stream's order, both for
    /// `bytes`.
    pub(crate) unsafe fn copy_in(&self, to: u64, from: *const u8, bytes: usize) -> Result<()> {
        self.refuse_captured()?;
        let copied = self.call("cuMemcpyHtoDAsync_v2", |stream| {
            // SAFETY: the caller's promise. The memory is used until the wait below is over; should
            // that fail, the device at most still reads it.
            unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, stream) }
        });
        // Even if the call failed: its code may be of earlier work, and the copy under way.
        let waited = self.settle();
        copied.and(waited)
    }

    /// Waits for the stream, and copies device memory to the host.
    ///
    /// # Safety
    /// `to` is writable, and `from` device memory, both for `bytes`.
    pub(crate) unsafe fn copy_out(&self, to: *mut u8, from: u64, bytes: usize) -> Result<()> {
        // First, so that no copy is under way if the wait fails.
        self.refuse_captured()?;
        self.settle()?;
        self.copy_now("cuMemcpyDtoH_v2", || {
            // SAFETY: the caller's promise; the copy is done when the call returns.
            unsafe { sys::cuMemcpyDtoH_v2(to.cast(), from, bytes) }
        })
    }

    /// Makes a copy that names no stream, with the context current, and in the capture mode in which it
    /// breaks nobody's capture: it is behind the work that it has to be behind, and of no capture.
    fn copy_now(&self, name: &'static str, copy: impl FnOnce() -> CUresult) -> Result<()> {
        let copied = self
            .context()
            .with_current(|_| CaptureMode::Relaxed.with(copy))??;
        check(name, copied)
    }

    /// Copies device memory, in the stream's order.
    ///
    /// # Safety
    /// Both are device memory for `bytes`, do not overlap, and may be used in the stream's order.
    pub(crate) unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        self.call("cuMemcpyDtoDAsync_v2", |stream| {
            // SAFETY: the caller's promise.
            unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, stream) }
        })
    }

    /// Copies rows, in the stream's order; and waits if one side is the host's.
    ///
    /// # Safety
    /// As for the copies of bytes, for each row.
    pub(crate) unsafe fn copy_rows(&self, to: Place, from: Place, rows: Rows) -> Result<()> {
        let mut copy = CUDA_MEMCPY2D {
            srcPitch: from.pitch,
            dstPitch: to.pitch,
            WidthInBytes: rows.bytes,
            Height: rows.count,
            ..CUDA_MEMCPY2D::default()
        };
        match from.at {
            At::Device(address) => {
                copy.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_DEVICE;
                copy.srcDevice = address;
            }
            At::Host(memory) => {
                copy.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
                copy.srcHost = memory.0.cast();
            }
        }
        match to.at {
            At::Device(address) => {
                copy.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_DEVICE;
                copy.dstDevice = address;
            }
            At::Host(memory) => {
                copy.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
                copy.dstHost = memory.0.cast();
            }
        }
        if let At::Host(_) = to.at {
            self.refuse_captured()?;
            self.settle()?;
            return self.copy_now("cuMemcpy2D_v2", || {
                // SAFETY: the caller's promise; the copy is done when the call returns.
                unsafe { sys::cuMemcpy2D_v2(&raw const copy) }
            });
        }
        let is_from_host = matches!(from.at, At::Host(_));
        if is_from_host {
            self.refuse_captured()?;
        }
        let copied = self.call("cuMemcpy2DAsync_v2", |stream| {
            // SAFETY: the caller's promise.
            unsafe { sys::cuMemcpy2DAsync_v2(&raw const copy, stream) }
        });
        if !is_from_host {
            return copied;
        }
        let waited = self.settle();
        copied.and(waited)
    }

    /// Sets rows of words to a pattern, in the stream's order.
    ///
    /// # Safety
    /// `at` is device memory with `rows` of words as large as the pattern, `pitch` bytes apart, which
    /// may be written in the stream's order.
    pub(crate) unsafe fn fill(
        &self,
        at: u64,
        word: Word,
        words: usize,
        rows: usize,
        pitch: usize,
    ) -> Result<()> {
        match (word, rows) {
            (Word::One(value), 1) => self.call("cuMemsetD8Async", |stream| {
                // SAFETY: the caller's promise.
                unsafe { sys::cuMemsetD8Async(at, value, words, stream) }
            }),
            (Word::Two(value), 1) => self.call("cuMemsetD16Async", |stream| {
                // SAFETY: as above.
                unsafe { sys::cuMemsetD16Async(at, value, words, stream) }
            }),
            (Word::Four(value), 1) => self.call("cuMemsetD32Async", |stream| {
                // SAFETY: as above.
                unsafe { sys::cuMemsetD32Async(at, value, words, stream) }
            }),
            (Word::One(value), _) => self.call("cuMemsetD2D8Async", |stream| {
                // SAFETY: as above.
                unsafe { sys::cuMemsetD2D8Async(at, pitch, value, words, rows, stream) }
            }),
            (Word::Two(value), _) => self.call("cuMemsetD2D16Async", |stream| {
                // SAFETY: as above.
                unsafe { sys::cuMemsetD2D16Async(at, pitch, value, words, rows, stream) }
            }),
            (Word::Four(value), _) => self.call("cuMemsetD2D32Async", |stream| {
                // SAFETY: as above.
                unsafe { sys::cuMemsetD2D32Async(at, pitch, value, words, rows, stream) }
            }),
        }
    }
}

/// Where rows begin, and how far they are apart.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) at: At,
    pub(crate) pitch: usize,
}

/// An address of the device, or of the host.
#[derive(Clone, Copy)]
pub(crate) enum At {
    Device(u64),
    Host(HostAddress),
}

/// Memory of the host, which whoever names it keeps.
#[derive(Clone, Copy)]
pub(crate) struct HostAddress(pub(crate) *mut u8);

// SAFETY: an address: what is done with it takes an unsafe function.
unsafe impl Send for HostAddress {}
// SAFETY: as for Send.
unsafe impl Sync for HostAddress {}

impl At {
    pub(crate) fn offset(self, bytes: isize) -> Self {
        match self {
            Self::Device(address) => Self::Device(address.wrapping_add_signed(bytes as i64)),
            Self::Host(HostAddress(memory)) => {
                Self::Host(HostAddress(memory.wrapping_offset(bytes)))
            }
        }
    }
}

/// So many rows of so many bytes.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) bytes: usize,
    pub(crate) count: usize,
}

/// What the driver can set memory to.
#[derive(Clone, Copy)]
pub(crate) enum Word {
    One(u8),
    Two(u16),
    Four(u32),
}
