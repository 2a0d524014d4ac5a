//! What plays the other API in tests of external memory and semaphores: files in memory, on Linux.
//!
//! ```
//! use cuda_sim::external::{ExternalSemaphore, memory};
//!
//! # #[cfg(not(miri))]
//! # fn main() -> std::io::Result<()> {
//! // The memory of another API, whose descriptor a program imports.
//! let memory = memory(64 << 10)?;
//! let fd: std::os::fd::OwnedFd = memory.try_clone()?.into();
//! // A semaphore, which the test signals as the other API does.
//! let semaphore = ExternalSemaphore::timeline(0)?;
//! let imported = semaphore.export()?;
//! semaphore.signal(3)?;
//! assert_eq!(semaphore.value()?, 3);
//! # Ok(())
//! # }
//! # #[cfg(miri)] fn main() {}
//! ```
//!
//! Memory that this driver has exported (`cuMemExportToShareableHandle`) is such a file too. A mapping and the file share
//! their bytes, as two APIs share memory of a GPU. So do a mapping and the memory of Mesa's software Vulkan, which
//! exports it as a file.
//!
//! Work of this driver runs when the program waits for it. So a signal must precede the call that waits: a stream that
//! waits for a semaphore without a signal is reported as a [misuse](crate::misuses), also if another thread would signal
//! it later. This driver has no clock, so it cannot tell such a signal from one that never comes.
//!
//! [`opengl_buffer`], [`opengl_texture`] and [`egl_image`] make resources that a program registers.

mod graphics;

pub use graphics::{egl_image, opengl_buffer, opengl_texture};

use crate::memory::{Signal, create_memory};
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// Creates memory of another API: a file that is zero.
///
/// # Errors
/// The system has no such files.
pub fn memory(size: u64) -> Result<File> {
    create_memory(size).ok_or_else(|| ErrorKind::Unsupported.into())
}

/// A semaphore of another API.
#[derive(Debug)]
pub struct ExternalSemaphore {
    file: File,
    signal: Signal,
}

impl ExternalSemaphore {
    /// Creates a binary semaphore, which is not signaled.
    ///
    /// # Errors
    /// The system has no files in memory.
    pub fn binary() -> Result<Self> {
        Self::new(Signal::Binary, 0)
    }

    /// Creates a timeline semaphore.
    ///
    /// # Errors
    /// The system has no files in memory.
    pub fn timeline(value: u64) -> Result<Self> {
        Self::new(Signal::Timeline, value)
    }

    fn new(signal: Signal, value: u64) -> Result<Self> {
        let file = signal.create(value).ok_or(Error::from(ErrorKind::Unsupported))?;
        Ok(Self { file, signal })
    }

    /// Returns a new descriptor, which a program can import.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn export(&self) -> Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    /// Signals the semaphore as the other API does. The value of a binary semaphore is 1.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the value is not larger than that of the semaphore; errors of the file.
    pub fn signal(&self, value: u64) -> Result<()> {
        if value <= self.value()? || (self.signal == Signal::Binary && value != 1) {
            return Err(ErrorKind::InvalidInput.into());
        }
        self.set(value)
    }

    /// Waits for a binary semaphore as the other API does, which resets it. Returns whether it was signaled.
    ///
    /// # Errors
    /// Errors of the file.
    pub fn take(&self) -> Result<bool> {
        let is_signaled = self.value()? != 0;
        self.set(0)?;
        Ok(is_signaled)
    }

    /// Returns the value. That of a binary semaphore is 1 if it is signaled, and otherwise 0.
    ///
    /// # Errors
    /// Errors of the file.
    pub fn value(&self) -> Result<u64> {
        let mut word = [0; 8];
        self.file.read_exact_at(&mut word[..self.signal.size()], 0)?;
        Ok(u64::from_le_bytes(word))
    }

    fn set(&self, value: u64) -> Result<()> {
        self.file.write_all_at(&value.to_le_bytes()[..self.signal.size()], 0)
    }
}
