//! Memory of allocation nodes. A node has an address from the time it is added, and memory there only
//! between an allocation and a free that a launch enqueues.

use super::{ALIGNMENT, Allocation, BASE, GAP, Kind, Memory};
use cuda_sys::CUresult;
use std::collections::{BTreeMap, BTreeSet};

/// A reserved address range.
#[derive(Clone, Copy, Debug)]
struct Reservation {
    size: usize,
    context: usize,
    device: usize,
    /// Number of nodes of graphs and executable graphs that have the address.
    holders: usize,
    /// The graph of the allocation node.
    graph: usize,
    /// Whether the graph of the allocation node cannot get a free node.
    refuses_free: bool,
}

#[derive(Debug, Default)]
pub(super) struct GraphMemory {
    reservations: BTreeMap<u64, Reservation>,
    devices: BTreeMap<usize, Usage>,
    /// Device, bytes and handle of each executable graph that was launched and allocates memory.
    launched: BTreeSet<(usize, u64, usize)>,
}

/// The memory of a device's graphs, in bytes.
#[derive(Debug, Default)]
struct Usage {
    live: u64,
    reserved: u64,
    used_high: u64,
    reserved_high: u64,
}

/// Graphs reserve memory in multiples of this size. Unverified.
const PORTION: u64 = 2 << 20;

impl Memory {
    /// Returns an address range for an allocation node.
    pub(crate) fn reserve_for_graph(&mut self, size: usize, context: usize, device: usize) -> u64 {
        let address = BASE + self.next;
        // A real driver reserves the range of a free node again for later nodes of its graph. Here each
        // range is used for one node, so the use of a stale address can be detected.
        self.next += (size as u64 + GAP).next_multiple_of(ALIGNMENT);
        let reservation =
            Reservation { size, context, device, holders: 1, graph: 0, refuses_free: false };
        self.graph.reservations.insert(address, reservation);
        address
    }

    pub(crate) fn hold_reservation(&mut self, address: u64) {
        if let Some(its) = self.graph.reservations.get_mut(&address) {
            its.holders += 1;
        }
    }

    pub(crate) fn release_reservation(&mut self, address: u64) {
        let Some(its) = self.graph.reservations.get_mut(&address) else {
            return;
        };
        its.holders -= 1;
        if its.holders == 0 {
            self.graph.reservations.remove(&address);
        }
    }

    /// Sets the graph of the allocation node.
    pub(crate) fn set_graph_of_node(&mut self, address: u64, graph: usize) {
        if let Some(its) = self.graph.reservations.get_mut(&address) {
            its.graph = graph;
        }
    }

    /// Notes that the graph of the allocation node cannot get a free node from now on.
    pub(crate) fn refuse_free_node(&mut self, address: u64) {
        if let Some(its) = self.graph.reservations.get_mut(&address) {
            its.refuses_free = true;
        }
    }

    /// Returns whether an allocation node has this address, and a graph can get a node that frees it.
    ///
    /// Measured with driver 580: the graph of the allocation node cannot, once it was instantiated or another
    /// graph has a free node. Another graph can, also the parent of a moved child graph.
    pub(crate) fn is_freeable_in(&self, address: u64, graph: usize) -> bool {
        let reservation = self.graph.reservations.get(&address);
        reservation.is_some_and(|its| its.graph != graph || !its.refuses_free)
    }

    /// Returns whether `len` bytes are in the range of one allocation node.
    pub(crate) fn is_reserved(&self, address: u64, len: u64) -> bool {
        let below = self.graph.reservations.range(..=address).next_back();
        below.is_some_and(|(start, its)| (address - start).saturating_add(len) <= its.size as u64)
    }

    /// Returns whether `len` bytes start in an allocation and end after it, so that a captured fill cannot be
    /// instantiated. Memory of an allocation node is part of a larger range: the H200 accepts 4 MiB and refuses 32 MiB.
    pub(crate) fn exceeds(&self, address: u64, len: u64) -> bool {
        if self.is_reserved(address, 1) {
            return len >= 32 << 20 && !self.is_reserved(address, len);
        }
        let memory = self.containing(address);
        memory.is_some_and(|(start, its)| {
            (address - start).saturating_add(len) > its.bytes.len() as u64
        })
    }

    /// Returns whether memory is allocated at the address after all work that was enqueued so far.
    pub(crate) fn will_be_live(&self, address: u64) -> bool {
        let kind = self.device.get(&address).map(|its| its.kind);
        matches!(kind, Some(Kind::Ordered { freed: false, .. } | Kind::Plain))
    }

    /// Allocates the memory of a node. It can be used once [`make_ready`](Self::make_ready) has run.
    /// Returns whether the memory is new, rather than that of an earlier launch whose free has not run.
    pub(crate) fn allocate_for_graph(
        &mut self,
        address: u64,
        limit: u64,
    ) -> Result<bool, CUresult> {
        let known = self.graph.reservations.get(&address).copied();
        let its = known.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if let Some(allocation) = self.device.get_mut(&address) {
            // Its free was enqueued and has not run.
            if let Kind::Ordered { freed, .. } = &mut allocation.kind {
                *freed = false;
            }
            return Ok(false);
        }
        let size = its.size as u64;
        let out_of_memory = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        if self.used(its.device).saturating_add(size) > limit {
            return Err(out_of_memory);
        }
        let bytes = self.new_contents(size).ok_or(out_of_memory)?;
        let kind = Kind::Ordered { ready: false, freed: false };
        let allocation = Allocation::new(kind, (its.context, its.device), bytes, self.new_id());
        self.insert(address, Allocation { is_of_graph: true, ..allocation });
        self.graph.devices.entry(its.device).or_default().live += size;
        Ok(true)
    }

    /// Takes back an allocation that no work uses yet.
    pub(crate) fn cancel_for_graph(&mut self, address: u64, is_new: bool) {
        if is_new {
            self.free(address);
        } else if let Some(allocation) = self.device.get_mut(&address) {
            if let Kind::Ordered { freed, .. } = &mut allocation.kind {
                *freed = true;
            }
        }
    }

    /// Takes back a free that was not enqueued.
    pub(crate) fn cancel_free(&mut self, address: u64) {
        if let Some(allocation) = self.device.get_mut(&address) {
            if let Kind::Ordered { freed, .. } = &mut allocation.kind {
                *freed = false;
                allocation.frees -= 1;
            }
        }
    }

    /// Makes memory usable whose allocation was enqueued.
    pub(crate) fn make_ready(&mut self, address: u64) -> Result<(), String> {
        let Some(allocation) = self.device.get_mut(&address) else {
            return Ok(());
        };
        if let Kind::Ordered { ready, .. } = &mut allocation.kind {
            if *ready && allocation.is_of_graph {
                return Err(format!(
                    "the memory of a graph at {address:#x} is allocated again before its free has run"
                ));
            }
            *ready = true;
        }
        Ok(())
    }

    /// Records that a free of stream-ordered memory is enqueued.
    pub(crate) fn note_free(&mut self, address: u64) {
        if let Some(allocation) = self.device.get_mut(&address) {
            if let Kind::Ordered { freed, .. } = &mut allocation.kind {
                *freed = true;
                allocation.frees += 1;
            }
        }
    }

    /// Runs a free of stream-ordered memory.
    pub(crate) fn free_in_order(&mut self, address: u64) {
        let Some(allocation) = self.device.get_mut(&address) else {
            return;
        };
        allocation.frees = allocation.frees.saturating_sub(1);
        match &mut allocation.kind {
            // A later launch allocates the same memory again.
            Kind::Ordered { ready, freed } if !*freed || allocation.frees != 0 => {
                *ready = false;
                allocation.bytes.reset();
                let end = address + allocation.bytes.len() as u64;
                self.clear_poison(address..end);
            }
            _ => {
                self.free(address);
            }
        }
    }

    /// Called when memory of a graph is freed.
    pub(super) fn forget_live(&mut self, device: usize, size: u64) {
        if let Some(usage) = self.graph.devices.get_mut(&device) {
            usage.live -= size;
        }
    }

    /// Records that an executable graph that allocates memory is launched. Returns the bytes that it uses
    /// on each device.
    pub(crate) fn note_graph_launch(
        &mut self,
        executable: usize,
        allocations: &[u64],
    ) -> Vec<(usize, u64)> {
        let mut sizes: BTreeMap<usize, u64> = BTreeMap::new();
        for address in allocations {
            if let Some(its) = self.graph.reservations.get(address) {
                *sizes.entry(its.device).or_default() += its.size as u64;
            }
        }
        for (device, bytes) in sizes.iter().map(|(device, bytes)| (*device, *bytes)) {
            self.graph.launched.insert((device, bytes, executable));
            let used = self.used_by_graphs(device);
            let usage = self.graph.devices.entry(device).or_default();
            usage.used_high = usage.used_high.max(used);
            usage.reserved = usage.reserved.max(used.next_multiple_of(PORTION));
            usage.reserved_high = usage.reserved_high.max(usage.reserved);
        }
        sizes.into_iter().collect()
    }

    /// Called when an executable graph that allocates memory is destroyed.
    pub(crate) fn forget_graph_launch(&mut self, executable: usize, sizes: &[(usize, u64)]) {
        for (device, bytes) in sizes {
            self.graph.launched.remove(&(*device, *bytes, executable));
        }
    }

    /// Returns the memory that a device's graphs use. Graphs that run one after another share memory
    /// (measured), so it is that of the largest graph that was launched, or of the live allocations.
    fn used_by_graphs(&self, device: usize) -> u64 {
        let range = (device, 0, 0)..=(device, u64::MAX, usize::MAX);
        let largest = self.graph.launched.range(range).next_back();
        let live = self.graph.devices.get(&device).map_or(0, |its| its.live);
        largest.map_or(0, |(_, bytes, _)| *bytes).max(live)
    }

    /// Returns the used and reserved bytes of a device's graphs, each followed by its high-water mark.
    pub(crate) fn graph_usage(&self, device: usize) -> [u64; 4] {
        let used = self.used_by_graphs(device);
        let its = self.graph.devices.get(&device);
        its.map_or([used, used, 0, 0], |its| [used, its.used_high, its.reserved, its.reserved_high])
    }

    /// Sets the high-water marks of a device's graphs to the current values.
    pub(crate) fn reset_graph_high(&mut self, device: usize, is_reserved: bool) {
        let used = self.used_by_graphs(device);
        let usage = self.graph.devices.entry(device).or_default();
        match is_reserved {
            true => usage.reserved_high = usage.reserved,
            false => usage.used_high = used,
        }
    }

    /// Returns unused memory of a device's graphs to the system.
    pub(crate) fn trim_graphs(&mut self, device: usize) {
        if let Some(usage) = self.graph.devices.get_mut(&device) {
            usage.reserved = usage.live.next_multiple_of(PORTION);
        }
    }
}
