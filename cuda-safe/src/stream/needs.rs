//! What the graph of a capture needs for as long as it is there.
//!
//! Its nodes have handles of the contexts that their work is of, and of events that are recorded or
//! waited for outside of it; the driver looks at these when the graph is made executable, or destroyed.

use super::gate::OPEN;
use super::{Home, Stream};
use crate::context::Context;
use crate::error::Result;
use crate::event::Event;
use crate::release::Parent;
use crate::sync::{Mutex, MutexGuard};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// Something that a graph needs.
#[derive(Clone)]
pub(crate) enum Need {
    /// Where work of a stream runs.
    Home(Home),
    /// A stream of others, who keep where its work runs for as long as the stream.
    Stream(Stream),
    /// An event of a record or wait that is a part of the graph.
    Event(Event),
}

impl Need {
    pub(crate) fn context(&self) -> &Context {
        match self {
            Self::Home(home) => home.context(),
            Self::Stream(stream) => stream.context(),
            Self::Event(event) => event.context(),
        }
    }

    /// Whether keeping the other is keeping this.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Home(Home::Context(its)), Self::Home(Home::Context(other))) => its == other,
            (Self::Home(Home::Green(its)), Self::Home(Home::Green(other))) => its == other,
            (Self::Stream(its), Self::Stream(other)) => its == other,
            (Self::Event(its), Self::Event(other)) => its.raw() == other.raw(),
            _ => false,
        }
    }

    pub(crate) fn is_borrowed(&self) -> bool {
        match self {
            Self::Home(home) => home.is_borrowed(),
            Self::Stream(stream) => stream.is_borrowed(),
            Self::Event(event) => event.is_borrowed(),
        }
    }
}

/// What captures need that were begun here, each with the number of its capture, or none if the driver
/// did not tell: but for the stream that it was begun on.
static NEEDS: Mutex<Vec<(Option<u64>, Need)>> = Mutex::new(Vec::new());

fn needs() -> MutexGuard<'static, Vec<(Option<u64>, Need)>> {
    NEEDS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    /// What a graph of this stream's work needs.
    pub(super) fn need(&self) -> Need {
        if self.inner.hold.is_owned() {
            Need::Home(self.inner.home.clone())
        } else {
            Need::Stream(self.clone())
        }
    }

    /// After a call by which the stream, or its capture, may have come to need something. Where
    /// nobody here has begun a capture nobody asks for it, and the driver is not asked either.
    pub(crate) fn may_need(&self, need: impl FnOnce() -> Need) {
        if OPEN.load(Ordering::SeqCst) != 0 {
            note(self.capture_id(), need());
        }
    }
}

/// Keeps what a capture needs until its end.
pub(super) fn note(capture: Result<Option<u64>>, need: Need) {
    let capture = match capture {
        // Of none.
        Ok(None) => return,
        Ok(capture) => capture,
        // Any of those that are open now may be the one.
        Err(_) => None,
    };
    let mut needs = needs();
    let is_there = |(its, there): &(Option<u64>, Need)| *its == capture && need.is(there);
    if !needs.iter().any(is_there) {
        needs.push((capture, need));
    }
}

/// What a capture needs that has ended.
pub(super) fn take(capture: Option<u64>) -> Vec<Need> {
    let mut needs = needs();
    let is_its = |its: Option<u64>| its.is_none() || its == capture;
    let its: Vec<Need> = needs
        .iter()
        .filter(|(its, _)| is_its(*its))
        .map(|(_, need)| need.clone())
        .collect();
    // When none is open, the others are of captures that other code has begun.
    let none_is_open = OPEN.load(Ordering::SeqCst) == 0;
    let is_over = |its: Option<u64>| none_is_open || its.is_some() && its == capture;
    let (over, left): (Vec<_>, Vec<_>) = std::mem::take(&mut *needs)
        .into_iter()
        .partition(|(its, _)| is_over(*its));
    *needs = left;
    // Without the lock: these may be the last of their kind.
    drop(needs);
    drop(over);
    its
}
