//! Suites of Python packages: a virtual environment with the pinned packages, and pytest.

use super::list::{Client, Suite};
use super::{Setting, Test, Verdict, environment};
use crate::{root, status};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Installs the pinned packages into a virtual environment, unless an earlier run did.
pub(super) fn install(client: &Client, setting: &Setting) -> Result<()> {
    let venv = setting.folder.join("venv");
    let mut wanted = vec![format!("{}=={}", client.package, client.version)];
    wanted.extend(client.packages.iter().cloned());
    let list = wanted.join("\n");
    let marker = venv.join("packages.txt");
    if fs::read_to_string(&marker).is_ok_and(|installed| installed == list) {
        return Ok(());
    }
    println!("installing {} into {}", wanted.join(" "), venv.display());
    let mut create = Command::new("python3");
    create.args(["-m", "venv", "--clear"]).arg(&venv);
    run_quietly(&mut create)?;
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--only-binary=:all:"])
        .args(["--no-compile", "--disable-pip-version-check"])
        .args(&wanted);
    run_quietly(&mut pip)?;
    fs::write(&marker, list).with_context(|| format!("writing {}", marker.display()))
}

fn run_quietly(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("running {}", command.get_program().to_string_lossy()))?;
    status::check(status, format_args!("{command:?} failed"))
}

/// Runs a suite. If a test ends the process or takes too long, pytest starts again for the tests that
/// remain.
pub(super) fn run(client: &Client, suite: &Suite, setting: &Setting) -> Result<Vec<Test>> {
    let record = setting.folder.join(format!("{}.record", suite.name));
    let log = setting.folder.join(format!("{}.log", suite.name));
    for file in [&record, &log] {
        let _ = fs::remove_file(file);
    }
    loop {
        let before = read_record(&record)?.len();
        let output = fs::File::options().create(true).append(true).open(&log)?;
        let status = pytest(client, suite, setting, &record)?
            .stdout(output.try_clone()?)
            .stderr(output)
            .status()
            .context("running pytest")?;
        let tests = read_record(&record)?;
        // 0 and 1: pytest ran to its end, and 5: no test remained.
        if matches!(status.code(), Some(0 | 1 | 5)) && tests.values().all(Option::is_some) {
            return Ok(tests
                .into_iter()
                .filter_map(|(id, verdict)| Some(Test { id, verdict: verdict? }))
                .collect());
        }
        ensure!(tests.len() > before, "pytest did not run ({status}); see {}", log.display());
        // A test that started and has no result ended the process.
        let text = if status.code() == Some(1) {
            format!("no result after {} s", suite.timeout)
        } else {
            format!("the process ended: {status}")
        };
        let mut lines = fs::read_to_string(&record)?;
        for (id, _) in tests.iter().filter(|(_, verdict)| verdict.is_none()) {
            lines += &format!("failed\t{id}\t{text}\n");
        }
        fs::write(&record, lines)?;
    }
}

fn pytest(client: &Client, suite: &Suite, setting: &Setting, record: &Path) -> Result<Command> {
    let python = setting.folder.join("venv/bin/python");
    let plugins = root().join("tests/clients");
    let folder = match (&client.checkout, &setting.checkout) {
        (Some(_), Some(checkout)) => checkout.clone(),
        _ => setting.folder.clone(),
    };
    let mut command = Command::new(python);
    command
        .current_dir(&folder)
        .args(["-m", "pytest", "-p", "record", "-q", "--tb=short"])
        .args(["-p", "no:cacheprovider", "--timeout-method=thread"])
        .arg(format!("--timeout={}", suite.timeout))
        .args(client.plugins.iter().flat_map(|plugin| ["-p", plugin]))
        // The names of the tests are relative to this folder.
        .arg("--rootdir")
        .arg(&folder)
        .args(&suite.arguments)
        .env("PYTHONPATH", &plugins)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("CLIENTS_RECORD", record)
        .envs(environment(client, suite, setting)?);
    if let Some(package) = &suite.unittests {
        command.arg(plugins.join("unittests.py")).env("CLIENTS_PACKAGE", package);
    }
    Ok(command)
}

/// Reads the lines of `record.py`: the outcome, the test and the error, separated by tabs. A test that
/// started and did not end has no verdict.
fn read_record(path: &Path) -> Result<BTreeMap<String, Option<Verdict>>> {
    let mut tests = BTreeMap::new();
    let text = match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(tests),
        Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
    };
    for line in text.lines() {
        let mut parts = line.splitn(3, '\t');
        let (Some(word), Some(id)) = (parts.next(), parts.next()) else {
            continue;
        };
        let why = parts.next().unwrap_or_default().to_owned();
        let verdict = match word {
            "started" => None,
            "passed" => Some(Verdict::Passed),
            "skipped" => Some(Verdict::Skipped(why)),
            _ => Some(Verdict::Failed(why)),
        };
        tests.insert(id.to_owned(), verdict);
    }
    Ok(tests)
}
