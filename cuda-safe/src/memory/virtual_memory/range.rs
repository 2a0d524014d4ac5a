//! Mapped ranges, and how they are unmapped.
//!
//! The driver unmaps at once, whether work uses the range or not, and such work then fails and ends all
//! contexts of the process (measured, driver 580). So a range that work may use is unmapped after an event.

use super::physical::PhysicalMemory;
use super::reservation::Reservation;
use crate::base::call::{Answer, answer, call};
use crate::base::error::{Error, Result, ends_all_work};
use crate::base::release::{Destroy, KeepAlive, Leftover, Root, release};
use crate::driver::event::Event;
use crate::driver::stream::Stream;
use cuda_sys::{CUdeviceptr, CUresult};
use std::sync::atomic::{AtomicBool, Ordering};

/// A range of addresses that is mapped to physical memory. Dropping it unmaps nothing.
pub(super) struct MappedRange {
    pub(super) reservation: Reservation,
    pub(super) offset: usize,
    pub(super) memory: PhysicalMemory,
}

impl MappedRange {
    pub(super) fn address(&self) -> CUdeviceptr {
        self.reservation.address() + self.offset as u64
    }

    pub(super) fn size(&self) -> usize {
        self.memory.size()
    }

    /// Returns the first offset after the range.
    pub(super) fn end(&self) -> usize {
        self.offset + self.size()
    }

    /// Takes the range, and leaves one whose memory has no handle.
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
    pub(super) unsafe fn unmap(&self) -> Result<()> {
        // SAFETY: the range is exactly one mapping, which no work uses, as the caller promises.
        unsafe { call!(cuMemUnmap(self.address(), self.size())) }
    }

    /// Unmaps a range that no work uses, now or as soon as possible.
    pub(super) fn unmap_idle(self) {
        release(
            Unmap {
                range: self,
                last_use: None,
            },
            &Root { is_borrowed: false },
        );
    }

    /// Unmaps a range that work on a stream uses, after that work.
    pub(super) fn unmap_after(self, last_use: LastUse) {
        let stream = last_use.stream.clone();
        let last_use = Some(last_use);
        release(
            Unmap {
                range: self,
                last_use,
            },
            &stream,
        );
    }
}

/// The last use of memory on a stream.
pub(in crate::memory) struct LastUse {
    stream: Stream,
    /// Recorded after the last use. It exists before, because a drop must not fail.
    end: Event,
    is_recorded: AtomicBool,
}

impl LastUse {
    /// Returns the end of the work that is on the stream when [`is_over`](Self::is_over) is called first.
    pub(in crate::memory) fn new(stream: &Stream, end: Event) -> Self {
        Self {
            stream: stream.clone(),
            end,
            is_recorded: AtomicBool::new(false),
        }
    }

    /// Returns whether the work is complete. Waits for it if the stream is borrowed, since its owner may
    /// destroy it at any time.
    ///
    /// The caller counts a call on the stream.
    ///
    /// # Errors
    /// Errors of the driver.
    fn query(&self) -> Result<bool> {
        if !self.is_recorded.load(Ordering::Acquire) {
            if self.stream.is_complete()? {
                return Ok(true);
            }
            self.end.enqueue_record(&self.stream)?;
            self.is_recorded.store(true, Ordering::Release);
        }
        match self.stream.is_borrowed() {
            true => self.end.wait_for_record().map(|()| true),
            false => self.end.is_complete(),
        }
    }

    /// Returns `None` if the work is complete, and otherwise the answer of a release that is repeated.
    pub(super) fn obstacle(&self) -> Option<Answer> {
        let code = match self.query() {
            Ok(true) => return None,
            Err(Error::Driver(error)) if ends_all_work(error.code) => return None,
            Err(Error::Driver(error)) if error.code == CUresult::CUDA_ERROR_NOT_PERMITTED => {
                error.code
            }
            Ok(false) | Err(_) => CUresult::CUDA_ERROR_NOT_READY,
        };
        Some(Answer {
            call: "cuEventQuery",
            code,
        })
    }

    /// Does the same as [`obstacle`](Self::obstacle) for objects of the context: an error that ends all
    /// work ends the context too, so it is the answer of their release.
    pub(in crate::memory) fn obstacle_in_context(&self) -> Option<Answer> {
        let not_ready = Answer {
            call: "cuEventQuery",
            code: CUresult::CUDA_ERROR_NOT_READY,
        };
        match self.query() {
            Ok(true) => None,
            Err(Error::Driver(error))
                if ends_all_work(error.code)
                    || error.code == CUresult::CUDA_ERROR_NOT_PERMITTED =>
            {
                Some(Answer {
                    call: error.call,
                    code: error.code,
                })
            }
            Ok(false) | Err(_) => Some(not_ready),
        }
    }
}

/// A range that is unmapped after its last use. The reservation and the memory are released with it.
struct Unmap {
    range: MappedRange,
    last_use: Option<LastUse>,
}

impl Destroy for Unmap {
    fn name(&self) -> &'static str {
        "a mapping of virtual memory"
    }

    unsafe fn destroy(&self) -> Answer {
        if let Some(obstacle) = self.last_use.as_ref().and_then(LastUse::obstacle) {
            return obstacle;
        }
        // SAFETY: this value stands for the mapping, and the caller promises that this is the first call
        // that succeeds. The last use is complete.
        unsafe { answer!(cuMemUnmap(self.range.address(), self.range.size())) }
    }

    fn is_quiet(&self) -> bool {
        // Unmapping disturbs no capture, but the queries about the last use do.
        self.last_use.is_none()
    }

    fn leftover(&self) -> Leftover {
        Leftover::Object
    }
}
