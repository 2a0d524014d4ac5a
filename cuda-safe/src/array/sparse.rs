//! Sparse arrays: arrays with memory for some tiles only.

use super::array_error;
use super::owned::{Array, ArrayMut, ArrayRef, create};
use super::shape::{ArrayOptions, ArrayShape, check_array};
use super::texel::{Texel, check_texel};
use crate::call::{
    Extent, Result, answer, call, count_leak, debug_struct, out_without_current, without_current,
};
use crate::capture_state::Operation;
use crate::device::attribute::SPARSE_CUDA_ARRAY_SUPPORTED;
use crate::release::{self, Handle, Keep, destroy, release};
use crate::stream::Stream;
use crate::sync::{Mutex, lock};
use crate::virtual_memory::PhysicalMemory;
use cuda_sys::{
    CUDA_ARRAY3D_SPARSE, CUarray, CUarrayMapInfo, CUarraySparseSubresourceType,
    CUmemGenericAllocationHandle, CUmemHandleType, CUmemOperationType, CUresourcetype, Zeroable,
};
use std::collections::BTreeMap;

/// The alignment of the memory of a tile, which is its size on current devices.
const TILE_ALIGNMENT: usize = 64 << 10;

/// A sparse CUDA array: only mapped tiles have memory. Bound to a stream, as an [`Array`] is.
///
/// [`map`](Self::map) gives memory to a region, and [`unmap`](Self::unmap) takes it away, in the order of
/// the work on the stream. The array owns the memory, uses that of unmapped tiles for the next ones, and
/// releases all of it when it is dropped.
///
/// Copies access mapped regions only ([`part`](Self::part)). A [`Texture`](super::Texture) or a
/// [`Surface`](super::Surface) covers the whole array: that a kernel accesses mapped tiles only is a
/// promise of an unsafe launch. The tiles cannot change while such an object exists;
/// [`Texture::into_source`](super::Texture::into_source) returns the array without blocking.
///
/// Devices support this if
/// [`SPARSE_CUDA_ARRAY_SUPPORTED`](crate::device::attribute::SPARSE_CUDA_ARRAY_SUPPORTED) is set. What kernels read
/// from unmapped tiles, and how the driver maps tiles at the edge of an array, is unverified (from
/// documentation).
///
/// # Drop
/// See [`Array`].
///
/// ```no_run
/// use cuda_safe::array::{ArrayShape, SparseArray};
/// use cuda_safe::{Context, Device};
/// use cuda_safe::memory::Extent;
///
/// let stream = Context::primary(&Device::get(0)?)?.stream()?;
/// let shape = ArrayShape::TwoD { width: 16384, height: 16384 };
/// let mut image = SparseArray::<u32>::new(&stream, shape)?;
/// let extent = Extent::new_2d(128, 128);
/// image.map([1024, 1024, 0], extent)?;
/// image.part_mut([1024, 1024, 0], extent)?.copy_from_slice(&vec![7; 128 * 128])?;
/// assert!(image.part([0; 3], extent).is_err());
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct SparseArray<T> {
    /// Borrowed, so that it is destroyed with the memory.
    array: Array<T>,
    tile: Extent,
    /// The memory of a tile.
    tile_bytes: usize,
    /// The device, as a bit.
    devices: u32,
    memory: Vec<PhysicalMemory>,
    /// Memory of no tile.
    free: Vec<Slot>,
    /// The memory of tiles, by their position in tiles.
    mapped: BTreeMap<[usize; 3], Slot>,
}

/// The memory of a tile.
#[derive(Clone, Copy, Debug)]
struct Slot {
    handle: CUmemGenericAllocationHandle,
    offset: u64,
}

impl<T: Texel> SparseArray<T> {
    /// Creates a sparse array for textures. No tile is mapped.
    ///
    /// Calls `cuArray3DCreate(&array, &descriptor)` and `cuArrayGetSparseProperties(&properties, array)`.
    ///
    /// # Errors
    /// See [`Array::new`]. In addition: [`Invalid::Array`](crate::Invalid::Array) if the device has no
    /// sparse arrays, or if the shape is too small for tiles; `CUDA_ERROR_INVALID_VALUE` for shapes that
    /// the driver does not support.
    ///
    /// Since CUDA 11.1. Raw: [`cuArray3DCreate_v2`](fn@cuda_sys::cuArray3DCreate_v2),
    /// [`cuArrayGetSparseProperties`](fn@cuda_sys::cuArrayGetSparseProperties).
    #[doc(alias = "cuArrayGetSparseProperties")]
    pub fn new(stream: &Stream, shape: ArrayShape) -> Result<Self> {
        Self::with(stream, shape, ArrayOptions::default())
    }

    /// Creates a sparse array with options. No tile is mapped.
    ///
    /// # Errors
    /// See [`new`](Self::new) and [`Array::with`]. Driver 580 returns `CUDA_ERROR_INVALID_VALUE` for
    /// the option [`surface`](ArrayOptions::surface) on an H200.
    pub fn with(stream: &Stream, shape: ArrayShape, options: ArrayOptions) -> Result<Self> {
        check_texel::<T>();
        let device = stream.context().device();
        if !device.attribute(SPARSE_CUDA_ARRAY_SUPPORTED)? {
            return Err(array_error("the device", "it has no sparse arrays"));
        }
        let ordinal = device.ordinal();
        let Some(devices) = 1u32.checked_shl(ordinal) else {
            let problem = format!("device {ordinal} is not among the 32 that can map tiles");
            return Err(array_error("the device", problem));
        };
        check_array(&device, shape, options, false)?;
        let mut descriptor = shape.descriptor::<T>(options);
        descriptor.Flags |= CUDA_ARRAY3D_SPARSE;
        let from = &raw const descriptor;
        // SAFETY: the pointers refer to variables, and the context of the stream is current.
        let raw = create(stream, |place| unsafe { call!(cuArray3DCreate_v2(place, from)) })?;
        // Owned from here on, so errors destroy it.
        let mut array = Self {
            array: Array::borrow(raw, shape, options, stream),
            tile: Extent::new_3d(0, 0, 0),
            tile_bytes: 0,
            devices,
            memory: Vec::new(),
            free: Vec::new(),
            mapped: BTreeMap::new(),
        };
        array.tile = array.find_tile()?;
        let Extent { width, height, depth } = array.tile;
        let bytes = width * height * depth * size_of::<T>();
        array.tile_bytes = bytes.next_multiple_of(TILE_ALIGNMENT);
        Ok(array)
    }

    fn find_tile(&self) -> Result<Extent> {
        let array = self.as_raw();
        // SAFETY: the array is alive, and `out` passes a valid pointer.
        let properties = out_without_current(self.stream().context(), |place| unsafe {
            answer!(cuArrayGetSparseProperties(place, array))
        })?;
        let its = properties.tileExtent;
        let [width, height, depth] = [its.width, its.height, its.depth].map(|its| its as usize);
        let tile = Extent::new_3d(width, height, depth);
        let has_tail = properties.miptailSize != 0 && properties.miptailFirstLevel == 0;
        if tile.is_empty() || has_tail {
            let problem = format!(
                "{:?} has no tiles: use an Array for shapes smaller than a tile",
                self.shape()
            );
            return Err(array_error("the shape", problem));
        }
        Ok(tile)
    }
}

impl<T> SparseArray<T> {
    /// Returns the dimensions.
    pub fn shape(&self) -> ArrayShape {
        self.array.shape()
    }

    /// Returns the options that the array was created with.
    pub fn options(&self) -> ArrayOptions {
        self.array.options()
    }

    /// Returns the extent of a tile, in texels. Layers and faces have tiles of their own.
    pub fn tile(&self) -> Extent {
        self.tile
    }

    /// Returns the stream that the array is bound to.
    pub fn stream(&self) -> &Stream {
        self.array.stream()
    }

    /// Returns the raw handle. Do not destroy it, and map and unmap nothing.
    pub fn as_raw(&self) -> CUarray {
        self.array.as_raw()
    }

    /// Returns the memory of the array in bytes: that of mapped tiles, and that for the next ones.
    pub fn memory_bytes(&self) -> usize {
        self.memory.iter().map(PhysicalMemory::size).sum()
    }

    /// Returns the number of mapped tiles.
    pub fn mapped_tiles(&self) -> usize {
        self.mapped.len()
    }

    /// Returns the array as a whole, mapped or not.
    pub(super) fn whole(&self) -> ArrayRef<'_, T> {
        self.array.as_ref()
    }

    /// Returns whether all tiles of a region are mapped: the texels from `[x, y, z]` on. Layers and faces
    /// are slices, which `z` counts.
    ///
    /// # Errors
    /// [`Invalid::Array`](crate::Invalid::Array) if the region is not within the array.
    pub fn is_mapped(&self, at: [usize; 3], extent: Extent) -> Result<bool> {
        let touched = self.touched(at, extent)?;
        Ok(touched.iter().all(|tile| self.mapped.contains_key(tile)))
    }

    /// Borrows a mapped region for reading.
    ///
    /// # Errors
    /// [`Invalid::Array`](crate::Invalid::Array) if the region is not within the array, or if one of its
    /// tiles is not mapped.
    pub fn part(&self, at: [usize; 3], extent: Extent) -> Result<ArrayRef<'_, T>> {
        if !self.is_mapped(at, extent)? {
            let problem =
                format!("{extent:?} at {at:?} has tiles without memory: call `map` first");
            return Err(array_error("the part", problem));
        }
        self.whole().part(at, extent)
    }

    /// Borrows a mapped region for reading and writing.
    ///
    /// # Errors
    /// See [`part`](Self::part).
    pub fn part_mut(&mut self, at: [usize; 3], extent: Extent) -> Result<ArrayMut<'_, T>> {
        Ok(ArrayMut::new(self.part(at, extent)?))
    }

    /// Maps memory to all tiles that a region touches. The texels of tiles that were not mapped are not
    /// initialized. Allocates memory if that of unmapped tiles does not suffice.
    ///
    /// Calls `cuMemMapArrayAsync(&operations, count, stream)`, and `cuMemCreate` for memory that only
    /// sparse arrays can use.
    ///
    /// # Errors
    /// - [`Invalid::Array`](crate::Invalid::Array) if the region is not within the array.
    /// - [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory). No tile is mapped then.
    /// - Errors of the driver. The new tiles then count as not mapped, and their memory is not used again.
    ///
    /// Since CUDA 11.1. Raw: [`cuMemMapArrayAsync`](fn@cuda_sys::cuMemMapArrayAsync).
    #[doc(alias = "cuMemMapArrayAsync")]
    pub fn map(&mut self, at: [usize; 3], extent: Extent) -> Result<()> {
        release::drain();
        let mut missing = self.touched(at, extent)?;
        missing.retain(|tile| !self.mapped.contains_key(tile));
        if missing.is_empty() {
            return Ok(());
        }
        let stream = self.stream().clone();
        let _call = stream.uncaptured(Operation::Allocate)?;
        self.reserve(missing.len())?;
        let rest = self.free.len() - missing.len();
        let slots = self.free.split_off(rest);
        let tiles = missing.into_iter().zip(slots);
        let mut list: Vec<_> =
            tiles.clone().map(|(tile, slot)| self.operation(tile, Some(slot))).collect();
        self.enqueue(&mut list)?;
        self.mapped.extend(tiles);
        Ok(())
    }

    /// Unmaps all tiles that are within a region. Tiles that are partly outside stay mapped.
    ///
    /// Calls `cuMemMapArrayAsync(&operations, count, stream)`.
    ///
    /// # Errors
    /// - [`Invalid::Array`](crate::Invalid::Array) if the region is not within the array.
    /// - [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    /// - Errors of the driver. The tiles then count as not mapped, and their memory is not used again.
    pub fn unmap(&mut self, at: [usize; 3], extent: Extent) -> Result<()> {
        let mut within = self.touched(at, extent)?;
        within.retain(|tile| self.mapped.contains_key(tile) && self.is_within(*tile, at, extent));
        if within.is_empty() {
            return Ok(());
        }
        let stream = self.stream().clone();
        let _call = stream.uncaptured(Operation::Release)?;
        let mut list: Vec<_> = within.iter().map(|tile| self.operation(*tile, None)).collect();
        let slots: Vec<_> = within.iter().filter_map(|tile| self.mapped.remove(tile)).collect();
        self.enqueue(&mut list)?;
        // Later work on the stream may use the memory.
        self.free.extend(slots);
        Ok(())
    }

    /// Binds the array to another stream. See [`Array::rebind`].
    ///
    /// # Errors
    /// See [`Array::rebind`].
    pub fn rebind(&mut self, stream: &Stream) -> Result<()> {
        self.array.follow(stream)
    }

    /// Returns the tiles that a region touches.
    ///
    /// # Errors
    /// [`Invalid::Array`](crate::Invalid::Array) if the region is not within the array.
    fn touched(&self, at: [usize; 3], extent: Extent) -> Result<Vec<[usize; 3]>> {
        self.whole().part(at, extent)?;
        if extent.is_empty() {
            return Ok(Vec::new());
        }
        let tile = [self.tile.width, self.tile.height, self.tile.depth];
        let len = [extent.width, extent.height, extent.depth];
        let along = |i: usize| at[i] / tile[i]..(at[i] + len[i]).div_ceil(tile[i]);
        let rows = along(2).flat_map(|z| along(1).map(move |y| (y, z)));
        Ok(rows.flat_map(|(y, z)| along(0).map(move |x| [x, y, z])).collect())
    }

    /// Returns the first texel of a tile, and the extent of its part that is within the array.
    fn bounds(&self, [x, y, z]: [usize; 3]) -> ([usize; 3], Extent) {
        let (tile, whole) = (self.tile, self.shape().extent());
        let at = [x * tile.width, y * tile.height, z * tile.depth];
        let extent = Extent::new_3d(
            tile.width.min(whole.width - at[0]),
            tile.height.min(whole.height - at[1]),
            tile.depth.min(whole.depth - at[2]),
        );
        (at, extent)
    }

    /// Returns whether all texels of a tile are within a region.
    fn is_within(&self, tile: [usize; 3], from: [usize; 3], region: Extent) -> bool {
        let (at, extent) = self.bounds(tile);
        let its = [extent.width, extent.height, extent.depth];
        let all = [region.width, region.height, region.depth];
        (0..3).all(|i| from[i] <= at[i] && at[i] + its[i] <= from[i] + all[i])
    }

    /// Allocates memory until there is enough for this number of tiles.
    ///
    /// # Errors
    /// Errors of `cuMemCreate`.
    fn reserve(&mut self, tiles: usize) -> Result<()> {
        let missing = tiles.saturating_sub(self.free.len());
        if missing == 0 {
            return Ok(());
        }
        let device = self.stream().context().device();
        let memory = PhysicalMemory::for_tiles(device, missing.saturating_mul(self.tile_bytes))?;
        let handle = memory.as_raw();
        let bytes = self.tile_bytes;
        let offsets = (0..memory.size() / bytes).map(|number| (number * bytes) as u64);
        self.free.extend(offsets.map(|offset| Slot { handle, offset }));
        self.memory.push(memory);
        Ok(())
    }

    /// Describes how a tile is mapped, or unmapped if there is no slot.
    fn operation(&self, tile: [usize; 3], slot: Option<Slot>) -> CUarrayMapInfo {
        let ([x, y, z], extent) = self.bounds(tile);
        let (layer, z) = match self.shape() {
            ArrayShape::ThreeD { .. } => (0, z),
            _ => (z, 0),
        };
        // No array is as large as 2^32 texels along a dimension (`check_array`).
        let number = |its: usize| u32::try_from(its).unwrap_or(u32::MAX);
        let mut operation = CUarrayMapInfo::zeroed();
        operation.resourceType = CUresourcetype::CU_RESOURCE_TYPE_ARRAY;
        operation.resource.array = self.as_raw();
        operation.subresourceType =
            CUarraySparseSubresourceType::CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
        operation.subresource.sparseLevel =
            cuda_sys::CUarrayMapInfo_st__bindgen_ty_2__bindgen_ty_1 {
                level: 0,
                layer: number(layer),
                offsetX: number(x),
                offsetY: number(y),
                offsetZ: number(z),
                extentWidth: number(extent.width),
                extentHeight: number(extent.height),
                extentDepth: number(extent.depth),
            };
        operation.memOperationType = CUmemOperationType::CU_MEM_OPERATION_TYPE_UNMAP;
        operation.memHandleType = CUmemHandleType::CU_MEM_HANDLE_TYPE_GENERIC;
        if let Some(Slot { handle, offset }) = slot {
            operation.memOperationType = CUmemOperationType::CU_MEM_OPERATION_TYPE_MAP;
            operation.memHandle.memHandle = handle;
            operation.offset = offset;
        }
        operation.deviceBitMask = self.devices;
        operation
    }

    /// Enqueues these operations.
    fn enqueue(&self, list: &mut [CUarrayMapInfo]) -> Result<()> {
        let Ok(count) = u32::try_from(list.len()) else {
            let problem = format!("{} tiles are more than one call can map", list.len());
            return Err(array_error("the number of tiles", problem));
        };
        let (stream, list) = (self.stream().raw(), list.as_mut_ptr());
        without_current(self.stream().context(), || {
            // SAFETY: the list has `count` operations on tiles of this array, which is alive. The memory
            // that they map belongs to no other tile, and is released after the array.
            unsafe { answer!(cuMemMapArrayAsync(list, count, stream)) }
        })
    }
}

/// A sparse array with its memory, which is released after the array.
struct SparseHandle {
    raw: Handle<CUarray>,
    memory: Mutex<Vec<PhysicalMemory>>,
}

destroy! {
    SparseHandle as "a sparse CUDA array", after Uses;
    // SAFETY: this value stands for the array, and the caller promises that this is the first call. The
    // work on its stream was waited for, and the driver waits for all other work.
    |its| unsafe { answer!(cuArrayDestroy(its.raw.0)) };

    /// Leaks the memory, because tiles of the array are mapped to it.
    #[inline]
    fn has_leaked(&self, _: &dyn Keep) {
        let mut memory = lock(&self.memory);
        for memory in memory.drain(..) {
            let _handle = memory.into_raw();
            count_leak();
        }
    }
}

impl<T> Drop for SparseArray<T> {
    fn drop(&mut self) {
        let handle = SparseHandle {
            raw: Handle(self.as_raw()),
            memory: Mutex::new(std::mem::take(&mut self.memory)),
        };
        release(handle, self.array.stream());
    }
}

debug_struct! {
    [T] SparseArray<T> |its| {
        raw: its.as_raw(), texel: std::any::type_name::<T>(), shape: its.shape(), tile: its.tile,
        mapped_tiles: its.mapped.len(), stream: its.stream(), ..
    }
}
