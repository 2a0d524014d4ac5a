//! An example whose output is no longer read ends without a message.
#![cfg(unix)]

#[path = "../../tests/common/mod.rs"]
mod common;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

#[test]
fn an_example_whose_reader_has_gone_ends_without_a_message() {
    const SIGPIPE: i32 = 13;
    // Cargo builds the examples for the tests, in a folder beside that of the tests.
    let test = std::env::current_exe().expect("the path of this program");
    let folder = test.parent().and_then(Path::parent).expect("the folder of the build");
    let example = folder.join("examples/devices");
    if !example.is_file() {
        return common::skip(
            "cargo builds the example `devices` for all tests of this package only",
        );
    }
    // A socket has no reader from the start. With a pipe, the program could write before its reader ends.
    let (reader, writer) = UnixStream::pair().expect("a pair of sockets");
    drop(reader);
    let output = Command::new(example)
        .args(["--sim", "h200"])
        .stdout(OwnedFd::from(writer))
        .output()
        .expect("starting the example");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.signal(), Some(SIGPIPE), "{}", output.status);
}
