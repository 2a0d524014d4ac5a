//! The accounts that the processes of a program have written.

use crate::options::{Account, Strict};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Writes the accounts in a folder, ordered by process, to the place that the options name. Returns the lines
/// that are rejected.
pub(crate) fn write(folder: &Path, account: &Account, strict: Strict) -> io::Result<Vec<String>> {
    let text = text(folder)?;
    match account {
        Account::Stderr => io::stderr().write_all(text.as_bytes())?,
        Account::File(file) => fs::write(file, &text)?,
        Account::Nowhere => {}
    }
    let rejected = text.lines().filter(|line| strict.rejects(line));
    Ok(rejected.map(str::to_owned).collect())
}

impl Strict {
    /// Returns whether a line of an account says what is rejected.
    fn rejects(self, line: &str) -> bool {
        const MISUSES: [&str; 4] = [
            "misuses: ",
            "faults that made no call fail: ",
            "no account: ",
            "cuda-sim: no process called the driver",
        ];
        let begins = |prefix: &&str| line.starts_with(*prefix);
        let has_misuse = MISUSES.iter().any(begins)
            || (line.starts_with("number of races: ") && line != "number of races: 0");
        let has_leak = line.starts_with("ended with their context: ")
            || (line.starts_with("objects alive: ") && line != "objects alive: none");
        match self {
            Self::Nothing => false,
            Self::Misuses => has_misuse,
            Self::Leaks => has_misuse || has_leak,
        }
    }
}

fn text(folder: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // The name begins with the number of the process, and a number among the accounts of that process.
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let numbers: Vec<u64> = name.split('.').filter_map(|part| part.parse().ok()).collect();
        files.push((numbers, path));
    }
    files.sort();
    let mut text = match files.len() {
        0 => "cuda-sim: no process called the driver. If one should have: LD_LIBRARY_PATH has no effect on \
              libraries that are opened by an absolute path or found by an RPATH, and on setuid programs\n"
            .to_owned(),
        1 => "cuda-sim: account of 1 process\n".to_owned(),
        count => format!("cuda-sim: accounts of {count} processes\n"),
    };
    for (_, path) in files {
        // A process that still runs may be writing its account.
        text.push_str(&String::from_utf8_lossy(&fs::read(path)?));
    }
    Ok(text)
}
