//! Green contexts: their views' default streams, and streams that outlive them.

use crate::on;
use crate::planted::{found, planted, well};
use cuda_safe::green::{GreenContext, SmResource, SplitByCount};
use cuda_safe::sys::{
    CU_STREAM_LEGACY, CUresult, cuCtxFromGreenCtx, cuCtxPopCurrent_v2, cuCtxPushCurrent_v2,
    cuGreenCtxDestroy, cuLaunchKernel, cuStreamDestroy_v2, cuStreamQuery,
};
use cuda_safe::{Context, Module, Stream};
use cuda_sim::Profile;
use std::ptr::null_mut;

fn green(context: &Context) -> GreenContext {
    let resource = SmResource::of_device(&context.device()).expect("an H200 has them");
    let split = resource.split_by_count(SplitByCount {
        max_groups: Some(1),
        ..Default::default()
    });
    let group = split.expect("a split").groups.pop().expect("a group");
    GreenContext::new([group]).expect("a green context")
}

fn launch(module: &Module, stream: cuda_safe::sys::CUstream) -> CUresult {
    let kernel = module.kernel("nothing").expect("is there").as_raw();
    // SAFETY: the kernel takes nothing and does nothing.
    unsafe { cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, null_mut(), null_mut()) }
}

fn vector(context: &Context) -> Module {
    Module::from_ptx(context, include_str!("../kernels/vector.ptx")).expect("the test kernels")
}

/// As on an H200.
#[test]
fn the_default_stream_of_a_view_takes_kernels_of_the_primary_context() {
    on(Profile::h200(), |context| {
        let module = vector(&context);
        let green = green(&context);
        let mut view = null_mut();
        // SAFETY: the green context is alive, and the pointer is to a local.
        well(unsafe { cuCtxFromGreenCtx(&raw mut view, green.as_raw()) });
        // SAFETY: the view is alive.
        well(unsafe { cuCtxPushCurrent_v2(view) });
        well(launch(&module, CU_STREAM_LEGACY));
        // SAFETY: the pointer is to a local.
        well(unsafe { cuCtxPopCurrent_v2(&raw mut view) });
        context.synchronize().expect("a wait");
    });
}

#[test]
fn streams_that_outlive_their_green_context_are_of_no_use() {
    planted(|context, _| {
        let module = vector(context);
        let green = green(context);
        let stream: Stream = green.stream().expect("a stream");
        // SAFETY: it is not: the object and its stream are still there.
        well(unsafe { cuGreenCtxDestroy(green.as_raw()) });
        found("before its streams");
        let stream = stream.as_raw();
        let destroyed = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;
        assert_eq!(launch(&module, stream), destroyed);
        // SAFETY: the driver knows that it is gone.
        assert_eq!(unsafe { cuStreamQuery(stream) }, destroyed);
        // SAFETY: as above.
        assert_eq!(unsafe { cuStreamDestroy_v2(stream) }, destroyed);
    });
}
