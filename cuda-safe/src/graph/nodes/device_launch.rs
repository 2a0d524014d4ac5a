//! Executable graphs that kernels launch.

use crate::call::{Invalid, Rejected, Result, refuse_if};
use crate::capture_state::{Operation, retain};
use crate::context::Context;
use crate::event::Event;
use crate::graph::{ExecutableGraph, NodeArgument, NodeUses};
use crate::launch::{Param, sealed};
use crate::release;
use crate::stream::Stream;
use cuda_sys::CUgraphExec;
use std::sync::Arc;

/// An executable graph that kernels launch (device-side graph launch). It was instantiated with
/// [`device_launch`](crate::graph::InstantiateOptions::device_launch), and is uploaded to the device.
///
/// A kernel node takes it by reference, for a parameter of the type `DeviceGraph`, which is a
/// `cudaGraphExec_t` in CUDA C++. The kernel calls
/// `cudaGraphLaunch(graph, cudaStreamGraphFireAndForget)`, which needs the device runtime
/// (`nvcc -rdc=true`, `libcudadevrt`). The launch of the kernel's graph is complete when the launches that
/// it made are.
///
/// The node retains the graph, so it is destroyed after the launches of the kernel's graph. The host cannot
/// launch or change the graph meanwhile: the driver does not support launches from both sides at the same
/// time. [`into_executable`](Self::into_executable) returns the executable graph.
///
/// # Safety of the kernel
/// These conditions belong to the promise of [`Graph::add_kernel`](crate::graph::Graph::add_kernel):
/// - The kernel launches only graphs that it gets as arguments, in each launch, and its own graph.
/// - No two launches of one device graph are pending at the same time, from one or several kernels.
/// - The work of the device graph does not race with that of the kernel's graph. Edges after the kernel do
///   not order the launch.
///
/// ```no_run
/// use cuda_safe::graph::{DeviceGraph, InstantiateOptions};
/// use cuda_safe::{Context, Device, DeviceBuffer, Graph, LaunchConfig, Module};
///
/// # let image: &[u8] = &[];
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// let mut work = Graph::new(&context)?;
/// let mut data = work.own(DeviceBuffer::<u8>::zeroed(&stream, 1000)?)?;
/// work.add_fill(&[], &mut data, 7)?;
/// let options = InstantiateOptions { device_launch: true, ..Default::default() };
/// let work = DeviceGraph::new(work.instantiate_with(&options)?, &stream)?;
///
/// # if image.is_empty() { return stream.synchronize() }
/// // SAFETY: a cubin that nvcc linked with the device runtime.
/// let module = unsafe { Module::from_image(&context, image) }?;
/// let launch = module.kernel("launch")?.typed::<(DeviceGraph,)>()?;
/// let mut graph = Graph::new(&context)?;
/// // SAFETY: the kernel launches the graph once.
/// unsafe { graph.add_kernel(&[], &context, &launch, LaunchConfig::linear(1, 1), (&work,)) }?;
/// graph.instantiate()?.launch(&stream)?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DeviceGraph {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    executable: ExecutableGraph,
    /// Recorded after the upload, and after all earlier work on the memory of the graph.
    uploaded: Event,
}

impl DeviceGraph {
    /// Uploads an executable graph to the device in stream order, for kernels that launch it. Calls
    /// `cuGraphUpload`.
    ///
    /// The launches of graphs whose kernels take it wait on the GPU for the upload, for the earlier
    /// launches of `executable`, and for accesses to its memory.
    ///
    /// # Errors
    /// - [`Invalid::NotDeviceLaunch`] if `executable` was instantiated without
    ///   [`device_launch`](crate::graph::InstantiateOptions::device_launch), or by other code.
    /// - [`Invalid::GraphBorrows`] for a captured graph, which does not own the memory that it uses.
    /// - The errors of [`ExecutableGraph::upload`].
    ///
    /// Since CUDA 12.0. Raw: [`cuGraphUpload`](fn@cuda_sys::cuGraphUpload).
    #[doc(alias = "cuGraphUpload")]
    #[inline]
    pub fn new(executable: ExecutableGraph, stream: &Stream) -> Result<Self> {
        Ok(Self::try_new(executable, stream)?)
    }

    /// Does the same as [`new`](Self::new), but returns the executable graph with the error.
    ///
    /// # Errors
    /// See [`new`](Self::new).
    #[allow(clippy::result_large_err, reason = "the error contains the executable graph")]
    #[inline]
    pub fn try_new(
        executable: ExecutableGraph,
        stream: &Stream,
    ) -> Result<Self, Rejected<ExecutableGraph>> {
        match upload(&executable, stream) {
            Ok(uploaded) => Ok(Self { shared: Arc::new(Shared { executable, uploaded }) }),
            Err(error) => Err(Rejected::new(error, executable)),
        }
    }

    /// Returns the executable graph if no graph uses it any more: the graphs whose kernels take it and
    /// their executable graphs were dropped, and the launches are complete.
    ///
    /// # Errors
    /// Returns this handle if a graph or a launch may still use it. Synchronize the streams of the
    /// launches first.
    #[inline]
    pub fn into_executable(self) -> Result<ExecutableGraph, Self> {
        release::drain();
        match Arc::try_unwrap(self.shared) {
            Ok(shared) => Ok(shared.executable),
            Err(shared) => Err(Self { shared }),
        }
    }

    /// Returns the context of the graph.
    #[inline]
    pub fn context(&self) -> &Context {
        self.shared.executable.context()
    }

    /// Returns the raw handle, for kernels that find it in memory. Do not destroy it.
    #[inline]
    pub fn as_raw(&self) -> CUgraphExec {
        self.shared.executable.as_raw()
    }
}

/// Uploads an executable graph. Returns an event after the upload.
#[inline]
fn upload(executable: &ExecutableGraph, stream: &Stream) -> Result<Event> {
    refuse_if!(!executable.is_device_launch, Invalid::NotDeviceLaunch);
    refuse_if!(!executable.is_owned(), Invalid::GraphBorrows);
    let uploaded = stream.context().event()?;
    executable.upload(stream)?;
    let _call = stream.uncaptured(Operation::Launch)?;
    executable.launches.precede(stream)?;
    uploaded.record_uncaptured(stream)?;
    Ok(uploaded)
}

impl sealed::Sealed for DeviceGraph {}
impl Param for DeviceGraph {
    type Bytes = u64;
}

impl NodeArgument<DeviceGraph> for &DeviceGraph {
    #[inline]
    fn bytes(self, _: usize, uses: &mut NodeUses<'_>) -> Result<u64> {
        let shared = Arc::<Shared>::clone(&self.shared);
        let Shared { executable, uploaded } = &*self.shared;
        uses.retain("the device graph", shared, executable.context(), uploaded)?;
        // A device address has 64 bits.
        Ok(executable.raw().addr() as u64)
    }
}

retain! {
    Shared |its, other| {
        is_same: its.executable.raw() == other.executable.raw(),
        is_borrowed: its.executable.depends_on_borrowed(),
    }
}
