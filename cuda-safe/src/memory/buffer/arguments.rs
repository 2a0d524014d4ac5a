//! Buffers and slices as kernel arguments.

use crate::call::Result;
use crate::launch::{Argument, LaunchArgument, sealed};
use crate::memory::{DeviceBuffer, DeviceSlice, DeviceSliceMut, MappedBuffer, SharedReader};
use cuda_sys::CUdeviceptr;

#[diagnostic::do_not_recommend]
impl<'a, T: 'static, S: Into<DeviceSlice<'a, T>>> Argument<&[T]> for S {
    #[inline]
    fn bytes(self, index: usize, launch: sealed::Target<'_>) -> Result<CUdeviceptr> {
        let slice = self.into();
        launch.check_stream(index, slice.stream())?;
        Ok(slice.as_raw())
    }
}

#[diagnostic::do_not_recommend]
impl<'a, T: 'static, S: Into<DeviceSliceMut<'a, T>>> Argument<&mut [T]> for S {
    #[inline]
    fn bytes(self, index: usize, launch: sealed::Target<'_>) -> Result<CUdeviceptr> {
        let slice = self.into();
        launch.check_stream(index, slice.stream())?;
        Ok(slice.as_raw())
    }
}

macro_rules! arguments {
    ($($argument:ty => $param:ty;)*) => {$(
        impl<T: 'static> LaunchArgument for $argument {
            type Param = $param;
        }
    )*};
}

arguments! {
    DeviceSlice<'_, T> => &'static [T];
    &DeviceBuffer<T> => &'static [T];
    &MappedBuffer<T> => &'static [T];
    &SharedReader<T> => &'static [T];
    DeviceSliceMut<'_, T> => &'static mut [T];
    &mut DeviceBuffer<T> => &'static mut [T];
    &mut MappedBuffer<T> => &'static mut [T];
}
