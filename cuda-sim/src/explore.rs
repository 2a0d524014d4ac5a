//! Exploration of thread schedules: runs a scenario of a few threads many times, each time with
//! another interleaving, and checks every run.
//!
//! A scenario is a closure that [spawns](spawn) threads. They are real threads, of which exactly
//! one runs at a time. A thread can lose its turn only at a *scheduling point*: before and after
//! every call of the driver, and wherever [`point`], [`yield_now`] or [`wait_until`] is called. The
//! locks of `cuda-safe` are scheduling points too if that crate is built with its feature `explore`
//! and [`point_at`], [`wait_at`] and [`yield_at`] are its hooks.
//!
//! ```
//! use cuda_sim::{Profile, explore};
//! use std::sync::atomic::{AtomicU32, Ordering};
//! use std::sync::Arc;
//!
//! cuda_sim::install(Profile::h200())?;
//! let report = explore::Explorer::new().schedules(1000).explore(|| {
//!     let counter = Arc::new(AtomicU32::new(0));
//!     let threads = [0, 1].map(|_| {
//!         let counter = Arc::clone(&counter);
//!         explore::spawn("adder", move || {
//!             let before = counter.load(Ordering::Relaxed);
//!             explore::point();
//!             counter.store(before + 1, Ordering::Relaxed);
//!         })
//!     });
//!     let [(), ()] = threads.map(explore::JoinHandle::join);
//!     assert_eq!(counter.load(Ordering::Relaxed), 2, "an increment was lost");
//! });
//! let violation = report.violation.expect("some schedule loses an increment");
//! assert!(violation.reason.contains("an increment was lost"));
//! # Ok::<_, cuda_sys::InstallError>(())
//! ```
//!
//! # Schedules
//! Half of the schedules follow the PCT algorithm (probabilistic concurrency testing): each thread
//! gets a random priority, the ready thread with the highest priority runs, and at a few random
//! scheduling points the running thread drops to the lowest priority. The others choose a thread at
//! random at one scheduling point of two, four or eight. The first two schedules of an exploration have
//! no preemption; they also measure how many scheduling points there are. Each schedule depends on
//! its seed alone, so a [`Violation`] is reproduced by an exploration of one schedule with that seed.
//!
//! # Host functions and device work
//! Under the explorer a host function runs on a thread of its own, as with a real driver, and not on
//! the thread that waits for it. Device work runs when a thread waits for it, at random scheduling
//! points, and when no thread can continue otherwise.
//!
//! # Checks
//! A schedule violates the rules if
//! - a thread panics, which is how a scenario checks contents;
//! - no thread can continue (a deadlock), or the schedule does not end;
//! - there is a [misuse](crate::mistakes);
//! - an object is alive at the end ([`alive`](crate::alive)) or a thread has a context on its stack.
//!   [`Explorer::settle`] names the function that completes deferred releases first, and
//!   [`Explorer::reported`] the one that counts losses which the tested library has reported.
//!
//! # Why real threads
//! Model checkers such as `loom` and `shuttle` replace the threads by coroutines, under which
//! thread-local state and host functions that C code calls do not behave as in a real program.

mod baton;
mod judge;
mod pool;

pub use baton::{is_explored, point, point_at, wait_at, wait_until, yield_at, yield_now};
pub use judge::{Explorer, Report, Violation};
pub use pool::{JoinHandle, spawn};

pub(crate) use baton::{enter_call, leave_call};
pub(crate) use pool::spawn_callback;
