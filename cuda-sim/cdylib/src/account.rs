//! The account of the process, which is written when it exits.

use cuda_sim::environment::Account as Place;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The account of this process, from the start of the driver.
struct Account {
    /// The process that started the driver. A fork of it has not used the driver.
    process: u32,
    /// The file, or `None` for stderr.
    file: Option<PathBuf>,
    /// The first line.
    title: String,
}

static ACCOUNT: OnceLock<Account> = OnceLock::new();

/// Prepares the account when the driver starts, if the environment requests it. Until the process exits, the
/// file says that it has not.
pub(crate) fn begin(place: &Place) {
    let process = std::process::id();
    let title = format!("process {process}: {}", command_line());
    let file = match place {
        Place::Folder(folder) => Some(new_file(folder, process)),
        _ => None,
    };
    let account = ACCOUNT.get_or_init(|| Account { process, file, title });
    if account.file.is_some() {
        account.write(
            "no account: the process ended without exit handlers, by a signal or `_exit`, or has not ended\n",
        );
    }
}

/// Returns the start of the command line, in one line.
fn command_line() -> String {
    const LONGEST: usize = 200;
    let arguments: Vec<_> = std::env::args_os().collect();
    let arguments: Vec<_> = arguments.iter().map(|its| its.to_string_lossy()).collect();
    let line = arguments.join(" ");
    let one = |letter: char| match letter.is_control() {
        true => ' ',
        false => letter,
    };
    let mut short: String = line.chars().take(LONGEST).map(one).collect();
    if line.chars().nth(LONGEST).is_some() {
        short.push('…');
    }
    short
}

/// Returns a file that does not exist: a process id may be used again, and `exec` keeps it.
fn new_file(folder: &Path, process: u32) -> PathBuf {
    let path = |number: u32| folder.join(format!("{process}.{number}.txt"));
    let mut numbers = 0..1000;
    let free = numbers.find(|number| !path(*number).exists());
    path(free.unwrap_or_default())
}

impl Account {
    fn write(&self, text: &str) {
        let text = format!("{}\n{text}", self.title);
        let written = match &self.file {
            None => std::io::stderr().write_all(format!("cuda-sim: {text}").as_bytes()),
            Some(file) => fs::write(file, text),
        };
        if let (Err(why), Some(file)) = (written, &self.file) {
            eprintln!("cuda-sim: writing the account to {}: {why}", file.display());
        }
    }
}

// SAFETY (of the section): the dynamic linker calls the functions in this section once, when the process
// exits. The library stays loaded until then.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = end;

/// The process that started the driver, if it detects races, or 0.
static RACES_OF: AtomicU32 = AtomicU32::new(0);

/// Determines whether the number of races is printed when the process exits.
pub(crate) fn count_races(detected: bool) {
    if detected {
        RACES_OF.store(std::process::id(), Ordering::Relaxed);
    }
}

/// Writes the account, with the number of races if they are detected, or that number alone if no account is
/// requested. A fork of the process that started the driver writes nothing.
extern "C" fn end() {
    let process = std::process::id();
    let detects_races = RACES_OF.load(Ordering::Relaxed) == process;
    let races = detects_races.then(|| format!("number of races: {}\n", cuda_sim::races().len()));
    match ACCOUNT.get().filter(|account| account.process == process) {
        Some(account) => {
            account.write(&format!("{}{}", cuda_sim::report(), races.unwrap_or_default()));
        }
        None => {
            if let Some(races) = races {
                // Does not panic if stderr is closed.
                let _ = write!(std::io::stderr(), "cuda-sim: {races}");
            }
        }
    }
}
