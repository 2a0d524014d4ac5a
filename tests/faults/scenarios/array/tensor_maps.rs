//! The encoding of tensor maps.

use crate::scenarios::primary_and_streams;
use crate::trace::Trace;
use cuda_safe::tensor_map::{
    Im2colBox, TensorDataType, TensorLayout, TensorMap, TensorMapOptions, TiledBox,
};
use cuda_safe::{DeviceBuffer, Result};

pub(crate) fn run(trace: &mut Trace) -> Result<()> {
    let (_, [stream]) = primary_and_streams()?;
    let mut first = DeviceBuffer::<f32>::zeroed(&stream, 512)?;
    let second = DeviceBuffer::<f32>::zeroed(&stream, 512)?;
    let layout =
        TensorLayout { data_type: TensorDataType::F32, dims: &[8, 8, 8], strides: &[32, 256] };
    let options = TensorMapOptions::default();
    let shape = TiledBox::new(&[4, 4, 4]);
    let mut map = TensorMap::new(&first, layout, shape, options)?;
    map.replace_memory(&second)?;
    assert!(!map.is_writable());
    let shape = Im2colBox {
        lower_corner: &[0],
        upper_corner: &[0],
        channels_per_pixel: 4,
        pixels_per_column: 4,
        element_strides: &[],
    };
    TensorMap::new_mut(&mut first, layout, shape, options)?;
    trace.drops_from_here()
}
