//! The atomic word of a capture state: the calls in progress, the shared flag, and the open capture.
//!
//! This module calls nothing and owns nothing. `tests/loom` runs it under every interleaving.

use crate::sync::atomic::{AtomicU64, Ordering};

/// Bits 0..20: the number of calls in progress.
const CALLS: u64 = (1 << 20) - 1;
/// Bit 20: foreign code knows the handle.
const SHARED: u64 = 1 << 20;
/// Bits 21..64: the ID of the capture, or 0 for none.
const CAPTURE_SHIFT: u32 = 21;

/// The ID of a capture in this process. IDs are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CaptureId(u64);

impl CaptureId {
    /// The ID for a stream while the driver is asked for its capture.
    pub(crate) const UNRESOLVED: Self = Self((1 << (64 - CAPTURE_SHIFT)) - 1);

    /// Creates an ID from a counter that starts at 1.
    #[inline]
    pub(crate) fn new(number: u64) -> Self {
        debug_assert!(number != 0 && number < Self::UNRESOLVED.0);
        Self(number)
    }

    #[inline]
    const fn bits(self) -> u64 {
        self.0 << CAPTURE_SHIFT
    }
}

/// A value that a [`Word`] had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen(u64);

impl Seen {
    /// Returns whether the handle is neither captured nor shared.
    #[inline(always)]
    pub(crate) fn is_plain(self) -> bool {
        self.0 <= CALLS
    }

    #[inline]
    pub(crate) fn is_shared(self) -> bool {
        self.0 & SHARED != 0
    }

    /// Returns the number of calls in progress.
    #[inline]
    pub(crate) fn calls(self) -> u32 {
        (self.0 & CALLS) as u32
    }

    /// Returns the capture, if any.
    #[inline]
    pub(crate) fn capture(self) -> Option<CaptureId> {
        match self.0 >> CAPTURE_SHIFT {
            0 => None,
            number => Some(CaptureId(number)),
        }
    }
}

/// The calls in progress and the open capture of one handle.
#[derive(Debug)]
pub(crate) struct Word(AtomicU64);

impl Word {
    #[inline]
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Counts a call. Returns the previous word.
    #[inline(always)]
    pub(crate) fn enter(&self) -> Seen {
        Seen(self.0.fetch_add(1, Ordering::Acquire))
    }

    /// Ends a counted call.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }

    #[inline]
    pub(crate) fn look(&self) -> Seen {
        Seen(self.0.load(Ordering::Acquire))
    }

    /// Marks the handle as shared with foreign code.
    #[inline]
    pub(crate) fn share(&self) {
        self.0.fetch_or(SHARED, Ordering::AcqRel);
    }

    /// Sets the capture and counts its beginning as a call in one atomic step, if no call is in
    /// progress and no other capture is open.
    ///
    /// # Errors
    /// The word that prevents the change.
    #[inline]
    pub(crate) fn begin(&self, capture: CaptureId) -> Result<Seen, Seen> {
        self.update(|seen| {
            let is_free = seen.calls() == 0 && seen.capture().is_none();
            is_free.then_some((seen.0 | capture.bits()) + 1)
        })
    }

    /// Sets the capture to [`CaptureId::UNRESOLVED`] and counts a call in one atomic step, if no call
    /// is in progress. Returns the previous word.
    ///
    /// # Errors
    /// The word that prevents the change.
    #[inline]
    pub(crate) fn enter_unresolved(&self) -> Result<Seen, Seen> {
        self.update(|seen| {
            let is_free = seen.calls() == 0 && seen.capture() != Some(CaptureId::UNRESOLVED);
            is_free.then_some((seen.0 | CaptureId::UNRESOLVED.bits()) + 1)
        })
    }

    /// Marks an event as recorded in a capture, if no wait for it is in progress and no other capture
    /// has marked it.
    ///
    /// # Errors
    /// The word that prevents the change.
    #[inline]
    pub(crate) fn mark(&self, capture: CaptureId) -> Result<Seen, Seen> {
        self.update(|seen| {
            let is_free = seen.capture().is_none_or(|its| its == capture);
            (seen.calls() == 0 && is_free).then_some(seen.0 | capture.bits())
        })
    }

    /// Marks the handle as shared if no call is in progress.
    ///
    /// # Errors
    /// The word that prevents the change.
    #[inline]
    pub(crate) fn share_if_idle(&self) -> Result<Seen, Seen> {
        self.update(|seen| (seen.calls() == 0).then_some(seen.0 | SHARED))
    }

    /// Replaces or clears a capture. Returns whether that capture was set. Calls in progress stay
    /// counted.
    #[inline]
    pub(crate) fn replace(&self, capture: CaptureId, by: Option<CaptureId>) -> bool {
        let bits = by.map_or(0, CaptureId::bits);
        self.update(|seen| {
            let is_its = seen.capture() == Some(capture);
            is_its.then_some(seen.0 & !CaptureId::UNRESOLVED.bits() | bits)
        })
        .is_ok()
    }

    /// Changes the word in one atomic step. Returns the previous word, or the word that prevents the
    /// change.
    fn update(&self, change: impl Fn(Seen) -> Option<u64>) -> Result<Seen, Seen> {
        let change = |word| change(Seen(word));
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).map(Seen).map_err(Seen)
    }
}
