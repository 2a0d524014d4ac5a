#![doc = include_str!("sync.md")]

use super::{Arrival, Clusters, Event, Offset, Reporter};
use crate::check::{Address, Check};
use crate::device::Access;
use crate::engine::mbarrier::State;
use crate::engine::registers::{ALL, LANES, each_lane};
use crate::engine::together::shuffle;
use crate::engine::warp::Warp;
use crate::program::{Barrier, CopyGroup, Mbarrier, Together};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;

/// The largest count of an `mbarrier`, and the most bytes that it may wait for.
const LIMIT: u64 = (1 << 20) - 1;

/// The state of the check.
#[derive(Debug, Default)]
pub(super) struct Sync {
    blocks: Clusters<Vec<Block>>,
    /// Whether a block had a copy or an `mbarrier` object.
    sees_accesses: bool,
}

/// What the check knows of a block.
#[derive(Debug, Default)]
struct Block {
    /// The arrivals at the current phase of each barrier.
    barriers: [Vec<Arrival>; 16],
    /// The offsets of valid `mbarrier` objects.
    objects: BTreeSet<u32>,
    copies: Copies,
    /// The bulk copies of each thread from shared memory that are not complete.
    stores: HashMap<u32, Stores>,
    /// The lanes of each warp that arrived at the barrier of the cluster and have not waited.
    arrived: BTreeMap<u32, u32>,
}

/// The asynchronous copies of a block.
#[derive(Debug, Default)]
struct Copies {
    /// For each word of shared memory, the number of the copy that accesses it plus one, or zero.
    marks: Vec<u32>,
    all: Vec<Copy>,
    /// The number of copies that are not complete.
    pending: usize,
    /// The copies of each thread that are not in a group, and its groups.
    threads: HashMap<u32, (Vec<u32>, VecDeque<Vec<u32>>)>,
    /// The copies that each `mbarrier` tracks.
    tracked: HashMap<u32, Vec<u32>>,
}

#[derive(Debug)]
struct Copy {
    event: Event,
    bytes: Range<u32>,
    /// Whether the copy reads the bytes.
    is_source: bool,
    is_complete: bool,
}

/// The bulk copies of a thread that are not in a group, and its groups.
#[derive(Debug, Default)]
struct Stores {
    open: Vec<Store>,
    groups: VecDeque<Vec<Store>>,
}

/// A bulk copy from shared memory.
#[derive(Debug)]
struct Store {
    event: Event,
    /// The number of the copy that reads shared memory, until it has.
    source: Option<u32>,
    /// The addresses of the targets.
    targets: Vec<Range<u64>>,
    is_reduction: bool,
}

impl Copies {
    /// Adds a copy, and returns its number.
    fn add(&mut self, event: Event, size: usize, bytes: Range<u32>, is_source: bool) -> u32 {
        self.marks.resize(size.div_ceil(4), 0);
        let number = self.all.len() as u32;
        for word in bytes.start / 4..bytes.end.div_ceil(4) {
            self.marks[word as usize] = number + 1;
        }
        self.all.push(Copy { event, bytes, is_source, is_complete: false });
        self.pending += 1;
        number
    }

    fn complete(&mut self, numbers: impl IntoIterator<Item = u32>) {
        for number in numbers {
            let Some(copy) = self.all.get_mut(number as usize).filter(|its| !its.is_complete)
            else {
                continue;
            };
            copy.is_complete = true;
            self.pending -= 1;
            for word in copy.bytes.start / 4..copy.bytes.end.div_ceil(4) {
                self.marks[word as usize] = 0;
            }
        }
        if self.pending == 0 {
            self.all.clear();
            self.threads.clear();
            self.tracked.clear();
        }
    }

    /// Returns the copy that conflicts with an access to the bytes and is not complete.
    fn of(&self, bytes: &Range<u32>, access: Access) -> Option<&Copy> {
        let words = self.marks.get((bytes.start / 4) as usize..bytes.end.div_ceil(4) as usize)?;
        let copies = words.iter().filter_map(|mark| self.all.get(mark.checked_sub(1)? as usize));
        copies.into_iter().find(|copy| !(copy.is_source && access == Access::Read))
    }
}

impl Sync {
    /// Continues with a cluster.
    pub(super) fn begin_unit(&mut self, number: u64, blocks: usize) {
        self.blocks.begin(number, || {
            let mut all = Vec::new();
            all.resize_with(blocks, Block::default);
            all
        });
    }

    pub(super) fn end_unit(&mut self) {
        self.blocks.end();
    }

    /// Returns whether ordinary accesses can be errors.
    pub(super) fn sees_accesses(&self) -> bool {
        self.sees_accesses
    }

    fn block(&mut self, event: Event) -> &mut Block {
        &mut self.blocks.current[event.rank]
    }

    /// Checks an ordinary access to shared memory.
    pub(super) fn access(
        &self,
        out: &mut Reporter<'_>,
        event: Event,
        at: Offset,
        len: u32,
        access: Access,
    ) {
        let block = &self.blocks.current[at.0];
        let bytes = at.1..at.1 + len;
        if block.copies.pending != 0 {
            if let Some(copy) = block.copies.of(&bytes, access) {
                let verb = if access == Access::Read { "read" } else { "written" };
                let until = match copy.is_source {
                    true => "asynchronous copy from it has read it",
                    false => "asynchronous copy to it is complete",
                };
                let text = || format!("shared memory is {verb} before the {until}");
                let copied = Some(copy.event);
                out.report((Check::Synccheck, text), event, copied, out.shared(at));
            }
        }
        let first = bytes.start.saturating_sub(7);
        if block.objects.range(first..bytes.end).next().is_some() {
            let text = || "an ordinary access to a valid mbarrier object".to_owned();
            out.report((Check::Synccheck, text), event, None, out.shared(at));
        }
    }

    pub(super) fn copy(&mut self, event: Event, size: usize, bytes: Range<u32>) {
        self.sees_accesses = true;
        let copies = &mut self.block(event).copies;
        let number = copies.add(event, size, bytes, false);
        copies.threads.entry(event.thread).or_default().0.push(number);
    }

    /// Notes a bulk copy to shared memory, whose bytes an `mbarrier` of the same block counts.
    pub(super) fn copy_bulk(
        &mut self,
        event: Event,
        shared: &[Vec<u8>],
        ((rank, offset), size): (Offset, u32),
        (of_barrier, barrier): Offset,
    ) {
        let Some(end) = end_in(shared, (rank, offset), size).filter(|_| rank == of_barrier) else {
            return;
        };
        self.sees_accesses = true;
        let copies = &mut self.blocks.current[rank].copies;
        let number = copies.add(event, shared[rank].len(), offset..end, false);
        copies.tracked.entry(barrier).or_default().push(number);
    }

    /// Notes a bulk copy from shared memory to the targets, which is in the next group of the thread.
    pub(super) fn store_bulk(
        &mut self,
        event: Event,
        shared: &[Vec<u8>],
        ((rank, offset), size): (Offset, u32),
        (targets, is_reduction): (Vec<Range<u64>>, bool),
    ) {
        let Some(end) = end_in(shared, (rank, offset), size) else { return };
        self.sees_accesses = true;
        let block = self.block(event);
        let source = Some(block.copies.add(event, shared[rank].len(), offset..end, true));
        let stores = block.stores.entry(event.thread).or_default();
        stores.open.push(Store { event, source, targets, is_reduction });
    }

    /// Returns whether accesses to global memory can be errors.
    pub(super) fn has_stores(&self) -> bool {
        self.blocks.current.iter().any(|block| !block.stores.is_empty())
    }

    /// Checks an access to global memory.
    pub(super) fn access_global(
        &self,
        out: &mut Reporter<'_>,
        event: Event,
        address: u64,
        len: u32,
        access: Access,
    ) {
        let end = address.wrapping_add(len.into());
        let threads = self.blocks.current.iter().flat_map(|block| block.stores.values());
        let mut stores = threads.flat_map(|its| its.groups.iter().flatten().chain(&its.open));
        let conflict = stores.find(|its| {
            !(its.is_reduction && access == Access::Atomic)
                && its.targets.iter().any(|target| target.start < end && address < target.end)
        });
        if let Some(store) = conflict {
            let verb = if access == Access::Read { "read" } else { "written" };
            let text = || format!("global memory is {verb} before the bulk copy to it is complete");
            let at = Some(Address::Global(address));
            out.report((Check::Synccheck, text), event, Some(store.event), at);
        }
    }

    /// Notes an instruction on the groups of a thread's bulk copies.
    fn bulk_group(&mut self, event: Event, step: CopyGroup) {
        let block = self.block(event);
        let Some(stores) = block.stores.get_mut(&event.thread) else { return };
        match step {
            CopyGroup::CommitBulk => stores.groups.push_back(std::mem::take(&mut stores.open)),
            CopyGroup::WaitBulk { pending, is_read } => {
                let count = stores.groups.len().saturating_sub(pending as usize);
                let done = stores.groups.iter_mut().take(count).flatten();
                block.copies.complete(done.filter_map(|its| its.source.take()));
                if !is_read {
                    stores.groups.drain(..count);
                }
                if stores.open.is_empty() && stores.groups.iter().all(Vec::is_empty) {
                    block.stores.remove(&event.thread);
                }
            }
            _ => {}
        }
    }

    /// Notes an instruction on the groups of a thread's copies.
    pub(super) fn copy_group(&mut self, event: Event, step: CopyGroup, barrier: Option<u32>) {
        if let CopyGroup::CommitBulk | CopyGroup::WaitBulk { .. } = step {
            return self.bulk_group(event, step);
        }
        let copies = &mut self.block(event).copies;
        let Some((open, groups)) = copies.threads.get_mut(&event.thread) else { return };
        let done: Vec<u32> = match step {
            CopyGroup::Commit => {
                groups.push_back(std::mem::take(open));
                return;
            }
            CopyGroup::Wait(pending) => {
                let count = groups.len().saturating_sub(pending as usize);
                groups.drain(..count).flatten().collect()
            }
            CopyGroup::WaitAll => groups.drain(..).flatten().chain(open.drain(..)).collect(),
            CopyGroup::Arrive(_) => {
                let all = groups.iter().flatten().chain(&*open).copied();
                if let Some(barrier) = barrier {
                    copies.tracked.entry(barrier).or_default().extend(all);
                }
                return;
            }
            CopyGroup::CommitBulk | CopyGroup::WaitBulk { .. } => return,
        };
        copies.complete(done);
    }

    /// Called when a thread knows that a phase of an `mbarrier` is over.
    pub(super) fn complete_copies(&mut self, (rank, barrier): Offset) {
        let copies = &mut self.blocks.current[rank].copies;
        let done = copies.tracked.remove(&barrier).unwrap_or_default();
        copies.complete(done);
    }

    pub(super) fn arrive(
        &mut self,
        out: &mut Reporter<'_>,
        event: Event,
        id: u32,
        arrival: Arrival,
    ) {
        let threads: u32 = out.launch.block.iter().product();
        if let Some(count) = arrival.expected {
            let most = threads.next_multiple_of(LANES as u32);
            let wrong = match count {
                0 => Some("it must be positive".to_owned()),
                _ if count % LANES as u32 != 0 => {
                    Some("it must be a multiple of the warp size, 32".to_owned())
                }
                _ if count > most => Some(format!("the block has {threads}")),
                _ => None,
            };
            if let Some(wrong) = wrong {
                let text = || format!("the barrier {id} expects {count} threads, but {wrong}");
                out.report((Check::Synccheck, text), event, None, None);
            }
        }
        let earlier = &mut self.block(event).barriers[id as usize];
        if let Some(first) = earlier.first() {
            let other = Some(of_arrival(event, first));
            let both = [first.barrier, arrival.barrier].map(is_reduction);
            if first.expected != arrival.expected {
                let count = |its: Option<u32>| {
                    its.map_or("all threads of the block".to_owned(), |its| {
                        format!("{its} threads")
                    })
                };
                let text = || {
                    format!(
                        "the barrier {id} expects {}, and {} at another thread",
                        count(arrival.expected),
                        count(first.expected)
                    )
                };
                out.report((Check::Synccheck, text), event, other, None);
            } else if both[0] != both[1] {
                let text = || {
                    format!("a reduction at the barrier {id}, which other threads use without one")
                };
                out.report((Check::Synccheck, text), event, other, None);
            }
            let is_twice = |its: &Arrival| its.warp == arrival.warp && its.mask & arrival.mask != 0;
            if let Some(twice) = earlier.iter().find(|its| is_twice(its)) {
                let text =
                    || format!("a thread arrives at the barrier {id} again before it is complete");
                let other = Some(of_arrival(event, twice));
                out.report((Check::Synccheck, text), event, other, None);
            }
        }
        earlier.push(arrival);
    }

    /// Checks the arrivals of a phase, which is complete. `alive` has the lanes of a warp that have not exited.
    pub(super) fn complete(
        &mut self,
        out: &mut Reporter<'_>,
        rank: usize,
        id: u32,
        alive: impl Fn(u32) -> u32,
    ) {
        let arrivals = &mut self.blocks.current[rank].barriers[id as usize];
        let Some(first) = arrivals.first() else { return };
        let is_whole = |its: &Arrival| its.mask == alive(its.warp) && its.expected.is_none();
        // The commonest phase: all lanes of each warp at once, and no number of threads.
        if first.expected.is_none() && arrivals.iter().all(is_whole) {
            arrivals.clear();
            return;
        }
        let arrivals = std::mem::take(arrivals);
        let block = out.event(rank, 0, 0);
        let mut warps: BTreeMap<u32, (u32, &Arrival)> = BTreeMap::new();
        for arrival in &arrivals {
            let (mask, first) = warps.entry(arrival.warp).or_insert((0, arrival));
            *mask |= arrival.mask;
            if first.pc != arrival.pc && (first.is_aligned || arrival.is_aligned) {
                let text = || {
                    format!(
                        "the threads of a warp diverge: they arrive at the barrier {id} from two \
                         instructions"
                    )
                };
                let both = [arrival, first].map(|its| of_arrival(block, its));
                out.report((Check::Synccheck, text), both[0], Some(both[1]), None);
            }
        }
        let mut count = 0;
        for (warp, (mask, first)) in &warps {
            let missing = alive(*warp) & !mask;
            count += if missing == 0 { LANES as u32 } else { mask.count_ones() };
            if missing != 0 && first.is_aligned {
                let text = || {
                    format!(
                        "the threads of a warp diverge: the lanes {missing:#010x} do not arrive at the \
                         barrier {id} with the others"
                    )
                };
                out.report((Check::Synccheck, text), of_arrival(block, first), None, None);
            }
        }
        if let (Some(expected), Some(last)) =
            (arrivals.first().and_then(|its| its.expected), arrivals.last())
        {
            let is_same = arrivals.iter().all(|its| its.expected == Some(expected));
            if count > expected && is_same {
                let text = || {
                    format!("{count} threads arrive at the barrier {id}, which expects {expected}")
                };
                out.report((Check::Synccheck, text), of_arrival(block, last), None, None);
            }
        }
    }

    pub(super) fn arrive_at_cluster(
        &mut self,
        out: &mut Reporter<'_>,
        event: Event,
        warp: u32,
        mask: u32,
    ) {
        let arrived = self.block(event).arrived.entry(warp).or_default();
        if *arrived & mask != 0 {
            let text =
                || "a thread arrives at the barrier of the cluster again without a wait".to_owned();
            let event = of_lanes(event, *arrived & mask);
            out.report((Check::Synccheck, text), event, None, None);
        }
        *arrived |= mask;
    }

    pub(super) fn wait_for_cluster(
        &mut self,
        out: &mut Reporter<'_>,
        event: Event,
        warp: u32,
        (mask, is_complete): (u32, bool),
    ) {
        let arrived = self.block(event).arrived.entry(warp).or_default();
        let missing = mask & !*arrived;
        if missing != 0 {
            let text =
                || "a thread waits for the barrier of the cluster and has not arrived".to_owned();
            out.report((Check::Synccheck, text), of_lanes(event, missing), None, None);
        }
        if is_complete {
            *arrived &= !mask;
        }
    }

    /// Checks the mask of a function of lanes. `here` are those of `mask` that have the mask `members`.
    pub(super) fn meet(
        &mut self,
        out: &mut Reporter<'_>,
        event: Event,
        (here, mask): (u32, u32),
        members: u32,
    ) {
        let others = members & mask & !here;
        if others != 0 {
            let text = || {
                format!(
                    "the mask {members:#010x} names the lanes {others:#010x}, which execute the \
                     instruction with another mask"
                )
            };
            let other = Some(of_lanes(event, others));
            out.report((Check::Synccheck, text), of_lanes(event, here), other, None);
        }
    }

    /// Checks the lanes that a shuffle reads, and that an operation on matrices has all lanes.
    pub(super) fn execute(
        &mut self,
        out: &mut Reporter<'_>,
        event: Event,
        warp: &Warp,
        (here, members): (u32, u32),
        operation: &Together,
    ) {
        if matches!(operation, Together::Matrix(_)) && here != ALL {
            let missing = !here;
            let text = || {
                format!(
                    "all lanes of a warp must execute the instruction, and the lanes {missing:#010x} have \
                     exited or have no thread"
                )
            };
            out.report((Check::Synccheck, text), of_lanes(event, here), None, None);
        }
        let Together::Shuffle { kind, b, c, .. } = *operation else { return };
        let narrow = &warp.registers.narrow;
        let (b, c) = (&narrow[b as usize], &narrow[c as usize]);
        each_lane(here, |lane| {
            let (source, _) = shuffle(kind, lane as u32, b[lane], c[lane]);
            if here >> source & 1 == 0 {
                let why = match members >> source & 1 {
                    0 => format!("which is not in the mask {members:#010x}"),
                    _ => "which has exited or has no thread".to_owned(),
                };
                let text = || format!("a shuffle reads the lane {source}, {why}");
                out.report((Check::Synccheck, text), of_lanes(event, 1 << lane), None, None);
            }
        });
    }

    /// Checks an operation on an `mbarrier`. `narrow` returns a register of the thread.
    pub(super) fn mbarrier(
        &mut self,
        out: &mut Reporter<'_>,
        event: Event,
        at: Offset,
        operation: Mbarrier,
        state: &State,
        narrow: impl Fn(u32) -> u32,
    ) {
        self.sees_accesses = true;
        let objects = &mut self.blocks.current[at.0].objects;
        let is_valid = objects.contains(&at.1);
        let beyond = |count: u64| count == 0 || count > LIMIT;
        let wrong = match operation {
            Mbarrier::Init { count } => {
                let count = u64::from(narrow(count));
                objects.insert(at.1);
                match is_valid {
                    true => {
                        Some("mbarrier.init of a valid object, without mbarrier.inval".to_owned())
                    }
                    false => beyond(count)
                        .then(|| format!("the count {count} is not one of 1 to {LIMIT}")),
                }
            }
            _ if !is_valid => Some("the memory is not initialized as an mbarrier".to_owned()),
            Mbarrier::Inval => {
                objects.remove(&at.1);
                None
            }
            Mbarrier::ExpectTx { bytes } | Mbarrier::Arrive { expect: Some(bytes), .. }
                if state.bytes + i64::from(narrow(bytes)) > LIMIT as i64 =>
            {
                let more = narrow(bytes);
                Some(format!("{more} bytes more than {} exceed the limit {LIMIT}", state.bytes))
            }
            Mbarrier::Arrive { count, .. } => {
                let count = count.map_or(1, |count| u64::from(narrow(count)));
                match count {
                    0 => Some("an arrival with the count 0".to_owned()),
                    _ if count > state.pending => Some(format!(
                        "{count} arrivals at an mbarrier that expects {} more",
                        state.pending
                    )),
                    _ => None,
                }
            }
            _ => None,
        };
        if let Some(wrong) = wrong {
            out.report((Check::Synccheck, || wrong), event, None, out.shared(at));
        }
    }
}

/// Returns the end of bytes in the shared memory of a block. `None` if the access ends the kernel.
fn end_in(shared: &[Vec<u8>], (rank, offset): Offset, size: u32) -> Option<u32> {
    let len = shared.get(rank)?.len() as u32;
    (offset <= len).then(|| len.min(offset.saturating_add(size)))
}

fn is_reduction(barrier: Barrier) -> bool {
    !matches!(barrier, Barrier::Sync | Barrier::Arrive)
}

/// Returns the event of the first thread that arrives, in the block of another event.
fn of_arrival(block: Event, arrival: &Arrival) -> Event {
    Event { thread: arrival.first_thread(), pc: arrival.pc, ..block }
}

/// Returns the event of the first lane of a mask. That of `event` is the lane 0.
fn of_lanes(event: Event, mask: u32) -> Event {
    Event { thread: event.thread + mask.trailing_zeros() % LANES as u32, ..event }
}
