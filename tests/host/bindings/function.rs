//! The functions of the driver API as data.

use cuda_sys::{CudaVersion, Function};
use std::collections::HashSet;

fn function(symbol: &str) -> Function {
    Function::find(symbol).unwrap_or_else(|| panic!("{symbol} is a symbol of the headers"))
}

#[test]
fn there_are_723_functions_sorted_by_name() {
    let all = Function::all();
    assert_eq!(all.len(), 723);
    let all: Vec<Function> = all.collect();
    assert_eq!(all.len(), 723);
    for pair in all.windows(2) {
        assert!(pair[0].symbol() < pair[1].symbol(), "{pair:?}");
        assert!(pair[0] < pair[1], "functions compare as their names do");
    }
}

#[test]
fn find_accepts_exact_names() {
    for function in Function::all() {
        assert_eq!(Function::find(function.symbol()), Some(function));
    }
}

#[test]
fn find_accepts_only_exact_names() {
    let names: HashSet<&str> = Function::all().map(Function::symbol).collect();
    for function in Function::all() {
        let symbol = function.symbol();
        let near = [
            format!("{symbol}\0"),
            format!("{symbol} "),
            format!(" {symbol}"),
            format!("{symbol}_"),
            format!("{symbol}_v9"),
            symbol[..symbol.len() - 1].to_owned(),
            symbol[1..].to_owned(),
            symbol.to_lowercase(),
            symbol.to_uppercase(),
        ];
        for name in near {
            // A shorter name may belong to another function.
            let found = Function::find(&name).map(Function::symbol);
            assert_eq!(found, names.get(name.as_str()).copied(), "{name:?}");
        }
    }
    for name in ["", "\0", "cu", "cuda", "cudaMalloc", "zu", "cuMémcpy"] {
        assert_eq!(Function::find(name), None, "{name:?}");
    }
}

#[test]
fn c_names_end_with_one_nul() {
    for function in Function::all() {
        let name = function.symbol_c();
        assert_eq!(name.to_str(), Ok(function.symbol()));
        assert_eq!(name.to_bytes_with_nul().len(), function.symbol().len() + 1, "{function:?}");
    }
}

#[test]
fn names_are_c_names_and_print_unchanged() {
    for function in Function::all() {
        let symbol = function.symbol();
        assert!(symbol.starts_with("cu"), "{symbol}");
        let of_c = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        assert!(symbol.bytes().all(of_c), "{symbol}");
        assert_eq!(format!("{function:?}"), symbol);
    }
}

#[test]
fn base_since_and_stream_mode_of_known_functions() {
    let known = [
        ("cuInit", "cuInit", (2, 0), false),
        ("cuMemAlloc_v2", "cuMemAlloc", (3, 2), false),
        ("cuMemcpyHtoD", "cuMemcpyHtoD", (2, 0), false),
        ("cuMemcpyHtoD_v2_ptds", "cuMemcpyHtoD", (7, 0), true),
        ("cuLaunchKernel_ptsz", "cuLaunchKernel", (7, 0), true),
        ("cuCtxCreate_v4", "cuCtxCreate", (12, 5), false),
        ("cuStreamGetCaptureInfo_v3_ptsz", "cuStreamGetCaptureInfo", (12, 3), true),
        ("cuGreenCtxCreate", "cuGreenCtxCreate", (12, 4), false),
        // A name with the suffix of an ABI in the middle.
        ("cuGetProcAddress_v2", "cuGetProcAddress", (12, 0), false),
        ("cuVDPAUCtxCreate_v2", "cuVDPAUCtxCreate", (3, 2), false),
        ("cuGLGetDevices_v2", "cuGLGetDevices", (6, 5), false),
    ];
    for (symbol, base, (major, minor), per_thread) in known {
        let function = function(symbol);
        assert_eq!(function.base(), base);
        assert_eq!(function.since(), CudaVersion::new(major, minor), "{symbol}");
        assert_eq!(function.is_per_thread(), per_thread, "{symbol}");
    }
}

#[test]
fn bases_are_the_names_without_their_suffixes() {
    let mut bases = HashSet::new();
    for function in Function::all() {
        let (symbol, base) = (function.symbol(), function.base());
        bases.insert(base);
        let suffix = symbol.strip_prefix(base).expect("a beginning of the name");
        let (abi, stream) = match suffix.find("_pt") {
            Some(at) => suffix.split_at(at),
            None => (suffix, ""),
        };
        assert!(["", "_v2", "_v3", "_v4"].contains(&abi), "{symbol}: {abi}");
        assert!(["", "_ptds", "_ptsz"].contains(&stream), "{symbol}");
        assert_eq!(function.is_per_thread(), !stream.is_empty(), "{symbol}");
    }
    // The count in NVIDIA's table.
    assert_eq!(bases.len(), 516);
}

#[test]
fn every_function_has_a_version_that_the_bindings_know() {
    for function in Function::all() {
        let since = function.since();
        assert!(since >= CudaVersion::new(2, 0), "{function:?}: {since}");
        assert!(since <= CudaVersion::BINDINGS, "{function:?}: {since}");
        // A later ABI was added in a later version.
        if let Some(first) = Function::find(function.base()) {
            assert!(first.since() <= since, "{function:?}");
        }
    }
}
