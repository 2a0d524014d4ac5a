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
