//! `cargo xtask compilers`: installs NVRTC and nvJitLink for tests/nvrtc.

use crate::install::headers;
use anyhow::{Result, ensure};

pub(crate) fn run(args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "compilers takes no arguments");
    let folder = headers::provide_compilers()?;
    println!("NVRTC and nvJitLink are in {}", folder.display());
    Ok(())
}
