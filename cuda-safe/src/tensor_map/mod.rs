//! Tensor maps, with which kernels copy boxes of tensors in bulk (`cp.async.bulk.tensor`).
//!
//! | Type | Copies | C |
//! |---|---|---|
//! | [`TiledTensorMap`] | boxes of a tensor | `cuTensorMapEncodeTiled` |
//! | [`Im2colTensorMap`] | pixels of a bounding box, for convolutions | `cuTensorMapEncodeIm2col` |
//! | [`Im2colWideTensorMap`] | pixels along the width | `cuTensorMapEncodeIm2colWide` |
//!
//! A map borrows the memory of its tensor and is passed to kernels by reference. Tensor maps need compute
//! capability 9.0.

mod check;
mod encode;
#[cfg(feature = "graph")]
mod graph;
mod options;

#[cfg(feature = "graph")]
pub use graph::GraphTensorMap;

pub use options::{
    Im2colBox, Im2colWideBox, Im2colWideMode, L2Promotion, Swizzle, TensorDataType, TensorFill,
    TensorLayout, TensorMapOptions, TiledBox,
};

use crate::call::{Result, call, debug_struct};
use crate::launch::{Argument, LaunchArgument, sealed};
use crate::memory::{DeviceSlice, DeviceSliceMut};
use crate::stream::Stream;
use cuda_sys::CUtensorMap;
use encode::TensorRange;
use std::marker::PhantomData;

/// The description of a tensor in device memory, through which a kernel copies parts of the tensor between
/// device memory and shared memory in one instruction (`cp.async.bulk.tensor`).
///
/// There are three kinds: [`TiledTensorMap`], [`Im2colTensorMap`] and [`Im2colWideTensorMap`], which
/// [`tiled`](Self::tiled), [`im2col`](Self::im2col) and [`im2col_wide`](Self::im2col_wide) create.
///
/// The map borrows the memory of the tensor, and is bound to its stream. A reference to it is the argument
/// of a kernel parameter `const __grid_constant__ CUtensorMap`, whose type in Rust is
/// [`CUtensorMap`].
///
/// NVIDIA's driver checks the shape of a tensor, but not whether the tensor is in memory, and a kernel
/// that accesses other memory through a map ends the context. This type checks it. A kernel can therefore
/// load a box that is partly or wholly outside of the tensor: elements outside are zero.
///
/// The first coordinate of a copy must be at a multiple of 16 bytes: a multiple of 4 for elements of 4
/// bytes. It can be negative. Any other first coordinate is an illegal instruction of the kernel, which is
/// fatal to the process (`CUDA_ERROR_ILLEGAL_INSTRUCTION`). The other coordinates are arbitrary.
///
/// A [`GraphTensorMap`] describes a tensor in the memory of a graph.
///
/// Kernels write only through maps of [`tiled_mut`](Self::tiled_mut), [`im2col_mut`](Self::im2col_mut) and
/// [`im2col_wide_mut`](Self::im2col_wide_mut).
///
/// Interleaved layouts are not offered, because NVIDIA does not document where their elements are. Nor are
/// data types of 4 and 6 bits. Use [`from_raw`](Self::from_raw) for them.
///
/// ```no_run
/// use cuda_safe::sys::CUtensorMap;
/// use cuda_safe::tensor_map::{TensorDataType, TensorLayout, TensorMap, TiledBox};
/// use cuda_safe::{Context, Device, DeviceBuffer, LaunchConfig, Module};
///
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// let matrix = DeviceBuffer::<f32>::zeroed(&stream, 1024 * 512)?;
/// let layout = TensorLayout {
///     data_type: TensorDataType::F32,
///     dims: &[512, 1024],
///     strides: &[512 * 4],
/// };
/// let map = TensorMap::tiled(&matrix, layout, TiledBox::new(&[32, 64]), Default::default())?;
/// # let module = Module::from_ptx(&context, "")?;
/// let kernel = module.kernel("load")?.typed::<(CUtensorMap,)>()?;
/// // SAFETY: the kernel loads boxes of 32 × 64 elements through the map.
/// unsafe { kernel.launch(&stream, LaunchConfig::linear(1, 128), (&map,)) }?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct TensorMap<'a, K> {
    raw: CUtensorMap,
    /// The size of the memory from the first to the last element of the tensor.
    extent_bytes: usize,
    is_writable: bool,
    stream: &'a Stream,
    memory: PhantomData<&'a mut ()>,
    kind: PhantomData<K>,
}

/// The kind of a [`TiledTensorMap`].
#[derive(Clone, Copy, Debug)]
pub enum Tiled {}

/// The kind of an [`Im2colTensorMap`].
#[derive(Clone, Copy, Debug)]
pub enum Im2col {}

/// The kind of an [`Im2colWideTensorMap`].
#[derive(Clone, Copy, Debug)]
pub enum Im2colWide {}

/// A map for copies of boxes.
pub type TiledTensorMap<'a> = TensorMap<'a, Tiled>;

/// A map for copies of the pixels of a bounding box, which are the columns of a convolution.
pub type Im2colTensorMap<'a> = TensorMap<'a, Im2col>;

/// A map for copies of pixels in a bounding box that extends along the width only. Needs compute
/// capability 10.0.
pub type Im2colWideTensorMap<'a> = TensorMap<'a, Im2colWide>;

/// The memory of a tensor, which is borrowed for `'a`.
#[derive(Clone, Copy)]
struct TensorMemory<'a> {
    address: u64,
    bytes: usize,
    stream: &'a Stream,
    is_writable: bool,
}

impl<'a> TensorMemory<'a> {
    fn read<T>(memory: DeviceSlice<'a, T>) -> Self {
        Self {
            address: memory.as_raw(),
            bytes: memory.size_bytes(),
            stream: memory.stream(),
            is_writable: false,
        }
    }

    fn write<T>(memory: DeviceSliceMut<'a, T>) -> Self {
        Self { is_writable: true, ..Self::read(memory.into_whole()) }
    }

    #[inline]
    fn tensor_range(&self) -> TensorRange<'a> {
        TensorRange { address: self.address, bytes: self.bytes, context: self.stream.context() }
    }
}

impl<'a> TensorMap<'a, Tiled> {
    /// Creates a map for copies of boxes of a tensor that kernels only read.
    ///
    /// Calls `cuTensorMapEncodeTiled(&map, …)`.
    ///
    /// # Errors
    /// - [`Invalid::TensorMap`](crate::Invalid::TensorMap) if a parameter breaks a rule, or if the tensor
    ///   is not within `memory`. The error names the parameter.
    /// - `CUDA_ERROR_INVALID_VALUE` if the device does not support the data type, the swizzle or the kind
    ///   of copy, or if a copy does not fit into its shared memory.
    ///
    /// Since CUDA 12.0. Raw: [`cuTensorMapEncodeTiled`](fn@cuda_sys::cuTensorMapEncodeTiled).
    #[doc(alias = "cuTensorMapEncodeTiled")]
    pub fn tiled<T: 'a>(
        memory: impl Into<DeviceSlice<'a, T>>,
        layout: TensorLayout<'_>,
        shape: TiledBox<'_>,
        options: TensorMapOptions,
    ) -> Result<Self> {
        let memory = TensorMemory::read(memory.into());
        Self::encoded(memory, |range, raw| encode::tiled(range, layout, shape, options, raw))
    }

    /// Creates a map for copies of boxes of a tensor that kernels read and write.
    ///
    /// # Errors
    /// See [`tiled`](Self::tiled).
    pub fn tiled_mut<T: 'a>(
        memory: impl Into<DeviceSliceMut<'a, T>>,
        layout: TensorLayout<'_>,
        shape: TiledBox<'_>,
        options: TensorMapOptions,
    ) -> Result<Self> {
        let memory = TensorMemory::write(memory.into());
        Self::encoded(memory, |range, raw| encode::tiled(range, layout, shape, options, raw))
    }
}

impl<'a> TensorMap<'a, Im2col> {
    /// Creates a map for im2col copies of a tensor that kernels only read.
    ///
    /// Calls `cuTensorMapEncodeIm2col(&map, …)`.
    ///
    /// # Errors
    /// - [`Invalid::TensorMap`](crate::Invalid::TensorMap) if a parameter breaks a rule, or if the tensor
    ///   is not within `memory`. The error names the parameter.
    /// - `CUDA_ERROR_INVALID_VALUE` if the device does not support the data type, the swizzle or the kind
    ///   of copy, or if a copy does not fit into its shared memory.
    ///
    /// Since CUDA 12.0. Raw: [`cuTensorMapEncodeIm2col`](fn@cuda_sys::cuTensorMapEncodeIm2col).
    #[doc(alias = "cuTensorMapEncodeIm2col")]
    pub fn im2col<T: 'a>(
        memory: impl Into<DeviceSlice<'a, T>>,
        layout: TensorLayout<'_>,
        shape: Im2colBox<'_>,
        options: TensorMapOptions,
    ) -> Result<Self> {
        let memory = TensorMemory::read(memory.into());
        Self::encoded(memory, |range, raw| encode::im2col(range, layout, shape, options, raw))
    }

    /// Creates a map for im2col copies of a tensor that kernels read and write.
    ///
    /// # Errors
    /// See [`im2col`](Self::im2col).
    pub fn im2col_mut<T: 'a>(
        memory: impl Into<DeviceSliceMut<'a, T>>,
        layout: TensorLayout<'_>,
        shape: Im2colBox<'_>,
        options: TensorMapOptions,
    ) -> Result<Self> {
        let memory = TensorMemory::write(memory.into());
        Self::encoded(memory, |range, raw| encode::im2col(range, layout, shape, options, raw))
    }
}

impl<'a> TensorMap<'a, Im2colWide> {
    /// Creates a map for wide im2col copies of a tensor that kernels only read.
    ///
    /// Calls `cuTensorMapEncodeIm2colWide(&map, …)`.
    ///
    /// # Errors
    /// - [`Invalid::TensorMap`](crate::Invalid::TensorMap) if a parameter breaks a rule, or if the tensor
    ///   is not within `memory`. The error names the parameter.
    /// - `CUDA_ERROR_INVALID_VALUE` if the device does not support the data type, the swizzle or the kind
    ///   of copy, or if a copy does not fit into its shared memory.
    ///
    /// Since CUDA 12.8. Raw: [`cuTensorMapEncodeIm2colWide`](fn@cuda_sys::cuTensorMapEncodeIm2colWide).
    #[doc(alias = "cuTensorMapEncodeIm2colWide")]
    pub fn im2col_wide<T: 'a>(
        memory: impl Into<DeviceSlice<'a, T>>,
        layout: TensorLayout<'_>,
        shape: Im2colWideBox<'_>,
        options: TensorMapOptions,
    ) -> Result<Self> {
        let memory = TensorMemory::read(memory.into());
        Self::encoded(memory, |range, raw| encode::im2col_wide(range, layout, shape, options, raw))
    }

    /// Creates a map for wide im2col copies of a tensor that kernels read and write.
    ///
    /// # Errors
    /// See [`im2col_wide`](Self::im2col_wide).
    pub fn im2col_wide_mut<T: 'a>(
        memory: impl Into<DeviceSliceMut<'a, T>>,
        layout: TensorLayout<'_>,
        shape: Im2colWideBox<'_>,
        options: TensorMapOptions,
    ) -> Result<Self> {
        let memory = TensorMemory::write(memory.into());
        Self::encoded(memory, |range, raw| encode::im2col_wide(range, layout, shape, options, raw))
    }
}

impl<'a, K> TensorMap<'a, K> {
    /// Takes a map of a tensor in `memory`.
    /// Returns the map that `encode` writes.
    fn encoded(
        memory: TensorMemory<'a>,
        encode: impl FnOnce(TensorRange<'a>, &mut CUtensorMap) -> Result<usize>,
    ) -> Result<Self> {
        let mut map = Self::new(CUtensorMap { opaque: [0; 16] }, 0, memory);
        map.extent_bytes = encode(memory.tensor_range(), &mut map.raw)?;
        Ok(map)
    }

    fn new(raw: CUtensorMap, extent_bytes: usize, memory: TensorMemory<'a>) -> Self {
        Self {
            raw,
            extent_bytes,
            is_writable: memory.is_writable,
            stream: memory.stream,
            memory: PhantomData,
            kind: PhantomData,
        }
    }

    /// Takes a map that other code has encoded.
    ///
    /// # Safety
    /// - `raw` was encoded for copies of the kind `K`.
    /// - All elements of its tensor are in `memory`.
    /// - Kernels do not write through the map.
    pub unsafe fn from_raw<T: 'a>(raw: CUtensorMap, memory: impl Into<DeviceSlice<'a, T>>) -> Self {
        let memory = TensorMemory::read(memory.into());
        let extent_bytes = memory.bytes;
        Self::new(raw, extent_bytes, memory)
    }

    /// Replaces the memory of the tensor by other memory, which kernels only read. On an error, the map is
    /// unchanged.
    ///
    /// Calls `cuTensorMapReplaceAddress(&map, address)`, which takes a fifth of the time of a new map. The
    /// map is then bound to the stream of `memory`.
    ///
    /// # Errors
    /// [`Invalid::TensorMap`](crate::Invalid::TensorMap) if the address is not a multiple of 16, or if
    /// `memory` is smaller than the tensor. The tensor of a map of [`from_raw`](Self::from_raw) has the
    /// size of its first memory.
    ///
    /// Since CUDA 12.0. Raw: [`cuTensorMapReplaceAddress`](fn@cuda_sys::cuTensorMapReplaceAddress).
    #[doc(alias = "cuTensorMapReplaceAddress")]
    pub fn replace_memory<T: 'a>(&mut self, memory: impl Into<DeviceSlice<'a, T>>) -> Result<()> {
        self.replace(TensorMemory::read(memory.into()))
    }

    /// Replaces the memory of the tensor by other memory, which kernels read and write.
    ///
    /// # Errors
    /// See [`replace_memory`](Self::replace_memory).
    ///
    /// Since CUDA 12.0. Raw: [`cuTensorMapReplaceAddress`](fn@cuda_sys::cuTensorMapReplaceAddress).
    #[doc(alias = "cuTensorMapReplaceAddress")]
    pub fn replace_memory_mut<T: 'a>(
        &mut self,
        memory: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        self.replace(TensorMemory::write(memory.into()))
    }

    fn replace(&mut self, memory: TensorMemory<'a>) -> Result<()> {
        check::address(memory.address)?;
        check::extent(self.extent_bytes, memory.bytes)?;
        let address = encode::pointer(memory.address);
        let mut raw = self.raw;
        {
            let _current = memory.stream.context().enter()?;
            // SAFETY: the pointer is to a local variable, which holds an encoded map. The driver does
            // not access the memory.
            unsafe { call!(cuTensorMapReplaceAddress(&raw mut raw, address)) }?;
        }
        (self.raw, self.stream, self.is_writable) = (raw, memory.stream, memory.is_writable);
        Ok(())
    }

    /// Returns the encoded map. Kernels that use it access the memory of the tensor.
    pub fn as_raw(&self) -> &CUtensorMap {
        &self.raw
    }

    /// Returns the stream that the memory is bound to.
    pub fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// Returns the size in bytes of the memory from the first to the last element of the tensor.
    pub fn extent_bytes(&self) -> usize {
        self.extent_bytes
    }

    /// Returns whether kernels may write through the map.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }
}

#[diagnostic::do_not_recommend]
impl<K> Argument<CUtensorMap> for &TensorMap<'_, K> {
    #[inline]
    fn bytes(self, index: usize, launch: sealed::Target<'_>) -> Result<CUtensorMap> {
        launch.check_stream(index, self.stream)?;
        Ok(self.raw)
    }
}

impl<K> LaunchArgument for &TensorMap<'_, K> {
    type Param = CUtensorMap;
}

debug_struct! {
    [K] TensorMap<'_, K> |its| {
        extent_bytes: its.extent_bytes, is_writable: its.is_writable, stream: its.stream, ..
    }
}
