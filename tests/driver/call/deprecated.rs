//! Deprecated functions that the crate does not use but C programs call: the use count of contexts,
//! and the bank size of shared memory.

use crate::call::raw::{current, succeeds};
use crate::common::{self, child};
use crate::module::kernels::nothing;
use cuda_safe::sys::abi::cuCtxCreate_v2;
use cuda_safe::sys::{
    CUcontext, CUresult, CUsharedconfig, cuCtxAttach, cuCtxDestroy_v2, cuCtxDetach,
    cuCtxGetSharedMemConfig, cuCtxPopCurrent_v2, cuCtxPushCurrent_v2, cuCtxSetSharedMemConfig,
    cuFuncSetSharedMemConfig,
};
use std::ptr::null_mut;

/// Creates a context, which is then current on this thread.
fn create() -> Option<CUcontext> {
    let device = common::gpu()?;
    let mut context = null_mut();
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuCtxCreate_v2(&raw mut context, 0, device.as_raw()) });
    assert_eq!(current(), context);
    Some(context)
}

fn pop() {
    // SAFETY: null is allowed, and the popped handle is then not written.
    succeeds(unsafe { cuCtxPopCurrent_v2(null_mut()) });
}

fn attach(flags: u32) -> (CUresult, CUcontext) {
    let mut context = null_mut();
    // SAFETY: the pointer refers to a local variable.
    let code = unsafe { cuCtxAttach(&raw mut context, flags) };
    (code, context)
}

#[test]
fn a_created_context_is_destroyed_with_its_last_use() {
    child::in_child(&[], || {
        let context = or_skip!(create());
        let (code, attached) = attach(0);
        succeeds(code);
        assert_eq!(attached, context);
        // SAFETY: the context is current and has two uses.
        succeeds(unsafe { cuCtxDetach(context) });
        assert_eq!(current(), context, "one use is left");
        // SAFETY: as above, and the context is empty.
        succeeds(unsafe { cuCtxDetach(context) });
        assert!(current().is_null(), "it was destroyed");
    });
}

#[test]
fn detaching_a_primary_context_beyond_its_uses_has_no_effect() {
    child::with_stream(|context, stream| {
        let primary = context.as_raw();
        let detached = context.with_current(|_| {
            let (code, attached) = attach(0);
            succeeds(code);
            assert_eq!(attached, primary);
            for _ in 0..3 {
                // SAFETY: the context is current, and its retain keeps it alive, which this test
                // checks. If the driver destroys it, only the child process ends.
                succeeds(unsafe { cuCtxDetach(primary) });
                assert_eq!(current(), primary);
            }
        });
        detached.expect("a guard");
        let state = context.device().primary_state().expect("known");
        assert!(state.active);
        stream.synchronize().expect("the stream is alive");
    });
}

#[test]
fn a_destroy_ignores_the_use_count() {
    child::in_child(&[], || {
        let context = or_skip!(create());
        succeeds(attach(0).0);
        // SAFETY: the context is alive and empty.
        succeeds(unsafe { cuCtxDestroy_v2(context) });
        assert!(current().is_null());
    });
}

fn bank_size() -> (CUresult, CUsharedconfig) {
    let mut config = CUsharedconfig(77);
    // SAFETY: the pointer refers to a local variable.
    let code = unsafe { cuCtxGetSharedMemConfig(&raw mut config) };
    (code, config)
}

/// On the software driver this behavior follows the documentation and is unverified.
#[test]
fn the_bank_size_of_shared_memory_is_fixed() {
    const SIZES: [CUsharedconfig; 3] = [
        CUsharedconfig::CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE,
        CUsharedconfig::CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE,
        CUsharedconfig::CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE,
    ];
    let context = or_skip!(common::context());
    let kernel = nothing(&context);
    let four = CUsharedconfig::CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    let asked = context.with_current(|_| {
        for size in SIZES {
            // SAFETY: a context is current.
            succeeds(unsafe { cuCtxSetSharedMemConfig(size) });
            let (code, config) = bank_size();
            succeeds(code);
            assert_eq!(config, four, "after {size:?}");
            // SAFETY: the kernel is alive.
            succeeds(unsafe { cuFuncSetSharedMemConfig(kernel.kernel().as_raw(), size) });
        }
    });
    asked.expect("a guard");
}

mod provoked {
    use super::*;

    const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
    const INVALID_CONTEXT: CUresult = CUresult::CUDA_ERROR_INVALID_CONTEXT;

    #[test]
    fn attach_takes_no_context_and_no_flags_and_detach_only_the_current_context() {
        child::in_child(&[], || {
            let context = or_skip!(create());
            assert_eq!(attach(1).0, INVALID_VALUE);
            // SAFETY: the driver rejects null.
            assert_eq!(unsafe { cuCtxAttach(null_mut(), 0) }, INVALID_VALUE);
            // SAFETY: the driver rejects null.
            assert_eq!(unsafe { cuCtxDetach(null_mut()) }, INVALID_CONTEXT);
            pop();
            assert_eq!(attach(0).0, INVALID_CONTEXT);
            // SAFETY: the context is alive and current on no thread.
            assert_eq!(unsafe { cuCtxDetach(context) }, INVALID_CONTEXT);
            // SAFETY: as above.
            succeeds(unsafe { cuCtxPushCurrent_v2(context) });
            // SAFETY: the context is alive and empty.
            succeeds(unsafe { cuCtxDestroy_v2(context) });
        });
    }

    #[test]
    fn an_unknown_bank_size_is_refused() {
        let context = or_skip!(common::context());
        let kernel = nothing(&context);
        let unknown = CUsharedconfig(77);
        assert_eq!(bank_size().0, INVALID_CONTEXT, "none is current");
        let four = CUsharedconfig::CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
        // SAFETY: no context is current, which the driver detects.
        assert_eq!(unsafe { cuCtxSetSharedMemConfig(four) }, INVALID_CONTEXT);
        let asked = context.with_current(|_| {
            // SAFETY: a context is current.
            assert_eq!(unsafe { cuCtxSetSharedMemConfig(unknown) }, INVALID_VALUE);
            // SAFETY: the driver rejects null.
            assert_eq!(unsafe { cuCtxGetSharedMemConfig(null_mut()) }, INVALID_VALUE);
            let kernel = kernel.kernel().as_raw();
            // SAFETY: the kernel is alive.
            assert_eq!(unsafe { cuFuncSetSharedMemConfig(kernel, unknown) }, INVALID_VALUE);
        });
        asked.expect("a guard");
    }
}
