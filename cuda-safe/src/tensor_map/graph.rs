//! Tensor maps of memory that a graph owns.

use super::encode::{self, Encoded, TensorRange};
use super::options::{Im2colBox, Im2colWideBox, TensorLayout, TensorMapOptions, TiledBox};
use super::{Im2col, Im2colWide, Tiled};
use crate::call::{Result, debug_struct};
use crate::graph::memory::buffer::{GraphSlice, GraphSliceMut};
use crate::graph::{MemoryUse, NodeArgument, NodeUses};
use cuda_sys::CUtensorMap;
use std::marker::PhantomData;

/// A tensor map of memory that a graph owns: an argument of one kernel node.
///
/// Apart from that, it is a [`TensorMap`](super::TensorMap). The node uses the whole slice that the map was
/// created from.
pub struct GraphTensorMap<'a, K> {
    raw: CUtensorMap,
    memory: MemoryUse<'a>,
    kind: PhantomData<K>,
}

impl<'a, T> GraphSlice<'a, T> {
    fn tensor_range(&self) -> TensorRange<'a> {
        TensorRange {
            address: self.address(),
            bytes: self.len() * size_of::<T>(),
            context: self.context(),
        }
    }
}

impl<'a, K> GraphTensorMap<'a, K> {
    fn new<T>(map: Encoded, memory: &GraphSlice<'a, T>, writes: bool) -> Self {
        Self { raw: map.raw, memory: memory.used(0..memory.len(), writes), kind: PhantomData }
    }
}

impl<'a> GraphTensorMap<'a, Tiled> {
    /// Creates a map for copies of boxes of a tensor that the node only reads.
    ///
    /// Calls `cuTensorMapEncodeTiled(&map, …)`.
    ///
    /// # Errors
    /// See [`TensorMap::tiled`](super::TensorMap::tiled).
    ///
    /// Since CUDA 12.0. Raw: [`cuTensorMapEncodeTiled`](fn@cuda_sys::cuTensorMapEncodeTiled).
    #[doc(alias = "cuTensorMapEncodeTiled")]
    pub fn tiled<T>(
        memory: GraphSlice<'a, T>,
        layout: TensorLayout<'_>,
        shape: TiledBox<'_>,
        options: TensorMapOptions,
    ) -> Result<Self> {
        let map = encode::tiled(memory.tensor_range(), layout, shape, options)?;
        Ok(Self::new(map, &memory, false))
    }

    /// Creates a map for copies of boxes of a tensor that the node reads and writes.
    ///
    /// # Errors
    /// See [`TensorMap::tiled`](super::TensorMap::tiled).
    pub fn tiled_mut<T>(
        memory: GraphSliceMut<'a, T>,
        layout: TensorLayout<'_>,
        shape: TiledBox<'_>,
        options: TensorMapOptions,
    ) -> Result<Self> {
        let memory = memory.into_whole();
        let map = encode::tiled(memory.tensor_range(), layout, shape, options)?;
        Ok(Self::new(map, &memory, true))
    }
}

impl<'a> GraphTensorMap<'a, Im2col> {
    /// Creates a map for im2col copies of a tensor that the node only reads.
    ///
    /// Calls `cuTensorMapEncodeIm2col(&map, …)`.
    ///
    /// # Errors
    /// See [`TensorMap::im2col`](super::TensorMap::im2col).
    ///
    /// Since CUDA 12.0. Raw: [`cuTensorMapEncodeIm2col`](fn@cuda_sys::cuTensorMapEncodeIm2col).
    #[doc(alias = "cuTensorMapEncodeIm2col")]
    pub fn im2col<T>(
        memory: GraphSlice<'a, T>,
        layout: TensorLayout<'_>,
        shape: Im2colBox<'_>,
        options: TensorMapOptions,
    ) -> Result<Self> {
        let map = encode::im2col(memory.tensor_range(), layout, shape, options)?;
        Ok(Self::new(map, &memory, false))
    }

    /// Creates a map for im2col copies of a tensor that the node reads and writes.
    ///
    /// # Errors
    /// See [`TensorMap::im2col`](super::TensorMap::im2col).
    pub fn im2col_mut<T>(
        memory: GraphSliceMut<'a, T>,
        layout: TensorLayout<'_>,
        shape: Im2colBox<'_>,
        options: TensorMapOptions,
    ) -> Result<Self> {
        let memory = memory.into_whole();
        let map = encode::im2col(memory.tensor_range(), layout, shape, options)?;
        Ok(Self::new(map, &memory, true))
    }
}

impl<'a> GraphTensorMap<'a, Im2colWide> {
    /// Creates a map for wide im2col copies of a tensor that the node only reads.
    ///
    /// Calls `cuTensorMapEncodeIm2colWide(&map, …)`.
    ///
    /// # Errors
    /// See [`TensorMap::im2col_wide`](super::TensorMap::im2col_wide).
    ///
    /// Since CUDA 12.8. Raw: [`cuTensorMapEncodeIm2colWide`](fn@cuda_sys::cuTensorMapEncodeIm2colWide).
    #[doc(alias = "cuTensorMapEncodeIm2colWide")]
    pub fn im2col_wide<T>(
        memory: GraphSlice<'a, T>,
        layout: TensorLayout<'_>,
        shape: Im2colWideBox<'_>,
        options: TensorMapOptions,
    ) -> Result<Self> {
        let map = encode::im2col_wide(memory.tensor_range(), layout, shape, options)?;
        Ok(Self::new(map, &memory, false))
    }

    /// Creates a map for wide im2col copies of a tensor that the node reads and writes.
    ///
    /// # Errors
    /// See [`TensorMap::im2col_wide`](super::TensorMap::im2col_wide).
    pub fn im2col_wide_mut<T>(
        memory: GraphSliceMut<'a, T>,
        layout: TensorLayout<'_>,
        shape: Im2colWideBox<'_>,
        options: TensorMapOptions,
    ) -> Result<Self> {
        let memory = memory.into_whole();
        let map = encode::im2col_wide(memory.tensor_range(), layout, shape, options)?;
        Ok(Self::new(map, &memory, true))
    }
}

impl<K> NodeArgument<CUtensorMap> for GraphTensorMap<'_, K> {
    fn bytes(self, _: usize, uses: &mut NodeUses<'_>) -> Result<CUtensorMap> {
        uses.add(self.memory)?;
        Ok(self.raw)
    }
}

debug_struct! { [K] GraphTensorMap<'_, K> |_its| { .. } }
