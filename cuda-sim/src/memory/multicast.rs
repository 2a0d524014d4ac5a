//! Multicast objects: ranges whose accesses go to memory of several devices.

use super::physical::{Physical, PhysicalMemory, Properties};
use super::{Memory, Use};
use crate::races::Access;
use cuda_ptx::check::SiteId;

/// Memory that is bound to a multicast object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) device: i32,
    /// Where it is in the object.
    pub(crate) offset: u64,
    pub(crate) size: u64,
    /// The handle of the memory, and where the binding starts in it.
    pub(crate) physical: usize,
    pub(crate) start: u64,
}

/// The devices of a multicast object and what they have bound.
#[derive(Debug)]
pub(crate) struct Team {
    /// Number of devices that the object needs.
    pub(crate) wanted: u32,
    pub(crate) devices: Vec<i32>,
    pub(crate) bindings: Vec<Binding>,
}

/// Bytes of one device that a multicast address reaches.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// The handle of the memory, and the offset in it.
    handle: usize,
    offset: u64,
    /// The address in the first mapping of the memory, or on the host if it has none.
    address: u64,
    /// The address on the host.
    host: usize,
}

impl Team {
    pub(crate) fn is_complete(&self) -> bool {
        u32::try_from(self.devices.len()) == Ok(self.wanted)
    }
}

impl Binding {
    pub(crate) fn overlaps(&self, device: i32, offset: u64, size: u64) -> bool {
        self.device == device && self.offset < offset + size && offset < self.offset + self.size
    }
}

impl PhysicalMemory {
    /// Creates a multicast object. It has no memory of its own.
    pub(crate) fn create_team(
        &mut self,
        properties: Properties,
        size: u64,
        wanted: u32,
    ) -> Option<usize> {
        let handle = self.create(properties, size)?;
        if let Some(its) = self.get_mut(handle) {
            its.team = Some(Box::new(Team { wanted, devices: Vec::new(), bindings: Vec::new() }));
        }
        Some(handle)
    }

    pub(crate) fn team(&mut self, handle: usize) -> Option<&mut Team> {
        self.get_mut(handle)?.team.as_deref_mut()
    }

    /// Binds memory, which the binding keeps.
    pub(crate) fn bind(&mut self, team: usize, binding: Binding) {
        self.add_mapping(binding.physical);
        if let Some(team) = self.team(team) {
            team.bindings.push(binding);
        }
    }
}

impl Memory {
    /// Removes the binding of a device with this offset and size. Returns whether there is one.
    pub(crate) fn unbind(&mut self, team: usize, device: i32, offset: u64, size: u64) -> bool {
        let physical = &mut self.virtual_memory.physical;
        let Some(its) = physical.team(team) else {
            return false;
        };
        let is_it = |its: &Binding| (its.device, its.offset, its.size) == (device, offset, size);
        let Some(index) = its.bindings.iter().position(is_it) else {
            return false;
        };
        let binding = its.bindings.swap_remove(index);
        let unused = physical.remove_mapping(binding.physical);
        self.forget_physical(unused);
        true
    }

    /// Releases what a multicast object has bound when nothing keeps the object.
    pub(super) fn forget_team(&mut self, object: &Physical) {
        for binding in object.team.iter().flat_map(|team| &team.bindings) {
            let physical = &mut self.virtual_memory.physical;
            let unused = physical.remove_mapping(binding.physical);
            self.forget_physical(unused);
        }
    }

    /// Returns the bytes of each device that `len` bytes at a multicast address reach, if a kernel of `device` may use them.
    fn multicast_parts(
        &mut self,
        (address, len): (u64, usize),
        device: usize,
        wanted: Use,
    ) -> Result<Vec<Part>, String> {
        let memory = &mut self.virtual_memory;
        let range = (address, len);
        let (object, offset) = memory.team_at(range, device, wanted, self.running_operation)?;
        let team = memory.physical.kept(object).and_then(|its| its.team.as_deref());
        let team = team.ok_or_else(|| format!("{address:#x} is not mapped"))?;
        let of_device = |device: &i32| {
            let contains = |its: &&Binding| {
                let end = its.offset + its.size;
                its.device == *device && its.offset <= offset && offset + len as u64 <= end
            };
            let its = team.bindings.iter().find(contains)?;
            Some((its.physical, its.start + (offset - its.offset)))
        };
        let found: Option<Vec<(usize, u64)>> = team.devices.iter().map(of_device).collect();
        let found = found.ok_or_else(|| {
            format!(
                "{len} bytes at {address:#x} are not bound on every device of the multicast object"
            )
        })?;
        let parts = found.into_iter().map(|(handle, offset)| {
            let (address, host) = memory.physical.place(handle, offset)?;
            Some(Part { handle, offset, address, host })
        });
        parts.collect::<Option<_>>().ok_or_else(|| "the system has no room".to_owned())
    }

    /// Returns the bytes of each device that a thread of a kernel accesses at a multicast address: their address, and
    /// their address on the host.
    pub(crate) fn multicast_regions(
        &mut self,
        range: (u64, usize),
        device: usize,
        (wanted, is_atomic): (Use, bool),
        by: SiteId,
    ) -> Result<Vec<(u64, usize)>, String> {
        let parts = self.multicast_parts(range, device, wanted)?;
        for part in &parts {
            self.note_thread(by, (part.address, range.1), wanted, is_atomic);
            self.check_poison(part.address, range.1)?;
        }
        Ok(parts.into_iter().map(|part| (part.address, part.host)).collect())
    }

    /// Reads `len` bytes at a multicast address from each device, for a kernel of `device`.
    pub(crate) fn read_multicast(
        &mut self,
        range: (u64, usize),
        device: usize,
    ) -> Result<Vec<Vec<u8>>, String> {
        let mut found = Vec::new();
        for part in self.multicast_parts(range, device, Use::Read)? {
            self.note_access(part.address, range.1, Access::Read);
            let mut bytes = vec![0; range.1];
            self.virtual_memory.physical.read(part.handle, part.offset, &mut bytes)?;
            found.push(bytes);
        }
        Ok(found)
    }

    /// Writes bytes at a multicast address to each device, for a kernel of `device`.
    pub(crate) fn write_multicast(
        &mut self,
        address: u64,
        bytes: &[u8],
        device: usize,
    ) -> Result<(), String> {
        for part in self.multicast_parts((address, bytes.len()), device, Use::Write)? {
            self.note_access(part.address, bytes.len(), Access::Write);
            self.virtual_memory.physical.write(part.handle, part.offset, bytes)?;
        }
        Ok(())
    }
}
