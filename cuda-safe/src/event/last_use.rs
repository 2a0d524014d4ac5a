//! The last use of an object by the work on a stream, and releases after events.

use crate::call::{Answer, Error, Result, ends_all_work};
use crate::context::Context;
use crate::event::Event;
use crate::release::{Keep, MAX_RETRIES, owners};
use crate::stream::Stream;
use cuda_sys::CUresult;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// The last use of an object by the work on a stream: all work that is on the stream when
/// [`record`](Self::record) is called first.
pub(crate) struct LastUse {
    stream: Stream,
    /// Recorded after the last use. It exists before, because a drop must not fail.
    end: Event,
    /// The number of a [`Progress`].
    progress: AtomicU8,
    /// The number of queries by [`obstacle`](Self::obstacle) that the driver did not answer.
    unanswered: AtomicU32,
}

/// What is known about the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing, and the event is not recorded. (The driver counts such an event as complete.)
    Unknown = 0,
    /// The event is recorded after the work.
    Recorded = 1,
    Complete = 2,
}

const RECORDED: u8 = Progress::Recorded as u8;
const COMPLETE: u8 = Progress::Complete as u8;

impl LastUse {
    /// `end` is an event that no other code uses.
    #[inline]
    pub(crate) fn new(stream: &Stream, end: Event) -> Self {
        Self {
            stream: stream.clone(),
            end,
            progress: AtomicU8::new(Progress::Unknown as u8),
            unanswered: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Returns the event that is recorded after the work.
    #[inline]
    pub(crate) fn end(&self) -> &Event {
        &self.end
    }

    /// Returns what earlier calls found out. Calls no driver function.
    #[inline]
    pub(crate) fn progress(&self) -> Progress {
        match self.progress.load(Ordering::Acquire) {
            RECORDED => Progress::Recorded,
            COMPLETE => Progress::Complete,
            _ => Progress::Unknown,
        }
    }

    /// Records the event, unless the work is complete or the event is recorded. Does not block.
    ///
    /// The caller counts a call on the stream, and has set the relaxed capture mode.
    ///
    /// # Errors
    /// Errors of the driver.
    #[inline]
    pub(crate) fn record(&self) -> Result<Progress> {
        let known = self.progress();
        if known != Progress::Unknown {
            return Ok(known);
        }
        let found = if self.stream.is_complete()? {
            Progress::Complete
        } else {
            self.end.enqueue_record(&self.stream)?;
            Progress::Recorded
        };
        self.progress.store(found as u8, Ordering::Release);
        Ok(found)
    }

    /// Returns whether the work is complete. `waits` waits for it.
    ///
    /// The caller counts a call on the stream, and has set the relaxed capture mode.
    ///
    /// # Errors
    /// Errors of the driver.
    #[inline]
    pub(crate) fn is_over(&self, waits: bool) -> Result<bool> {
        match self.record()? {
            Progress::Complete => Ok(true),
            _ if waits => self.end.wait_for_record().map(|()| true),
            _ => self.end.is_complete(),
        }
    }

    /// Returns `None` if the work is complete, and otherwise the answer of a release that comes after it.
    /// Waits for the work if the stream is borrowed, since its owner may destroy it at any time.
    ///
    /// The release is repeated while the work runs, and [`MAX_RETRIES`] times if the driver does not say
    /// whether it does.
    ///
    /// An error that ends all work is not taken for the end of the work: no release succeeds after it, so
    /// nothing is gained, and everything is lost if the driver returned it only once.
    ///
    /// The caller counts a call on the stream, and has set the relaxed capture mode.
    #[inline]
    pub(crate) fn obstacle(&self) -> Option<Answer> {
        const NOT_READY: Answer =
            Answer { call: "cuEventQuery", code: CUresult::CUDA_ERROR_NOT_READY };
        let (call, code) = match self.is_over(self.stream.is_borrowed()) {
            Ok(true) => return None,
            Ok(false) => return Some(NOT_READY),
            Err(Error::Driver(error)) => (error.call, error.code),
            Err(_) => (NOT_READY.call, CUresult::CUDA_ERROR_UNKNOWN),
        };
        let is_final = ends_all_work(code)
            || code == CUresult::CUDA_ERROR_NOT_PERMITTED
            || self.unanswered.fetch_add(1, Ordering::Relaxed) >= MAX_RETRIES;
        Some(if is_final { Answer { call, code } } else { NOT_READY })
    }
}

/// The owners of an object that is destroyed, or returned to its foreign owner, after events.
#[derive(Clone)]
pub(crate) struct AfterEvents {
    pub(crate) events: Vec<Event>,
    #[allow(dead_code, reason = "held, not read")]
    pub(crate) owner: Option<Arc<dyn Any + Send + Sync>>,
    pub(crate) context: Context,
}

owners! {
    AfterEvents |its| {
        context: Some(&its.context),
        is_borrowed: its.context.depends_on_borrowed(),
        events: its.events.iter().map(Event::handle).collect(),
    }
}
