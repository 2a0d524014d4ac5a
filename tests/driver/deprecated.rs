//! Functions that the crate does not use, as NVIDIA deprecates them, but that C programs call: the use
//! count of contexts, and the size of the banks of shared memory.

use crate::common::{self, child};
use crate::kernels::nothing;
use crate::need;
use crate::raw::{current, well};
use cuda_safe::sys::abi::cuCtxCreate_v2;
use cuda_safe::sys::{
    CUcontext, CUresult, CUsharedconfig, cuCtxAttach, cuCtxDestroy_v2, cuCtxDetach,
    cuCtxGetSharedMemConfig, cuCtxPopCurrent_v2, cuCtxPushCurrent_v2, cuCtxSetSharedMemConfig,
    cuFuncSetSharedMemConfig,
};
use std::ptr::null_mut;

/// A context that is current on this thread.
fn create() -> Option<CUcontext> {
    let device = common::gpu()?;
    let mut context = null_mut();
    // SAFETY: the pointer is to a local.
    well(unsafe { cuCtxCreate_v2(&raw mut context, 0, device.as_raw()) });
    assert_eq!(current(), context);
    Some(context)
}

fn pop() {
    // SAFETY: null is allowed: the handle that was popped is not written.
    well(unsafe { cuCtxPopCurrent_v2(null_mut()) });
}

fn attach(flags: u32) -> (CUresult, CUcontext) {
    let mut context = null_mut();
    // SAFETY: the pointer is to a local.
    let code = unsafe { cuCtxAttach(&raw mut context, flags) };
    (code, context)
}

/// Unverified (from documentation) on the software driver.
#[test]
fn a_created_context_goes_with_its_last_use() {
    need!(common::gpu());
    child::in_child(&[], || {
        let context = need!(create());
        let (code, attached) = attach(0);
        well(code);
        assert_eq!(attached, context);
        // SAFETY: the context is current, and of two uses.
        well(unsafe { cuCtxDetach(context) });
        assert_eq!(current(), context, "it has one more use");
        // SAFETY: as above; nothing is in it.
        well(unsafe { cuCtxDetach(context) });
        assert!(current().is_null(), "it was destroyed");
    });
}

#[test]
fn a_destroy_does_not_count_uses() {
    need!(common::gpu());
    child::in_child(&[], || {
        let context = need!(create());
        well(attach(0).0);
        // SAFETY: the context is alive, and nothing is in it.
        well(unsafe { cuCtxDestroy_v2(context) });
        assert!(current().is_null());
    });
}

fn bank_size() -> (CUresult, CUsharedconfig) {
    let mut config = CUsharedconfig(77);
    // SAFETY: the pointer is to a local.
    let code = unsafe { cuCtxGetSharedMemConfig(&raw mut config) };
    (code, config)
}

/// Unverified (from documentation) on the software driver.
#[test]
fn the_size_of_banks_is_fixed() {
    const SIZES: [CUsharedconfig; 3] = [
        CUsharedconfig::CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE,
        CUsharedconfig::CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE,
        CUsharedconfig::CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE,
    ];
    let context = need!(common::context());
    let kernel = nothing(&context);
    let four = CUsharedconfig::CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    let asked = context.with_current(|_| {
        for size in SIZES {
            // SAFETY: a context is current.
            well(unsafe { cuCtxSetSharedMemConfig(size) });
            let (code, config) = bank_size();
            well(code);
            assert_eq!(config, four, "after {size:?}");
            // SAFETY: the kernel is alive.
            well(unsafe { cuFuncSetSharedMemConfig(kernel.kernel().as_raw(), size) });
        }
    });
    asked.expect("a guard");
}

mod provoked {
    use super::*;

    const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
    const INVALID_CONTEXT: CUresult = CUresult::CUDA_ERROR_INVALID_CONTEXT;

    #[test]
    fn a_use_is_of_the_current_context_and_has_no_flags() {
        need!(common::gpu());
        child::in_child(&[], || {
            let context = need!(create());
            assert_eq!(attach(1).0, INVALID_VALUE);
            // SAFETY: the driver refuses null.
            assert_eq!(unsafe { cuCtxAttach(null_mut(), 0) }, INVALID_VALUE);
            // SAFETY: the driver refuses null.
            let null = unsafe { cuCtxDetach(null_mut()) };
            assert_eq!(null, INVALID_CONTEXT);
            pop();
            assert_eq!(attach(0).0, INVALID_CONTEXT);
            // SAFETY: the context is alive, and floats.
            assert_eq!(unsafe { cuCtxDetach(context) }, INVALID_CONTEXT);
            // SAFETY: as above.
            well(unsafe { cuCtxPushCurrent_v2(context) });
            // SAFETY: it is alive, and nothing is in it.
            well(unsafe { cuCtxDestroy_v2(context) });
        });
    }

    #[test]
    fn a_size_of_banks_that_there_is_not_is_refused() {
        let context = need!(common::context());
        let kernel = nothing(&context);
        let unknown = CUsharedconfig(77);
        assert_eq!(bank_size().0, INVALID_CONTEXT, "none is current");
        let four = CUsharedconfig::CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
        // SAFETY: none is current, as the driver finds.
        assert_eq!(unsafe { cuCtxSetSharedMemConfig(four) }, INVALID_CONTEXT);
        let asked = context.with_current(|_| {
            // SAFETY: a context is current.
            assert_eq!(unsafe { cuCtxSetSharedMemConfig(unknown) }, INVALID_VALUE);
            // SAFETY: the driver refuses null.
            let null = unsafe { cuCtxGetSharedMemConfig(null_mut()) };
            assert_eq!(null, INVALID_VALUE);
            let kernel = kernel.kernel().as_raw();
            // SAFETY: the kernel is alive.
            let refused = unsafe { cuFuncSetSharedMemConfig(kernel, unknown) };
            assert_eq!(refused, INVALID_VALUE);
        });
        asked.expect("a guard");
    }
}
