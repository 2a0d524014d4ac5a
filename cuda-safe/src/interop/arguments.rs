//! Array views as kernel arguments.

use super::{ArrayView, ArrayViewMut, ImportedArray};
use crate::call::Result;
use crate::launch::{Argument, LaunchArgument, sealed};
use cuda_sys::CUdeviceptr;

impl<T: 'static> Argument<&[T]> for &ArrayView<'_, T> {
    #[inline]
    fn bytes(self, index: usize, launch: sealed::Target<'_>) -> Result<CUdeviceptr> {
        address_argument(self, index, launch)
    }
}

impl<T: 'static> Argument<&mut [T]> for &mut ArrayViewMut<'_, T> {
    #[inline]
    fn bytes(self, index: usize, launch: sealed::Target<'_>) -> Result<CUdeviceptr> {
        address_argument(self.view(), index, launch)
    }
}

impl<T: 'static> LaunchArgument for &ArrayView<'_, T> {
    type Param = &'static [T];
}

impl<T: 'static> LaunchArgument for &mut ArrayViewMut<'_, T> {
    type Param = &'static mut [T];
}

impl<T: 'static> LaunchArgument for &ImportedArray<T> {
    type Param = &'static [T];
}

/// Returns the address of the first element.
fn address_argument<T>(
    view: &ArrayView<'_, T>,
    index: usize,
    launch: sealed::Target<'_>,
) -> Result<CUdeviceptr> {
    launch.check_stream(index, view.stream())?;
    Ok(view.as_raw())
}
