//! A checkpoint of another process on a real GPU. Needs the right to trace the process.

use crate::common;
use crate::or_skip;
use cuda_safe::process::checkpoint::{ProcessState, RunningProcess};
use cuda_safe::{Context, Device, DeviceBuffer};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The variable that is set in the second process.
const SECOND: &str = "CUDA_TESTS_CHECKPOINT_SECOND";
const BYTES: usize = 256 << 20;

/// Says one word to the first process.
fn say(word: &str) {
    println!("second: {word}");
    std::io::stdout().flush().expect("out");
}

/// The second process: fills memory, and checks it whenever the first process sends a line.
fn second() {
    let context = Context::primary(&Device::get(0).expect("a device")).expect("a context");
    let stream = context.stream().expect("a stream");
    let mut memory = DeviceBuffer::<u8>::zeroed_sync(&stream, BYTES).expect("memory");
    memory.fill(7).expect("a fill");
    stream.synchronize().expect("a wait");
    say("ready");
    for line in std::io::stdin().lines() {
        line.expect("a line");
        let bytes = memory.to_vec().expect("a copy");
        assert!(bytes.iter().all(|byte| *byte == 7), "the contents changed");
        say("same");
    }
}

#[test]
fn another_process_continues_after_a_checkpoint() {
    if std::env::var_os(SECOND).is_some() {
        second();
        return;
    }
    let device = or_skip!(common::real_gpu());
    or_skip!(common::since(12, 8));
    let context = Context::primary(&device).expect("a context");
    let mut child = Command::new(std::env::current_exe().expect("a path"))
        .args([
            "checkpoint::another_process_continues_after_a_checkpoint",
            "--exact",
            "--nocapture",
        ])
        .env(SECOND, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a second process");
    let mut input = child.stdin.take().expect("piped");
    let mut output = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut hears = |word: &str| {
        let expected = format!("second: {word}");
        let found = output.by_ref().map(|line| line.expect("a line"));
        found.into_iter().any(|line| line.ends_with(&expected))
    };
    assert!(hears("ready"));

    let free = || context.memory_info().expect("known").free;
    let before = free();
    let running = RunningProcess::of(child.id()).expect("it uses CUDA");
    let locked = match running.lock(Some(Duration::from_secs(10))) {
        Ok(locked) => locked,
        Err(error) => {
            child.kill().expect("it runs");
            child.wait().expect("its end");
            common::skip(&format!("the process cannot be locked: {error}"));
            return;
        }
    };
    let checkpointed = locked.checkpoint().expect("it has no managed memory");
    let state = ProcessState::of(child.id());
    assert_eq!(state, Ok(ProcessState::Checkpointed));
    assert!(free() >= before + BYTES, "its memory is free");
    let locked = checkpointed.restore().expect("it has imported nothing");
    // The second process blocks in its next call until it is unlocked. After a call before the restore, the
    // process could not be restored.
    input.write_all(b"check\n").expect("a line");
    locked.unlock().expect("locked");
    assert!(hears("same"));
    drop(input);
    assert!(child.wait().expect("its end").success());
}
