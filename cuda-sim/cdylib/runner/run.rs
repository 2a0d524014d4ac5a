//! `cuda-sim run`.

use crate::options::{Account, Run, Strict};
use crate::{FAILED, Failure, REJECTED, accounts, cache, signals};
use cuda_sim::environment::Variable;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::SystemTime;

/// The variable that names the driver for programs that use `cuda-sys`.
const DRIVER_OF_CUDA_SYS: &str = "CUDA_SYS_LIBRARY";

/// Runs a program on the software driver.
pub(crate) fn run(options: &Run) -> Result<ExitCode, Failure> {
    if let Account::File(file) = &options.account {
        // Before the program runs, which may take long.
        fs::write(file, "")
            .map_err(|why| format!("writing the account to {}: {why}", file.display()))?;
    }
    if let Some(file) = &options.coverage {
        // The processes append to it.
        fs::write(file, "")
            .map_err(|why| format!("writing the coverage to {}: {why}", file.display()))?;
    }
    let driver = cache::folder()?;
    let accounts =
        Folder::new().map_err(|why| format!("creating a folder for the account: {why}"))?;

    let mut command = Command::new(&options.program);
    command
        .args(&options.arguments)
        .env("LD_LIBRARY_PATH", search_path(&driver))
        .env(DRIVER_OF_CUDA_SYS, driver.join("libcuda.so.1"));
    for (variable, value) in &options.variables {
        command.env(variable.name(), value);
    }
    if let Some(file) = &options.coverage {
        command.env(Variable::Coverage.name(), file);
    }
    let has_account =
        !matches!(options.account, Account::Nowhere) || options.strict != Strict::Nothing;
    match has_account {
        false => command.env_remove(Variable::Account.name()),
        true => command.env(Variable::Account.name(), &accounts.0),
    };
    signals::install();
    let program = options.program.to_string_lossy();
    let mut child = command.spawn().map_err(|why| Failure {
        status: status_of(&why),
        why: format!("starting {program}: {why}"),
    })?;
    let status =
        signals::wait(&mut child).map_err(|why| format!("waiting for {program}: {why}"))?;
    if !has_account {
        return Ok(code_of(status));
    }
    let rejected = accounts::write(&accounts.0, &options.account, options.strict)
        .map_err(|why| format!("writing the account: {why}"))?;
    for line in &rejected {
        eprintln!("cuda-sim: rejected: {line}");
    }
    match rejected.is_empty() || !status.success() {
        true => Ok(code_of(status)),
        false => Ok(ExitCode::from(REJECTED)),
    }
}

/// Returns the exit status for a program that cannot be started, as `env` and `timeout` do.
fn status_of(why: &io::Error) -> u8 {
    match why.kind() {
        ErrorKind::NotFound => 127,
        // There are too many processes, or there is too little memory.
        ErrorKind::WouldBlock | ErrorKind::OutOfMemory => FAILED,
        _ => 126,
    }
}

/// Returns the exit status of the program, as a shell does.
fn code_of(status: ExitStatus) -> ExitCode {
    let signal = status.signal().map(|signal| 128 + signal);
    let code = status.code().or(signal).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

fn search_path(driver: &Path) -> OsString {
    let mut path = driver.as_os_str().to_owned();
    let inherited = std::env::var_os("LD_LIBRARY_PATH").filter(|path| !path.is_empty());
    if let Some(inherited) = inherited {
        path.push(":");
        path.push(inherited);
    }
    path
}

/// A temporary folder for the accounts of processes, which is removed when this value is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let time = time.map_or(0, |time| time.subsec_nanos());
        let name = format!("cuda-sim-account-{}-{time}", std::process::id());
        // Absolute, because the program may change its folder.
        let path = std::path::absolute(std::env::temp_dir())?.join(name);
        // Fails if the folder exists, which another user may own.
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|why| io::Error::new(why.kind(), format!("{}: {why}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(why) = fs::remove_dir_all(&self.0) {
            eprintln!("cuda-sim: removing {}: {why}", self.0.display());
        }
    }
}
