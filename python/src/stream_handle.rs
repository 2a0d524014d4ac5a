//! The stream of an array, and the driver calls that work on it.
//!
//! `cuda-safe` has one type for stream objects and another for the default streams of the current
//! context. Arrays of other libraries name either kind by a number. `StreamHandle` represents both.

use crate::error::{Failure, Result, check};
use crate::primary::{OfContext, is_default_stream};
use cuda_safe::stream::{CaptureMode, DefaultStream};
use cuda_safe::sys::{
    self, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUDA_MEMCPY2D, CUmemorytype, CUresult, CUstream,
    CUstreamCaptureStatus,
};
use cuda_safe::{Context, Event, Invalid, Stream};
use std::any::Any;
use std::sync::Arc;

/// A stream that work is submitted to.
#[derive(Clone)]
pub(crate) enum StreamHandle {
    /// A stream of this package, or a foreign stream together with its owner.
    Stream(Stream),
    /// A foreign stream. The holder of this value keeps the owner of the stream alive.
    Handle(Handle, Context),
    /// The legacy default stream of a context.
    Legacy(Context),
    /// The per-thread default stream of a context.
    PerThread(Context),
}

/// The handle of a stream that is not a default stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle(CUstream);

// SAFETY: the driver lets any thread use a stream, and this value only names one.
unsafe impl Send for Handle {}
// SAFETY: see `Send`.
unsafe impl Sync for Handle {}

impl Handle {
    pub(crate) fn raw(self) -> CUstream {
        self.0
    }

    /// Wraps the stream for a call.
    fn borrow(self, context: &Context) -> Result<Stream> {
        // SAFETY: the holder of the handle keeps the stream alive for longer than the call, and the
        // stream belongs to the context or to a green context of its device.
        Ok(unsafe { Stream::borrow_raw(self.0, context) }?)
    }

    pub(crate) fn new(number: u64) -> Result<Self> {
        let address = usize::try_from(number)
            .map_err(|_| Failure::invalid(format!("{number} is not a stream handle")))?;
        Ok(Self(std::ptr::with_exposed_provenance_mut(address)))
    }
}

impl OfContext for StreamHandle {
    fn context(&self) -> &Context {
        // This calls the inherent method of the type.
        Self::context(self)
    }
}

impl StreamHandle {
    /// Returns the stream with this number; 1 and 2 are the default streams.
    pub(crate) fn of_number(number: u64, context: Context) -> Result<Self> {
        Ok(match number {
            1 => Self::Legacy(context),
            2 => Self::PerThread(context),
            handle => Self::Handle(Handle::new(handle)?, context),
        })
    }

    /// Returns whether both streams are ordered without an event: they are the same, or one is a
    /// blocking stream of this package and the other is the legacy default stream of its context.
    pub(crate) fn is_in_order_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stream(stream), Self::Legacy(context))
            | (Self::Legacy(context), Self::Stream(stream)) => {
                stream.context() == context && is_default_stream(stream)
            }
            _ => self.is_same(other),
        }
    }

    /// Returns the handle, 1 or 2 for a default stream.
    pub(crate) fn raw(&self) -> CUstream {
        match self {
            Self::Stream(stream) => stream.as_raw(),
            Self::Handle(handle, _) => handle.0,
            Self::Legacy(_) => CU_STREAM_LEGACY,
            Self::PerThread(_) => CU_STREAM_PER_THREAD,
        }
    }

    /// Returns the handle as an integer for other libraries.
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

    /// Returns whether both are the same stream. (A per-thread stream is a different stream on each
    /// thread.)
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.raw() == other.raw() && (!self.is_default() || self.context() == other.context())
    }

    /// Calls `call` with the stream, with the stream's context current if it is a default stream.
    fn call(&self, name: &'static str, call: impl FnOnce(CUstream) -> CUresult) -> Result<()> {
        // `init` detects a forked process.
        cuda_safe::init()?;
        let code = match self.is_default() {
            true => self.context().with_current(|_| call(self.raw()))?,
            false => call(self.raw()),
        };
        check(name, code)
    }

    /// Calls `f` with the stream, or `default` with the default stream.
    fn with<R>(
        &self,
        f: impl FnOnce(&Stream) -> cuda_safe::Result<R>,
        default: impl FnOnce(&DefaultStream<'_>) -> cuda_safe::Result<R>,
    ) -> Result<R> {
        let done = match self {
            Self::Stream(stream) => f(stream),
            Self::Handle(handle, context) => f(&handle.borrow(context)?),
            Self::Legacy(context) => {
                context.with_current(|current| default(&current.legacy_stream()))?
            }
            Self::PerThread(context) => {
                context.with_current(|current| default(&current.per_thread_stream()))?
            }
        };
        Ok(done?)
    }

    /// Waits until all work submitted to the stream is complete.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.with(Stream::synchronize, |stream| stream.synchronize())
    }

    /// Waits like [`synchronize`](Self::synchronize), for implicit waits. It does not invalidate a
    /// capture of another stream, as a wait outside of the relaxed capture mode does for captures
    /// in the mode that PyTorch and others use.
    pub(crate) fn settle(&self) -> Result<()> {
        CaptureMode::Relaxed.with(|| self.synchronize())?
    }

    /// Returns whether all work submitted to the stream is complete.
    pub(crate) fn is_complete(&self) -> Result<bool> {
        self.with(Stream::is_complete, |stream| stream.is_complete())
    }

    /// Records the work submitted to the stream so far.
    pub(crate) fn record_event(&self, event: &Event) -> Result<()> {
        self.with(|stream| event.record(stream), |stream| stream.record_event(event))
    }

    /// Makes later work in the stream wait for the work that the event recorded.
    pub(crate) fn wait_event(&self, event: &Event) -> Result<()> {
        self.with(|stream| stream.wait_event(event), |stream| stream.wait_event(event))
    }

    /// Makes later work in this stream wait for all work submitted to `other` so far.
    pub(crate) fn wait_stream(&self, other: &Self) -> Result<()> {
        if self.is_in_order_with(other) {
            return Ok(());
        }
        // An event recorded in a capture does not order real execution, and this stream would join
        // the capture. Streams of one capture are ordered within its graph.
        match other.is_capturing()? {
            true if self.is_in_capture_with(other)? => {}
            true => return Err(Invalid::StreamIsCaptured.into()),
            false => self.refuse_wait_in_capture()?,
        }
        // The event is private, because a record by other code in between would change the order.
        let event = other.context().event()?;
        other.record_event(&event)?;
        self.wait_event(&event)
    }

    /// Returns whether the stream is capturing.
    pub(crate) fn is_capturing(&self) -> Result<bool> {
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        self.call("cuStreamIsCapturing", |stream| {
            // SAFETY: see `synchronize`; the pointer refers to a local variable.
            unsafe { sys::cuStreamIsCapturing(stream, &raw mut status) }
        })?;
        Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Refuses a capturing stream, because a graph would later use memory that nothing keeps alive
    /// for it.
    pub(crate) fn refuse_captured(&self) -> Result<()> {
        match self.is_capturing()? {
            true => Err(Invalid::StreamIsCaptured.into()),
            false => Ok(()),
        }
    }

    /// Refuses a capturing stream that would have to wait for work outside of the capture. The driver
    /// would invalidate the capture.
    fn refuse_wait_in_capture(&self) -> Result<()> {
        // The legacy default stream is never captured, and a query of it may invalidate captures.
        match !self.is_default() && self.is_capturing()? {
            true => Err(Failure::invalid(
                "the stream is being captured, and cannot wait for a stream outside of the capture: \
                 order the work before the capture, or let the other stream join it with wait_event",
            )),
            false => Ok(()),
        }
    }

    /// Returns whether both streams belong to one capture.
    fn is_in_capture_with(&self, other: &Self) -> Result<bool> {
        let own = self.capture_id()?;
        Ok(own.is_some() && own == other.capture_id()?)
    }

    /// Returns the ID of the capture that the stream belongs to.
    fn capture_id(&self) -> Result<Option<u64>> {
        match self {
            Self::Stream(stream) => Ok(stream.capture_id()?),
            Self::Handle(handle, context) => Ok(handle.borrow(context)?.capture_id()?),
            Self::Legacy(_) | Self::PerThread(_) => Ok(None),
        }
    }

    /// Makes calls that submit work to the stream. If the stream is captured by this package, the
    /// graph keeps `objects` alive. No capture of this package begins in the meantime.
    pub(crate) fn submit(
        &self,
        objects: impl FnOnce() -> Vec<Arc<dyn Any + Send + Sync>>,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        match self {
            Self::Stream(stream) => stream.enqueue_retaining(objects, work)?,
            Self::Handle(handle, context) => {
                handle.borrow(context)?.enqueue_retaining(objects, work)?
            }
            // The legacy default stream is never captured, and arrays do not use the per-thread one.
            Self::Legacy(_) | Self::PerThread(_) => work(),
        }
    }

    /// Calls `f` with the stream. Default streams have no stream object.
    pub(crate) fn with_stream<R>(&self, f: impl FnOnce(&Stream) -> Result<R>) -> Result<R> {
        match self {
            Self::Stream(stream) => f(stream),
            Self::Handle(handle, context) => f(&handle.borrow(context)?),
            Self::Legacy(_) | Self::PerThread(_) => Err(Failure::invalid(
                "the driver's default streams cannot be used here: use another stream",
            )),
        }
    }

    /// Copies host memory to the device, and waits for the copy.
    ///
    /// # Safety
    /// `from` must be readable and `to` must be device memory that may be written in stream order,
    /// both for `bytes`.
    pub(crate) unsafe fn copy_in(&self, to: u64, from: *const u8, bytes: usize) -> Result<()> {
        self.refuse_captured()?;
        let copied = self.call("cuMemcpyHtoDAsync_v2", |stream| {
            // SAFETY: the caller's promise. The host memory is used until the wait below has
            // finished; if that wait fails, the device at most still reads the memory.
            unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, stream) }
        });
        // Wait even if the call failed: the error may come from earlier work, and the copy may be
        // running.
        let waited = self.settle();
        copied.and(waited)
    }

    /// Waits for the stream, and then copies device memory to the host.
    ///
    /// # Safety
    /// `to` must be writable, and `from` must be device memory, both for `bytes`.
    pub(crate) unsafe fn copy_out(&self, to: *mut u8, from: u64, bytes: usize) -> Result<()> {
        // Waiting first ensures that no copy is running if the wait fails.
        self.refuse_captured()?;
        self.settle()?;
        self.copy_now("cuMemcpyDtoH_v2", || {
            // SAFETY: the caller's promise; the copy is complete when the call returns.
            unsafe { sys::cuMemcpyDtoH_v2(to.cast(), from, bytes) }
        })
    }

    /// Makes a copy without a stream, with the context current, and in the relaxed capture mode,
    /// which does not invalidate captures. The caller has waited for the work before the copy, and
    /// no capture is involved.
    fn copy_now(&self, name: &'static str, copy: impl FnOnce() -> CUresult) -> Result<()> {
        let copied = self.context().with_current(|_| CaptureMode::Relaxed.with(copy))??;
        check(name, copied)
    }

    /// Copies device memory in stream order.
    ///
    /// # Safety
    /// Both must be device memory for `bytes`, must not overlap, and may be used in stream order.
    pub(crate) unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        self.call("cuMemcpyDtoDAsync_v2", |stream| {
            // SAFETY: the caller's promise.
            unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, stream) }
        })
    }

    /// Copies rows in stream order, and waits if one side is host memory.
    ///
    /// # Safety
    /// The conditions of the other copy functions apply to each row.
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
                // SAFETY: the caller's promise; the copy is complete when the call returns.
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

    /// Sets rows of words to a pattern in stream order.
    ///
    /// # Safety
    /// `at` must be device memory with `rows` rows of `words` words of the pattern's size, `pitch`
    /// bytes apart, which may be written in stream order.
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

/// The address of the first row, and the distance between rows in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) at: At,
    pub(crate) pitch: usize,
}

/// A device or host address.
#[derive(Clone, Copy)]
pub(crate) enum At {
    Device(u64),
    Host(HostAddress),
}

/// Host memory that the creator of this value keeps alive.
#[derive(Clone, Copy)]
pub(crate) struct HostAddress(pub(crate) *mut u8);

// SAFETY: this is only an address; every use of it is in an unsafe function.
unsafe impl Send for HostAddress {}
// SAFETY: see `Send`.
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

/// The number of rows and their size in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) bytes: usize,
    pub(crate) count: usize,
}

/// A pattern for a memset.
#[derive(Clone, Copy)]
pub(crate) enum Word {
    One(u8),
    Two(u16),
    Four(u32),
}
