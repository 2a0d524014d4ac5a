//! Checkpoints of other processes, core dumps and profiler ranges on the software driver.

use crate::prelude::*;
use cuda_safe::process::checkpoint::{CheckpointedProcess, GpuPair, ProcessState, RunningProcess};
use cuda_safe::process::coredump::{CoredumpSettings, DumpFlags};
use cuda_sim::fault::poison;
use cuda_sim::{CudaProcess, add_process};

const OTHER: u32 = 1;

fn state() -> ProcessState {
    ProcessState::of(OTHER).expect("it was added")
}

fn other(properties: CudaProcess) -> RunningProcess {
    add_process(OTHER, properties);
    RunningProcess::of(OTHER).expect("it was added")
}

#[test]
fn a_process_is_checkpointed_and_restored() {
    let (_end, _context) = in_child!(on(Profile::h200()));
    let locked = other(CudaProcess::default()).lock(None).expect("idle");
    assert_eq!(state(), ProcessState::Locked);
    let checkpointed = locked.checkpoint().expect("locked");
    assert_eq!(state(), ProcessState::Checkpointed);
    drop(checkpointed);
    let checkpointed = CheckpointedProcess::of(OTHER).expect("it stays so");
    let locked = checkpointed.restore().expect("checkpointed");
    assert_eq!(state(), ProcessState::Locked);
    let running = locked.unlock().expect("locked");
    assert_eq!((running.pid(), state()), (OTHER, ProcessState::Running));
}

#[test]
fn a_driver_before_13_0_does_not_restore_on_other_gpus() {
    let (_end, context) = in_child!(on("h200@12.9".parse().expect("a profile")));
    let own = context.device().uuid().expect("a UUID");
    let pair = GpuPair { old: own, new: own };
    let locked = other(CudaProcess::default()).lock(None).expect("idle");
    let rejected = locked
        .checkpoint()
        .expect("locked")
        .try_restore_on(&[pair])
        .expect_err("it would use the same GPU");
    let text = rejected.error.to_string();
    assert!(text.contains("other GPUs") && text.contains("13.0"), "{text}");
    assert_eq!(state(), ProcessState::Checkpointed);
    drop(rejected.value.restore().expect("on the same GPU"));
    assert_eq!(state(), ProcessState::Running);
}

#[test]
fn a_failed_lock_returns_the_process() {
    let (_end, _context) = in_child!(on(Profile::h200()));
    let busy = other(CudaProcess { is_busy: true, ..Default::default() });
    let rejected = busy.try_lock(Some(Duration::from_millis(5))).expect_err("busy");
    let code = CUresult::CUDA_ERROR_NOT_READY;
    assert_eq!(rejected.error.code(), Some(code));
    assert_eq!(state(), ProcessState::Running);
    drop(rejected.value.lock(None).expect("without a time limit"));
}

#[test]
fn a_failed_checkpoint_returns_the_lock() {
    let (_end, _context) = in_child!(on(Profile::h200()));
    let managed = || other(CudaProcess { has_managed_memory: true, ..Default::default() });
    let locked = managed().lock(None).expect("idle");
    let rejected = locked.try_checkpoint().expect_err("managed memory");
    assert_eq!(state(), ProcessState::Locked);
    rejected.value.unlock().expect("locked");

    let error = managed().lock(None).expect("idle").checkpoint().expect_err("managed memory");
    let code = CUresult::CUDA_ERROR_NOT_SUPPORTED;
    assert_eq!(error.code(), Some(code));
    assert_eq!(state(), ProcessState::Running, "the lock was dropped");
}

#[test]
fn a_process_with_imports_is_never_restored() {
    let (_end, _context) = in_child!(on(Profile::h200()));
    let importer = other(CudaProcess { has_imports: true, ..Default::default() });
    let checkpointed = importer.lock(None).expect("idle").checkpoint().expect("locked");
    for _ in 0..2 {
        let rejected = CheckpointedProcess::of(OTHER).expect("checkpointed");
        let rejected = rejected.try_restore_on(&[]).expect_err("imports");
        assert_eq!(rejected.value.pid(), checkpointed.pid());
        assert_eq!(state(), ProcessState::Checkpointed);
    }
}

#[test]
fn a_lock_that_cannot_be_dropped_is_reported() {
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let (_end, _context) = in_child!(on(Profile::h200()));
    set_report_hook(|report| SEEN.lock().expect("no panic").push(report.to_string()));
    let locked = other(CudaProcess::default()).lock(None).expect("idle");
    let fault = Fault::of_function("cuCheckpointProcessUnlock")
        .with(CUresult::CUDA_ERROR_INVALID_VALUE)
        .inject(Scope::Thread);
    drop(locked);
    drop(fault);
    let seen = SEEN.lock().expect("no panic").clone();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(seen[0].contains("the lock of a process"), "{seen:?}");
    assert_eq!(state(), ProcessState::Locked);
}

#[test]
fn dumps_that_are_enabled_before_the_initialization_are_a_misuse() {
    in_child!();
    start(Profile::h200());
    let (mut value, mut size) = (1_u8, 1);
    let attribute = CUcoredumpSettings::CU_COREDUMP_ENABLE_ON_EXCEPTION;
    // SAFETY: the pointers refer to local variables.
    let code =
        unsafe { cuCoredumpSetAttributeGlobal(attribute, (&raw mut value).cast(), &raw mut size) };
    assert_eq!(code, CUresult::CUDA_ERROR_NOT_INITIALIZED);
    let misuses = cuda_sim::misuses();
    assert!(misuses[0].contains("before cuInit"), "{misuses:?}");
}

#[test]
fn each_switch_of_core_dumps_is_read_as_it_was_set() {
    let (_end, _context) = in_child!(on(Profile::h200()));
    let switches = [
        CUcoredumpSettings::CU_COREDUMP_ENABLE_ON_EXCEPTION,
        CUcoredumpSettings::CU_COREDUMP_TRIGGER_HOST,
        CUcoredumpSettings::CU_COREDUMP_LIGHTWEIGHT,
        CUcoredumpSettings::CU_COREDUMP_ENABLE_USER_TRIGGER,
    ];
    for switch in switches {
        for wanted in [1_u8, 0] {
            let (mut value, mut found, mut size) = (wanted, 2_u8, 1);
            let (value, place) = ((&raw mut value).cast(), (&raw mut found).cast());
            succeeds!(cuCoredumpSetAttributeGlobal(switch, value, &raw mut size));
            succeeds!(cuCoredumpGetAttributeGlobal(switch, place, &raw mut size));
            assert_eq!((found, size), (wanted, 1), "{switch:?}");
        }
    }
}

fn dump_settings(name: &str) -> CoredumpSettings {
    let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
    CoredumpSettings {
        on_exception: Some(true),
        file: Some(path),
        flags: Some(DumpFlags::SKIP_ABORT),
        ..Default::default()
    }
}

#[test]
fn dump_callbacks_run_before_and_after_the_file_is_written() {
    in_child!();
    start("h200@13.5".parse().expect("a profile"));
    let settings = dump_settings("callbacks");
    let path = settings.file.clone().expect("set above");
    settings.apply().expect("set").keep();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = |name: &'static str| {
        let (seen, path) = (Arc::clone(&seen), path.clone());
        move |event: cuda_safe::process::coredump::DumpEvent| {
            assert_eq!((event.pid, event.device), (std::process::id(), 0));
            DumpCallback::on_start(|_| {}).expect_err("not permitted in a callback");
            seen.lock().expect("no panic").push((name, path.exists()));
        }
    };
    let kept = DumpCallback::on_start(note("start")).expect("registered");
    let dropped = DumpCallback::on_start(note("dropped")).expect("registered");
    let complete = DumpCallback::on_complete(note("complete")).expect("registered");
    let panics = DumpCallback::on_complete(|_| panic!("ignored")).expect("registered");
    drop(dropped);
    let context = context();
    poison();
    context.synchronize().expect("the first wait succeeds");
    let error = context.synchronize().expect_err("the fault");
    assert!(error.is_fatal(), "{error}");
    let _ = std::fs::remove_file(path);
    let seen = seen.lock().expect("no panic").clone();
    assert_eq!(seen, [("start", false), ("complete", true)]);
    drop((kept, complete, panics));
    assert_eq!(cuda_sim::misuses(), Vec::<String>::new());
}

#[cfg(unix)]
#[test]
fn the_process_aborts_after_a_dump_without_the_flag() {
    let runs_in_child = std::env::var("CUDA_TESTS_ABORTS").is_ok();
    if !runs_in_child {
        // The child of this process aborts, and this one sees how it ended.
        let status = std::process::Command::new(std::env::current_exe().expect("a path"))
            .args(["process::the_process_aborts_after_a_dump_without_the_flag", "--exact"])
            .env("CUDA_TESTS_ABORTS", "1")
            .output()
            .expect("a process")
            .status;
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(6), "{status}");
        return;
    }
    start(Profile::h200());
    let settings = CoredumpSettings { flags: Some(DumpFlags::LOG_ONLY), ..dump_settings("aborts") };
    settings.apply().expect("set").keep();
    let context = context();
    poison();
    context.synchronize().expect("the first wait succeeds");
    let _ = context.synchronize();
}

#[test]
fn a_dump_callback_that_is_deregistered_twice_is_a_misuse() {
    in_child!();
    start("h200@13.5".parse().expect("a profile"));
    // SAFETY: the software driver detects the misuse.
    let code = unsafe { cuCoredumpDeregisterStartCallback(std::ptr::without_provenance_mut(64)) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cuda_sim::misuses().len(), 1);
}

#[test]
fn settings_that_cannot_be_restored_are_reported() {
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let (_end, _context) = in_child!(on(Profile::h200()));
    set_report_hook(|report| SEEN.lock().expect("no panic").push(report.to_string()));
    let guard = dump_settings("reported").apply().expect("set");
    let fault = Fault::of_function("cuCoredumpSetAttributeGlobal")
        .with(CUresult::CUDA_ERROR_UNKNOWN)
        .inject(Scope::Thread);
    drop(guard);
    drop(fault);
    let seen = SEEN.lock().expect("no panic").clone();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(seen[0].starts_with("settings of core dumps"), "{seen:?}");
    // The other settings were restored.
    assert_eq!(CoredumpSettings::of_process().expect("known").flags, Some(DumpFlags::empty()));
}

#[test]
fn a_failed_change_restores_the_settings_before_it() {
    let (_end, _context) = in_child!(on(Profile::h200()));
    let before = CoredumpSettings::of_process().expect("known");
    for nth in 1..=3 {
        let fault = Fault::of_function("cuCoredumpSetAttributeGlobal")
            .nth(nth)
            .with(CUresult::CUDA_ERROR_NOT_PERMITTED)
            .inject(Scope::Thread);
        dump_settings("failed").apply().expect_err("the fault");
        drop(fault);
        assert_eq!(CoredumpSettings::of_process().expect("known"), before);
    }
}

#[test]
fn a_profiler_range_ends_in_its_context() {
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let (_end, context) = in_child!(on(Profile::h200()));
    set_report_hook(|report| SEEN.lock().expect("no panic").push(report.to_string()));
    let calls = |name: &str| cuda_sim::calls().iter().filter(|its| its.function == name).count();
    context.profiler_range().expect("started").end().expect("stopped");
    assert_eq!((calls("cuProfilerStart"), calls("cuProfilerStop")), (1, 1));
    let range = context.profiler_range().expect("started");
    let other = std::thread::spawn(move || drop(range));
    other.join().expect("no panic");
    assert_eq!(calls("cuProfilerStop"), 2);

    let range = context.profiler_range().expect("started");
    let fault = Fault::of_function("cuProfilerStop")
        .with(CUresult::CUDA_ERROR_UNKNOWN)
        .inject(Scope::Thread);
    drop(range);
    drop(fault);
    let seen = SEEN.lock().expect("no panic").clone();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(seen[0].starts_with("profiling could not be ended"), "{seen:?}");
}
