//! Downloads and unpacks packages from the Debian archive without installing them.
//!
//! The work is done by apt with separate lists, cache and sources, so the system's apt state does not
//! change. The mirror and its keys are taken from the machine's apt sources.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};

/// The names that the archive itself may have in apt sources, as opposed to its security updates.
const SUITES: &str = "bullseye bookworm trixie forky sid oldstable stable testing unstable";

/// apt with a private state in one directory.
pub(crate) struct Apt {
    dir: PathBuf,
}

/// A version of a package, and the suite that contains it.
pub(crate) struct Offer {
    pub(crate) version: String,
    pub(crate) suite: String,
}

/// The location of the archive and the keys that sign it, as in the machine's apt sources.
struct Mirror {
    uri: String,
    /// The value of `Signed-By`, or empty if apt accepts any trusted key.
    keys: String,
}

impl Apt {
    /// Fetches the package lists of `suites` into `dir`.
    ///
    /// If a suite cannot be fetched, this is reported and the others are used.
    pub(crate) fn open(dir: PathBuf, suites: &[&str], component: &str) -> Result<Self> {
        let mirror = system_mirror()?;
        for folder in ["lists/partial", "cache/archives/partial"] {
            make_dir(&dir.join(folder))?;
        }
        let sources = sources(&mirror, suites, component);
        write(&dir.join("archive.sources"), &sources)?;
        write(&dir.join("apt.conf"), &configuration(&dir))?;
        let apt = Self { dir };
        let update = output(apt.command("apt-get").arg("update"))?;
        for line in complaints(&update) {
            eprintln!("apt: {line}");
        }
        Ok(apt)
    }

    /// Returns the versions of `package` in the open suites, newest first.
    pub(crate) fn offers(&self, package: &str) -> Result<Vec<Offer>> {
        let table = stdout(self.command("apt-cache").args(["madison", package]))?;
        Ok(table.lines().filter_map(parse_offer).collect())
    }

    /// Downloads a package, lets apt verify it, and unpacks it into `into`.
    pub(crate) fn unpack(&self, package: &str, version: &str, into: &Path) -> Result<()> {
        let folder = self.dir.join("debs").join(package);
        replace_dir(&folder)?;
        let mut download = self.command("apt-get");
        download.arg("download").arg(format!("{package}={version}"));
        stdout(download.current_dir(&folder))?;
        make_dir(into)?;
        for deb in entries(&folder)? {
            stdout(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(into))?;
        }
        // The archive is removed, because its contents are unpacked now.
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LC_ALL", "C").args(["-qq", "-c"]);
        command.arg(self.dir.join("apt.conf"));
        command
    }
}

/// Replaces `dir` with an empty folder.
pub(crate) fn replace_dir(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot empty {}", dir.display()))
        }
        _ => make_dir(dir),
    }
}

/// Returns the paths in a folder, or none if the folder does not exist.
pub(crate) fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let context = || format!("cannot list {}", dir.display());
    let listing = fs::read_dir(dir).with_context(context)?;
    let paths = listing.map(|entry| Ok(entry?.path()));
    let mut paths = paths.collect::<std::io::Result<Vec<_>>>().with_context(context)?;
    paths.sort();
    Ok(paths)
}

/// Returns what a command writes to stdout, if it succeeds.
pub(crate) fn stdout(command: &mut Command) -> Result<String> {
    let output = output(command)?;
    let program = command.get_program().to_string_lossy().into_owned();
    ensure!(output.status.success(), "{program}: {}", complaints(&output).join("; "));
    String::from_utf8(output.stdout)
        .with_context(|| format!("the output of {program} is not UTF-8"))
}

fn output(command: &mut Command) -> Result<Output> {
    command
        .output()
        .with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))
}

fn make_dir(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn complaints(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().map(|line| line.trim().to_owned()).collect()
}

/// Parses a line of `apt-cache madison`: `package | version | uri suite/component arch Packages`.
fn parse_offer(line: &str) -> Option<Offer> {
    let mut columns = line.split('|').map(str::trim);
    let version = columns.nth(1)?.to_owned();
    let (_, index) = columns.next()?.split_once(' ')?;
    let suite = index.split_once('/')?.0.to_owned();
    Some(Offer { version, suite })
}

/// Returns the private sources in apt's deb822 format.
fn sources(mirror: &Mirror, suites: &[&str], component: &str) -> String {
    let keys = match mirror.keys.as_str() {
        "" => String::new(),
        keys => format!("Signed-By: {keys}\n"),
    };
    let suites = suites.join(" ");
    // Only the package lists. A desktop's apt would also fetch icons and similar data.
    format!(
        "Types: deb\nURIs: {}\nSuites: {suites}\nComponents: {component}\nTargets: Packages\n{keys}",
        mirror.uri
    )
}

/// Returns the differences from the system's configuration, which apt reads first (it may set a proxy).
fn configuration(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        r#"Dir::Etc::SourceList "{dir}/archive.sources";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "{dir}/lists";
Dir::Cache "{dir}/cache";
// Release files of old suites expire, because they are no longer renewed. Their signatures are still
// valid, and the signed versions no longer change.
Acquire::Check-Valid-Until "false";
// A suite keeps its name when a release makes it oldstable.
Acquire::AllowReleaseInfoChange "true";
Acquire::Languages "none";
// apt's sandbox user may not have write access here, and apt would then print a warning for every file.
APT::Sandbox::User "root";
// The system's hooks would clean or rebuild the system's caches.
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
"#
    )
}

/// Finds the archive in the machine's apt sources.
fn system_mirror() -> Result<Mirror> {
    if let Err(error) = Command::new("apt-get").arg("--version").output() {
        bail!("the packages are fetched from Debian, but apt-get cannot be run ({error})");
    }
    let mut files = entries(Path::new("/etc/apt/sources.list.d"))?;
    files.insert(0, PathBuf::from("/etc/apt/sources.list"));
    for file in files {
        // A file that does not exist or is not readable names no mirror.
        let text = fs::read_to_string(&file).unwrap_or_default();
        let found = match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => text.lines().find_map(parse_one_line),
            Some("sources") => text.split("\n\n").find_map(parse_stanza),
            _ => None,
        };
        if let Some(mirror) = found {
            return Ok(mirror);
        }
    }
    bail!("no source in /etc/apt names the Debian archive (component main of one of: {SUITES})")
}

/// Parses `deb [signed-by=KEYS] URI SUITE COMPONENT...`.
fn parse_one_line(line: &str) -> Option<Mirror> {
    let rest = line.trim().strip_prefix("deb ")?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace();
    let uri = words.next()?.to_owned();
    let suite = words.next()?;
    let mut options = options.split_whitespace();
    let keys = options.find_map(|option| option.strip_prefix("signed-by="));
    let keys = keys.unwrap_or_default().to_owned();
    let is_archive = is_archive_suite(suite) && words.any(|component| component == "main");
    is_archive.then_some(Mirror { uri, keys })
}

fn is_archive_suite(name: &str) -> bool {
    SUITES.split(' ').any(|suite| suite == name)
}

/// Parses a stanza of a deb822 file. The keys may span several lines.
fn parse_stanza(stanza: &str) -> Option<Mirror> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in stanza.lines().filter(|line| !line.starts_with('#')) {
        if line.starts_with([' ', '\t']) {
            let (_, value) = fields.last_mut()?;
            value.push('\n');
            value.push_str(line);
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    let field = |name: &str| {
        let found = fields.iter().find(|(other, _)| other == name);
        found.map_or("", |(_, value)| value.as_str())
    };
    let has = |name: &str, word: &str| field(name).split_whitespace().any(|other| other == word);
    let is_archive = has("types", "deb")
        && has("components", "main")
        && field("suites").split_whitespace().any(is_archive_suite);
    if !is_archive || has("enabled", "no") {
        return None;
    }
    let uri = field("uris").split_whitespace().next()?.to_owned();
    let keys = field("signed-by").to_owned();
    Some(Mirror { uri, keys })
}
