//! The raw functions, and how the libraries are found.

use crate::common::child::in_child;
use crate::libraries;
use crate::or_skip;
use cuda_nvrtc::sys::{
    NVJITLINK, NVRTC, nvJitLinkResult, nvJitLinkVersion, nvrtcResult, nvrtcVersion, since,
};
use cuda_sys::{CudaVersion, SymbolError};
use std::fs;

#[test]
fn both_libraries_report_their_version() {
    or_skip!(libraries::nvrtc());
    or_skip!(libraries::nvjitlink());
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both pointers are valid for writes.
    let code = unsafe { nvrtcVersion(&raw mut major, &raw mut minor) };
    assert_eq!(code.expect("NVRTC"), nvrtcResult::NVRTC_SUCCESS);
    assert!((major, minor) >= (11, 2), "{major}.{minor}");

    let (mut linker, mut minor) = (0, 0);
    // SAFETY: both pointers are valid for writes.
    let code = unsafe { nvJitLinkVersion(&raw mut linker, &raw mut minor) };
    assert_eq!(code.expect("nvJitLink"), nvJitLinkResult::NVJITLINK_SUCCESS);
    assert_eq!(linker, major.unsigned_abs());
}

#[test]
fn the_pinned_libraries_have_every_function() {
    or_skip!(libraries::nvrtc());
    or_skip!(libraries::nvjitlink());
    or_skip!(libraries::pinned("libnvrtc.so.13"));
    let rows = [
        (include_str!("../../cuda-nvrtc/src/sys/bindings/nvrtc.rs"), &NVRTC),
        (include_str!("../../cuda-nvrtc/src/sys/bindings/nvjitlink.rs"), &NVJITLINK),
    ];
    for (rows, library) in rows {
        let mut count = 0;
        for line in rows.lines().map(str::trim).filter(|line| line.starts_with('(')) {
            let (_, rest) = line.split_once(") ").expect("a version");
            let (name, _) = rest.split_once('(').expect("parameters");
            let symbol = std::ffi::CString::new(name).expect("a name");
            library.symbol(&symbol).expect(name);
            assert!(since(name).is_some(), "{name}");
            count += 1;
        }
        assert!(count > 14, "{count}");
    }
    assert_eq!(since("nvrtcGetTileIR"), Some(CudaVersion::new(13, 2)));
    assert_eq!(since("nvrtcFly"), None);
}

#[test]
fn the_environment_variable_names_the_only_file_to_try() {
    in_child(&[("CUDA_NVRTC_LIBRARY", "/nowhere/libnvrtc.so")], || {
        let error = NVRTC.load().expect_err("there is no such file");
        assert_eq!(error.tried().len(), 1, "{error}");
        assert!(error.to_string().contains("/nowhere/libnvrtc.so"), "{error}");
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_library_in_the_packages_of_a_python_environment_is_found() {
    let pinned = or_skip!(libraries::pinned("libnvrtc.so.13"));
    let scratch = crate::common::scratch().join("python-environment");
    let packages = scratch.join("lib/python3.11/site-packages/nvidia");
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&packages).expect("creating a folder");
    let toolkit = pinned.ancestors().nth(2).expect("the folder cu13");
    std::os::unix::fs::symlink(toolkit, packages.join("cu13")).expect("creating a link");

    let environment = scratch.to_str().expect("UTF-8");
    let variables = [
        ("VIRTUAL_ENV", environment),
        ("CUDA_NVRTC_LIBRARY", ""),
        ("CUDA_HOME", ""),
        ("CUDA_PATH", ""),
        ("CONDA_PREFIX", ""),
        ("LD_LIBRARY_PATH", ""),
    ];
    in_child(&variables, || {
        // A machine may have a library where the linker finds it.
        NVRTC.load().expect("the package is found");
        let path = NVRTC.path().expect("it is open");
        assert!(path.starts_with(&scratch) || !path.is_absolute(), "{path:?}");
    });
}

#[test]
fn the_error_of_a_missing_library_lists_the_places() {
    let home = crate::common::scratch().join("an-empty-toolkit");
    fs::create_dir_all(&home).expect("creating a folder");
    let variables = [
        ("CUDA_HOME", home.to_str().expect("UTF-8")),
        ("CUDA_NVRTC_LIBRARY", ""),
        ("CUDA_PATH", ""),
        ("CONDA_PREFIX", ""),
        ("VIRTUAL_ENV", ""),
        ("PYTHONPATH", ""),
        ("PATH", ""),
        ("HOME", ""),
        ("LD_LIBRARY_PATH", ""),
    ];
    in_child(&variables, || {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are valid for writes.
        match unsafe { nvrtcVersion(&raw mut major, &raw mut minor) } {
            Err(SymbolError::Load(error)) => {
                let text = error.to_string();
                assert!(text.contains("an-empty-toolkit"), "{text}");
                assert!(text.contains("libnvrtc.so.11.2") || cfg!(windows), "{text}");
            }
            // This machine has a toolkit in one of the usual folders.
            Ok(_) => assert!(NVRTC.path().is_some()),
            Err(SymbolError::Missing(error)) => panic!("{error}"),
        }
    });
}
