//! `cargo xtask symbols`: prints the bound functions as CSV.

use anyhow::{Result, ensure};
use cuda_sys::Function;
use std::io::Write;

pub(crate) fn run(args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "symbols takes no arguments");
    let mut out = std::io::stdout().lock();
    writeln!(out, "symbol,base,since")?;
    for function in Function::all() {
        let since = function.since().number();
        writeln!(out, "{},{},{since}", function.symbol(), function.base())?;
    }
    Ok(())
}
