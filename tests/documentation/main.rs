//! Runs the examples of the documentation on the software driver. (A test of `cuda-safe` itself
//! checks that they compile.)

#![cfg_attr(miri, feature(custom_test_frameworks, test), test_runner(miri::run))]

#[allow(dead_code, reason = "the examples need only NVRTC")]
#[path = "../nvrtc/libraries.rs"]
mod libraries;

#[cfg(miri)]
#[path = "../common/miri.rs"]
mod miri;

use cuda_safe::Result;
use std::fmt::Display;
use std::future::Future;
use std::panic::{catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, Once, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

#[allow(
    warnings,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "examples are short"
)]
mod examples {
    include!(concat!(env!("OUT_DIR"), "/examples.rs"));
}

/// Opens a library, or reports a skip.
type Open = fn() -> Option<()>;

/// Runs an example, which must return no error, leak nothing and misuse nothing. It needs these libraries.
fn check(libraries: &[Open], example: fn() -> Result<(), String>) {
    // What is alive, and the choice of a memory manager, are of the whole process.
    static ALONE: Mutex<()> = Mutex::new(());
    static INSTALLED: Once = Once::new();
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    INSTALLED.call_once(|| {
        // Two devices, with a driver that supports every feature.
        let profile: cuda_sim::Profile = "h200@13.5".parse().expect("a profile");
        cuda_sim::install(profile.with_devices(2)).expect("nothing was called before");
    });
    if libraries.iter().any(|open| open().is_none()) {
        #[cfg(miri)]
        miri::skipped();
        return;
    }
    let misuses = cuda_sim::misuses().len();
    let (over, ended) = channel::<()>();
    let done = std::thread::scope(move |scope| {
        // A GPU makes progress by itself. The software driver makes progress only when it is
        // called. Under Miri, a call takes milliseconds.
        let period = Duration::from_millis(if cfg!(miri) { 100 } else { 1 });
        scope.spawn(move || {
            while ended.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                cuda_sim::alive();
            }
        });
        let done = catch_unwind(example);
        drop(over);
        done
    });
    cuda_safe::manager::clear_memory_manager();
    let (misuses, alive) = (cuda_sim::misuses().split_off(misuses), cuda_sim::alive());
    let done = done.unwrap_or_else(|panic| resume_unwind(panic));
    assert_eq!(done, Ok(()));
    assert!(misuses.is_empty(), "{misuses:?}");
    assert_eq!(alive, cuda_sim::Alive::default());
}

/// Returns the part of a program that a page shows: what is between the comment about the file and `main`.
fn shown(program: &str) -> &str {
    let (_, code) = program.split_once("\n\n").expect("a comment about the file");
    code.split("\nfn main").next().unwrap_or(code).trim_end()
}

/// A package contains no other file of the repository, so the pages have copies of these files. Tests and CI run the
/// first ones, and `cargo xtask adopters` compiles those of examples/adopters.
#[test]
fn the_pages_of_bridges_show_the_files_that_are_tested() {
    let libraries = include_str!("../../cuda-safe/src/_guide/bridges/cuda_libraries.md");
    let cudarc = include_str!("../../cuda-safe/src/_guide/bridges/cudarc.md");
    let pytorch = include_str!("../../cuda-safe/src/_guide/bridges/pytorch.md");
    let candle = include_str!("../../cuda-safe/src/_guide/bridges/candle.md");
    let ort = include_str!("../../cuda-safe/src/_guide/bridges/ort.md");
    let pairs = [
        (libraries, include_str!("../../examples/libraries/cublas.rs"), "cublas.rs"),
        (libraries, include_str!("../../examples/libraries/cufft.rs"), "cufft.rs"),
        (cudarc, include_str!("../../bench/examples/bridge_cudarc.rs"), "bridge_cudarc.rs"),
        (pytorch, include_str!("../../examples/torch_extension/lib.rs"), "torch_extension/lib.rs"),
        (pytorch, include_str!("../../examples/torch_extension/scale.cpp"), "scale.cpp"),
        (pytorch, include_str!("../../examples/adopters/tch/src/main.rs"), "tch/src/main.rs"),
        (candle, include_str!("../../examples/adopters/candle/src/main.rs"), "candle/src/main.rs"),
        (ort, include_str!("../../examples/adopters/ort/src/session.rs"), "ort/src/session.rs"),
    ];
    for (page, program, name) in pairs {
        let shown = shown(program);
        assert!(page.contains(&format!("\n{shown}\n")), "copy {name} into its page");
    }
}

fn outcome<E: Display>(result: Result<(), E>) -> Result<(), String> {
    result.map_err(|error| error.to_string())
}

fn block_on(future: impl Future<Output = Result<()>>) -> Result<()> {
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}
