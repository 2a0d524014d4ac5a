//! The encoding of tensor maps.

use super::{Row, Stage, array, value};
use crate::prelude::*;
use cuda_safe::sys::{
    CUtensorMapDataType as Type, CUtensorMapFloatOOBfill as Fill,
    CUtensorMapIm2ColWideMode as Mode, CUtensorMapL2promotion as Promotion,
};
use cuda_safe::tensor_map::{
    Im2colBox, Im2colWideBox, Im2colWideMode, L2Promotion, Swizzle, TensorDataType, TensorFill,
    TensorLayout, TensorMap, TensorMapOptions, TiledBox,
};

const TILED: &str = "cuTensorMapEncodeTiled";
const IM2COL: &str = "cuTensorMapEncodeIm2col";
const WIDE: &str = "cuTensorMapEncodeIm2colWide";
const REPLACE: &str = "cuTensorMapReplaceAddress";

fn memory(s: &Stage) -> Result<DeviceBuffer<u8>> {
    DeviceBuffer::zeroed(&s.stream, 1 << 16)
}

fn layout(data_type: TensorDataType) -> TensorLayout<'static> {
    TensorLayout { data_type, dims: &[16, 5, 4, 3], strides: &[128, 640, 2560] }
}

fn tiled(s: &Stage, data_type: TensorDataType, options: TensorMapOptions) -> Result<u64> {
    let memory = memory(s)?;
    let shape = TiledBox { dims: &[16, 4, 3, 2], element_strides: &[1, 2, 3, 4] };
    TensorMap::new(&memory, layout(data_type), shape, options)?;
    Ok(memory.as_raw())
}

fn im2col(s: &Stage) -> Result<()> {
    let shape = Im2colBox {
        lower_corner: &[-3, -2],
        upper_corner: &[2, 1],
        channels_per_pixel: 16,
        pixels_per_column: 33,
        element_strides: &[1, 2, 2, 1],
    };
    let memory = memory(s)?;
    let options = TensorMapOptions::default();
    TensorMap::new(&memory, layout(TensorDataType::F16), shape, options).map(drop)
}

fn wide(s: &Stage, mode: Im2colWideMode) -> Result<()> {
    let shape = Im2colWideBox {
        lower_corner_width: -5,
        upper_corner_width: 6,
        channels_per_pixel: 16,
        pixels_per_column: 33,
        element_strides: &[1, 2, 2, 1],
        mode,
    };
    let memory = memory(s)?;
    let options = TensorMapOptions::default();
    TensorMap::new(&memory, layout(TensorDataType::F16), shape, options).map(drop)
}

/// Replaces the memory of a map, and returns the new address.
fn replace(s: &Stage) -> Result<usize> {
    let (first, second) = (memory(s)?, memory(s)?);
    let shape = TiledBox::new(&[16, 1, 1, 1]);
    let options = TensorMapOptions::default();
    let mut map = TensorMap::new(&first, layout(TensorDataType::F64), shape, options)?;
    map.replace_memory(&second)?;
    Ok(usize::try_from(second.as_raw()).unwrap_or(0))
}

fn types() -> Vec<Row> {
    let types = [
        (TensorDataType::U8, "UINT8", Type::CU_TENSOR_MAP_DATA_TYPE_UINT8),
        (TensorDataType::U16, "UINT16", Type::CU_TENSOR_MAP_DATA_TYPE_UINT16),
        (TensorDataType::U32, "UINT32", Type::CU_TENSOR_MAP_DATA_TYPE_UINT32),
        (TensorDataType::I32, "INT32", Type::CU_TENSOR_MAP_DATA_TYPE_INT32),
        (TensorDataType::U64, "UINT64", Type::CU_TENSOR_MAP_DATA_TYPE_UINT64),
        (TensorDataType::I64, "INT64", Type::CU_TENSOR_MAP_DATA_TYPE_INT64),
        (TensorDataType::F16, "FLOAT16", Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16),
        (TensorDataType::F32, "FLOAT32", Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32),
        (TensorDataType::F64, "FLOAT64", Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT64),
        (TensorDataType::BF16, "BFLOAT16", Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16),
        (TensorDataType::F32Ftz, "FLOAT32_FTZ", Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ),
        (TensorDataType::TF32, "TFLOAT32", Type::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32),
        (TensorDataType::TF32Ftz, "TFLOAT32_FTZ", Type::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ),
    ];
    let row = |(data_type, name, raw)| {
        let name = format!("CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_{name}");
        let act = move |s: &Stage| tiled(s, data_type, TensorMapOptions::default()).map(drop);
        Row::new(&name, act, TILED, value("kind"), raw)
    };
    types.into_iter().map(row).collect()
}

/// The rows of options of all maps.
fn options() -> Vec<Row> {
    let with = |options: TensorMapOptions| {
        move |s: &Stage| tiled(s, TensorDataType::F16, options).map(drop)
    };
    let swizzles = [
        (Swizzle::None, "NONE", CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE),
        (Swizzle::Span32, "32B", CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B),
        (Swizzle::Span64, "64B", CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B),
        (Swizzle::Span128, "128B", CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B),
    ];
    // The software driver has no device for these.
    let refused = [
        (
            Swizzle::Span128Atom32,
            "128B_ATOM_32B",
            CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B,
        ),
        (
            Swizzle::Span128Atom32Flip8,
            "128B_ATOM_32B_FLIP_8B",
            CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B,
        ),
        (
            Swizzle::Span128Atom64,
            "128B_ATOM_64B",
            CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B,
        ),
    ];
    let promotions = [
        (L2Promotion::None, "NONE", Promotion::CU_TENSOR_MAP_L2_PROMOTION_NONE),
        (L2Promotion::Bytes64, "L2_64B", Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_64B),
        (L2Promotion::Bytes128, "L2_128B", Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B),
        (L2Promotion::Bytes256, "L2_256B", Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B),
    ];
    let fills = [
        (TensorFill::Zero, "NONE", Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        (
            TensorFill::NanRequestZeroFma,
            "NAN_REQUEST_ZERO_FMA",
            Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA,
        ),
    ];
    let swizzle = |(swizzle, name, raw)| {
        let name = format!("CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_{name}");
        let options = TensorMapOptions { swizzle, ..TensorMapOptions::default() };
        Row::new(&name, with(options), TILED, value("swizzle"), raw)
    };
    let mut rows: Vec<Row> = swizzles.into_iter().map(swizzle).collect();
    rows.extend(refused.into_iter().map(swizzle).map(Row::refused));
    rows.extend(promotions.into_iter().map(|(l2_promotion, name, raw)| {
        let name = format!("CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_{name}");
        let options = TensorMapOptions { l2_promotion, ..TensorMapOptions::default() };
        Row::new(&name, with(options), TILED, value("promotion"), raw)
    }));
    rows.extend(fills.into_iter().map(|(fill, name, raw)| {
        let name = format!("CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_{name}");
        let options = TensorMapOptions { fill, ..TensorMapOptions::default() };
        Row::new(&name, with(options), TILED, value("fill"), raw)
    }));
    rows
}

fn tiled_rows() -> Vec<Row> {
    let act = |s: &Stage| tiled(s, TensorDataType::F32, TensorMapOptions::default());
    let done = move |s: &Stage| act(s).map(drop);
    vec![
        Row::of("cuTensorMapEncodeTiled.globalDim", done)
            .calls(TILED)
            .with(array::<u64>("dimensions"), vec![16, 5, 4, 3]),
        Row::of("cuTensorMapEncodeTiled.globalStrides", done)
            .calls(TILED)
            .with(array::<u64>("strides"), vec![128, 640, 2560]),
        Row::of("cuTensorMapEncodeTiled.boxDim", done)
            .calls(TILED)
            .with(array::<u32>("extents"), vec![16, 4, 3, 2]),
        Row::of("cuTensorMapEncodeTiled.elementStrides", done)
            .calls(TILED)
            .with(array::<u32>("element_strides"), vec![1, 2, 3, 4]),
        Row::of("CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE", done)
            .calls(TILED)
            .with(value("interleave"), CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE),
        Row::of(TILED, move |s| {
            act(s).map(|address| (usize::try_from(address).unwrap_or(0), 4_u32))
        })
        .calls(TILED)
        .with_told(|call| {
            let address: *mut core::ffi::c_void = value("address")(call)?;
            Some((address.addr(), value("rank")(call)?))
        }),
        Row::of(REPLACE, replace).calls(REPLACE).with_told(|call| {
            let address: *mut core::ffi::c_void = value("address")(call)?;
            Some(address.addr())
        }),
    ]
}

fn im2col_rows() -> Vec<Row> {
    let corner = |name: &str, argument, expected| {
        Row::new(name, im2col, IM2COL, array::<i32>(argument), expected)
    };
    let narrow = |name: &str, argument, expected: u32| {
        Row::new(name, im2col, IM2COL, value(argument), expected)
    };
    let w = |s: &Stage| wide(s, Im2colWideMode::W);
    let wide_number = move |name: &str, argument, expected: u32| {
        Row::new(name, w, WIDE, value(argument), expected)
    };
    let wide_corner = move |name: &str, argument, expected: i32| {
        Row::new(name, w, WIDE, value(argument), expected)
    };
    let strides = vec![1_u32, 2, 2, 1];
    vec![
        Row::call(IM2COL, im2col),
        Row::call(WIDE, w),
        corner("cuTensorMapEncodeIm2col.pixelBoxLowerCorner", "lower", vec![-3, -2]),
        corner("cuTensorMapEncodeIm2col.pixelBoxUpperCorner", "upper", vec![2, 1]),
        narrow("cuTensorMapEncodeIm2col.channelsPerPixel", "channels", 16),
        narrow("cuTensorMapEncodeIm2col.pixelsPerColumn", "pixels", 33),
        Row::of("cuTensorMapEncodeIm2col.elementStrides", im2col)
            .calls(IM2COL)
            .with(array("element_strides"), strides.clone()),
        wide_corner("cuTensorMapEncodeIm2colWide.pixelBoxLowerCornerWidth", "lower", -5),
        wide_corner("cuTensorMapEncodeIm2colWide.pixelBoxUpperCornerWidth", "upper", 6),
        wide_number("cuTensorMapEncodeIm2colWide.channelsPerPixel", "channels", 16),
        wide_number("cuTensorMapEncodeIm2colWide.pixelsPerColumn", "pixels", 33),
        Row::of("cuTensorMapEncodeIm2colWide.elementStrides", w)
            .calls(WIDE)
            .with(array("element_strides"), strides),
        Row::of("CUtensorMapIm2ColWideMode::CU_TENSOR_MAP_IM2COL_WIDE_MODE_W", w)
            .calls(WIDE)
            .with(value("mode"), Mode::CU_TENSOR_MAP_IM2COL_WIDE_MODE_W),
        Row::of("CUtensorMapIm2ColWideMode::CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128", |s| {
            wide(s, Im2colWideMode::W128)
        })
        .calls(WIDE)
        .with(value("mode"), Mode::CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    [types(), options(), tiled_rows(), im2col_rows()].into_iter().flatten().collect()
}
