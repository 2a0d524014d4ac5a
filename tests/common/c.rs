//! The C compiler, where there is one.

use super::skip;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `source` to `target`: `cc`, or `CC`, with what `options` adds. None, and a skip, where
/// there is no C compiler.
#[track_caller]
pub(crate) fn compile(
    source: &Path,
    target: &Path,
    options: impl FnOnce(&mut Command),
) -> Option<()> {
    let compiler = PathBuf::from(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    let mut command = Command::new(&compiler);
    // The libraries among the options come after what uses them.
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
