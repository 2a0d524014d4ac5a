//! The nodes that the next work of a capture comes after.

use super::{Capture, Destination, OnFailure};
use crate::call::{DriverError, Error, Result, call, newest_or, without_current};
use crate::graph::{Before, CaptureDependency, EdgeKind, Graph, Node, kind};
use crate::stream::Stream;
use cuda_sys::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUresult, CUstreamCaptureStatus as Status,
    CUstreamUpdateCaptureDependencies_flags as Update,
};

/// The driver's answer about a capture.
struct Info {
    graph: CUgraph,
    nodes: *const CUgraphNode,
    /// Null if no edge has data.
    edges: *const CUgraphEdgeData,
    count: usize,
}

impl Capture {
    /// Returns the nodes that the next work in the stream comes after. Calls
    /// `cuStreamGetCaptureInfo`.
    ///
    /// The handles of the nodes stay valid in the graph that [`end`](Self::end) returns.
    ///
    /// # Errors
    /// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`; errors of the driver.
    ///
    /// # Safety
    /// During the call, no other thread may enqueue work in a stream of the capture: the driver returns
    /// its own list of the nodes, which such work changes.
    ///
    /// Since CUDA 11.3 (from 12.3 on through `cuStreamGetCaptureInfo_v3`). Raw:
    /// [`cuStreamGetCaptureInfo_v3`](fn@cuda_sys::cuStreamGetCaptureInfo_v3).
    #[doc(alias = "cuStreamGetCaptureInfo")]
    #[inline]
    pub unsafe fn dependencies(&mut self) -> Result<Vec<CaptureDependency>> {
        let info = self.info()?;
        let (nodes, count) = (info.nodes, info.count);
        let nodes = match count {
            0 => &[],
            // SAFETY: the driver's array has `count` nodes, and no other thread changes it before the
            // slice is read, as the caller promises.
            _ => unsafe { std::slice::from_raw_parts(nodes, count) },
        };
        let full = vec![CUgraphEdgeData::default(); count];
        let edges = match info.edges.is_null() {
            true => full.as_slice(),
            // SAFETY: see the array of nodes.
            false => unsafe { std::slice::from_raw_parts(info.edges, count) },
        };
        let found: Vec<_> = nodes.iter().copied().zip(edges.iter().copied()).collect();
        self.graph(info.graph).known_dependencies(&found)
    }

    /// Replaces the nodes that the next work in the stream comes after. Calls
    /// `cuStreamUpdateCaptureDependencies`.
    ///
    /// The work is not ordered after earlier captured work that these nodes do not come after. The order
    /// of the calls is then not the order of the work, and the caller of
    /// [`launch_unchecked`](crate::ExecutableGraph::launch_unchecked) must take this into account.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`](crate::Invalid::OtherGraphNode) and
    /// [`Invalid::NoSuchNode`](crate::Invalid::NoSuchNode) for nodes that do not belong to this capture;
    /// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`; [`Error::Missing`] for edges that are not
    /// [full](EdgeKind::Full) before CUDA 12.3.
    ///
    /// Since CUDA 11.3 (from 12.3 on through `cuStreamUpdateCaptureDependencies_v2`). Raw:
    /// [`cuStreamUpdateCaptureDependencies_v2`](fn@cuda_sys::cuStreamUpdateCaptureDependencies_v2).
    #[doc(alias = "cuStreamUpdateCaptureDependencies")]
    #[inline]
    pub fn set_dependencies(&mut self, dependencies: &[CaptureDependency]) -> Result<()> {
        self.update(dependencies, Update::CU_STREAM_SET_CAPTURE_DEPENDENCIES)
    }

    /// Adds nodes that the next work in the stream comes after. Calls
    /// `cuStreamUpdateCaptureDependencies`.
    ///
    /// # Errors
    /// See [`set_dependencies`](Self::set_dependencies).
    ///
    /// Since CUDA 11.3 (from 12.3 on through `cuStreamUpdateCaptureDependencies_v2`). Raw:
    /// [`cuStreamUpdateCaptureDependencies_v2`](fn@cuda_sys::cuStreamUpdateCaptureDependencies_v2).
    #[doc(alias = "cuStreamUpdateCaptureDependencies")]
    #[inline]
    pub fn add_dependencies(&mut self, dependencies: &[CaptureDependency]) -> Result<()> {
        self.update(dependencies, Update::CU_STREAM_ADD_CAPTURE_DEPENDENCIES)
    }

    /// Adds a copy of a graph as the next work in the stream, in place of a launch, which cannot be
    /// captured. Calls [`Graph::add_child`] and [`set_dependencies`](Self::set_dependencies).
    ///
    /// A [`GraphRecorder`](crate::graph::GraphRecorder) adds child graphs without `unsafe`.
    ///
    /// # Errors
    /// See [`Graph::add_child`] and [`dependencies`](Self::dependencies).
    ///
    /// # Safety
    /// During the call, no other thread may enqueue work in a stream of the capture, because the driver
    /// does not lock the graph.
    #[inline]
    pub unsafe fn add_child(&mut self, child: &mut Graph) -> Result<Node<kind::Child>> {
        // SAFETY: the caller's promise.
        let dependencies = unsafe { self.dependencies() }?;
        let before: Vec<_> = dependencies.into_iter().map(|(node, _)| node).collect();
        let raw = self.info()?.graph;
        let node = self.graph(raw).add_child(&before, child)?;
        self.set_dependencies(&[(node.id(), EdgeKind::Full)])?;
        Ok(node)
    }

    /// Returns the graph of the capture, whose handle is `raw`.
    #[inline]
    fn graph(&mut self, raw: CUgraph) -> &mut Graph {
        let stream = &self.stream;
        let destination = self.destination.get_or_insert_with(|| Destination {
            graph: Graph::captured(raw, stream.context(), stream.retained().into()),
            around: None,
            before: Before::default(),
            on_failure: OnFailure::Destroyed,
            changes: None,
        });
        &mut destination.graph
    }

    #[inline]
    fn update(&mut self, dependencies: &[CaptureDependency], flags: Update) -> Result<()> {
        let raw = self.info()?.graph;
        let (mut nodes, edges) = self.graph(raw).raw_dependencies(dependencies)?;
        let is_full = dependencies.iter().all(|(_, kind)| *kind == EdgeKind::Full);
        let (stream, count) = (self.stream.raw(), nodes.len());
        without_current(self.stream.context(), || {
            let (nodes, edges) = (nodes.as_mut_ptr(), edges.as_ptr());
            // SAFETY: the stream is alive, and the arrays have `count` elements. The nodes belong to the
            // graph of the capture, from which none is removed before the capture ends.
            let newest = unsafe {
                call!(cuStreamUpdateCaptureDependencies_v2(stream, nodes, edges, count, flags.0))
            };
            match is_full {
                false => newest,
                true => newest_or(newest, || {
                    // SAFETY: as above.
                    unsafe {
                        call!(abi::cuStreamUpdateCaptureDependencies(stream, nodes, count, flags.0))
                    }
                }),
            }
        })
    }

    /// Asks the driver about the capture.
    ///
    /// # Errors
    /// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`; `CUDA_ERROR_ILLEGAL_STATE` if other code has ended the
    /// capture; errors of the driver.
    #[inline]
    fn info(&self) -> Result<Info> {
        let mut status = Status::CU_STREAM_CAPTURE_STATUS_NONE;
        let mut info = Info {
            graph: std::ptr::null_mut(),
            nodes: std::ptr::null(),
            edges: std::ptr::null(),
            count: 0,
        };
        without_current(self.stream.context(), || ask(&self.stream, &mut status, &mut info))?;
        let code = match status {
            Status::CU_STREAM_CAPTURE_STATUS_ACTIVE => return Ok(info),
            Status::CU_STREAM_CAPTURE_STATUS_NONE => CUresult::CUDA_ERROR_ILLEGAL_STATE,
            _ => CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        };
        Err(Error::Driver(DriverError::new(code, "cuStreamGetCaptureInfo_v3")))
    }
}

#[inline]
fn ask(stream: &Stream, status: &mut Status, info: &mut Info) -> Result<()> {
    let (raw, status, id) = (stream.raw(), &raw mut *status, std::ptr::null_mut());
    let (graph, nodes) = (&raw mut info.graph, &raw mut info.nodes);
    let (edges, count) = (&raw mut info.edges, &raw mut info.count);
    newest_or(
        // SAFETY: the stream is alive, and the pointers are null or refer to local variables of the
        // caller.
        unsafe { call!(cuStreamGetCaptureInfo_v3(raw, status, id, graph, nodes, edges, count)) },
        // SAFETY: as above.
        || unsafe { call!(abi::cuStreamGetCaptureInfo_v2(raw, status, id, graph, nodes, count)) },
    )
}
