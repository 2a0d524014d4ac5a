//! Captures into the commands of a graphics API (CIG, CUDA in Graphics).

use super::has_not_begun;
use crate::call::{Error, Report, Result, answer, call, fork, refuse_if, report, without_current};
use crate::capture_state::Open;
use crate::release;
use crate::stream::Stream;
use core::ffi::c_void;
use cuda_sys::{CUstreamCigCaptureParams, CUstreamCigDataType, CUstreamCigParam};
use std::marker::PhantomData;
use std::sync::Arc;

/// The commands of a graphics API that captured work is added to (`CUstreamCigParam`). See
/// [`Stream::begin_capture_to_graphics`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GraphicsCommands {
    /// An `ID3D12CommandList*`.
    D3d12CommandList(*mut c_void),
    /// A handle of a Vulkan command buffer.
    VulkanCommandBuffer(*mut c_void),
}

/// An open capture into the commands of a graphics API, returned by
/// [`Stream::begin_capture_to_graphics`].
///
/// Dropping this value ends the capture too. If that fails, the failure is reported to the function of
/// [`set_report_hook`](crate::set_report_hook), and the stream remains captured.
#[must_use = "dropping a capture ends it"]
#[derive(Debug)]
pub struct GraphicsCapture {
    stream: Stream,
    open: Arc<Open>,
    is_over: bool,
    not_send: PhantomData<*mut ()>,
}

impl Stream {
    /// Begins a capture of the work in the stream into the commands of a graphics API, which runs the
    /// work with its other commands. Calls `cuStreamBeginCaptureToCig`.
    ///
    /// Launches, copies and fills are captured. This crate rejects the same operations as in a
    /// [capture of a graph](Self::begin_capture). The behavior is unverified (from documentation).
    ///
    /// # Errors
    /// - `CUDA_ERROR_INVALID_CONTEXT` if the context has no
    ///   [graphics client](crate::Context::with_graphics_client).
    /// - [`Invalid::CallsInProgress`](crate::Invalid::CallsInProgress);
    ///   [`Invalid::OtherCapture`](crate::Invalid::OtherCapture).
    /// - [`Error::Missing`] before CUDA 13.1.
    ///
    /// # Safety
    /// - The commands have the type that their variant names, belong to the graphics client of the
    ///   stream's context, and are alive and being recorded until the capture ends. No other thread
    ///   records into them meanwhile.
    /// - Until the graphics API has completed the commands, these must be alive: the stream, all streams
    ///   that waited for its events, the memory and the kernels of the captured work, and the context.
    ///   No other work may use the memory in a way that races with the commands.
    /// - If the commands are executed several times, the conditions hold for each execution.
    ///
    /// Since CUDA 13.1. Raw: [`cuStreamBeginCaptureToCig`](fn@cuda_sys::cuStreamBeginCaptureToCig).
    #[doc(alias = "cuStreamBeginCaptureToCig")]
    #[inline]
    pub unsafe fn begin_capture_to_graphics(
        &self,
        commands: GraphicsCommands,
    ) -> Result<GraphicsCapture> {
        release::drain();
        refuse_if!(fork::in_child(), Error::Forked);
        let (kind, data) = match commands {
            GraphicsCommands::D3d12CommandList(list) => {
                (CUstreamCigDataType::STREAM_CIG_DATA_TYPE_D3D12_COMMAND_LIST, list)
            }
            GraphicsCommands::VulkanCommandBuffer(buffer) => {
                (CUstreamCigDataType::STREAM_CIG_DATA_TYPE_VULKAN_COMMAND_BUFFER_HANDLE_NV, buffer)
            }
        };
        let mut cig = CUstreamCigParam { streamSharedDataType: kind, streamSharedData: data };
        let mut parameters = CUstreamCigCaptureParams { streamCigParams: &raw mut cig };
        let open = Open::new();
        let state = self.state();
        let beginning = state.begin(&open);
        let _beginning = beginning.map_err(|seen| state.refused("begin a capture", seen))?;
        open.add(&self.member());
        open.list();
        let begun = without_current(self.context(), || {
            let parameters = &raw mut parameters;
            // SAFETY: the stream is alive, the pointers refer to local variables, and the caller
            // promises that the commands are valid.
            unsafe { answer!(cuStreamBeginCaptureToCig(self.raw(), parameters)) }
        });
        let has_begun = !begun.as_ref().is_err_and(has_not_begun);
        if !has_begun {
            open.close();
        }
        // If the call failed, this value is dropped, which ends the capture.
        let capture = GraphicsCapture {
            stream: self.clone(),
            open,
            is_over: !has_begun,
            not_send: PhantomData,
        };
        begun.map(|()| capture)
    }
}

impl GraphicsCapture {
    /// Returns the captured stream.
    #[inline]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Ends the capture. Calls `cuStreamEndCaptureToCig`. The commands can then be submitted.
    ///
    /// # Errors
    /// Errors of the driver. The stream is then still captured: dropping this value tried again.
    ///
    /// Since CUDA 13.1. Raw: [`cuStreamEndCaptureToCig`](fn@cuda_sys::cuStreamEndCaptureToCig).
    #[doc(alias = "cuStreamEndCaptureToCig")]
    #[inline]
    pub fn end(mut self) -> Result<()> {
        self.end_once()
    }

    #[inline]
    fn end_once(&mut self) -> Result<()> {
        refuse_if!(fork::in_child(), Error::Forked);
        without_current(self.stream.context(), || {
            // SAFETY: the stream is alive.
            unsafe { call!(cuStreamEndCaptureToCig(self.stream.raw())) }
        })?;
        self.is_over = true;
        drop(self.open.close());
        Ok(())
    }
}

impl Drop for GraphicsCapture {
    #[inline]
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if let Err(error) = self.end_once() {
            report(&Report::Capture { error });
        }
    }
}
