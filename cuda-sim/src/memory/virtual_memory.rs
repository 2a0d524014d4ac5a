//! Reservations of addresses, and the mappings of physical memory in them.
//!
//! The addresses of a reservation are addresses of this process that cannot be accessed. The contents
//! are mapped once more, in a second range of the same size (the view), where this driver accesses
//! them. Adjacent mappings are adjacent there, so one copy or kernel can use several. Memory of the host
//! to which the host has rights is also mapped at the addresses of the reservation.

use super::Memory;
use super::physical::{Location, Physical, PhysicalMemory, Properties};
use super::ranges::Ranges;
use super::space::{Rights, Space};
use std::collections::BTreeMap;

/// Alignment of reservations, and of the sizes of reservations and of physical memory. Measured: 2 MiB on
/// an H200 for every kind of memory.
pub(crate) const GRANULARITY: u64 = 2 << 20;

/// An access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
}

/// The accesses that a location may make to a mapping, as in C.
pub(crate) const READ: u32 = 1;
pub(crate) const READ_WRITE: u32 = 3;

#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) size: u64,
    /// The handle of the memory.
    pub(crate) physical: usize,
    pub(crate) access: BTreeMap<Location, u32>,
    /// A unique id that is never reused.
    pub(crate) id: u64,
    /// Whether the memory is a multicast object.
    is_team: bool,
    /// The first operation that may use the mapping. Operations before it were enqueued while other
    /// memory was mapped there.
    since: u64,
}

impl Mapping {
    fn allows(&self, location: Option<Location>, wanted: Use) -> bool {
        let needed = match wanted {
            Use::Read => READ,
            Use::Write => READ_WRITE,
        };
        let allows = |access: &u32| access & needed == needed;
        match location {
            Some(location) => self.access.get(&location).is_some_and(allows),
            None => self.access.values().any(allows),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Reservation {
    space: Space,
    pub(crate) size: u64,
    /// Where this driver accesses the contents. It is made with the first mapping.
    view: Option<Space>,
    /// By address.
    mappings: BTreeMap<u64, Mapping>,
    /// Ranges that were unmapped, with the first operation that was enqueued later.
    unmapped: Ranges,
}

/// What bytes are that are no mapping of a multicast object.
const NO_TEAM: &str = "are not a mapping of a multicast object";

#[derive(Debug, Default)]
pub(crate) struct VirtualMemory {
    reservations: BTreeMap<u64, Reservation>,
    pub(crate) physical: PhysicalMemory,
    mappings: usize,
}

/// Why memory cannot be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapError {
    /// There is no reservation, or the range is in use.
    Refused,
    /// The range ends after the end of the reservation.
    PastEnd,
    /// The system has no room.
    OutOfMemory,
}

impl Reservation {
    fn start(&self) -> u64 {
        self.space.start() as u64
    }

    fn offset(&self, address: u64) -> usize {
        usize::try_from(address - self.start()).unwrap_or(usize::MAX)
    }

    /// Returns the mapping that contains an address, and its start.
    fn mapping(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (start, its) = self.mappings.range(..=address).next_back()?;
        (address - start < its.size).then_some((*start, its))
    }

    /// Returns the starts of the mappings that a range overlaps.
    fn overlapped(&self, start: u64, end: u64) -> Vec<u64> {
        let first = self.mapping(start).map_or(start, |(first, _)| first);
        self.mappings.range(first..end).map(|its| *its.0).collect()
    }

    /// Returns the first operation that may use a range.
    fn since(&self, start: u64, end: u64) -> u64 {
        self.unmapped.last_of(start, end)
    }

    /// Records that a range was unmapped before the operation `next` was enqueued.
    fn note_unmapped(&mut self, start: u64, end: u64, next: u64) {
        self.unmapped.set(start, end, next);
    }

    /// Says why `len` bytes may not be used, or returns where they are in the view. They are mappings of multicast objects
    /// if `of_team` says so, and none of them otherwise.
    fn find(
        &self,
        address: u64,
        len: usize,
        location: Option<Location>,
        (wanted, of_team): (Use, bool),
        operation: Option<u64>,
    ) -> Result<usize, String> {
        let wrong = |what: &str| Err(format!("{len} bytes at {address:#x} {what}"));
        let end = address.saturating_add(len.max(1) as u64);
        let mut at = address;
        while at < end {
            let Some((start, its)) = self.mapping(at) else {
                return wrong("are not mapped, or were unmapped");
            };
            if its.is_team != of_team {
                return wrong(match of_team {
                    true => NO_TEAM,
                    false => {
                        "are a mapping of a multicast object, which only `multimem` instructions and \
                         `Launch::update_multicast` can access"
                    }
                });
            }
            if !its.allows(location, wanted) {
                return wrong(match wanted {
                    Use::Read => "are mapped, but may not be read",
                    Use::Write => "are mapped, but may not be written",
                });
            }
            if operation.is_some_and(|operation| operation < its.since) {
                return wrong(
                    "were unmapped and mapped again under queued work; a real driver lets the work \
                     use the new memory",
                );
            }
            at = start + its.size;
        }
        Ok(self.offset(address))
    }
}

impl VirtualMemory {
    /// Reserves addresses. Returns `None` if the system has none.
    pub(crate) fn reserve(&mut self, hint: u64, size: u64, alignment: u64) -> Option<u64> {
        let hint = usize::try_from(hint).ok()?;
        let len = usize::try_from(size).ok()?;
        let alignment = usize::try_from(alignment.max(GRANULARITY)).ok()?;
        let space = Space::reserve(hint, len, alignment)?;
        let start = space.start() as u64;
        let reservation = Reservation {
            space,
            size,
            view: None,
            mappings: BTreeMap::new(),
            unmapped: Ranges::default(),
        };
        self.reservations.insert(start, reservation);
        Some(start)
    }

    /// Frees a reservation that has no mappings. Returns whether there is one.
    pub(crate) fn free(&mut self, start: u64, size: u64) -> bool {
        let its = self.reservations.get(&start);
        let is_free = its.is_some_and(|its| its.size == size && its.mappings.is_empty());
        is_free && self.reservations.remove(&start).is_some()
    }

    /// Returns the reservation that contains an address, and its start.
    pub(crate) fn reservation(&self, address: u64) -> Option<(u64, &Reservation)> {
        let (start, its) = self.reservations.range(..=address).next_back()?;
        (address - start < its.size).then_some((*start, its))
    }

    fn reservation_mut(&mut self, address: u64) -> Option<&mut Reservation> {
        let (start, its) = self.reservations.range_mut(..=address).next_back()?;
        (address - start < its.size).then_some(its)
    }

    /// Returns the mapping that contains an address, and its start.
    pub(crate) fn mapping(&self, address: u64) -> Option<(u64, &Mapping)> {
        self.reservation(address)?.1.mapping(address)
    }

    /// Returns the multicast object that is mapped at `len` bytes, and their offset in it, if a device may use them.
    pub(super) fn team_at(
        &self,
        (address, len): (u64, usize),
        device: usize,
        wanted: Use,
        operation: Option<u64>,
    ) -> Result<(usize, u64), String> {
        let found = self.reservation(address);
        let (_, its) = found.ok_or_else(|| format!("{len} bytes at {address:#x} {NO_TEAM}"))?;
        its.find(address, len, Some(location_of(device)), (wanted, true), operation)?;
        let found = its.mapping(address);
        let (start, mapping) = found.ok_or_else(|| format!("{address:#x} is not mapped"))?;
        Ok((mapping.physical, address - start))
    }

    /// Maps the memory of a handle.
    pub(crate) fn map(&mut self, address: u64, handle: usize, id: u64) -> Result<(), MapError> {
        let Some((_, its)) = self.reservations.range_mut(..=address).next_back() else {
            return Err(MapError::Refused);
        };
        let physical = self.physical.get(handle).ok_or(MapError::Refused)?;
        let end = address.saturating_add(physical.size);
        let last = its.start() + its.size;
        if address >= last || !its.overlapped(address, end.min(last)).is_empty() {
            return Err(MapError::Refused);
        }
        if end > last {
            return Err(MapError::PastEnd);
        }
        let (at, len) = (its.offset(address), its.offset(end) - its.offset(address));
        let whole = its.offset(last);
        let view = match &mut its.view {
            Some(view) => view,
            none => {
                let alignment = usize::try_from(GRANULARITY).unwrap_or(usize::MAX);
                none.insert(Space::reserve(0, whole, alignment).ok_or(MapError::OutOfMemory)?)
            }
        };
        let contents = (&*physical.file, physical.offset);
        if !view.map(at, len, Rights::ReadWrite, contents) {
            return Err(MapError::OutOfMemory);
        }
        let mapping = Mapping {
            size: physical.size,
            physical: handle,
            access: BTreeMap::new(),
            id,
            is_team: physical.team.is_some(),
            since: its.since(address, end),
        };
        its.mappings.insert(address, mapping);
        self.physical.map(handle, address);
        self.mappings += 1;
        Ok(())
    }

    /// Returns the starts of the mappings in a range, unless the range is not in a reservation or
    /// contains only a part of one.
    pub(crate) fn whole_mappings(&self, address: u64, size: u64) -> Option<Vec<u64>> {
        let (start, its) = self.reservation(address)?;
        match address.checked_add(size)? > start + its.size {
            true => None,
            false => self.mappings_in(address, size),
        }
    }

    /// Returns the mappings in a range that begins in a reservation, unless a mapping is in it in part.
    pub(crate) fn mappings_in(&self, address: u64, size: u64) -> Option<Vec<u64>> {
        let (start, its) = self.reservation(address)?;
        let end = address.checked_add(size)?.min(start + its.size);
        if size == 0 {
            return None;
        }
        let inside = its.overlapped(address, end);
        let is_whole = |start: &u64| {
            let size = its.mappings.get(start).map_or(0, |its| its.size);
            *start >= address && start + size <= end
        };
        inside.iter().all(is_whole).then_some(inside)
    }

    /// Unmaps mappings, before the operation `next` was enqueued. Returns the memory that nothing keeps
    /// any more.
    pub(crate) fn unmap(&mut self, starts: &[u64], next: u64) -> Vec<Physical> {
        let mut unused = Vec::new();
        for start in starts {
            let Some(its) = self.reservation_mut(*start) else {
                continue;
            };
            let Some(mapping) = its.mappings.remove(start) else {
                continue;
            };
            let end = start + mapping.size;
            let (at, len) = (its.offset(*start), its.offset(end) - its.offset(*start));
            if let Some(view) = &mut its.view {
                view.clear(at, len);
            }
            if mapping.access.keys().any(is_of_host) {
                its.space.clear(at, len);
            }
            its.note_unmapped(*start, end, next);
            self.mappings -= 1;
            unused.extend(self.physical.unmap(mapping.physical, *start));
        }
        unused
    }

    /// Sets the rights of a location to mappings. Returns whether the system could.
    pub(crate) fn set_access(&mut self, starts: &[u64], location: Location, flags: u32) -> bool {
        let mut done = true;
        for start in starts {
            let Some(its) = self.reservations.range_mut(..=*start).next_back() else {
                continue;
            };
            let its = its.1;
            let at = its.offset(*start);
            let Some(mapping) = its.mappings.get_mut(start) else {
                continue;
            };
            if is_of_host(&location) {
                let len = usize::try_from(mapping.size).unwrap_or(0);
                let rights = match flags {
                    READ_WRITE => Rights::ReadWrite,
                    READ => Rights::Read,
                    _ => Rights::None,
                };
                done &= match self.physical.kept(mapping.physical) {
                    Some(its_memory) if rights != Rights::None => {
                        let contents = (&*its_memory.file, its_memory.offset);
                        its.space.map(at, len, rights, contents)
                    }
                    _ => its.space.clear(at, len),
                };
            }
            mapping.access.insert(location, flags);
        }
        done
    }

    /// Returns the properties of memory that a handle or a mapping keeps.
    pub(crate) fn properties_of(&self, handle: usize) -> Option<Properties> {
        Some(self.physical.kept(handle)?.properties)
    }

    /// Returns the number of reservations and of mappings.
    pub(crate) fn counts(&self) -> [usize; 2] {
        [self.reservations.len(), self.mappings]
    }
}

/// Returns whether a location is the host, or a NUMA node of it.
pub(crate) fn is_of_host(location: &Location) -> bool {
    use cuda_sys::CUmemLocationType as Type;
    let kind = Type(location.0);
    kind == Type::CU_MEM_LOCATION_TYPE_HOST || kind == Type::CU_MEM_LOCATION_TYPE_HOST_NUMA
}

impl Memory {
    /// Returns whether an address is in a reservation.
    pub(crate) fn is_virtual(&self, address: u64) -> bool {
        self.virtual_memory.reservation(address).is_some()
    }

    /// Says why `len` bytes of a reservation may not be used. A location of `None` stands for any device.
    pub(crate) fn check_virtual(
        &self,
        address: u64,
        len: usize,
        location: Option<Location>,
        wanted: Use,
    ) -> Result<(), String> {
        let Some((_, its)) = self.virtual_memory.reservation(address) else {
            return Err(format!("{address:#x} is not reserved"));
        };
        its.find(address, len, location, (wanted, false), None).map(drop)
    }

    /// Returns `len` bytes of a reservation, for the operation that is running. Returns `None` if the
    /// address is not in a reservation.
    pub(super) fn virtual_bytes(
        &mut self,
        address: u64,
        len: usize,
        wanted: Use,
    ) -> Option<Result<&mut [u8], String>> {
        let operation = self.running_operation;
        let its = self.virtual_memory.reservation_mut(address)?;
        let at = match its.find(address, len, None, (wanted, false), operation) {
            Ok(at) => at,
            Err(what) => return Some(Err(what)),
        };
        // SAFETY: all of the bytes are mapped, as checked above. This driver makes one reference at a
        // time to memory of a view, under its lock. A mapping at another address, on the host or in
        // another process is shared memory: the program must not access it while a device does.
        its.view.as_mut().map(|view| Ok(unsafe { view.bytes(at, len) }))
    }

    /// Returns the address on the host of `len` bytes of a reservation, if they may be used.
    pub(super) fn virtual_place(
        &mut self,
        address: u64,
        len: usize,
        wanted: Use,
    ) -> Result<usize, String> {
        let operation = self.running_operation;
        let its = self.virtual_memory.reservation_mut(address);
        let its = its.ok_or_else(|| format!("{address:#x} is not mapped"))?;
        let at = its.find(address, len, None, (wanted, false), operation)?;
        let view = its.view.as_ref().ok_or_else(|| format!("{address:#x} is not mapped"))?;
        Ok(view.start() + at)
    }

    /// Returns `len` bytes of a reservation, if they may be read.
    pub(super) fn virtual_bytes_to_read(&self, address: u64, len: usize) -> Option<&[u8]> {
        let (_, its) = self.virtual_memory.reservation(address)?;
        let at = its.find(address, len, None, (Use::Read, false), None).ok()?;
        // SAFETY: see `virtual_bytes`.
        its.view.as_ref().map(|view| unsafe { view.bytes_to_read(at, len) })
    }

    /// Allocates physical memory on a device, or on the host.
    pub(crate) fn create_physical(&mut self, properties: Properties, size: u64) -> Option<usize> {
        let handle = self.virtual_memory.physical.create(properties, size)?;
        if let Some(device) = device_of(&properties.location) {
            self.totals.add_physical(device, size);
        }
        self.note_site_of_handle(handle, "physical memory", size);
        Some(handle)
    }

    /// Releases a handle of physical memory once.
    pub(crate) fn release_physical(&mut self, handle: usize) {
        let unused = self.virtual_memory.physical.release(handle);
        self.forget_physical(unused);
    }

    /// Unmaps mappings, before the operation `next` was enqueued.
    pub(crate) fn unmap(&mut self, starts: &[u64], next: u64) {
        if let Some(log) = &mut self.accesses {
            for start in starts {
                if let Some((start, its)) = self.virtual_memory.mapping(*start) {
                    log.forget(&(start..start + its.size));
                }
            }
        }
        for start in starts {
            if let Some((start, its)) = self.virtual_memory.mapping(*start) {
                self.clear_poison(start..start + its.size);
            }
        }
        let unused = self.virtual_memory.unmap(starts, next);
        self.forget_physical(unused);
    }

    pub(super) fn forget_physical(&mut self, unused: impl IntoIterator<Item = Physical>) {
        for its in unused {
            self.forget_team(&its);
            if let (Some(log), Some(view)) = (&mut self.accesses, its.view()) {
                log.forget(&view);
            }
            self.forget_site_of_handle(its.handle);
            // Imported memory counts where it was allocated.
            let device = device_of(&its.properties.location).filter(|_| !its.is_imported);
            if let Some(device) = device {
                self.totals.remove_physical(device, its.size);
            }
        }
    }

    /// Maps physical memory.
    pub(crate) fn map(&mut self, address: u64, handle: usize) -> Result<(), MapError> {
        let id = self.next_id();
        self.virtual_memory.map(address, handle, id)
    }
}

/// Returns the location of a device.
pub(super) fn location_of(device: usize) -> Location {
    let kind = cuda_sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE.0;
    (kind, i32::try_from(device).unwrap_or(-1))
}

/// Returns the device of a location, if it is one of a device or of a part of it.
pub(crate) fn device_of(location: &Location) -> Option<usize> {
    use cuda_sys::CUmemLocationType as Type;
    match Type(location.0) {
        Type::CU_MEM_LOCATION_TYPE_DEVICE => usize::try_from(location.1).ok(),
        // The id has the device in its first byte, and the domain in the second one.
        Type::CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN => {
            Some(usize::from(location.1.to_ne_bytes()[0]))
        }
        _ => None,
    }
}

/// Returns the locality domain of a location, if it is one of a part of a device.
pub(crate) fn domain_of(location: &Location) -> Option<u32> {
    use cuda_sys::CUmemLocationType as Type;
    let [_, domain, ..] = location.1.to_ne_bytes();
    let is_domain = Type(location.0) == Type::CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN;
    is_domain.then_some(domain.into())
}
