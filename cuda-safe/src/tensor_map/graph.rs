//! Tensor maps of memory that a graph owns.

use super::encode::{self, TensorRange};
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
    /// Returns the map that `encode` writes.
    fn encoded<T>(
        memory: &GraphSlice<'a, T>,
        writes: bool,
        encode: impl FnOnce(TensorRange<'a>, &mut CUtensorMap) -> Result<usize>,
    ) -> Result<Self> {
        let mut raw = CUtensorMap { opaque: [0; 16] };
        encode(memory.tensor_range(), &mut raw)?;
        Ok(Self { raw, memory: memory.used(0..memory.len(), writes), kind: PhantomData })
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
        Self::encoded(&memory, false, |range, raw| {
            encode::tiled(range, layout, shape, options, raw)
        })
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
        Self::encoded(&memory, true, |range, raw| encode::tiled(range, layout, shape, options, raw))
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
        Self::encoded(&memory, false, |range, raw| {
            encode::im2col(range, layout, shape, options, raw)
        })
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
        Self::encoded(&memory, true, |range, raw| {
            encode::im2col(range, layout, shape, options, raw)
        })
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
        Self::encoded(&memory, false, |range, raw| {
            encode::im2col_wide(range, layout, shape, options, raw)
        })
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
        Self::encoded(&memory, true, |range, raw| {
            encode::im2col_wide(range, layout, shape, options, raw)
        })
    }
}

impl<K> NodeArgument<CUtensorMap> for GraphTensorMap<'_, K> {
    fn bytes(self, _: usize, uses: &mut NodeUses<'_>) -> Result<CUtensorMap> {
        uses.add(self.memory)?;
        Ok(self.raw)
    }
}

debug_struct! { [K] GraphTensorMap<'_, K> |_its| { .. } }
