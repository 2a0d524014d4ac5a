//! Interleavings of the warps of a kernel, in the schedules of the explorer.

use crate::common::lockfree::cases::{EXCHANGE, PTX, QUEUE, SCAN, changed};
use crate::common::lockfree::run;
use crate::prelude::*;
use cuda_sim::explore::Explorer;

/// Explores a kernel in which a line is replaced, and expects a wrong result that its seed reproduces.
#[track_caller]
fn expect_wrong(scenario: fn(), expected: &str) {
    start(Profile::h200());
    let first = Explorer::new().explore(scenario).violation.expect("a wrong result");
    assert!(first.reason.contains(expected), "{first}");
    let again = Explorer::new().seed(first.seed).schedules(1).explore(scenario).violation;
    let again = again.expect("the same result");
    assert_eq!((again.seed, again.reason), (first.seed, first.reason));
}

#[test]
fn kernels_without_locks_are_correct_in_every_schedule() {
    fn scenario() {
        let context = context();
        for case in [SCAN, QUEUE, EXCHANGE] {
            run(&context, PTX, case);
        }
    }
    in_child!(start(Profile::h200()));
    let report = Explorer::new().schedules(100).explore(scenario);
    assert!(report.violation.is_none(), "{:?}", report.violation);
}

#[test]
fn a_missing_fence_is_found() {
    in_child!();
    expect_wrong(|| run(&context(), &changed("membar.gl; // after the sum", ""), SCAN), "scan");
}

#[test]
fn a_fence_with_the_scope_of_the_block_is_found() {
    in_child!();
    expect_wrong(
        || {
            let line = "membar.gl; // after the values of the block";
            run(&context(), &changed(line, "membar.cta;"), EXCHANGE);
        },
        "exchange",
    );
}

#[test]
fn an_element_that_is_not_released_is_found() {
    in_child!();
    expect_wrong(
        || {
            let line = "st.release.gpu.global.u32 [%d7], %r7;";
            run(&context(), &changed(line, "st.relaxed.gpu.global.u32 [%d7], %r7;"), QUEUE);
        },
        "queue",
    );
}

#[test]
fn a_kernel_that_does_not_end_fails() {
    fn scenario() {
        let text = "setp.le.u32 %p2, %r13, %r9;";
        run(&context(), &changed("setp.lt.u32 %p2, %r13, %r9;", text), EXCHANGE);
    }
    in_child!(start(Profile::h200()));
    let violation = Explorer::new().explore(scenario).violation.expect("an error");
    let expected = "the kernel runs more than 4194304 operations";
    assert!(violation.reason.contains(expected), "{violation}");
}
