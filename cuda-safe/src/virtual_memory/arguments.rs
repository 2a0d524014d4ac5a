//! Growable buffers as kernel arguments.

use crate::launch::LaunchArgument;
use crate::virtual_memory::GrowableBuffer;

impl<T: 'static> LaunchArgument for &GrowableBuffer<T> {
    type Param = &'static [T];
}

impl<T: 'static> LaunchArgument for &mut GrowableBuffer<T> {
    type Param = &'static mut [T];
}
