//! Multicast objects: ranges whose accesses go to memory of several devices.

use super::Memory;
use super::physical::{Physical, PhysicalMemory, Properties};
use super::space;

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

    /// Reads `len` bytes at an address of a multicast mapping from each device, or writes them to each.
    pub(crate) fn multicast(
        &mut self,
        address: u64,
        len: usize,
        written: Option<&[u8]>,
    ) -> Result<Vec<Vec<u8>>, String> {
        let wrong = |what: &str| Err(format!("{len} bytes at {address:#x} {what}"));
        let Some((start, mapping)) = self.virtual_memory.mapping(address) else {
            return wrong("are not mapped, or were unmapped");
        };
        let physical = &self.virtual_memory.physical;
        let team = physical.kept(mapping.physical);
        let Some(team) = team.and_then(|its| its.team.as_deref()) else {
            return wrong("are not a mapping of a multicast object");
        };
        let offset = address - start;
        let mut found = Vec::new();
        for device in &team.devices {
            let contains = |its: &&Binding| {
                let end = its.offset + its.size;
                its.device == *device && its.offset <= offset && offset + len as u64 <= end
            };
            let binding = team.bindings.iter().find(contains);
            let memory = binding.and_then(|its| Some((its, physical.kept(its.physical)?)));
            let Some((binding, memory)) = memory else {
                return wrong("are not bound on every device of the multicast object");
            };
            let at = memory.offset + binding.start + (offset - binding.offset);
            let mut bytes = vec![0; len];
            let done = match written {
                Some(written) => space::write(&memory.file, at, written),
                None => space::read(&memory.file, at, &mut bytes),
            };
            done.map_err(|error| error.to_string())?;
            found.push(bytes);
        }
        Ok(found)
    }
}
