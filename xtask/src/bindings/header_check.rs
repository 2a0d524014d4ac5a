//! `cargo xtask header-check`: compares `cuda-sys` with the pinned headers. CI compares it with the newest and the
//! oldest of them, with `--sample`.

use crate::install::headers;
use crate::{root, status};
use anyhow::{Context, Result};
use std::process::Command;

pub(crate) fn run(args: &[String]) -> Result<()> {
    let all = headers::versions()?;
    let versions = match args {
        [] => all,
        [sample] if sample == "--sample" => {
            all.first().into_iter().chain(all.last()).cloned().collect()
        }
        _ => args.to_vec(),
    };
    headers::provide_libclang()?;
    for version in versions {
        let include = headers::fetch(&version)?;
        println!("header-check: CUDA {version}");
        let status = Command::new(env!("CARGO"))
            .current_dir(root())
            .args(["test", "--quiet", "--workspace", "--features", "header-check", "--test", "abi"])
            .env("CUDA_INCLUDE", include)
            .status()
            .context("running cargo test")?;
        status::check(
            status,
            format_args!("cuda-sys does not match the headers of CUDA {version}"),
        )?;
    }
    Ok(())
}
