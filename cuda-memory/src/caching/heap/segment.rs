//! Segments: ranges of addresses whose parts are mapped to memory one after another. A block of a segment
//! may lie in several mappings.

use super::{Heap, Id, NONE, Node, Slab, StreamProgress, SyncEvent, SyncPoints};
use cuda_safe::manager::Block;

/// A part of a segment that a thread is mapping, with the free block before it. Neither is in a list.
#[derive(Debug)]
pub(in super::super) struct Growth {
    /// The part to map.
    id: Id,
    /// The free block before it, if the request may use that block, and its sync points.
    before: Option<(Id, SyncPoints)>,
    pub(in super::super) address: u64,
    pub(in super::super) size: u64,
}

impl Heap {
    /// Adds a segment, to which no memory is mapped.
    #[inline]
    pub(in super::super) fn add_segment(&mut self, address: u64, size: u64) {
        let id = self.insert(Node {
            address,
            size,
            slab: self.slabs.len() as u32,
            before: NONE,
            after: NONE,
            is_free: false,
            points: SyncPoints::new(),
        });
        let memory = Block { address, size: 0, token: 0 };
        self.slabs.push(Some(Slab { memory, first: id }));
        self.unmapped.insert((address, id));
    }

    /// Takes the addresses that must be mapped for a block of `size` bytes: the lowest ones that are
    /// large enough together with the free block before them, if the stream of `entry` may use that
    /// block now. Returns `None` if there are none.
    pub(in super::super) fn begin_growth<E: SyncEvent>(
        &mut self,
        size: u64,
        granularity: u64,
        entry: Option<u32>,
        progress: &StreamProgress<E>,
    ) -> Option<Growth> {
        let usable = |id: Id| {
            let node = self.nodes.get(id as usize)?;
            let is_usable = node.is_free
                && !node.waits()
                && node.size < size
                && progress.are_done_but_for(&node.points, entry);
            is_usable.then_some((id, node.size))
        };
        let fits = |(_, id): &(u64, Id)| {
            let node = &self.nodes[*id as usize];
            let before = usable(node.before);
            let missing = size - before.map_or(0, |(_, bytes)| bytes);
            let missing = missing.checked_next_multiple_of(granularity)?;
            (missing <= node.size).then_some((*id, before.map(|(id, _)| id), missing))
        };
        let (id, before, missing) = self.unmapped.iter().find_map(fits)?;
        let address = self.nodes[id as usize].address;
        self.unmapped.remove(&(address, id));
        if let Some(rest) = self.cut(id, missing) {
            self.unmapped.insert((address + missing, rest));
        }
        let before = before.map(|before| {
            self.unlist(before);
            let node = &mut self.nodes[before as usize];
            node.is_free = false;
            (before, std::mem::take(&mut node.points))
        });
        Some(Growth { id, before, address, size: missing })
    }

    /// Ends a growth whose memory was mapped. Returns the allocated block, which may be larger than was
    /// requested.
    #[inline]
    pub(in super::super) fn end_growth(&mut self, growth: Growth) -> Id {
        self.reserved += growth.size;
        match growth.before {
            Some((before, _)) => {
                self.merge(before, growth.id);
                before
            }
            None => growth.id,
        }
    }

    /// Ends a growth whose memory was not mapped.
    #[inline]
    pub(in super::super) fn undo_growth(&mut self, growth: Growth) {
        self.list_unmapped(growth.id);
        if let Some((before, points)) = growth.before {
            self.give(before, &points);
        }
    }

    /// Ends a growth whose addresses cannot be used again.
    #[inline]
    pub(in super::super) fn abandon_growth(&mut self, growth: Growth) {
        if let Some((before, points)) = growth.before {
            self.give(before, &points);
        }
    }

    /// Returns the address and the size of each free block whose work is done, the largest first.
    pub(in super::super) fn done<E: SyncEvent>(
        &self,
        progress: &StreamProgress<E>,
    ) -> Vec<(Id, u64, u64)> {
        let free = self.free.iter().rev();
        let done = free
            .filter(|(_, _, id)| progress.are_done_but_for(&self.nodes[*id as usize].points, None));
        done.map(|(size, address, id)| (*id, *address, *size)).collect()
    }

    /// Returns whether the work of a free block is not done.
    pub(in super::super) fn is_any_used<E: SyncEvent>(&self, progress: &StreamProgress<E>) -> bool {
        let mut free = self.free.iter();
        free.any(|(_, _, id)| !progress.are_done_but_for(&self.nodes[*id as usize].points, None))
    }

    /// Takes a range out of a free block that contains it, to unmap it. Returns the part of the block
    /// to unmap. The first part of the block keeps the number `id`.
    #[inline]
    pub(in super::super) fn take_range(&mut self, id: Id, address: u64, size: u64) -> Id {
        let before = address - self.nodes[id as usize].address;
        self.unlist(id);
        let mut part = id;
        if before != 0 {
            self.split(id, before);
            self.list(id);
            part = self.nodes[id as usize].after;
            self.unlist(part);
        }
        if self.nodes[part as usize].size > size {
            self.split(part, size);
        }
        let node = &mut self.nodes[part as usize];
        node.is_free = false;
        node.points = SyncPoints::new();
        part
    }

    /// Notes that the memory of a part was unmapped.
    #[inline]
    pub(in super::super) fn unmapped(&mut self, id: Id) {
        self.reserved -= self.nodes[id as usize].size;
        self.list_unmapped(id);
    }

    /// Notes that the memory of a part is released, but that its addresses cannot be used again.
    #[inline]
    pub(in super::super) fn abandon(&mut self, id: Id) {
        self.reserved -= self.nodes[id as usize].size;
    }

    /// Lists addresses without memory, and merges them with adjacent ones.
    #[inline]
    fn list_unmapped(&mut self, id: Id) {
        let mut id = id;
        let Node { before, after, .. } = self.nodes[id as usize];
        if self.unlist_unmapped(after) {
            self.merge(id, after);
        }
        if self.unlist_unmapped(before) {
            self.merge(before, id);
            id = before;
        }
        self.unmapped.insert((self.nodes[id as usize].address, id));
    }

    #[inline]
    fn unlist_unmapped(&mut self, id: Id) -> bool {
        let address = self.nodes.get(id as usize).map(|node| node.address);
        address.is_some_and(|address| self.unmapped.remove(&(address, id)))
    }
}
