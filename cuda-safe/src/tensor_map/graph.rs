//! Tensor maps of memory that a graph owns.

use super::encode::{TensorBox, TensorRange};
use super::options::{TensorLayout, TensorMapOptions};
use crate::call::{Result, debug_struct};
use crate::graph::memory::buffer::{GraphSlice, GraphSliceMut};
use crate::graph::{NodeArgument, NodeUses};
use cuda_sys::CUtensorMap;

/// A tensor map of memory that a graph owns: an argument of one kernel node.
///
/// Apart from that, it is a [`TensorMap`](super::TensorMap). The node uses the whole slice that the map was
/// created from.
pub struct GraphTensorMap<'a> {
    raw: CUtensorMap,
    memory: GraphSlice<'a, u8>,
    writes: bool,
}

impl<'a> GraphTensorMap<'a> {
    /// Creates a map of a tensor that the node only reads.
    ///
    /// # Errors
    /// See [`TensorMap::new`](super::TensorMap::new).
    pub fn new<T>(
        memory: GraphSlice<'a, T>,
        layout: TensorLayout<'_>,
        shape: impl TensorBox,
        options: TensorMapOptions,
    ) -> Result<Self> {
        Self::encoded(&memory, false, layout, shape, options)
    }

    /// Creates a map of a tensor that the node reads and writes.
    ///
    /// # Errors
    /// See [`TensorMap::new`](super::TensorMap::new).
    pub fn new_mut<T>(
        memory: GraphSliceMut<'a, T>,
        layout: TensorLayout<'_>,
        shape: impl TensorBox,
        options: TensorMapOptions,
    ) -> Result<Self> {
        Self::encoded(&memory.into_whole(), true, layout, shape, options)
    }

    fn encoded<T>(
        memory: &GraphSlice<'a, T>,
        writes: bool,
        layout: TensorLayout<'_>,
        shape: impl TensorBox,
        options: TensorMapOptions,
    ) -> Result<Self> {
        let (address, bytes) = (memory.address(), memory.len() * size_of::<T>());
        let range = TensorRange { address, bytes, context: memory.context() };
        let mut raw = CUtensorMap { opaque: [0; 16] };
        shape.encode(range, layout, options, &mut raw)?;
        Ok(Self { raw, memory: memory.as_bytes(), writes })
    }
}

impl NodeArgument<CUtensorMap> for GraphTensorMap<'_> {
    #[inline]
    fn bytes(self, _: usize, uses: &mut NodeUses<'_>) -> Result<CUtensorMap> {
        self.memory.declare(0..self.memory.len(), self.writes, uses)?;
        Ok(self.raw)
    }
}

debug_struct! { GraphTensorMap<'_> |_its| { .. } }
