//! The memory of an expandable pool: a large range of reserved addresses, to which memory is mapped as the
//! pool grows.
//!
//! A block of freed memory at the end of the mapped part grows in place, and memory in the middle is
//! unmapped while its neighbors are in use. So the pool needs less memory than with slabs, whose free parts
//! cannot be merged.
//!
//! Unmapping waits for no work, and work that still uses the memory fails and ends all contexts of the
//! process. So only memory whose sync points are done is unmapped.

use super::heap::Growth;
use super::shared::Request;
use super::slow::{Pool, out_of_memory};
use super::thread_caches::Idle;
use cuda_safe::manager::is_out_of_memory;
use cuda_safe::memory::MemoryAccess;
use cuda_safe::virtual_memory::{
    Mapping, PhysicalMemory, PhysicalOptions, Reservation, unmap_after_work,
};
use cuda_safe::{Context, Device, Error, Result};

/// The number of times that the addresses of a pool exceed the memory of the device. Addresses take no
/// memory, and blocks of many sizes leave gaps between them.
const ADDRESSES: usize = 8;

/// The addresses of an expandable pool.
pub(super) struct Segment {
    reservation: Reservation,
    device: Device,
    /// The unit in which memory is mapped.
    granularity: usize,
}

/// Why memory was not mapped.
struct Unmapped {
    error: Error,
    /// Whether the addresses may still be mapped, so that they must not be used again.
    is_abandoned: bool,
}

impl From<Error> for Unmapped {
    #[inline]
    fn from(error: Error) -> Self {
        Self { error, is_abandoned: false }
    }
}

impl Segment {
    /// Reserves addresses for the memory of a context's device.
    #[inline]
    pub(super) fn new(context: &Context) -> Result<Self> {
        let device = context.device();
        let granularity = PhysicalOptions::new(device).granularity()?.max(1);
        let size = device.total_memory()?.saturating_mul(ADDRESSES);
        let size = size.max(granularity) / granularity * granularity;
        Ok(Self { reservation: Reservation::new(size)?, device, granularity })
    }

    #[inline]
    pub(super) fn address(&self) -> u64 {
        self.reservation.address()
    }

    #[inline]
    pub(super) fn size(&self) -> u64 {
        self.reservation.size() as u64
    }

    /// Maps memory to an address. The context's device can read and write it.
    #[inline]
    fn map(&self, address: u64, size: u64) -> Result<Mapping, Unmapped> {
        // Both are parts of the reservation, whose size is a `usize`.
        let (offset, size) = ((address - self.address()) as usize, size as usize);
        let memory = PhysicalMemory::new(self.device, size)?;
        let mapping = self.reservation.try_map(offset, memory);
        let mut mapping = mapping.map_err(Error::from)?;
        match mapping.set_access(self.device, MemoryAccess::ReadWrite) {
            Ok(()) => Ok(mapping),
            Err(error) => Err(Unmapped { error, is_abandoned: mapping.unmap().is_err() }),
        }
    }
}

/// A growth under way. Dropping it returns its addresses.
struct Growing<'a> {
    pool: &'a Pool,
    growth: Option<Growth>,
}

impl Drop for Growing<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(growth) = self.growth.take() {
            self.pool.lock().heap.undo_growth(growth);
        }
    }
}

impl Pool {
    /// Maps memory, and takes a block of it. The block begins in the free memory before it, if there is
    /// some.
    #[inline]
    pub(super) fn grow_segment(&self, segment: &Segment, request: &Request<'_>) -> Result<Idle> {
        let (growth, reserved) = {
            let mut shared = self.lock();
            let entry = request.entry(&shared.progress);
            let shared = &mut *shared;
            let granularity = segment.granularity as u64;
            let growth =
                shared.heap.begin_growth(request.bytes, granularity, entry, &shared.progress);
            (growth, shared.heap.reserved)
        };
        let Some(growth) = growth else {
            return Err(out_of_memory(segment.size(), reserved, request.bytes));
        };
        let (address, size) = (growth.address, growth.size);
        let mut growing = Growing { pool: self, growth: Some(growth) };
        self.move_idle(size);
        let taking = self.take(size)?;
        let mapping = match segment.map(address, size) {
            // The frees of host memory and managed memory are deferred.
            Err(Unmapped { error, .. })
                if is_out_of_memory(&error) && self.upstream().base().flush() =>
            {
                segment.map(address, size)
            }
            done => done,
        };
        let mapping = match mapping {
            Ok(mapping) => mapping,
            Err(Unmapped { error, is_abandoned }) => {
                if let Some(growth) = growing.growth.take_if(|_| is_abandoned) {
                    self.lock().heap.abandon_growth(growth);
                }
                return Err(error);
            }
        };
        if let Some(zones) = &self.zones {
            zones.add(address, size);
        }
        let mut shared = self.lock();
        shared.taking -= size;
        std::mem::forget(taking);
        shared.mappings.insert(address, mapping);
        shared.slabs_added += 1;
        let id = growing.growth.take().map(|growth| shared.heap.end_growth(growth));
        shared.reserved_peak = shared.reserved_peak.max(shared.heap.reserved);
        let id = id.ok_or(Error::InHostFunction)?;
        shared.heap.shrink(id, request.bytes);
        Ok(shared.idle(id))
    }

    /// Unmaps free memory before the pool maps more than ever before, so that fragmented memory is used
    /// elsewhere.
    #[inline]
    fn move_idle(&self, size: u64) {
        if self.is_held() {
            return;
        }
        let keep = {
            let shared = self.lock();
            let total = shared.heap.reserved + shared.taking + size;
            match total.checked_sub(shared.reserved_peak) {
                None | Some(0) => return,
                Some(excess) => shared.heap.free_bytes.saturating_sub(excess),
            }
        };
        self.unmap_idle(usize::try_from(keep).unwrap_or(usize::MAX));
    }

    /// Unmaps memory, from the largest free blocks, while more than `keep` bytes are cached. All work that
    /// used the memory must be done. Returns the number of bytes.
    #[inline]
    pub(super) fn unmap_idle(&self, keep: usize) -> usize {
        let mut free = self.frees.begin();
        let mut taken = Vec::new();
        {
            let mut shared = self.lock();
            let shared = &mut *shared;
            for (id, start, size) in shared.heap.done(&shared.progress) {
                let within = shared.mappings.range(start..start + size);
                let within = within.map(|(address, mapping)| (*address, mapping.size() as u64));
                let mut within: Vec<_> = within.collect();
                within.retain(|(address, bytes)| address + bytes <= start + size);
                // From the end, so that the rest of the block keeps its number.
                for (address, bytes) in within.into_iter().rev() {
                    let kept = usize::try_from(shared.heap.free_bytes).unwrap_or(usize::MAX);
                    if kept <= keep {
                        break;
                    }
                    if let Some(mapping) = shared.mappings.remove(&address) {
                        taken.push((shared.heap.take_range(id, address, bytes), mapping));
                    }
                }
            }
        }
        if !taken.is_empty() {
            free.mark_freed();
        }
        let mut bytes = 0;
        for (id, mapping) in taken {
            bytes += mapping.size();
            let unmapped = mapping.unmap();
            let mut shared = self.lock();
            match unmapped {
                Ok(memory) => {
                    shared.heap.unmapped(id);
                    drop(shared);
                    drop(memory);
                }
                // The mapping was dropped, and may be unmapped later. Its addresses are not used again.
                Err(_) => shared.heap.abandon(id),
            }
        }
        bytes
    }

    /// Unmaps all memory, after all work of the contexts that may use it.
    #[inline]
    pub(super) fn end_segment(&mut self) {
        let own = self.context().clone();
        let shared = self.shared_mut();
        let mappings = std::mem::take(&mut shared.mappings);
        let mut contexts = shared.progress.others();
        contexts.push(own);
        unmap_after_work(contexts, mappings.into_values().collect());
    }
}
