//! Files that are not a driver.

use crate::common::child::in_child;
use crate::fakes::{self, VARIABLE};
use crate::or_skip;
use cuda_sys::{AttemptFailure, CUresult, LoadError};

/// Returns the error of `load` for the file in the variable. A raw call must agree.
fn refusal(path: &str) -> AttemptFailure {
    let error: LoadError = cuda_sys::load().expect_err("no driver");
    // SAFETY: `cuInit` takes no pointer.
    let code = unsafe { cuda_sys::cuInit(0) };
    assert_eq!(code, CUresult::CUDA_ERROR_NOT_INITIALIZED);
    assert_eq!(error.tried().len(), 1);
    assert_eq!(error.tried()[0].path.to_str(), Some(path));
    assert!(error.to_string().contains(path), "{error}");
    assert!(!error.is_stub());
    error.tried()[0].failure.clone()
}

#[test]
fn a_library_without_driver_functions_is_refused() {
    let library = or_skip!(fakes::build("not_a_driver"));
    in_child(&[(VARIABLE, &library)], || {
        let failure = refusal(&library);
        assert!(matches!(failure, AttemptFailure::NoDriver), "{failure:?}");
        let text = cuda_safe::init().expect_err("no driver").to_string();
        assert!(text.contains("without driver functions"), "{text}");
    });
}

#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn a_system_library_is_refused() {
    in_child(&[(VARIABLE, "libm.so.6")], || {
        let failure = refusal("libm.so.6");
        assert!(matches!(failure, AttemptFailure::NoDriver), "{failure:?}");
    });
}

#[test]
fn a_driver_without_a_version_is_refused() {
    let library = or_skip!(fakes::build("no_version"));
    in_child(&[(VARIABLE, &library)], || {
        match refusal(&library) {
            AttemptFailure::NoVersion(code) => assert_eq!(code, CUresult::CUDA_ERROR_UNKNOWN),
            other => panic!("{other:?}"),
        }
        let text = cuda_safe::init().expect_err("no driver").to_string();
        assert!(text.contains("CUDA_ERROR_UNKNOWN (999)"), "{text}");
    });
}

#[test]
fn a_file_that_is_not_a_library_is_refused() {
    in_child(&[(VARIABLE, file!())], || {
        let failure = refusal(file!());
        assert!(
            matches!(&failure, AttemptFailure::NotOpened(words) if !words.is_empty()),
            "{failure:?}"
        );
    });
}

#[test]
fn a_folder() {
    let folder = fakes::folder();
    let folder = folder.to_str().expect("UTF-8 paths");
    in_child(&[(VARIABLE, folder)], || {
        let failure = refusal(folder);
        assert!(
            matches!(&failure, AttemptFailure::NotOpened(words) if !words.is_empty()),
            "{failure:?}"
        );
    });
}
