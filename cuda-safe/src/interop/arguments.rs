//! Array views as kernel arguments.

use super::{ArrayView, ArrayViewMut};
use crate::base::error::Result;
use crate::driver::launch::{Argument, argument, sealed};
use crate::driver::stream::Stream;
use crate::memory::DeviceSlice;
use cuda_sys::CUdeviceptr;

impl<T: 'static> Argument<&[T]> for &ArrayView<'_, T> {
    #[inline]
    fn bytes(self, index: usize, stream: &Stream, _: sealed::Here) -> Result<CUdeviceptr> {
        first(self, index, stream)
    }
}

impl<T: 'static> Argument<&mut [T]> for &mut ArrayViewMut<'_, T> {
    #[inline]
    fn bytes(self, index: usize, stream: &Stream, _: sealed::Here) -> Result<CUdeviceptr> {
        first(self.whole(), index, stream)
    }
}

/// Returns the address of the first element.
fn first<T>(view: &ArrayView<'_, T>, index: usize, stream: &Stream) -> Result<CUdeviceptr> {
    let slice = DeviceSlice::<T>::new(view.as_raw(), 0, view.stream());
    slice.check_stream(|| argument(index), stream)?;
    Ok(slice.as_raw())
}
