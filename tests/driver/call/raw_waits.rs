//! Which synchronous calls wait for their work, measured on an H200 (driver 580).

use crate::call::raw::succeeds;
use crate::common::{self, child};
use crate::memory::raw_copies::{DEVICE, HOST, call, host, plane, row};
use core::ffi::c_void;
use cuda_safe::sys::{
    CUresult, cuLaunchHostFunc, cuMemcpy, cuMemcpy2D_v2, cuMemcpy3D_v2, cuMemcpyDtoD_v2,
    cuMemcpyDtoH_v2, cuMemcpyHtoD_v2, cuMemcpyPeer, cuMemsetD8_v2,
};
use cuda_safe::{Context, DeviceBuffer, PinnedBuffer};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;

/// Work of the legacy default stream that runs until it is told to end.
struct Blocked(Arc<AtomicBool>);

impl Blocked {
    fn enqueue() -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let data = Arc::into_raw(ends.clone()).cast_mut().cast();
        succeeds(call!(cuLaunchHostFunc(null_mut(), Some(until_it_ends), data)));
        Self(ends)
    }

    /// Ends the work after a while, from another thread.
    fn end_later(&self) -> JoinHandle<()> {
        let ends = self.0.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            ends.store(true, Ordering::Release);
        })
    }

    fn has_ended(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

unsafe extern "C" fn until_it_ends(data: *mut c_void) {
    // SAFETY: `Blocked` passes a reference of its own.
    let ends = unsafe { Arc::from_raw(data.cast::<AtomicBool>()) };
    while !ends.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Fails unless a call waits for earlier work of the legacy stream if it must, and returns before this work ends
/// otherwise.
#[track_caller]
fn check_wait(context: &Context, name: &str, waits: bool, call: impl FnOnce() -> CUresult) {
    let blocked = Blocked::enqueue();
    let ending = waits.then(|| blocked.end_later());
    assert_eq!(call(), SUCCESS, "{name}");
    assert_eq!(blocked.has_ended(), waits, "{name}");
    blocked.0.store(true, Ordering::Release);
    context.synchronize().expect("the work ends");
    if let Some(ending) = ending {
        ending.join().expect("it stores a flag");
    }
}

#[test]
fn synchronous_copies_and_fills_wait_only_if_they_use_host_memory() {
    let context = or_skip!(common::context_since(13, 0));
    child::in_child(&[], || {
        let context = common::context().expect("a context");
        let _current = context.make_current().expect("current");
        let stream = context.stream().expect("a stream");
        let memory = DeviceBuffer::<u8>::zeroed_sync(&stream, 256).expect("memory");
        let pool = DeviceBuffer::<u8>::zeroed(&stream, 256).expect("memory");
        let mut pinned = PinnedBuffer::<u8>::zeroed(&context, 256).expect("pinned");
        stream.synchronize().expect("zeroed");
        let mut pageable = [0_u8; 256];
        let (device, pool) = (memory.as_raw(), pool.as_raw());
        let pinned = pinned.as_mut_ptr().expose_provenance() as u64;
        let pageable = pageable.as_mut_ptr().expose_provenance() as u64;
        let check = |name, waits, call: &dyn Fn() -> CUresult| {
            check_wait(&context, name, waits, call);
        };
        let raw = context.as_raw();
        let flat = |sides| plane(&row(sides, 4));
        let on_device = [(DEVICE, device), (DEVICE, device + 128)];
        let to_host = [(DEVICE, device), (HOST, pinned)];
        check("device to device", false, &|| call!(cuMemcpyDtoD_v2(device, device + 128, 4)));
        check("device to pool", false, &|| call!(cuMemcpyDtoD_v2(pool, device, 4)));
        check("any, within the device", false, &|| call!(cuMemcpy(pool, device, 4)));
        check("2-D, within the device", false, &|| call!(cuMemcpy2D_v2(&flat(on_device))));
        check("3-D, within the device", false, &|| call!(cuMemcpy3D_v2(&row(on_device, 4))));
        check("between contexts", false, &|| {
            call!(cuMemcpyPeer(device, raw, device + 128, raw, 4))
        });
        check("fill of a device", false, &|| call!(cuMemsetD8_v2(device, 1, 4)));
        check("no bytes", false, &|| call!(cuMemcpyHtoD_v2(device, host::<c_void>(pageable), 0)));
        check("device to pinned, by its address", true, &|| {
            call!(cuMemcpyDtoD_v2(pinned, device, 4))
        });
        check("from pageable", true, &|| {
            call!(cuMemcpyHtoD_v2(device, host::<c_void>(pageable), 4))
        });
        check("from pinned", true, &|| call!(cuMemcpyHtoD_v2(device, host::<c_void>(pinned), 4)));
        check("to pageable", true, &|| call!(cuMemcpyDtoH_v2(host(pageable), device, 4)));
        check("within the host", true, &|| call!(cuMemcpy(pageable, pinned, 4)));
        check("2-D, to pinned", true, &|| call!(cuMemcpy2D_v2(&flat(to_host))));
        check("fill of pinned memory", true, &|| call!(cuMemsetD8_v2(pinned, 1, 4)));
    });
    drop(context);
}

/// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS` makes calls wait that otherwise do not.
#[test]
fn synchronous_calls_wait_for_memory_with_the_setting_sync_memops() {
    let context = or_skip!(common::context_since(13, 0));
    child::in_child(&[], || {
        let context = common::context().expect("a context");
        let _current = context.make_current().expect("current");
        let stream = context.stream().expect("a stream");
        let mut memory = DeviceBuffer::<u8>::zeroed_sync(&stream, 256).expect("memory");
        stream.synchronize().expect("zeroed");
        let device = memory.as_raw();
        for waits in [true, false] {
            memory.set_sync_memops(waits).expect("set");
            check_wait(&context, "a copy", waits, || {
                call!(cuMemcpyDtoD_v2(device, device + 128, 4))
            });
            check_wait(&context, "a fill", waits, || call!(cuMemsetD8_v2(device, 1, 4)));
        }
    });
    drop(context);
}
