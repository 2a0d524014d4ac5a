//! `cargo xtask drivers`: downloads real `libcuda.so.1` files of many driver versions into
//! `target/drivers`.
//!
//! Without a GPU these libraries load and report their version, which is enough to test the behavior of
//! the crates with old drivers. The list of drivers is in `xtask/drivers.toml`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Deserialize;

use crate::install::debian::{self, Apt, Offer};

/// A program that prints the version that `cuDriverGetVersion` of the library in its argument returns.
///
/// Each driver runs in a separate process, because it keeps threads and state in the process that loads
/// it.
const PROBE: &str = r#"
void *dlopen(const char *path, int mode);
void *dlsym(void *library, const char *name);
int printf(const char *format, ...);

int main(int count, char **args) {
    int version = 0;
    void *library = count == 2 ? dlopen(args[1], 2 /* RTLD_NOW */) : 0;
    int (*get)(int *) = library ? (int (*)(int *))dlsym(library, "cuDriverGetVersion") : 0;
    if (!get || get(&version)) return 1;
    printf("%d.%d\n", version / 1000, version % 1000 / 10);
    return 0;
}
"#;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    driver: Vec<Driver>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Driver {
    package: String,
    suites: Vec<String>,
    branch: String,
    cuda: String,
    #[serde(default)]
    siblings: Vec<String>,
}

/// The folder of the drivers, and the working folder.
struct Places {
    drivers: PathBuf,
    work: PathBuf,
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "drivers takes no arguments");
    let target = crate::root().join("target");
    let places = Places { drivers: target.join("drivers"), work: target.join("apt/drivers") };
    let mut missing = Vec::new();
    let mut count = 0;
    for driver in read_list()? {
        match driver.find(&places.drivers)? {
            Some(dir) => {
                driver.report(&dir);
                count += 1;
            }
            None => missing.push(driver),
        }
    }
    if !missing.is_empty() {
        match fetch_all(&missing, &places) {
            Ok(fetched) => count += fetched,
            Err(error) => eprintln!("{} drivers not fetched: {error:#}", missing.len()),
        }
    }
    ensure!(count > 0, "no driver could be fetched");
    Ok(())
}

fn read_list() -> Result<Vec<Driver>> {
    let path = crate::root().join("xtask/drivers.toml");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let list: List = toml::from_str(&text).with_context(|| format!("in {}", path.display()))?;
    Ok(list.driver)
}

/// Fetches each driver and returns how many were fetched.
fn fetch_all(missing: &[Driver], places: &Places) -> Result<usize> {
    let suites: BTreeSet<&String> = missing.iter().flat_map(|driver| &driver.suites).collect();
    let suites: Vec<&str> = suites.into_iter().map(String::as_str).collect();
    let apt = Apt::open(places.work.clone(), &suites, "non-free")?;
    let probe = build_probe(&places.work)?;
    let mut count = 0;
    for driver in missing {
        match driver.fetch(&apt, &probe, places) {
            Ok(dir) => {
                driver.report(&dir);
                count += 1;
            }
            Err(error) => eprintln!("{} {} not fetched: {error:#}", driver.package, driver.branch),
        }
    }
    Ok(count)
}

impl Driver {
    /// Returns the prefix of its folder's name.
    fn name_start(&self) -> String {
        format!("{}-{}.", self.cuda, self.branch)
    }

    /// Returns the folder of this driver if an earlier run fetched it.
    fn find(&self, drivers: &Path) -> Result<Option<PathBuf>> {
        let start = self.name_start();
        let found = debian::entries(drivers)?
            .into_iter()
            .find(|dir| name_of(dir).starts_with(&start) && dir.join("libcuda.so.1").is_file());
        Ok(found)
    }

    fn report(&self, dir: &Path) {
        let name = name_of(dir);
        let version = name.split_once('-').map_or("unknown", |(_, version)| version);
        let library = dir.join("libcuda.so.1");
        let library = library.strip_prefix(crate::root()).unwrap_or(&library);
        let hint =
            if self.siblings.is_empty() { "" } else { "  (needs its folder in LD_LIBRARY_PATH)" };
        println!("{}  driver {version}  CUDA {}{hint}", library.display(), self.cuda);
    }

    /// Fetches and checks this driver, and moves it to its final folder as the last step.
    fn fetch(&self, apt: &Apt, probe: &Path, places: &Places) -> Result<PathBuf> {
        let version = self.pick(apt)?;
        let unpacked = places.work.join("unpacked");
        debian::replace_dir(&unpacked)?;
        for package in std::iter::once(&self.package).chain(&self.siblings) {
            apt.unpack(package, &version, &unpacked)?;
        }
        let ready = places.work.join("ready");
        debian::replace_dir(&ready)?;
        let driver_version = collect_libraries(&unpacked, &ready)?;
        let cuda = ask_version(probe, &ready)?;
        let name = format!("{cuda}-{driver_version}");
        if !name.starts_with(&self.name_start()) {
            bail!("{version} is driver {driver_version} of CUDA {cuda}");
        }
        let dir = places.drivers.join(name);
        debian::replace_dir(&dir)?;
        fs::rename(&ready, &dir).with_context(|| format!("cannot make {}", dir.display()))?;
        fs::remove_dir_all(&unpacked)
            .with_context(|| format!("cannot remove {}", unpacked.display()))?;
        Ok(dir)
    }

    /// Returns the newest package of this branch in the first suite that has one.
    fn pick(&self, apt: &Apt) -> Result<String> {
        let offers = apt.offers(&self.package)?;
        let start = format!("{}.", self.branch);
        let in_suite = |suite: &String| {
            offers.iter().find(|offer| offer.suite == *suite && offer.version.starts_with(&start))
        };
        if let Some(offer) = self.suites.iter().find_map(in_suite) {
            return Ok(offer.version.clone());
        }
        let suites = self.suites.join(", ");
        ensure!(!offers.is_empty(), "no such package in {suites}");
        let found = |offer: &Offer| format!("{} in {}", offer.version, offer.suite);
        let found: Vec<String> = offers.iter().map(found).collect();
        bail!("not in {suites}; available: {}", found.join(", "))
    }
}

/// Moves the driver's libraries to `into`, with the names that the dynamic linker looks for. Returns the
/// version.
///
/// `libcuda.so.1` is a link to `libcuda.so.VERSION`; the version is taken from that file's name.
fn collect_libraries(unpacked: &Path, into: &Path) -> Result<String> {
    let mut version = None;
    let mut folders = vec![unpacked.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for path in debian::entries(&folder)? {
            let name = name_of(&path);
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let to = match name.strip_prefix("libcuda.so.") {
                Some(driver) => {
                    version = Some(driver.to_owned());
                    "libcuda.so.1"
                }
                // The driver's libraries load each other by their full version.
                None if name.contains(".so.") => name.as_str(),
                None => continue,
            };
            fs::rename(&path, into.join(to))
                .with_context(|| format!("cannot move {}", path.display()))?;
        }
    }
    version.ok_or_else(|| anyhow!("the package has no libcuda.so"))
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Compiles the probe with the C compiler, which is also Rust's linker.
fn build_probe(work: &Path) -> Result<PathBuf> {
    let probe = work.join("probe");
    let source = work.join("probe.c");
    fs::write(&source, PROBE).with_context(|| format!("cannot write {}", source.display()))?;
    let mut compiler = Command::new("cc");
    compiler.arg(&source).arg("-o").arg(&probe).arg("-ldl");
    debian::stdout(&mut compiler)
        .context("compiling the program that queries a driver's version")?;
    Ok(probe)
}

fn ask_version(probe: &Path, dir: &Path) -> Result<String> {
    let mut ask = Command::new(probe);
    ask.arg(dir.join("libcuda.so.1")).env("LD_LIBRARY_PATH", dir);
    let answer = debian::stdout(&mut ask)
        .context("the driver cannot be loaded or does not report its version")?;
    Ok(answer.trim().to_owned())
}
