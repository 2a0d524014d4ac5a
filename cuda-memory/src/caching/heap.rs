//! Slabs of memory, which are split into blocks and merged again. There are no driver calls here.

mod segment;

pub(super) use segment::Growth;

use super::classes::GRAIN;
use super::stream_progress::{StreamProgress, SyncEvent, SyncPoint, SyncPoints, UNORDERED, unite};
use cuda_safe::manager::Block;
use std::collections::BTreeSet;

/// The number of a node.
pub(super) type Id = u32;
const NONE: Id = Id::MAX;

/// A block of a slab, free or allocated.
#[cfg_attr(test, derive(Clone))]
struct Node {
    address: u64,
    size: u64,
    slab: u32,
    before: Id,
    after: Id,
    is_free: bool,
    /// The sync points of a free block: its last uses.
    points: SyncPoints,
}

impl Node {
    /// Returns whether it was freed without a stream, and no wait for all work has followed.
    #[inline]
    fn waits(&self) -> bool {
        self.points.iter().any(|point| point.entry == UNORDERED)
    }
}

/// Memory from the upstream manager.
#[cfg_attr(test, derive(Clone))]
pub(super) struct Slab {
    pub(super) memory: Block,
    first: Id,
}

/// The blocks of all slabs.
#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Heap {
    nodes: Vec<Node>,
    unused: Vec<Id>,
    slabs: Vec<Option<Slab>>,
    /// Free blocks that do not wait, sorted by size and then by address.
    free: BTreeSet<(u64, u64, Id)>,
    /// Free blocks that were freed without a stream, and cannot be used before a wait for all work.
    /// Adjacent blocks are not merged with them, as they would then have to wait too.
    waiting: BTreeSet<Id>,
    /// The parts of segments that have no memory, sorted by address.
    unmapped: BTreeSet<(u64, Id)>,
    pub(super) free_bytes: u64,
    pub(super) reserved: u64,
}

/// The maximum number of free blocks that are inspected to find one that can be used at once.
const MAX_INSPECTED: usize = 32;

impl Heap {
    #[inline]
    pub(super) fn address(&self, id: Id) -> u64 {
        self.nodes[id as usize].address
    }

    #[inline]
    pub(super) fn size(&self, id: Id) -> u64 {
        self.nodes[id as usize].size
    }

    /// Finds the smallest free block of at least `size` bytes that the stream of `book` may use now.
    /// Without a `book`, it must be usable by every stream.
    pub(super) fn find<E: SyncEvent>(
        &self,
        size: u64,
        entry: Option<u32>,
        progress: &StreamProgress<E>,
    ) -> Option<Id> {
        let large_enough = self.free.range((size, 0, 0)..).take(MAX_INSPECTED);
        let mut ids = large_enough.map(|(_, _, id)| *id);
        ids.find(|id| progress.are_done_but_for(&self.nodes[*id as usize].points, entry))
    }

    /// Finds the smallest free block of at least `size` bytes, regardless of its last use.
    #[inline]
    pub(super) fn find_any(&self, size: u64) -> Option<Id> {
        self.free.range((size, 0, 0)..).next().map(|(_, _, id)| *id)
    }

    #[inline]
    pub(super) fn points(&self, id: Id) -> &[SyncPoint] {
        &self.nodes[id as usize].points
    }

    /// Allocates a free block, split to `size` bytes.
    #[inline]
    pub(super) fn take(&mut self, id: Id, size: u64) -> Id {
        self.unlist(id);
        let rest = self.nodes[id as usize].size - size;
        if rest >= GRAIN {
            self.split(id, size);
        }
        let node = &mut self.nodes[id as usize];
        node.is_free = false;
        node.points = SyncPoints::new();
        id
    }

    /// Splits off the part beyond `size` bytes of a block that is in no list, as a free block.
    #[inline]
    fn split(&mut self, id: Id, size: u64) {
        if let Some(rest) = self.cut(id, size) {
            self.nodes[rest as usize].is_free = true;
            self.list(rest);
        }
    }

    /// Cuts a block that is in no list in two. The second one, which is in no list either, begins after
    /// `size` bytes. Returns `None` if the block has no more bytes.
    #[inline]
    fn cut(&mut self, id: Id, size: u64) -> Option<Id> {
        let its = &mut self.nodes[id as usize];
        if its.size == size {
            return None;
        }
        let rest = Node {
            address: its.address + size,
            size: its.size - size,
            slab: its.slab,
            before: id,
            after: its.after,
            is_free: its.is_free,
            points: its.points.clone(),
        };
        its.size = size;
        let after = its.after;
        let rest = self.insert(rest);
        self.nodes[id as usize].after = rest;
        if after != NONE {
            self.nodes[after as usize].before = rest;
        }
        Some(rest)
    }

    /// Frees a block, and merges it with adjacent free blocks.
    #[inline]
    pub(super) fn give(&mut self, id: Id, points: &[SyncPoint]) {
        let its = &mut self.nodes[id as usize];
        its.is_free = true;
        its.points = points.to_vec();
        let (before, after) = (its.before, its.after);
        let mut id = id;
        if after != NONE && self.are_alike(id, after) {
            self.unlist(after);
            self.merge(id, after);
        }
        if before != NONE && self.are_alike(before, id) {
            self.unlist(before);
            self.merge(before, id);
            id = before;
        }
        self.list(id);
    }

    /// Returns whether both blocks are free, and either both or neither [wait](Node::waits).
    #[inline]
    fn are_alike(&self, one: Id, other: Id) -> bool {
        let (one, other) = (&self.nodes[one as usize], &self.nodes[other as usize]);
        one.is_free && other.is_free && one.waits() == other.waits()
    }

    /// Merges all adjacent blocks that are alike.
    #[inline]
    fn merge_alike(&mut self) {
        let firsts: Vec<Id> = self.slabs.iter().flatten().map(|slab| slab.first).collect();
        for mut id in firsts {
            loop {
                let after = self.nodes[id as usize].after;
                if after == NONE {
                    break;
                }
                if !self.are_alike(id, after) {
                    id = after;
                    continue;
                }
                self.unlist(id);
                self.unlist(after);
                self.merge(id, after);
                self.list(id);
            }
        }
    }

    /// Merges two adjacent blocks into the first one.
    #[inline]
    fn merge(&mut self, first: Id, second: Id) {
        let gone = &mut self.nodes[second as usize];
        let (size, after) = (gone.size, gone.after);
        let points = std::mem::take(&mut gone.points);
        self.unused.push(second);
        let its = &mut self.nodes[first as usize];
        its.size += size;
        its.after = after;
        unite(&mut its.points, &points);
        if after != NONE {
            self.nodes[after as usize].before = first;
        }
    }

    /// Removes sync points that are done. Blocks that no longer wait are merged with adjacent ones.
    pub(super) fn forget_done<E: SyncEvent>(&mut self, progress: &StreamProgress<E>) {
        for (_, _, id) in &self.free {
            let points = &mut self.nodes[*id as usize].points;
            points.retain(|point| !progress.is_done(point));
        }
        for id in std::mem::take(&mut self.waiting) {
            let node = &mut self.nodes[id as usize];
            node.points.retain(|point| !progress.is_done(point));
            // `list` adds its size again.
            self.free_bytes -= node.size;
            self.list(id);
        }
        self.merge_alike();
    }

    /// Adds a slab, which is one allocated block.
    #[inline]
    pub(super) fn add(&mut self, memory: Block) -> Id {
        let size = memory.size as u64;
        let place = self.slabs.iter().position(Option::is_none);
        let place = place.unwrap_or_else(|| {
            self.slabs.push(None);
            self.slabs.len() - 1
        });
        let id = self.insert(Node {
            address: memory.address,
            size,
            slab: place as u32,
            before: NONE,
            after: NONE,
            is_free: false,
            points: SyncPoints::new(),
        });
        self.slabs[place] = Some(Slab { memory, first: id });
        self.reserved += size;
        id
    }

    /// Splits an allocated block to `size` bytes. The rest becomes free, and is merged with the free block
    /// after it.
    #[inline]
    pub(super) fn shrink(&mut self, id: Id, size: u64) {
        if self.nodes[id as usize].size - size < GRAIN {
            return;
        }
        if let Some(rest) = self.cut(id, size) {
            // An allocated block has no sync points.
            self.give(rest, &[]);
        }
    }

    /// Returns the slabs that are entirely free, with their sizes and their sync points.
    #[inline]
    pub(super) fn idle(&self) -> Vec<(u32, u64, SyncPoints)> {
        let slabs = self.slabs.iter().enumerate();
        let idle = slabs.filter_map(|(place, slab)| {
            let first = slab.as_ref()?.first;
            let node = &self.nodes[first as usize];
            let is_idle = node.is_free && node.after == NONE;
            is_idle.then(|| (place as u32, node.size, node.points.clone()))
        });
        idle.collect()
    }

    /// Removes a slab, if it is still entirely free.
    #[inline]
    pub(super) fn remove(&mut self, place: u32) -> Option<Block> {
        let first = self.slabs.get(place as usize)?.as_ref()?.first;
        let node = &self.nodes[first as usize];
        if !node.is_free || node.after != NONE {
            return None;
        }
        self.unlist(first);
        self.nodes[first as usize].points = SyncPoints::new();
        self.unused.push(first);
        let slab = self.slabs[place as usize].take()?;
        self.reserved -= slab.memory.size as u64;
        Some(slab.memory)
    }

    /// Returns the memory of all slabs, including those in use.
    #[inline]
    pub(super) fn into_slabs(self) -> impl Iterator<Item = Block> {
        self.slabs.into_iter().flatten().map(|slab| slab.memory)
    }

    /// Returns the upstream manager's identifier of the slab that a part of a block lies in, or `None`
    /// if the part is not within the block.
    #[inline]
    pub(super) fn token_below(&self, id: Id, part: &Block) -> Option<u64> {
        let node = self.nodes.get(id as usize)?;
        let offset = part.address.checked_sub(node.address)?;
        let is_within = offset.checked_add(part.size as u64)? <= node.size;
        let slab = self.slabs.get(node.slab as usize)?.as_ref();
        slab.filter(|_| is_within && !node.is_free).map(|slab| slab.memory.token)
    }

    #[inline]
    pub(super) fn slab_count(&self) -> usize {
        self.slabs.iter().flatten().count()
    }

    #[inline]
    pub(super) fn largest_free(&self) -> u64 {
        self.free.last().map_or(0, |(size, _, _)| *size)
    }

    #[inline]
    fn insert(&mut self, node: Node) -> Id {
        match self.unused.pop() {
            Some(id) => {
                self.nodes[id as usize] = node;
                id
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as Id
            }
        }
    }

    #[inline]
    fn list(&mut self, id: Id) {
        let node = &self.nodes[id as usize];
        match node.waits() {
            true => self.waiting.insert(id),
            false => self.free.insert((node.size, node.address, id)),
        };
        self.free_bytes += node.size;
    }

    #[inline]
    fn unlist(&mut self, id: Id) {
        let node = &self.nodes[id as usize];
        match node.waits() {
            true => self.waiting.remove(&id),
            false => self.free.remove(&(node.size, node.address, id)),
        };
        self.free_bytes -= node.size;
    }
}

#[cfg(test)]
mod tests;
