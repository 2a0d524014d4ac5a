//! Updates of executable graphs: of one node, or of all nodes from another graph.

use super::executable::Executable;
use super::node::Kind;
use crate::state::INVALID;
use crate::state::needs::Needs;
use crate::state::{Answer, World};
use cuda_sys::{CUgraphExecUpdateResult as Outcome, CUresult};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{Hash, Hasher};

/// Why an executable graph was not updated: the node of the other graph, and the node at the start of
/// the edge that differs. Zero for none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mismatch {
    pub(crate) outcome: Outcome,
    pub(crate) node: usize,
    pub(crate) from: usize,
}

/// The nodes of a graph in the order of their edges, with what an update compares.
struct Topology {
    nodes: Vec<usize>,
    after: BTreeMap<usize, BTreeSet<usize>>,
    kinds: BTreeMap<usize, u32>,
}

impl Topology {
    /// Returns a hash of each node and everything that depends on it, with or without the types.
    fn hashes(&self, with_types: bool) -> BTreeMap<usize, u64> {
        let mut below: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        let mut hashes = BTreeMap::new();
        for node in self.nodes.iter().rev() {
            let mut dependents = below.remove(node).unwrap_or_default();
            dependents.sort_unstable();
            let mut hasher = DefaultHasher::new();
            dependents.hash(&mut hasher);
            if with_types {
                self.kinds.get(node).hash(&mut hasher);
            }
            let hash = hasher.finish();
            hashes.insert(*node, hash);
            for before in self.after.get(node).into_iter().flatten() {
                below.entry(*before).or_default().push(hash);
            }
        }
        hashes
    }
}

/// The nodes of the old graph with the same dependencies, in their order.
#[derive(Default)]
struct Candidates {
    /// Without those that were taken.
    open: BTreeSet<usize>,
    /// The places of nodes with a hash, with and without types. Some may have been taken.
    like: [HashMap<Option<u64>, VecDeque<usize>>; 2],
    nodes: Vec<usize>,
}

impl Candidates {
    fn add(&mut self, node: usize, hashes: [Option<u64>; 2]) {
        let place = self.nodes.len();
        self.nodes.push(node);
        self.open.insert(place);
        for (like, hash) in self.like.iter_mut().zip(hashes) {
            like.entry(hash).or_default().push_back(place);
        }
    }

    /// Takes the first node with the same types and dependents, or else with the same dependents, or else
    /// any.
    fn take(&mut self, hashes: [Option<u64>; 2]) -> Option<usize> {
        let mut found = None;
        for (like, hash) in self.like.iter_mut().zip(hashes) {
            let Some(places) = like.get_mut(&hash) else {
                continue;
            };
            while let Some(place) = places.pop_front() {
                if self.open.contains(&place) {
                    found = Some(place);
                    break;
                }
            }
            if found.is_some() {
                break;
            }
        }
        let place = found.or_else(|| self.open.first().copied())?;
        self.open.remove(&place);
        self.nodes.get(place).copied()
    }
}

/// Pairs the nodes of two graphs, which need not have been added in the same order: nodes with the same
/// dependencies, if possible with the same types and dependents.
fn pair(old: &Topology, new: &Topology) -> Result<Vec<(usize, usize)>, Mismatch> {
    let changed = |node, from| Mismatch {
        outcome: Outcome::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED,
        node,
        from,
    };
    if old.nodes.len() != new.nodes.len() {
        return Err(changed(0, 0));
    }
    let hashes = [true, false].map(|types| (old.hashes(types), new.hashes(types)));
    let mut candidates: BTreeMap<&BTreeSet<usize>, Candidates> = BTreeMap::new();
    for node in &old.nodes {
        if let Some(after) = old.after.get(node) {
            let own = [0, 1].map(|index: usize| hashes[index].0.get(node).copied());
            candidates.entry(after).or_default().add(*node, own);
        }
    }
    let mut paired: BTreeMap<usize, usize> = BTreeMap::new();
    for node in &new.nodes {
        let after = new.after.get(node).into_iter().flatten();
        let after: BTreeSet<usize> = after.filter_map(|its| paired.get(its)).copied().collect();
        let first = new.after.get(node).and_then(|after| after.first());
        let mismatch = changed(*node, first.copied().unwrap_or(0));
        let open = candidates.get_mut(&after).ok_or(mismatch)?;
        let own = [0, 1].map(|index: usize| hashes[index].1.get(node).copied());
        let chosen = open.take(own).ok_or(mismatch)?;
        paired.insert(*node, chosen);
    }
    Ok(paired.into_iter().map(|(new, old)| (old, new)).collect())
}

impl World {
    /// Returns whether an executable graph may change a node. The error is the code for a change of one
    /// node and the outcome of an update.
    pub(crate) fn check_change(&self, old: &Kind, new: &Kind) -> Result<(), Outcome> {
        let changed = Err(Outcome::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
        match (old, new) {
            (Kind::Kernel(old), Kind::Kernel(new)) => {
                if self.view_of(old) != self.view_of(new) {
                    return Err(Outcome::CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE);
                }
                if old.call.cooperative != new.call.cooperative {
                    return Err(Outcome::CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED);
                }
            }
            (Kind::Copy(old), Kind::Copy(new)) => {
                let class = |its: &super::copy::Side| its.class(&self.objects.memory);
                let is_line = old.dimensions() == 1 && new.dimensions() == 1;
                let same_classes =
                    class(&old.from) == class(&new.from) && class(&old.to) == class(&new.to);
                if old != new && !(is_line && same_classes) {
                    return changed;
                }
            }
            (Kind::Fill(old), Kind::Fill(new))
                if old != new && (old.is_plane() || new.is_plane()) =>
            {
                return changed;
            }
            // Unverified (from documentation): the types of the operations cannot change.
            (Kind::Operations(old), Kind::Operations(new)) => {
                let types = |its: &super::node::OperationsNode| {
                    let types = its.described.iter().map(|words| words[0]);
                    types.collect::<Vec<_>>()
                };
                if types(old) != types(new) {
                    return changed;
                }
            }
            // Unverified (from documentation): the number of semaphores cannot change.
            (Kind::Signal(old), Kind::Signal(new)) | (Kind::Await(old), Kind::Await(new))
                if old.list.len() != new.list.len() =>
            {
                return changed;
            }
            // Measured. A node of a graph that is not executable accepts an event of another device.
            (Kind::Record(old), Kind::Record(new)) | (Kind::Wait(old), Kind::Wait(new))
                if self.device_of_event(*old) != self.device_of_event(*new) =>
            {
                return changed;
            }
            (Kind::Conditional(old), Kind::Conditional(new))
                if old.form != new.form || old.bodies.len() != new.bodies.len() =>
            {
                return changed;
            }
            _ => {}
        }
        Ok(())
    }

    fn device_of_event(&self, event: usize) -> Option<usize> {
        let context = self.event(event).ok()?.context;
        self.context(context).ok().map(|its| its.device)
    }

    fn topology(&self, graph: usize) -> Result<Topology, Mismatch> {
        let nodes = self.ordered_nodes(graph).map_err(|node| Mismatch {
            outcome: Outcome::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED,
            node,
            from: 0,
        })?;
        let known = nodes.iter().filter_map(|node| Some((*node, self.objects.nodes.get(*node)?)));
        let known: Vec<_> = known.collect();
        let after = known.iter().map(|(node, its)| (*node, its.after.keys().copied().collect()));
        let kinds = known.iter().map(|(node, its)| (*node, its.kind.number().0));
        Ok(Topology { after: after.collect(), kinds: kinds.collect(), nodes })
    }

    /// Pairs the nodes of an executable graph with those of another graph, and checks each pair. `place`
    /// is the graph whose nodes are compared: the root of the executable graph, or an embedded graph.
    pub(crate) fn pair_nodes(
        &self,
        executable: &Executable,
        place: usize,
        graph: usize,
        pairs: &mut Vec<(usize, usize)>,
    ) -> Result<(), Mismatch> {
        let nodes = executable.orders.get(&place).cloned().unwrap_or_default();
        let known = nodes.iter().filter_map(|node| Some((*node, executable.nodes.get(node)?)));
        let known: Vec<_> = known.collect();
        let after = known.iter().map(|(node, its)| (*node, its.after.iter().copied().collect()));
        let kinds = known.iter().map(|(node, its)| (*node, its.kind.number().0));
        let old = Topology { after: after.collect(), kinds: kinds.collect(), nodes };
        for (old, new) in pair(&old, &self.topology(graph)?)? {
            let (Some(its), Some(node)) = (executable.nodes.get(&old), self.objects.nodes.get(new))
            else {
                continue;
            };
            let fail = |outcome| Mismatch { outcome, node: new, from: 0 };
            if its.kind.number() != node.kind.number() {
                return Err(fail(Outcome::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED));
            }
            // Unverified (from documentation).
            if its.kind.is_device_updatable() || node.kind.is_device_updatable() {
                return Err(fail(Outcome::CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED));
            }
            self.check_change(&its.kind, &node.kind).map_err(fail)?;
            for (place, graph) in its.kind.embedded().iter().zip(node.kind.embedded()) {
                self.pair_nodes(executable, *place, *graph, pairs)?;
            }
            pairs.push((old, new));
        }
        Ok(())
    }

    /// Gives a node of an executable graph other parameters, which were checked. Graphs that are embedded
    /// in the executable graph keep their handles.
    pub(crate) fn change_node(
        &mut self,
        executable: usize,
        node: usize,
        kind: Kind,
        needs: Needs,
    ) -> Answer {
        let its = self.objects.executables.get_mut(executable).ok_or(INVALID)?;
        let its = its.nodes.get_mut(&node).ok_or(INVALID)?;
        let kind = match (&its.kind, kind) {
            (Kind::Child(graph), Kind::Child(_)) => Kind::Child(*graph),
            (Kind::Conditional(old), Kind::Conditional(mut new)) => {
                new.bodies.clone_from(&old.bodies);
                Kind::Conditional(new)
            }
            (_, kind) => kind,
        };
        if let Kind::Allocate(new) = &kind {
            self.objects.memory.hold_reservation(new.address);
        }
        let old = std::mem::replace(&mut its.kind, kind);
        its.needs = needs;
        if let Kind::Allocate(old) = old {
            self.objects.memory.release_reservation(old.address);
        }
        Ok(())
    }

    /// Updates all nodes of an executable graph from another graph, or none. The executable graph takes
    /// the user objects of that graph, and releases its own after its last launch (measured).
    pub(crate) fn update_executable(
        &mut self,
        handle: usize,
        graph: usize,
    ) -> Result<(), (CUresult, Mismatch)> {
        let fail = |code| {
            let mismatch =
                Mismatch { outcome: Outcome::CU_GRAPH_EXEC_UPDATE_ERROR, node: 0, from: 0 };
            (code, mismatch)
        };
        self.check_free(graph, INVALID).map_err(fail)?;
        let executable = self.executable(handle).map_err(fail)?;
        let mut pairs = Vec::new();
        self.pair_nodes(executable, executable.root, graph, &mut pairs).map_err(|mismatch| {
            let code = CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
            (code, mismatch)
        })?;
        for (_, new) in &pairs {
            if let Some(node) = self.objects.nodes.get(*new) {
                self.check_node(&node.kind, &node.needs, "used for an update").map_err(fail)?;
            }
        }
        for (old, new) in pairs {
            if let Some(node) = self.objects.nodes.get(new) {
                let (kind, needs) = (node.kind.clone(), node.needs.clone());
                self.change_node(handle, old, kind, needs).map_err(fail)?;
            }
        }
        self.take_handles(handle, graph);
        let objects = self.objects_of(graph);
        self.retain_objects(&objects);
        let its = self.executable_mut(handle).map_err(fail)?;
        let old = std::mem::replace(&mut its.objects, objects);
        let last: Vec<u64> = its.last.into_iter().collect();
        let after = its.was_launched.then_some(&last[..]);
        self.release_objects(old, after);
        Ok(())
    }

    /// Returns the user objects of a graph and of its embedded graphs.
    pub(crate) fn objects_of(&self, graph: usize) -> BTreeMap<usize, u32> {
        let mut objects = BTreeMap::new();
        let mut open = vec![graph];
        while let Some(graph) = open.pop().and_then(|graph| self.objects.graphs.get(graph)) {
            for (object, count) in &graph.objects {
                let held: &mut u32 = objects.entry(*object).or_default();
                *held = held.saturating_add(*count);
            }
            let nodes = graph.nodes.iter().filter_map(|node| self.objects.nodes.get(*node));
            open.extend(nodes.flat_map(|node| node.kind.embedded()).copied());
        }
        objects
    }

    /// Makes an executable graph use the conditional handles of the graph that it was updated from.
    fn take_handles(&mut self, handle: usize, graph: usize) {
        let mut handles = Vec::new();
        let mut open = vec![graph];
        while let Some(graph) = open.pop().and_then(|graph| self.objects.graphs.get(graph)) {
            let its = graph.conditionals.iter();
            handles.extend(its.filter_map(|its| {
                Some((*its, self.objects.conditional_handles.get(its)?.default))
            }));
            let nodes = graph.nodes.iter().filter_map(|node| self.objects.nodes.get(*node));
            open.extend(nodes.flat_map(|node| node.kind.embedded()).copied());
        }
        let Some(its) = self.objects.executables.get_mut(handle) else {
            return;
        };
        let old = std::mem::replace(&mut its.conditionals, handles.clone());
        for (conditional, _) in &handles {
            self.objects.memory.assign_conditional(*conditional, handle);
        }
        for (conditional, _) in old {
            if !handles.iter().any(|(its, _)| *its == conditional) {
                self.objects.memory.forget_conditional(conditional);
            }
        }
    }
}
