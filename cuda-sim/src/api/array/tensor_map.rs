//! Tensor maps. The driver only encodes numbers: it checks shapes and alignments, but neither addresses nor
//! extents. The refusals were measured on an H200 with driver 580. What a real driver accepts although a
//! kernel that uses the map then fails is a misuse here, where the memory is known.
//!
//! `cuda_ptx::tensor_map` has the 128 bytes of a map, which kernels decode.

use crate::api::memory::batch::is_in_memory;
use crate::api::prelude::*;
use cuda_ptx::tensor_map::{Element, Interleave, Mode, Swizzle, TensorMap};
use cuda_sys::{
    CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapIm2ColWideMode,
    CUtensorMapInterleave, CUtensorMapL2promotion, CUtensorMapSwizzle,
};

/// Addresses from this one on are refused.
const ADDRESSES: u64 = 1 << 57;
/// Strides from this one on are refused.
const STRIDES: u64 = 1 << 40;
/// The greatest extent of a dimension.
const EXTENT: u64 = 1 << 32;
/// The greatest extent of a box, in elements.
const BOX: u32 = 256;
/// The greatest number of bytes of a box. Measured: a box of 256 x 256 floats is refused. Unverified: the
/// limit is taken to be the shared memory of a block.
const BOX_BYTES: u64 = 227 << 10;

/// What all encodings have in common.
struct Common<'a> {
    rank: usize,
    address: u64,
    element: u64,
    dimensions: &'a [u64],
    strides: &'a [u64],
    element_strides: &'a [u32],
    interleave: CUtensorMapInterleave,
    swizzle: CUtensorMapSwizzle,
    kind: CUtensorMapDataType,
    promotion: CUtensorMapL2promotion,
    fill: CUtensorMapFloatOOBfill,
}

/// # Safety
/// `start` is null or points to `count` values.
unsafe fn values<'a, T>(start: *const T, count: usize) -> Answer<&'a [T]> {
    fail_if(start.is_null(), INVALID)?;
    // SAFETY: the caller guarantees that there are `count` values.
    Ok(unsafe { core::slice::from_raw_parts(start, count) })
}

/// Returns the size of an element. The types of 4 and 6 bits are for other devices.
fn element(kind: CUtensorMapDataType) -> Answer<u64> {
    Ok(match kind.0 {
        0 => 1,
        1 | 6 | 9 => 2,
        2 | 3 | 7 | 10..=12 => 4,
        4 | 5 | 8 => 8,
        _ => return Err(INVALID),
    })
}

impl Common<'_> {
    /// The alignment of the address and of the strides.
    fn alignment(&self) -> u64 {
        match self.interleave {
            CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_32B => 32,
            _ => 16,
        }
    }

    fn check(&self) -> Answer {
        let alignment = self.alignment();
        let is_interleaved =
            self.interleave != CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE;
        // The others are for other devices.
        let is_swizzle = self.swizzle.0 <= 3;
        let is_known = self.interleave.0 <= 2 && self.promotion.0 <= 3 && self.fill.0 <= 1;
        let fills_with_nan =
            self.fill != CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
        let is_integer = self.kind.0 <= 5;
        let is_dimension = |its: &u64| (1..=EXTENT).contains(its);
        let is_stride = |its: &u64| its % alignment == 0 && *its < STRIDES;
        let is_step = |its: &u32| (1..=8).contains(its);
        if self.address % alignment != 0
            || self.address >= ADDRESSES
            || !is_swizzle
            || !is_known
            || (fills_with_nan && is_integer)
            || (is_interleaved && self.rank < 3)
            || !self.dimensions.iter().all(is_dimension)
            || !self.strides.iter().all(is_stride)
            || !self.element_strides.iter().all(is_step)
        {
            return Err(INVALID);
        }
        Ok(())
    }

    /// Checks the bytes of the innermost dimension of a box.
    fn check_inner(&self, inner: u64) -> Answer {
        let span = match self.swizzle.0 {
            1 => 32,
            2 => 64,
            3 => 128,
            _ => u64::MAX,
        };
        // With an interleave the swizzle has other spans.
        let is_plain = self.interleave == CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE;
        fail_if(is_plain && (inner < 16 || inner % 16 != 0 || inner > span), INVALID)
    }

    /// Reports a tensor that is not in memory. A kernel that uses the map has an illegal access.
    fn check_memory(&self, world: &World) {
        let last = self.dimensions.iter().zip(std::iter::once(&self.element).chain(self.strides));
        let end = last.fold(self.element, |end, (extent, stride)| {
            end.saturating_add((extent - 1).saturating_mul(*stride))
        });
        let len = usize::try_from(end).unwrap_or(usize::MAX);
        if !is_in_memory(world, self.address, len) {
            misuse(format!(
                "a tensor map of {end} bytes at {:#x}, which are not in one allocation; a real driver \
                 accepts it, and kernels that load beyond it fail",
                self.address
            ));
        }
        // Dimensions may be in any order in memory.
        let outer = self.strides.iter().zip(&self.dimensions[1..]);
        let mut outer: Vec<_> = outer.filter(|(_, extent)| **extent > 1).collect();
        outer.sort_unstable();
        let mut below = self.element * self.dimensions[0];
        for (stride, extent) in outer {
            if *stride < below {
                misuse("a tensor map whose strides overlap; a real driver accepts it");
                return;
            }
            below = below.saturating_add(stride.saturating_mul(*extent - 1));
        }
    }

    /// Writes the map. The numbers were checked.
    fn write(&self, place: *mut CUtensorMap, mode: Mode) -> Answer {
        let (element, interleave, swizzle) = (
            Element::from_code(self.kind.0),
            Interleave::from_code(self.interleave.0),
            Swizzle::from_code(self.swizzle.0),
        );
        let (Some(element), Some(interleave), Some(swizzle)) = (element, interleave, swizzle)
        else {
            return Err(INVALID);
        };
        let map = TensorMap {
            address: self.address,
            element,
            rank: self.rank,
            dims: entries(self.dimensions),
            strides: entries(self.strides),
            steps: entries(self.element_strides),
            mode,
            interleave,
            swizzle,
            fills_with_nan: self.fill.0 == 1,
        };
        // A real driver accepts any alignment.
        // SAFETY: the caller of the driver passes a place for a map, which is not null.
        unsafe { place.cast::<[u64; 16]>().write_unaligned(map.encode()) };
        Ok(())
    }
}

/// Returns a list of a map, whose last entries have no meaning. Its numbers were checked.
fn entries<T: Copy + TryInto<U>, U: Default, const N: usize>(values: &[T]) -> [U; N] {
    std::array::from_fn(|at| {
        let value = values.get(at).and_then(|its| (*its).try_into().ok());
        value.unwrap_or_default()
    })
}

/// Returns the arguments that all encodings have.
///
/// # Safety
/// The pointers are null or point to the numbers of values that the rank implies.
unsafe fn common<'a>(
    world: &World,
    place: *mut CUtensorMap,
    kind: CUtensorMapDataType,
    rank: u32,
    ranks: core::ops::RangeInclusive<u32>,
    address: *mut c_void,
    dimensions: *const u64,
    strides: *const u64,
    element_strides: *const u32,
    interleave: CUtensorMapInterleave,
    swizzle: CUtensorMapSwizzle,
    promotion: CUtensorMapL2promotion,
    fill: CUtensorMapFloatOOBfill,
) -> Answer<Common<'a>> {
    world.current()?;
    fail_if(place.is_null() || !ranks.contains(&rank), INVALID)?;
    let element = element(kind)?;
    let rank = rank as usize;
    // SAFETY: the caller guarantees the number of values.
    let dimensions = unsafe { values(dimensions, rank) }?;
    // SAFETY: the caller guarantees the number of values. There is none for the innermost dimension.
    let strides = unsafe { values(strides, rank - 1) }?;
    // SAFETY: the caller guarantees the number of values.
    let element_strides = unsafe { values(element_strides, rank) }?;
    let common = Common {
        rank,
        address: address.addr() as u64,
        element,
        dimensions,
        strides,
        element_strides,
        interleave,
        swizzle,
        kind,
        promotion,
        fill,
    };
    common.check()?;
    Ok(common)
}

pub(crate) fn tiled(
    world: &mut World,
    place: *mut CUtensorMap,
    kind: CUtensorMapDataType,
    rank: u32,
    address: *mut c_void,
    dimensions: *const u64,
    strides: *const u64,
    extents: *const u32,
    element_strides: *const u32,
    interleave: CUtensorMapInterleave,
    swizzle: CUtensorMapSwizzle,
    promotion: CUtensorMapL2promotion,
    fill: CUtensorMapFloatOOBfill,
) -> Answer {
    // SAFETY: the caller passes null or as many values as the rank says.
    let common = unsafe {
        common(
            world,
            place,
            kind,
            rank,
            1..=5,
            address,
            dimensions,
            strides,
            element_strides,
            interleave,
            swizzle,
            promotion,
            fill,
        )
    }?;
    // SAFETY: the caller passes null or an extent for each dimension.
    let extents = unsafe { values(extents, common.rank) }?;
    fail_if(!extents.iter().all(|its| (1..=BOX).contains(its)), INVALID)?;
    let count: u64 = extents.iter().map(|its| u64::from(*its)).product();
    fail_if(count.saturating_mul(common.element) > BOX_BYTES, INVALID)?;
    common.check_inner(u64::from(extents[0]) * common.element)?;
    common.check_memory(world);
    common.write(place, Mode::Tile(entries(extents)))
}

/// Checks the numbers of channels and pixels of a column.
fn check_column(common: &Common<'_>, channels: u32, pixels: u32) -> Answer {
    fail_if(!(1..=256).contains(&channels) || !(1..=1024).contains(&pixels), INVALID)?;
    common.check_inner(u64::from(channels) * common.element)
}

pub(crate) fn im2col(
    world: &mut World,
    place: *mut CUtensorMap,
    kind: CUtensorMapDataType,
    rank: u32,
    address: *mut c_void,
    dimensions: *const u64,
    strides: *const u64,
    lower: *const c_int,
    upper: *const c_int,
    channels: u32,
    pixels: u32,
    element_strides: *const u32,
    interleave: CUtensorMapInterleave,
    swizzle: CUtensorMapSwizzle,
    promotion: CUtensorMapL2promotion,
    fill: CUtensorMapFloatOOBfill,
) -> Answer {
    // SAFETY: the caller passes null or as many values as the rank says.
    let common = unsafe {
        common(
            world,
            place,
            kind,
            rank,
            3..=5,
            address,
            dimensions,
            strides,
            element_strides,
            interleave,
            swizzle,
            promotion,
            fill,
        )
    }?;
    if lower.is_null() || upper.is_null() {
        misuse("cuTensorMapEncodeIm2col without corners; a real driver crashes");
        return Err(INVALID);
    }
    // SAFETY: the caller passes a corner for each dimension but the outermost and the innermost.
    let lower = unsafe { values(lower, common.rank - 2) }?;
    // SAFETY: as for the lower corner.
    let upper = unsafe { values(upper, common.rank - 2) }?;
    // Measured for rank 4. The others are unverified (from documentation).
    let most: c_int = match common.rank {
        3 => 1 << 15,
        4 => 1 << 7,
        _ => 1 << 4,
    };
    let is_corner = |its: &c_int| (-most..most).contains(its);
    fail_if(!lower.iter().chain(upper).all(is_corner), INVALID)?;
    check_column(&common, channels, pixels)?;
    common.check_memory(world);
    let mode = Mode::Im2col {
        lower: entries(lower),
        upper: entries(upper),
        // The numbers were checked.
        channels: channels as u16,
        pixels: pixels as u16,
    };
    common.write(place, mode)
}

pub(crate) fn im2col_wide(
    world: &mut World,
    place: *mut CUtensorMap,
    kind: CUtensorMapDataType,
    rank: u32,
    address: *mut c_void,
    dimensions: *const u64,
    strides: *const u64,
    lower: c_int,
    upper: c_int,
    channels: u32,
    pixels: u32,
    element_strides: *const u32,
    interleave: CUtensorMapInterleave,
    mode: CUtensorMapIm2ColWideMode,
    swizzle: CUtensorMapSwizzle,
    promotion: CUtensorMapL2promotion,
    fill: CUtensorMapFloatOOBfill,
) -> Answer {
    // SAFETY: the caller passes null or as many values as the rank says.
    let common = unsafe {
        common(
            world,
            place,
            kind,
            rank,
            3..=5,
            address,
            dimensions,
            strides,
            element_strides,
            interleave,
            swizzle,
            promotion,
            fill,
        )
    }?;
    // The corners are unverified (from documentation).
    let is_corner = |its: c_int| (-(1 << 15)..1 << 15).contains(&its);
    let is_swizzle = swizzle != CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B;
    fail_if(mode.0 > 1 || !is_swizzle || !is_corner(lower) || !is_corner(upper), INVALID)?;
    check_column(&common, channels, pixels)?;
    common.check_memory(world);
    common.write(place, Mode::Im2colWide)
}

/// Changes the first word of a map. A real driver accepts a map of any bytes.
pub(crate) fn replace_address(
    world: &mut World,
    place: *mut CUtensorMap,
    address: *mut c_void,
) -> Answer {
    world.current()?;
    let address = address.addr() as u64;
    fail_if(place.is_null() || address == 0 || address % 16 != 0, INVALID)?;
    let words = place.cast::<[u64; 16]>();
    // SAFETY: the caller passes a map.
    let mut opaque = unsafe { words.read_unaligned() };
    if TensorMap::decode(&opaque).is_none() {
        misuse(
            "cuTensorMapReplaceAddress of bytes that are not a tensor map; a real driver accepts it",
        );
    }
    opaque[0] = address;
    // SAFETY: the caller passes a map.
    unsafe { words.write_unaligned(opaque) };
    Ok(())
}
