//! Real drivers of many ages, as `cargo xtask drivers` fetches them: what the table of functions
//! says of each has to be true, and without a GPU each has to fail cleanly.
//!
//! A run lists the drivers with what was found in each.

#[path = "../common/mod.rs"]
mod common;

use common::child::in_child;
use cuda_safe::Error;
use cuda_sys::{
    CUdriverProcAddressQueryResult, CUresult, CudaVersion, Function, cuGetProcAddress_v2, cuInit,
};
use std::ffi::CString;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Tells a child which of the drivers it looks at.
const DRIVER: &str = "CUDA_TESTS_DRIVER";
/// Tells a child where its line goes.
const REPORT: &str = "CUDA_TESTS_REPORT";

#[test]
fn every_driver_has_the_functions_of_its_version_and_no_others() {
    let mut drivers = drivers();
    if drivers.is_empty() {
        return common::skip("no drivers in target/drivers; `cargo xtask drivers` fetches them");
    }
    // A child looks at one driver: a process has only one.
    if let Some(one) = std::env::var_os(DRIVER) {
        drivers.retain(|driver| *driver == Path::new(&one));
    }
    for folder in &drivers {
        let report = report_of(folder);
        // Where there is none, an earlier run left none.
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
                // Some are linked against a sibling, which lies beside them.
                ("LD_LIBRARY_PATH", text(Path::new(&search))),
            ],
            || look_at(folder),
        );
        if std::env::var_os(REPORT).is_none() {
            let line = fs::read_to_string(&report).expect("the child wrote its line");
            // Past the capture of the test harness, as the list of what was skipped.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
}

/// The folders of the drivers, oldest first.
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

/// 12.4 of `12.4-550.163.01`.
fn version_in(folder: &Path) -> CudaVersion {
    let (cuda, _) = name(folder)
        .split_once('-')
        .expect("a folder is named CUDA-DRIVER");
    cuda.parse()
        .expect("a folder's name begins with a CUDA version")
}

fn name(folder: &Path) -> &str {
    let name = folder.file_name().expect("a folder of target/drivers");
    name.to_str().expect("xtask gives ASCII names")
}

fn report_of(folder: &Path) -> PathBuf {
    common::scratch().join(format!("driver-{}", name(folder)))
}

fn text(path: &Path) -> &str {
    path.to_str()
        .expect("the environment of a child takes UTF-8 paths")
}

/// In the child: holds the driver against the table and writes the line.
fn look_at(folder: &Path) {
    let version = version_in(folder);
    assert_eq!(
        cuda_sys::driver_version().expect("the driver opens"),
        version
    );
    assert_eq!(cuda_safe::version().expect("the driver opens"), version);

    let found = Function::all().filter(|function| function.is_available());
    let found = found.count();
    let wrong: Vec<Function> = Function::all()
        .filter(|function| function.is_available() != expected(*function, version))
        .collect();
    let start = without_a_gpu();
    let looked_up = by_version(version);
    let line = format!(
        "driver {} (CUDA {version}): {found} functions found, {} wrong answers; {looked_up}; {start}",
        name(folder),
        wrong.len()
    );
    let report = std::env::var_os(REPORT).expect("set by the parent");
    fs::write(report, &line).expect("writing the line");
    assert!(wrong.is_empty(), "{line}: {wrong:?}");
}

/// What the table says. NVIDIA checks its own table only from 11.0 on; it holds for 6.5, 9.1 and
/// 10.1 all the same, so nothing less is asked of them.
fn expected(function: Function, version: CudaVersion) -> bool {
    match function.symbol() {
        // Tegra only.
        "cuEventCreateFromEGLSync" => false,
        // Windows only; Linux drivers export it from some point on, without a meaning.
        "cuDeviceGetLuid" => function.is_available(),
        _ => function.since() <= version,
    }
}

/// The driver's own look-up gives what the exact name gives: so the base name, the version and the
/// stream mode of each function are right, and the crate's fallback finds the right ABI.
fn by_version(version: CudaVersion) -> String {
    if version < CudaVersion::new(12, 0) {
        return "no look-up by version".to_owned();
    }
    let mut agree = 0;
    for function in Function::all().filter(|function| function.is_available()) {
        let base = CString::new(function.base()).expect("a name without NUL");
        let mut address = std::ptr::null_mut();
        let mut status = CUdriverProcAddressQueryResult::default();
        // SAFETY: the name ends with a NUL, and the other pointers are to locals of their types.
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

/// `cuInit` on a machine without a GPU, raw and safe.
fn without_a_gpu() -> String {
    // SAFETY: cuInit takes no pointer.
    let code = unsafe { cuInit(0) };
    let safe = cuda_safe::init();
    match (&safe, code) {
        (Err(Error::NoDevice), CUresult::CUDA_ERROR_NO_DEVICE)
        | (Ok(()), CUresult::CUDA_SUCCESS) => {}
        (Err(Error::Driver(error)), code) => assert_eq!((error.call, error.code), ("cuInit", code)),
        (safe, code) => panic!("cuInit answers {code}, and cuda-safe {safe:?}"),
    }
    // Under a kernel driver of another version any refusal will do; without one the answer is
    // "no device", for which the 390 branch has no word.
    let has_kernel_driver = Path::new("/proc/driver/nvidia/version").exists();
    let no_device = [CUresult::CUDA_ERROR_NO_DEVICE, CUresult::CUDA_ERROR_UNKNOWN];
    assert!(has_kernel_driver || no_device.contains(&code), "{code}");
    format!("cuInit: {code:?} ({})", code.0)
}
