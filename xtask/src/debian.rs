//! Packages from the Debian archive, without installing anything.
//!
//! apt does the work, with lists, cache and sources of its own, so that the system's apt state
//! stays as it is. The mirror and its keys are those that the machine's own sources name.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};

/// The suites under which a machine may have the archive itself (not its security updates).
const SUITES: &str = "bullseye bookworm trixie forky sid oldstable stable testing unstable";

/// apt with a private state below one directory.
pub(crate) struct Apt {
    dir: PathBuf,
}

/// One version of a package, and the suite that has it.
pub(crate) struct Offer {
    pub(crate) version: String,
    pub(crate) suite: String,
}

/// Where the archive is and which keys sign it, in the words of the machine's own sources.
struct Mirror {
    uri: String,
    /// The value of `Signed-By`; empty where apt takes any key that it trusts.
    keys: String,
}

impl Apt {
    /// Fetches the package lists of `suites` into `dir`.
    ///
    /// A suite that cannot be had is reported, and the others go on.
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

    /// The versions of `package` in the suites that are open, the newest first.
    pub(crate) fn offers(&self, package: &str) -> Result<Vec<Offer>> {
        let table = stdout(self.command("apt-cache").args(["madison", package]))?;
        Ok(table.lines().filter_map(parse_offer).collect())
    }

    /// The packages that this version of `package` depends on; the first of each alternative.
    pub(crate) fn depends(&self, package: &str, version: &str) -> Result<Vec<String>> {
        let exact = format!("{package}={version}");
        let record = stdout(self.command("apt-cache").args(["show", &exact]))?;
        let mut lines = record.lines();
        let field = lines.find_map(|line| line.strip_prefix("Depends:"));
        let names = field.unwrap_or_default().split(',').filter_map(|clause| {
            let name = clause.trim().split([' ', '|', ':', '(']).next()?;
            (!name.is_empty()).then(|| name.to_owned())
        });
        Ok(names.collect())
    }

    /// Downloads one package, lets apt check it, and unpacks it into `into`.
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
        // What it held is unpacked now; the archive itself would only take room.
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LC_ALL", "C").args(["-qq", "-c"]);
        command.arg(self.dir.join("apt.conf"));
        command
    }
}

/// Whether the system has the package installed.
pub(crate) fn is_installed(package: &str) -> bool {
    let mut query = Command::new("dpkg-query");
    query.args(["-W", "-f", "${db:Status-Status}\n", package]);
    stdout(&mut query).is_ok_and(|states| states.lines().any(|state| state == "installed"))
}

/// Makes `dir` an empty folder.
pub(crate) fn replace_dir(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot empty {}", dir.display()))
        }
        _ => make_dir(dir),
    }
}

/// The paths in a folder; none where there is no such folder.
pub(crate) fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let context = || format!("cannot list {}", dir.display());
    let listing = fs::read_dir(dir).with_context(context)?;
    let paths = listing.map(|entry| Ok(entry?.path()));
    let mut paths = paths
        .collect::<std::io::Result<Vec<_>>>()
        .with_context(context)?;
    paths.sort();
    Ok(paths)
}

/// What a command prints, if it succeeds.
pub(crate) fn stdout(command: &mut Command) -> Result<String> {
    let output = output(command)?;
    let program = command.get_program().to_string_lossy().into_owned();
    ensure!(
        output.status.success(),
        "{program}: {}",
        complaints(&output).join("; ")
    );
    String::from_utf8(output.stdout)
        .with_context(|| format!("{program} printed something that is not UTF-8"))
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

/// A line of `apt-cache madison`: `package | version | uri suite/component arch Packages`.
fn parse_offer(line: &str) -> Option<Offer> {
    let mut columns = line.split('|').map(str::trim);
    let version = columns.nth(1)?.to_owned();
    let (_, index) = columns.next()?.split_once(' ')?;
    let suite = index.split_once('/')?.0.to_owned();
    Some(Offer { version, suite })
}

/// The private sources, in apt's deb822 form.
fn sources(mirror: &Mirror, suites: &[&str], component: &str) -> String {
    let keys = match mirror.keys.as_str() {
        "" => String::new(),
        keys => format!("Signed-By: {keys}\n"),
    };
    let suites = suites.join(" ");
    // Only the package lists: a desktop's apt would also fetch icons and the like.
    format!(
        "Types: deb\nURIs: {}\nSuites: {suites}\nComponents: {component}\nTargets: Packages\n{keys}",
        mirror.uri
    )
}

/// What differs from the system's configuration, which apt reads first (it may name a proxy).
fn configuration(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        r#"Dir::Etc::SourceList "{dir}/archive.sources";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "{dir}/lists";
Dir::Cache "{dir}/cache";
// Old suites are no longer signed anew, so their Release files run out. The signature still
// holds, and what it signs are versions that do not change any more.
Acquire::Check-Valid-Until "false";
// A suite is still the one of its name when a release makes it oldstable.
Acquire::AllowReleaseInfoChange "true";
Acquire::Languages "none";
// apt's own user may be unable to write here; without this apt warns at every file.
APT::Sandbox::User "root";
// The system's hooks would clean or rebuild the system's caches.
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
"#
    )
}

/// The archive among the machine's apt sources.
fn system_mirror() -> Result<Mirror> {
    if let Err(error) = Command::new("apt-get").arg("--version").output() {
        bail!("the packages come from Debian, and apt-get cannot be run here ({error})");
    }
    let mut files = entries(Path::new("/etc/apt/sources.list.d"))?;
    files.insert(0, PathBuf::from("/etc/apt/sources.list"));
    for file in files {
        // A file that is not there or not readable names no mirror.
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
    bail!("no source in /etc/apt names Debian's archive (main of one of: {SUITES})")
}

/// `deb [signed-by=KEYS] URI SUITE COMPONENT...`
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

/// A stanza of a deb822 file; the keys may be a block of several lines.
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
