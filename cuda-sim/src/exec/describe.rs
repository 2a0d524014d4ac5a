//! What the detection of races learns about an operation before and after it runs.

use super::{Executor, Program, Work};
use crate::memory::Memory;
use crate::races::{Access, Conflict, Described, Operation};
use std::sync::Arc;

impl Work {
    /// Describes the work for the report of a race.
    pub(super) fn described(&self) -> Described {
        let what = match self {
            Self::Kernel(_) => "a kernel",
            // The rows of a 2-D fill.
            Self::All(parts) if matches!(parts.first(), Some(Self::Fill { .. })) => "a fill",
            Self::CopyIn { .. }
            | Self::CopyInPinned { .. }
            | Self::CopyOut { .. }
            | Self::CopyInHost { .. }
            | Self::CopyOutHost { .. }
            | Self::CopyOnDevice { .. }
            | Self::CopyOnHost { .. }
            | Self::CopyByCall
            | Self::Fabric(_)
            | Self::All(_) => "a copy",
            Self::Fill { .. } => "a fill",
            Self::Arrive(_) | Self::Leave(_) => "a collective operation",
            Self::Decompress(_) => "a decompression",
            Self::WriteValue { .. } | Self::ReduceValue { .. } | Self::WaitValue { .. } => {
                "a stream memory operation"
            }
            Self::Allocate(_) => "an allocation",
            Self::Free(_) => "a free",
            Self::Attach(..)
            | Self::SetConditionals(_)
            | Self::Conditional(_)
            | Self::EndOfBody(_)
            | Self::Record { .. }
            | Self::WaitFor { .. }
            | Self::HostFn { .. }
            | Self::Nothing => "",
        };
        Described {
            what,
            kernel: match self {
                Self::Kernel(call) => Some(call.kernel.info.name.clone()),
                _ => None,
            },
            allocates: match self {
                Self::Allocate(address) => Some(*address),
                _ => None,
            },
            accesses: !what.is_empty(),
        }
    }

    /// Returns the source and the target of each copy within device memory.
    pub(crate) fn copies_on_device(&self) -> Vec<(u64, u64)> {
        match self {
            Self::CopyOnDevice { from, to, .. } => vec![(*from, *to)],
            Self::All(work) => work.iter().flat_map(Self::copies_on_device).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the addresses and lengths of the pinned memory that a copy reads when it runs.
    pub(super) fn pinned_sources(&self) -> Vec<(usize, usize)> {
        match self {
            Self::CopyInPinned { from, len, .. } => vec![(*from, *len)],
            Self::All(parts) => parts.iter().flat_map(Self::pinned_sources).collect(),
            _ => Vec::new(),
        }
    }
}

impl Executor {
    /// Notes the sources of the copies from pinned memory that were enqueued since the last call.
    pub(crate) fn note_sources(&mut self, memory: &mut Memory) {
        if self.unnoted.is_empty() {
            return;
        }
        if let Some(log) = &mut memory.accesses {
            log.sources.retain(|id| self.operations.contains_key(&id));
        }
        for id in std::mem::take(&mut self.unnoted) {
            let work = self.operations.get(&id).map(|its| &its.work);
            for (from, len) in work.map(Work::pinned_sources).unwrap_or_default() {
                memory.note_source(id, from, len);
            }
        }
    }

    /// Called before an operation runs. Its accesses to memory are recorded until
    /// [`end_observed`](Self::end_observed), if races are detected.
    pub(super) fn begin_observed(
        &mut self,
        id: u64,
        memory: &mut Memory,
    ) -> Option<Arc<Operation>> {
        let (order, log) = (self.order.as_mut()?, memory.accesses.as_mut()?);
        let work = self.operations.get(&id).map(|its| &its.work);
        let mode = match work {
            Some(Work::WriteValue { .. } | Work::ReduceValue { .. }) => {
                Some(Access::StreamOperation)
            }
            _ => None,
        };
        let word = match work {
            Some(Work::WaitValue { at, size, .. }) => Some((*at, *size)),
            _ => None,
        };
        log.mode = mode;
        if let Some((at, size)) = word {
            let (place, is_of_host) = memory.racing_place(at, size);
            let writers = memory.accesses.as_ref().map(|log| log.writers(&place));
            order.order_after_writers(id, &writers.unwrap_or_default(), is_of_host);
        }
        let racing = order.begin(id);
        if let Some(log) = memory.accesses.as_mut() {
            log.current.clone_from(&racing);
        }
        racing
    }

    /// Called after the operation ran.
    pub(super) fn end_observed(&mut self, racing: Option<Arc<Operation>>, memory: &mut Memory) {
        let (Some(order), Some(log)) = (self.order.as_mut(), memory.accesses.as_mut()) else {
            return;
        };
        log.mode = None;
        let signals_host = std::mem::take(&mut log.signals_host);
        if let Some(racing) = racing.as_ref().filter(|_| signals_host) {
            order.host_learns_from(racing);
        }
        self.end_accesses(memory);
        if racing.is_some() {
            self.last_racing = racing;
        }
    }

    /// Called after the last access of an operation. Reports its accesses to memory whose allocation has not
    /// run.
    pub(crate) fn end_accesses(&mut self, memory: &mut Memory) {
        let (Some(order), Some(log)) = (self.order.as_mut(), memory.accesses.as_mut()) else {
            return;
        };
        let unready = std::mem::take(&mut log.unready);
        let Some(racing) = log.current.take() else {
            return;
        };
        for (allocation, access, bytes) in unready {
            if let Some(its) = order.pending_allocation(allocation.start) {
                let conflict = Conflict::with_allocation(its, allocation, &racing, access, bytes);
                memory.report_race(conflict);
            }
        }
    }

    /// Enqueues the work of a graph that the kernel that ran last has launched. It is ordered after the
    /// kernel.
    pub(crate) fn start_after_kernel(&mut self, program: &Program) -> Vec<u64> {
        if let (Some(order), Some(last)) = (self.order.as_mut(), &self.last_racing) {
            order.begin_source_after(last);
        }
        self.source = Some(self.last_function);
        let steps = self.start(program);
        self.end_source();
        steps
    }
}
