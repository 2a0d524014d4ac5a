//! The log buffers of the driver's PTX compiler and linker.

/// The log buffers that the JIT options of a call name. A linker stores them, because it may write into
/// them until it is destroyed.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    pub(crate) error: Buffer,
    pub(crate) info: Buffer,
}

/// A text buffer of the program. The pointer may be null, and the size may be 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    pub(crate) start: *mut u8,
    pub(crate) room: usize,
}

impl Default for Buffer {
    fn default() -> Self {
        Self { start: core::ptr::null_mut(), room: 0 }
    }
}

// SAFETY: the driver uses the pointers only during a call and on the calling thread, as the API
// specifies.
unsafe impl Send for Logs {}

impl Logs {
    /// Writes to the error log.
    pub(crate) fn write(&mut self, words: &str) {
        self.error.write(words);
    }

    pub(crate) fn inform(&mut self, words: &str) {
        self.info.write(words);
    }
}

impl Buffer {
    fn write(&mut self, words: &str) {
        if self.start.is_null() || self.room == 0 {
            return;
        }
        let len = words.len().min(self.room - 1);
        // SAFETY: the options name a buffer of `room` bytes, and `len` is less than `room`.
        unsafe { core::ptr::copy_nonoverlapping(words.as_ptr(), self.start, len) };
        // SAFETY: the buffer has more than `len` bytes.
        let end = unsafe { self.start.add(len) };
        // SAFETY: the buffer has more than `len` bytes.
        unsafe { end.write(0) };
    }
}
