//! Calls that return while they wait. The only test of this crate's own tests with a driver for all threads.

use super::{Class, guarded};
use crate::exec::{HostFunction, Work};
use crate::profile::Profile;
use crate::state::objects::ContextKind;
use crate::state::{self, World};
use core::ffi::c_void;
use core::ptr::null_mut;
use cuda_sys::CUresult;
use std::convert::Infallible;

unsafe extern "C" fn nothing(_: *mut c_void) {}

/// Calls a function that enqueues a host function and waits for it, and that then fails with `late` when its body
/// runs again, if there is such an error.
fn wait(stream: usize, late: Option<CUresult>) -> CUresult {
    let mut runs = 0;
    guarded(Class::Always, "", &mut |world| {
        runs += 1;
        if let Some(code) = late.filter(|_| runs > 1) {
            return Err(code);
        }
        world.wait_for(|world| {
            let work =
                Work::HostFn { function: HostFunction::Plain(Some(nothing)), data: null_mut() };
            Ok(Some(world.give(stream, work, Vec::new())))
        })
    })
}

#[test]
fn no_operation_is_awaited_after_the_call_that_waited_has_returned() {
    let profile = Profile::h200().with_race_detection();
    let Ok(()) = state::start(profile, || Ok::<_, Infallible>(()));
    let legacy = state::with(|world: &mut World| {
        let (context, _) = world.objects.primaries[0];
        world.make_context(context, 0, 0, ContextKind::Primary);
        world.context(context).map(|its| its.legacy)
    });
    let stream = legacy.and_then(Result::ok).expect("a context");
    for late in [None, Some(CUresult::CUDA_ERROR_INVALID_HANDLE)] {
        assert_eq!(wait(stream, late), late.unwrap_or_default());
        let awaited =
            state::with(|world| world.runs.executor.order.as_ref().map(|its| its.awaited()));
        assert_eq!(awaited.flatten(), Some(0), "{late:?}");
    }
}
