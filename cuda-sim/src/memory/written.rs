//! Which bits of device memory were written, for the check of kernels initcheck.

use super::{BASE, Contents, Memory, is_of_host};
use crate::checks::{self, Check};
use crate::races::RacingMemory;
use std::ops::Range;

/// Fewer bytes without a value, next to bytes with one, may be padding.
const BLOCK: usize = 16;

/// What the check knows of the memory around an address.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) range: Range<u64>,
    /// The address on the host of the words that have the written bits. `None` if all bits count as written.
    pub(crate) written: Option<usize>,
    pub(crate) is_host_visible: bool,
}

impl Memory {
    /// Allocates contents, and notes what is written to them if kernels are checked for that.
    pub(super) fn new_contents(&self, size: u64) -> Option<Contents> {
        let mut bytes = Contents::new(size)?;
        if self.checks.contains(Check::Initcheck) {
            bytes.track_writes();
        }
        Some(bytes)
    }

    /// Returns what is known of the memory around an address that a kernel accesses.
    pub(crate) fn known(&self, address: u64) -> Known {
        let defined = |range, is_host_visible| Known { range, written: None, is_host_visible };
        if let Some((start, its)) = self.containing(address) {
            let range = start..start + its.bytes.len() as u64;
            let is_host_visible = its.managed.is_some();
            return Known { range, written: its.bytes.written(), is_host_visible };
        }
        if let Some((start, its)) = self.virtual_memory.mapping(address) {
            return defined(start..start + its.size, its.access.keys().any(is_of_host));
        }
        match self.host_around(address).filter(|_| address < BASE) {
            Some((start, host, its)) => {
                let start = address - (host - start) as u64;
                defined(start..start + its.len as u64, true)
            }
            None => defined(address..address + 1, false),
        }
    }

    /// Notes that bytes of an allocation were written, from an offset on.
    pub(super) fn note_written(&mut self, start: u64, bytes: Range<usize>) {
        if let Some(its) = self.device.get_mut(&start) {
            its.bytes.mark_written(bytes);
        }
    }

    /// Notes that all bytes of an allocation were written.
    pub(crate) fn note_all_written(&mut self, start: u64) {
        if let Some(its) = self.device.get_mut(&start) {
            its.bytes.mark_written(0..its.bytes.len());
        }
    }

    /// Regards all bytes of an allocation as written, from now on too.
    pub(crate) fn ignore_writes(&mut self, start: u64) {
        if let Some(its) = self.device.get_mut(&start) {
            its.bytes.ignore_writes();
        }
    }

    /// Returns the bits of device memory that were written, a byte for each byte, or `None` if all of them count as
    /// written.
    pub(crate) fn written_bits(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        let (start, its) = self.containing(address)?;
        its.bytes.written_bits(usize::try_from(address - start).ok()?, len)
    }

    /// Reports that `function` copies bytes to the host that nothing has written.
    pub(crate) fn check_copy(&self, function: &'static str, from: u64, len: usize) {
        let Some(bits) = self.written_bits(from, len).filter(|bits| !bits.is_empty()) else {
            return;
        };
        let is_unwritten = |bits: &[u8]| bits.iter().all(|bits| *bits == 0);
        // Allocations begin at the start of a block.
        let before = (BLOCK - from as usize % BLOCK) % BLOCK;
        let mut blocks = bits.get(before..).unwrap_or_default().chunks_exact(BLOCK);
        let at = match blocks.position(is_unwritten) {
            Some(index) => from + (before + BLOCK * index) as u64,
            None if is_unwritten(&bits) => from,
            None => return,
        };
        let RacingMemory { start, size, kind } = self.memory_of(at..at + 1);
        checks::report_copy(function, start, || {
            let offset = at - start;
            format!(
                "initcheck: {function} copies {len} bytes to the host, of which nothing has written the byte {offset} \
                 of {size} bytes of {kind} at {start:#x}"
            )
        });
    }

    /// Sets the bits of device memory that were written.
    pub(crate) fn set_written_bits(&mut self, address: u64, bits: &[u8]) {
        let Some((start, _)) = self.containing(address) else { return };
        let offset = usize::try_from(address - start).unwrap_or(usize::MAX);
        if let Some(its) = self.device.get_mut(&start) {
            its.bytes.set_written_bits(offset, bits);
        }
    }
}
