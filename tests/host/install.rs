//! Another source of functions in the driver's place.

use crate::common::child::in_child;
use crate::fakes::{self, NOWHERE, VARIABLE};
use crate::need;
use crate::software::{self, DEVICES};
use core::ffi::CStr;
use cuda_safe::Device;
use cuda_sys::{CUresult, CudaVersion, Function, InstallError, Unavailable};
use std::collections::BTreeMap;
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex};

/// Installs the driver of [`software`], with `hook` called for each question; the names of
/// `without` are not answered.
fn install(
    hook: impl Fn(&CStr) + Send + Sync + 'static,
    without: &'static [&str],
) -> Result<(), InstallError> {
    // SAFETY: each address is a function of the type of its name, as software::find has them.
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
        // SAFETY: the pointer is to an i32.
        let code = unsafe { cuda_sys::cuDeviceGetCount(&raw mut count) };
        assert_eq!((code, count), (CUresult::CUDA_SUCCESS, DEVICES));
        // SAFETY: the function takes nothing.
        let code = unsafe { cuda_sys::cuProfilerStart() };
        assert_eq!(code, CUresult::CUDA_ERROR_NOT_READY);
        assert_eq!(Device::all().expect("devices").len(), 3);
        let version = cuda_sys::driver_version().expect("it tells");
        assert_eq!(version, CudaVersion::new(12, 2));

        for function in Function::all() {
            let given = software::find(function.symbol_c());
            let found = function
                .address()
                .map_or(null(), |address| address.as_ptr());
            assert_eq!(found, given, "{function:?}");
        }
    });
}

#[test]
fn a_source_without_a_function_may_say_that_it_is_not_supported() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        let find = |name: &CStr| {
            let function = name.to_str().ok().and_then(Function::find);
            function.map_or(null(), Function::not_supported)
        };
        // SAFETY: each address is a function of the type of its name, which does nothing.
        unsafe { cuda_sys::install(find) }.expect("the process has no driver");
        for function in Function::all() {
            let given = function.not_supported();
            let found = function.address().expect("there is one");
            assert_eq!(found.as_ptr().cast_const(), given, "{function:?}");
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
fn each_symbol_is_asked_for_once_found_or_not() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        let asked = Arc::new(Mutex::new(BTreeMap::<String, u32>::new()));
        let questions = Arc::clone(&asked);
        let count = move |name: &CStr| {
            let name = name.to_str().expect("names are ASCII").to_owned();
            *questions
                .lock()
                .expect("nobody panics here")
                .entry(name)
                .or_default() += 1;
        };
        install(count, &[]).expect("the process has no driver");
        for _ in 0..3 {
            for function in Function::all() {
                let _ = function.is_available();
            }
            // SAFETY: a function that is not there does not get its arguments.
            let _ = unsafe { cuda_sys::cuGreenCtxCreate(null_mut(), null_mut(), 0, 0) };
            cuda_safe::init().expect("it starts");
        }
        let asked = asked.lock().expect("nobody panics here");
        assert_eq!(asked.len(), 723);
        assert!(asked.values().all(|times| *times == 1), "{asked:?}");
    });
}

#[test]
fn what_the_source_does_not_have_is_missing() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        install(no_hook, &[]).expect("the process has no driver");
        // SAFETY: a function that is not there does not get its arguments.
        let newer = unsafe { cuda_sys::cuGreenCtxCreate(null_mut(), null_mut(), 0, 0) };
        assert_eq!(newer, CUresult::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER);
        // SAFETY: as above.
        let absent = unsafe { cuda_sys::cuDeviceGetName(null_mut(), 0, 0) };
        assert_eq!(absent, CUresult::CUDA_ERROR_NOT_FOUND);
    });
}

#[test]
fn a_source_need_not_tell_its_version() {
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
        // SAFETY: a function that is not there does not get its arguments.
        let code = unsafe { cuda_sys::cuGreenCtxCreate(null_mut(), null_mut(), 0, 0) };
        assert_eq!(code, CUresult::CUDA_ERROR_NOT_FOUND);
        let version = cuda_sys::driver_version().expect("there is a source");
        assert_eq!(version, CudaVersion::BINDINGS);
    });
}

#[test]
fn a_second_source_is_refused_and_the_first_stays() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        install(no_hook, &[]).expect("the process has no driver");
        // Refused before the first function is used, too.
        let owned = Arc::new(());
        let captured = Arc::clone(&owned);
        let never = move |_: &CStr| panic!("a refused source is asked: {captured:?}");
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
    let driver = need!(fakes::build("no_gpu"));
    in_child(&[(VARIABLE, &driver)], || {
        // SAFETY: cuInit takes no pointer.
        let before = unsafe { cuda_sys::cuInit(0) };
        let refused = install(no_hook, &[]).expect_err("the process has a driver");
        assert!(matches!(refused, InstallError::InUse), "{refused:?}");
        // SAFETY: cuInit takes no pointer.
        let after = unsafe { cuda_sys::cuInit(0) };
        assert_eq!((before.0, after.0), (100, 100));
    });
}

#[test]
fn the_closure_may_call_the_driver_itself() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        // On the way to one function the source calls another, asks for a third, which is not
        // there, and for the version: a lock around it would be held already.
        let hook = |name: &CStr| {
            if name == c"cuDeviceGetCount" {
                // SAFETY: cuInit takes no pointer.
                assert!(unsafe { cuda_sys::cuInit(0) }.is_success());
                let create = Function::find("cuGreenCtxCreate").expect("a symbol");
                assert!(!create.is_available());
                assert!(cuda_sys::driver_version().is_ok());
                assert!(cuda_sys::load().is_ok());
            }
        };
        install(hook, &[]).expect("the process has no driver");
        let mut count = 0;
        // SAFETY: the pointer is to an i32.
        let code = unsafe { cuda_sys::cuDeviceGetCount(&raw mut count) };
        assert_eq!((code, count), (CUresult::CUDA_SUCCESS, DEVICES));
    });
}

#[test]
fn nothing_is_called_once_all_is_closed() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        install(no_hook, &[]).expect("the process has no driver");
        let count = || {
            let mut count = 0;
            // SAFETY: the pointer is to an i32.
            let code = unsafe { cuda_sys::cuDeviceGetCount(&raw mut count) };
            (code, count)
        };
        assert_eq!(count(), (CUresult::CUDA_SUCCESS, DEVICES));
        cuda_sys::close();
        let closed = CUresult::CUDA_ERROR_NOT_INITIALIZED;
        assert_eq!(count(), (closed, 0));
        // Not after somebody has asked where it is either, nor what was never called before.
        let function = Function::find("cuDeviceGetCount").expect("in the headers");
        function.address().expect("it is there");
        assert_eq!(count(), (closed, 0));
        // SAFETY: the function takes nothing.
        assert_eq!(unsafe { cuda_sys::cuProfilerStart() }, closed);
    });
}
