//! The encoding of tensor maps on the software driver, through the raw calls. The codes are those of an
//! H200 with driver 580.

use crate::prelude::*;
use std::collections::BTreeSet;

/// The arguments of an encoding, of which a test changes one.
#[derive(Clone)]
struct Tensor {
    kind: u32,
    address: u64,
    dimensions: Vec<u64>,
    strides: Vec<u64>,
    extents: Vec<u32>,
    steps: Vec<u32>,
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
    corners: [Vec<c_int>; 2],
    channels: u32,
    pixels: u32,
    mode: u32,
}

impl Tensor {
    /// Returns a tensor of floats with 64 elements in each dimension of memory at an address.
    fn new(address: u64, rank: usize) -> Self {
        let side = 16u64;
        Self {
            kind: 7,
            address,
            dimensions: vec![side; rank],
            strides: (1..rank as u32).map(|its| 4 * side.pow(its)).collect(),
            extents: vec![8; rank],
            steps: vec![1; rank],
            interleave: 0,
            swizzle: 0,
            promotion: 0,
            fill: 0,
            corners: [vec![-1; 3], vec![1; 3]],
            channels: 8,
            pixels: 64,
            mode: 0,
        }
    }

    fn rank(&self) -> u32 {
        self.dimensions.len() as u32
    }

    fn address(&self) -> *mut c_void {
        with_exposed_provenance_mut(self.address as usize)
    }

    fn tiled(&self) -> CUresult {
        self.tiled_into(&mut CUtensorMap::zeroed())
    }

    fn tiled_into(&self, map: &mut CUtensorMap) -> CUresult {
        code!(cuTensorMapEncodeTiled(
            &raw mut *map,
            CUtensorMapDataType(self.kind),
            self.rank(),
            self.address(),
            self.dimensions.as_ptr(),
            self.strides.as_ptr(),
            self.extents.as_ptr(),
            self.steps.as_ptr(),
            CUtensorMapInterleave(self.interleave),
            CUtensorMapSwizzle(self.swizzle),
            CUtensorMapL2promotion(self.promotion),
            CUtensorMapFloatOOBfill(self.fill)
        ))
    }

    fn im2col(&self) -> CUresult {
        self.im2col_into(&mut CUtensorMap::zeroed())
    }

    fn im2col_into(&self, map: &mut CUtensorMap) -> CUresult {
        code!(cuTensorMapEncodeIm2col(
            &raw mut *map,
            CUtensorMapDataType(self.kind),
            self.rank(),
            self.address(),
            self.dimensions.as_ptr(),
            self.strides.as_ptr(),
            self.corners[0].as_ptr(),
            self.corners[1].as_ptr(),
            self.channels,
            self.pixels,
            self.steps.as_ptr(),
            CUtensorMapInterleave(self.interleave),
            CUtensorMapSwizzle(self.swizzle),
            CUtensorMapL2promotion(self.promotion),
            CUtensorMapFloatOOBfill(self.fill)
        ))
    }

    fn im2col_wide(&self) -> CUresult {
        self.im2col_wide_into(&mut CUtensorMap::zeroed())
    }

    fn im2col_wide_into(&self, map: &mut CUtensorMap) -> CUresult {
        code!(cuTensorMapEncodeIm2colWide(
            &raw mut *map,
            CUtensorMapDataType(self.kind),
            self.rank(),
            self.address(),
            self.dimensions.as_ptr(),
            self.strides.as_ptr(),
            -1,
            1,
            self.channels,
            self.pixels,
            self.steps.as_ptr(),
            CUtensorMapInterleave(self.interleave),
            CUtensorMapIm2ColWideMode(self.mode),
            CUtensorMapSwizzle(self.swizzle),
            CUtensorMapL2promotion(self.promotion),
            CUtensorMapFloatOOBfill(self.fill)
        ))
    }
}

const GOOD: CUresult = CUresult::CUDA_SUCCESS;
/// Enough for four dimensions of 16 floats.
const BYTES: usize = 4 << 16;

#[test]
fn tiles_are_encoded_and_wrong_shapes_are_refused() {
    let _bench = in_child!(without_misuse());
    let device = memory(BYTES);
    let good = Tensor::new(device, 2);
    assert_eq!(good.tiled(), GOOD);
    for rank in [1, 3, 4] {
        assert_eq!(Tensor::new(device, rank).tiled(), GOOD, "{rank}");
    }
    let refuse = |what: &str, change: fn(&mut Tensor)| {
        let mut tensor = good.clone();
        change(&mut tensor);
        assert_eq!(tensor.tiled(), INVALID, "{what}");
    };
    refuse("an address that is not aligned", |its| its.address += 8);
    refuse("a high address", |its| its.address = 1 << 57);
    refuse("rank 0", |its| its.dimensions.clear());
    refuse("rank 6", |its| its.dimensions = vec![1; 6]);
    refuse("an empty dimension", |its| its.dimensions[1] = 0);
    refuse("a long dimension", |its| its.dimensions[1] = (1 << 32) + 1);
    refuse("an empty box", |its| its.extents[1] = 0);
    refuse("a wide box", |its| its.extents[1] = 257);
    refuse("a large box", |its| its.extents = vec![256; 2]);
    refuse("a short row of a box", |its| its.extents[0] = 2);
    refuse("an uneven row of a box", |its| its.extents[0] = 6);
    refuse("an uneven stride", |its| its.strides[0] = 72);
    refuse("a long stride", |its| its.strides[0] = 1 << 40);
    refuse("no element stride", |its| its.steps[0] = 0);
    refuse("a long element stride", |its| its.steps[0] = 9);
    refuse("a row longer than the swizzle", |its| {
        (its.swizzle, its.extents[0]) = (1, 16);
    });
    refuse("a swizzle of other devices", |its| its.swizzle = 4);
    refuse("a type of other devices", |its| its.kind = 13);
    refuse("an unknown promotion", |its| its.promotion = 4);
    refuse("an unknown fill", |its| its.fill = 2);
    refuse("8 bytes in a row of a box", |its| its.kind = 0);
    refuse("NaN for integers", |its| (its.kind, its.fill) = (2, 1));
    refuse("an interleave of two dimensions", |its| its.interleave = 1);
    let mut accepted = good.clone();
    (accepted.steps, accepted.swizzle, accepted.promotion) = (vec![2, 8], 3, 3);
    assert_eq!(accepted.tiled(), GOOD);
    let mut interleaved = Tensor::new(device, 3);
    interleaved.interleave = 2;
    assert_eq!(interleaved.tiled(), GOOD);
    interleaved.address += 16;
    assert_eq!(interleaved.tiled(), INVALID);
}

#[test]
fn null_pointers_and_a_missing_context_are_refused() {
    let bench = &in_child!(without_misuse());
    let device = memory(BYTES);
    let mut map = CUtensorMap::zeroed();
    let numbers = [16u64; 5];
    let extents = [8u32; 5];
    let encode = |map: *mut CUtensorMap, strides: *const u64| {
        code!(cuTensorMapEncodeTiled(
            map,
            CUtensorMapDataType(7),
            1,
            with_exposed_provenance_mut(device as usize),
            numbers.as_ptr(),
            strides,
            extents.as_ptr(),
            [1u32].as_ptr(),
            CUtensorMapInterleave(0),
            CUtensorMapSwizzle(0),
            CUtensorMapL2promotion(0),
            CUtensorMapFloatOOBfill(0)
        ))
    };
    assert_eq!(encode(null_mut(), numbers.as_ptr()), INVALID);
    assert_eq!(encode(&raw mut map, null()), INVALID);
    assert_eq!(encode(&raw mut map, numbers.as_ptr()), GOOD);
    succeeds!(cuCtxSetCurrent(null_mut()));
    let invalid_context = CUresult::CUDA_ERROR_INVALID_CONTEXT;
    assert_eq!(Tensor::new(device, 2).tiled(), invalid_context);
    let address = with_exposed_provenance_mut(device as usize);
    refused!(invalid_context, cuTensorMapReplaceAddress(&raw mut map, address));
    succeeds!(cuCtxSetCurrent(bench.context));
}

#[test]
fn columns_check_corners_channels_and_pixels() {
    let _bench = in_child!(without_misuse());
    let device = memory(BYTES);
    let good = Tensor::new(device, 4);
    assert_eq!([good.im2col(), good.im2col_wide()], [GOOD; 2]);
    assert_eq!(Tensor::new(device, 2).im2col(), INVALID);
    for (change, expected) in [
        (|its: &mut Tensor| its.channels = 0, [INVALID; 2]),
        (|its: &mut Tensor| its.channels = 257, [INVALID; 2]),
        (|its: &mut Tensor| its.channels = 6, [INVALID; 2]),
        (|its: &mut Tensor| its.pixels = 1025, [INVALID; 2]),
        (|its: &mut Tensor| its.corners[0][0] = -129, [INVALID, GOOD]),
        (|its: &mut Tensor| its.corners[1][0] = 127, [GOOD; 2]),
        (|its: &mut Tensor| its.corners[1][0] = 128, [INVALID, GOOD]),
        (|its: &mut Tensor| its.mode = 1, [GOOD; 2]),
        (|its: &mut Tensor| its.mode = 2, [GOOD, INVALID]),
        (|its: &mut Tensor| its.swizzle = 1, [GOOD, INVALID]),
        (|its: &mut Tensor| its.swizzle = 2, [GOOD; 2]),
    ] as [(fn(&mut Tensor), [CUresult; 2]); 11]
    {
        let mut tensor = good.clone();
        change(&mut tensor);
        assert_eq!([tensor.im2col(), tensor.im2col_wide()], expected);
    }
}

#[test]
fn replacing_the_address_changes_the_first_word() {
    let _bench = in_child!(without_misuse());
    let device = memory(BYTES);
    let mut map = CUtensorMap::zeroed();
    assert_eq!(Tensor::new(device, 2).tiled_into(&mut map), GOOD);
    let before = map.opaque;
    let other = with_exposed_provenance_mut(device as usize + 16);
    succeeds!(cuTensorMapReplaceAddress(&raw mut map, other));
    assert_eq!(map.opaque[0], device + 16);
    assert_eq!(map.opaque[1..], before[1..]);
    refused!(INVALID, cuTensorMapReplaceAddress(&raw mut map, other.wrapping_byte_add(8)));
    refused!(INVALID, cuTensorMapReplaceAddress(&raw mut map, null_mut()));
}

/// Also those of the same memory.
#[test]
fn maps_of_different_encodings_differ() {
    let _bench = in_child!(without_misuse());
    let device = memory(BYTES);
    type Encode = fn(&Tensor, &mut CUtensorMap) -> CUresult;
    let map = |encode: Encode, change: fn(&mut Tensor)| {
        let (mut tensor, mut map) = (Tensor::new(device, 4), CUtensorMap::zeroed());
        change(&mut tensor);
        assert_eq!(encode(&tensor, &mut map), GOOD);
        map.opaque
    };
    let maps = [
        map(Tensor::tiled_into, |_| ()),
        map(Tensor::im2col_into, |_| ()),
        map(Tensor::im2col_wide_into, |_| ()),
        map(Tensor::tiled_into, |its| its.kind = 2),
        map(Tensor::tiled_into, |its| its.interleave = 1),
        map(Tensor::tiled_into, |its| its.swizzle = 3),
        map(Tensor::tiled_into, |its| its.fill = 1),
    ];
    assert_eq!(BTreeSet::from(maps).len(), 7);
}

#[test]
fn a_tensor_beyond_its_allocation_is_reported() {
    let _bench = in_child!(misused("not in one allocation"));
    assert_eq!(Tensor::new(memory(1008), 2).tiled(), GOOD);
}

#[test]
fn an_address_without_memory_is_reported() {
    let _bench = in_child!(misused("not in one allocation"));
    assert_eq!(Tensor::new(0, 2).tiled(), GOOD);
}

#[test]
fn strides_that_overlap_are_reported() {
    let _bench = in_child!(misused("strides overlap"));
    let mut tensor = Tensor::new(memory(BYTES), 2);
    (tensor.dimensions[1], tensor.strides[0]) = (2, 48);
    assert_eq!(tensor.tiled(), GOOD);
}

#[test]
fn dimensions_may_be_in_any_order_in_memory() {
    let _bench = in_child!(without_misuse());
    let start = memory(BYTES);
    let mut tensor = Tensor::new(start, 3);
    tensor.strides = vec![1024, 64];
    assert_eq!(tensor.tiled(), GOOD);
}

#[test]
fn columns_without_corners_are_reported() {
    let _bench = in_child!(misused("a real driver crashes"));
    let tensor = Tensor::new(memory(BYTES), 3);
    let mut map = CUtensorMap::zeroed();
    refused!(
        INVALID,
        cuTensorMapEncodeIm2col(
            &raw mut map,
            CUtensorMapDataType(7),
            3,
            tensor.address(),
            tensor.dimensions.as_ptr(),
            tensor.strides.as_ptr(),
            null(),
            null(),
            8,
            64,
            tensor.steps.as_ptr(),
            CUtensorMapInterleave(0),
            CUtensorMapSwizzle(0),
            CUtensorMapL2promotion(0),
            CUtensorMapFloatOOBfill(0)
        )
    );
}

#[test]
fn replacing_the_address_of_other_bytes_is_reported() {
    let _bench = in_child!(misused("not a tensor map"));
    let mut map = CUtensorMap::zeroed();
    let address = with_exposed_provenance_mut(memory(16) as usize);
    succeeds!(cuTensorMapReplaceAddress(&raw mut map, address));
}
