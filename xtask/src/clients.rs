//! `cargo xtask clients`: runs the test suites of other programs that use the driver API on the software
//! driver.
//!
//! A client is a file `tests/clients/NAME.toml`. It pins the package, lists its suites, and lists each
//! test that fails with the reason. A test that fails without an entry is an error, and so is an entry
//! whose test passes, so the list stays true.

mod judge;
mod list;
mod python;
mod rust;
mod table;

use crate::install::headers;
use crate::root;
use anyhow::{Context, Result, bail, ensure};
use list::{Client, Source, Suite};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

/// What a suite runs with.
struct Setting {
    /// The folder of this client below `target/clients`. It exists.
    folder: PathBuf,
    /// The folder with the software driver as `libcuda.so.1` and `libcuda.so`.
    driver: PathBuf,
    /// The checkout of the client's repository that `--from` names.
    checkout: Option<PathBuf>,
}

/// The result of one test.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    /// With the reason. A failure that the suite itself expects counts as skipped.
    Skipped(String),
    /// With the last line of the error. A test that did not end in time has failed too.
    Failed(String),
}

/// One test that ran.
struct Test {
    /// The name that the list of failures uses.
    id: String,
    verdict: Verdict,
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let options = Options::parse(args)?;
    let driver = driver()?;
    let mut rows = Vec::new();
    let mut wrong = Vec::new();
    for (name, mut client) in list::read()? {
        if !options.includes(&name, &client) {
            continue;
        }
        let folder = root().join("target/clients").join(&name);
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let setting = Setting { folder, driver: driver.clone(), checkout: options.from.clone() };
        if client.checkout.is_some() && options.from.is_none() {
            let text = "its tests are in its repository only: --from CHECKOUT runs them";
            println!("{name}: not run: {text}");
            rows.push(table::Row::not_run(&name, &client, text));
            continue;
        }
        // An entry of the list can only be judged if its test could have run.
        let mut is_whole = options.suite.is_none();
        if options.quick {
            is_whole &= client.suite.iter().all(|suite| suite.quick.is_empty());
            client.suite.iter_mut().for_each(Suite::select_part);
        }
        let suite = options.suite.as_deref();
        let (row, errors) = run_client(&name, &client, &setting, suite, is_whole)?;
        rows.extend(row);
        wrong.extend(errors);
    }
    ensure!(!rows.is_empty(), "no client matches the arguments");
    println!("\n{}", table::text(&rows));
    ensure!(wrong.is_empty(), "the results differ from tests/clients:\n  {}", wrong.join("\n  "));
    Ok(())
}

/// Runs the suites of a client, or one of them. Returns the rows of the table, and what differs from the list.
fn run_client(
    name: &str,
    client: &Client,
    setting: &Setting,
    only: Option<&str>,
    is_whole: bool,
) -> Result<(Vec<table::Row>, Vec<String>)> {
    match client.source {
        Source::PyPi => python::install(client, setting)?,
        Source::CratesIo => rust::install(client, setting)?,
    }
    let mut judge = judge::Judge::new(name, client);
    let mut rows = Vec::new();
    for suite in &client.suite {
        if only.is_some_and(|only| only != suite.name) {
            continue;
        }
        let started = Instant::now();
        let tests = match client.source {
            Source::PyPi => python::run(client, suite, setting)?,
            Source::CratesIo => rust::run(client, suite, setting)?,
        };
        write_results(setting, suite, &tests)?;
        let row = judge.suite(suite, &tests);
        println!(
            "{name} {}: {} passed, {} failed, {} skipped, {:.0} s",
            suite.name,
            row.passed,
            row.failed,
            row.skipped,
            started.elapsed().as_secs_f64()
        );
        rows.push(row);
    }
    Ok((rows, judge.finish(is_whole)))
}

/// Writes the result of each test of a suite to `target/clients/NAME/SUITE.txt`.
fn write_results(setting: &Setting, suite: &Suite, tests: &[Test]) -> Result<()> {
    let mut text = String::new();
    for test in tests {
        let (word, why) = match &test.verdict {
            Verdict::Passed => ("passed", ""),
            Verdict::Skipped(why) => ("skipped", why.as_str()),
            Verdict::Failed(why) => ("failed", why.as_str()),
        };
        text += format!("{word}\t{}\t{why}", test.id).trim_end();
        text.push('\n');
    }
    let path = setting.folder.join(format!("{}.txt", suite.name));
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
}

/// The arguments of the command.
struct Options {
    quick: bool,
    from: Option<PathBuf>,
    suite: Option<String>,
    names: Vec<String>,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self { quick: false, from: None, suite: None, names: Vec::new() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--quick" => options.quick = true,
                "--from" => {
                    let folder = args.next().context("--from needs a folder")?;
                    let folder = std::path::absolute(folder)?;
                    ensure!(folder.is_dir(), "{} is not a folder", folder.display());
                    options.from = Some(folder);
                }
                "--suite" => {
                    options.suite = Some(args.next().context("--suite needs a name")?.clone());
                }
                unknown if unknown.starts_with('-') => bail!("unknown option {unknown}"),
                name => options.names.push(name.to_owned()),
            }
        }
        Ok(options)
    }

    fn includes(&self, name: &str, client: &Client) -> bool {
        let named = self.names.is_empty() || self.names.iter().any(|wanted| wanted == name);
        named && (client.quick || !self.quick)
    }
}

/// Returns the variables for the tests of a suite: the profile, where libraries are found, and the folder of the toolkit
/// for those that compile kernels.
fn environment<'a>(
    client: &'a Client,
    suite: &Suite,
    setting: &Setting,
) -> Result<Vec<(&'a str, OsString)>> {
    let mut variables = vec![("CUDA_SIM", suite.profile(client).into())];
    let mut folders = vec![setting.driver.clone()];
    if let Some(path) = std::env::var_os("LD_LIBRARY_PATH") {
        folders.extend(std::env::split_paths(&path));
    }
    if client.nvrtc {
        variables.push(("CUDA_PATH", headers::provide_kernel_headers()?.into()));
        folders.push(headers::provide_compilers()?.join("lib"));
    }
    variables.push(("LD_LIBRARY_PATH", std::env::join_paths(folders)?));
    variables.extend(client.variables.iter().map(|(name, value)| (name.as_str(), value.into())));
    Ok(variables)
}

/// Builds the software driver into the folder that the clients search for `libcuda.so.1`.
fn driver() -> Result<PathBuf> {
    let built =
        crate::packages::python::software_driver(&root(), &root().join("target/clients/built"))?;
    let folder = root().join("target/clients/driver");
    fs::create_dir_all(&folder)?;
    // Another run may have the file mapped, so it must not be written in place.
    let part = folder.join(format!("part.{}", std::process::id()));
    fs::copy(&built, &part).context("copying the software driver")?;
    // The library is the software NCCL too. With both names it is one file, which a process loads once.
    for name in ["libcuda.so.1", "libcuda.so", "libnccl.so.2", "libnccl.so"] {
        let link = folder.join(format!("{name}.{}", std::process::id()));
        fs::hard_link(&part, &link).context("linking the software driver")?;
        fs::rename(&link, folder.join(name)).context("renaming the software driver")?;
    }
    fs::remove_file(&part).context("removing a name of the software driver")?;
    Ok(folder)
}
