//! Calls the C compiler, if one is installed.

use super::skip;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `source` to `target` with `cc`, or with the compiler that `CC` names, and with
/// `options`. Returns `None` and reports a skip if no C compiler is installed.
#[track_caller]
pub(crate) fn compile(
    source: &Path,
    target: &Path,
    options: impl FnOnce(&mut Command),
) -> Option<()> {
    if cfg!(miri) {
        skip("Miri cannot start a compiler");
        return None;
    }
    let compiler = PathBuf::from(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    let mut command = Command::new(&compiler);
    // Libraries among the options must come after the source that uses them.
    command.arg("-o").args([target, source]);
    options(&mut command);
    let output = match command.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            skip(&format!("no C compiler {}", compiler.display()));
            return None;
        }
        output => output.expect("starting the C compiler"),
    };
    let messages = String::from_utf8_lossy(&output.stderr);
    let source = source.display();
    assert!(output.status.success(), "compiling {source}:\n{messages}");
    Some(())
}
