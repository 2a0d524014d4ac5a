//! Suites of crates: the tests in the crate's source, as crates.io has it.

use super::list::{Client, Suite};
use super::{Setting, Test, Verdict, environment};
use crate::install::sources;
use crate::status;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The folder with the source of the crate, below that of the client.
const SOURCE: &str = "source";

/// Downloads the crate and copies its source, unless an earlier run did. Cargo checks the download against
/// its index.
pub(super) fn install(client: &Client, setting: &Setting) -> Result<()> {
    let source = setting.folder.join(SOURCE);
    let marker = source.join("client.txt");
    let wanted = format!("{} {}", client.package, client.version);
    if fs::read_to_string(&marker).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    println!("downloading {wanted}");
    let downloaded = download(client, setting)?;
    if source.exists() {
        fs::remove_dir_all(&source).with_context(|| format!("removing {}", source.display()))?;
    }
    copy(&downloaded, &source)?;
    // The crate is its own workspace, not a member of the one that it is in.
    let manifest = source.join("Cargo.toml");
    let mut manifest = fs::OpenOptions::new().append(true).open(manifest)?;
    manifest.write_all(b"\n[workspace]\n")?;
    fs::write(&marker, wanted).with_context(|| format!("writing {}", marker.display()))
}

/// Returns the folder where cargo keeps the source of the crate. For this, a project depends on the crate.
fn download(client: &Client, setting: &Setting) -> Result<PathBuf> {
    let project = setting.folder.join("download");
    fs::create_dir_all(project.join("src"))?;
    fs::write(project.join("src/lib.rs"), "")?;
    let manifest = format!(
        "[package]\nname = \"download\"\nedition = \"2021\"\n\n[workspace]\n\n[dependencies]\n\
         {} = {{ version = \"={}\", default-features = false }}\n",
        client.package, client.version
    );
    fs::write(project.join("Cargo.toml"), manifest)?;
    let mut cargo = cargo();
    cargo.current_dir(&project);
    sources::folder(cargo, &client.package)
}

/// Copies the files of a folder and of the folders in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&from, &to)?;
        } else {
            // Not `fs::copy`, which would keep that a file is read-only.
            fs::write(&to, fs::read(&from)?)?;
        }
    }
    Ok(())
}

/// Returns a call of cargo without the flags for the crates of this workspace.
fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo
}

/// A test binary.
struct Binary {
    path: PathBuf,
    /// What precedes the names of its tests: for a file of `tests`, its name.
    prefix: String,
}

/// A line of cargo's JSON output.
#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

/// Builds the tests of a suite with its arguments for cargo.
fn build(suite: &Suite, arguments: &[String], setting: &Setting) -> Result<Vec<Binary>> {
    let output = cargo()
        .current_dir(setting.folder.join(SOURCE))
        .args(["test", "--no-run", "--quiet", "--locked", "--target-dir"])
        .arg(setting.folder.join("build"))
        .arg("--message-format=json-render-diagnostics")
        .args(arguments)
        .env("CUDA_LIBRARY_PATH", toolkit(setting)?)
        // No test reads debug information, which takes a large part of the build.
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .stderr(File::create(setting.folder.join("build.log"))?)
        .output()
        .context("running cargo test")?;
    let log = fs::read(setting.folder.join("build.log"))?;
    status::check_log(
        output.status,
        format_args!("the tests of {} failed to build", suite.name),
        &String::from_utf8_lossy(&log),
    )?;
    let mut binaries = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let message: Message = serde_json::from_str(line)
            .with_context(|| format!("parsing cargo's output: {line}"))?;
        let (Some(path), Some(target)) = (message.executable, message.target) else {
            continue;
        };
        let prefix = match target.kind.iter().any(|kind| kind == "test") {
            true => format!("{}::", target.name),
            false => String::new(),
        };
        // `cargo test` without a target also builds the examples.
        if !target.kind.iter().any(|kind| kind == "example") {
            binaries.push(Binary { path, prefix });
        }
    }
    ensure!(!binaries.is_empty(), "{} has no tests", suite.name);
    Ok(binaries)
}

/// Returns a folder like that of a CUDA toolkit, where the build scripts of crates that link with the
/// driver find it.
fn toolkit(setting: &Setting) -> Result<PathBuf> {
    let folder = setting.folder.join("cuda");
    let libraries = folder.join("lib64");
    fs::create_dir_all(&libraries)?;
    fs::copy(setting.driver.join("libcuda.so"), libraries.join("libcuda.so"))
        .context("copying the software driver")?;
    Ok(folder)
}

/// Runs a suite, each test in a process of its own. Of its arguments, those after `--` are for the test
/// binaries.
pub(super) fn run(client: &Client, suite: &Suite, setting: &Setting) -> Result<Vec<Test>> {
    let mut parts = suite.arguments.splitn(2, |argument| argument == "--");
    let for_cargo = parts.next().unwrap_or_default();
    let for_binary = parts.next().unwrap_or_default();
    let environment = environment(client, suite, setting)?;
    let mut log = File::create(setting.folder.join(format!("{}.log", suite.name)))?;
    let mut tests = Vec::new();
    for binary in build(suite, for_cargo, setting)? {
        let command = || {
            let mut command = Command::new(&binary.path);
            command.current_dir(setting.folder.join(SOURCE)).envs(environment.clone());
            command.env("RUST_BACKTRACE", "0");
            command
        };
        for name in names(command().args(for_binary))? {
            let id = format!("{}{name}", binary.prefix);
            let output = setting.folder.join("test.log");
            let mut command = command();
            command.args(["--exact", &name, "--test-threads=1"]).args(for_binary);
            let status = run_test(&mut command, &output, Duration::from_secs(suite.timeout))?;
            let text = fs::read(&output).context("reading the output of a test")?;
            let text = String::from_utf8_lossy(&text);
            writeln!(log, "== {id}\n{text}")?;
            let verdict = verdict(status, &text, suite.timeout);
            tests.push(Test { id, verdict });
        }
    }
    Ok(tests)
}

/// Returns the names of the tests that a binary lists.
fn names(command: &mut Command) -> Result<Vec<String>> {
    let output =
        command.args(["--list", "--format=terse"]).output().context("running a test binary")?;
    ensure!(
        output.status.success(),
        "a test binary failed to list its tests: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines = String::from_utf8_lossy(&output.stdout);
    let names = lines.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.map(str::to_owned).collect())
}

/// Runs one test with its output in a file. Returns `None` if it did not end in time.
fn run_test(command: &mut Command, output: &Path, limit: Duration) -> Result<Option<ExitStatus>> {
    let file = File::create(output).with_context(|| format!("making {}", output.display()))?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
        .context("running a test binary")?;
    let end = Instant::now() + limit;
    while Instant::now() < end {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    stop(&mut child)?;
    Ok(None)
}

fn stop(child: &mut Child) -> Result<()> {
    child.kill().context("ending a test")?;
    child.wait().context("ending a test")?;
    Ok(())
}

fn verdict(status: Option<ExitStatus>, output: &str, limit: u64) -> Verdict {
    let Some(status) = status else {
        return Verdict::Failed(format!("no result after {limit} s"));
    };
    if status.success() && output.contains("1 passed") {
        return Verdict::Passed;
    }
    if status.success() && output.contains("1 ignored") {
        return Verdict::Skipped("the crate ignores it".to_owned());
    }
    let mut lines = output.lines();
    let panic = lines.by_ref().find(|line| line.contains(" panicked at "));
    let text = match panic {
        // The location, and the message in the next line.
        Some(_) => lines.next(),
        None => output.lines().find(|line| line.starts_with("Error: ")),
    };
    Verdict::Failed(text.map_or_else(|| status.to_string(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::{Verdict, run_test, verdict};
    use std::process::Command;
    use std::time::Duration;

    /// Returns the verdict on a shell script that stands for a test binary.
    fn judged(script: &str) -> Verdict {
        let folder = std::env::temp_dir();
        let output = folder.join(format!("clients-{}.log", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let status = run_test(&mut command, &output, Duration::from_secs(1)).expect("it ran");
        let text = std::fs::read_to_string(&output).expect("its output");
        std::fs::remove_file(&output).expect("removed");
        verdict(status, &text, 1)
    }

    #[cfg(unix)]
    #[test]
    fn a_test_passes_only_if_it_ran_and_its_process_succeeds() {
        let failed = |why: &str| Verdict::Failed(why.to_owned());
        assert_eq!(judged("echo test result: ok. 1 passed"), Verdict::Passed);
        let ignored = Verdict::Skipped("the crate ignores it".to_owned());
        assert_eq!(judged("echo '0 passed; 0 failed; 1 ignored'"), ignored);
        assert_eq!(
            judged("echo \"thread 't' (1) panicked at a.rs:1:1:\"; echo why; exit 101"),
            failed("why")
        );
        assert_eq!(judged("echo Error: it; exit 101"), failed("Error: it"));
        assert_eq!(judged("exit 0"), failed("exit status: 0"));
        assert_eq!(judged("echo 1 passed; kill -9 $$"), failed("signal: 9 (SIGKILL)"));
        assert_eq!(judged("echo 1 passed; exec sleep 60"), failed("no result after 1 s"));
    }
}
