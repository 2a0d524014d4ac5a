//! The edges of graphs, and the order that they give.

use super::node::{Dependencies, Edge};
use crate::state::INVALID;
use crate::state::{Answer, World, fail_if};
use cuda_sys::CUresult;
use std::collections::{BTreeMap, BTreeSet};

impl Edge {
    pub(crate) fn is_special(self) -> bool {
        self != Self::default()
    }
}

impl World {
    /// Adds an edge that was checked.
    pub(crate) fn connect(&mut self, from: usize, to: usize, edge: Edge) {
        if let Some(its) = self.objects.nodes.get_mut(from) {
            its.before.insert(to, edge);
        }
        let Some(its) = self.objects.nodes.get_mut(to) else {
            return;
        };
        let is_new = its.after.insert(from, edge).is_none();
        if let Some(graph) = self.objects.graphs.get_mut(its.graph) {
            graph.edges += usize::from(is_new);
            graph.roots.remove(&to);
        }
    }

    pub(crate) fn disconnect(&mut self, from: usize, to: usize) {
        if let Some(its) = self.objects.nodes.get_mut(from) {
            its.before.remove(&to);
        }
        let Some(its) = self.objects.nodes.get_mut(to) else {
            return;
        };
        let was_there = its.after.remove(&from).is_some();
        if let Some(graph) = self.objects.graphs.get_mut(its.graph) {
            graph.edges -= usize::from(was_there);
            if its.after.is_empty() {
                graph.roots.insert(to);
            }
        }
    }

    /// Fails unless a node is of a graph.
    pub(crate) fn check_node_of(&self, graph: usize, node: usize) -> Answer {
        match self.objects.nodes.get(node) {
            Some(its) if its.graph == graph => Ok(()),
            _ => Err(INVALID),
        }
    }

    /// Checks the data of an edge (measured). Only kernels have special ports, and only edges between
    /// kernels are programmatic.
    pub(crate) fn check_edge(&self, from: usize, to_kernel: bool, edge: Edge) -> Answer {
        let is_kernel = self.objects.nodes.get(from).is_some_and(|its| its.kind.is_kernel());
        let allowed = match (edge.from_port, edge.to_port, edge.kind) {
            (0, 0, 0) => true,
            (1 | 2, 0, 1) | (2, 0, 0) => is_kernel && to_kernel,
            _ => false,
        };
        if allowed { Ok(()) } else { Err(INVALID) }
    }

    /// Checks the dependencies of a new node of a graph.
    pub(crate) fn check_dependencies(
        &self,
        graph: usize,
        after: &Dependencies,
        is_kernel: bool,
    ) -> Answer {
        let mut seen = BTreeSet::new();
        for (node, edge) in after {
            self.check_node_of(graph, *node)?;
            self.check_edge(*node, is_kernel, *edge)?;
            fail_if(!seen.insert(*node), INVALID)?;
        }
        Ok(())
    }

    /// Adds edges between nodes of a graph, all or none.
    pub(crate) fn add_edges(&mut self, graph: usize, edges: &[(usize, usize, Edge)]) -> Answer {
        let mut seen = BTreeSet::new();
        for (from, to, edge) in edges {
            self.check_node_of(graph, *from)?;
            self.check_node_of(graph, *to)?;
            let known = self.objects.nodes.get(*to).ok_or(INVALID)?;
            self.check_edge(*from, known.kind.is_kernel(), *edge)?;
            if from == to || known.after.contains_key(from) || !seen.insert((*from, *to)) {
                return Err(INVALID);
            }
        }
        for (from, to, edge) in edges {
            self.connect(*from, *to, *edge);
        }
        Ok(())
    }

    /// Removes edges between nodes of a graph, all or none. Edges without data match any edge (measured);
    /// that data must match is unverified (from documentation).
    pub(crate) fn remove_edges(
        &mut self,
        graph: usize,
        edges: &[(usize, usize, Option<Edge>)],
    ) -> Answer {
        if self.graph(graph)?.memory_nodes != 0 {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        for (from, to, edge) in edges {
            self.check_node_of(graph, *from)?;
            self.check_node_of(graph, *to)?;
            let known = self.objects.nodes.get(*to).and_then(|its| its.after.get(from));
            let known = known.ok_or(INVALID)?;
            fail_if(edge.is_some_and(|edge| edge != *known), INVALID)?;
        }
        for (from, to, _) in edges {
            self.disconnect(*from, *to);
        }
        Ok(())
    }

    /// Returns all edges of a graph.
    pub(crate) fn edges_of(&self, graph: usize) -> Answer<Vec<(usize, usize, Edge)>> {
        let nodes = self.graph(graph)?.nodes.iter();
        let edges = nodes.filter_map(|node| Some((*node, self.objects.nodes.get(*node)?)));
        let edges = edges.flat_map(|(from, its)| {
            let after = its.before.iter();
            after.map(move |(to, edge)| (from, *to, *edge))
        });
        Ok(edges.collect())
    }

    /// Returns the nodes of a graph in an order in which each node follows those that it depends on, and
    /// otherwise in the order in which they were added. The error is a node of a cycle.
    pub(crate) fn ordered_nodes(&self, graph: usize) -> Result<Vec<usize>, usize> {
        let nodes = self.objects.graphs.get(graph).into_iter().flat_map(|its| &its.nodes);
        let mut missing: BTreeMap<usize, usize> = BTreeMap::new();
        let mut ready = BTreeSet::new();
        for node in nodes {
            match self.objects.nodes.get(*node).map_or(0, |its| its.after.len()) {
                0 => {
                    ready.insert(*node);
                }
                count => {
                    missing.insert(*node, count);
                }
            }
        }
        let mut ordered = Vec::new();
        while let Some(node) = ready.pop_first() {
            ordered.push(node);
            let after = self.objects.nodes.get(node).into_iter().flat_map(|its| its.before.keys());
            for next in after {
                if let Some(count) = missing.get_mut(next) {
                    *count -= 1;
                    if *count == 0 {
                        missing.remove(next);
                        ready.insert(*next);
                    }
                }
            }
        }
        match missing.pop_first() {
            Some((node, _)) => Err(node),
            None => Ok(ordered),
        }
    }
}
