//! Runs the examples of the documentation on the software driver. (A test of `cuda-safe` itself
//! checks that they compile.)

#[allow(dead_code, reason = "the examples need only NVRTC")]
#[path = "../nvrtc/libraries.rs"]
mod libraries;

use cuda_safe::Result;
use std::fmt::Display;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The place of an example, and a function that runs it and returns the text of its error.
type Example = (&'static str, fn() -> Result<(), String>);

/// The code for examples that do not show the code they load.
const KERNELS: &str = include_str!("kernels.ptx");

#[allow(
    warnings,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "examples are short"
)]
const ALL: &[Example] = include!(concat!(env!("OUT_DIR"), "/examples.rs"));

/// The examples that cannot run in one process, and why.
const NOT_RUN: [(&str, &str); 3] = [
    ("cuda-safe/src/event/ipc.rs", "it needs two processes"),
    ("cuda-safe/src/manager/ipc.rs", "it needs two processes"),
    ("cuda-safe/src/memory/pool/share.rs", "it needs two processes"),
];

#[test]
fn every_example_runs_and_leaks_nothing() {
    // Two devices, with a driver that supports every feature.
    let profile: cuda_sim::Profile = "h200@13.5".parse().expect("a profile");
    cuda_sim::install(profile.with_devices(2)).expect("nothing was called before");
    // A skip names its thread.
    let thread = std::thread::Builder::new().name("the examples that need NVRTC".to_owned());
    let opened = thread.spawn(libraries::nvrtc).expect("a thread").join();
    opened.expect("no panic");
    // Here the programs of the guide find their kernels.
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/documentation");
    std::env::set_current_dir(folder).expect("the folder of this test");
    assert!(ALL.len() > 40, "{} examples", ALL.len());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A GPU makes progress by itself. The software driver makes progress only when it is
        // called. Under Miri, a call takes milliseconds.
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                cuda_sim::alive();
                std::thread::sleep(Duration::from_millis(if cfg!(miri) { 100 } else { 1 }));
            }
        });
        let wrong = ALL.iter().filter_map(run);
        let wrong: Vec<String> = wrong.collect();
        over.store(true, Ordering::SeqCst);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
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

/// Returns what is wrong with an example, if anything.
fn run((name, example): &Example) -> Option<String> {
    let is_of = |(file, _): &(&str, &str)| name.starts_with(file);
    if NOT_RUN.iter().any(is_of) {
        return None;
    }
    let done = std::panic::catch_unwind(example);
    // The choice of a memory manager applies to the whole process.
    cuda_safe::manager::clear_memory_manager();
    let (misuses, alive) = (cuda_sim::misuses(), cuda_sim::alive());
    match done {
        Err(_) => Some(format!("{name} panicked")),
        // The skip was reported above.
        Ok(Err(why)) if why.starts_with("NVRTC was not found") => None,
        Ok(Err(error)) => Some(format!("{name}: {error}")),
        Ok(Ok(())) if !misuses.is_empty() => Some(format!("{name}: {misuses:?}")),
        Ok(Ok(())) if alive != cuda_sim::Alive::default() => Some(format!("{name}: {alive}")),
        Ok(Ok(())) => None,
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
