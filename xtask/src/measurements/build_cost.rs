//! `cargo xtask build-cost [ROUNDS]`: measures the CPU time of clean builds of `cuda-sys`, `cuda-safe` and cudarc, in
//! alternation, and the size of a small program with each of them.

use crate::install::sources;
use crate::root;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const CUDARC: &str = r#"cudarc = { version = "=0.19.10", default-features = false, features = ["std", "driver", "dynamic-loading", "cuda-13040"] }"#;

/// A program that counts the GPUs.
struct Program {
    name: &'static str,
    dependency: String,
    main: &'static str,
    /// The times of the debug and release builds, one for each round.
    debug: Vec<Duration>,
    release: Vec<Duration>,
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let rounds: u32 = match args {
        [] => 3,
        [rounds] => rounds.parse().context("the number of rounds")?,
        _ => bail!("build-cost takes at most one argument, the number of rounds"),
    };
    ensure!(rounds != 0, "the number of rounds must be at least 1");
    let mut programs = programs();
    for program in &programs {
        program.write()?;
        program.cargo(&["fetch", "--quiet"])?;
    }
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        for program in &mut programs {
            let debug = program.build(&[])?;
            program.debug.push(debug);
            let release = program.build(&["--release"])?;
            program.release.push(release);
        }
    }
    print(&mut programs)
}

fn programs() -> Vec<Program> {
    let path = |name: &str| format!("{name} = {{ path = {:?} }}", root().join(name));
    let program = |name, dependency, main| Program {
        name,
        dependency,
        main,
        debug: Vec::new(),
        release: Vec::new(),
    };
    vec![
        program(
            "cuda-sys",
            path("cuda-sys"),
            "fn main() {
                let mut count = 0;
                // SAFETY: cuInit takes no pointer; the other pointer is to a local variable.
                let code = unsafe { (cuda_sys::cuInit(0), cuda_sys::cuDeviceGetCount(&mut count)) };
                println!(\"{code:?}: {count} GPUs\");
            }",
        ),
        program(
            "cuda-safe",
            path("cuda-safe"),
            "fn main() {
                println!(\"{:?} GPUs\", cuda_safe::Device::count());
            }",
        ),
        // Without the optional modules.
        program(
            "cuda-safe-core",
            format!(
                "cuda-safe = {{ path = {:?}, default-features = false }}",
                root().join("cuda-safe")
            ),
            "fn main() {
                println!(\"{:?} GPUs\", cuda_safe::Device::count());
            }",
        ),
        program(
            "cudarc",
            CUDARC.to_owned(),
            "fn main() {
                println!(\"{:?} GPUs\", cudarc::driver::CudaContext::device_count());
            }",
        ),
    ]
}

impl Program {
    fn folder(&self) -> PathBuf {
        root().join("target/build-cost").join(self.name)
    }

    fn write(&self) -> Result<()> {
        let folder = self.folder();
        fs::create_dir_all(folder.join("src")).context("creating the folder of a program")?;
        let manifest = format!(
            "[package]\nname = \"hello\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n{}\n",
            self.dependency
        );
        fs::write(folder.join("Cargo.toml"), manifest).context("writing a manifest")?;
        fs::write(folder.join("src/main.rs"), self.main).context("writing a program")?;
        // Use the versions of the workspace.
        fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock"))
            .context("copying Cargo.lock")?;
        Ok(())
    }

    fn cargo(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(env!("CARGO"))
            .current_dir(self.folder())
            .args(arguments)
            .env("CARGO_TARGET_DIR", "target")
            .env_remove("RUSTFLAGS")
            .output()
            .context("running cargo")?;
        ensure!(
            output.status.success(),
            "{}: cargo {}:\n{}",
            self.name,
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Makes a clean build. Returns its CPU time in user mode.
    fn build(&self, how: &[&str]) -> Result<Duration> {
        let _ = fs::remove_dir_all(self.folder().join("target"));
        let before = time_of_children()?;
        self.cargo(&[&["build", "--quiet", "--offline"], how].concat())?;
        Ok(time_of_children()? - before)
    }

    /// Returns the size of the release build in bytes, without symbols.
    fn size(&self) -> Result<u64> {
        let binary = self.folder().join("target/release/hello");
        let stripped = self.folder().join("target/stripped");
        let done = Command::new("strip").arg("-o").args([&stripped, &binary]).status();
        let small = done.is_ok_and(|status| status.success());
        let path = if small { stripped } else { binary };
        Ok(fs::metadata(&path).context("reading the size of a binary")?.len())
    }

    /// Returns the number of its dependencies.
    fn crates(&self) -> Result<usize> {
        let tree = self.cargo(&["tree", "--offline", "-e", "normal", "--prefix", "none"])?;
        let names = tree.lines().filter_map(|line| line.split(' ').next());
        Ok(names.collect::<BTreeSet<_>>().len().saturating_sub(1))
    }

    /// Returns the number of lines in its generated bindings.
    fn lines(&self) -> Result<usize> {
        if self.name != "cudarc" {
            return lines_in(&root().join("cuda-sys/src/bindings"));
        }
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(self.folder()).arg("--offline");
        lines_in(&sources::folder(cargo, "cudarc")?.join("src/driver/sys"))
    }
}

/// Returns the CPU time in user mode of the processes that have ended, of which Linux counts hundredths of a second.
fn time_of_children() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").context("reading /proc/self/stat")?;
    // The name of the program may contain spaces.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields.split_whitespace());
    let ticks = fields.and_then(|mut fields| fields.nth(13)?.parse().ok());
    Ok(Duration::from_millis(10) * ticks.context("/proc/self/stat has no time of children")?)
}

fn lines_in(folder: &Path) -> Result<usize> {
    let mut lines = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry.context("reading a folder")?.path();
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        lines += text.lines().count();
    }
    Ok(lines)
}

fn print(programs: &mut [Program]) -> Result<()> {
    println!(
        "| | release, CPU s | debug, CPU s | crates | generated lines | hello world, stripped |"
    );
    println!("|---|--:|--:|--:|--:|--:|");
    for program in &mut *programs {
        let (release, debug) = (median(&mut program.release), median(&mut program.debug));
        println!(
            "| {} | {release:.1} | {debug:.1} | {} | {} | {} KiB |",
            program.name,
            program.crates()?,
            program.lines()?,
            program.size()? / 1024,
        );
    }
    println!();
    if let Some(program) = programs.iter_mut().find(|its| its.name == "cuda-safe") {
        let (release, wrapped) = (median(&mut program.release), wrapped()?);
        let each = release * 100.0 / f64::from(wrapped);
        println!("cuda-safe: {each:.1} CPU s per 100 wrapped functions ({wrapped} in total).");
    }
    println!(
        "Medians of the CPU time of clean builds in alternation. The programs are in target/build-cost."
    );
    Ok(())
}

/// Returns the number of functions that `cuda-safe` wraps, from COVERAGE.md, which CI keeps current.
fn wrapped() -> Result<u32> {
    let text = fs::read_to_string(root().join("COVERAGE.md")).context("reading COVERAGE.md")?;
    let count = text.split_once(" are wrapped**").and_then(|(before, _)| {
        let (_, count) = before.rsplit_once("**")?;
        count.parse().ok()
    });
    count.context("COVERAGE.md has no number of wrapped functions")
}

/// Returns the median in seconds.
fn median(times: &mut [Duration]) -> f64 {
    times.sort();
    times.get(times.len() / 2).map_or(f64::NAN, Duration::as_secs_f64)
}
