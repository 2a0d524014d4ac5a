//! The current context of the caller stays, whatever NCCL does with it.

use crate::common::child::in_child;
use crate::machine::{communicators, streams};
use cuda_nccl::sys::{self, ncclResult_t};
use cuda_nccl::{Communicator, Config, NcclManager, ReduceOp, Registered, UniqueId, group};
use cuda_safe::manager::{MemoryManager, Order};
use cuda_safe::sys::{CUcontext, cuCtxGetCurrent, cuCtxPopCurrent_v2, cuCtxPushCurrent_v2};
use cuda_safe::{Context, ContextFlags, Device, DeviceBuffer};

fn current() -> CUcontext {
    let mut current = core::ptr::null_mut();
    // SAFETY: the pointer is valid for a write.
    let code = unsafe { cuCtxGetCurrent(&raw mut current) };
    assert!(code.is_success());
    current
}

/// Makes every kind of call, and checks after each that the current context is the same. Other tests run in other
/// processes, as the free of NCCL's memory waits for their operations, and their ranks wait for the free.
fn calls(device: u32) {
    let before = current();
    #[track_caller]
    fn same<T>(before: CUcontext, call: impl FnOnce() -> T) -> T {
        let value = call();
        assert_eq!(current(), before, "the current context stays");
        value
    }
    let device = Device::get(device).expect("a device");
    let context = Context::primary(&device).expect("a context");
    let stream = same(before, || context.stream().expect("a stream"));
    let id = same(before, || UniqueId::new().expect("an id"));
    let config = Config::default();
    let its = same(before, || Communicator::init(&stream, &id, 0, 1, &config).expect("init"));
    let all = same(before, || {
        Communicator::init_all(std::slice::from_ref(&stream), &config).expect("init_all")
    });
    let mut buffer = DeviceBuffer::<f32>::zeroed(&stream, 64).expect("memory");
    same(before, || its.all_reduce_in_place(&mut buffer, ReduceOp::Sum).expect("a sum"));
    let mut other = DeviceBuffer::<f32>::zeroed(&stream, 64).expect("memory");
    same(before, || its.all_reduce(&buffer, &mut other, ReduceOp::Max).expect("a maximum"));
    let grouped = group(|group| group.all_gather(&its, &buffer, &mut other));
    same(before, || grouped.expect("a group"));
    let split = same(before, || its.split(Some(1), 0, None).expect("a split").expect("a color"));
    let mut registered = Registered::new(other);
    // SAFETY: there is one rank.
    same(before, || unsafe { registered.register(&its) }.expect("a registration"));
    // This memory may be unsuited for a window, which is an error.
    // SAFETY: as above.
    let _ = same(before, || unsafe { registered.register_window(&its, true) });
    same(before, || drop(registered));
    let manager = same(before, || NcclManager::new(&context).expect("a manager"));
    let block = same(before, || manager.allocate(1000, Order::of(&stream)).expect("memory"));
    // SAFETY: the block was allocated by this manager, and no work uses it.
    same(before, || unsafe { manager.free(block, Order::of(&stream)) });
    same(before, || manager.reset());
    same(before, || split.finalize().expect("an end"));
    same(before, || its.abort_handle().abort().expect("an abort"));
    same(before, || drop(its));
    same(before, || drop(all));
}

#[test]
fn no_call_changes_the_current_context() {
    in_child(&[], || {
        or_skip!(streams(1));
        assert!(current().is_null());
        calls(0);

        let device = Device::get(0).expect("a device");
        let own = Context::new(&device, ContextFlags::empty()).expect("a context");
        own.with_current(|_| calls(0)).expect("a current context");
        let primary = Context::primary(&device).expect("a context");
        primary.with_current(|_| calls(0)).expect("a current context");
        assert!(current().is_null());
    });
}

#[test]
fn a_context_of_another_device_stays_current() {
    in_child(&[], || {
        or_skip!(streams(2));
        let other = Context::primary(&Device::get(1).expect("a device")).expect("a context");
        other.with_current(|_| calls(0)).expect("a current context");
    });
}

#[test]
fn the_creation_of_several_communicators_leaves_no_context_current() {
    let streams = or_skip!(streams(2));
    assert!(current().is_null());
    let all = Communicator::init_all(&streams, &Config::default()).expect("communicators");
    assert!(current().is_null());
    drop(all);
    assert!(current().is_null());
}

/// What the crate protects from: raw calls leave the primary context in place of the current one.
#[test]
fn raw_calls_replace_the_current_context_by_the_primary_one() {
    let its = or_skip!(communicators(1)).remove(0);
    let device = Device::get(0).expect("a device");
    let primary = Context::primary(&device).expect("a context");
    let own = Context::new(&device, ContextFlags::empty()).expect("a context");
    // SAFETY: the context is alive until it is popped.
    assert!(unsafe { cuCtxPushCurrent_v2(own.as_raw()) }.is_success());
    let mut version = 0;
    // SAFETY: the pointer is valid for a write.
    let code = unsafe { sys::ncclGetVersion(&raw mut version) }.expect("a function");
    assert_eq!((code, current()), (ncclResult_t::ncclSuccess, own.as_raw()));
    let mut raw = core::ptr::null_mut();
    // SAFETY: the pointers are valid for one communicator of the first device.
    let code = unsafe { sys::ncclCommInitAll(&raw mut raw, 1, core::ptr::null()) };
    assert_eq!(code.expect("a function"), ncclResult_t::ncclSuccess);
    assert_eq!(current(), primary.as_raw(), "ncclCommInitAll");
    // SAFETY: the communicator is alive, and is destroyed once.
    let code = unsafe { sys::ncclCommDestroy(raw) };
    assert_eq!(code.expect("a function"), ncclResult_t::ncclSuccess);
    assert_eq!(current(), primary.as_raw(), "ncclCommDestroy");
    let mut popped = core::ptr::null_mut();
    // SAFETY: the pointer is valid for a write.
    assert!(unsafe { cuCtxPopCurrent_v2(&raw mut popped) }.is_success());
    assert_eq!(popped, primary.as_raw());
    assert!(current().is_null());
    drop(its);
}
