//! How the headers are put before libclang.

use anyhow::{Context, Result};
use std::path::Path;

/// Which of the two readings of cuda.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    dead_code,
    reason = "build.rs includes this file and reads every ABI only"
)]
pub(crate) enum Reading {
    /// Every ABI of every function, each under the name of its symbol.
    EveryAbi,
    /// What a C program sees that defines nothing: the newest ABIs.
    DefaultApi,
}

/// Binds the headers that `wrapper.h` names, found in `include`, and gives bindgen's Rust text.
///
/// The C library's and other vendors' headers come from `xtask/include` alone, and the target is
/// fixed (record layouts are the same on all 64-bit targets), so that the text does not depend on
/// the host.
pub(crate) fn bind(root: &Path, include: &Path, reading: Reading) -> Result<String> {
    let mut builder = bindgen::Builder::default()
        .header(path(&root.join("wrapper.h"))?)
        .clang_args(["-nostdinc", "--target=x86_64-unknown-linux-gnu"])
        // First: beside a system's cuda.h lies the system's C library.
        .clang_arg(format!("-I{}", path(&root.join("xtask/include"))?))
        .clang_arg(format!("-I{}", path(include)?))
        .allowlist_item("(CU|cu|Vdp|EGL|GL).*|MAX_PLANES")
        .use_core()
        .generate_cstr(true)
        // NVIDIA's comments are NVIDIA's.
        .generate_comments(false)
        .formatter(bindgen::Formatter::None)
        // A Rust enum would make a newer driver's answer undefined behaviour.
        .default_enum_style(bindgen::EnumVariation::NewType {
            is_bitfield: false,
            is_global: false,
        });
    if reading == Reading::DefaultApi {
        builder = builder.clang_arg("-DCUDA_WORKBENCH_DEFAULT_API");
    }
    let bindings = builder
        .generate()
        .with_context(|| format!("binding the headers in {}", include.display()))?;
    Ok(bindings.to_string())
}

fn path(path: &Path) -> Result<&str> {
    path.to_str()
        .with_context(|| format!("{} is not UTF-8", path.display()))
}
