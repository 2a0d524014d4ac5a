//! The accesses to memory that later operations may conflict with.
//!
//! The log has a list of segments of addresses. A segment has the accesses to its bytes that no later access
//! makes superfluous: an access is removed when a later one to the same bytes is ordered after it and conflicts
//! with everything that it conflicts with. An operation that races with the removed access then races with the
//! later one too, so that at least one race on the bytes is found. The number of accesses in a segment is
//! therefore limited by the number of operations that can run at the same time.

use super::order::{Operation, Order};
use super::report::{Access, ThreadAccess};
use super::sites::Sites;
use super::sources::Sources;
use crate::account::note_limit;
use cuda_ptx::Program;
use cuda_ptx::check::SiteId;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of segments. If there are more, the accesses of the older operations are forgotten.
const SEGMENTS: usize = 1 << 16;

/// One access of an operation.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) operation: Arc<Operation>,
    pub(super) access: Access,
    /// The addresses of the whole access, of which a segment may be a part. The operation accesses all of them.
    pub(super) bytes: Range<u64>,
}

impl Entry {
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.operation, &other.operation) && self.access == other.access
    }
}

#[derive(Clone, Debug)]
struct Segment {
    end: u64,
    entries: Vec<Entry>,
}

impl Segment {
    /// Adds the bytes of the next segment, which has the same accesses.
    fn append(&mut self, next: &Self) {
        self.end = next.end;
        for (own, its) in self.entries.iter_mut().zip(&next.entries) {
            // Both contain the address at which the segments meet, or end or start there.
            own.bytes = own.bytes.start.min(its.bytes.start)..own.bytes.end.max(its.bytes.end);
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        let both = self.entries.iter().zip(&other.entries);
        self.entries.len() == other.entries.len() && both.into_iter().all(|(a, b)| a.is_same(b))
    }
}

/// Two accesses that conflict and that no order connects.
#[derive(Clone, Debug)]
pub(crate) struct Conflict {
    /// The access that was made first, or after [`sort`](Self::sort), whose operation was enqueued first.
    pub(super) earlier: Entry,
    pub(super) later: Entry,
    /// The first addresses that both access.
    pub(super) overlap: Range<u64>,
}

impl Conflict {
    /// Orders the accesses as their operations were enqueued.
    pub(crate) fn sort(&mut self) {
        if self.earlier.operation.number > self.later.operation.number {
            std::mem::swap(&mut self.earlier, &mut self.later);
        }
    }

    pub(crate) fn overlap(&self) -> Range<u64> {
        self.overlap.clone()
    }

    /// Returns the conflict between the running copy, which reads pinned memory, and the program, which has
    /// written a part of it. Returns `None` if no operation is running.
    pub(crate) fn with_program(
        log: &AccessLog,
        read: Range<u64>,
        written: Range<u64>,
    ) -> Option<Self> {
        Some(Self {
            earlier: Entry { operation: log.current.clone()?, access: Access::Read, bytes: read },
            later: Entry {
                operation: Arc::new(Operation::of_program()),
                access: Access::Write,
                bytes: written.clone(),
            },
            overlap: written,
        })
    }

    /// Returns the addresses of the allocation if one of the operations allocates or frees it.
    pub(crate) fn allocation(&self) -> Option<Range<u64>> {
        let both = [&self.earlier, &self.later].into_iter();
        let mut its = both.filter(|its| matches!(its.access, Access::Allocate | Access::Free));
        its.next().map(|its| its.bytes.clone())
    }

    /// Returns the conflict between the allocation of memory, which has not run, and an access to it.
    pub(crate) fn with_allocation(
        allocation: Operation,
        memory: Range<u64>,
        operation: &Arc<Operation>,
        access: Access,
        bytes: Range<u64>,
    ) -> Self {
        Self {
            earlier: Entry {
                operation: Arc::new(allocation),
                access: Access::Allocate,
                bytes: memory,
            },
            later: Entry { operation: Arc::clone(operation), access, bytes: bytes.clone() },
            overlap: bytes,
        }
    }
}

/// The accesses so far, and the operation that is running.
#[derive(Debug, Default)]
pub(crate) struct AccessLog {
    segments: BTreeMap<u64, Segment>,
    pub(crate) current: Option<Arc<Operation>>,
    /// The access of all accesses of the operation that is running, if it is not that of each one.
    pub(crate) mode: Option<Access>,
    /// Whether the operation that is running has written host memory as a signal.
    pub(crate) signals_host: bool,
    /// Accesses to stream-ordered memory whose allocation has not run: the address of the memory and its
    /// end, the access, and its addresses.
    pub(crate) unready: Vec<(Range<u64>, Access, Range<u64>)>,
    /// The sources of copies that have not run.
    pub(crate) sources: Sources,
    /// The instructions and threads of the accesses of kernels.
    sites: Sites,
    has_forgotten: bool,
}

impl AccessLog {
    /// Adds an access of the current operation, and returns the earlier accesses that it races with.
    pub(crate) fn add(&mut self, bytes: Range<u64>, access: Access) -> Vec<Conflict> {
        let Some(operation) = self.current.clone() else {
            return Vec::new();
        };
        let entry = Entry { operation, access: self.mode.unwrap_or(access), bytes: bytes.clone() };
        let mut conflicts: Vec<Conflict> = Vec::new();
        let mut made: Vec<(u64, Segment)> = Vec::new();
        let mut at = bytes.start;
        for (start, mut segment) in self.take(&bytes) {
            if at < start {
                push(&mut made, at, start, vec![entry.clone()]);
            }
            at = segment.end;
            let overlap = start..segment.end;
            update(&mut segment.entries, &entry, |earlier| {
                let is_known = |its: &&mut Conflict| its.earlier.is_same(earlier);
                match conflicts.iter_mut().find(is_known) {
                    // Only the first overlap is reported, whole.
                    Some(known) if known.overlap.end == overlap.start => {
                        known.overlap.end = overlap.end;
                    }
                    Some(_) => {}
                    None => conflicts.push(Conflict {
                        earlier: earlier.clone(),
                        later: entry.clone(),
                        overlap: overlap.clone(),
                    }),
                }
            });
            push(&mut made, start, segment.end, segment.entries);
        }
        if at < bytes.end {
            push(&mut made, at, bytes.end, vec![entry]);
        }
        self.put(made);
        conflicts
    }

    /// Notes that the current operation runs a kernel by its PTX.
    pub(crate) fn begin_kernel(&mut self, program: &Arc<Program>, kernel: usize, block: [u32; 3]) {
        if let Some(operation) = &self.current {
            self.sites.begin(operation.number, Arc::clone(program), kernel, block);
        }
    }

    /// Notes which thread of the kernel makes the next access.
    pub(crate) fn note_site(&mut self, site: SiteId, bytes: &Range<u64>, access: Access) {
        if let Some(operation) = &self.current {
            self.sites.add(operation.number, site, bytes, self.mode.unwrap_or(access));
        }
    }

    /// Returns the accesses of threads of the kernels of a conflict.
    pub(crate) fn sites(&self, conflict: &Conflict) -> [Option<ThreadAccess>; 2] {
        let Conflict { earlier, later, overlap } = conflict;
        [earlier, later].map(|its| self.sites.find(its.operation.number, its.access, overlap))
    }

    /// Returns the operations that wrote bytes last.
    pub(crate) fn writers(&self, bytes: &Range<u64>) -> Vec<Arc<Operation>> {
        let below = self.segments.range(..bytes.end).rev();
        let its = below.take_while(|(_, its)| its.end > bytes.start);
        let entries = its.flat_map(|(_, its)| &its.entries);
        let writes = entries.filter(|its| its.access != Access::Read);
        writes.map(|its| Arc::clone(&its.operation)).collect()
    }

    /// Returns the operations of which there are accesses.
    #[cfg(test)]
    pub(super) fn operations(&self) -> Vec<Arc<Operation>> {
        let entries = self.segments.values().flat_map(|its| &its.entries);
        let mut all: Vec<_> = entries.map(|its| Arc::clone(&its.operation)).collect();
        all.sort_unstable_by_key(|its| its.number);
        all.dedup_by_key(|its| its.number);
        all
    }

    /// Forgets the accesses to addresses at which there is other memory from now on.
    pub(crate) fn forget(&mut self, bytes: &Range<u64>) {
        self.take(bytes);
    }

    /// Forgets what no later operation can conflict with. No work may be enqueued that has not run: all
    /// later operations are then ordered after everything that the host knows.
    pub(crate) fn forget_known(&mut self, order: &Order) {
        if order.host_knows_all() {
            self.segments.clear();
            self.sites.clear();
        } else if self.segments.len() > SEGMENTS / 4 {
            self.retain(|its| !order.host_knows(&its.operation));
        }
    }

    fn retain(&mut self, keep: impl Fn(&Entry) -> bool) {
        self.segments.retain(|_, segment| {
            segment.entries.retain(&keep);
            !segment.entries.is_empty()
        });
    }

    /// Removes the segments of a range, split at its ends.
    fn take(&mut self, bytes: &Range<u64>) -> Vec<(u64, Segment)> {
        let below = self.segments.range(..bytes.end).rev();
        let its = below.take_while(|(_, its)| its.end > bytes.start);
        let mut starts: Vec<u64> = its.map(|(start, _)| *start).collect();
        starts.reverse();
        let mut taken = Vec::new();
        for mut start in starts {
            let Some(mut segment) = self.segments.remove(&start) else {
                continue;
            };
            if start < bytes.start {
                let before = Segment { end: bytes.start, entries: segment.entries.clone() };
                self.segments.insert(start, before);
                start = bytes.start;
            }
            if segment.end > bytes.end {
                let after = Segment { end: segment.end, entries: segment.entries.clone() };
                self.segments.insert(bytes.end, after);
                segment.end = bytes.end;
            }
            taken.push((start, segment));
        }
        taken
    }

    /// Puts segments back, joined with their neighbors if these have the same accesses.
    fn put(&mut self, made: Vec<(u64, Segment)>) {
        for (mut start, mut segment) in made {
            let before = self.segments.range_mut(..start).next_back();
            let joined = before.filter(|(_, its)| its.end == start && its.is_same(&segment));
            if let Some((first, its)) = joined {
                its.append(&segment);
                (start, segment) = (*first, its.clone());
            }
            let after = self.segments.get(&segment.end);
            if let Some(its) = after.filter(|its| its.is_same(&segment)).cloned() {
                self.segments.remove(&segment.end);
                segment.append(&its);
            }
            self.segments.insert(start, segment);
        }
        if self.segments.len() > SEGMENTS {
            self.forget_older_half();
        }
    }

    fn forget_older_half(&mut self) {
        let entries = self.segments.values().flat_map(|its| &its.entries);
        let mut numbers: Vec<u64> = entries.map(|its| its.operation.number).collect();
        numbers.sort_unstable();
        let middle = numbers.get(numbers.len() / 2).copied().unwrap_or(0);
        self.retain(|its| its.operation.number > middle);
        if !self.has_forgotten {
            self.has_forgotten = true;
            note_limit(format!(
                "the race detector has {SEGMENTS} parts of memory with different accesses, and \
                 forgets the older half: it may miss races"
            ));
        }
    }
}

/// Adds an access to those of a segment, and calls `found` for each access that it races with.
fn update(entries: &mut Vec<Entry>, new: &Entry, mut found: impl FnMut(&Entry)) {
    let mut is_needed = true;
    entries.retain(|earlier| {
        if Arc::ptr_eq(&earlier.operation, &new.operation) {
            is_needed &= !earlier.access.covers(new.access);
            return !new.access.covers(earlier.access) || earlier.access == new.access;
        }
        if earlier.operation.is_before(&new.operation) {
            return !new.access.covers(earlier.access);
        }
        // A copy that a call makes itself may follow an operation that is ordered after it.
        if new.operation.is_before(&earlier.operation) {
            is_needed &= !earlier.access.covers(new.access);
            return true;
        }
        if earlier.access.conflicts(new.access) {
            found(earlier);
        }
        true
    });
    if is_needed {
        entries.push(new.clone());
    }
}

/// Appends a segment, joined with the last one if both have the same accesses.
fn push(made: &mut Vec<(u64, Segment)>, start: u64, end: u64, entries: Vec<Entry>) {
    let segment = Segment { end, entries };
    match made.last_mut() {
        Some((_, last)) if last.end == start && last.is_same(&segment) => last.append(&segment),
        _ => made.push((start, segment)),
    }
}
