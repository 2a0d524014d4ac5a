//! The explorer of thread schedules: the violations that it finds, and that a seed reproduces them.

use crate::prelude::*;
use cuda_sim::explore::{self, Explorer, Report, Violation};
use std::cell::RefCell;

fn context() -> Context {
    let device = Device::get(0).expect("a device");
    Context::primary(&device).expect("a primary context")
}

/// The number of schedules. Miri executes a few.
const SCHEDULES: u64 = if cfg!(miri) { 4 } else { 500 };

fn explorer() -> Explorer {
    Explorer::new().schedules(SCHEDULES).reported(cuda_safe::leaked)
}

#[track_caller]
fn violation(report: Report) -> Violation {
    report.violation.expect("a violation")
}

/// Explores a scenario in a child process.
#[track_caller]
fn explores(explorer: Explorer, scenario: fn(), judge: impl FnOnce(Report)) {
    in_child!();
    start(Profile::h200());
    judge(explorer.explore(scenario));
}

fn two_increments() {
    let counter = Arc::new(AtomicU32::new(0));
    let threads = ["first", "second"].map(|name| {
        let counter = Arc::clone(&counter);
        explore::spawn(name, move || {
            let before = counter.load(Ordering::Relaxed);
            explore::point();
            counter.store(before + 1, Ordering::Relaxed);
        })
    });
    let [(), ()] = threads.map(explore::JoinHandle::join);
    assert_eq!(counter.load(Ordering::Relaxed), 2);
}

#[test]
fn a_lost_update_is_found_and_reproduced_by_its_seed() {
    in_child!();
    start(Profile::h200());
    let first = violation(explorer().seed(40).explore(two_increments));
    assert!(first.reason.starts_with("the scenario panicked"), "{first}");
    // A schedule that panics leaves no thread behind that would disturb this one.
    let again = explorer().seed(first.seed).schedules(1);
    let again = violation(again.explore(two_increments));
    assert_eq!(again.seed, first.seed);
    assert_eq!(again.reason, first.reason);
}

#[test]
fn a_deadlock_report_names_where_each_thread_waits() {
    fn deadlock() {
        let waits = || explore::wait_until(|| false);
        let threads = ["left", "right"].map(|name| explore::spawn(name, waits));
        let [(), ()] = threads.map(explore::JoinHandle::join);
    }
    explores(explorer(), deadlock, |report| {
        let reason = violation(report).reason;
        assert!(reason.starts_with("deadlock: the scenario waits"), "{reason}");
        for name in ["left waits at tests/sim/software/explore.rs", "right waits at"] {
            assert!(reason.contains(name), "{reason}");
        }
    });
}

#[test]
fn a_host_function_can_wait_for_a_thread_that_synchronizes_another_stream() {
    fn scenario() {
        let context = context();
        let (busy, other) =
            (context.stream().expect("a stream"), context.stream().expect("a stream"));
        let flag = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&flag);
        let waits = move || explore::wait_until(|| its.load(Ordering::Acquire));
        busy.launch_host_function(waits).expect("a host function");
        let setter = explore::spawn("the setter", move || {
            other.synchronize().expect("no work to wait for");
            flag.store(true, Ordering::Release);
        });
        busy.synchronize().expect("a wait");
        setter.join();
    }
    explores(explorer(), scenario, |report| {
        assert_eq!(report.schedules, SCHEDULES + 2);
        assert!(report.violation.is_none(), "{:?}", report.violation);
    });
}

#[test]
fn a_host_function_can_wait_for_one_of_another_stream() {
    fn scenario() {
        let context = context();
        let [first, second] = [(); 2].map(|()| context.stream().expect("a stream"));
        let flag = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&flag);
        let waits = move || explore::wait_until(|| its.load(Ordering::Acquire));
        first.launch_host_function(waits).expect("a host function");
        let sets = move || flag.store(true, Ordering::Release);
        second.launch_host_function(sets).expect("a host function");
        first.synchronize().expect("a wait");
        second.synchronize().expect("a wait");
    }
    explores(explorer(), scenario, |report| {
        assert!(report.violation.is_none(), "{:?}", report.violation);
    });
}

#[test]
fn device_work_runs_where_every_thread_waits_for_it() {
    fn scenario() {
        let stream = context().stream().expect("a stream");
        let flag = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&flag);
        let sets = move || its.store(true, Ordering::Release);
        stream.launch_host_function(sets).expect("a host function");
        explore::wait_until(|| flag.load(Ordering::Acquire));
    }
    explores(explorer(), scenario, |report| {
        assert!(report.violation.is_none(), "{:?}", report.violation);
    });
}

#[test]
fn a_forgotten_object_is_an_unreported_loss() {
    fn scenario() {
        let stream = context().stream().expect("a stream");
        std::mem::forget(DeviceBuffer::<u8>::zeroed(&stream, 8).expect("memory"));
    }
    explores(explorer(), scenario, |report| {
        let reason = violation(report).reason;
        let expected = "unreported loss: still alive: 1 retains, 1 streams, 1 device allocations";
        assert!(reason.starts_with(expected), "{reason}");
    });
}

#[test]
fn a_release_that_only_its_thread_can_make_is_completed_there() {
    thread_local! {
        static KEPT: RefCell<Vec<Context>> = const { RefCell::new(Vec::new()) };
    }
    fn settle() {
        KEPT.take();
    }
    fn scenario() {
        explore::spawn("keeps", || KEPT.with_borrow_mut(|kept| kept.push(context()))).join();
    }
    explores(explorer().settle(settle), scenario, |report| {
        assert!(report.violation.is_none(), "{:?}", report.violation);
        let reason = violation(explorer().explore(scenario)).reason;
        assert_eq!(reason, "unreported loss: still alive: 1 retains");
    });
}

#[test]
fn a_failure_of_a_thread_at_its_end_is_a_violation() {
    fn settle() {
        assert!(!explore::is_explored(), "on purpose");
    }
    explores(
        explorer().settle(settle),
        || std::mem::forget(context()),
        |report| {
            let reason = violation(report).reason;
            assert!(reason.starts_with("a thread at its end panicked: on purpose"), "{reason}");
        },
    );
}

#[test]
fn an_exploration_forgets_what_was_recorded_before_it() {
    in_child!(start(Profile::h200()));
    let context = context();
    let current = context.make_current().expect("current");
    // SAFETY: the driver does not know the address, and refuses the call.
    let code = unsafe { cuMemHostUnregister(null_mut()) };
    assert_eq!(code, CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    drop((current, context));
    assert_eq!(cuda_sim::misuses().len(), 1);
    let report = explorer().schedules(1).explore(|| drop(self::context()));
    assert!(report.violation.is_none(), "{:?}", report.violation);
    assert_eq!(cuda_sim::misuses(), [""; 0]);
    assert!(cuda_sim::calls().is_empty());
}

#[test]
fn each_schedule_begins_with_a_fresh_driver() {
    fn scenario() {
        let module = Module::from_ptx(&context(), include_str!("../../kernels/vector.ptx"));
        let event = module.expect("a module").context().event();
        static FIRST: AtomicU32 = AtomicU32::new(0);
        let handle = event.expect("an event").as_raw().addr() as u32;
        let first = FIRST.swap(handle, Ordering::Relaxed);
        assert!(first == 0 || first == handle, "{first:x} {handle:x}");
    }
    explores(explorer().schedules(if cfg!(miri) { 3 } else { 20 }), scenario, |report| {
        assert!(report.violation.is_none(), "{:?}", report.violation);
    });
}
