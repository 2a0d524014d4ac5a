//! Memory shared by two processes: synchronous memory, and memory of a pool. The second process
//! dies while it uses the memory.

use crate::common::{self, child};
use crate::or_skip;
use cuda_memory::{CachingManager, OrderedManager};
use cuda_safe::device::attribute;
use cuda_safe::manager::{AutoFreePointer, IpcHandle, IpcKind, MemoryPointer, set_memory_manager};
use cuda_safe::memory::IpcMemory;
use cuda_safe::memory::{ImportedPool, MemoryPoolOptions};
use cuda_safe::sys::CUmemAllocationHandleType;
use cuda_safe::{Context, Device, DeviceBuffer};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitStatus, Stdio};

const LEN: usize = 1 << 20;
/// The variable that is set in the second process.
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

/// Returns a context on the device of a handle, in the second process.
fn context_of(handle: &IpcHandle) -> Context {
    let device = handle.device().expect("asked").expect("the same machine");
    Context::primary(&device).expect("a context")
}

/// The work of the second process: it reads the first half of the memory and writes the second
/// half.
fn second(context: &Context, open: impl Fn() -> cuda_safe::Result<IpcMemory>) -> DeviceBuffer<u8> {
    let stream = context.stream().expect("a stream");
    let (memory, again) = (open(), open());
    let (memory, again) = (memory.expect("open"), again.expect("open already"));
    assert_eq!(memory.as_raw(), again.as_raw());
    assert_eq!(memory.size(), LEN);
    let address = memory.as_raw();
    // SAFETY: the memory has this size, its owner keeps it alive, and nothing else uses it until
    // this process reports that it is done.
    let mut buffer =
        unsafe { DeviceBuffer::<u8>::from_foreign(address, LEN, &stream, memory) }.expect("memory");
    let (first, mut second) = buffer.as_mut_slice().split_at(LEN / 2).expect("within");
    assert_eq!(first.as_slice().to_vec().expect("a copy"), [7; LEN / 2]);
    second.fill(9).expect("a fill");
    stream.synchronize().expect("a wait");
    buffer
}

fn say_done() {
    println!("second: done");
    std::io::stdout().flush().expect("out");
}

/// Ends the second process with all objects open and with pending work.
fn die(mut buffer: DeviceBuffer<u8>) -> ! {
    say_done();
    buffer.slice_mut(LEN / 2..).and_then(|mut its| its.fill(9)).expect("a fill");
    std::process::abort();
}

/// How the second process gets the handle.
enum Told<'a> {
    /// Through its standard input.
    Input(&'a str),
    /// Through an environment variable. Its standard input has another use.
    Variable(&'a str, &'a str, Stdio),
}

/// Starts the second process with the same test. Returns whether it did its part, and its exit
/// status.
fn start_second(test: &str, mode: &str, told: Told<'_>) -> (bool, ExitStatus) {
    let (line, variable, input) = match told {
        Told::Input(line) => (Some(line), None, Stdio::piped()),
        Told::Variable(name, value, input) => (None, Some((name, value)), input),
    };
    let mut second = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "--nocapture", "--test-threads=1"])
        .arg(test)
        .env(SECOND, mode)
        .envs(variable)
        .stdin(input)
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    if let Some(line) = line {
        let mut to = second.stdin.take().expect("a pipe");
        writeln!(to, "{line}").expect("sent");
    }
    let from = BufReader::new(second.stdout.take().expect("a pipe"));
    // Reads to the end, because the process writes more output afterwards.
    let lines = from.lines().map_while(Result::ok);
    let done = lines.filter(|line| line.contains("second: done")).count() != 0;
    (done, second.wait().expect("ended"))
}

/// Checks the memory in the first process, which then continues to use it.
fn go_on(buffer: &mut DeviceBuffer<u8>) {
    let found = buffer.to_vec().expect("a copy");
    assert_eq!((found[0], found[LEN / 2 - 1]), (7, 7));
    assert_eq!((found[LEN / 2], found[LEN - 1]), (9, 9));
    buffer.fill(3).expect("a fill");
    assert_eq!(buffer.to_vec().expect("a copy"), [3; LEN]);
    let stream = buffer.stream().clone();
    drop(DeviceBuffer::<u8>::zeroed(&stream, LEN).expect("memory"));
}

/// Returns a device whose memory processes can share, or reports a skip.
fn device() -> Option<Device> {
    let skip = |why| {
        common::skip(why);
        None
    };
    let device = common::real_gpu()?;
    let is_unified = device.attribute(attribute::UNIFIED_ADDRESSING);
    if !is_unified.unwrap_or(false) {
        return skip("needs unified addressing");
    }
    if std::env::var_os("CUDA_TESTS_SANITIZED").is_some() {
        return skip("a memory checker allocates its own memory");
    }
    Some(device)
}

#[test]
fn a_second_process_dies_with_memory_of_the_first_open() {
    if std::env::var_os(SECOND).is_some() {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).expect("a line");
        let handle = IpcHandle::from_bytes(&unhex(line.trim()));
        let context = context_of(&handle);
        // SAFETY: the first process keeps the memory alive until this one has exited.
        die(second(&context, || unsafe { context.open_memory(&handle) }));
    }
    let _alone = crate::green::alone();
    child::in_child(&[], || {
        let device = or_skip!(device());
        set_memory_manager(CachingManager::new).expect("a matching version");
        let context = Context::primary(&device).expect("a context");
        let stream = context.stream().expect("a stream");
        // The memory lies inside a slab.
        let _before = MemoryPointer::allocate_on(&stream, 5000).expect("memory");
        let memory = MemoryPointer::allocate_on(&stream, LEN).expect("memory");
        let memory = AutoFreePointer::from(memory);
        let exported = memory.export().expect("synchronous upstream memory");
        assert_ne!(exported.handle().offset(), 0);
        // SAFETY: the memory has this size, and its owner keeps it alive; it is used on this
        // stream, and by a process that is waited for.
        let mut buffer =
            unsafe { DeviceBuffer::<u8>::from_foreign(memory.as_raw(), LEN, &stream, memory) }
                .expect("memory");
        buffer.fill(7).expect("a fill");
        stream.synchronize().expect("a wait");
        let free_before = context.memory_info().expect("known").free;

        let test = "ipc::a_second_process_dies_with_memory_of_the_first_open";
        let handle = hex(&exported.handle().to_bytes());
        let (done, status) = start_second(test, "1", Told::Input(&handle));
        assert!(done && !status.success(), "it did its part and died: {status}");

        // The first process continues, with this memory and with new memory.
        go_on(&mut buffer);
        // The memory of the second process, above all its context, is free again.
        let free = context.memory_info().expect("known").free;
        assert!(free + (64 << 20) >= free_before, "{free} of {free_before} are free");
        let leaked = cuda_safe::leaked();
        drop((buffer, exported));
        assert_eq!(cuda_safe::leaked(), leaked);
    });
}

/// The second process gets the pool as its standard input and the handle in its environment. One
/// process exits normally, and one dies.
#[test]
fn a_second_process_uses_memory_of_the_first_processs_pool() {
    const HANDLE: &str = "CUDA_TESTS_IPC_HANDLE";
    if let Some(mode) = std::env::var_os(SECOND) {
        let text = std::env::var(HANDLE).expect("a handle");
        let handle = IpcHandle::from_bytes(&unhex(&text));
        let context = context_of(&handle);
        // SAFETY: this is the pool of the first process, and it is imported only here.
        let pool = unsafe { ImportedPool::import(&context, &std::io::stdin()) };
        let pool = pool.expect("a pool");
        // SAFETY: the first process keeps the memory alive until this one has exited, and has
        // waited for its allocation.
        let open = || unsafe { pool.open_memory(&handle) };
        let buffer = second(&context, open);
        if mode == "dies" {
            die(buffer);
        }
        // Opened again after it was freed here.
        drop(buffer);
        drop(second(&context, open));
        drop(pool);
        drop(context);
        assert_eq!(cuda_safe::leaked(), 0);
        return say_done();
    }
    let _alone = crate::green::alone();
    child::in_child(&[], || {
        let device = or_skip!(device());
        let kinds = device.attribute(attribute::MEMPOOL_SUPPORTED_HANDLE_TYPES);
        let descriptors = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        if kinds.map_or(0, |kinds| kinds.0) & descriptors.0 == 0 {
            return common::skip("needs memory pools that are shared by file descriptors");
        }
        let options = MemoryPoolOptions { shareable: true, ..Default::default() };
        set_memory_manager(move |context| OrderedManager::with(context, options))
            .expect("a matching version");
        let context = Context::primary(&device).expect("a context");
        let stream = context.stream().expect("a stream");
        let manager = context.memory_manager_as::<OrderedManager>();
        let pool = manager.expect("made").expect("the chosen manager").pool();
        let pool = pool.expect("its own").clone();
        let before = MemoryPointer::allocate_on(&stream, 5000).expect("memory");
        // A part of a larger allocation, so that there is an offset.
        let memory = MemoryPointer::allocate_on(&stream, LEN + 4096).expect("memory");
        let part = AutoFreePointer::from(memory).part(4096, LEN);
        let memory = part.expect("within");
        let exported = memory.export().expect("the pool is shareable");
        let handle = exported.handle();
        assert_eq!((handle.kind(), handle.offset()), (IpcKind::Pool, 4096));
        // SAFETY: as above.
        let mut buffer =
            unsafe { DeviceBuffer::<u8>::from_foreign(memory.as_raw(), LEN, &stream, memory) }
                .expect("memory");
        let test = "ipc::a_second_process_uses_memory_of_the_first_processs_pool";
        for mode in ["ends", "dies", "ends"] {
            buffer.fill(7).expect("a fill");
            stream.synchronize().expect("a wait");
            let descriptor = pool.export().expect("a descriptor");
            let line = hex(&handle.to_bytes());
            let told = Told::Variable(HANDLE, &line, Stdio::from(descriptor));
            let (done, status) = start_second(test, mode, told);
            let as_it_should = status.success() == (mode == "ends");
            assert!(done && as_it_should, "{mode}: {done}, {status}");
            go_on(&mut buffer);
        }
        drop((before, buffer, exported, pool, stream, context));
        assert!(!device.primary_state().expect("known").active);
        assert_eq!(cuda_safe::leaked(), 0);
    });
}
