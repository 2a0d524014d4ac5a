//! Nodes that signal external semaphores, or wait for them.
//!
//! The calls that change a node are made with the context current: see `memory_operations.rs`.

use crate::call::{Result, call};
use crate::context::Context;
use crate::graph::nodes::specification;
use crate::graph::{ExecutableNodes, Graph, Node, NodeId, kind};
use cuda_sys::{
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS, CUDA_EXT_SEM_WAIT_NODE_PARAMS,
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    CUexternalSemaphore,
};

/// A signal of an external semaphore: the handle, and the parameters in the driver's format.
pub type SemaphoreSignal = (CUexternalSemaphore, CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS);

/// A wait for an external semaphore: the handle, and the parameters in the driver's format.
pub type SemaphoreWait = (CUexternalSemaphore, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS);

impl Graph {
    /// Adds signals of external semaphores, which other APIs or processes wait for. Calls
    /// `cuGraphAddExternalSemaphoresSignalNode`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` or `CUDA_ERROR_NOT_SUPPORTED` for parameters that the semaphore does
    /// not support; see also [`add_empty`](Self::add_empty).
    ///
    /// # Safety
    /// - Each handle is a live semaphore, which was imported (`cuImportExternalSemaphore`) for the device
    ///   of the graph. It is destroyed only when this graph, all graphs that contain a copy of the node,
    ///   and their executable graphs have been dropped, and their launches are complete.
    /// - The parameters are those of the type of the semaphore.
    /// - The memory that the other side accesses after the signal may be accessed then.
    ///
    /// Since CUDA 11.2. Raw:
    /// [`cuGraphAddExternalSemaphoresSignalNode`](fn@cuda_sys::cuGraphAddExternalSemaphoresSignalNode).
    #[doc(alias = "cuGraphAddExternalSemaphoresSignalNode")]
    #[inline]
    pub unsafe fn add_semaphore_signals(
        &mut self,
        dependencies: &[NodeId],
        signals: &[SemaphoreSignal],
    ) -> Result<Node<kind::SemaphoreSignal>> {
        let signals = Signals::new(self.context(), signals);
        self.add_without_memory(dependencies, &signals)
    }

    /// Adds waits for external semaphores, which other APIs or processes signal. Calls
    /// `cuGraphAddExternalSemaphoresWaitNode`.
    ///
    /// # Errors
    /// See [`add_semaphore_signals`](Self::add_semaphore_signals).
    ///
    /// # Safety
    /// See [`add_semaphore_signals`](Self::add_semaphore_signals). A launch blocks its stream until the
    /// semaphores are signaled.
    ///
    /// Since CUDA 11.2. Raw:
    /// [`cuGraphAddExternalSemaphoresWaitNode`](fn@cuda_sys::cuGraphAddExternalSemaphoresWaitNode).
    #[doc(alias = "cuGraphAddExternalSemaphoresWaitNode")]
    #[inline]
    pub unsafe fn add_semaphore_waits(
        &mut self,
        dependencies: &[NodeId],
        waits: &[SemaphoreWait],
    ) -> Result<Node<kind::SemaphoreWait>> {
        let waits = Waits::new(self.context(), waits);
        self.add_without_memory(dependencies, &waits)
    }

    /// Returns the signals of a node. Calls `cuGraphExternalSemaphoresSignalNodeGetParams`.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`](crate::Invalid::OtherGraphNode);
    /// [`Invalid::NoSuchNode`](crate::Invalid::NoSuchNode).
    ///
    /// Since CUDA 11.2. Raw:
    /// [`cuGraphExternalSemaphoresSignalNodeGetParams`](fn@cuda_sys::cuGraphExternalSemaphoresSignalNodeGetParams).
    #[doc(alias = "cuGraphExternalSemaphoresSignalNodeGetParams")]
    #[inline]
    pub fn semaphore_signals(
        &self,
        node: Node<kind::SemaphoreSignal>,
    ) -> Result<Vec<SemaphoreSignal>> {
        let its: CUDA_EXT_SEM_SIGNAL_NODE_PARAMS = self.query(node, |node, place| {
            // SAFETY: the node exists and signals semaphores, and the pointer is valid.
            unsafe { call!(cuGraphExternalSemaphoresSignalNodeGetParams(node, place)) }
        })?;
        // SAFETY: the driver has returned arrays of this length, which are valid until the node changes.
        Ok(unsafe { pairs(its.extSemArray, its.paramsArray, its.numExtSems) })
    }

    /// Returns the waits of a node. Calls `cuGraphExternalSemaphoresWaitNodeGetParams`.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`](crate::Invalid::OtherGraphNode);
    /// [`Invalid::NoSuchNode`](crate::Invalid::NoSuchNode).
    ///
    /// Since CUDA 11.2. Raw:
    /// [`cuGraphExternalSemaphoresWaitNodeGetParams`](fn@cuda_sys::cuGraphExternalSemaphoresWaitNodeGetParams).
    #[doc(alias = "cuGraphExternalSemaphoresWaitNodeGetParams")]
    #[inline]
    pub fn semaphore_waits(&self, node: Node<kind::SemaphoreWait>) -> Result<Vec<SemaphoreWait>> {
        let its: CUDA_EXT_SEM_WAIT_NODE_PARAMS = self.query(node, |node, place| {
            // SAFETY: the node exists and waits for semaphores, and the pointer is valid.
            unsafe { call!(cuGraphExternalSemaphoresWaitNodeGetParams(node, place)) }
        })?;
        // SAFETY: the driver has returned arrays of this length, which are valid until the node changes.
        Ok(unsafe { pairs(its.extSemArray, its.paramsArray, its.numExtSems) })
    }

    /// Changes the signals of a node. Calls `cuGraphExternalSemaphoresSignalNodeSetParams`.
    ///
    /// Executable graphs are not affected.
    ///
    /// # Errors
    /// See [`add_semaphore_signals`](Self::add_semaphore_signals).
    ///
    /// # Safety
    /// See [`add_semaphore_signals`](Self::add_semaphore_signals). The semaphores from before must stay
    /// alive for the executable graphs that exist.
    ///
    /// Since CUDA 11.2. Raw:
    /// [`cuGraphExternalSemaphoresSignalNodeSetParams`](fn@cuda_sys::cuGraphExternalSemaphoresSignalNodeSetParams).
    #[doc(alias = "cuGraphExternalSemaphoresSignalNodeSetParams")]
    #[inline]
    pub unsafe fn set_semaphore_signals(
        &mut self,
        node: Node<kind::SemaphoreSignal>,
        signals: &[SemaphoreSignal],
    ) -> Result<()> {
        let signals = Signals::new(self.context(), signals);
        self.set_without_memory(node, &signals)
    }

    /// Changes the waits of a node. Calls `cuGraphExternalSemaphoresWaitNodeSetParams`.
    ///
    /// Executable graphs are not affected.
    ///
    /// # Errors
    /// See [`add_semaphore_signals`](Self::add_semaphore_signals).
    ///
    /// # Safety
    /// See [`set_semaphore_signals`](Self::set_semaphore_signals) and
    /// [`add_semaphore_waits`](Self::add_semaphore_waits).
    ///
    /// Since CUDA 11.2. Raw:
    /// [`cuGraphExternalSemaphoresWaitNodeSetParams`](fn@cuda_sys::cuGraphExternalSemaphoresWaitNodeSetParams).
    #[doc(alias = "cuGraphExternalSemaphoresWaitNodeSetParams")]
    #[inline]
    pub unsafe fn set_semaphore_waits(
        &mut self,
        node: Node<kind::SemaphoreWait>,
        waits: &[SemaphoreWait],
    ) -> Result<()> {
        let waits = Waits::new(self.context(), waits);
        self.set_without_memory(node, &waits)
    }
}

impl ExecutableNodes<'_> {
    /// Changes the signals of a node. Calls `cuGraphExecExternalSemaphoresSignalNodeSetParams`.
    ///
    /// The number of signals cannot change.
    ///
    /// # Errors
    /// See [`Graph::add_semaphore_signals`].
    ///
    /// # Safety
    /// See [`Graph::add_semaphore_signals`]. The semaphores from before must stay alive until the launches
    /// so far are complete.
    ///
    /// Since CUDA 11.2. Raw:
    /// [`cuGraphExecExternalSemaphoresSignalNodeSetParams`](fn@cuda_sys::cuGraphExecExternalSemaphoresSignalNodeSetParams).
    #[doc(alias = "cuGraphExecExternalSemaphoresSignalNodeSetParams")]
    #[inline]
    pub unsafe fn set_semaphore_signals(
        &mut self,
        node: Node<kind::SemaphoreSignal>,
        signals: &[SemaphoreSignal],
    ) -> Result<()> {
        let signals = Signals::new(self.graph.context(), signals);
        self.set_without_memory(node, &signals)
    }

    /// Changes the waits of a node. Calls `cuGraphExecExternalSemaphoresWaitNodeSetParams`.
    ///
    /// The number of waits cannot change.
    ///
    /// # Errors
    /// See [`Graph::add_semaphore_signals`].
    ///
    /// # Safety
    /// See [`set_semaphore_signals`](Self::set_semaphore_signals) and [`Graph::add_semaphore_waits`].
    ///
    /// Since CUDA 11.2. Raw:
    /// [`cuGraphExecExternalSemaphoresWaitNodeSetParams`](fn@cuda_sys::cuGraphExecExternalSemaphoresWaitNodeSetParams).
    #[doc(alias = "cuGraphExecExternalSemaphoresWaitNodeSetParams")]
    #[inline]
    pub unsafe fn set_semaphore_waits(
        &mut self,
        node: Node<kind::SemaphoreWait>,
        waits: &[SemaphoreWait],
    ) -> Result<()> {
        let waits = Waits::new(self.graph.context(), waits);
        self.set_without_memory(node, &waits)
    }
}

/// Semaphores and their parameters, as the driver takes them: `P` are the parameters of the node, which point
/// to the arrays.
struct List<P, S> {
    context: Context,
    parameters: P,
    #[allow(dead_code, reason = "held, not read")]
    arrays: (Vec<CUexternalSemaphore>, Vec<S>),
}

type Signals = List<CUDA_EXT_SEM_SIGNAL_NODE_PARAMS, CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS>;
type Waits = List<CUDA_EXT_SEM_WAIT_NODE_PARAMS, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS>;

// SAFETY: the driver copies the parameters. The callers of the unsafe functions that create such nodes promise that
// the semaphores are alive in each launch. The context is alive.
specification!(Signals: kind::SemaphoreSignal, in context, |its| {
    cuGraphAddExternalSemaphoresSignalNode(&raw const its.parameters),
    cuGraphExternalSemaphoresSignalNodeSetParams(&raw const its.parameters),
    cuGraphExecExternalSemaphoresSignalNodeSetParams(&raw const its.parameters),
});

// SAFETY: as above.
specification!(Waits: kind::SemaphoreWait, in context, |its| {
    cuGraphAddExternalSemaphoresWaitNode(&raw const its.parameters),
    cuGraphExternalSemaphoresWaitNodeSetParams(&raw const its.parameters),
    cuGraphExecExternalSemaphoresWaitNodeSetParams(&raw const its.parameters),
});

impl<P, S: Copy> List<P, S> {
    fn with(
        context: &Context,
        pairs: &[(CUexternalSemaphore, S)],
        parameters: impl FnOnce(u32, *mut CUexternalSemaphore, *const S) -> P,
    ) -> Self {
        let (mut semaphores, all): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
        // More than the driver can count are more than can exist.
        let count = u32::try_from(semaphores.len()).unwrap_or(u32::MAX);
        let parameters = parameters(count, semaphores.as_mut_ptr(), all.as_ptr());
        Self { context: context.clone(), parameters, arrays: (semaphores, all) }
    }
}

impl Signals {
    #[inline]
    fn new(context: &Context, signals: &[SemaphoreSignal]) -> Self {
        Self::with(context, signals, |count, semaphores, signals| CUDA_EXT_SEM_SIGNAL_NODE_PARAMS {
            numExtSems: count,
            extSemArray: semaphores,
            paramsArray: signals,
        })
    }
}

impl Waits {
    #[inline]
    fn new(context: &Context, waits: &[SemaphoreWait]) -> Self {
        Self::with(context, waits, |count, semaphores, waits| CUDA_EXT_SEM_WAIT_NODE_PARAMS {
            numExtSems: count,
            extSemArray: semaphores,
            paramsArray: waits,
        })
    }
}

/// Returns the semaphores with their parameters.
///
/// # Safety
/// Both arrays have `count` elements.
unsafe fn pairs<P: Copy>(
    semaphores: *mut CUexternalSemaphore,
    parameters: *const P,
    count: u32,
) -> Vec<(CUexternalSemaphore, P)> {
    if count == 0 {
        return Vec::new();
    }
    // SAFETY: the caller guarantees the length.
    let semaphores = unsafe { std::slice::from_raw_parts(semaphores.cast_const(), count as usize) };
    // SAFETY: the caller guarantees the length.
    let parameters = unsafe { std::slice::from_raw_parts(parameters, count as usize) };
    let pairs = semaphores.iter().zip(parameters);
    pairs.map(|(semaphore, its)| (*semaphore, *its)).collect()
}
