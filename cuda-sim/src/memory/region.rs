//! Memory as kernels access it that run by their PTX.

use super::{BASE, HostKind, Kind, Memory, Use};
use crate::races::Access;
use cuda_ptx::check::SiteId;
use std::ops::Range;

impl Memory {
    /// Returns a part of memory around some bytes that a kernel may access: its address on the device, its address on
    /// the host, and its size. Without detection of races it is the whole allocation, or the part of it between poisoned
    /// bytes.
    pub(crate) fn region_for(
        &mut self,
        (address, len): (u64, usize),
        wanted: Use,
        is_atomic: bool,
        by: SiteId,
    ) -> Result<(u64, usize, usize), String> {
        self.note_thread(by, (address, len), wanted, is_atomic);
        self.check_poison(address, len)?;
        // No reference to the bytes is made: other threads of the host access them as atomic words.
        let host = match self.containing(address) {
            None if address < BASE && self.is_virtual(address) => {
                self.virtual_place(address, len, wanted)?
            }
            None if address < BASE => self.host_place(address, len)?,
            _ => {
                let (start, offset) = self.device_place(address, len)?;
                self.device.get(&start).map_or(0, |its| its.bytes.address()) + offset
            }
        };
        if self.dead.contains(&self.containing(address).map_or(0, |(start, _)| start)) {
            return Err(format!("{len} bytes at {address:#x} were freed by the kernel"));
        }
        let region = if self.accesses.is_some() {
            (address, host, len)
        } else if let Some((start, allocation)) = self.containing(address) {
            (start, allocation.bytes.address(), allocation.bytes.len())
        } else if self.is_virtual(address) {
            (address, host, len)
        } else if let Some((start, at, its)) = self.host_around(address) {
            (address - (at - start) as u64, start, its.len)
        } else {
            (address, host, len)
        };
        let (start, host, size) = region;
        if start & 7 != host as u64 & 7 {
            return Err(format!("{address:#x} is not aligned as its memory on the host is"));
        }
        let part = self.part_around(address, start..start + size as u64);
        // Both are parts of the memory on the host.
        let (before, size) = ((part.start - start) as usize, (part.end - part.start) as usize);
        Ok((part.start, host + before, size))
    }

    /// Returns the range of the registered memory that contains an address, and where it is on the host.
    pub(crate) fn registered_around(&self, address: u64) -> Option<(Range<u64>, usize)> {
        let (start, at, its) = self.host_around(address)?;
        let first = address - (at - start) as u64;
        matches!(its.kind, HostKind::Registered).then(|| (first..first + its.len as u64, start))
    }

    /// Notes an access of a thread of a kernel.
    pub(super) fn note_thread(
        &mut self,
        by: SiteId,
        (address, len): (u64, usize),
        wanted: Use,
        is_atomic: bool,
    ) {
        if let Some(log) = &mut self.accesses {
            log.mode = is_atomic.then_some(Access::Atomic);
        }
        self.note_site(by, (address, len), wanted.into());
        self.note_access(address, len, wanted.into());
        if let Some(log) = &mut self.accesses {
            log.mode = None;
        }
    }

    /// Allocates memory for `malloc` of a kernel. It is freed with the context.
    pub(crate) fn allocate_on_heap(
        &mut self,
        size: u64,
        context: usize,
        device: usize,
    ) -> Option<u64> {
        let size = usize::try_from(size.max(1)).ok().filter(|size| *size <= HEAP)?;
        let address = self.allocate(size, Kind::Plain, context, device, u64::MAX).ok()?;
        self.add_variable(address);
        self.heap.insert(address);
        Some(address)
    }

    /// Frees memory of `malloc` in a kernel. Other threads of the host may access it until the kernel ends.
    pub(crate) fn free_on_heap(&mut self, address: u64) -> Result<(), String> {
        if !self.heap.remove(&address) {
            return Err(format!("{address:#x} is not an allocation of the device's heap"));
        }
        self.dead.insert(address);
        Ok(())
    }

    /// Releases the memory that kernels freed.
    pub(crate) fn release_heap(&mut self) {
        for address in std::mem::take(&mut self.dead) {
            self.free(address);
        }
    }
}

/// The most bytes that `malloc` of a kernel returns: those of the heap by default.
const HEAP: usize = 8 << 20;
