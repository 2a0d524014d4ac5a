//! `cargo xtask header-check`: `cuda-sys` against the headers that are pinned.

use crate::{headers, root};
use anyhow::{Context, Result, ensure};
use std::process::Command;

pub(crate) fn run(args: &[String]) -> Result<()> {
    let versions = if args.is_empty() {
        headers::versions()?
    } else {
        args.to_vec()
    };
    headers::provide_libclang()?;
    for version in versions {
        let include = headers::fetch(&version)?;
        println!("header-check: CUDA {version}");
        let status = Command::new(env!("CARGO"))
            .current_dir(root())
            .args([
                "test",
                "--quiet",
                "--features",
                "header-check",
                "--test",
                "abi",
            ])
            .env("CUDA_INCLUDE", include)
            .status()
            .context("running cargo test")?;
        ensure!(
            status.success(),
            "cuda-sys and the headers of {version} disagree"
        );
    }
    Ok(())
}
