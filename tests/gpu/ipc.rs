//! Memory that two processes share; the second one dies in the middle.

use crate::common::{self, child};
use crate::need;
use cuda_safe::manager::{
    AutoFreePointer, CachingManager, IpcHandle, MemoryPointer, set_memory_manager,
};
use cuda_safe::{Context, Device, DeviceBuffer, attribute};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

const LEN: usize = 1 << 20;
/// Set in the second process.
const SECOND: &str = "CUDA_TESTS_IPC_SECOND";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> [u8; IpcHandle::BYTES] {
    let mut bytes = [0; IpcHandle::BYTES];
    for (place, byte) in bytes.iter_mut().enumerate() {
        let digits = text.get(2 * place..2 * place + 2).expect("two digits each");
        *byte = u8::from_str_radix(digits, 16).expect("digits");
    }
    bytes
}

/// What the second process does: it reads the first half, writes the second, and dies.
fn second() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a line");
    let handle = IpcHandle::from_bytes(&unhex(line.trim()));
    let device = handle.device().expect("asked").expect("the same machine");
    let context = Context::primary(&device).expect("a context");
    let stream = context.stream().expect("a stream");
    // SAFETY: the first process keeps the memory until this one is gone.
    let open = || unsafe { context.open_memory(&handle) };
    let (memory, again) = (open(), open());
    let (memory, again) = (memory.expect("open"), again.expect("open already"));
    assert_eq!(memory.as_raw(), again.as_raw());
    assert_eq!(memory.size(), LEN);
    let address = memory.as_raw();
    // SAFETY: it is so long, kept by its owner, and in nobody's use until this process says so.
    let mut buffer = unsafe { DeviceBuffer::<u8>::from_foreign(address, LEN, &stream, memory) };
    let (first, mut second) = buffer.as_mut_slice().split_at(LEN / 2).expect("within");
    assert_eq!(first.as_slice().to_vec().expect("a copy"), [7; LEN / 2]);
    second.fill(9).expect("a fill");
    stream.synchronize().expect("a wait");
    println!("second: done");
    std::io::stdout().flush().expect("out");
    // With everything open, and work under way.
    buffer
        .slice_mut(LEN / 2..)
        .and_then(|mut its| its.fill(9))
        .expect("a fill");
    std::process::abort();
}

#[test]
fn a_second_process_dies_with_memory_of_the_first_open() {
    if std::env::var_os(SECOND).is_some() {
        return second();
    }
    let _alone = crate::green::alone();
    child::in_child(&[], || {
        let count = Device::count().unwrap_or(0);
        if count == 0 {
            return common::skip("needs a GPU");
        }
        let device = need!(common::gpu());
        if !device
            .attribute(attribute::UNIFIED_ADDRESSING)
            .unwrap_or(false)
        {
            return common::skip("needs unified addressing");
        }
        if std::env::var_os("CUDA_TESTS_SANITIZED").is_some() {
            return common::skip("a memory checker keeps memory of its own");
        }
        set_memory_manager(CachingManager::new).expect("the version fits");
        let context = Context::primary(&device).expect("a context");
        let stream = context.stream().expect("a stream");
        // Somewhere in a slab.
        let _before = MemoryPointer::allocate_on(&stream, 5000).expect("memory");
        let memory = MemoryPointer::allocate_on(&stream, LEN).expect("memory");
        let memory = AutoFreePointer::from(memory);
        let exported = memory.export().expect("plain memory below");
        assert_ne!(exported.handle().offset(), 0);
        // SAFETY: it is so long, and kept by its owner; it is used on this stream, and by a process that is
        // waited for.
        let mut buffer =
            unsafe { DeviceBuffer::<u8>::from_foreign(memory.as_raw(), LEN, &stream, memory) };
        buffer.fill(7).expect("a fill");
        stream.synchronize().expect("a wait");
        let free_before = context.memory_info().expect("known").free;

        let mut second = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "--nocapture", "--test-threads=1"])
            .arg("ipc::a_second_process_dies_with_memory_of_the_first_open")
            .env(SECOND, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut to = second.stdin.take().expect("a pipe");
        writeln!(to, "{}", hex(&exported.handle().to_bytes())).expect("sent");
        let from = BufReader::new(second.stdout.take().expect("a pipe"));
        let done = from
            .lines()
            .map_while(Result::ok)
            .any(|line| line.contains("second: done"));
        let status = second.wait().expect("ended");
        assert!(
            done && !status.success(),
            "it did its part, and died: {status}"
        );

        // The first goes on: with that memory, and with new.
        let found = buffer.to_vec().expect("a copy");
        assert_eq!((found[0], found[LEN / 2 - 1]), (7, 7));
        assert_eq!((found[LEN / 2], found[LEN - 1]), (9, 9));
        buffer.fill(3).expect("a fill");
        assert_eq!(buffer.to_vec().expect("a copy"), [3; LEN]);
        drop(DeviceBuffer::<u8>::zeroed(&stream, LEN).expect("memory"));
        // What the second had, its context first of all, is free again.
        let free = context.memory_info().expect("known").free;
        assert!(
            free + (64 << 20) >= free_before,
            "{free} of {free_before} are free"
        );
        let leaked = cuda_safe::leaked();
        drop((buffer, exported));
        assert_eq!(cuda_safe::leaked(), leaked);
    });
}
