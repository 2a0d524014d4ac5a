//! Recaptures: captured work changes the parameters of the nodes of an existing graph. All of this is
//! unverified (from documentation).

use super::World;
use crate::state::Answer;
use crate::state::graph::node::{Dependencies, Edge, Kind};
use crate::state::needs::Needs;
use core::ffi::c_void;
use cuda_sys::{
    CUgraphNodeParams, CUgraphRecaptureCallback, CUgraphRecaptureStatus as Status, CUresult,
};
use std::collections::{BTreeMap, VecDeque};

const FAILED: CUresult = CUresult::CUDA_ERROR_GRAPH_RECAPTURE_FAILURE;

/// The progress of a recapture.
pub(crate) struct Recapture {
    /// The nodes that are not recaptured yet, in the order in which they were added.
    pub(super) left: VecDeque<usize>,
    callback: CUgraphRecaptureCallback,
    /// The address of the data, which was exposed.
    data: usize,
}

impl World {
    /// Turns a capture into a graph that has just begun into a recapture of the graph.
    pub(crate) fn begin_recapture(
        &mut self,
        stream: usize,
        callback: CUgraphRecaptureCallback,
        data: *mut c_void,
    ) {
        let branch = self.objects.streams.get(stream).and_then(|its| its.capture.as_ref());
        let Some(capture) = branch.and_then(|branch| self.objects.captures.get_mut(branch.capture))
        else {
            return;
        };
        let nodes = self.objects.graphs.get(capture.graph).map(|its| &its.nodes);
        capture.recapture = Some(Recapture {
            left: nodes.into_iter().flatten().copied().collect(),
            callback,
            data: data.expose_provenance(),
        });
    }

    /// Recaptures the next node. A node of another type, with other edges, or with other parameters that
    /// the callback refuses, ends the recapture.
    pub(super) fn recapture_node(
        &mut self,
        id: u64,
        stream: usize,
        (kind, needs): (Kind, Needs),
        after: Dependencies,
    ) -> Answer {
        match self.change_next(id, (kind, needs), after) {
            Some(node) => {
                self.set_branch(stream, vec![(node, Edge::default())]);
                Ok(())
            }
            None => {
                self.break_capture(id);
                Err(FAILED)
            }
        }
    }

    fn change_next(
        &mut self,
        id: u64,
        (kind, needs): (Kind, Needs),
        after: Dependencies,
    ) -> Option<usize> {
        let recapture = self.objects.captures.get_mut(id)?.recapture.as_mut()?;
        let (callback, data) = (recapture.callback, recapture.data);
        let handle = recapture.left.pop_front()?;
        let node = self.objects.nodes.get(handle)?;
        let after: BTreeMap<usize, Edge> = after.into_iter().collect();
        if node.kind.number() != kind.number() || node.after != after {
            return None;
        }
        if is_same(&node.kind, &kind) {
            return Some(handle);
        }
        if kind.is_memory() {
            return None;
        }
        let status = match self.check_change(&node.kind, &kind) {
            Ok(()) => Status::CU_GRAPH_RECAPTURE_ELIGIBLE_FOR_UPDATE,
            Err(_) => Status::CU_GRAPH_RECAPTURE_INELIGIBLE_FOR_UPDATE,
        };
        // The type is the only parameter that is simulated.
        let parameters = CUgraphNodeParams { type_: kind.number(), ..CUgraphNodeParams::default() };
        let data = core::ptr::with_exposed_provenance_mut(data);
        let raw = core::ptr::with_exposed_provenance_mut(handle);
        let parameters = &raw const parameters;
        if let Some(callback) = callback {
            // SAFETY: the caller of `cuStreamBeginRecaptureToGraph` passed a function and its data, which
            // live until the capture ends. The function must not call the driver.
            let accepted = unsafe { callback(data, raw, parameters, parameters, status) };
            if !accepted.is_success() {
                return None;
            }
        }
        let node = self.objects.nodes.get_mut(handle)?;
        node.kind = kind;
        node.needs = needs;
        Some(handle)
    }
}

/// Returns whether two nodes of one type have the same parameters.
fn is_same(old: &Kind, new: &Kind) -> bool {
    match (old, new) {
        (Kind::Kernel(old), Kind::Kernel(new)) => {
            let (old, new) = (&old.call, &new.call);
            old.kernel.function == new.kernel.function
                && (old.grid, old.block, old.shared) == (new.grid, new.block, new.shared)
                && (old.cluster, old.cooperative) == (new.cluster, new.cooperative)
                && old.arguments == new.arguments
                && old.attributes == new.attributes
                && old.partition == new.partition
        }
        (Kind::Copy(old), Kind::Copy(new)) => {
            let mut old = old.clone();
            (old.context, old.is_pinned) = (new.context, new.is_pinned);
            old == *new
        }
        (Kind::Fill(old), Kind::Fill(new)) => {
            let mut old = old.clone();
            old.context = new.context;
            old == *new
        }
        (Kind::Host(old), Kind::Host(new)) => {
            let address =
                |function: Option<_>| function.map(|its: unsafe extern "C" fn(_)| its as usize);
            old.data == new.data && address(old.function) == address(new.function)
        }
        (Kind::Child(_), Kind::Child(_)) => false,
        (Kind::Wait(old), Kind::Wait(new)) | (Kind::Record(old), Kind::Record(new)) => old == new,
        (Kind::Allocate(old), Kind::Allocate(new)) => old.address == new.address,
        (Kind::Free(old), Kind::Free(new)) => old == new,
        (Kind::Operations(old), Kind::Operations(new)) => old.described == new.described,
        (Kind::Signal(old), Kind::Signal(new)) | (Kind::Await(old), Kind::Await(new)) => {
            old.list == new.list
        }
        _ => true,
    }
}
