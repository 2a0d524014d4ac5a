//! Model checking of the capture word and of the slots of dropped events of `cuda-safe` with `loom`, over
//! every interleaving of their atomic operations.
//!
//! The driver is modeled as a flag: whether it captures a stream, or has captured an event. A call
//! that the word permits as uncaptured must not meet a capturing driver. (A thread reads the flag
//! once between two of its stores, because loom orders a store only against the last access to a
//! variable.)

#[path = "../../cuda-safe/src/capture_state/word.rs"]
#[allow(unreachable_pub, reason = "a module of another crate")]
mod word;

#[path = "../../cuda-safe/src/event/slots.rs"]
#[allow(unreachable_pub, reason = "a module of another crate")]
mod slots;

/// The imports of these modules: loom's atomics instead of those of the standard library.
mod sync {
    pub(crate) mod atomic {
        pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
    }
}

use loom::sync::Mutex;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use slots::Slots;
use std::sync::Arc;
use word::{CaptureId, Word};

/// A stream or an event, and the driver's state of it.
struct Handle {
    word: Word,
    captured: AtomicBool,
}

impl Handle {
    fn new() -> Arc<Self> {
        Arc::new(Self { word: Word::new(), captured: AtomicBool::new(false) })
    }

    fn set(&self, captured: bool) {
        self.captured.store(captured, Ordering::Relaxed);
    }

    fn is_captured(&self) -> bool {
        self.captured.load(Ordering::Relaxed)
    }

    /// Makes a call that must not be captured. Returns whether it was made.
    fn call_uncaptured(&self) -> bool {
        let seen = self.word.enter();
        let made = seen.is_plain();
        if made {
            assert!(!self.is_captured(), "a call is captured");
            assert!(!self.is_captured(), "a capture begins in the middle of a call");
        }
        self.word.leave();
        made
    }

    /// Begins a capture and ends it. Returns whether it began.
    fn capture(&self, id: CaptureId) -> bool {
        let begun = self.word.begin(id).is_ok();
        if begun {
            self.word.leave();
            self.set(true);
            self.set(false);
            assert!(self.word.replace(id, None), "another capture took its place");
        }
        begun
    }

    fn is_idle(&self) -> bool {
        let seen = self.word.look();
        seen.calls() == 0 && seen.capture().is_none()
    }
}

/// Explores all interleavings with up to four preemptions; most bugs need two.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    explore_with(4, model);
}

fn explore_with(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn id(number: u64) -> CaptureId {
    CaptureId::new(number)
}

/// Runs two closures on other threads, and a third one on this thread.
fn beside(handle: &Arc<Handle>, others: [fn(&Handle); 2], here: impl FnOnce(&Handle)) {
    let threads = others.map(|other| {
        let handle = Arc::clone(handle);
        thread::spawn(move || other(&handle))
    });
    here(handle);
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn no_capture_begins_during_a_call() {
    explore(|| {
        let handle = Handle::new();
        let call = |handle: &Handle| {
            handle.call_uncaptured();
        };
        beside(&handle, [call, call], |handle| {
            handle.capture(id(1));
        });
        assert!(handle.is_idle());
        assert!(handle.capture(id(2)), "no call is active any more");
        assert!(handle.call_uncaptured(), "no capture is open any more");
    });
}

#[test]
fn a_wait_does_not_resolve_a_stream_while_its_capture_begins() {
    explore(|| {
        let handle = Handle::new();
        let waiting = {
            let handle = Arc::clone(&handle);
            thread::spawn(move || {
                if let Ok(before) = handle.word.enter_unresolved() {
                    // The driver's answer is correct: the stream is captured if the capture has
                    // begun.
                    let captured = handle.is_captured();
                    assert_eq!(captured, before.capture().is_some());
                    let joined = captured.then(|| id(1));
                    assert!(handle.word.replace(CaptureId::UNRESOLVED, joined));
                    handle.word.leave();
                }
            })
        };
        let begun = handle.word.begin(id(1)).is_ok();
        if begun {
            handle.set(true);
            handle.word.leave();
        }
        waiting.join().unwrap();
        assert_eq!(handle.word.look().capture().is_some(), begun);
        assert_eq!(handle.word.look().calls(), 0);
    });
}

#[test]
fn one_of_two_captures_begins_at_a_time() {
    explore(|| {
        let handle = Handle::new();
        let call = |handle: &Handle| {
            handle.call_uncaptured();
        };
        let capture = |handle: &Handle| {
            handle.capture(id(1));
        };
        beside(&handle, [capture, call], |handle| {
            handle.capture(id(2));
        });
        assert!(handle.is_idle());
    });
}

#[test]
fn a_stream_that_may_join_a_capture_admits_no_uncaptured_call() {
    explore(|| {
        let handle = Handle::new();
        let call = |handle: &Handle| {
            handle.call_uncaptured();
        };
        beside(&handle, [call, call], |handle| {
            if handle.word.enter_unresolved().is_ok() {
                // The wait makes the stream join the capture.
                handle.set(true);
                assert!(handle.word.replace(CaptureId::UNRESOLVED, Some(id(1))));
                handle.word.leave();
                handle.set(false);
                assert!(handle.word.replace(id(1), None));
            }
        });
        assert!(handle.is_idle());
    });
}

#[test]
fn one_of_two_waits_resolves_a_stream_at_a_time() {
    fn wait(handle: &Handle) {
        if handle.word.enter_unresolved().is_ok() {
            handle.set(true);
            handle.set(false);
            // The driver answers that the stream has not joined.
            assert!(handle.word.replace(CaptureId::UNRESOLVED, None));
            handle.word.leave();
        }
    }
    explore(|| {
        let handle = Handle::new();
        let call = |handle: &Handle| {
            handle.call_uncaptured();
        };
        beside(&handle, [wait, call], wait);
        assert!(handle.is_idle());
    });
}

#[test]
fn a_stream_that_joins_while_its_capture_is_closed_is_cleared() {
    explore(|| {
        let handle = Handle::new();
        let closed = Arc::new(Mutex::new(false));
        let closing = {
            let (handle, closed) = (Arc::clone(&handle), Arc::clone(&closed));
            thread::spawn(move || {
                *closed.lock().unwrap() = true;
                handle.word.replace(id(1), None);
            })
        };
        if handle.word.enter_unresolved().is_ok() {
            assert!(handle.word.replace(CaptureId::UNRESOLVED, Some(id(1))));
            let is_closed = *closed.lock().unwrap();
            if is_closed {
                handle.word.replace(id(1), None);
            }
            handle.word.leave();
        }
        closing.join().unwrap();
        assert!(handle.is_idle());
    });
}

#[test]
fn an_event_is_not_marked_during_a_wait_for_it() {
    explore(|| {
        let event = Handle::new();
        let wait = |event: &Handle| {
            event.call_uncaptured();
        };
        beside(&event, [wait, wait], |event| {
            if event.word.mark(id(1)).is_ok() {
                // The record on the captured stream.
                event.set(true);
                event.set(false);
                assert!(event.word.replace(id(1), None));
            }
        });
        assert!(event.is_idle());
    });
}

#[test]
fn an_event_belongs_to_one_open_capture() {
    fn record(event: &Handle, id: CaptureId) {
        if event.word.mark(id).is_ok() {
            assert!(event.word.replace(id, None), "another capture has cleared it");
        }
    }
    explore(|| {
        let event = Handle::new();
        let first = |event: &Handle| record(event, id(1));
        let wait = |event: &Handle| {
            event.call_uncaptured();
        };
        beside(&event, [first, wait], |event| record(event, id(2)));
        assert!(event.is_idle());
    });
}

#[test]
fn an_event_is_not_shared_during_an_uncaptured_wait() {
    explore(|| {
        let event = Handle::new();
        let wait = |event: &Handle| {
            event.call_uncaptured();
        };
        beside(&event, [wait, wait], |event| {
            if event.word.share_if_idle().is_ok() {
                // A capture of other code records the event.
                event.set(true);
            }
        });
        assert_eq!(event.word.look().is_shared(), event.is_captured());
        assert_eq!(event.word.look().calls(), 0);
    });
}

#[test]
fn the_shared_flag_persists_through_captures_and_calls() {
    explore(|| {
        let handle = Handle::new();
        let capture = |handle: &Handle| {
            handle.capture(id(1));
        };
        let call = |handle: &Handle| {
            handle.call_uncaptured();
        };
        beside(&handle, [capture, call], |handle| handle.word.share());
        assert!(handle.word.look().is_shared());
        assert!(!handle.call_uncaptured(), "the driver is asked from now on");
        assert!(handle.is_idle());
    });
}

/// A value that owns its slots and counts its drops, with memory that only its owner may access.
struct Value {
    slots: Arc<Slots<Self, 2>>,
    owned: loom::cell::UnsafeCell<u32>,
    drops: Arc<std::sync::atomic::AtomicUsize>,
}

impl Value {
    fn change(&self) {
        self.owned.with_mut(|place| {
            // SAFETY: the thread has the only reference to the value. Loom reports another access.
            unsafe { *place += 1 }
        });
    }
}

// SAFETY: see `change`.
unsafe impl Send for Value {}
// SAFETY: see `change`.
unsafe impl Sync for Value {}

impl Drop for Value {
    fn drop(&mut self) {
        self.change();
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_value_in_the_slots_has_one_owner_and_is_dropped_once() {
    explore_with(3, || {
        let (slots, drops) = (Arc::new(Slots::new()), Arc::default());
        let value = || {
            let (slots, owned) = (Arc::clone(&slots), loom::cell::UnsafeCell::new(0));
            Arc::new(Value { slots, owned, drops: Arc::clone(&drops) })
        };
        let add = |value: Arc<Value>| {
            value.change();
            Slots::add(value, |value| Some(&value.slots)).is_ok()
        };
        let take = move |slots: &Slots<Value, 2>| slots.take().is_some_and(add);
        assert!(add(value()));
        let (its, second) = (Arc::clone(&slots), value());
        let adds = thread::spawn(move || {
            add(second);
            take(&its);
        });
        let its = Arc::clone(&slots);
        let closes = thread::spawn(move || drop(its.close()));
        take(&slots);
        adds.join().unwrap();
        closes.join().unwrap();
        assert_eq!(slots.len(), 0, "the slots are closed");
        assert!(!add(value()), "the slots are closed");
        assert_eq!(drops.load(Ordering::Relaxed), 3);
    });
}
