//! Logical endpoints: ids to which memory of one device, or of several, is bound.

use super::Memory;
use super::multicast::{Binding, Team};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct Endpoint {
    /// The owner of an endpoint of one device. `None` for one of several devices.
    pub(crate) owner: Option<i32>,
    pub(crate) team: Team,
    pub(crate) size: u64,
    /// Number of queries since all devices were added. An endpoint is constructed at the second one, so that
    /// a program that does not wait for it is noticed.
    pub(crate) queries: u32,
}

impl Endpoint {
    pub(crate) fn is_constructed(&self) -> bool {
        self.queries > 1
    }
}

/// Reserved ids, with the endpoint of each that has one.
#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    pub(crate) all: BTreeMap<u32, Option<Endpoint>>,
    last: u32,
}

impl Endpoints {
    /// Reserves consecutive ids, and returns the first. Ids are not used again.
    pub(crate) fn reserve(&mut self, count: u32) -> Option<u32> {
        let first = self.last + 1;
        let last = self.last.checked_add(count)?;
        self.all.extend((first..=last).map(|id| (id, None)));
        self.last = last;
        Some(first)
    }

    pub(crate) fn get(&mut self, id: u32) -> Option<&mut Endpoint> {
        self.all.get_mut(&id)?.as_mut()
    }
}

impl Memory {
    /// Binds memory to an endpoint, which keeps it.
    pub(crate) fn bind_endpoint(&mut self, id: u32, binding: Binding) {
        if let Some(its) = self.endpoints.get(id) {
            its.team.bindings.push(binding);
            self.virtual_memory.physical.add_mapping(binding.physical);
        }
    }

    /// Releases memory that was bound to an endpoint.
    pub(crate) fn release_binding(&mut self, binding: Binding) {
        let physical = &mut self.virtual_memory.physical;
        let unused = physical.remove_mapping(binding.physical);
        self.forget_physical(unused);
    }
}

/// Part of a physical allocation: its handle, the offset in it, and the size.
type Part = (usize, u64, usize);

/// Returns the parts that one device has bound to `len` bytes from `offset` on, in order.
fn parts(its: &Endpoint, device: i32, offset: u64, len: usize) -> Result<Vec<Part>, String> {
    let end = offset + len as u64;
    let mut parts = Vec::new();
    let mut at = offset;
    while at < end {
        let mut bindings = its.team.bindings.iter();
        let binding = bindings.find(|its| its.overlaps(device, at, 1)).ok_or_else(|| {
            format!("a copy over the fabric at offset {at} of a logical endpoint, where device {device} has no memory bound")
        })?;
        let until = end.min(binding.offset + binding.size);
        let size = usize::try_from(until - at).unwrap_or(usize::MAX);
        parts.push((binding.physical, binding.start + (at - binding.offset), size));
        at = until;
    }
    Ok(parts)
}

impl Memory {
    fn endpoint_parts(
        &mut self,
        id: u32,
        offset: u64,
        len: usize,
    ) -> Result<Vec<Vec<Part>>, String> {
        let its = self.endpoints.get(id);
        let its = its.ok_or("a copy over the fabric uses a logical endpoint that was destroyed")?;
        let devices = its.team.devices.iter();
        devices.map(|device| parts(its, *device, offset, len)).collect()
    }

    /// Reads the memory of an endpoint of one device.
    pub(crate) fn read_endpoint(
        &mut self,
        id: u32,
        offset: u64,
        len: usize,
    ) -> Result<Vec<u8>, String> {
        let devices = self.endpoint_parts(id, offset, len)?;
        let mut bytes = vec![0; len];
        let mut rest = bytes.as_mut_slice();
        for (physical, start, size) in devices.into_iter().next().unwrap_or_default() {
            let (part, others) = rest.split_at_mut(size);
            self.virtual_memory.physical.read(physical, start, part)?;
            rest = others;
        }
        Ok(bytes)
    }

    /// Writes the memory of all devices of an endpoint.
    pub(crate) fn write_endpoint(
        &mut self,
        id: u32,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), String> {
        for device in self.endpoint_parts(id, offset, bytes.len())? {
            let mut rest = bytes;
            for (physical, start, size) in device {
                let (part, others) = rest.split_at(size);
                self.virtual_memory.physical.write(physical, start, part)?;
                rest = others;
            }
        }
        Ok(())
    }
}
