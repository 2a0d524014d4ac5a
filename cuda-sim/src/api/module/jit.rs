//! Options of the driver's PTX compiler, and its log buffers.

use crate::api::prelude::*;
use crate::state::process::logs::Logs;
use cuda_sys::{CUjit_option as Key, CudaVersion};

impl Logs {
    /// Unverified (from documentation): which values are rejected, and that options newer than the
    /// driver are rejected.
    ///
    /// # Safety
    /// There are `count` keys and values, the values have the types that the keys require, and the
    /// buffers outlive the result.
    pub(crate) unsafe fn of_options(
        world: &World,
        keys: *mut Key,
        values: *mut *mut c_void,
        count: c_uint,
    ) -> Answer<Self> {
        let mut logs = Self::default();
        for index in 0..count as usize {
            // SAFETY: the caller guarantees `count` keys.
            let key = unsafe { keys.add(index) };
            // SAFETY: the caller guarantees `count` keys.
            let key = unsafe { key.read() };
            // SAFETY: the caller guarantees `count` values.
            let value = unsafe { values.add(index) };
            // SAFETY: the caller guarantees `count` values.
            let value = unsafe { value.read() };
            fail_if(since(key).is_none_or(|since| since > world.settings.profile.driver), INVALID)?;
            match key {
                Key::CU_JIT_ERROR_LOG_BUFFER => logs.error.start = value.cast(),
                Key::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => logs.error.room = value.addr(),
                Key::CU_JIT_INFO_LOG_BUFFER => logs.info.start = value.cast(),
                Key::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES => logs.info.room = value.addr(),
                Key::CU_JIT_OPTIMIZATION_LEVEL if value.addr() > 4 => {
                    return Err(INVALID);
                }
                _ => {}
            }
        }
        Ok(logs)
    }
}

/// Returns the first driver version that supports an option.
fn since(key: Key) -> Option<CudaVersion> {
    let (major, minor) = match key.0 {
        0..=29 => (11, 7),
        30 => (12, 0),
        31 => (12, 3),
        32 | 33 => (12, 4),
        34 => (13, 0),
        35 => (13, 1),
        _ => return None,
    };
    Some(CudaVersion::new(major, minor))
}
