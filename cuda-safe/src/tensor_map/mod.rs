//! Tensor maps, with which kernels copy boxes of tensors in bulk (`cp.async.bulk.tensor`).
//!
//! | Shape | Copies | C |
//! |---|---|---|
//! | [`TiledBox`] | boxes of a tensor | `cuTensorMapEncodeTiled` |
//! | [`Im2colBox`] | pixels of a bounding box, for convolutions | `cuTensorMapEncodeIm2col` |
//! | [`Im2colWideBox`] | pixels along the width | `cuTensorMapEncodeIm2colWide` |
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

pub use encode::TensorBox;
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
/// The [shape](TensorBox) of the copies determines the instructions with which a kernel can use the map.
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
/// Kernels write only through maps of [`new_mut`](Self::new_mut).
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
/// let map = TensorMap::new(&matrix, layout, TiledBox::new(&[32, 64]), Default::default())?;
/// # let module = Module::from_ptx(&context, "")?;
/// let kernel = module.kernel("load")?.typed::<(CUtensorMap,)>()?;
/// // SAFETY: the kernel loads boxes of 32 × 64 elements through the map.
/// unsafe { kernel.launch(&stream, LaunchConfig::linear(1, 128), (&map,)) }?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct TensorMap<'a> {
    raw: CUtensorMap,
    /// The size of the memory from the first to the last element of the tensor.
    extent_bytes: usize,
    is_writable: bool,
    stream: &'a Stream,
    memory: PhantomData<&'a mut ()>,
}

impl<'a> TensorMap<'a> {
    /// Creates a map of a tensor that kernels only read.
    ///
    /// Calls `cuTensorMapEncodeTiled(&map, …)`, `cuTensorMapEncodeIm2col` or `cuTensorMapEncodeIm2colWide`,
    /// by the type of `shape`.
    ///
    /// # Errors
    /// - [`Invalid::TensorMap`](crate::Invalid::TensorMap) if a parameter breaks a rule, or if the tensor
    ///   is not within `memory`. The error names the parameter.
    /// - `CUDA_ERROR_INVALID_VALUE` if the device does not support the data type, the swizzle or the kind
    ///   of copy, or if a copy does not fit into its shared memory.
    ///
    /// Since CUDA 12.0, and 12.8 for wide im2col copies.
    /// Raw: [`cuTensorMapEncodeTiled`](fn@cuda_sys::cuTensorMapEncodeTiled),
    /// [`cuTensorMapEncodeIm2col`](fn@cuda_sys::cuTensorMapEncodeIm2col),
    /// [`cuTensorMapEncodeIm2colWide`](fn@cuda_sys::cuTensorMapEncodeIm2colWide).
    #[doc(alias = "cuTensorMapEncodeTiled", alias = "cuTensorMapEncodeIm2col")]
    #[doc(alias = "cuTensorMapEncodeIm2colWide")]
    pub fn new<T: 'a>(
        memory: impl Into<DeviceSlice<'a, T>>,
        layout: TensorLayout<'_>,
        shape: impl TensorBox,
        options: TensorMapOptions,
    ) -> Result<Self> {
        Self::encoded(&memory.into(), false, layout, shape, options)
    }

    /// Creates a map of a tensor that kernels read and write.
    ///
    /// # Errors
    /// See [`new`](Self::new).
    pub fn new_mut<T: 'a>(
        memory: impl Into<DeviceSliceMut<'a, T>>,
        layout: TensorLayout<'_>,
        shape: impl TensorBox,
        options: TensorMapOptions,
    ) -> Result<Self> {
        Self::encoded(&memory.into().into_whole(), true, layout, shape, options)
    }

    #[inline(always)]
    fn encoded<T>(
        memory: &DeviceSlice<'a, T>,
        is_writable: bool,
        layout: TensorLayout<'_>,
        shape: impl TensorBox,
        options: TensorMapOptions,
    ) -> Result<Self> {
        let mut map = Self::with_raw(CUtensorMap { opaque: [0; 16] }, memory, is_writable);
        map.extent_bytes = shape.encode(range(memory), layout, options, &mut map.raw)?;
        Ok(map)
    }

    #[inline(always)]
    fn with_raw<T>(raw: CUtensorMap, memory: &DeviceSlice<'a, T>, is_writable: bool) -> Self {
        let (extent_bytes, stream) = (memory.size_bytes(), memory.stream());
        Self { raw, extent_bytes, is_writable, stream, memory: PhantomData }
    }

    /// Takes a map that other code has encoded.
    ///
    /// # Safety
    /// - `raw` is an encoded map.
    /// - All elements of its tensor are in `memory`.
    /// - Kernels do not write through the map.
    pub unsafe fn from_raw<T: 'a>(raw: CUtensorMap, memory: impl Into<DeviceSlice<'a, T>>) -> Self {
        Self::with_raw(raw, &memory.into(), false)
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
        self.replace(&memory.into(), false)
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
        self.replace(&memory.into().into_whole(), true)
    }

    #[inline(always)]
    fn replace<T>(&mut self, memory: &DeviceSlice<'a, T>, is_writable: bool) -> Result<()> {
        check::address(memory.as_raw())?;
        check::extent(self.extent_bytes, memory.size_bytes())?;
        let address = encode::pointer(memory.as_raw());
        let mut raw = self.raw;
        {
            let _current = memory.stream().context().enter()?;
            // SAFETY: the pointer is to a local variable, which holds an encoded map. The driver does
            // not access the memory.
            unsafe { call!(cuTensorMapReplaceAddress(&raw mut raw, address)) }?;
        }
        (self.raw, self.stream, self.is_writable) = (raw, memory.stream(), is_writable);
        Ok(())
    }

    /// Returns the encoded map. Kernels that use it access the memory of the tensor.
    #[inline]
    pub fn as_raw(&self) -> &CUtensorMap {
        &self.raw
    }

    /// Returns the stream that the memory is bound to.
    #[inline]
    pub fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// Returns the size in bytes of the memory from the first to the last element of the tensor.
    #[inline]
    pub fn extent_bytes(&self) -> usize {
        self.extent_bytes
    }

    /// Returns whether kernels may write through the map.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }
}

/// Returns the memory in which the tensor of a map must be.
#[inline(always)]
fn range<'a, T>(memory: &DeviceSlice<'a, T>) -> TensorRange<'a> {
    let (address, bytes) = (memory.as_raw(), memory.size_bytes());
    TensorRange { address, bytes, context: memory.stream().context() }
}

#[diagnostic::do_not_recommend]
impl Argument<CUtensorMap> for &TensorMap<'_> {
    #[inline]
    fn bytes(self, index: usize, launch: sealed::Target<'_>) -> Result<CUtensorMap> {
        launch.check_stream(index, self.stream)?;
        Ok(self.raw)
    }
}

impl LaunchArgument for &TensorMap<'_> {
    type Param = CUtensorMap;
}

debug_struct! {
    TensorMap<'_> |its| {
        extent_bytes: its.extent_bytes, is_writable: its.is_writable, stream: its.stream, ..
    }
}
