//! Open captures: their streams, the events recorded in them, and the objects that their graphs retain.

use crate::capture_state::DriverStatus;
use crate::capture_state::state::State;
use crate::capture_state::word::CaptureId;
use crate::sync::{Mutex, MutexGuard, lock};
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A capture that this crate began and that has not been closed.
#[derive(Debug)]
pub(crate) struct Open {
    id: CaptureId,
    /// The driver ID of the capture, or 0 until it is known.
    driver_id: AtomicU64,
    content: Mutex<Content>,
}

#[derive(Debug, Default)]
struct Content {
    /// The streams of a capture count as captured from before the driver begins it until this is set, after the driver
    /// has ended it.
    is_closed: bool,
    /// The states of the streams that belong to the capture, and of the events that it has marked.
    states: Vec<Arc<State>>,
    /// The streams themselves, which are not destroyed before the capture ends.
    streams: Vec<Arc<dyn Retain>>,
    retained: Vec<Arc<dyn Retain>>,
}

/// A stream that belongs to a capture or may join one.
#[derive(Debug)]
pub(crate) struct Member<'a> {
    pub(crate) state: &'a Arc<State>,
    /// The stream, unless it is a default stream, which cannot be destroyed.
    pub(crate) stream: Option<Arc<dyn Retain>>,
    /// The object that the graph must retain for work on the stream.
    pub(crate) retained: Arc<dyn Retain>,
}

/// The number of open captures.
static COUNT: AtomicUsize = AtomicUsize::new(0);

#[inline]
pub(super) fn any() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// All open captures, for streams that join one through foreign code.
static ALL: Mutex<Vec<Arc<Open>>> = Mutex::new(Vec::new());

#[inline]
fn all() -> MutexGuard<'static, Vec<Arc<Open>>> {
    lock(&ALL)
}

impl Open {
    #[inline]
    pub(crate) fn new() -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Self {
            id: CaptureId::new(NEXT.fetch_add(1, Ordering::Relaxed)),
            driver_id: AtomicU64::new(0),
            content: Mutex::default(),
        })
    }

    #[inline]
    pub(crate) fn id(&self) -> CaptureId {
        self.id
    }

    /// Adds the capture to the list of open captures.
    #[inline]
    pub(crate) fn list(self: &Arc<Self>) {
        let mut all = all();
        all.push(Arc::clone(self));
        COUNT.store(all.len(), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn set_driver_id(&self, id: u64) {
        self.driver_id.store(id, Ordering::Release);
    }

    /// Returns the driver ID, if the driver has begun the capture and has told the ID.
    #[inline]
    pub(crate) fn driver_id(&self) -> Option<u64> {
        Some(self.driver_id.load(Ordering::Acquire)).filter(|id| *id != 0)
    }

    /// Returns whether a stream with this driver status may belong to this capture.
    #[inline]
    pub(crate) fn may_be(&self, status: DriverStatus) -> bool {
        match status {
            DriverStatus::None => false,
            DriverStatus::Active(id) => self.driver_id().is_none_or(|known| known == id),
            DriverStatus::Invalidated | DriverStatus::Other(_) => true,
        }
    }

    /// Returns the open capture with this driver ID.
    #[inline]
    pub(crate) fn with_driver_id(id: u64) -> Option<Arc<Self>> {
        let its = |open: &&Arc<Self>| open.driver_id() == Some(id);
        all().iter().find(its).cloned()
    }

    /// Makes the graphs of all open captures retain an object.
    #[inline]
    pub(crate) fn retain_in_all(retained: &Arc<dyn Retain>) {
        let open: Vec<_> = all().clone();
        open.iter().for_each(|open| open.retain(Arc::clone(retained)));
    }

    /// Registers a state to be cleared when the capture ends. Returns whether the capture is still
    /// open.
    #[inline]
    pub(super) fn add_state(&self, state: &Arc<State>) -> bool {
        let mut content = lock(&self.content);
        if !content.is_closed && !content.states.iter().any(|its| Arc::ptr_eq(its, state)) {
            content.states.push(Arc::clone(state));
        }
        !content.is_closed
    }

    /// Adds a stream: its state is cleared when the capture ends, it is not destroyed before that, and
    /// the graph retains the object that its work requires.
    #[inline]
    pub(crate) fn add(&self, member: &Member<'_>) {
        self.retain(Arc::clone(&member.retained));
        let is_open = self.add_state(member.state);
        let Some(stream) = member.stream.as_ref().filter(|_| is_open) else { return };
        let mut content = lock(&self.content);
        if !content.is_closed && !content.streams.iter().any(|its| stream.is_same(&**its)) {
            content.streams.push(Arc::clone(stream));
        }
    }

    /// Makes the graph retain an object, unless the capture was closed. A closed capture records
    /// nothing.
    #[inline]
    pub(crate) fn retain(&self, retained: Arc<dyn Retain>) {
        let mut content = lock(&self.content);
        if content.is_closed || content.retained.iter().any(|its| retained.is_same(&**its)) {
            drop(content);
            // Dropped without the lock, because this may be the last clone.
            drop(retained);
            return;
        }
        content.retained.push(retained);
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.content).is_closed
    }

    /// Clears all states after the driver has ended the capture. Returns the objects that the graph
    /// retains.
    #[inline]
    pub(crate) fn close(&self) -> Vec<Arc<dyn Retain>> {
        {
            let mut all = all();
            all.retain(|open| open.id != self.id);
            COUNT.store(all.len(), Ordering::Relaxed);
        }
        let content = {
            let mut content = lock(&self.content);
            std::mem::replace(&mut *content, Content { is_closed: true, ..Content::default() })
        };
        content.states.iter().for_each(|state| state.clear(self.id));
        content.retained
    }
}

/// An object that a capture or its graph keeps alive, because the nodes of the graph contain its handle. A row of
/// [`retain!`](retain) implements it.
pub(crate) trait Retain: Debug + Send + Sync {
    fn as_any(&self) -> &dyn Any;

    /// Returns whether both keep the same object alive.
    fn is_same(&self, other: &dyn Retain) -> bool;

    /// Returns whether the object depends on a borrowed one, so that a release of the graph must not be
    /// deferred.
    fn is_borrowed(&self) -> bool;

    /// Notes that other code can find the handle of the object in the graph.
    fn publish(&self) {}
}

/// Implements [`Retain`]. `is_same` compares the object with another one of its type.
///
/// ```text
/// retain! {
///     Memory |its, other| {
///         is_same: its.number == other.number,
///         is_borrowed: its.stream.is_borrowed(),
///     }
/// }
/// ```
///
/// expands to
///
/// ```text
/// impl Retain for Memory {
///     fn as_any(&self) -> &dyn Any {
///         self
///     }
///
///     fn is_same(&self, other: &dyn Retain) -> bool {
///         let its = self;
///         other.as_any().downcast_ref::<Self>().is_some_and(|other| its.number == other.number)
///     }
///
///     fn is_borrowed(&self) -> bool {
///         let its = self;
///         its.stream.is_borrowed()
///     }
/// }
/// ```
macro_rules! retain {
    ($([$($generic:tt)*])? $object:ident $(<$($argument:tt),*>)? |$its:ident, $other:ident| {
        is_same: $same:expr,
        is_borrowed: $borrowed:expr,
        $(publish: $publish:expr,)?
    }) => {
        impl$(<$($generic)*>)? $crate::capture_state::Retain for $object $(<$($argument),*>)? {
            #[inline]
            fn as_any(&self) -> &dyn std::any::Any {
                self
            }

            #[inline]
            fn is_same(&self, other: &dyn $crate::capture_state::Retain) -> bool {
                let $its = self;
                other.as_any().downcast_ref::<Self>().is_some_and(|$other| $same)
            }

            #[inline]
            #[allow(unused_variables, reason = "the expression may be a constant")]
            fn is_borrowed(&self) -> bool {
                let $its = self;
                $borrowed
            }

            $(#[inline]
            fn publish(&self) {
                let $its = self;
                $publish;
            })?
        }
    };
}
pub(crate) use retain;
