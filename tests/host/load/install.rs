//! Another source of functions instead of the driver.

use crate::common::child::in_child;
use crate::fakes::{self, NOWHERE, VARIABLE};
use crate::or_skip;
use crate::software::{self, DEVICES};
use core::ffi::CStr;
use cuda_safe::Device;
use cuda_sys::{CUresult, CudaVersion, Function, InstallError, Unavailable};
use std::collections::BTreeMap;
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex};

/// Installs the driver of [`software`] and calls `hook` for each look-up. The names in `without`
/// are not found.
fn install(
    hook: impl Fn(&CStr) + Send + Sync + 'static,
    without: &'static [&str],
) -> Result<(), InstallError> {
    // SAFETY: each address is a function of the type that belongs to its name, as `software::find`
    // guarantees.
    unsafe {
        cuda_sys::install(move |name| {
            hook(name);
            match name.to_str() {
                Ok(text) if !without.contains(&text) => software::find(name),
                _ => null(),
            }
        })
    }
}

fn no_hook(_: &CStr) {}

#[test]
fn functions_come_from_the_closure() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        install(no_hook, &[]).expect("the process has no driver");
        let mut count = 0;
        // SAFETY: the pointer refers to an i32.
        let code = unsafe { cuda_sys::cuDeviceGetCount(&raw mut count) };
        assert_eq!((code, count), (CUresult::CUDA_SUCCESS, DEVICES));
        // SAFETY: the function has no parameters.
        let code = unsafe { cuda_sys::cuProfilerStart() };
        assert_eq!(code, CUresult::CUDA_ERROR_NOT_READY);
        assert_eq!(Device::all().expect("devices").len(), 3);
        let version = cuda_sys::driver_version().expect("a driver version");
        assert_eq!(version, CudaVersion::new(12, 2));

        for function in Function::all() {
            let given = software::find(function.symbol_c());
            let found = function.address().map_or(null(), |address| address.as_ptr());
            assert_eq!(found, given, "{function:?}");
        }
    });
}

#[test]
fn a_source_may_report_a_missing_function_as_not_supported() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        // A function can have several addresses, since it is compiled where it is asked for.
        let given = Arc::new(Mutex::new(BTreeMap::new()));
        let addresses = Arc::clone(&given);
        let find = move |name: &CStr| {
            let function = name.to_str().ok().and_then(Function::find);
            let address = function.map_or(null(), Function::not_supported);
            addresses.lock().expect("nothing panics here").insert(name.to_owned(), address.addr());
            address
        };
        // SAFETY: each address is a function of the type that belongs to its name, and does
        // nothing.
        unsafe { cuda_sys::install(find) }.expect("the process has no driver");
        for function in Function::all() {
            let found = function.address().expect("there is one").addr().get();
            let given = given.lock().expect("nothing panics here");
            assert_eq!(given.get(function.symbol_c()), Some(&found), "{function:?}");
        }
        // SAFETY: the function does nothing.
        let newest = unsafe { cuda_sys::cuProfilerStart() };
        // SAFETY: as above.
        let older = unsafe { cuda_sys::abi::cuMemAlloc(null_mut(), 1) };
        // SAFETY: as above.
        let per_thread = unsafe { cuda_sys::ptds::cuMemcpyHtoD_v2_ptds(1, null(), 2) };
        let refused = CUresult::CUDA_ERROR_NOT_SUPPORTED;
        assert_eq!([newest, older, per_thread], [refused; 3]);
    });
}

#[test]
fn each_symbol_is_looked_up_once() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        let asked = Arc::new(Mutex::new(BTreeMap::<String, u32>::new()));
        let questions = Arc::clone(&asked);
        let count = move |name: &CStr| {
            let name = name.to_str().expect("names are ASCII").to_owned();
            *questions.lock().expect("nothing panics here").entry(name).or_default() += 1;
        };
        install(count, &[]).expect("the process has no driver");
        for _ in 0..3 {
            for function in Function::all() {
                let _ = function.is_available();
            }
            // SAFETY: a missing function never receives its arguments.
            let _ = unsafe { cuda_sys::cuGreenCtxCreate(null_mut(), null_mut(), 0, 0) };
            cuda_safe::init().expect("it starts");
        }
        let asked = asked.lock().expect("nothing panics here");
        assert_eq!(asked.len(), 723);
        assert!(asked.values().all(|times| *times == 1), "{asked:?}");
    });
}

#[test]
fn a_function_that_the_source_lacks_is_missing() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        install(no_hook, &[]).expect("the process has no driver");
        // SAFETY: a missing function never receives its arguments.
        let newer = unsafe { cuda_sys::cuGreenCtxCreate(null_mut(), null_mut(), 0, 0) };
        assert_eq!(newer, CUresult::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER);
        // SAFETY: as above.
        let absent = unsafe { cuda_sys::cuDeviceGetName(null_mut(), 0, 0) };
        assert_eq!(absent, CUresult::CUDA_ERROR_NOT_FOUND);
    });
}

#[test]
fn a_source_without_a_version_is_accepted() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        install(no_hook, &["cuDriverGetVersion"]).expect("the process has no driver");
        let create = Function::find("cuGreenCtxCreate").expect("a symbol of the headers");
        let Err(Unavailable::Missing(missing)) = create.address() else {
            panic!("there is none");
        };
        assert_eq!(missing.driver, None);
        assert!(!missing.needs_newer_driver());
        let text = "the installed source of functions has no cuGreenCtxCreate";
        assert_eq!(missing.to_string(), text);
        // SAFETY: a missing function never receives its arguments.
        let code = unsafe { cuda_sys::cuGreenCtxCreate(null_mut(), null_mut(), 0, 0) };
        assert_eq!(code, CUresult::CUDA_ERROR_NOT_FOUND);
        let version = cuda_sys::driver_version().expect("there is a source");
        assert_eq!(version, CudaVersion::BINDINGS);
    });
}

#[test]
fn a_second_source_is_refused_and_the_first_remains() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        install(no_hook, &[]).expect("the process has no driver");
        // A second source is refused even before the first function is used.
        let owned = Arc::new(());
        let captured = Arc::clone(&owned);
        let never = move |_: &CStr| panic!("a refused source was used: {captured:?}");
        let refused = install(never, &[]).expect_err("the process has a driver");
        assert!(matches!(refused, InstallError::InUse), "{refused:?}");
        let text = refused.to_string();
        assert!(text.contains("before its first use"), "{text}");
        assert_eq!(Arc::strong_count(&owned), 1, "the refused one is dropped");
        assert_eq!(Device::count().expect("devices"), 3);
    });
}

#[test]
fn install_after_the_first_use_is_refused() {
    let driver = or_skip!(fakes::build("no_gpu"));
    in_child(&[(VARIABLE, &driver)], || {
        // SAFETY: `cuInit` takes no pointer.
        let before = unsafe { cuda_sys::cuInit(0) };
        let refused = install(no_hook, &[]).expect_err("the process has a driver");
        assert!(matches!(refused, InstallError::InUse), "{refused:?}");
        // SAFETY: `cuInit` takes no pointer.
        let after = unsafe { cuda_sys::cuInit(0) };
        assert_eq!((before.0, after.0), (100, 100));
    });
}

#[test]
fn the_closure_may_call_the_driver_itself() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        // During the look-up of one function, the source calls another one, looks up a missing one,
        // and asks for the version. A lock around the look-up would already be held.
        let hook = |name: &CStr| {
            if name == c"cuDeviceGetCount" {
                // SAFETY: `cuInit` takes no pointer.
                assert!(unsafe { cuda_sys::cuInit(0) }.is_success());
                let create = Function::find("cuGreenCtxCreate").expect("a symbol");
                assert!(!create.is_available());
                assert!(cuda_sys::driver_version().is_ok());
                assert!(cuda_sys::load().is_ok());
            }
        };
        install(hook, &[]).expect("the process has no driver");
        let mut count = 0;
        // SAFETY: the pointer refers to an i32.
        let code = unsafe { cuda_sys::cuDeviceGetCount(&raw mut count) };
        assert_eq!((code, count), (CUresult::CUDA_SUCCESS, DEVICES));
    });
}

#[test]
fn no_function_is_called_after_close() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        install(no_hook, &[]).expect("the process has no driver");
        let count = || {
            let mut count = 0;
            // SAFETY: the pointer refers to an i32.
            let code = unsafe { cuda_sys::cuDeviceGetCount(&raw mut count) };
            (code, count)
        };
        assert_eq!(count(), (CUresult::CUDA_SUCCESS, DEVICES));
        cuda_sys::close();
        let closed = CUresult::CUDA_ERROR_NOT_INITIALIZED;
        assert_eq!(count(), (closed, 0));
        // This also holds after a look-up of its address, and for functions that were never called
        // before.
        let function = Function::find("cuDeviceGetCount").expect("in the headers");
        function.address().expect("it exists");
        assert_eq!(count(), (closed, 0));
        // SAFETY: the function has no parameters.
        assert_eq!(unsafe { cuda_sys::cuProfilerStart() }, closed);
    });
}
