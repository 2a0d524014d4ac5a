//! Shows that the rules can be violated: each scenario contains one bug, which the sweep has to
//! find.

use crate::Scenario;
use crate::job::Job;
use crate::trace::Trace;
use cuda_safe::sys::{self, CUstream};
use cuda_safe::{CUresult, Context, Device, Result};

const fn violation(name: &'static str, run: fn(&mut Trace) -> Result<()>) -> Scenario {
    Scenario { name, devices: 1, since: (12, 4), run }
}

pub(crate) static ALL: [Scenario; 9] = [
    violation("a leak", leak),
    violation("a double free", double_free),
    violation("a use after free", use_after_free),
    violation("an unbalanced stack", wrong_stack),
    violation("a panic", panic),
    violation("an abort", abort),
    violation("a hang", hang),
    violation("a swallowed error", swallow),
    violation("another error", other_error),
];

fn primary() -> Result<Context> {
    Context::primary(&Device::get(0)?)
}

fn raw_stream() -> CUstream {
    let mut raw = std::ptr::null_mut();
    // SAFETY: the pointer refers to a local variable.
    let _ = unsafe { sys::cuStreamCreateWithPriority(&raw mut raw, 1, 0) };
    raw
}

fn destroy(stream: CUstream) {
    // SAFETY: the software driver checks handles, so an invalid one only causes an error.
    let _ = unsafe { sys::cuStreamDestroy_v2(stream) };
}

/// Creates a stream, and then an event, which may fail. Calls `with` with the stream and the
/// result.
fn between(with: impl FnOnce(CUstream, &Result<()>)) -> Result<()> {
    let context = primary()?;
    let stream = context.with_current(|_| raw_stream())?;
    let done = context.event().and_then(|event| event.synchronize());
    with(stream, &done);
    done
}

fn leak(_: &mut Trace) -> Result<()> {
    between(|stream, done| {
        if done.is_ok() {
            destroy(stream);
        }
    })
}

fn double_free(_: &mut Trace) -> Result<()> {
    between(|stream, done| {
        destroy(stream);
        if done.is_err() {
            destroy(stream);
        }
    })
}

fn use_after_free(_: &mut Trace) -> Result<()> {
    between(|stream, done| {
        destroy(stream);
        if done.is_err() {
            // SAFETY: as above.
            let _ = unsafe { sys::cuStreamSynchronize(stream) };
        }
    })
}

fn wrong_stack(_: &mut Trace) -> Result<()> {
    let context = primary()?;
    let mut popped = std::ptr::null_mut();
    // SAFETY: the context is alive.
    let pushed = unsafe { sys::cuCtxPushCurrent_v2(context.as_raw()) };
    context.stream()?;
    if pushed.is_success() {
        // SAFETY: the pointer refers to a local variable.
        let _ = unsafe { sys::cuCtxPopCurrent_v2(&raw mut popped) };
    }
    Ok(())
}

fn panic(_: &mut Trace) -> Result<()> {
    let stream = primary()?.stream()?;
    stream.synchronize().expect("no call ever fails");
    Ok(())
}

fn abort(_: &mut Trace) -> Result<()> {
    let stream = primary()?.stream()?;
    if stream.synchronize().is_err() {
        std::process::abort();
    }
    Ok(())
}

fn hang(_: &mut Trace) -> Result<()> {
    let stream = primary()?.stream()?;
    if stream.synchronize().is_ok() {
        return Ok(());
    }
    loop {
        std::thread::park();
    }
}

fn swallow(_: &mut Trace) -> Result<()> {
    let stream = primary()?.stream()?;
    let _ = stream.synchronize();
    Ok(())
}

fn other_error(_: &mut Trace) -> Result<()> {
    let stream = primary()?.stream()?;
    let error = cuda_safe::error::DriverError::new(CUresult::CUDA_ERROR_UNKNOWN, "cuStreamQuery");
    stream.synchronize().map_err(|_| error.into())
}

/// Checks that the sweep finds the planted bug and describes it with these words.
#[track_caller]
fn is_found(name: &str, words: &str) {
    let job = Job {
        scenario: ALL.iter().find(|it| it.name == name).expect("a scenario"),
        profile: cuda_sim::Profile::h200(),
        code: CUresult::CUDA_ERROR_OUT_OF_MEMORY,
        from_then_on: false,
        start: 0,
    };
    let violations = job.run().violations;
    assert!(
        violations.iter().any(|violation| violation.contains(words)),
        "{name} was not found: {violations:?}"
    );
    assert!(violations.iter().all(|violation| violation.contains(": ")), "{violations:?}");
}

#[test]
fn a_leak_is_found() {
    is_found("a leak", "cuEventCreate, retained by others with");
    is_found("a leak", "left behind: 1 stream; counted: 0");
}

#[test]
fn a_double_free_is_found() {
    is_found("a double free", "a misuse: a stream is destroyed twice");
}

#[test]
fn a_use_after_free_is_found() {
    is_found("a use after free", "a misuse: a stream is used after");
}

#[test]
fn a_wrong_stack_is_found() {
    is_found("an unbalanced stack", "1 contexts too many on stacks, 0 of them counted");
}

#[test]
fn a_panic_is_found() {
    is_found("a panic", "a panic: no call ever fails");
}

#[test]
fn an_abort_is_found() {
    is_found("an abort", "cuStreamSynchronize");
    is_found("an abort", "the process ended");
}

#[test]
fn a_hang_is_found() {
    is_found("a hang", "a run has not ended after");
}

#[test]
fn a_swallowed_error_is_found() {
    is_found("a swallowed error", "there is no error");
}

#[test]
fn an_error_that_names_another_function_is_found() {
    is_found("another error", "the error is: cuStreamQuery");
}
