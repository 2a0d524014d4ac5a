//! Copies from and to logical endpoints.

use crate::memory::Memory;

/// One side of a copy.
#[derive(Clone, Debug)]
pub(crate) enum FabricSide {
    /// Device memory at this address.
    Memory(u64),
    /// The endpoint with this id, from this offset on.
    Endpoint(u32, u64),
}

/// A copy over the fabric.
#[derive(Clone, Debug)]
pub(crate) struct FabricCopy {
    pub(crate) from: FabricSide,
    pub(crate) to: FabricSide,
    pub(crate) len: usize,
}

impl FabricCopy {
    pub(super) fn run(&self, memory: &mut Memory) -> Result<(), String> {
        let bytes = match self.from {
            FabricSide::Memory(from) => memory.bytes(from, self.len)?.to_vec(),
            FabricSide::Endpoint(id, offset) => memory.read_endpoint(id, offset, self.len)?,
        };
        match self.to {
            FabricSide::Memory(to) => memory.target(to, self.len)?.copy_from_slice(&bytes),
            FabricSide::Endpoint(id, offset) => memory.write_endpoint(id, offset, &bytes)?,
        }
        Ok(())
    }
}
