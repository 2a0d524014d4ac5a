//! Host functions: who has them after an error, and what is called in them.

use crate::{common, context, start};
use cuda_safe::sys::CUresult;
use cuda_sim::Profile;
use cuda_sim::fault::{Fault, Scope};
use std::sync::Arc;

/// A code of earlier work, or one that nobody knows: the driver may run the function all the same.
#[test]
fn a_host_function_that_the_driver_may_have_is_kept() {
    common::child::in_child(&[], || {
        start(Profile::h200());
        let stream = context().stream().expect("a stream");
        let kept_after = |code| {
            let owned = Arc::new(());
            let kept = Arc::clone(&owned);
            let _fails = Fault::of_function("cuLaunchHostFunc")
                .with(CUresult(code))
                .inject(Scope::Thread);
            let given = stream.launch_host_function(move || drop(kept));
            given.expect_err("the fault");
            Arc::strong_count(&owned) == 2
        };
        for code in [304, 700, 703, 802, 806, 909, 917, 999, 1234] {
            assert!(kept_after(code), "freed on {code}");
        }
        assert_eq!(cuda_safe::leaked(), 9);
        for code in [1, 2, 400, 709, 800, 801, 900, 906] {
            assert!(!kept_after(code), "kept on {code}");
        }
        assert_eq!(cuda_safe::leaked(), 9);
    });
}
