//! `cargo xtask msrv`: checks that the crates build with the oldest supported compiler.
//!
//! The compiler is rustup's if it is installed, otherwise Debian's, unpacked into `target/toolchain`.
//!
//! For `cargo xtask miri`, rustup installs its nightly toolchain.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::install::debian::{self, Apt, Offer};
use crate::status;

/// The Debian packages of compilers: the suite, and the suffix after `rustc` and `cargo` in the package
/// names.
///
/// The `-web` packages are newer than their release; they exist to build browsers.
const DEBIAN: &[(&str, &str)] = &[("bookworm", "-web"), ("trixie", ""), ("bullseye", "-web")];

const WINDOWS: &str = "x86_64-pc-windows-gnu";

/// A target that cuda-sys must reject.
const NARROW: &str = "i686-unknown-linux-gnu";

/// The package with the tool that creates import libraries for the Windows target.
const DLLTOOL: &str = "binutils-mingw-w64-x86-64";

const CRATES: &[&str] = &[
    "-p",
    "cuda-sys",
    "-p",
    "cuda-safe",
    "-p",
    "cuda-memory",
    "-p",
    "cuda-nvrtc",
    "-p",
    "cuda-ptx",
    "-p",
    "tensor-backend",
    "-p",
    "tenant-server",
];

/// A compiler of the requested version.
enum Toolchain {
    /// The name of a rustup toolchain.
    Rustup(String),
    /// The folder into which Debian's packages are unpacked.
    Debian(PathBuf),
}

pub(crate) fn msrv(args: &[String]) -> Result<()> {
    let if_available = args == ["--if-available"];
    ensure!(args.is_empty() || if_available, "msrv takes no arguments except --if-available");
    let wanted = oldest_supported()?;
    let toolchain = match Toolchain::get(&wanted) {
        Err(why) if if_available => {
            println!("msrv: NOT CHECKED: {why:#}");
            return Ok(());
        }
        toolchain => toolchain?,
    };
    println!("msrv: {}", toolchain.describe(&wanted)?);

    let mut check = toolchain.cargo_check(CRATES)?;
    succeed(check.arg("--all-features"))?;
    println!(
        "msrv: cuda-sys, cuda-safe, cuda-memory, cuda-nvrtc, cuda-ptx and the crates in examples/adopters pass `cargo check` \
         with all features"
    );

    let mut check = toolchain.cargo_check(CRATES)?;
    toolchain.add_target(&mut check, WINDOWS)?;
    succeed(&mut check)?;
    println!(
        "msrv: cuda-sys, cuda-safe, cuda-memory, cuda-nvrtc, cuda-ptx and the crates in examples/adopters pass `cargo check` \
         for {WINDOWS}"
    );

    toolchain.refuses_32_bits()
}

/// Returns the `rust-version` of the workspace.
fn oldest_supported() -> Result<String> {
    let path = crate::root().join("Cargo.toml");
    let manifest = fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?
        .parse::<toml::Table>()
        .with_context(|| format!("in {}", path.display()))?;
    let package = manifest.get("workspace").and_then(|workspace| workspace.get("package"));
    let version = package.and_then(|package| package.get("rust-version")?.as_str());
    let version = version.context("the root Cargo.toml has no workspace.package.rust-version")?;
    Ok(version.to_owned())
}

impl Toolchain {
    fn get(wanted: &str) -> Result<Self> {
        if let Some(name) = find_in_rustup(wanted) {
            return Ok(Self::Rustup(name));
        }
        let dir = crate::root().join("target/toolchain");
        let stamp = dir.join("rust-version");
        if fs::read_to_string(&stamp).is_ok_and(|have| have.trim() == wanted) {
            return Ok(Self::Debian(dir));
        }
        fetch(wanted, &dir).with_context(|| {
            format!("rustup has no {wanted} toolchain, and Debian's could not be fetched")
        })?;
        fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
        Ok(Self::Debian(dir))
    }

    /// Describes the compiler. Fails if it does not run or is another version.
    fn describe(&self, wanted: &str) -> Result<String> {
        let version = debian::stdout(self.program("rustc")?.arg("--version"))
            .context("the compiler cannot be run")?;
        let release = version.split_whitespace().nth(1).unwrap_or_default();
        ensure!(is_release_of(release, wanted), "wanted rustc {wanted}, got {version}");
        Ok(match self {
            Self::Rustup(name) => format!("rustc {release}, rustup's {name}"),
            Self::Debian(_) => format!("rustc {release}, Debian's, in target/toolchain"),
        })
    }

    /// Returns a program of this toolchain.
    fn program(&self, name: &str) -> Result<Command> {
        let dir = match self {
            Self::Rustup(toolchain) => return Ok(rustup(toolchain, name)),
            Self::Debian(dir) => dir,
        };
        let mut command = outside(dir.join("usr/bin").join(name));
        command
            .env("RUSTC", dir.join("usr/bin/rustc"))
            .env("LD_LIBRARY_PATH", std::env::join_paths(library_folders(dir)?)?);
        Ok(command)
    }

    fn cargo_check(&self, crates: &[&str]) -> Result<Command> {
        let mut command = self.program("cargo")?;
        command.current_dir(crate::root()).arg("check").args(crates);
        // The versions in Cargo.lock are checked; an old cargo must not change them.
        command.args(["--locked", "--target-dir", "target/msrv"]);
        Ok(command)
    }

    /// Checks that a build for a 32-bit target fails with the message that explains why.
    fn refuses_32_bits(&self) -> Result<()> {
        let mut check = self.cargo_check(&["-p", "cuda-sys"])?;
        self.add_target(&mut check, NARROW)?;
        let output = check.output().context("cannot run cargo")?;
        let words = String::from_utf8_lossy(&output.stderr);
        ensure!(
            !output.status.success() && words.contains("needs a 64-bit target"),
            "cuda-sys does not reject {NARROW}:\n{words}"
        );
        println!("msrv: cuda-sys rejects {NARROW}");
        Ok(())
    }

    fn add_target(&self, check: &mut Command, target: &str) -> Result<()> {
        check.args(["--target", target]);
        match self {
            Self::Rustup(name) => {
                let mut list = Command::new("rustup");
                list.args(["target", "list", "--installed", "--toolchain", name]);
                let has = debian::stdout(&mut list)?.lines().any(|installed| installed == target);
                ensure!(
                    has,
                    "the target {target} is missing; run: rustup target add --toolchain {name} {target}"
                );
            }
            Self::Debian(dir) => {
                // Debian has no compiled std of this compiler for other targets, but it has the source.
                // Building it requires a nightly compiler or `RUSTC_BOOTSTRAP`. The previous check shows
                // that the crates do not need nightly features.
                check.arg("-Zbuild-std=std").env("RUSTC_BOOTSTRAP", "1");
                // The dlltool that was unpacked with the compiler creates std's import libraries.
                let system = std::env::var_os("PATH").unwrap_or_default();
                let path = std::env::split_paths(&system).chain([dir.join("usr/bin")]);
                check.env("PATH", std::env::join_paths(path)?);
            }
        }
        Ok(())
    }
}

/// Returns a program of a toolchain of rustup.
pub(crate) fn rustup(toolchain: &str, program: &str) -> Command {
    let mut command = outside("rustup");
    command.args(["run", toolchain, program]);
    command
}

/// Returns a program with an environment that does not refer to the running toolchain.
fn outside(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for variable in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "LD_LIBRARY_PATH"] {
        command.env_remove(variable);
    }
    command
}

/// Installs the nightly toolchain with Miri, unless it is installed.
pub(crate) fn install_miri() -> Result<()> {
    if debian::stdout(rustup("nightly", "cargo").args(["miri", "--version"])).is_ok() {
        return Ok(());
    }
    let mut install = Command::new("rustup");
    install.args(["toolchain", "install", "nightly", "--no-self-update", "--profile", "minimal"]);
    install.args(["--component", "miri", "--component", "rust-src"]);
    debian::stdout(&mut install).context("the nightly toolchain with Miri cannot be installed")?;
    Ok(())
}

/// Returns whether a version such as `1.85.0+dfsg3-1` is a release of `1.85`.
fn is_release_of(version: &str, wanted: &str) -> bool {
    version
        .strip_prefix(wanted)
        .is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
}

fn find_in_rustup(wanted: &str) -> Option<String> {
    // Fails if rustup is not installed.
    let list = debian::stdout(Command::new("rustup").args(["toolchain", "list"])).ok()?;
    let line = list.lines().find(|line| is_release_of(line, wanted))?;
    line.split_whitespace().next().map(str::to_owned)
}

/// Unpacks Debian's compiler of the requested version into `dir`.
fn fetch(wanted: &str, dir: &Path) -> Result<()> {
    for (suite, suffix) in DEBIAN {
        let apt = Apt::open(crate::root().join("target/apt/toolchain"), &[suite], "main")?;
        let offers = apt.offers(&format!("rustc{suffix}"))?;
        let same = |offer: &&Offer| is_release_of(&offer.version, wanted);
        if let Some(offer) = offers.iter().find(same) {
            let version = &offer.version;
            println!("msrv: fetching rustc{suffix} {version} from Debian {suite}");
            let part = dir.with_extension("part");
            debian::replace_dir(&part)?;
            unpack(&apt, suffix, version, &part)?;
            drop_compiler_source(&part)?;
            debian::replace_dir(dir)?;
            return fs::rename(&part, dir)
                .with_context(|| format!("cannot make {}", dir.display()));
        }
    }
    let suites: Vec<&str> = DEBIAN.iter().map(|(suite, _)| *suite).collect();
    bail!("no rustc {wanted} in {}", suites.join(", "))
}

/// Unpacks the packages of the toolchain, and the libraries that they need and that the system does not
/// have.
fn unpack(apt: &Apt, suffix: &str, version: &str, into: &Path) -> Result<()> {
    let mut wanted = vec![
        format!("rustc{suffix}"),
        format!("cargo{suffix}"),
        format!("libstd-rust{suffix}-dev"),
        format!("rust{suffix}-src"),
        DLLTOOL.to_owned(),
    ];
    let mut next = 0;
    while let Some(package) = wanted.get(next).cloned() {
        next += 1;
        let offers = apt.offers(&package)?;
        let same = offers.iter().find(|offer| offer.version == version);
        let Some(offer) = same.or_else(|| offers.first()) else {
            bail!("the suite with rustc{suffix} {version} has no package {package}");
        };
        apt.unpack(&package, &offer.version, into)?;
        for needed in apt.depends(&package, &offer.version)? {
            if is_needed_library(&needed) && !wanted.contains(&needed) {
                wanted.push(needed);
            }
        }
    }
    Ok(())
}

/// Returns whether a dependency is a library that must be unpacked.
///
/// Programs (a linker, binutils) are taken from the system, and so are installed libraries, because
/// other versions could break the programs that cargo starts. The compiler's own libraries are always
/// unpacked, because the compiler looks for its standard library next to them.
fn is_needed_library(package: &str) -> bool {
    let is_library = package.starts_with("lib") && !package.starts_with("libc-dev");
    is_library && (package.starts_with("libstd-rust") || !debian::is_installed(package))
}

/// Removes large files that are not needed. Only the library's sources are built.
fn drop_compiler_source(dir: &Path) -> Result<()> {
    for source in debian::entries(&dir.join("usr/src"))? {
        for part in ["compiler", "src"] {
            debian::replace_dir(&source.join(part))?;
        }
    }
    Ok(())
}

/// Returns the folders with the unpacked libraries.
fn library_folders(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut folders = debian::entries(&dir.join("usr/lib"))?;
    folders.extend(debian::entries(&dir.join("lib"))?);
    folders.retain(|folder| folder.to_string_lossy().contains("-linux-gnu"));
    Ok(folders)
}

/// Runs a check. Its output is shown to the user.
fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().context("cannot run cargo")?;
    status::check(status, "`cargo check` failed with the oldest supported compiler")
}
