//! What the test binaries share: skipping, and the GPU at hand.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod child;

use cuda_safe::{Context, Device};
use std::io::Write;
use std::sync::Once;

/// Says that the calling test is skipped, and why; with `CUDA_TESTS=require` a skip is a failure.
///
/// The line goes past the test harness's capture, so that a passing run lists what it skipped.
#[track_caller]
pub(crate) fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    if std::env::var_os("CUDA_TESTS").is_some_and(|value| value == "require") {
        panic!("CUDA_TESTS=require, and {test} cannot run: {reason}");
    }
    let _ = writeln!(std::io::stderr(), "skipped {test}: {reason}");
}

/// The first GPU, or a skip.
#[track_caller]
pub(crate) fn gpu() -> Option<Device> {
    match Device::get(0) {
        Ok(device) => Some(device),
        Err(why) => {
            static FIRST: Once = Once::new();
            FIRST.call_once(|| {
                let _ = writeln!(std::io::stderr(), "no GPU for tests: {why}");
            });
            skip("no GPU");
            None
        }
    }
}

/// The primary context of the first GPU, or a skip.
#[track_caller]
pub(crate) fn context() -> Option<Context> {
    let context = Context::primary(&gpu()?);
    Some(context.expect("the primary context of a GPU"))
}

/// `let context = need!(common::context());`: the value, or the test ends here, skipped.
#[macro_export]
macro_rules! need {
    ($value:expr) => {
        match $value {
            Some(value) => value,
            None => return,
        }
    };
}
