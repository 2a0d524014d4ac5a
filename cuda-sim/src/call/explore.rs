//! Exploration of thread schedules. An [`Explorer`] runs a scenario of a few threads many times, each
//! time with another interleaving, and checks every run.
//!
//! A scenario is a closure that [spawns](spawn) threads. They are real threads, but only one runs
//! at a time. A thread can be preempted only at a *scheduling point*: before and after every driver
//! call, and wherever [`point`], [`yield_now`] or [`wait_until`] is called. The locks of `cuda-safe` can
//! be scheduling points too. Build that crate with its feature `explore` and install [`point_at`],
//! [`wait_at`] and [`yield_at`] as its hooks.
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
//! Half of the schedules follow the PCT algorithm (probabilistic concurrency testing): each thread gets
//! a random priority, the ready thread with the highest priority runs, and at a few random scheduling
//! points the running thread drops to the lowest priority. Each of the other schedules switches to a
//! random thread at every second, fourth or eighth scheduling point on average. The first two schedules
//! of an exploration have no preemption; they also count the scheduling points. Each schedule depends
//! only on its seed. To reproduce a [`Violation`], explore one schedule with its seed.
//!
//! # Host functions and device work
//! Under the explorer a host function runs on a separate thread, as with a real driver, and not on the
//! thread that waits for it. Device work runs when a thread waits for it, at random scheduling points,
//! and when no thread can continue without it.
//!
//! # Kernels
//! A kernel with atomic operations, or that waits for memory to change, runs under another interleaving in each
//! schedule. Its warps give way at random accesses to global and shared memory and at fences. Its stores may be delayed:
//! other threads see them after later ones of the same thread. A fence, a release or a barrier ends the delay for the
//! threads of its scope. A kernel that lacks a fence therefore fails in some schedules. Loads run in the order of the
//! program, so a missing acquire has no effect.
//!
//! A kernel that does not end within 4,194,304 operations of its warps fails with `CUDA_ERROR_LAUNCH_TIMEOUT`.
//!
//! # Checks
//! The explorer reports a violation if
//! - a thread panics, which is how a scenario checks results;
//! - no thread can continue (a deadlock), or the schedule does not end;
//! - the driver detects a [misuse](crate::misuses);
//! - at the end of the schedule an object is alive ([`alive`](crate::alive)) or a thread has a context
//!   on its stack. Before this check the function of [`Explorer::settle`] completes deferred releases. The threads of
//!   the explorer do not end, so each can still release what no other thread can;
//! - the tested library reports a loss, which is a leaked object. The function of
//!   [`Explorer::reported`] counts these reports. [`Explorer::allow_reported`] permits reported losses.
//!
//! # Why real threads
//! Model checkers such as `loom` and `shuttle` replace threads by coroutines. Thread-local state, and
//! host functions that C code calls, do not behave in coroutines as in a real program.

mod baton;
mod judge;
mod pool;

pub use baton::{is_explored, point, point_at, wait_at, wait_until, yield_at, yield_now};
pub use judge::{Explorer, Report, Violation};
pub use pool::{JoinHandle, spawn};

pub(crate) use baton::{enter_call, leave_call};
pub(crate) use pool::spawn_callback;
