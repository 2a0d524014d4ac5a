//! Buffers and slices as kernel arguments.

use super::{DeviceSlice, DeviceSliceMut};
use crate::base::error::Result;
use crate::driver::launch::{Argument, argument, sealed};
use crate::driver::stream::Stream;
use cuda_sys::CUdeviceptr;

impl<'a, T: 'static, S: Into<DeviceSlice<'a, T>>> Argument<&[T]> for S {
    #[inline]
    fn bytes(self, index: usize, stream: &Stream, _: sealed::Here) -> Result<CUdeviceptr> {
        let slice = self.into();
        slice.check_stream(|| argument(index), stream)?;
        Ok(slice.as_raw())
    }
}

impl<'a, T: 'static, S: Into<DeviceSliceMut<'a, T>>> Argument<&mut [T]> for S {
    #[inline]
    fn bytes(self, index: usize, stream: &Stream, _: sealed::Here) -> Result<CUdeviceptr> {
        let slice = self.into();
        slice.as_slice().check_stream(|| argument(index), stream)?;
        Ok(slice.as_raw())
    }
}
