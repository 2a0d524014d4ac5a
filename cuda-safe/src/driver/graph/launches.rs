//! The streams on which an executable graph was launched.
//!
//! The streams are kept alive, and tell when the last launch is complete: an event is recorded on each of
//! them when the executable graph is dropped. A stream is noted before its first launch. A launch on the
//! stream that was noted last costs one comparison.

use super::order::Earlier;
use crate::base::capture::Operation;
use crate::base::error::Result;
use crate::base::release::KeepAlive;
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::sync::{Mutex, MutexGuard};
use crate::driver::event::Event;
use crate::driver::stream::Stream;
use std::sync::PoisonError;

/// The launches of an executable graph.
pub(super) struct Launches {
    /// The identity of a stream that is noted, and that waits for all earlier work, or 0.
    admitted: AtomicU64,
    /// Whether each launch is checked, so that no stream is admitted.
    pub(super) is_always_checked: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    streams: Vec<Noted>,
    /// The number of streams at which idle ones are removed.
    limit: usize,
    /// The work that launches must come after, with increasing numbers.
    earlier: Vec<(u64, Earlier)>,
    /// The number of the next entry of `earlier`.
    next: u64,
}

/// A stream on which the executable graph was launched.
pub(super) struct Noted {
    pub(super) stream: Stream,
    /// The event that is recorded when the executable graph is dropped. It exists already, because a drop
    /// must not fail.
    pub(super) end: Event,
}

/// The earlier work that a launch comes after: all entries below this number.
#[must_use]
pub(super) struct Admitted(u64);

/// The number of noted streams at which idle ones are removed for the first time.
const LIMIT: usize = 16;

impl Launches {
    pub(super) fn new(earlier: impl IntoIterator<Item = Earlier>) -> Self {
        let launches = Self {
            admitted: AtomicU64::new(0),
            is_always_checked: false,
            state: Mutex::default(),
        };
        launches.lock().limit = LIMIT;
        launches.add_earlier(earlier);
        launches
    }

    /// Returns whether the stream is noted and waits for all earlier work. The caller counts a call on
    /// the stream.
    #[inline(always)]
    pub(super) fn is_admitted(&self, stream: &Stream) -> bool {
        self.admitted.load(Ordering::Acquire) == stream.identity()
    }

    /// Adds work that all launches from now on must come after.
    ///
    /// No launch is in progress.
    pub(super) fn add_earlier(&self, earlier: impl IntoIterator<Item = Earlier>) {
        let mut state = self.lock();
        for earlier in earlier {
            let number = state.next;
            state.next += 1;
            state.earlier.push((number, earlier));
        }
        self.admitted.store(0, Ordering::Release);
    }

    /// Makes a stream wait for all earlier work, and notes it. The caller counts a call on the stream
    /// until the launch has returned.
    ///
    /// A borrowed stream is not noted, because it cannot be kept alive.
    ///
    /// # Errors
    /// Errors of the driver; a stream of the earlier work is capturing.
    #[cold]
    #[inline(never)]
    pub(super) fn admit(&self, stream: &Stream) -> Result<Admitted> {
        let (earlier, next, is_noted) = {
            let state = self.lock();
            let is_noted = state.streams.iter().any(|noted| noted.is(stream));
            (state.earlier.clone(), state.next, is_noted)
        };
        for (_, earlier) in &earlier {
            earlier.precede(stream)?;
        }
        if !stream.is_borrowed() {
            if !is_noted {
                self.note(stream)?;
            }
            if !self.is_always_checked {
                self.admitted.store(stream.identity(), Ordering::Release);
            }
        }
        Ok(Admitted(next))
    }

    /// Forgets the earlier work that a successful launch came after. The driver orders later launches
    /// after that launch.
    pub(super) fn has_launched(&self, admitted: &Admitted) {
        let finished = {
            let mut state = self.lock();
            let (finished, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut state.earlier)
                .into_iter()
                .partition(|(number, _)| *number < admitted.0);
            state.earlier = rest;
            finished
        };
        // Dropped without the lock, because these may be the last clones.
        drop(finished);
    }

    fn note(&self, stream: &Stream) -> Result<()> {
        let noted = Noted {
            stream: stream.clone(),
            end: stream.context().event()?,
        };
        let others = {
            let mut state = self.lock();
            let others = match state.streams.len() >= state.limit {
                true => std::mem::take(&mut state.streams),
                false => Vec::new(),
            };
            state.streams.push(noted);
            others
        };
        if !others.is_empty() {
            self.admitted.store(0, Ordering::Release);
            let mut kept = others;
            kept.retain(|noted| !self.is_over(noted));
            let mut state = self.lock();
            state.streams.append(&mut kept);
            state.limit = LIMIT.max(state.streams.len() * 2);
        }
        Ok(())
    }

    /// Returns whether all launches on a stream are complete, and each later one will note the stream
    /// again.
    ///
    /// The stream is not in the list, so a launch notes it again unless it is admitted. A launch that
    /// found it in the list before is counted as a call on the stream.
    fn is_over(&self, noted: &Noted) -> bool {
        let state = noted.stream.state();
        // A launch whose call is counted after this one sees that the stream is not admitted: the end of
        // this call releases what was written before.
        drop(state.enter(Operation::Launch));
        let call = state.enter(Operation::Launch);
        let is_unused = call.seen().is_plain() && call.seen().calls() == 0;
        is_unused
            && self.admitted.load(Ordering::Acquire) != noted.stream.identity()
            && noted.stream.is_complete().unwrap_or(false)
    }

    /// Makes a stream wait for all launches, and for the earlier work.
    ///
    /// No launch is in progress.
    ///
    /// # Errors
    /// Errors of the driver; one of the streams is capturing.
    pub(super) fn precede(&self, stream: &Stream) -> Result<()> {
        for earlier in self.all_work() {
            earlier.precede(stream)?;
        }
        Ok(())
    }

    /// Blocks until all launches and the earlier work are complete.
    ///
    /// No launch is in progress.
    ///
    /// # Errors
    /// Errors of the work; one of the streams is capturing.
    pub(super) fn wait(&self) -> Result<()> {
        self.all_work().iter().try_for_each(Earlier::wait)
    }

    fn all_work(&self) -> Vec<Earlier> {
        let state = self.lock();
        let earlier = state.earlier.iter().map(|(_, earlier)| earlier.clone());
        let launched = state.streams.iter();
        let launched = launched.map(|noted| Earlier::Stream(noted.stream.clone()));
        earlier.chain(launched).collect()
    }

    /// Returns the streams, for objects that are dropped after the launches so far.
    pub(super) fn streams(&self) -> Vec<Stream> {
        let state = self.lock();
        state
            .streams
            .iter()
            .map(|noted| noted.stream.clone())
            .collect()
    }

    /// Takes the streams and the work that no launch has come after yet.
    pub(super) fn take(&mut self) -> (Vec<Noted>, Vec<Earlier>) {
        let mut state = self.lock();
        let earlier = std::mem::take(&mut state.earlier);
        let earlier = earlier.into_iter().map(|(_, earlier)| earlier).collect();
        (std::mem::take(&mut state.streams), earlier)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Noted {
    fn is(&self, stream: &Stream) -> bool {
        self.stream.identity() == stream.identity()
    }
}

impl Earlier {
    /// Makes a stream wait for this work.
    ///
    /// # Errors
    /// Errors of the driver; one of the streams is capturing.
    pub(super) fn precede(&self, stream: &Stream) -> Result<()> {
        match self {
            Self::Event(event) => stream.wait_private(event),
            Self::Stream(its) if its == stream => Ok(()),
            Self::Stream(its) => {
                let reached = its.context().event()?;
                reached.record_uncaptured(its)?;
                stream.wait_private(&reached)
            }
        }
    }

    /// Blocks until this work is complete.
    ///
    /// # Errors
    /// Errors of the work; the stream is capturing.
    fn wait(&self) -> Result<()> {
        match self {
            Self::Event(event) => event.wait_for_record(),
            Self::Stream(stream) => {
                // A wait for a captured stream would invalidate the capture.
                let _call = stream.uncaptured(Operation::HostCopy)?;
                stream.wait_for_work()
            }
        }
    }
}
