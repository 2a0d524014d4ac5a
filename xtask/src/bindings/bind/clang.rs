//! Runs bindgen on the headers.

use anyhow::{Context, Result};
use std::path::Path;

/// The configuration of cuda.h to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "build.rs includes this file and reads every ABI only")]
pub(crate) enum Reading {
    /// Every ABI of every function, each under the name of its symbol.
    EveryAbi,
    /// The declarations that a C program without any macros sees: the newest ABIs.
    DefaultApi,
}

/// Generates bindings for the headers that `wrapper.h` includes, found in `include`, and returns
/// bindgen's output.
///
/// The headers of the C library and of other vendors are taken only from `xtask/include`, and the target
/// is fixed (record layouts are the same on all 64-bit targets), so that the output does not depend on
/// the host.
pub(crate) fn bind(root: &Path, include: &Path, reading: Reading) -> Result<String> {
    let mut builder = builder(root, include)?
        .header(path(&root.join("wrapper.h"))?)
        .allowlist_item("(CU|cu|Vdp|EGL|GL).*|MAX_PLANES");
    if reading == Reading::DefaultApi {
        builder = builder.clang_arg("-DCUDA_WORKBENCH_DEFAULT_API");
    }
    generate(builder, include)
}

/// Generates bindings for nvrtc.h and nvJitLink.h, found in `include`, and returns bindgen's output.
///
/// By default, nvJitLink.h defines each function as a call of a symbol with the version in its name. A
/// macro makes it declare the symbol without a version, which the libraries of all versions have.
#[allow(dead_code, reason = "build.rs includes this file and reads cuda.h only")]
pub(crate) fn bind_compilers(root: &Path, include: &Path) -> Result<String> {
    let headers = "#include <nvrtc.h>\n#include <nvJitLink.h>\n";
    let builder = builder(root, include)?
        .header_contents("compilers.h", headers)
        .clang_arg("-DNVJITLINK_NO_INLINE")
        .allowlist_item("(nvrtc|NVRTC|nvJitLink|NVJITLINK)_?.*")
        .blocklist_item("nvJitLink_INCLUDED|__nvJitLink.*");
    generate(builder, include)
}

/// Generates bindings for nccl.h, found in `include`, and returns bindgen's output.
///
/// The second name of each function, with the prefix `pnccl`, is for profilers that replace the first one. It is
/// not bound. The types of the runtime API are those of the driver.
#[allow(dead_code, reason = "build.rs includes this file and reads cuda.h only")]
pub(crate) fn bind_nccl(root: &Path, include: &Path) -> Result<String> {
    let builder = builder(root, include)?
        .header_contents("binding.h", "#include <nccl.h>\n")
        // Declares a function that other systems do not have.
        .clang_arg("-DNCCL_OS_LINUX")
        .allowlist_item("(nccl|NCCL_).*")
        .blocklist_item("NCCL_(H_|OS_LINUX|SUFFIX|UNDEF_FLOAT)|nccl(RedOp|NumOps)_dummy.*|cuda(Stream|Event)_t|CU(stream|event)_st");
    generate(builder, include)
}

/// Returns the settings that are the same for all headers.
fn builder(root: &Path, include: &Path) -> Result<bindgen::Builder> {
    Ok(bindgen::Builder::default()
        .clang_args(["-nostdinc", "--target=x86_64-unknown-linux-gnu"])
        // This folder comes first, because the folder of a system's cuda.h also contains the system's C
        // library headers.
        .clang_arg(format!("-I{}", path(&root.join("xtask/include"))?))
        .clang_arg(format!("-I{}", path(include)?))
        .use_core()
        .generate_cstr(true)
        // NVIDIA holds the copyright of its comments.
        .generate_comments(false)
        .formatter(bindgen::Formatter::None)
        // With a Rust enum, an unknown value from a newer driver would be undefined behavior.
        .default_enum_style(bindgen::EnumVariation::NewType {
            is_bitfield: false,
            is_global: false,
        }))
}

fn generate(builder: bindgen::Builder, include: &Path) -> Result<String> {
    let bindings = builder
        .generate()
        .with_context(|| format!("binding the headers in {}", include.display()))?;
    Ok(bindings.to_string())
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}
