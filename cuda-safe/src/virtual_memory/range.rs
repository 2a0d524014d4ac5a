//! Mapped ranges, and how they are unmapped.
//!
//! The driver unmaps at once, whether work uses the range or not, and such work then fails and ends all
//! contexts of the process (measured, driver 580). So a range that work may use is unmapped after an event.

use super::physical::PhysicalMemory;
use super::reservation::Reservation;
use crate::call::{Answer, Entered, Result, answer, call, count_leak};
use crate::event::LastUse;
use crate::release::{Destroy, Keep, Leftover, Root, release};
use cuda_sys::{CUdeviceptr, CUresult};

/// A range of addresses that is mapped to physical memory. Dropping it unmaps nothing.
pub(super) struct MappedRange {
    pub(super) reservation: Reservation,
    pub(super) offset: usize,
    pub(super) memory: PhysicalMemory,
}

impl MappedRange {
    #[inline]
    pub(super) fn address(&self) -> CUdeviceptr {
        self.reservation.address() + self.offset as u64
    }

    #[inline]
    pub(super) fn size(&self) -> usize {
        self.memory.size()
    }

    /// Returns the first offset after the range.
    #[inline]
    pub(super) fn end(&self) -> usize {
        self.offset + self.size()
    }

    /// Takes the range, and leaves one whose memory has no handle.
    #[inline]
    pub(super) fn take(&mut self) -> Self {
        Self {
            reservation: self.reservation.clone(),
            offset: self.offset,
            memory: self.memory.take(),
        }
    }

    /// Unmaps the range.
    ///
    /// # Errors
    /// Errors from the driver. The range is then still mapped.
    ///
    /// # Safety
    /// No work uses the range, and it has not been unmapped.
    #[inline]
    pub(super) unsafe fn unmap(&self) -> Result<()> {
        // SAFETY: the range is exactly one mapping, which no work uses, as the caller promises.
        unsafe { call!(cuMemUnmap(self.address(), self.size())) }
    }

    /// Unmaps a range that no work uses, now or as soon as possible.
    #[inline]
    pub(super) fn unmap_idle(self) {
        release(Unmap { range: self, last_use: None }, &Root { is_borrowed: false });
    }

    /// Unmaps a range that work on a stream uses, after that work.
    #[inline]
    pub(super) fn unmap_after(self, last_use: LastUse) {
        let stream = last_use.stream().clone();
        let last_use = Some(last_use);
        release(Unmap { range: self, last_use }, &stream);
    }
}

/// Returns `None` if the work that used virtual memory is complete, and otherwise the answer of a release.
///
/// The memory outlives the context. So if the context was destroyed, which ends its work, the memory is
/// released. A single answer does not prove that: the driver may mean the current context of the thread,
/// and memory that is unmapped under running work ends the process. So the second answer must be the
/// same, with the context of the work current, or the driver must refuse to make it current.
#[inline]
pub(super) fn obstacle(last_use: &LastUse) -> Option<Answer> {
    let is_destroyed = |code| code == CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;
    let first = last_use.obstacle()?;
    if !is_destroyed(first.code) {
        return Some(first);
    }
    match Entered::new(last_use.stream().context()) {
        Ok(_current) => last_use.obstacle().filter(|second| !is_destroyed(second.code)),
        Err(error) if error.code().is_some_and(is_destroyed) => None,
        Err(_) => Some(first),
    }
}

/// A range that is unmapped after its last use. The reservation and the memory are released with it.
struct Unmap {
    range: MappedRange,
    last_use: Option<LastUse>,
}

impl Destroy for Unmap {
    #[inline]
    fn name(&self) -> &'static str {
        "a mapping of virtual memory"
    }

    #[inline]
    unsafe fn destroy(&self) -> Answer {
        if let Some(obstacle) = self.last_use.as_ref().and_then(obstacle) {
            return obstacle;
        }
        // SAFETY: this value stands for the mapping, and the caller promises that this is the first call
        // that succeeds. The last use is complete.
        unsafe { answer!(cuMemUnmap(self.range.address(), self.range.size())) }
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        // Unmapping disturbs no capture, but the queries about the last use do.
        self.last_use.is_none()
    }

    #[inline]
    fn leftover(&self) -> Leftover {
        Leftover::Object
    }

    #[inline]
    fn has_leaked(&self, _: &dyn Keep) {
        // The release is counted for the mapping, which keeps the memory and the addresses.
        count_leak();
        self.range.reservation.leak();
    }
}
