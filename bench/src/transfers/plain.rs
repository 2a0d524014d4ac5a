//! The works of `plain.c` in this folder.

use super::{ENCODE, OF_SLICES, ON_DEVICE, REPLACE};
use crate::work::{Work, Works};
use std::ffi::c_int;

unsafe extern "C" {
    safe fn plain_transfers_setup() -> c_int;
    safe fn plain_batch_on_device(n: usize);
    safe fn plain_batch_of_slices(n: usize);
    safe fn plain_tensor_map(n: usize);
    safe fn plain_tensor_map_replace(n: usize);
}

/// Prepares the works. Returns whether the driver has the functions that they call (since CUDA 13.0).
pub(crate) fn setup() -> bool {
    plain_transfers_setup() != 0
}

pub(crate) fn works() -> Works {
    vec![
        (ON_DEVICE, Work::batch(|n| plain_batch_on_device(n))),
        (OF_SLICES, Work::batch(|n| plain_batch_of_slices(n))),
        (ENCODE, Work::batch(|n| plain_tensor_map(n))),
        (REPLACE, Work::batch(|n| plain_tensor_map_replace(n))),
    ]
}
