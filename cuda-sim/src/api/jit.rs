//! Options of the driver's compiler, and where its words go.

use crate::world::{Answer, World};
use core::ffi::{c_uint, c_void};
use cuda_sys::{CUjit_option as Key, CUresult, CudaVersion};

/// The buffers that options name; kept by linkers, which may write into them until they are
/// destroyed.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    error: Buffer,
    info: Buffer,
}

/// Room for text, or none.
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

// SAFETY: the driver writes there during calls, on whatever thread makes them: so the API says.
unsafe impl Send for Logs {}

impl Logs {
    /// Unverified (from documentation): which values are refused, and that options which are newer
    /// than the driver are.
    ///
    /// # Safety
    /// There are `count` keys and values, of the types that the keys want, and the buffers live as
    /// long as this.
    pub(super) unsafe fn of_options(
        world: &World,
        keys: *mut Key,
        values: *mut *mut c_void,
        count: c_uint,
    ) -> Answer<Self> {
        let mut logs = Self::default();
        for index in 0..count as usize {
            // SAFETY: the caller's promise.
            let key = unsafe { keys.add(index) };
            // SAFETY: the caller's promise.
            let key = unsafe { key.read() };
            // SAFETY: the caller's promise.
            let value = unsafe { values.add(index) };
            // SAFETY: the caller's promise.
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

    /// Of something wrong.
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
        // SAFETY: the options gave `room` bytes there, more than are copied.
        unsafe { core::ptr::copy_nonoverlapping(words.as_ptr(), self.start, len) };
        // SAFETY: as above.
        let end = unsafe { self.start.add(len) };
        // SAFETY: as above.
        unsafe { end.write(0) };
    }
}

/// The first driver that knows an option.
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
