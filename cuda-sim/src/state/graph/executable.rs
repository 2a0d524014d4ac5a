//! Executable graphs.

use super::node::{Kind, Node};
use crate::account::misuse;
use crate::state::INVALID;
use crate::state::handles::State;
use crate::state::needs::Needs;
use crate::state::{Answer, World, fail_if};
use cuda_sys::{CUgraphInstantiate_flags as Flags, CUgraphInstantiateResult as Outcome, CUresult};
use std::collections::{BTreeMap, BTreeSet};

/// An executable graph: a copy of a graph and of the graphs that are embedded in it.
pub(crate) struct Executable {
    /// The number that `cuGraphExecGetId` returns.
    pub(crate) id: u32,
    pub(crate) flags: u64,
    /// The graph that it was created from, which may have been destroyed.
    pub(crate) root: usize,
    /// The nodes of the graph and of each embedded graph, by the handle of that graph, in the order of
    /// their edges.
    pub(crate) orders: BTreeMap<usize, Vec<usize>>,
    /// By the handles of the nodes in the graph.
    pub(crate) nodes: BTreeMap<usize, ExecutableNode>,
    pub(crate) objects: BTreeMap<usize, u32>,
    /// The conditional handles of its nodes, with the value at the start of each launch if there is one.
    pub(crate) conditionals: Vec<(u64, Option<u32>)>,
    /// The last operation of its last launch.
    pub(crate) last: Option<u64>,
    /// The last operations of its launches. Those of complete launches may be missing.
    pub(crate) ends: Vec<u64>,
    pub(crate) was_launched: bool,
    /// The bytes that its allocations use on each device, if it was launched.
    pub(crate) footprint: Vec<(usize, u64)>,
}

#[derive(Clone)]
pub(crate) struct ExecutableNode {
    pub(crate) kind: Kind,
    pub(crate) needs: Needs,
    pub(crate) after: Vec<usize>,
    pub(crate) is_enabled: bool,
}

/// Why a graph was not instantiated: the code, the outcome and the node.
pub(crate) type Failure = (CUresult, Outcome, usize);

impl ExecutableNode {
    fn of(node: &Node) -> Self {
        Self {
            kind: node.kind.clone(),
            needs: node.needs.clone(),
            after: node.after.keys().copied().collect(),
            is_enabled: true,
        }
    }
}

impl Executable {
    pub(crate) fn has(&self, flag: Flags) -> bool {
        self.flags & u64::from(flag.0) != 0
    }

    /// Returns the kinds of all nodes.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.nodes.values().map(|its| &its.kind)
    }

    /// Returns whether the graph may have only one such executable graph.
    fn is_single(&self) -> bool {
        self.kinds().any(|kind| kind.is_memory() || kind.is_device_updatable())
    }
}

impl World {
    pub(crate) fn executable(&self, handle: usize) -> Answer<&Executable> {
        self.objects.executables.get(handle).ok_or_else(|| {
            if self.objects.executables.state(handle) == State::Dead {
                misuse("an executable graph is used after it was destroyed");
            }
            INVALID
        })
    }

    pub(crate) fn executable_mut(&mut self, handle: usize) -> Answer<&mut Executable> {
        self.executable(handle)?;
        self.objects.executables.get_mut(handle).ok_or(INVALID)
    }

    /// Creates an executable graph. The flags were checked.
    pub(crate) fn instantiate(&mut self, graph: usize, flags: u64) -> Result<usize, Failure> {
        let fail = |code| (code, Outcome::CUDA_GRAPH_INSTANTIATE_ERROR, 0);
        let unsupported = CUresult::CUDA_ERROR_NOT_SUPPORTED;
        self.check_free(graph, unsupported).map_err(fail)?;
        if let Some(capture) = self.graph(graph).map_err(fail)?.capture {
            self.break_capture(capture);
            return Err(fail(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
        }
        let is_device_launch =
            flags & u64::from(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH.0) != 0;
        let mut made = Executable {
            id: 0,
            flags,
            root: graph,
            orders: BTreeMap::new(),
            nodes: BTreeMap::new(),
            objects: BTreeMap::new(),
            conditionals: Vec::new(),
            last: None,
            ends: Vec::new(),
            was_launched: false,
            footprint: Vec::new(),
        };
        let mut handles = BTreeSet::new();
        self.collect(graph, false, is_device_launch, &mut made, &mut handles)?;
        for handle in handles {
            let Some(its) = self.objects.conditional_handles.get(&handle) else {
                continue;
            };
            if its.node.is_none() {
                let unused = Outcome::CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
                return Err((INVALID, unused, 0));
            }
            made.conditionals.push((handle, its.default));
        }
        // Measured, except for nodes that device code may change (from documentation).
        let has_conditional = made.kinds().any(|kind| matches!(kind, Kind::Conditional(_)));
        let its = self.graph(graph).map_err(fail)?;
        if has_conditional && its.executables != 0
            || made.is_single() && its.single_executables != 0
        {
            return Err(fail(unsupported));
        }
        Ok(self.add_executable(graph, made))
    }

    fn add_executable(&mut self, graph: usize, mut made: Executable) -> usize {
        self.objects.graph_ids += 1;
        made.id = self.objects.graph_ids;
        self.retain_objects(&made.objects);
        for kind in made.kinds() {
            if let Kind::Allocate(its) = kind {
                self.objects.memory.hold_reservation(its.address);
                self.objects.memory.refuse_free_node(its.address);
            }
        }
        let conditionals = made.conditionals.clone();
        let is_single = made.is_single();
        let handle = self.objects.executables.insert(made);
        for (conditional, _) in conditionals {
            self.objects.memory.assign_conditional(conditional, handle);
        }
        if let Some(its) = self.objects.graphs.get_mut(graph) {
            its.executables += 1;
            its.single_executables += usize::from(is_single);
        }
        handle
    }

    /// Adds the nodes of a graph and of its embedded graphs to an executable graph.
    fn collect(
        &self,
        graph: usize,
        is_body: bool,
        is_device_launch: bool,
        made: &mut Executable,
        handles: &mut BTreeSet<u64>,
    ) -> Result<(), Failure> {
        let invalid = Outcome::CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
        let order = self.ordered_nodes(graph);
        let order = order.map_err(|node| {
            misuse(
                "cuGraphInstantiate of a graph whose edges form a cycle; a real driver may crash",
            );
            (INVALID, invalid, node)
        })?;
        if let Some(its) = self.objects.graphs.get(graph) {
            handles.extend(&its.conditionals);
            for (object, count) in &its.objects {
                let held = made.objects.entry(*object).or_default();
                *held = held.saturating_add(*count);
            }
        }
        for handle in &order {
            let Some(node) = self.objects.nodes.get(*handle) else {
                continue;
            };
            let stale = |code| (code, Outcome::CUDA_GRAPH_INSTANTIATE_ERROR, *handle);
            self.check_node(&node.kind, &node.needs, "instantiated").map_err(stale)?;
            self.check_mapped_node(&node.kind).map_err(stale)?;
            if let Kind::Fill(fill) = &node.kind {
                // Measured: a capture accepts a fill that exceeds the memory.
                let mut rows = fill.rows();
                let exceeds = rows.any(|(at, len)| self.objects.memory.exceeds(at, len as u64));
                fail_if(exceeds, INVALID).map_err(stale)?;
            }
            if is_body || is_device_launch {
                self.check_body_node(node).map_err(|outcome| (INVALID, outcome, *handle))?;
            }
            let is_conditional = matches!(node.kind, Kind::Conditional(_));
            for embedded in node.kind.embedded() {
                let is_body = is_body || is_conditional;
                self.collect(*embedded, is_body, is_device_launch, made, handles)?;
            }
            made.nodes.insert(*handle, ExecutableNode::of(node));
        }
        made.orders.insert(graph, order);
        Ok(())
    }

    /// Fails for a node that cannot be in the body of a conditional node (measured). For graphs that
    /// are launched from the device only memory nodes were measured.
    fn check_body_node(&self, node: &Node) -> Result<(), Outcome> {
        let unsupported = Outcome::CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
        let several = Outcome::CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED;
        match &node.kind {
            Kind::Copy(copy) if copy.is_pageable(&self.objects.memory) => Err(several),
            Kind::Kernel(its) => match self.context_of_bodies(node.graph) {
                Some(context) if context != self.view_of(its) => Err(several),
                _ => Ok(()),
            },
            Kind::Copy(_) | Kind::Fill(_) | Kind::Child(_) | Kind::Empty | Kind::Conditional(_) => {
                Ok(())
            }
            _ => Err(unsupported),
        }
    }

    /// Returns the context or the view of a green context that a kernel node runs in.
    pub(crate) fn view_of(&self, kernel: &super::node::KernelNode) -> usize {
        let green =
            kernel.call.partition.as_ref().and_then(|(id, _)| self.objects.green_ids.get(id));
        let green = green.and_then(|green| self.objects.greens.get(*green));
        green.map_or(kernel.call.context, |green| green.view)
    }

    /// Returns the context of the conditional node that a graph is in.
    fn context_of_bodies(&self, graph: usize) -> Option<usize> {
        let mut graph = graph;
        while let super::Owner::Node(owner) = self.objects.graphs.get(graph)?.owner {
            let owner = self.objects.nodes.get(owner)?;
            if let Kind::Conditional(its) = &owner.kind {
                return Some(its.context);
            }
            graph = owner.graph;
        }
        None
    }

    /// Removes an executable graph. Destructors of its user objects run in this call if it was never
    /// launched, and otherwise on the driver's thread after its last launch (measured).
    pub(crate) fn remove_executable(&mut self, handle: usize) {
        let Some(executable) = self.objects.executables.remove(handle) else {
            return;
        };
        for kind in executable.kinds() {
            if let Kind::Allocate(its) = kind {
                self.objects.memory.release_reservation(its.address);
            }
        }
        for (conditional, _) in &executable.conditionals {
            self.objects.memory.forget_conditional(*conditional);
        }
        self.objects.memory.forget_graph_launch(handle, &executable.footprint);
        if let Some(graph) = self.objects.graphs.get_mut(executable.root) {
            graph.executables -= 1;
            graph.single_executables -= usize::from(executable.is_single());
        }
        let last: Vec<u64> = executable.last.into_iter().collect();
        let after = executable.was_launched.then_some(&last[..]);
        self.release_objects(executable.objects, after);
    }

    /// Returns whether destroying an executable graph waits for all work (measured for conditional
    /// nodes, and for a graph that can be launched from the device while it runs itself).
    pub(crate) fn destruction_waits(&self, executable: &Executable) -> bool {
        let is_running = executable.last.is_some_and(|last| !self.runs.executor.is_done(last));
        let is_device_launch = executable.has(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
        !executable.conditionals.is_empty() || (is_device_launch && is_running)
    }
}
