//! The functions that the library returns by name and version, and the crates of this workspace
//! running on it.

use crate::common::child::in_child;
use crate::{driver, or_skip};
use cuda_sys::{
    CUdriverProcAddressQueryResult as Status, CUresult, CudaVersion, Function, abi, cuGetErrorName,
    cuGetErrorString, cuGetProcAddress_v2,
};
use std::ffi::{CStr, CString, c_void};
use std::ptr::{NonNull, dangling_mut, null, null_mut};

/// Runs `body` in a child process, on the driver with this profile.
#[track_caller]
pub(crate) fn on(profile: &str, body: impl FnOnce()) {
    let folder = or_skip!(driver());
    let library = folder.join("libcuda.so.1");
    let library = library.to_str().expect("UTF-8 paths");
    in_child(&[("CUDA_SYS_LIBRARY", library), ("CUDA_SIM", profile)], body);
}

const DEFAULT: u64 = 0;
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;

/// Returns the symbol that the driver gives, its status if it gives none, or its code if it fails.
fn look_up(base: &str, version: i32, flags: u64) -> Result<Result<&'static str, Status>, CUresult> {
    let name = CString::new(base).expect("a name without NUL");
    let (mut address, mut status) = (dangling_mut::<c_void>(), Status(99));
    // SAFETY: the name ends with a NUL, and the other pointers refer to local variables of their
    // types.
    let code = unsafe {
        cuGetProcAddress_v2(name.as_ptr(), &raw mut address, version, flags, &raw mut status)
    };
    if code != CUresult::CUDA_SUCCESS {
        assert_eq!((address, status), (dangling_mut(), Status(99)));
        return Err(code);
    }
    Ok(match NonNull::new(address) {
        None => Err(status),
        Some(address) => {
            assert_eq!(status, Status::CU_GET_PROC_ADDRESS_SUCCESS);
            Ok(symbol_at(address))
        }
    })
}

/// Returns the symbol that the library exports at an address.
fn symbol_at(address: NonNull<c_void>) -> &'static str {
    let mut all = Function::all();
    let it = all.find(|function| function.address().is_ok_and(|its| its == address));
    it.expect("an exported function").symbol()
}

const NOT_FOUND: Status = Status::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
const NOT_SUFFICIENT: Status = Status::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;

/// Checks that each function of the driver is found by its base name, version and stream mode, and
/// that no other is.
fn the_table_holds(driver: i32) {
    for function in Function::all() {
        let flags = match function.is_per_thread() {
            true => PER_THREAD,
            false => LEGACY,
        };
        let since = function.since().number();
        let is_there = since <= driver;
        assert_eq!(function.is_available(), is_there, "{function:?}");
        let asked = since.min(driver);
        let found = look_up(function.base(), asked, flags).expect("a version of the driver's");
        assert_eq!(found == Ok(function.symbol()), is_there, "{function:?}: {found:?}");
    }
}

/// Looks up names that both drivers answer in the same way.
fn what_all_drivers_answer() {
    let ok = [
        ("cuMemAlloc", 2000, DEFAULT, "cuMemAlloc"),
        ("cuMemAlloc", 3010, LEGACY, "cuMemAlloc"),
        ("cuMemAlloc", 3020, DEFAULT, "cuMemAlloc_v2"),
        ("cuMemAlloc", 12040, DEFAULT, "cuMemAlloc_v2"),
        ("cuCtxCreate", 3000, DEFAULT, "cuCtxCreate"),
        ("cuCtxCreate", 11030, DEFAULT, "cuCtxCreate_v2"),
        ("cuCtxCreate", 12040, DEFAULT, "cuCtxCreate_v3"),
        ("cuMemcpyHtoD", 12000, LEGACY, "cuMemcpyHtoD_v2"),
        ("cuMemcpyHtoD", 12000, PER_THREAD, "cuMemcpyHtoD_v2_ptds"),
        ("cuMemcpyHtoD", 6050, PER_THREAD, "cuMemcpyHtoD_v2"),
        ("cuStreamQuery", 7000, PER_THREAD, "cuStreamQuery_ptsz"),
        ("cuStreamQuery", 7000, 3, "cuStreamQuery_ptsz"),
        ("cuMemAlloc", 12000, PER_THREAD, "cuMemAlloc_v2"),
        ("cuGetProcAddress", 11030, DEFAULT, "cuGetProcAddress"),
        ("cuGetProcAddress", 12000, DEFAULT, "cuGetProcAddress_v2"),
        ("cuGetErrorString", 6000, DEFAULT, "cuGetErrorString"),
    ];
    for (base, version, flags, symbol) in ok {
        let found = look_up(base, version, flags);
        assert_eq!(found, Ok(Ok(symbol)), "{base} {version} {flags}");
    }
    let none = [
        ("cuMemAlloc_v2", 12000, NOT_FOUND),
        ("cuMemcpyHtoD_v2_ptds", 12000, NOT_FOUND),
        ("cuMem", 12000, NOT_FOUND),
        ("", 12000, NOT_FOUND),
        ("malloc", 12000, NOT_FOUND),
        ("cuGreenCtxCreate", 12030, NOT_SUFFICIENT),
        ("cuMemAllocAsync", 11010, NOT_SUFFICIENT),
        ("cuDevSmResourceSplit", 12040, NOT_FOUND),
    ];
    for (base, version, status) in none {
        assert_eq!(look_up(base, version, DEFAULT), Ok(Err(status)), "{base}");
    }
    let invalid = Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    assert_eq!(look_up("cuInit", 12000, 4), invalid);

    let mut address = null_mut();
    // SAFETY: the driver rejects a null name.
    let code = unsafe { cuGetProcAddress_v2(null(), &raw mut address, 12000, DEFAULT, null_mut()) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
    // SAFETY: the status may be null.
    let code = unsafe {
        cuGetProcAddress_v2(c"cuInit".as_ptr(), &raw mut address, 12000, DEFAULT, null_mut())
    };
    assert_eq!(code, CUresult::CUDA_SUCCESS);
    assert_eq!(NonNull::new(address).map(symbol_at), Some("cuInit"));
}

/// Checks the first ABI, which has no status: a missing function is an error, and the output is
/// unchanged.
fn the_first_abi_agrees() {
    for (base, version, expected) in [
        (c"cuCtxCreate", 11030, Ok("cuCtxCreate_v2")),
        (c"cuCtxCreate_v2", 11030, Err(CUresult::CUDA_ERROR_NOT_FOUND)),
        (c"cuGreenCtxCreate", 12030, Err(CUresult::CUDA_ERROR_NOT_FOUND)),
    ] {
        let mut address = dangling_mut();
        // SAFETY: the name ends with a NUL, and the pointer refers to a local variable.
        let code =
            unsafe { abi::cuGetProcAddress(base.as_ptr(), &raw mut address, version, DEFAULT) };
        let found = match code {
            CUresult::CUDA_SUCCESS => NonNull::new(address).map(symbol_at).ok_or(code),
            code => {
                assert_eq!(address, dangling_mut());
                Err(code)
            }
        };
        assert_eq!(found, expected, "{base:?}");
    }
}

#[test]
fn a_driver_for_13_0_returns_the_same_functions_as_580() {
    on("h200@13.0", || {
        the_table_holds(13000);
        what_all_drivers_answer();
        the_first_abi_agrees();
        let is = |base, version, symbol| {
            assert_eq!(look_up(base, version, DEFAULT), Ok(Ok(symbol)), "{base}");
        };
        is("cuCtxCreate", 12050, "cuCtxCreate_v4");
        is("cuCtxGetDevice", 12090, "cuCtxGetDevice");
        is("cuCtxGetDevice", 13000, "cuCtxGetDevice_v2");
        // A version newer than its own is refused for any name.
        for base in ["cuInit", "cuDevSmResourceSplit", "malloc"] {
            let found = look_up(base, 13010, DEFAULT);
            assert_eq!(found, Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        }
    });
}

#[test]
fn a_driver_for_12_4_returns_an_older_function_for_a_newer_version() {
    on("h200@12.4", || {
        the_table_holds(12040);
        what_all_drivers_answer();
        the_first_abi_agrees();
        for (base, version, symbol) in [
            ("cuCtxCreate", 12050, "cuCtxCreate_v3"),
            ("cuStreamGetCtx", 12050, "cuStreamGetCtx"),
            ("cuCtxGetDevice", 13050, "cuCtxGetDevice"),
        ] {
            assert_eq!(look_up(base, version, DEFAULT), Ok(Ok(symbol)));
        }
        let found = look_up("cuGreenCtxStreamCreate", 12050, DEFAULT);
        assert_eq!(found, Ok(Err(NOT_FOUND)));
    });
}

#[test]
fn the_crates_of_this_workspace_run_on_the_library() {
    on("h200", || {
        let device = cuda_safe::Device::get(0).expect("a device");
        assert_eq!(device.name().expect("its name"), "NVIDIA H200");
        let version = cuda_safe::version().expect("a driver");
        assert_eq!(version, CudaVersion::new(13, 0));
        let context = cuda_safe::Context::primary(&device).expect("the primary context");
        drop(context);
    });
}

/// The texts of real drivers, with which `tests/drivers` compares them.
const TEXTS: &str = include_str!("../../cuda-sim/cdylib/src/error_texts.txt");

#[test]
fn every_code_has_the_text_of_a_real_driver() {
    on("h200", || {
        let mut texts = TEXTS.lines().filter_map(|line| line.split_once(' '));
        for number in 0..2000 {
            let code = CUresult(number);
            let mut place = dangling_mut::<i8>().cast_const().cast();
            // SAFETY: the pointer refers to a pointer.
            let answer = unsafe { cuGetErrorString(code, &raw mut place) };
            assert_eq!(answer.is_success(), code.name().is_some(), "{code}");
            assert_eq!(answer.is_success(), !place.is_null(), "{code}");
            let expected = texts.clone().next();
            if let Some((_, expected)) = expected.filter(|it| it.0 == number.to_string()) {
                // SAFETY: the driver returns a text that ends with a NUL.
                let told = unsafe { CStr::from_ptr(place) };
                assert_eq!(told.to_str(), Ok(expected), "{code}");
                texts.next();
            }
        }
        assert_eq!(texts.next(), None, "a code that the library does not know");
    });
}

#[test]
fn every_code_has_its_name() {
    on("h200", || {
        for number in 0..2000 {
            let code = CUresult(number);
            let mut place = dangling_mut::<i8>().cast_const().cast();
            // SAFETY: the pointer refers to a pointer.
            let answer = unsafe { cuGetErrorName(code, &raw mut place) };
            let told = (!place.is_null()).then(|| {
                // SAFETY: the driver returns a text that ends with a NUL.
                let told = unsafe { CStr::from_ptr(place) };
                told.to_str().expect("ASCII")
            });
            assert_eq!(told, code.name());
            assert_eq!(answer.is_success(), told.is_some());
        }
    });
}
