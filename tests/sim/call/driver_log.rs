//! The driver's log of failed calls: what the software driver keeps, what errors read, and misuses that
//! crash a real driver.

use crate::prelude::*;
use core::ffi::c_char;
use cuda_safe::check;
use cuda_safe::process::logs::entries;

unsafe extern "C" fn ignore(_: *mut c_void, _: CUlogLevel, _: *mut c_char, _: usize) {}

fn register() -> CUlogsCallbackHandle {
    let mut handle = null_mut();
    // SAFETY: the function ignores its argument, and the pointer is to a local variable.
    let code = unsafe { cuLogsRegisterCallback(Some(ignore), null_mut(), &raw mut handle) };
    check(code, "cuLogsRegisterCallback").expect("registered");
    handle
}

#[test]
fn only_errors_read_the_log() {
    let (_end, context, stream) = in_child!(on_stream());
    let reads = |body: &dyn Fn()| {
        cuda_sim::clear_calls();
        body();
        let is_read = |call: &Call| call.function == "cuLogsDumpToMemory";
        cuda_sim::calls().iter().filter(|its| is_read(its)).count()
    };
    let fine = reads(&|| {
        stream.synchronize().expect("a wait");
        context.memory_info().expect("known");
    });
    assert_eq!(fine, 0);
    let busy = reads(&|| {
        // SAFETY: the stream is alive.
        let code = unsafe { cuStreamQuery(stream.as_raw()) };
        let _ = check(code, "cuStreamQuery");
        check(CUresult::CUDA_ERROR_NOT_READY, "cuStreamQuery").expect_err("not ready");
    });
    assert_eq!(busy, 0, "work that is not complete is no failure");
    let failed = reads(&|| {
        Device::by_pci_bus_id("no bus").expect_err("no device");
    });
    assert_eq!(failed, 1);
}

#[test]
fn an_error_is_complete_although_the_log_cannot_be_read() {
    let (_end, _context) = in_child!(on(Profile::h200()));
    let fault = Fault::of_function("cuLogsDumpToMemory").from_then_on();
    let fault = fault.with(CUresult::CUDA_ERROR_UNKNOWN).inject(Scope::Thread);
    let error = Device::by_pci_bus_id("no bus").expect_err("no device");
    drop(fault);
    let its = error.driver_error().expect("an error of the driver");
    assert_eq!(its.call, "cuDeviceGetByPCIBusId");
    assert_eq!(its.log(), "");
    let fault = Fault::of_function("cuLogsDumpToMemory")
        .with(CUresult::CUDA_ERROR_UNKNOWN)
        .inject(Scope::Thread);
    entries().expect_err("the fault");
    drop(fault);
}

#[test]
fn an_older_driver_has_no_log() {
    let (_end, _context) = in_child!(on("h200@12.4".parse().expect("a profile")));
    let error = Device::by_pci_bus_id("no bus").expect_err("no device");
    assert_eq!(error.driver_error().expect("of the driver").log(), "");
    let error = LogCallback::new(|_, _| {}).expect_err("no callbacks");
    assert!(matches!(error, Error::Missing(_)), "{error}");
}

#[test]
fn the_log_has_the_last_hundred_entries() {
    let (_end, _context) = in_child!(on(Profile::h200()));
    // Each error of the crate would have all entries read.
    let fail = |count| {
        for _ in 0..count {
            refused!(INVALID, cuDeviceGetByPCIBusId(&mut 0, c"no bus".as_ptr()));
        }
    };
    fail(30);
    assert_eq!(entries().expect("the log").lines().count(), 30);
    fail(100);
    let all = entries().expect("the log");
    assert_eq!(all.lines().count(), 101);
    assert!(all.starts_with("Log buffer has rolled over"), "{all}");
    // Errors find their entries behind the first line.
    let error = Device::by_pci_bus_id("no bus").expect_err("no device");
    assert_eq!(error.driver_error().expect("of the driver").log(), "");
}

#[test]
fn a_small_buffer_has_the_last_entries() {
    let (_end, _context) = in_child!(on(Profile::h200()));
    for _ in 0..3 {
        Device::by_pci_bus_id("no bus").expect_err("no device");
    }
    let line = entries().expect("the log").lines().next().map(str::len).expect("an entry") + 1;
    let dump = |room: usize| {
        let (mut bytes, mut size) = (vec![0_u8; room], room);
        let start = bytes.as_mut_ptr().cast();
        // SAFETY: the buffer has `size` bytes, and a null iterator stands for all entries.
        let code = unsafe { cuLogsDumpToMemory(null_mut(), start, &raw mut size, 0) };
        (code, size)
    };
    assert_eq!(dump(2 * line + 1), (CUresult::CUDA_SUCCESS, 2 * line));
    assert_eq!(dump(10), (CUresult::CUDA_ERROR_INVALID_VALUE, 0));
}

#[test]
fn a_position_after_the_end_of_the_log_is_refused() {
    let (_end, _context) = in_child!(on(Profile::h200()));
    let end: CUlogIterator = out!(cuLogsCurrent(0));
    let dump = |mut from: CUlogIterator| {
        let (mut bytes, mut size) = ([0_u8; 64], 64);
        code!(cuLogsDumpToMemory(&raw mut from, bytes.as_mut_ptr().cast(), &raw mut size, 0))
    };
    assert_eq!([dump(end), dump(end + 2)], [CUresult::CUDA_SUCCESS, INVALID]);
}

#[test]
fn a_callback_that_is_unregistered_twice_is_a_misuse() {
    in_child!();
    start(Profile::h200());
    let handle = register();
    // SAFETY: the callback is registered.
    let code = unsafe { cuLogsUnregisterCallback(handle) };
    check(code, "cuLogsUnregisterCallback").expect("registered");
    // SAFETY: the software driver detects what would crash a real one.
    let code = unsafe { cuLogsUnregisterCallback(handle) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
    let misuses = cuda_sim::misuses();
    assert_eq!(misuses.len(), 1, "{misuses:?}");
    assert!(misuses[0].contains("twice"), "{misuses:?}");
}

#[test]
fn a_wild_callback_handle_is_a_misuse() {
    in_child!();
    start(Profile::h200());
    // SAFETY: the software driver detects what would crash a real one.
    let code = unsafe { cuLogsUnregisterCallback(std::ptr::without_provenance_mut(64)) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
    assert!(cuda_sim::misuses()[0].contains("not a log callback"));
}

#[test]
fn a_callback_works_before_the_driver_is_initialized() {
    in_child!();
    start(Profile::h200());
    let callback = LogCallback::new(|_, text| {
        assert!(text.contains("cuDeviceGetByPCIBusId"), "{text}");
    });
    let callback = callback.expect("registered");
    let mut device = 0;
    // SAFETY: the pointers refer to a local variable and to text that ends with a NUL.
    let code = unsafe { cuDeviceGetByPCIBusId(&raw mut device, c"no bus".as_ptr()) };
    assert_eq!(code, CUresult::CUDA_ERROR_NOT_INITIALIZED);
    let context = context();
    drop((callback, context));
    let names: Vec<&str> = cuda_sim::calls().iter().map(|its| its.function).collect();
    assert!(names.contains(&"cuLogsUnregisterCallback"), "{names:?}");
    crate::check();
}

#[test]
fn a_callback_is_unregistered_although_the_drop_of_its_closure_panics() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a closure");
        }
    }
    fn drop_of<T>(callback: T) {
        catch_unwind(AssertUnwindSafe(|| drop(callback))).expect_err("the panic of the closure");
    }
    in_child!();
    start("h200@13.5".parse().expect("a profile"));
    let bomb = Bomb;
    let callback = LogCallback::new(move |_, _| _ = &bomb).expect("registered");
    drop_of(callback);
    let names = || cuda_sim::calls().into_iter().map(|its| its.function);
    assert!(names().any(|its| its == "cuLogsUnregisterCallback"));
    assert_eq!(cuda_safe::leaked(), 0);

    let bomb = Bomb;
    let callback = LogCallback::new(move |_, _| _ = &bomb).expect("registered");
    let fault = Fault::of_function("cuLogsUnregisterCallback")
        .with(CUresult::CUDA_ERROR_INVALID_VALUE)
        .inject(Scope::Thread);
    drop_of(callback);
    assert_eq!((fault.hits(), cuda_safe::leaked()), (1, 1));

    let (first, second) = (Bomb, Bomb);
    drop_of(DumpCallback::on_start(move |_| _ = &first).expect("registered"));
    drop_of(DumpCallback::on_complete(move |_| _ = &second).expect("registered"));
    assert_eq!(names().filter(|its| its.starts_with("cuCoredumpDeregister")).count(), 2);
}

#[test]
fn a_callback_that_cannot_be_unregistered_is_reported_and_does_nothing() {
    let (_end, _context) = in_child!(on(Profile::h200()));
    let callback = LogCallback::new(|_, _| panic!("it was dropped"));
    let fault = Fault::of_function("cuLogsUnregisterCallback")
        .with(CUresult::CUDA_ERROR_INVALID_VALUE)
        .inject(Scope::Thread);
    drop(callback);
    assert_eq!(fault.hits(), 1);
    drop(fault);
    assert_eq!(cuda_safe::leaked(), 1);
    Device::by_pci_bus_id("no bus").expect_err("no device");
}
