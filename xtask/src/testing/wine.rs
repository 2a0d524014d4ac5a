//! `cargo xtask wine`: runs tests as programs for Windows, on the software driver and on fake drivers, with Wine. It
//! needs mingw-w64 and Wine, on Debian the packages `gcc-mingw-w64-x86-64` and `wine64`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::install::toolchain;
use crate::testing::test_binary;
use crate::{root, status};

const COMPILER: &str = "x86_64-w64-mingw32-gcc";

/// Debian has Wine for 64-bit programs outside of the search path.
const WINE: [&str; 3] = ["wine64", "/usr/lib/wine/wine64", "wine"];

/// The function of Windows from which Rust's library takes random bytes. Wine has it since version 9.
const RANDOM: &str = "\
#include <windows.h>
#include <ntsecapi.h>
BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T size) { return RtlGenRandom(data, (ULONG)size); }
";

/// Tests that start a program of Linux.
const NOT_RUN: [&str; 1] = ["process::checkpoint::provoked::other_processes_are_refused"];

pub(crate) fn run(args: &[String]) -> Result<()> {
    let runs = |program: &&str| Command::new(program).arg("--version").output().is_ok();
    let wine = WINE.into_iter().find(runs);
    let (Some(wine), Some(_)) = (wine, Some(COMPILER).filter(runs)) else {
        println!("wine: NOT RUN: {COMPILER} or Wine is not installed");
        return Ok(());
    };
    toolchain::add_target(toolchain::WINDOWS)?;
    let folder = root().join("target/wine");
    let fakes = folder.join("fakes");
    fs::create_dir_all(&fakes).with_context(|| format!("making {}", fakes.display()))?;
    let random = folder.join("random.c");
    fs::write(&random, RANDOM).with_context(|| format!("writing {}", random.display()))?;
    compile(&random, &folder.join("bcryptprimitives.dll"), &["-ladvapi32"])?;
    build_fakes(&fakes)?;
    let wine = |program: &Path| {
        let mut command = Command::new(wine);
        command
            .arg(program)
            .env("WINEPREFIX", folder.join("prefix"))
            .env("WINEDEBUG", "-all")
            .env("WINEPATH", &folder)
            .env("CUDA_TESTS_FAKES", &fakes)
            .env("CUDA_SIM", "h200");
        command
    };
    // Wine sets up its folders when a program runs for the first time.
    let set_up = wine(Path::new("cmd")).args(["/c", "exit"]).status().context("running Wine")?;
    status::check(set_up, format_args!("Wine could not set up its folders"))?;
    let system = folder.join("prefix/drive_c/windows/system32/nvcuda.dll");
    fs::copy(fakes.join("no_gpu.dll"), system).context("copying a fake driver")?;
    for name in ["host", "driver"] {
        let binary = test_binary::build(name, &["--target", toolchain::WINDOWS])?;
        let mut command = wine(&binary);
        // Of two processes that start at once, Wine sometimes starts one only.
        command.arg("--test-threads=1");
        command.args(NOT_RUN.iter().flat_map(|name| ["--skip", name])).args(args);
        let done = command.status().context("running Wine")?;
        ensure!(done.success(), "tests/{name} failed under Wine");
    }
    Ok(())
}

/// Compiles the fake drivers of `tests/host`, since a program that runs with Wine cannot start a compiler.
fn build_fakes(folder: &Path) -> Result<()> {
    let mut rows = String::new();
    for function in cuda_sys::Function::all() {
        writeln!(rows, "FUNCTION({})", function.symbol())?;
    }
    fs::write(folder.join("functions.h"), rows).context("writing functions.h")?;
    let include = format!("-I{}", folder.display());
    let sources = root().join("tests/host/fakes");
    for entry in fs::read_dir(&sources).with_context(|| format!("reading {}", sources.display()))? {
        let source = entry?.path();
        let name = source.file_stem().unwrap_or_default();
        let library: PathBuf = folder.join(name).with_extension("dll");
        compile(&source, &library, &[&include])?;
    }
    Ok(())
}

fn compile(source: &Path, library: &Path, options: &[&str]) -> Result<()> {
    let compiled = Command::new(COMPILER)
        .args(["-shared", "-Wall", "-Werror", "-o"])
        .args([library, source])
        .args(options)
        .status()
        .with_context(|| format!("running {COMPILER}"))?;
    status::check(compiled, format_args!("{} was not compiled", source.display()))
}
