//! `cargo xtask adopters`: checks the packages of examples/adopters that are outside of the workspace, without what their
//! builds need: nvcc and PyTorch.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{root, status};

pub(crate) fn run(args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "adopters takes no argument");
    let folder = root().join("examples/adopters");
    for (package, features) in [("candle", ""), ("ort", ""), ("tch", "tch/doc-only"), ("wgpu", "")]
    {
        println!("adopters: {package}");
        // The variables are read by the build scripts of candle and of its dependency cudarc.
        let checked = Command::new("cargo")
            .current_dir(folder.join(package))
            .args(["check", "--locked", "--quiet", "--features", features])
            .env("CARGO_TARGET_DIR", root().join("target/adopters"))
            .env("NVCC", folder.join("candle/nvcc"))
            .envs([("CUDA_COMPUTE_CAP", "90"), ("CUDARC_CUDA_VERSION", "13000")])
            .status()
            .context("cannot run cargo")?;
        status::check(checked, format_args!("{package} does not compile"))?;
    }
    Ok(())
}
