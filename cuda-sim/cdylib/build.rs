//! Linker options of the shared library, and the library that a release build of the command contains.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(has_library)");
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        for option in [
            // A program that is linked against this library loads `libcuda.so.1` at run time, which is
            // the name of the driver.
            "-soname,libcuda.so.1",
            // The library stays loaded after `dlclose`. A thread that ends later runs destructors of
            // thread-local variables, and their code is in the library.
            "-z,nodelete",
            // The library refers to its own functions, even if another library exports functions with
            // the same names. It exports nothing but functions. (zig does not know -Bsymbolic-functions.)
            "-Bsymbolic",
        ] {
            println!("cargo::rustc-cdylib-link-arg=-Wl,{option}");
        }
        let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
        if is_release && env::var_os("CARGO_FEATURE_RUNNER").is_some() {
            let library = build_library();
            println!("cargo::rustc-cfg=has_library");
            println!("cargo::rustc-env=CUDA_SIM_LIBRARY={}", library.display());
        }
    }
}

/// Builds the library of this package, and returns its path.
///
/// A command contains the library only in release builds. In other builds, it finds the library beside itself.
/// Cargo cannot build a library for the use of a program of the same package.
fn build_library() -> PathBuf {
    let variable = |name: &str| env::var_os(name).unwrap_or_else(|| panic!("Cargo sets {name}"));
    let package = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    for sources in ["src", "Cargo.toml", "../src", "../../cuda-sys/src"] {
        let sources = package.join(sources);
        // The sources of the other crates are elsewhere, and do not change, if they come from a registry.
        if sources.exists() {
            println!("cargo::rerun-if-changed={}", sources.display());
        }
    }
    let target = variable("TARGET");
    let level = env::var("OPT_LEVEL").unwrap_or_else(|_| panic!("Cargo sets OPT_LEVEL"));
    // A folder of its own, because Cargo has locked the one of this build.
    let folder = Path::new(&variable("OUT_DIR")).join("library");
    let status = Command::new(variable("CARGO"))
        .args(["build", "--release", "--lib", "--no-default-features"])
        .arg("--manifest-path")
        .arg(package.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&folder)
        .arg("--target")
        .arg(&target)
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        // The release profile of the repository does not optimize these packages.
        .args(["--config", &format!("profile.release.package.cuda-sim.opt-level={level}")])
        .args(["--config", &format!("profile.release.package.cuda-ptx.opt-level={level}")])
        // The build script of the library inherits the variables of this one.
        .env_remove("CARGO_FEATURE_RUNNER")
        // Set by `cargo clippy`, which builds nothing.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status();
    let is_built = status.is_ok_and(|status| status.success());
    assert!(is_built, "Cargo could not build the library");
    folder.join(target).join("release/libcuda_sim_cdylib.so")
}
