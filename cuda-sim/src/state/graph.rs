//! Graphs: their nodes, their owners, and the copies of graphs.

pub(crate) mod conditional;
pub(crate) mod copy;
pub(crate) mod edges;
pub(crate) mod executable;
pub(crate) mod fill;
pub(crate) mod launch;
pub(crate) mod node;
mod operations;
pub(crate) mod update;
pub(crate) mod user_object;

use super::handles::State;
use super::needs::Needs;
use super::{Answer, World};
use crate::account::misuse;
use crate::state::{INVALID, fail_if};
use cuda_sys::CUresult;
use node::{Dependencies, Kind, Node, Shown};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Who destroys a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Program,
    /// A capture that has not ended.
    Capture,
    /// A child graph node or a conditional node.
    Node(usize),
}

pub(crate) struct Graph {
    /// The number that `cuGraphDebugDotPrint` shows.
    pub(crate) id: u32,
    pub(crate) owner: Owner,
    /// The nodes in the order in which they were added: later handles are larger.
    pub(crate) nodes: BTreeSet<usize>,
    /// The nodes that depend on no node.
    pub(crate) roots: BTreeSet<usize>,
    /// Number of edges.
    pub(crate) edges: usize,
    next_local: u32,
    /// The capture that adds nodes to the graph.
    pub(crate) capture: Option<u64>,
    /// Whether a recapture of the graph, or a capture into a body in it, failed. It can only be destroyed
    /// then.
    pub(crate) is_undefined: bool,
    /// References to user objects, with their number.
    pub(crate) objects: BTreeMap<usize, u32>,
    /// For a clone, its nodes by the nodes of the original.
    pub(crate) clones: HashMap<usize, usize>,
    /// The conditional handles of the graph.
    pub(crate) conditionals: Vec<u64>,
    /// Number of nodes that allocate or free memory.
    pub(crate) memory_nodes: usize,
    /// The addresses that nodes of the graph free.
    pub(crate) frees: BTreeSet<u64>,
    /// The number of its executable graphs.
    pub(crate) executables: usize,
    /// The number of those of which only one may exist.
    pub(crate) single_executables: usize,
}

impl World {
    pub(crate) fn add_graph(&mut self, owner: Owner) -> usize {
        self.objects.graph_ids += 1;
        self.objects.program_graphs += usize::from(owner == Owner::Program);
        self.objects.graphs.insert(Graph {
            id: self.objects.graph_ids,
            owner,
            nodes: BTreeSet::new(),
            roots: BTreeSet::new(),
            edges: 0,
            next_local: 0,
            capture: None,
            is_undefined: false,
            objects: BTreeMap::new(),
            clones: HashMap::new(),
            conditionals: Vec::new(),
            memory_nodes: 0,
            frees: BTreeSet::new(),
            executables: 0,
            single_executables: 0,
        })
    }

    pub(crate) fn set_graph_owner(&mut self, graph: usize, owner: Owner) {
        if let Some(its) = self.objects.graphs.get_mut(graph) {
            let before = std::mem::replace(&mut its.owner, owner);
            self.objects.program_graphs += usize::from(owner == Owner::Program);
            self.objects.program_graphs -= usize::from(before == Owner::Program);
        }
    }

    pub(crate) fn graph(&self, handle: usize) -> Answer<&Graph> {
        let graph = self.objects.graphs.get(handle).ok_or_else(|| {
            if self.objects.graphs.state(handle) == State::Dead {
                misuse("a graph is used after it was destroyed");
            }
            INVALID
        })?;
        if graph.is_undefined {
            misuse("a graph is used after a recapture of it, or a capture into its body, failed");
            return Err(INVALID);
        }
        Ok(graph)
    }

    pub(crate) fn graph_mut(&mut self, handle: usize) -> Answer<&mut Graph> {
        self.graph(handle)?;
        self.objects.graphs.get_mut(handle).ok_or(INVALID)
    }

    /// Returns a node. A real driver does not check the handle: it crashes, or uses the node that was
    /// there (measured).
    pub(crate) fn node(&self, handle: usize) -> Answer<&Node> {
        self.objects.nodes.get(handle).ok_or_else(|| {
            match self.objects.nodes.state(handle) {
                State::Dead => misuse("a node of a graph is used after it was destroyed"),
                State::Unknown if handle == 0 => {}
                _ => misuse("a handle that is not a node is used as a node of a graph"),
            }
            INVALID
        })
    }

    pub(crate) fn node_mut(&mut self, handle: usize) -> Answer<&mut Node> {
        self.node(handle)?;
        self.objects.nodes.get_mut(handle).ok_or(INVALID)
    }

    /// Adds a node whose parameters and dependencies were checked.
    pub(crate) fn add_node(
        &mut self,
        graph: usize,
        kind: Kind,
        needs: Needs,
        after: Dependencies,
    ) -> usize {
        let handle = self.objects.nodes.reserve();
        let after: BTreeMap<_, _> = after.into_iter().collect();
        for (before, edge) in &after {
            if let Some(its) = self.objects.nodes.get_mut(*before) {
                its.before.insert(handle, *edge);
            }
        }
        let mut local = 0;
        if let Some(its) = self.objects.graphs.get_mut(graph) {
            local = its.next_local;
            its.next_local += 1;
            its.nodes.insert(handle);
            its.edges += after.len();
            if after.is_empty() {
                its.roots.insert(handle);
            }
            its.memory_nodes += usize::from(kind.is_memory());
            match &kind {
                Kind::Allocate(its) => self.objects.memory.set_graph_of_node(its.address, graph),
                Kind::Free(address) => {
                    its.frees.insert(*address);
                    self.objects.memory.refuse_free_node(*address);
                }
                _ => {}
            }
        }
        for embedded in kind.embedded().to_vec() {
            self.set_graph_owner(embedded, Owner::Node(handle));
        }
        let node = Node {
            graph,
            local,
            kind,
            needs,
            after,
            before: BTreeMap::new(),
            shown: Shown::default(),
        };
        self.objects.nodes.revive(handle, node);
        handle
    }

    /// Removes a node with its edges and the graphs that it owns.
    pub(crate) fn remove_node(&mut self, handle: usize) {
        let Some(node) = self.objects.nodes.remove(handle) else {
            return;
        };
        for before in node.after.keys() {
            if let Some(its) = self.objects.nodes.get_mut(*before) {
                its.before.remove(&handle);
            }
        }
        let mut new_roots = Vec::new();
        for after in node.before.keys() {
            if let Some(its) = self.objects.nodes.get_mut(*after) {
                its.after.remove(&handle);
                new_roots.extend(its.after.is_empty().then_some(*after));
            }
        }
        if let Some(graph) = self.objects.graphs.get_mut(node.graph) {
            graph.nodes.remove(&handle);
            graph.roots.remove(&handle);
            graph.roots.extend(new_roots);
            graph.edges -= node.after.len() + node.before.len();
            graph.memory_nodes -= usize::from(node.kind.is_memory());
        }
        match &node.kind {
            Kind::Allocate(its) => self.objects.memory.release_reservation(its.address),
            Kind::Conditional(its) => {
                if let Some(handle) = self.objects.conditional_handles.get_mut(&its.handle) {
                    handle.node = None;
                }
            }
            _ => {}
        }
        for embedded in node.kind.embedded() {
            self.remove_graph(*embedded);
        }
    }

    /// Removes a graph with its nodes, and releases its user objects.
    pub(crate) fn remove_graph(&mut self, handle: usize) {
        let Some(graph) = self.objects.graphs.get(handle) else {
            return;
        };
        for node in graph.nodes.clone() {
            self.remove_node(node);
        }
        if let Some(graph) = self.objects.graphs.remove(handle) {
            self.objects.program_graphs -= usize::from(graph.owner == Owner::Program);
            for conditional in graph.conditionals {
                self.objects.conditional_handles.remove(&conditional);
            }
            self.release_objects(graph.objects, None);
        }
    }

    /// Returns the graph that contains a graph as a child or as a body of a conditional node, or the
    /// graph itself.
    pub(crate) fn root_of(&self, graph: usize) -> usize {
        let mut root = graph;
        while let Some(Owner::Node(node)) = self.objects.graphs.get(root).map(|its| its.owner) {
            match self.objects.nodes.get(node) {
                Some(its) => root = its.graph,
                None => break,
            }
        }
        root
    }

    /// Returns whether a graph or a graph embedded in it has a node for which `is` holds.
    pub(crate) fn has_node(&self, graph: usize, is: &impl Fn(&Kind) -> bool) -> bool {
        let nodes = self.objects.graphs.get(graph).into_iter().flat_map(|its| &its.nodes);
        let mut kinds = nodes.filter_map(|node| self.objects.nodes.get(*node)).map(|its| &its.kind);
        kinds.any(|kind| is(kind) || kind.embedded().iter().any(|its| self.has_node(*its, is)))
    }

    /// Clones a graph. Memory nodes, conditional nodes and conditional handles cannot be cloned (measured).
    pub(crate) fn clone_graph(&mut self, source: usize, owner: Owner) -> Answer<usize> {
        self.check_clonable(source)?;
        Ok(self.copy_graph(source, owner))
    }

    /// Fails if a graph cannot be cloned.
    pub(crate) fn check_clonable(&self, source: usize) -> Answer {
        let has_handles = !self.graph(source)?.conditionals.is_empty();
        let is_single = |kind: &Kind| kind.is_memory() || matches!(kind, Kind::Conditional(_));
        let is_unique = has_handles || self.has_node(source, &is_single);
        fail_if(is_unique, CUresult::CUDA_ERROR_NOT_SUPPORTED)
    }

    fn copy_graph(&mut self, source: usize, owner: Owner) -> usize {
        let made = self.add_graph(owner);
        let Some(graph) = self.objects.graphs.get(source) else {
            return made;
        };
        let (nodes, objects) = (graph.nodes.clone(), graph.objects.clone());
        let mut clones = HashMap::new();
        for original in nodes {
            let Some(node) = self.objects.nodes.get(original) else {
                continue;
            };
            let (mut kind, needs) = (node.kind.clone(), node.needs.clone());
            if let Kind::Child(graph) = kind {
                kind = Kind::Child(self.copy_graph(graph, Owner::Capture));
            }
            clones.insert(original, self.add_node(made, kind, needs, Vec::new()));
        }
        for (original, clone) in &clones {
            let after = self.objects.nodes.get(*original).map(|its| its.after.clone());
            for (before, edge) in after.unwrap_or_default() {
                if let Some(before) = clones.get(&before) {
                    self.connect(*before, *clone, edge);
                }
            }
        }
        self.retain_objects(&objects);
        if let Some(its) = self.objects.graphs.get_mut(made) {
            its.clones = clones;
            its.objects = objects;
        }
        made
    }

    /// Fails for a graph that the program cannot destroy, instantiate or move, because a node owns it.
    pub(crate) fn check_free(&self, graph: usize, code: CUresult) -> Answer {
        match self.graph(graph)?.owner {
            Owner::Node(_) => Err(code),
            Owner::Program | Owner::Capture => Ok(()),
        }
    }
}
