//! Decompression of data on a device.

use crate::compression::{deflate, lz4, snappy};
use crate::memory::Memory;

/// The format of compressed data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Raw Deflate data (RFC 1951).
    Deflate,
    /// A raw Snappy block.
    Snappy,
    /// An LZ4 block.
    Lz4,
}

/// One operation of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Decompression {
    pub(crate) format: Format,
    pub(crate) from: u64,
    pub(crate) len: usize,
    pub(crate) to: u64,
    /// The address of the word to which the size of the result is written.
    pub(crate) written: u64,
}

impl Decompression {
    pub(super) fn run(&self, memory: &mut Memory) -> Result<(), String> {
        let source = memory.bytes(self.from, self.len)?;
        let result = match self.format {
            Format::Deflate => deflate(source),
            Format::Snappy => snappy(source),
            Format::Lz4 => lz4(source, usize::MAX),
        };
        let result = result.ok_or_else(|| {
            format!(
                "the {} bytes at {:#x} are not valid {:?} data",
                self.len, self.from, self.format
            )
        })?;
        if !result.is_empty() {
            memory.target(self.to, result.len())?.copy_from_slice(&result);
        }
        let size = u32::try_from(result.len()).unwrap_or(u32::MAX);
        super::run::write_value(memory, self.written, &size.to_ne_bytes())
    }
}
