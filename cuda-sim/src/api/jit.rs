//! Options of the driver's PTX compiler, and its log buffers.

use crate::world::{Answer, World};
use core::ffi::{c_uint, c_void};
use cuda_sys::{CUjit_option as Key, CUresult, CudaVersion};

/// The log buffers that options name. A linker keeps them, because it may write into them until it is
/// destroyed.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    error: Buffer,
    info: Buffer,
}

/// A text buffer, which may be empty.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    start: *mut u8,
    room: usize,
}

impl Default for Buffer {
    fn default() -> Self {
        Self {
            start: core::ptr::null_mut(),
            room: 0,
        }
    }
}

// SAFETY: the driver writes there only during calls, on the calling thread, as the API specifies.
unsafe impl Send for Logs {}

impl Logs {
    /// Unverified (from documentation): which values are rejected, and that options newer than the
    /// driver are rejected.
    ///
    /// # Safety
    /// There are `count` keys and values, the values have the types that the keys require, and the
    /// buffers outlive the result.
    pub(super) unsafe fn of_options(
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
            if since(key).is_none_or(|since| since > world.profile.driver) {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            match key {
                Key::CU_JIT_ERROR_LOG_BUFFER => logs.error.start = value.cast(),
                Key::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => logs.error.room = value.addr(),
                Key::CU_JIT_INFO_LOG_BUFFER => logs.info.start = value.cast(),
                Key::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES => logs.info.room = value.addr(),
                Key::CU_JIT_OPTIMIZATION_LEVEL if value.addr() > 4 => {
                    return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
                }
                _ => {}
            }
        }
        Ok(logs)
    }

    /// Writes to the error log.
    pub(super) fn write(&mut self, words: &str) {
        self.error.write(words);
    }

    pub(super) fn inform(&mut self, words: &str) {
        self.info.write(words);
    }
}

impl Buffer {
    fn write(&mut self, words: &str) {
        if self.start.is_null() || self.room == 0 {
            return;
        }
        let len = words.len().min(self.room - 1);
        // SAFETY: the options gave a buffer of `room` bytes, more than are copied.
        unsafe { core::ptr::copy_nonoverlapping(words.as_ptr(), self.start, len) };
        // SAFETY: the buffer has more than `len` bytes.
        let end = unsafe { self.start.add(len) };
        // SAFETY: the buffer has more than `len` bytes.
        unsafe { end.write(0) };
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
