//! Real drivers of many versions, which `cargo xtask drivers` downloads. Each driver must agree
//! with the table of functions, and without a GPU each must fail cleanly.
//!
//! A run lists the drivers with the results for each.

#[path = "../common/mod.rs"]
mod common;

use common::child::in_child;
use cuda_safe::Error;
use cuda_sys::{
    CUdriverProcAddressQueryResult, CUresult, CudaVersion, Function, cuGetErrorString,
    cuGetProcAddress_v2, cuInit,
};
use std::ffi::{CStr, CString};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The path of the driver that a child process checks.
const DRIVER: &str = "CUDA_TESTS_DRIVER";
/// The path of the file that a child process writes its line to.
const REPORT: &str = "CUDA_TESTS_REPORT";

#[test]
fn every_driver_has_the_functions_of_its_version_and_no_others() {
    let mut drivers = drivers();
    if drivers.is_empty() {
        return common::skip("no drivers in target/drivers; `cargo xtask drivers` fetches them");
    }
    // A child process checks one driver, because a process can open only one.
    if let Some(one) = std::env::var_os(DRIVER) {
        drivers.retain(|driver| *driver == Path::new(&one));
    }
    for folder in &drivers {
        let report = report_of(folder);
        // An error means that no file is left from an earlier run.
        let _ = fs::remove_file(&report);
        let mut search = folder.clone().into_os_string();
        if let Some(inherited) = std::env::var_os("LD_LIBRARY_PATH") {
            search.push(":");
            search.push(inherited);
        }
        in_child(
            &[
                (DRIVER, text(folder)),
                (REPORT, text(&report)),
                ("CUDA_SYS_LIBRARY", text(&folder.join("libcuda.so.1"))),
                // Some drivers are linked against a library in the same folder.
                ("LD_LIBRARY_PATH", text(Path::new(&search))),
            ],
            || look_at(folder),
        );
        if std::env::var_os(REPORT).is_none() {
            let line = fs::read_to_string(&report).expect("the child wrote its line");
            // Bypasses the output capture of the test harness, like the list of skips.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
}

/// Returns the folders of the drivers, oldest first.
fn drivers() -> Vec<PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/drivers");
    let Ok(entries) = fs::read_dir(all) else {
        return Vec::new();
    };
    let mut folders: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|folder| folder.join("libcuda.so.1").is_file())
        .collect();
    folders.sort_by_key(|folder| version_in(folder));
    folders
}

/// Returns the version in a folder's name, such as 12.4 for `12.4-550.163.01`.
fn version_in(folder: &Path) -> CudaVersion {
    let (cuda, _) = name(folder).split_once('-').expect("a folder is named CUDA-DRIVER");
    cuda.parse().expect("a folder's name begins with a CUDA version")
}

fn name(folder: &Path) -> &str {
    let name = folder.file_name().expect("a folder of target/drivers");
    name.to_str().expect("xtask gives ASCII names")
}

fn report_of(folder: &Path) -> PathBuf {
    common::scratch().join(format!("driver-{}", name(folder)))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the environment of a child takes UTF-8 paths")
}

/// The texts of error codes that the software driver has, one code a line.
const TEXTS: &str = include_str!("../../cuda-sim/cdylib/src/error_texts.txt");

/// Checks that the driver has the same text as the software driver for each code that both know.
fn error_texts() -> String {
    let mut agree = 0;
    for (number, expected) in TEXTS.lines().filter_map(|line| line.split_once(' ')) {
        let code = CUresult(number.parse().expect("a code"));
        let mut text = std::ptr::null();
        // SAFETY: the pointer refers to a local variable.
        if unsafe { cuGetErrorString(code, &raw mut text) }.is_success() {
            // SAFETY: the driver returns a text that ends with a NUL.
            let text = unsafe { CStr::from_ptr(text) };
            assert_eq!(text.to_str(), Ok(expected), "{code}");
            agree += 1;
        }
    }
    format!("{agree} error texts")
}

/// In the child process: compares the driver with the table and writes the line.
fn look_at(folder: &Path) {
    let version = version_in(folder);
    assert_eq!(cuda_sys::driver_version().expect("the driver opens"), version);
    assert_eq!(cuda_safe::version().expect("the driver opens"), version);

    let found = Function::all().filter(|function| function.is_available());
    let found = found.count();
    let wrong: Vec<Function> = Function::all()
        .filter(|function| function.is_available() != expected(*function, version))
        .collect();
    let start = without_a_gpu();
    let looked_up = by_version(version);
    // Older drivers had other texts for some codes.
    let texts = match version < CudaVersion::new(11, 0) {
        true => "error texts not compared".to_owned(),
        false => error_texts(),
    };
    let line = format!(
        "driver {} (CUDA {version}): {found} functions found, {} wrong answers; {looked_up}; {texts}; {start}",
        name(folder),
        wrong.len()
    );
    let report = std::env::var_os(REPORT).expect("set by the parent");
    fs::write(report, &line).expect("writing the line");
    assert!(wrong.is_empty(), "{line}: {wrong:?}");
}

/// Returns what the table says. NVIDIA checks its own table only from 11.0 on, but the table holds
/// for 6.5, 9.1 and 10.1 too, so the same is required of them.
fn expected(function: Function, version: CudaVersion) -> bool {
    match function.symbol() {
        // Available on Tegra only.
        "cuEventCreateFromEGLSync" => false,
        // Available on Windows only. Newer Linux drivers export it without a function.
        "cuDeviceGetLuid" => function.is_available(),
        _ => function.since() <= version,
    }
}

/// Checks that the driver's look-up returns the same function as the exact name. This shows that
/// the base name, the version and the stream mode of each function are right, and that the crate's
/// fallback finds the right ABI.
fn by_version(version: CudaVersion) -> String {
    if version < CudaVersion::new(12, 0) {
        return "no look-up by version".to_owned();
    }
    let mut agree = 0;
    for function in Function::all().filter(|function| function.is_available()) {
        let base = CString::new(function.base()).expect("a name without NUL");
        let mut address = std::ptr::null_mut();
        let mut status = CUdriverProcAddressQueryResult::default();
        // SAFETY: the name ends with a NUL, and the other pointers refer to local variables of
        // their types.
        let result = unsafe {
            cuGetProcAddress_v2(
                base.as_ptr(),
                &raw mut address,
                function.since().number(),
                if function.is_per_thread() { 2 } else { 1 },
                &raw mut status,
            )
        };
        let exact = function.address().expect("available").as_ptr();
        assert_eq!(
            (result, status.0, address),
            (CUresult::CUDA_SUCCESS, 0, exact),
            "{function:?} by version"
        );
        agree += 1;
    }
    format!("{agree} the same by version")
}

/// Calls `cuInit` on a machine without a GPU, raw and through cuda-safe.
fn without_a_gpu() -> String {
    // SAFETY: `cuInit` takes no pointer.
    let code = unsafe { cuInit(0) };
    let safe = cuda_safe::init();
    match (&safe, code) {
        (Err(Error::NoDevice), CUresult::CUDA_ERROR_NO_DEVICE)
        | (Ok(()), CUresult::CUDA_SUCCESS) => {}
        (Err(Error::Driver(error)), code) => assert_eq!((error.call, error.code), ("cuInit", code)),
        (safe, code) => panic!("cuInit answers {code}, and cuda-safe {safe:?}"),
    }
    // With a kernel driver of another version any error is accepted. Without a kernel driver the
    // answer is "no device", for which the 390 branch has no code.
    let has_kernel_driver = Path::new("/proc/driver/nvidia/version").exists();
    let no_device = [CUresult::CUDA_ERROR_NO_DEVICE, CUresult::CUDA_ERROR_UNKNOWN];
    assert!(has_kernel_driver || no_device.contains(&code), "{code}");
    format!("cuInit: {code:?} ({})", code.0)
}
