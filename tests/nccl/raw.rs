//! The raw functions.

use crate::common::child::in_child;
use crate::machine::streams;
use cuda_nccl::{Error, NcclVersion, sys};

#[test]
fn every_function_has_a_version_and_old_ones_exist() {
    or_skip!(streams(1));
    assert_eq!(sys::since("ncclAllReduce"), Some(NcclVersion::new(2, 0, 0)));
    assert_eq!(sys::since("ncclCommSplit"), Some(NcclVersion::new(2, 18, 1)));
    assert_eq!(sys::since("cuInit"), None);
    let version = cuda_nccl::version().expect("a library");
    for function in [c"ncclAllReduce", c"ncclCommSplit", c"ncclCommAbort", c"ncclGetLastError"] {
        sys::NCCL.symbol(function).unwrap_or_else(|error| panic!("{version}: {error}"));
    }
}

/// The library of the package whose header was bound. `cargo xtask regen-bindings` downloads it.
const NEWEST: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/target/nccl/nvidia/nccl/lib/libnccl.so.2");

#[test]
fn the_newest_library_has_every_function() {
    if cfg!(not(target_arch = "x86_64")) || !std::path::Path::new(NEWEST).exists() {
        return crate::common::skip("`cargo xtask regen-bindings` downloads the newest NCCL");
    }
    in_child(&[("CUDA_NCCL_LIBRARY", NEWEST)], || {
        assert_eq!(cuda_nccl::version().expect("a library"), NcclVersion::BINDINGS);
        let mut count = 0;
        for (function, since) in sys::functions() {
            assert!(since <= NcclVersion::BINDINGS);
            let name = std::ffi::CString::new(function).expect("no NUL");
            sys::NCCL.symbol(&name).unwrap_or_else(|error| panic!("{error}"));
            count += 1;
        }
        assert!(count > 70, "{count}");
    });
}

#[test]
fn a_missing_library_is_an_error_that_lists_the_places() {
    in_child(&[("CUDA_NCCL_LIBRARY", "/nowhere/libnccl.so.2")], || {
        let error = cuda_nccl::version().expect_err("there is no such file");
        let Error::Load(load) = &error else {
            panic!("{error}");
        };
        assert_eq!(load.tried().len(), 1);
        let text = error.to_string();
        assert!(text.contains("/nowhere/libnccl.so.2"), "{text}");
        assert!(text.contains("CUDA_NCCL_LIBRARY") && text.contains("nvidia-nccl-cu13"), "{text}");
    });
}

#[test]
fn the_search_finds_packages_of_python() {
    let folder = crate::common::scratch().join(format!("nccl-search-{}", std::process::id()));
    let packages = folder.join("lib/python3.99/site-packages");
    let library = packages.join("nvidia/nccl/lib/libnccl.so.2");
    std::fs::create_dir_all(library.parent().expect("a folder")).expect("a folder");
    std::fs::write(&library, "not a library").expect("a file");
    in_child(&[("VIRTUAL_ENV", &folder.display().to_string())], || {
        // Another NCCL may be found first, and then there is no error.
        if let Err(Error::Load(error)) = cuda_nccl::version() {
            let environment = std::env::var("VIRTUAL_ENV").expect("set");
            let mut tried = error.tried().iter().map(|attempt| attempt.path.display().to_string());
            let wanted =
                format!("{environment}/lib/python3.99/site-packages/nvidia/nccl/lib/libnccl.so.2");
            assert!(tried.any(|path| path == wanted), "{error}");
        }
    });
    let _ = std::fs::remove_dir_all(folder);
}
