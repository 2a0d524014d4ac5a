//! Where the pages of managed memory are.

use super::ManagedRange;
use crate::call::{Invalid, Result, answer, without_current};
use crate::memory::MemoryLocation;
use cuda_sys::CUmemLocation;

impl ManagedRange<'_> {
    /// Returns where the pages of the range are now: the most common location of each part of
    /// `part_bytes`, or `None` for a part without pages. The last part may be shorter.
    ///
    /// Calls `cuMemGetLocationInfo(address, size, part_bytes, sample_bytes, &locations)`. The driver looks
    /// at one page in every `sample_bytes`; 0 lets the driver choose. If locations are equally common, the
    /// driver returns any of them. (Unverified, from documentation.)
    ///
    /// # Errors
    /// - [`Invalid::Residency`] if `part_bytes` is 0 or greater than the range, or if `sample_bytes` is
    ///   greater than `part_bytes`.
    /// - `CUDA_ERROR_NOT_SUPPORTED` unless all devices have
    ///   [`CONCURRENT_MANAGED_ACCESS`](crate::device::attribute::CONCURRENT_MANAGED_ACCESS).
    ///
    /// Since CUDA 13.4. Raw: [`cuMemGetLocationInfo`](fn@cuda_sys::cuMemGetLocationInfo).
    #[doc(alias = "cuMemGetLocationInfo")]
    #[inline]
    pub fn residency(
        &self,
        part_bytes: usize,
        sample_bytes: usize,
    ) -> Result<Vec<Option<MemoryLocation>>> {
        if self.bytes == 0 {
            return Ok(Vec::new());
        }
        if part_bytes == 0 || part_bytes > self.bytes || sample_bytes > part_bytes {
            return Err(Invalid::Residency {
                part: part_bytes,
                sample: sample_bytes,
                bytes: self.bytes,
            }
            .into());
        }
        let mut locations = vec![CUmemLocation::default(); self.bytes.div_ceil(part_bytes)];
        let (address, bytes) = (self.address, self.bytes);
        without_current(self.stream.context(), || {
            // SAFETY: the list has an entry for each part, and the range is borrowed managed memory.
            unsafe {
                answer!(cuMemGetLocationInfo(
                    address,
                    bytes,
                    part_bytes,
                    sample_bytes,
                    locations.as_mut_ptr()
                ))
            }
        })?;
        let locations = locations.into_iter().map(MemoryLocation::from_raw);
        Ok(locations.collect())
    }
}
