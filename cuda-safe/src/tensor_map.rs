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

pub use crate::memory::tensor_map::{
    GraphTensorMap, Im2col, Im2colBox, Im2colTensorMap, Im2colWide, Im2colWideBox, Im2colWideMode,
    Im2colWideTensorMap, L2Promotion, Swizzle, TensorDataType, TensorFill, TensorLayout, TensorMap,
    TensorMapOptions, Tiled, TiledBox, TiledTensorMap,
};
