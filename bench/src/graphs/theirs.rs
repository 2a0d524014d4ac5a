//! The works on graphs through cudarc, which has captured graphs only.

use super::SIZES;
use crate::Fallible;
use crate::operations::PTX;
use crate::work::{Work, Works, ok};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaGraph, CudaSlice, CudaStream, LaunchConfig, PushKernelArg,
};
use std::sync::Arc;

const CONFIG: LaunchConfig =
    LaunchConfig { grid_dim: (1, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };

/// The work of a chain: launches of one kernel on one stream.
pub(crate) struct Chain {
    pub(crate) stream: Arc<CudaStream>,
    kernel: CudaFunction,
    from: CudaSlice<f32>,
    to: CudaSlice<f32>,
}

impl Chain {
    pub(crate) fn new() -> Fallible<Self> {
        let context = CudaContext::new(0)?;
        // SAFETY: all work is on one stream. A capture cannot wait for the events of earlier work.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream()?;
        let kernel = context.load_module(PTX.into())?.load_function("three")?;
        let (from, to) = (stream.alloc_zeros(1024)?, stream.alloc_zeros(1024)?);
        Ok(Self { stream, kernel, from, to })
    }

    /// Launches the kernels.
    pub(crate) fn launch(&mut self, count: usize) {
        for _ in 0..count {
            let mut launch = self.stream.launch_builder(&self.kernel);
            launch.arg(&self.from).arg(&mut self.to).arg(&8u32);
            // SAFETY: the kernel does nothing.
            ok(unsafe { launch.launch(CONFIG) });
        }
    }

    /// Returns an executable graph that has been launched.
    pub(crate) fn capture(&mut self, count: usize) -> Fallible<CudaGraph> {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.stream.begin_capture(mode)?;
        self.launch(count);
        let graph = self.stream.end_capture(CUgraphInstantiate_flags(0))?;
        let graph = graph.ok_or("cudarc captured no graph")?;
        graph.launch()?;
        Ok(graph)
    }
}

pub(crate) fn works() -> Fallible<Works> {
    let mut chain = Chain::new()?;
    let mut works = Works::new();
    for size in &SIZES {
        let graph = chain.capture(size.nodes)?;
        works.push((size.launch, Work::each(move || ok(graph.launch()))));
    }
    // The graphs do not keep the memory and the kernel alive.
    std::mem::forget(chain);
    Ok(works)
}
