//! Nodes of graphs that use virtual memory.

use super::graph::node::Kind;
use super::{Answer, World};
use crate::memory::Use;
use crate::state::INVALID;

impl World {
    /// Fails if a copy or a fill uses reserved addresses that are not mapped, or that no device may use. A
    /// capture accepts such work, and the graph cannot be instantiated (measured).
    pub(crate) fn check_mapped_node(&self, kind: &Kind) -> Answer {
        let refused = |address: u64, len: usize, wanted: Use| {
            let is_virtual = self.objects.memory.is_virtual(address);
            let checked = self.objects.memory.check_virtual(address, len, None, wanted);
            is_virtual && checked.is_err()
        };
        let is_refused = match kind {
            Kind::Copy(copy) => {
                let len = copy.extent[0];
                copy.rows()
                    .any(|(from, to)| refused(from, len, Use::Read) || refused(to, len, Use::Write))
            }
            Kind::Fill(fill) => fill.rows().any(|(at, len)| refused(at, len, Use::Write)),
            _ => false,
        };
        match is_refused {
            true => Err(INVALID),
            false => Ok(()),
        }
    }
}
