//! Consumers and producers of streams of EGL (`EGLStream`). Unverified (from documentation).

use super::memory::create;
use crate::call::{Result, answer, c_enum, call, debug_struct};
use crate::context::Context;
use crate::release::{Handle, Keep, destroy, release};
use crate::stream::{Stream, same_context};
use cuda_sys::{
    CUeglFrame, CUeglResourceLocationFlags, CUeglStreamConnection, CUgraphicsResource,
    EGLStreamKHR, Zeroable,
};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

c_enum! {
    /// Where the frames of a consumer are (`CUeglResourceLocationFlags`).
    #[derive(Default)]
    #[non_exhaustive]
    pub enum EglLocation = CUeglResourceLocationFlags {
        /// In the memory of the system.
        System = CU_EGL_RESOURCE_LOCATION_SYSMEM,
        /// In the memory of the device.
        #[default]
        Device = CU_EGL_RESOURCE_LOCATION_VIDMEM,
    }
}

/// The connection of CUDA to a stream of EGL as its consumer. Dropping it ends the connection
/// (`cuEGLStreamConsumerDisconnect`), after the [deferred](crate::deferred_releases) return of a frame. Unverified (from
/// documentation).
///
/// # Ordering
/// A frame is [acquired](Self::acquire) in a stream of CUDA, whose later work begins after the producer has presented the
/// frame. The end of the frame enqueues its return in the stream.
pub struct EglConsumer {
    connection: Arc<Connection>,
    not_send: PhantomData<*mut ()>,
}

/// The connection of a consumer, which is ended by the drop. Frames keep it.
struct Connection {
    raw: Handle<CUeglStreamConnection>,
    context: Context,
}

/// The connection of CUDA to a stream of EGL as its producer. Dropping it ends the connection
/// (`cuEGLStreamProducerDisconnect`). Unverified (from documentation).
///
/// # Ordering
/// A frame is presented after the earlier work of a stream of CUDA. It belongs to the consumer until
/// [`returned`](Self::returned) returns it.
pub struct EglProducer {
    raw: CUeglStreamConnection,
    context: Context,
}

/// A frame that a consumer has acquired. Dropping it returns it to the producer (`cuEGLStreamConsumerReleaseFrame`).
/// Unverified (from documentation).
pub struct AcquiredFrame<'a> {
    connection: Arc<Connection>,
    resource: CUgraphicsResource,
    stream: Stream,
    consumer: PhantomData<&'a mut EglConsumer>,
}

impl EglConsumer {
    /// Connects to a stream of EGL. Calls `cuEGLStreamConsumerConnectWithFlags`.
    ///
    /// # Errors
    /// Errors of the driver.
    ///
    /// # Safety
    /// The stream of EGL exists until the connection ends, and has no other consumer.
    ///
    /// Since CUDA 8.0. Raw:
    /// [`cuEGLStreamConsumerConnectWithFlags`](fn@cuda_sys::cuEGLStreamConsumerConnectWithFlags),
    /// [`cuEGLStreamConsumerConnect`](fn@cuda_sys::cuEGLStreamConsumerConnect),
    /// [`cuEGLStreamConsumerDisconnect`](fn@cuda_sys::cuEGLStreamConsumerDisconnect).
    #[doc(
        alias = "cuEGLStreamConsumerConnectWithFlags",
        alias = "cuEGLStreamConsumerConnect",
        alias = "cuEGLStreamConsumerDisconnect"
    )]
    #[inline]
    pub unsafe fn connect(
        context: &Context,
        stream: EGLStreamKHR,
        location: EglLocation,
    ) -> Result<Self> {
        let flags = location.raw().0;
        // SAFETY: the pointer is valid, and the caller promises the stream.
        let raw = create(context, |place| unsafe {
            call!(cuEGLStreamConsumerConnectWithFlags(place, stream, flags))
        })?;
        let connection = Connection { raw: Handle(raw), context: context.clone() };
        Ok(Self { connection: Arc::new(connection), not_send: PhantomData })
    }

    /// Returns the raw handle without giving up ownership. Do not disconnect it.
    #[inline]
    pub fn as_raw(&self) -> CUeglStreamConnection {
        self.connection.raw.0
    }

    /// Acquires the next frame for work in a stream. The thread waits until the producer has presented one, at most for
    /// `timeout`, or without a limit if it is `None`. Calls `cuEGLStreamConsumerAcquireFrame`.
    ///
    /// # Errors
    /// `CUDA_ERROR_LAUNCH_TIMEOUT` after the time; [`Invalid::OtherContext`](crate::Invalid::OtherContext).
    ///
    /// Since CUDA 7.0. Raw:
    /// [`cuEGLStreamConsumerAcquireFrame`](fn@cuda_sys::cuEGLStreamConsumerAcquireFrame),
    /// [`cuEGLStreamConsumerReleaseFrame`](fn@cuda_sys::cuEGLStreamConsumerReleaseFrame).
    #[doc(alias = "cuEGLStreamConsumerAcquireFrame", alias = "cuEGLStreamConsumerReleaseFrame")]
    #[inline]
    pub fn acquire(
        &mut self,
        stream: &Stream,
        timeout: Option<Duration>,
    ) -> Result<AcquiredFrame<'_>> {
        same_context("the stream", stream.context(), &self.connection.context)?;
        // `u32::MAX` is no limit (CUDA_EGL_INFINITE_TIMEOUT).
        let micros = timeout.map_or(u32::MAX, |its| {
            u32::try_from(its.as_micros()).unwrap_or(u32::MAX - 1).min(u32::MAX - 1)
        });
        let (mut connection, mut its_stream) = (self.as_raw(), stream.raw());
        let (connection, its_stream) = (&raw mut connection, &raw mut its_stream);
        let resource = create(&self.connection.context, |place| {
            // SAFETY: the connection and the stream are alive, and the pointers refer to variables.
            unsafe { call!(cuEGLStreamConsumerAcquireFrame(connection, place, its_stream, micros)) }
        })?;
        let (connection, stream) = (Arc::clone(&self.connection), stream.clone());
        Ok(AcquiredFrame { connection, resource, stream, consumer: PhantomData })
    }
}

impl AcquiredFrame<'_> {
    /// Returns the memory of the frame, in the driver's format. It is valid until the frame ends. Calls
    /// `cuGraphicsResourceGetMappedEglFrame`.
    ///
    /// # Errors
    /// Errors of the driver.
    ///
    /// Since CUDA 7.0. Raw:
    /// [`cuGraphicsResourceGetMappedEglFrame`](fn@cuda_sys::cuGraphicsResourceGetMappedEglFrame).
    #[doc(alias = "cuGraphicsResourceGetMappedEglFrame")]
    #[inline]
    pub fn memory(&self) -> Result<CUeglFrame> {
        let mut frame = CUeglFrame::zeroed();
        let (place, raw) = (&raw mut frame, self.resource);
        let _current = self.stream.context().enter()?;
        // SAFETY: the frame is acquired, and the pointer refers to a variable.
        unsafe { call!(cuGraphicsResourceGetMappedEglFrame(place, raw, 0, 0)) }?;
        Ok(frame)
    }
}

impl Drop for AcquiredFrame<'_> {
    #[inline]
    fn drop(&mut self) {
        let connection = Arc::clone(&self.connection);
        let (resource, stream) = (Handle(self.resource), Handle(self.stream.raw()));
        release(FrameInStream { connection, resource, stream }, &self.stream);
    }
}

/// A frame that was acquired in a stream.
struct FrameInStream {
    connection: Arc<Connection>,
    resource: Handle<CUgraphicsResource>,
    stream: Handle<cuda_sys::CUstream>,
}

destroy! {
    FrameInStream as "a frame of an EGLStream";
    |its| {
        let (mut connection, mut stream) = (its.connection.raw.0, its.stream.0);
        let (connection, stream) = (&raw mut connection, &raw mut stream);
        // SAFETY: this value stands for the frame, and the caller promises that this is the first call. The owner
        // keeps the stream alive, and this value the connection.
        unsafe { answer!(cuEGLStreamConsumerReleaseFrame(connection, its.resource.0, stream)) }
    };

    /// The work on the stream may still use the frame, which belongs to the connection.
    #[inline]
    fn has_leaked(&self, _: &dyn Keep) {
        std::mem::forget(Arc::clone(&self.connection));
    }
}

impl EglProducer {
    /// Connects to a stream of EGL, for frames of this size. Calls `cuEGLStreamProducerConnect`.
    ///
    /// # Errors
    /// Errors of the driver.
    ///
    /// # Safety
    /// The stream of EGL exists until the connection ends, and has no other producer.
    ///
    /// Since CUDA 7.0. Raw: [`cuEGLStreamProducerConnect`](fn@cuda_sys::cuEGLStreamProducerConnect),
    /// [`cuEGLStreamProducerDisconnect`](fn@cuda_sys::cuEGLStreamProducerDisconnect).
    #[doc(alias = "cuEGLStreamProducerConnect", alias = "cuEGLStreamProducerDisconnect")]
    #[inline]
    pub unsafe fn connect(
        context: &Context,
        stream: EGLStreamKHR,
        width: i32,
        height: i32,
    ) -> Result<Self> {
        // SAFETY: the pointer is valid, and the caller promises the stream.
        let raw = create(context, |place| unsafe {
            call!(cuEGLStreamProducerConnect(place, stream, width, height))
        })?;
        Ok(Self { raw, context: context.clone() })
    }

    /// Returns the raw handle without giving up ownership. Do not disconnect it.
    #[inline]
    pub fn as_raw(&self) -> CUeglStreamConnection {
        self.raw
    }

    /// Presents a frame after the earlier work of a stream. Calls `cuEGLStreamProducerPresentFrame`.
    ///
    /// # Errors
    /// [`Invalid::OtherContext`](crate::Invalid::OtherContext); errors of the driver.
    ///
    /// # Safety
    /// The frame describes memory of the context, which stays allocated and unchanged until the frame is
    /// [returned](Self::returned).
    ///
    /// Since CUDA 7.0. Raw:
    /// [`cuEGLStreamProducerPresentFrame`](fn@cuda_sys::cuEGLStreamProducerPresentFrame).
    #[doc(alias = "cuEGLStreamProducerPresentFrame")]
    #[inline]
    pub unsafe fn present(&mut self, frame: CUeglFrame, stream: &Stream) -> Result<()> {
        same_context("the stream", stream.context(), &self.context)?;
        let (mut connection, mut its_stream) = (self.raw, stream.raw());
        let (connection, its_stream) = (&raw mut connection, &raw mut its_stream);
        let _current = self.context.enter()?;
        // SAFETY: the connection and the stream are alive, and the caller promises the frame.
        unsafe { call!(cuEGLStreamProducerPresentFrame(connection, frame, its_stream)) }
    }

    /// Takes back a frame that the consumer has returned, for later work of a stream. Calls
    /// `cuEGLStreamProducerReturnFrame`.
    ///
    /// # Errors
    /// `CUDA_ERROR_LAUNCH_TIMEOUT` if there is none; [`Invalid::OtherContext`](crate::Invalid::OtherContext).
    ///
    /// Since CUDA 7.0. Raw:
    /// [`cuEGLStreamProducerReturnFrame`](fn@cuda_sys::cuEGLStreamProducerReturnFrame).
    #[doc(alias = "cuEGLStreamProducerReturnFrame")]
    #[inline]
    pub fn returned(&mut self, stream: &Stream) -> Result<CUeglFrame> {
        same_context("the stream", stream.context(), &self.context)?;
        let mut frame = CUeglFrame::zeroed();
        let (mut connection, mut its_stream) = (self.raw, stream.raw());
        let (connection, its_stream) = (&raw mut connection, &raw mut its_stream);
        let place = &raw mut frame;
        let _current = self.context.enter()?;
        // SAFETY: the connection and the stream are alive, and the pointers refer to variables.
        unsafe { call!(cuEGLStreamProducerReturnFrame(connection, place, its_stream)) }?;
        Ok(frame)
    }
}

/// The end of a connection.
struct Consumer(Handle<CUeglStreamConnection>);

destroy! {
    Consumer as "a consumer of an EGLStream";
    |its| {
        let mut connection = its.0.0;
        // SAFETY: this value stands for the connection, and the caller promises that this is the first call. Frames
        // keep the connection.
        unsafe { answer!(cuEGLStreamConsumerDisconnect(&raw mut connection)) }
    }
}

/// The end of a connection.
struct Producer(Handle<CUeglStreamConnection>);

destroy! {
    Producer as "a producer of an EGLStream";
    |its| {
        let mut connection = its.0.0;
        // SAFETY: this value stands for the connection, and the caller promises that this is the first call.
        unsafe { answer!(cuEGLStreamProducerDisconnect(&raw mut connection)) }
    }
}

impl Drop for Connection {
    #[inline]
    fn drop(&mut self) {
        release(Consumer(self.raw), &self.context);
    }
}

impl Drop for EglProducer {
    #[inline]
    fn drop(&mut self) {
        release(Producer(Handle(self.raw)), &self.context);
    }
}

debug_struct! { EglConsumer |its| { raw: its.as_raw(), context: its.connection.context } }
debug_struct! { EglProducer |its| { raw: its.raw, context: its.context } }
debug_struct! { AcquiredFrame<'_> |its| { resource: its.resource, stream: its.stream } }
