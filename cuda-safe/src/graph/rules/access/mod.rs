//! The check that conflicting accesses to one buffer are ordered.
//!
//! Two nodes conflict if they access overlapping bytes of one buffer and at least one of them writes. A
//! graph may be instantiated only if one of two conflicting nodes is reachable from the other by full
//! edges. A programmatic edge does not count, because its target may start before its source has
//! completed.
//!
//! The check walks through the nodes in topological order. For each range of bytes it knows the last
//! write and the reads since. A read must be reachable from the last write, and a write from each read
//! since, or from the last write if there is none. Because reachability is transitive, this covers all
//! pairs. One search serves all ranges of an access. It goes backward through the nodes as far as the first
//! one that it needs, so an access that follows the previous one directly costs little, and one that is
//! far from it in the graph costs time for the nodes between.
//!
//! The memory of an allocation node exists only after that node, and only before the node that frees it.
//! Both nodes count as writes of the whole memory, so all its uses are ordered with them. It remains to be
//! checked that they are the first and the last in topological order.

use std::ops::Range;

/// An access of a node to a range of bytes of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// The number of the buffer, which is never used again in this process.
    pub(crate) buffer: u64,
    pub(crate) bytes: Range<usize>,
    pub(crate) writes: bool,
    pub(crate) lifetime: Lifetime,
}

/// How an access relates to the lifetime of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// The memory is allocated as long as the graph exists.
    OfGraph,
    /// The memory is that of an allocation node.
    OfNode,
    /// The allocation of the memory of an allocation node.
    Begin,
    /// The free of the memory of an allocation node.
    End,
}

/// An edge as its target sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Before {
    /// The index of the node that the edge comes from.
    pub(crate) index: u32,
    /// Whether the target starts only after that node has completed.
    pub(crate) is_full: bool,
}

/// A node as this check sees it. A removed node has neither edges nor accesses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Checked<'a> {
    pub(crate) before: &'a [Before],
    pub(crate) accesses: &'a [Access],
}

/// Why the accesses of a graph are not ordered. Nodes are indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unordered {
    /// The edges form a cycle through this node.
    Cycle(usize),
    /// Two nodes conflict, and no full edges lead from one to the other.
    Conflict { first: usize, second: usize, buffer: u64 },
    /// A node uses memory of an allocation node while it is not allocated.
    NotAllocated { node: usize, buffer: u64, why: NotAllocated },
}

/// Why memory is not allocated when a node uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAllocated {
    /// The allocation node comes later.
    Yet,
    /// The free node comes earlier.
    Anymore,
    /// There is no allocation node.
    Ever,
}

/// Checks that all conflicting accesses are ordered, and that memory is used only while it is allocated.
/// If no node writes or uses memory of an allocation node, this looks at the accesses only. If the nodes
/// form a chain, it looks at the edges once.
///
/// A graph that is nested in another one can use memory that the other one allocates.
///
/// # Errors
/// The first conflict in topological order, or a node on a cycle.
#[inline]
pub(crate) fn check(nodes: &[Checked<'_>], is_nested: bool) -> Result<(), Unordered> {
    let accesses = nodes.iter().flat_map(|node| node.accesses);
    if are_evidently_ordered(accesses, nodes.iter().map(|node| node.before)) {
        return Ok(());
    }
    let positions = topological_positions(nodes)?;
    let mut search = Search {
        nodes,
        positions: &positions,
        visited: vec![0; nodes.len()],
        wanted: vec![0; nodes.len()],
        found: vec![0; nodes.len()],
        round: 0,
        missing: 0,
        low: 0,
        open: Vec::new(),
    };
    let mut uses: Vec<(usize, &Access)> = nodes
        .iter()
        .enumerate()
        .flat_map(|(index, node)| node.accesses.iter().map(move |access| (index, access)))
        .collect();
    uses.sort_by_key(|(index, access)| (access.buffer, positions[*index]));
    for uses in uses.chunk_by(|(_, one), (_, other)| one.buffer == other.buffer) {
        if uses.iter().any(|(_, access)| access.writes) {
            check_buffer(uses, &mut search)?;
        }
        check_lifetime(uses, &positions, is_nested)?;
    }
    Ok(())
}

/// Returns whether no search is needed: no access is to memory of an allocation node, and none writes, or the
/// nodes form a chain.
#[inline]
pub(crate) fn are_evidently_ordered<'a>(
    mut accesses: impl Iterator<Item = &'a Access> + Clone,
    edges: impl Iterator<Item = &'a [Before]>,
) -> bool {
    accesses.clone().all(|access| access.lifetime == Lifetime::OfGraph)
        && (accesses.all(|access| !access.writes) || is_chain(edges))
}

/// Returns whether a full edge leads from each node to the next one, and no edge leads back.
#[inline]
fn is_chain<'a>(edges: impl Iterator<Item = &'a [Before]>) -> bool {
    edges.enumerate().all(|(index, before)| {
        let follows = |edge: &Before| edge.is_full && edge.index as usize + 1 == index;
        before.iter().all(|edge| (edge.index as usize) < index)
            && (index == 0 || before.iter().any(follows))
    })
}

/// Returns whether a node with some accesses needs no order, and no memory, that the same node with the
/// earlier accesses did not need. It neither allocates nor frees memory.
#[inline]
pub(crate) fn covers(earlier: &[Access], accesses: &[Access]) -> bool {
    accesses.iter().all(|access| {
        earlier.iter().any(|its| {
            its.buffer == access.buffer
                && its.lifetime == access.lifetime
                && its.bytes.start <= access.bytes.start
                && access.bytes.end <= its.bytes.end
                && (its.writes || !access.writes)
        })
    })
}

/// A range of bytes that each access of a buffer covers entirely or not at all.
#[derive(Default)]
struct Segment {
    last_write: Option<usize>,
    reads_since: Vec<usize>,
}

/// Checks that the allocation and the free of one buffer, whose accesses are ordered with them, come first
/// and last. The accesses are in topological order.
#[inline]
fn check_lifetime(
    uses: &[(usize, &Access)],
    positions: &[usize],
    is_nested: bool,
) -> Result<(), Unordered> {
    if uses[0].1.lifetime == Lifetime::OfGraph {
        return Ok(());
    }
    let node_with = |lifetime| uses.iter().find(|its| its.1.lifetime == lifetime);
    let begin = node_with(Lifetime::Begin).map(|(node, _)| positions[*node]);
    let end = node_with(Lifetime::End).map(|(node, _)| positions[*node]);
    // An access without bytes needs no memory.
    let mut accesses = uses.iter().filter(|(_, its)| !its.bytes.is_empty());
    let wrong = accesses.find_map(|(node, access)| {
        let position = positions[*node];
        let why = match (begin, end) {
            (Some(begin), _) if position < begin => NotAllocated::Yet,
            (_, Some(end)) if position > end => NotAllocated::Anymore,
            (None, _) if !is_nested => NotAllocated::Ever,
            _ => return None,
        };
        Some((*node, access.buffer, why))
    });
    match wrong {
        None => Ok(()),
        Some((node, buffer, why)) => Err(Unordered::NotAllocated { node, buffer, why }),
    }
}

/// Checks the accesses to one buffer, in topological order.
#[inline]
fn check_buffer(uses: &[(usize, &Access)], search: &mut Search<'_>) -> Result<(), Unordered> {
    let mut bounds: Vec<usize> =
        uses.iter().flat_map(|(_, access)| [access.bytes.start, access.bytes.end]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    let mut segments: Vec<Segment> = bounds.iter().map(|_| Segment::default()).collect();
    let position = |bound| bounds.partition_point(|its| *its < bound);
    let segments_of = |access: &Access| position(access.bytes.start)..position(access.bytes.end);
    for (node, access) in uses {
        let (node, covered) = (*node, segments_of(access));
        search.begin();
        for segment in &segments[covered.clone()] {
            segment.each_earlier(node, access.writes, |its| search.want(its));
        }
        search.backward(node, |search, before| {
            // A node that used a segment after its last write is known to be ordered after that write.
            for its in search.nodes[before].accesses {
                if access.writes || its.buffer != access.buffer {
                    continue;
                }
                let its = segments_of(its);
                let common = its.start.max(covered.start)..its.end.min(covered.end);
                for last in common.filter_map(|index| segments[index].last_write) {
                    if search.positions[last] < search.positions[before] {
                        search.find(last);
                    }
                }
            }
        });
        if search.missing != 0 {
            let mut first = node;
            for segment in &segments[covered] {
                segment.each_earlier(node, access.writes, |its| {
                    if first == node && !search.has_found(its) {
                        first = its;
                    }
                });
            }
            return Err(Unordered::Conflict { first, second: node, buffer: access.buffer });
        }
        for segment in &mut segments[covered] {
            segment.note(node, access.writes);
        }
    }
    Ok(())
}

impl Segment {
    /// Calls `visit` for each node that an access by `node` must be ordered after. The other earlier nodes
    /// are known to be ordered before these.
    fn each_earlier(&self, node: usize, writes: bool, mut visit: impl FnMut(usize)) {
        let others = |its: &usize| *its != node;
        match writes && !self.reads_since.is_empty() {
            true => self.reads_since.iter().copied().filter(others).for_each(visit),
            false => {
                if let Some(last) = self.last_write.filter(others) {
                    visit(last);
                }
            }
        }
    }

    #[inline]
    fn note(&mut self, node: usize, writes: bool) {
        if writes {
            self.last_write = Some(node);
            self.reads_since.clear();
        } else if self.reads_since.last() != Some(&node) {
            self.reads_since.push(node);
        }
    }
}

/// Searches backward along full edges. Each search is a round.
struct Search<'a> {
    nodes: &'a [Checked<'a>],
    positions: &'a [usize],
    /// The round in which each node was visited, wanted or found last.
    visited: Vec<u32>,
    wanted: Vec<u32>,
    found: Vec<u32>,
    round: u32,
    /// The number of wanted nodes that are not found.
    missing: usize,
    /// The first position of a wanted node.
    low: usize,
    open: Vec<usize>,
}

impl Search<'_> {
    /// Begins a search.
    #[inline]
    fn begin(&mut self) {
        self.round += 1;
        self.missing = 0;
        self.low = usize::MAX;
    }

    /// Adds a node to search for.
    #[inline]
    fn want(&mut self, node: usize) {
        if self.wanted[node] != self.round {
            self.wanted[node] = self.round;
            self.missing += 1;
            self.low = self.low.min(self.positions[node]);
        }
    }

    /// Notes that a node is found, if it is wanted.
    #[inline]
    fn find(&mut self, node: usize) {
        if self.wanted[node] == self.round && !self.has_found(node) {
            self.found[node] = self.round;
            self.missing -= 1;
        }
    }

    #[inline]
    fn has_found(&self, node: usize) -> bool {
        self.found[node] == self.round
    }

    /// Visits the nodes from which `from` is reachable, until all wanted nodes are found.
    fn backward(&mut self, from: usize, mut visit: impl FnMut(&mut Self, usize)) {
        let nodes = self.nodes;
        self.open.clear();
        self.open.push(from);
        while let Some(node) = self.open.pop() {
            for edge in nodes[node].before {
                if self.missing == 0 {
                    return;
                }
                let before = edge.index as usize;
                let is_new = self.visited[before] != self.round;
                if !edge.is_full || !is_new || self.positions[before] < self.low {
                    continue;
                }
                self.visited[before] = self.round;
                self.find(before);
                visit(self, before);
                self.open.push(before);
            }
        }
    }
}

/// Returns the position of each node in a topological order of all edges.
#[inline]
fn topological_positions(nodes: &[Checked<'_>]) -> Result<Vec<usize>, Unordered> {
    // The edges by their source: the targets of node `i` are in `targets[starts[i]..starts[i + 1]]`.
    let mut starts = vec![0; nodes.len() + 1];
    for edge in nodes.iter().flat_map(|node| node.before) {
        starts[edge.index as usize + 1] += 1;
    }
    for index in 0..nodes.len() {
        starts[index + 1] += starts[index];
    }
    let mut targets = vec![0; starts[nodes.len()]];
    let mut next = starts.clone();
    for (target, node) in nodes.iter().enumerate() {
        for edge in node.before {
            let place = &mut next[edge.index as usize];
            targets[*place] = target;
            *place += 1;
        }
    }
    let mut missing: Vec<usize> = nodes.iter().map(|node| node.before.len()).collect();
    let mut order: Vec<usize> = (0..nodes.len()).filter(|node| missing[*node] == 0).collect();
    let mut done = 0;
    while let Some(node) = order.get(done).copied() {
        done += 1;
        for target in &targets[starts[node]..starts[node + 1]] {
            missing[*target] -= 1;
            if missing[*target] == 0 {
                order.push(*target);
            }
        }
    }
    if let Some(node) = missing.iter().position(|count| *count != 0) {
        return Err(Unordered::Cycle(node));
    }
    let mut positions = vec![0; nodes.len()];
    for (position, node) in order.into_iter().enumerate() {
        positions[node] = position;
    }
    Ok(positions)
}

#[cfg(test)]
mod tests;
