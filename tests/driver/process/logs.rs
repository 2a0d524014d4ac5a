//! The driver's log of failed calls, in errors and for closures.

use crate::common::{self, child};
use cuda_safe::process::logs::{LogCallback, LogLevel, LogPosition, entries};
use cuda_safe::{Context, Device, Error, check, sys};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Makes a call fail. Every driver with a log writes a reason for this failure.
fn fail(context: &Context) -> Error {
    let _current = context.make_current().expect("current");
    let mut address = 0;
    // SAFETY: the pointer is to a local variable.
    let code = unsafe { sys::cuMemAlloc_v2(&raw mut address, 0) };
    check(code, "cuMemAlloc_v2").expect_err("nothing to allocate")
}

#[test]
fn a_position_starts_at_the_end_of_the_log() {
    common::child::with_context_since(12, 9, |context| {
        context.synchronize().expect("a wait");
        let mut position = LogPosition::end().expect("a position");
        context.synchronize().expect("a wait");
        assert_eq!(position.read().expect("the log"), "");
    });
}

mod provoked {
    use super::*;

    /// The number of failures of a thread.
    const COUNT: usize = if cfg!(miri) { 5 } else { 200 };

    type Seen = Arc<Mutex<Vec<String>>>;

    /// Registers a closure that collects the entries.
    fn collect() -> (LogCallback, Seen) {
        let seen = Seen::default();
        let mine = Arc::clone(&seen);
        let callback = LogCallback::new(move |level, text| {
            assert_eq!(level, LogLevel::Error);
            mine.lock().expect("no panic").push(text.to_owned());
        });
        (callback.expect("registered"), seen)
    }

    fn returns(seen: &Seen) -> usize {
        let seen = seen.lock().expect("no panic");
        let is_end = |text: &&String| text.starts_with("Returning 1 (CUDA_ERROR_INVALID_VALUE)");
        seen.iter().filter(is_end).count()
    }

    #[test]
    fn an_error_has_the_reason_that_the_driver_logged() {
        let context = or_skip!(common::context());
        let error = fail(&context);
        let its = error.driver_error().expect("an error of the driver");
        if common::offers(12, 9) {
            assert!(its.log().contains("0 byte"), "{:?}", its.log());
            assert!(error.to_string().contains(its.log()), "{error}");
            assert!(!its.log().contains("Returning"), "{:?}", its.log());
        } else {
            assert_eq!(its.log(), "");
        }
    }

    #[test]
    fn an_error_without_a_reason_has_no_log() {
        let context = or_skip!(common::context());
        let _ = fail(&context);
        let _current = context.make_current().expect("current");
        // SAFETY: the driver refuses an address that it has not allocated.
        let code = unsafe { sys::cuMemFree_v2(0x30) };
        let error = check(code, "cuMemFree_v2").expect_err("not allocated");
        let its = error.driver_error().expect("an error of the driver");
        // In particular, it is not that of the failed allocation.
        assert!(!its.log().contains("0 byte"), "{:?}", its.log());
    }

    #[test]
    fn errors_of_several_threads_have_their_own_logs() {
        child::with_context_since(12, 9, |context| {
            std::thread::scope(|scope| {
                let log_of = |error: super::Error| {
                    let its = error.driver_error().expect("an error of the driver");
                    its.log().to_owned()
                };
                for _ in 0..3 {
                    scope.spawn(move || {
                        for _ in 0..COUNT {
                            let error = Device::by_pci_bus_id("no bus").expect_err("no device");
                            let log = log_of(error);
                            assert!(!log.contains("0 byte"), "{log}");
                        }
                    });
                }
                // Other threads may overwrite the entries before they are read, so a log may be empty.
                let logs: Vec<String> = (0..COUNT).map(|_| log_of(fail(&context))).collect();
                let known: Vec<&String> = logs.iter().filter(|log| !log.is_empty()).collect();
                assert!(!known.is_empty());
                let is_own = |log: &&String| log.contains("0 byte") && log.lines().count() == 1;
                assert!(known.iter().all(is_own), "{known:?}");
            });
        });
    }

    #[test]
    fn a_closure_receives_entries_until_it_is_dropped() {
        child::with_context_since(12, 9, |context| {
            let (callback, seen) = collect();
            let (second, also_seen) = collect();
            context.synchronize().expect("a wait");
            assert_eq!(returns(&seen), 0);
            fail(&context);
            assert_eq!((returns(&seen), returns(&also_seen)), (1, 1));
            drop(callback);
            fail(&context);
            assert_eq!((returns(&seen), returns(&also_seen)), (1, 2));
            drop(second);
            fail(&context);
            assert_eq!(returns(&also_seen), 2);
            assert_eq!(cuda_safe::leaked(), 0);
        });
    }

    #[test]
    fn failures_in_a_closure_do_not_call_it_again() {
        child::with_context_since(12, 9, |context| {
            let calls = Arc::new(AtomicUsize::new(0));
            let (counter, inner) = (Arc::clone(&calls), context.clone());
            let _callback = LogCallback::new(move |_, _| {
                counter.fetch_add(1, Ordering::Relaxed);
                fail(&inner);
            })
            .expect("registered");
            let before = entries().expect("the log").lines().count();
            fail(&context);
            let own = calls.load(Ordering::Relaxed);
            assert!((1..=2).contains(&own), "{own} entries");
            let after = entries().expect("the log").lines().count();
            assert!(after - before > own, "the failures inside are logged");
        });
    }

    #[test]
    fn a_closure_can_work_unregister_itself_and_panic() {
        child::with_context_since(12, 9, |context| {
            let slot = Arc::new(Mutex::new(None::<LogCallback>));
            let (mine, inner) = (Arc::clone(&slot), context.clone());
            let runs = Arc::new(AtomicUsize::new(0));
            let counter = Arc::clone(&runs);
            let callback = LogCallback::new(move |_, _| {
                counter.fetch_add(1, Ordering::Relaxed);
                inner.synchronize().expect("calls and waits work here");
                drop(mine.lock().expect("no panic").take());
                panic!("ignored");
            });
            *slot.lock().expect("no panic") = Some(callback.expect("registered"));
            std::panic::set_hook(Box::new(|_| {}));
            fail(&context);
            fail(&context);
            let _ = std::panic::take_hook();
            assert_eq!(runs.load(Ordering::Relaxed), 1);
            assert_eq!(cuda_safe::leaked(), 0);
        });
    }

    #[test]
    fn a_position_reads_each_entry_once() {
        child::with_context_since(12, 9, |context| {
            let mut position = LogPosition::end().expect("a position");
            let mut file = position.clone();
            fail(&context);
            let text = position.read().expect("the log");
            assert!(text.contains("from cuMemAlloc_v2"), "{text}");
            assert_eq!(position.read().expect("the log"), "");
            assert!(entries().expect("the log").contains(text.trim_end()));

            let path = common::scratch().join(format!("log-{}", std::process::id()));
            file.write_to_file(&path).expect("written");
            let written = std::fs::read_to_string(&path).expect("a file");
            let _ = std::fs::remove_file(path);
            assert!(written.contains("from cuMemAlloc_v2"), "{written}");
            assert_eq!(file.read().expect("the log"), "");
        });
    }

    #[test]
    fn a_closure_is_freed_although_another_thread_fails_meanwhile() {
        child::in_child(&[], || {
            let context: Context = or_skip!(common::context());
            or_skip!(common::since(12, 9));
            let owner = Arc::new(());
            let weak = Arc::downgrade(&owner);
            let callback = LogCallback::new(move |_, _| drop(Arc::clone(&owner)));
            let callback = callback.expect("registered");
            std::thread::scope(|scope| {
                let failing = scope.spawn(|| (0..COUNT).for_each(|_| drop(fail(&context))));
                drop(callback);
                failing.join().expect("no panic");
            });
            assert_eq!(weak.strong_count(), 0);
        });
    }

    #[test]
    #[cfg(unix)]
    fn a_forked_child_registers_nothing_and_does_not_wait_for_threads_of_its_parent() {
        use std::sync::atomic::AtomicBool;
        unsafe extern "C" {
            // A POSIX function: ends the process by a signal after this number of seconds.
            safe fn alarm(seconds: core::ffi::c_uint) -> core::ffi::c_uint;
        }
        child::with_context_since(12, 9, |_| {
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        while !stop.load(Ordering::Relaxed) {
                            drop(LogCallback::new(|_, _| ()));
                        }
                    });
                }
                // The threads have the table locked in some of the forks.
                let are_refused = (0..300).all(|_| {
                    common::fork::in_fork(|| {
                        alarm(5);
                        matches!(LogCallback::new(|_, _| ()), Err(super::Error::Forked))
                    })
                });
                stop.store(true, Ordering::Relaxed);
                assert!(are_refused);
            });
        });
    }
}
