//! `cargo xtask msrv`: the crates build with the oldest supported compiler.
//!
//! The compiler is rustup's, if rustup has it, or else Debian's, unpacked into
//! `target/toolchain`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::debian::{self, Apt, Offer};

/// Where Debian has compilers: the suite, and what follows `rustc`, `cargo` in a package's name.
///
/// The `-web` ones are newer than their release; browsers are built with them.
const DEBIAN: &[(&str, &str)] = &[("bookworm", "-web"), ("trixie", ""), ("bullseye", "-web")];

const WINDOWS: &str = "x86_64-pc-windows-gnu";

/// A target that cuda-sys has to refuse.
const NARROW: &str = "i686-unknown-linux-gnu";

/// The package with the tool that makes the import libraries of that target.
const DLLTOOL: &str = "binutils-mingw-w64-x86-64";

const CRATES: &[&str] = &["-p", "cuda-sys", "-p", "cuda-safe"];

/// A compiler of the wanted version.
enum Toolchain {
    /// The name of rustup's toolchain.
    Rustup(String),
    /// The folder that Debian's packages are unpacked in.
    Debian(PathBuf),
}

pub(crate) fn msrv(args: &[String]) -> Result<()> {
    let if_available = args == ["--if-available"];
    ensure!(
        args.is_empty() || if_available,
        "msrv knows --if-available only"
    );
    let wanted = oldest_supported()?;
    let toolchain = match Toolchain::get(&wanted) {
        Err(why) if if_available => {
            println!("msrv: NOT CHECKED: {why:#}");
            return Ok(());
        }
        toolchain => toolchain?,
    };
    println!("msrv: {}", toolchain.describe(&wanted)?);

    let mut check = toolchain.cargo_check()?;
    succeed(check.arg("--all-features"))?;
    println!("msrv: cuda-sys and cuda-safe check with all features");

    let mut check = toolchain.cargo_check()?;
    toolchain.add_target(&mut check, WINDOWS)?;
    succeed(&mut check)?;
    println!("msrv: cuda-sys and cuda-safe check for {WINDOWS}");

    toolchain.refuses_32_bits()
}

/// `rust-version` of the workspace.
fn oldest_supported() -> Result<String> {
    let path = crate::root().join("Cargo.toml");
    let manifest = fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?
        .parse::<toml::Table>()
        .with_context(|| format!("in {}", path.display()))?;
    let package = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("package"));
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
            format!("rustup has no {wanted} toolchain, and Debian's could not be had")
        })?;
        fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
        Ok(Self::Debian(dir))
    }

    /// What the compiler says of itself; an error if it does not run here or is another one.
    fn describe(&self, wanted: &str) -> Result<String> {
        let version = debian::stdout(self.program("rustc")?.arg("--version"))
            .context("the compiler does not run here")?;
        let release = version.split_whitespace().nth(1).unwrap_or_default();
        ensure!(
            is_release_of(release, wanted),
            "wanted rustc {wanted}, got {version}"
        );
        Ok(match self {
            Self::Rustup(name) => format!("rustc {release}, rustup's {name}"),
            Self::Debian(_) => format!("rustc {release}, Debian's, in target/toolchain"),
        })
    }

    /// A program of this toolchain, with nothing of the toolchain that runs this one.
    fn program(&self, name: &str) -> Result<Command> {
        let mut command = match self {
            Self::Rustup(_) => Command::new("rustup"),
            Self::Debian(dir) => Command::new(dir.join("usr/bin").join(name)),
        };
        for variable in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "LD_LIBRARY_PATH"] {
            command.env_remove(variable);
        }
        match self {
            Self::Rustup(toolchain) => command.args(["run", toolchain.as_str(), name]),
            Self::Debian(dir) => command.env("RUSTC", dir.join("usr/bin/rustc")).env(
                "LD_LIBRARY_PATH",
                std::env::join_paths(library_folders(dir)?)?,
            ),
        };
        Ok(command)
    }

    fn cargo_check(&self) -> Result<Command> {
        let mut command = self.program("cargo")?;
        command.current_dir(crate::root()).arg("check").args(CRATES);
        // The versions of Cargo.lock are the ones to check; an old cargo must not change them.
        command.args(["--locked", "--target-dir", "target/msrv"]);
        Ok(command)
    }

    /// On a 32-bit target the build ends with the words that say why.
    fn refuses_32_bits(&self) -> Result<()> {
        let mut check = self.cargo_check()?;
        self.add_target(&mut check, NARROW)?;
        let output = check.output().context("cannot run cargo")?;
        let words = String::from_utf8_lossy(&output.stderr);
        ensure!(
            !output.status.success() && words.contains("needs a 64-bit target"),
            "cuda-sys does not refuse {NARROW}:\n{words}"
        );
        println!("msrv: cuda-sys refuses {NARROW}");
        Ok(())
    }

    fn add_target(&self, check: &mut Command, target: &str) -> Result<()> {
        check.args(["--target", target]);
        match self {
            Self::Rustup(name) => {
                let mut list = Command::new("rustup");
                list.args(["target", "list", "--installed", "--toolchain", name]);
                let has = debian::stdout(&mut list)?
                    .lines()
                    .any(|installed| installed == target);
                ensure!(
                    has,
                    "to check for {target}, run: rustup target add --toolchain {name} {target}"
                );
            }
            Self::Debian(dir) => {
                // Debian has no compiled std of this compiler for others, but has its source.
                // Building it is for nightly compilers, hence the bootstrap; that the crates
                // need no nightly feature is what the check before this one shows.
                check.arg("-Zbuild-std=std").env("RUSTC_BOOTSTRAP", "1");
                // std's import libraries are made by the dlltool that was unpacked with it.
                let system = std::env::var_os("PATH").unwrap_or_default();
                let path = std::env::split_paths(&system).chain([dir.join("usr/bin")]);
                check.env("PATH", std::env::join_paths(path)?);
            }
        }
        Ok(())
    }
}

/// Whether a version such as `1.85.0+dfsg3-1` is one of `1.85`.
fn is_release_of(version: &str, wanted: &str) -> bool {
    version
        .strip_prefix(wanted)
        .is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
}

fn find_in_rustup(wanted: &str) -> Option<String> {
    // Without rustup there is nothing to find.
    let list = debian::stdout(Command::new("rustup").args(["toolchain", "list"])).ok()?;
    let line = list.lines().find(|line| is_release_of(line, wanted))?;
    line.split_whitespace().next().map(str::to_owned)
}

/// Unpacks Debian's compiler of the wanted version into `dir`.
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

/// Unpacks the toolchain's packages, and the libraries they need that the system does not have.
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
            bail!("the suite of rustc{suffix} {version} has no {package}");
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

/// Whether a dependency is a library to unpack.
///
/// Programs (a linker, binutils) are the system's, and so are the libraries it has: mixing in
/// others would disturb the programs that cargo starts. The compiler's own ones are never the
/// system's, because the compiler looks for its standard library next to them.
fn is_needed_library(package: &str) -> bool {
    let is_library = package.starts_with("lib") && !package.starts_with("libc-dev");
    is_library && (package.starts_with("libstd-rust") || !debian::is_installed(package))
}

/// Removes what is large and of no use here: of the sources, only the library's are built.
fn drop_compiler_source(dir: &Path) -> Result<()> {
    for source in debian::entries(&dir.join("usr/src"))? {
        for part in ["compiler", "src"] {
            debian::replace_dir(&source.join(part))?;
        }
    }
    Ok(())
}

/// Where the unpacked libraries are.
fn library_folders(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut folders = debian::entries(&dir.join("usr/lib"))?;
    folders.extend(debian::entries(&dir.join("lib"))?);
    folders.retain(|folder| folder.to_string_lossy().contains("-linux-gnu"));
    Ok(folders)
}

/// Runs a check, whose output is the user's to read.
fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().context("cannot run cargo")?;
    ensure!(
        status.success(),
        "the crates do not check with the oldest supported compiler"
    );
    Ok(())
}
