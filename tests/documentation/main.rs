//! The examples of the documentation, run on the software driver. (That they compile is a test of
//! `cuda-safe` itself.)

use cuda_safe::Result;
use cuda_sim::kernel::register;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

type Example = (&'static str, fn() -> Result<()>);

/// What is loaded wherever an example does not show what it loads.
const KERNELS: &str = include_str!("kernels.ptx");

#[allow(
    warnings,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "examples show one thing each"
)]
const ALL: &[Example] = include!(concat!(env!("OUT_DIR"), "/examples.rs"));

/// What cannot run in one process, and why.
const NOT_RUN: [(&str, &str); 3] = [
    ("cuda-safe/src/event/ipc.rs", "it is of two processes"),
    ("cuda-safe/src/manager/ipc.rs", "it is of two processes"),
    (
        "cuda-safe/src/memory/pool/share.rs",
        "it is of two processes",
    ),
];

#[test]
fn every_example_runs_and_leaves_nothing() {
    // Two devices, with a driver that has everything.
    let profile: cuda_sim::Profile = "h200@13.5".parse().expect("a profile");
    cuda_sim::install(profile.with_devices(2)).expect("nothing was called before");
    register("nothing", |_| Ok(()));
    register("gemm", |_| Ok(()));
    register("add", |launch| {
        let n = launch.value::<u32>(3)? as usize;
        let (a, b) = (launch.read::<f32>(0, n)?, launch.read::<f32>(1, n)?);
        launch.update::<f32>(2, n, |i, _| a[i] + b[i])
    });
    assert!(ALL.len() > 40, "{} examples", ALL.len());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A GPU works by itself; the software driver when somebody asks.
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                cuda_sim::alive();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let wrong = ALL.iter().filter_map(run);
        let wrong: Vec<String> = wrong.collect();
        over.store(true, Ordering::SeqCst);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

/// What is wrong with an example.
fn run((name, example): &Example) -> Option<String> {
    let is_of = |(file, _): &(&str, &str)| name.starts_with(file);
    if NOT_RUN.iter().any(is_of) {
        return None;
    }
    let done = std::panic::catch_unwind(example);
    // A choice is the process's.
    cuda_safe::manager::clear_memory_manager();
    let (mistakes, alive) = (cuda_sim::mistakes(), cuda_sim::alive());
    match done {
        Err(_) => Some(format!("{name} panicked")),
        Ok(Err(error)) => Some(format!("{name}: {error}")),
        Ok(Ok(())) if !mistakes.is_empty() => Some(format!("{name}: {mistakes:?}")),
        Ok(Ok(())) if alive != cuda_sim::Alive::default() => Some(format!("{name}: {alive}")),
        Ok(Ok(())) => None,
    }
}

fn block_on(future: impl Future<Output = Result<()>>) -> Result<()> {
    let mut future = pin!(future);
    loop {
        match future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}
