//! Calls that block while another thread is inside a call that waits for work.
//!
//! Measured on an H200 with driver 580: most waits block no other thread. However, `cuMemFree`,
//! `cuMemFreeHost` and `cuModuleLoadData` block almost every call of every other thread until they
//! return, and a copy to pageable memory blocks some. Rows marked *same kind* were not measured; they
//! are variants of a function that was. A function without a row never blocks. Measured to never block:
//! `cuStreamWaitEvent`, `cuMemAllocAsync`, `cuMemFreeAsync`, `cuStreamQuery`, `cuEventQuery`,
//! `cuStreamIsCapturing`, `cuThreadExchangeStreamCaptureMode`, `cuMemGetInfo`, `cuCtxGetCurrent`,
//! `cuPointerGetAttribute`, `cuMemCreate`, `cuDevicePrimaryCtxRetain`.
//!
//! A call blocks only calls of its device. This was not measured with two devices. But ranks of NCCL, each on a thread
//! with a device, copy results to pageable memory while others still call, and such programs do not hang.

use super::{Answer, World};
use crate::account::misuse;
use crate::exec::Progress;
use crate::thread;
use cuda_sys::CUresult;
use std::thread::ThreadId;

/// The calls that a waiting call blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// Every call that has a row in [`BLOCKED`].
    Everything,
    /// The rows [`Blocked::ByCopies`], and the rows [`Blocked::OnItsStream`] that use this stream.
    Copy(usize),
}

/// The calls that block a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocked {
    /// Calls that block everything.
    ByFrees,
    /// Calls that block everything, and copies to pageable memory on the same stream.
    OnItsStream,
    /// Calls that block everything, and copies to pageable memory on every stream.
    ByCopies,
}

/// Calls that block other threads while they wait for work.
#[rustfmt::skip]
const STOPPING: [(&str, bool); 8] = [
    // Name; whether it blocks everything, rather than only what copies block.
    ("cuMemFree_v2", true),
    ("cuMemFreeHost", true),
    ("cuModuleLoadData", true),
    ("cuModuleLoadDataEx", true), // same kind
    ("cuModuleLoadFatBinary", true), // same kind
    ("cuModuleLoad", true), // same kind
    // Copies from pageable memory block the same calls, but in this driver they never wait.
    ("cuMemcpyDtoHAsync_v2", false),
    // A launch that copies to pageable memory. It also blocks launches on its stream, and launches of the
    // same graph elsewhere; this is not simulated.
    ("cuGraphLaunch", false),
];

#[rustfmt::skip]
const BLOCKED: [(&str, Blocked); 52] = [
    ("cuEventRecord", Blocked::OnItsStream),
    ("cuEventRecordWithFlags", Blocked::OnItsStream), // same kind
    ("cuLaunchKernel", Blocked::OnItsStream),
    ("cuLaunchKernelEx", Blocked::OnItsStream), // same kind
    ("cuLaunchCooperativeKernel", Blocked::OnItsStream), // same kind
    ("cuLaunchHostFunc", Blocked::OnItsStream),
    ("cuStreamAddCallback", Blocked::OnItsStream), // same kind
    ("cuGraphLaunch", Blocked::ByFrees),
    ("cuMemcpyHtoDAsync_v2", Blocked::ByFrees),
    ("cuMemcpyDtoHAsync_v2", Blocked::ByFrees),
    ("cuMemcpyDtoDAsync_v2", Blocked::ByFrees),
    ("cuMemcpyAsync", Blocked::ByFrees), // same kind
    ("cuMemcpyPeerAsync", Blocked::ByFrees), // same kind
    ("cuMemcpy2DAsync_v2", Blocked::ByFrees), // same kind
    ("cuMemcpy3DAsync_v2", Blocked::ByFrees), // same kind
    ("cuMemcpyBatchAsync", Blocked::ByFrees), // same kind
    ("cuMemcpyBatchAsync_v2", Blocked::ByFrees), // same kind
    ("cuMemBatchDecompressAsync", Blocked::ByFrees), // same kind
    ("cuFabricCpyBatchAsync", Blocked::ByFrees), // same kind
    ("cuMemsetD8_v2", Blocked::ByFrees), // same kind
    ("cuMemsetD16_v2", Blocked::ByFrees), // same kind
    ("cuMemsetD32_v2", Blocked::ByFrees), // same kind
    ("cuMemsetD2D8_v2", Blocked::ByFrees), // same kind
    ("cuMemsetD2D16_v2", Blocked::ByFrees), // same kind
    ("cuMemsetD2D32_v2", Blocked::ByFrees), // same kind
    ("cuMemsetD8Async", Blocked::ByFrees),
    ("cuMemsetD16Async", Blocked::ByFrees), // same kind
    ("cuMemsetD32Async", Blocked::ByFrees), // same kind
    ("cuMemsetD2D8Async", Blocked::ByFrees), // same kind
    ("cuMemsetD2D16Async", Blocked::ByFrees), // same kind
    ("cuMemsetD2D32Async", Blocked::ByFrees), // same kind
    ("cuStreamCreate", Blocked::ByCopies),
    ("cuStreamCreateWithPriority", Blocked::ByCopies), // same kind
    ("cuGreenCtxStreamCreate", Blocked::ByCopies), // same kind
    ("cuStreamDestroy_v2", Blocked::ByCopies),
    ("cuEventCreate", Blocked::ByCopies),
    ("cuEventDestroy_v2", Blocked::ByCopies),
    ("cuMemAlloc_v2", Blocked::ByCopies),
    ("cuMemAllocPitch_v2", Blocked::ByCopies), // same kind
    ("cuMemAllocManaged", Blocked::ByCopies), // same kind
    ("cuMemHostAlloc", Blocked::ByCopies),
    ("cuMemAllocHost_v2", Blocked::ByCopies), // same kind
    ("cuMemHostRegister_v2", Blocked::ByCopies), // same kind
    ("cuStreamBeginCapture_v2", Blocked::ByCopies),
    ("cuGraphInstantiateWithFlags", Blocked::ByCopies),
    ("cuMemcpyHtoD_v2", Blocked::ByCopies),
    ("cuMemcpyDtoH_v2", Blocked::ByCopies),
    ("cuMemcpyDtoD_v2", Blocked::ByCopies), // same kind
    ("cuMemcpy", Blocked::ByCopies), // same kind
    ("cuMemcpyPeer", Blocked::ByCopies), // same kind
    ("cuMemcpy2D_v2", Blocked::ByCopies), // same kind
    ("cuMemcpy3D_v2", Blocked::ByCopies), // same kind
];

/// Threads inside a call that waits and blocks others, with the name of that call and its device, if it has one.
#[derive(Debug, Default)]
pub(crate) struct Stoppers(Vec<(ThreadId, &'static str, Stop, Option<usize>)>);

impl Stop {
    fn stops(self, blocked: Blocked, stream: Option<usize>) -> bool {
        match self {
            Self::Everything => true,
            Self::Copy(on) => match stream {
                Some(stream) => blocked == Blocked::OnItsStream && stream == on,
                None => blocked == Blocked::ByCopies,
            },
        }
    }
}

impl World {
    /// Returns an error if a call of another thread blocks this one, as for a wait. `stream` is given
    /// once the call has determined it.
    pub(crate) fn stopped(&self, name: &str, stream: Option<usize>) -> Answer {
        if self.runs.stoppers.0.is_empty() {
            return Ok(());
        }
        let Some((_, blocked)) = BLOCKED.iter().find(|(its, _)| *its == name) else {
            return Ok(());
        };
        let here = thread::id();
        // On a real driver a host function does not run on the thread that waits for it.
        let in_callback = thread::in_callback();
        let device = self.device_of_call(stream);
        let mut stoppers = self.runs.stoppers.0.iter();
        let stopper = stoppers.find(|(thread, _, stop, its)| {
            let is_of_device = its.is_none() || device.is_none() || *its == device;
            (*thread != here || in_callback) && is_of_device && stop.stops(*blocked, stream)
        });
        let Some((_, stopper, ..)) = stopper else {
            return Ok(());
        };
        if in_callback && matches!(self.runs.executor.in_callbacks(), Progress::Never) {
            misuse(format!(
                "a host function calls {name}, which blocks until {stopper} of another thread \
                 returns; that call waits for the host function: a real driver hangs"
            ));
            return Err(CUresult::CUDA_ERROR_NOT_PERMITTED);
        }
        Err(Self::WAIT)
    }

    /// Records that this thread's call waits, if it is a call that blocks others. Returns whether it is.
    pub(crate) fn stop_others(&mut self, name: &'static str, waits_for: Option<u64>) -> bool {
        let Some((_, everything)) = STOPPING.iter().find(|(its, _)| *its == name) else {
            return false;
        };
        let stop = match everything {
            true => Stop::Everything,
            false => match waits_for.and_then(|id| self.runs.executor.stream_of(id)) {
                Some(stream) => Stop::Copy(stream),
                None => return false,
            },
        };
        let device = self.device_of_call(match stop {
            Stop::Everything => None,
            Stop::Copy(stream) => Some(stream),
        });
        self.runs.stoppers.0.push((thread::id(), name, stop, device));
        true
    }

    /// Returns the device of the stream that a call names, or of the current context.
    fn device_of_call(&self, stream: Option<usize>) -> Option<usize> {
        let context = match stream {
            Some(stream) => self.objects.streams.get(stream)?.context,
            None => self.current().ok()?,
        };
        self.context(context).ok().map(|context| context.device)
    }

    /// Ends the blocking that [`stop_others`](Self::stop_others) began.
    pub(crate) fn stop_no_more(&mut self) {
        let here = thread::id();
        self.runs.stoppers.0.retain(|(thread, ..)| *thread != here);
    }
}
