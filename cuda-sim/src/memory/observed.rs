//! The accesses that the detection of races observes.

use super::{BASE, Kind, Memory, Use, leaks, pinned_byte};
use crate::races::sources::LIMIT;
use crate::races::{Access, Conflict, Race, RacingMemory, report};
use cuda_ptx::check::SiteId;
use std::ops::Range;
use std::sync::atomic::Ordering;

impl From<Use> for Access {
    fn from(its: Use) -> Self {
        match its {
            Use::Read => Self::Read,
            Use::Write => Self::Write,
        }
    }
}

impl Memory {
    /// Notes an access of the operation that is running to device memory, or to host memory by its device
    /// address.
    #[inline]
    pub(crate) fn note_access(&mut self, address: u64, len: usize, access: Access) {
        if self.accesses.is_some() {
            self.note_observed(address, len, access);
        }
    }

    /// Notes which thread of a kernel makes the next access, to device memory or to host memory by its device address.
    pub(super) fn note_site(&mut self, site: SiteId, (address, len): (u64, usize), access: Access) {
        if self.accesses.is_some() {
            let (bytes, _) = self.racing_place(address, len);
            if let Some(log) = &mut self.accesses {
                log.note_site(site, &bytes, access);
            }
        }
    }

    fn note_observed(&mut self, address: u64, len: usize, access: Access) {
        let (bytes, is_of_host) = self.racing_place(address, len);
        self.note_range(bytes.clone(), access, is_of_host);
        let unready = self.containing(address).and_then(|(start, its)| {
            let is_unready = matches!(its.kind, Kind::Ordered { ready: false, .. });
            is_unready.then_some(start..start + its.bytes.len() as u64)
        });
        if let (Some(its), Some(log)) = (unready, self.accesses.as_mut()) {
            log.unready.push((its, access, bytes));
        }
    }

    /// Notes an access of the operation that is running to host memory by its host address.
    #[inline]
    pub(crate) fn note_host_access(&mut self, address: usize, len: usize, access: Access) {
        if self.accesses.is_some() {
            let start = address as u64;
            self.note_range(start..start.saturating_add(len as u64), access, true);
        }
    }

    /// Notes that the operation that is running allocates or frees stream-ordered memory.
    pub(crate) fn note_lifetime(&mut self, address: u64, access: Access) {
        if self.accesses.is_none() {
            return;
        }
        if let Some(its) = self.device.get(&address) {
            let end = address + its.bytes.len() as u64;
            self.note_range(address..end, access, false);
        }
    }

    fn note_range(&mut self, bytes: Range<u64>, access: Access, is_of_host: bool) {
        let Some(log) = self.accesses.as_mut().filter(|_| !bytes.is_empty()) else {
            return;
        };
        if access != Access::Read {
            log.sources.note_write(&bytes);
        }
        // An atomic write of host memory can tell the host that the work before it is complete.
        log.signals_host |= is_of_host && log.mode.is_some();
        for conflict in log.add(bytes, access) {
            self.report_race(conflict);
        }
    }

    /// Notes the source of a copy from pinned memory that was enqueued, to find writes of the program.
    pub(crate) fn note_source(&mut self, operation: u64, address: usize, len: usize) {
        if len > LIMIT {
            return;
        }
        if let (Some(bytes), Some(log)) = (self.pinned_bytes(address, len), &mut self.accesses) {
            log.sources.add(operation, address, bytes);
        }
    }

    /// Reports a race if the program has written the source of the copy that is running.
    pub(crate) fn check_source(&self, address: usize, len: usize) {
        let (Some(log), Some(operation)) = (&self.accesses, self.running_operation) else {
            return;
        };
        let now = self.pinned_bytes(address, len);
        let changed = now.and_then(|now| log.sources.changed(operation, address, &now));
        let start = address as u64;
        let conflict =
            changed.and_then(|its| Conflict::with_program(log, start..start + len as u64, its));
        if let Some(conflict) = conflict {
            self.report_race(conflict);
        }
    }

    /// Forgets the sources of all copies, because the host may have written them before they run.
    pub(crate) fn forget_sources(&mut self) {
        if let Some(log) = &mut self.accesses {
            log.sources.forget();
        }
    }

    /// Returns bytes of pinned or registered memory.
    fn pinned_bytes(&self, address: usize, len: usize) -> Option<Vec<u8>> {
        let (start, host) = self.host_at(address)?;
        if host.is_managed() || (address - start).saturating_add(len) > host.len {
            return None;
        }
        let byte = |offset| {
            // SAFETY: the byte is in pinned memory, as checked above, and the lock is held.
            let byte = unsafe { pinned_byte(address + offset) };
            byte.load(Ordering::Relaxed)
        };
        Some((0..len).map(byte).collect())
    }

    /// Returns the addresses under which the accesses to a range are noted, and whether they are those of
    /// host memory.
    pub(crate) fn racing_place(&self, address: u64, len: usize) -> (Range<u64>, bool) {
        let host = match self.is_virtual(address) || address >= BASE {
            true => None,
            false => self.host_around(address).map(|(_, host, _)| host as u64),
        };
        let start = host.unwrap_or(address);
        let is_of_host = host.is_some() || self.is_managed_of_pool(address, 0);
        (start..start.saturating_add(len as u64), is_of_host)
    }

    /// Reports a race on memory.
    pub(crate) fn report_race(&self, mut conflict: Conflict) {
        conflict.sort();
        let race = Race::new(&conflict, self.racing_memory(&conflict));
        let log = self.accesses.as_ref();
        report::report(race, || log.map_or([None, None], |log| log.sites(&conflict)));
    }

    fn racing_memory(&self, conflict: &Conflict) -> RacingMemory {
        let overlap = conflict.overlap();
        match conflict.allocation().filter(|_| self.containing(overlap.start).is_none()) {
            Some(its) => RacingMemory {
                start: its.start,
                size: its.end - its.start,
                kind: "stream-ordered memory",
            },
            None => self.memory_of(overlap),
        }
    }

    /// Describes the memory that contains some bytes.
    pub(crate) fn memory_of(&self, bytes: Range<u64>) -> RacingMemory {
        let at = bytes.start;
        if let Some((start, its)) = self.containing(at) {
            return RacingMemory {
                start,
                size: its.bytes.len() as u64,
                kind: match self.is_variable(start) {
                    true => "a variable or an array",
                    false => leaks::kind_of(its),
                },
            };
        }
        if let Some((start, _, its)) = self.host_around(at).filter(|_| at < BASE) {
            return RacingMemory {
                start: start as u64,
                size: its.len as u64,
                kind: leaks::kind_of_host(its),
            };
        }
        if let Some(view) = self.virtual_memory.physical.view_around(at) {
            return RacingMemory {
                start: view.start,
                size: view.end - view.start,
                kind: "memory of a multicast object without a mapping of its own",
            };
        }
        RacingMemory {
            start: at,
            size: bytes.end - at,
            kind: match self.is_virtual(at) {
                true => "mapped memory",
                false if at < BASE => "pageable memory",
                false => "device memory",
            },
        }
    }
}
