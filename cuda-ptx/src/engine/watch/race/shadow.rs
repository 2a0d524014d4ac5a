//! The last accesses to each word of memory.

use super::clock::{Clock, Who};
use crate::program::Scope;
use std::collections::HashMap;

/// The most accesses that are kept of a word.
pub(super) const KEPT: usize = 8;
/// The bytes of global memory whose words are together.
const PAGE: u64 = 4096;
/// The most pages. Accesses to others are not checked.
pub(super) const PAGES: usize = 16 << 10;
/// The latest time that an access has.
pub(super) const LAST_TIME: u32 = (1 << 24) - 1;

/// An access of a thread to bytes of a word.
///
/// The parts are packed: `place` has the program counter and the thread, and `stamp` the time, the strength, whether it
/// writes, and the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    block: u32,
    place: u32,
    stamp: u32,
}

const WRITES: u32 = 1 << 4;
const STRENGTH: u32 = 3 << 5;

impl Record {
    /// `strength` is the scope of an access that is not weak.
    pub(super) fn new(
        who: Who,
        (pc, time): (u32, u32),
        strength: Option<Scope>,
        is_write: bool,
    ) -> Self {
        let strength = match strength {
            None => 0,
            Some(Scope::Cta) => 1,
            Some(Scope::Cluster) => 2,
            Some(Scope::Device) => 3,
        };
        let writes = if is_write { WRITES } else { 0 };
        Self {
            block: who.block,
            place: pc << 10 | who.thread,
            stamp: time << 8 | strength << 5 | writes,
        }
    }

    fn of_bytes(self, bytes: u32) -> Self {
        Self { stamp: self.stamp & !15 | bytes, ..self }
    }

    fn bytes(self) -> u32 {
        self.stamp & 15
    }

    pub(super) fn who(self) -> Who {
        Who { block: self.block, thread: self.place & 1023 }
    }

    pub(super) fn pc(self) -> u32 {
        self.place >> 10
    }

    fn time(self) -> u32 {
        self.stamp >> 8
    }

    fn strength(self) -> u32 {
        (self.stamp & STRENGTH) >> 5
    }

    pub(super) fn writes(self) -> bool {
        self.stamp & WRITES != 0
    }

    pub(super) fn is_weak(self) -> bool {
        self.strength() == 0
    }

    fn is_same_thread(self, other: Self) -> bool {
        self.block == other.block && (self.place ^ other.place) & 1023 == 0
    }

    /// Returns whether both are strong, and each scope contains the thread of the other.
    fn are_atomic(self, other: Self, cluster: u32) -> bool {
        match self.strength().min(other.strength()) {
            0 => false,
            1 => self.block == other.block,
            2 => self.block / cluster == other.block / cluster,
            _ => true,
        }
    }

    fn conflicts(self, other: Self, cluster: u32) -> bool {
        (self.writes() || other.writes()) && !self.are_atomic(other, cluster)
    }

    /// Returns whether this access conflicts with everything that another one conflicts with.
    fn covers(self, other: Self) -> bool {
        (self.writes() || !other.writes())
            && self.strength() <= other.strength()
            // A narrow scope of a third access may contain the thread of only one of them.
            && (self.is_weak() || self.block == other.block)
            && other.bytes() & !self.bytes() == 0
    }
}

/// The accesses to four bytes that no later access makes superfluous.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cell {
    first: [Record; 2],
    /// The number of the list with the others plus one, or zero.
    more: u32,
    /// A number for the block and time of reads that need not be kept, or zero.
    absorbed: u32,
}

/// The words of a part of memory.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    lists: Vec<Vec<Record>>,
    pages: Vec<Box<[Cell]>>,
    numbers: HashMap<u64, u32>,
    /// The number of the pages that were used last.
    recent: [(u64, u32); 16],
    /// Whether there are more pages than are kept.
    pub(super) is_full: bool,
    spare: Vec<u32>,
}

/// What an access is compared with.
pub(super) struct Comparison<'a> {
    /// What is ordered before the access.
    pub(super) clock: &'a Clock,
    /// The time before which all accesses of the own block are ordered.
    pub(super) own: u32,
    /// The number of blocks of a cluster.
    pub(super) cluster: u32,
}

impl Shadow {
    /// Forgets the shared memory of a block.
    pub(super) fn forget(&mut self, cells: Vec<Cell>) {
        for cell in cells {
            if cell.more != 0 {
                self.lists[cell.more as usize - 1].clear();
                self.spare.push(cell.more);
            }
        }
    }

    /// Adds an access to bytes of global memory, and calls `race` with the address and each access that it races with.
    #[inline(always)]
    pub(super) fn global(
        &mut self,
        address: u64,
        len: u32,
        record: Record,
        with: &Comparison<'_>,
        mut race: impl FnMut(u64, Record),
    ) {
        let mut at = address;
        let end = address + u64::from(len);
        while at < end {
            let Some(page) = self.page(at / PAGE) else { return };
            let next = (at & !3) + 4;
            let bytes = bytes(at, end.min(next));
            let cell = &mut self.pages[page][(at % PAGE / 4) as usize];
            let pool = (&mut self.lists, &mut self.spare);
            update(cell, pool, record.of_bytes(bytes), with, |other| race(at, other));
            at = next;
        }
    }

    /// The same for shared memory with these cells.
    #[inline(always)]
    pub(super) fn shared(
        &mut self,
        cells: &mut [Cell],
        offset: u64,
        len: u32,
        record: Record,
        with: &Comparison<'_>,
        mut race: impl FnMut(u64, Record),
    ) {
        let mut at = offset;
        let end = offset + u64::from(len);
        while at < end {
            let next = (at & !3) + 4;
            let bytes = bytes(at, end.min(next));
            let Some(cell) = cells.get_mut((at / 4) as usize) else { return };
            let pool = (&mut self.lists, &mut self.spare);
            update(cell, pool, record.of_bytes(bytes), with, |other| race(at, other));
            at = next;
        }
    }

    /// Returns the number of a page.
    #[inline(always)]
    fn page(&mut self, page: u64) -> Option<usize> {
        let recent = self.recent[(page % 16) as usize];
        if recent.0 == page && page != 0 {
            return Some(recent.1 as usize);
        }
        self.find(page)
    }

    fn find(&mut self, page: u64) -> Option<usize> {
        let count = self.pages.len();
        let number = match self.numbers.get(&page) {
            Some(number) => *number,
            None if count == PAGES => {
                self.is_full = true;
                return None;
            }
            None => {
                self.pages.push(vec![Cell::default(); (PAGE / 4) as usize].into_boxed_slice());
                self.numbers.insert(page, count as u32);
                count as u32
            }
        };
        self.recent[(page % 16) as usize] = (page, number);
        Some(number as usize)
    }
}

/// Returns the bits of the bytes of a word.
fn bytes(at: u64, end: u64) -> u32 {
    let count = (end - at) as u32;
    ((1 << count) - 1) << (at & 3)
}

/// Adds an access to those of a word.
#[inline(always)]
fn update(
    cell: &mut Cell,
    pool: (&mut Vec<Vec<Record>>, &mut Vec<u32>),
    new: Record,
    with: &Comparison<'_>,
    race: impl FnMut(Record),
) {
    let first = cell.first[0];
    // The thread accesses the word again, and has synchronized with no other thread since.
    if first.is_same_thread(new)
        && first.time() == new.time()
        && first.covers(new)
        && cell.first[1].bytes() == 0
        && first.bytes() != 0
    {
        return;
    }
    if first.bytes() == 0 {
        cell.first[0] = new;
        return;
    }
    if cell.absorbed != 0 {
        if !new.writes() && new.is_weak() && cell.absorbed == absorbed(new) {
            return;
        }
        if new.writes() || !new.is_weak() {
            cell.absorbed = 0;
        }
    }
    update_slowly(cell, pool, new, with, race);
}

/// Returns a number for the block and time of an access, which is not zero.
fn absorbed(record: Record) -> u32 {
    (record.block.wrapping_mul(0x9e37_79b1)
        ^ record.time().wrapping_mul(0x85eb_ca77)
        ^ record.bytes())
        | 1
}

#[inline(never)]
fn update_slowly(
    cell: &mut Cell,
    (lists, spare): (&mut Vec<Vec<Record>>, &mut Vec<u32>),
    new: Record,
    with: &Comparison<'_>,
    mut race: impl FnMut(Record),
) {
    let mut is_needed = true;
    // Whether an access is kept.
    let mut keep = |old: Record| {
        if old.bytes() & new.bytes() == 0 {
            return true;
        }
        let is_same = old.is_same_thread(new);
        let is_before = is_same
            || old.block == new.block && old.time() < with.own
            || with.clock.knows(old.who(), old.time());
        if !is_before {
            if old.conflicts(new, with.cluster) {
                race(old);
            }
            return true;
        }
        if is_same && old.time() == new.time() && old.covers(new) {
            is_needed = false;
            return true;
        }
        !new.covers(old)
    };
    let mut kept: [Record; KEPT + 1] = [Record::default(); KEPT + 1];
    let mut count = 0;
    for old in cell.first {
        if old.bytes() != 0 && keep(old) {
            kept[count] = old;
            count += 1;
        }
    }
    if cell.more != 0 {
        for old in &lists[cell.more as usize - 1] {
            if keep(*old) {
                kept[count] = *old;
                count += 1;
            }
        }
    }
    if is_needed {
        kept[count] = new;
        count += 1;
    }
    if count > KEPT {
        let is_read = !new.writes() && new.is_weak();
        let drop = superfluous(&kept[..count]);
        kept.copy_within(drop + 1..count, drop);
        count -= 1;
        let of_block = |its: &&Record| its.block == new.block && its.time() == new.time();
        if is_read && (drop == count || kept[..count].iter().filter(of_block).count() >= 2) {
            cell.absorbed = absorbed(new);
        }
    }
    cell.first = [Record::default(); 2];
    cell.first[..count.min(2)].copy_from_slice(&kept[..count.min(2)]);
    if count > 2 {
        if cell.more == 0 {
            cell.more = spare.pop().unwrap_or_else(|| {
                lists.push(Vec::with_capacity(KEPT - 2));
                lists.len() as u32
            });
        }
        let list = &mut lists[cell.more as usize - 1];
        list.clear();
        list.extend_from_slice(&kept[2..count]);
    } else if cell.more != 0 {
        lists[cell.more as usize - 1].clear();
    }
}

/// Returns the index of an access that is forgotten because a word has too many: a read of the block with the most of
/// them, if there are more than two, else the newest. Two accesses of a block are enough to find that a write of any of
/// its threads is not ordered after a barrier.
fn superfluous(records: &[Record]) -> usize {
    let last = records.len() - 1;
    let mut most = (2, last);
    for (at, record) in records.iter().enumerate() {
        if record.writes() {
            continue;
        }
        let count = records.iter().filter(|its| its.block == record.block && !its.writes()).count();
        if count > most.0 {
            most = (count, at);
        }
    }
    most.1
}
