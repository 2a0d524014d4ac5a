//! Slabs of memory, split into blocks and merged again. No call of the driver is made here.

use super::books::{Books, Mark, Marks, NOBODYS, unite};
use super::classes::GRAIN;
use crate::manager::Block;
use std::collections::BTreeSet;

/// The number of a node.
pub(super) type Id = u32;
const NONE: Id = Id::MAX;

/// A block, of a slab: free or handed out.
struct Node {
    address: u64,
    size: u64,
    slab: u32,
    before: Id,
    after: Id,
    is_free: bool,
    /// What a free one was used for.
    marks: Marks,
}

impl Node {
    /// Whether it was freed in nobody's order, and no wait has come since.
    fn waits(&self) -> bool {
        self.marks.iter().any(|mark| mark.book == NOBODYS)
    }
}

/// Memory of the upstream manager.
pub(super) struct Slab {
    pub(super) memory: Block,
    first: Id,
}

/// The blocks of all slabs.
#[derive(Default)]
pub(super) struct Heap {
    nodes: Vec<Node>,
    unused: Vec<Id>,
    slabs: Vec<Option<Slab>>,
    /// By size, then by address.
    free: BTreeSet<(u64, u64, Id)>,
    /// Free ones that were freed in nobody's order, and are of no use before a wait for all work. Others
    /// beside them are not merged with them, as that would make them so.
    waiting: BTreeSet<Id>,
    pub(super) free_bytes: u64,
    pub(super) reserved: u64,
}

/// So many free blocks are looked at for one that can be used at once.
const LOOKED_AT: usize = 32;

impl Heap {
    pub(super) fn address(&self, id: Id) -> u64 {
        self.nodes[id as usize].address
    }

    pub(super) fn size(&self, id: Id) -> u64 {
        self.nodes[id as usize].size
    }

    /// The smallest free block of at least that size which the stream of a book may use now, or, if none is
    /// given, anybody.
    pub(super) fn find(&self, size: u64, book: Option<u32>, books: &Books) -> Option<Id> {
        let large_enough = self.free.range((size, 0, 0)..).take(LOOKED_AT);
        let mut ids = large_enough.map(|(_, _, id)| *id);
        ids.find(|id| books.are_done_but_for(&self.nodes[*id as usize].marks, book))
    }

    /// The smallest free block of at least that size, whoever has used it.
    pub(super) fn find_any(&self, size: u64) -> Option<Id> {
        self.free.range((size, 0, 0)..).next().map(|(_, _, id)| *id)
    }

    pub(super) fn marks(&self, id: Id) -> &[Mark] {
        &self.nodes[id as usize].marks
    }

    /// Hands a free block out, split to that size.
    pub(super) fn take(&mut self, id: Id, size: u64) -> Id {
        self.unlist(id);
        let rest = self.nodes[id as usize].size - size;
        if rest >= GRAIN {
            self.split(id, size);
        }
        let node = &mut self.nodes[id as usize];
        node.is_free = false;
        node.marks = Marks::new();
        id
    }

    /// Leaves what is beyond `size` of a block that is in no list as a free block.
    fn split(&mut self, id: Id, size: u64) {
        let its = &mut self.nodes[id as usize];
        let rest = Node {
            address: its.address + size,
            size: its.size - size,
            slab: its.slab,
            before: id,
            after: its.after,
            is_free: true,
            marks: its.marks.clone(),
        };
        its.size = size;
        let after = its.after;
        let rest = self.insert(rest);
        self.nodes[id as usize].after = rest;
        if after != NONE {
            self.nodes[after as usize].before = rest;
        }
        self.list(rest);
    }

    /// Takes a block back, and merges it with those beside it that are free.
    pub(super) fn give(&mut self, id: Id, marks: &[Mark]) {
        let its = &mut self.nodes[id as usize];
        its.is_free = true;
        its.marks = marks.to_vec();
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

    /// Whether both are free, and both wait, or neither.
    fn are_alike(&self, one: Id, other: Id) -> bool {
        let (one, other) = (&self.nodes[one as usize], &self.nodes[other as usize]);
        one.is_free && other.is_free && one.waits() == other.waits()
    }

    /// Merges what lies beside each other and is alike.
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

    /// Makes one of two that lie beside each other.
    fn merge(&mut self, first: Id, second: Id) {
        let gone = &mut self.nodes[second as usize];
        let (size, after) = (gone.size, gone.after);
        let marks = std::mem::take(&mut gone.marks);
        self.unused.push(second);
        let its = &mut self.nodes[first as usize];
        its.size += size;
        its.after = after;
        unite(&mut its.marks, &marks);
        if after != NONE {
            self.nodes[after as usize].before = first;
        }
    }

    /// Forgets marks that are done: what has waited is merged with what is beside it.
    pub(super) fn forget_done(&mut self, books: &Books) {
        for (_, _, id) in &self.free {
            let marks = &mut self.nodes[*id as usize].marks;
            marks.retain(|mark| !books.is_done(mark));
        }
        for id in std::mem::take(&mut self.waiting) {
            let node = &mut self.nodes[id as usize];
            node.marks.retain(|mark| !books.is_done(mark));
            // It is counted again.
            self.free_bytes -= node.size;
            self.list(id);
        }
        self.merge_alike();
    }

    /// A new slab, all of it one block that is handed out.
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
            marks: Marks::new(),
        });
        self.slabs[place] = Some(Slab { memory, first: id });
        self.reserved += size;
        id
    }

    /// Splits a block that is handed out to that size, the rest of it being free.
    pub(super) fn shrink(&mut self, id: Id, size: u64) {
        if self.nodes[id as usize].size - size >= GRAIN {
            self.split(id, size);
        }
    }

    /// Slabs that nobody has anything of, and what they were used for.
    pub(super) fn idle(&self) -> Vec<(u32, u64, Marks)> {
        let slabs = self.slabs.iter().enumerate();
        let idle = slabs.filter_map(|(place, slab)| {
            let first = slab.as_ref()?.first;
            let node = &self.nodes[first as usize];
            let is_idle = node.is_free && node.after == NONE;
            is_idle.then(|| (place as u32, node.size, node.marks.clone()))
        });
        idle.collect()
    }

    /// Takes an idle slab out, if it still is.
    pub(super) fn remove(&mut self, place: u32) -> Option<Block> {
        let first = self.slabs.get(place as usize)?.as_ref()?.first;
        let node = &self.nodes[first as usize];
        if !node.is_free || node.after != NONE {
            return None;
        }
        self.unlist(first);
        self.nodes[first as usize].marks = Marks::new();
        self.unused.push(first);
        let slab = self.slabs[place as usize].take()?;
        self.reserved -= slab.memory.size as u64;
        Some(slab.memory)
    }

    /// All slabs, whatever is in use of them.
    pub(super) fn into_slabs(self) -> impl Iterator<Item = Block> {
        self.slabs.into_iter().flatten().map(|slab| slab.memory)
    }

    /// What the manager below knows memory of a block by; none if it is not in the block.
    pub(super) fn token_below(&self, id: Id, part: &Block) -> Option<u64> {
        let node = self.nodes.get(id as usize)?;
        let offset = part.address.checked_sub(node.address)?;
        let is_within = offset.checked_add(part.size as u64)? <= node.size;
        let slab = self.slabs.get(node.slab as usize)?.as_ref();
        slab.filter(|_| is_within && !node.is_free)
            .map(|slab| slab.memory.token)
    }

    pub(super) fn slab_count(&self) -> usize {
        self.slabs.iter().flatten().count()
    }

    pub(super) fn largest_free(&self) -> u64 {
        self.free.last().map_or(0, |(size, _, _)| *size)
    }

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

    fn list(&mut self, id: Id) {
        let node = &self.nodes[id as usize];
        match node.waits() {
            true => self.waiting.insert(id),
            false => self.free.insert((node.size, node.address, id)),
        };
        self.free_bytes += node.size;
    }

    fn unlist(&mut self, id: Id) {
        let node = &self.nodes[id as usize];
        match node.waits() {
            true => self.waiting.remove(&id),
            false => self.free.remove(&(node.size, node.address, id)),
        };
        self.free_bytes -= node.size;
    }
}
