//! Wrapper managers and buffers of managers: the calls that they pass on, and those that they refuse.

use crate::manager::inside::with;
use crate::prelude::*;
use cuda_safe::manager::IpcKind;
use std::io;

/// A writer whose text is complete only after a flush.
struct Buffered {
    waiting: Vec<u8>,
    written: Arc<Mutex<Vec<u8>>>,
}

impl io::Write for Buffered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut written = self.written.lock().expect("no panic while it was locked");
        written.append(&mut self.waiting);
        Ok(())
    }
}

/// Runs `body` with a logging manager, and returns the log of the dropped manager.
fn logged(body: impl FnOnce(Context), look: impl FnOnce(String)) {
    let written = Arc::new(Mutex::new(Vec::new()));
    let of_writer = Arc::clone(&written);
    let make = move |context: &Context| {
        let writer = Buffered { waiting: Vec::new(), written: Arc::clone(&of_writer) };
        Ok(LoggingManager::new(DriverManager::new(context)?, writer))
    };
    let (_end, context) = in_child!(with(make));
    body(context);
    let text = String::from_utf8(written.lock().expect("no panic").clone());
    look(text.expect("a log is text"));
}

#[test]
fn a_dropped_logging_manager_flushes_its_writer() {
    let allocate = |context: Context| {
        drop(MemoryPointer::allocate(&context, 77).expect("memory"));
    };
    logged(allocate, |text| {
        assert!(text.lines().any(|line| line.contains("77")), "{text:?}");
    });
}

#[test]
fn a_log_tells_the_streams_of_allocations_apart() {
    let allocate = |context: Context| {
        let streams = [(); 2].map(|()| context.stream().expect("a stream"));
        let on = |stream| MemoryPointer::allocate_on(stream, 64).expect("memory");
        let _memory = streams.each_ref().map(on);
    };
    logged(allocate, |text| {
        let of_kind = |kind: &'static str| {
            let lines = text.lines().filter(move |line| line.starts_with(kind));
            let mut streams: Vec<_> =
                lines.filter_map(|line| line.split(' ').next_back()).collect();
            streams.sort_unstable();
            streams
        };
        let allocated = of_kind("a ");
        assert!(allocated.len() == 2 && allocated[0] != allocated[1], "{text}");
        assert_eq!(of_kind("f "), allocated, "{text}");
    });
}

fn limited(context: &Context) -> Result<FallbackManager<LimitManager<DriverManager>>> {
    Ok(FallbackManager::new(LimitManager::new(DriverManager::new(context)?, 4096), Fallback::Host))
}

#[test]
fn a_part_of_fallback_memory_has_no_handle() {
    let (_end, context) = in_child!(with(limited));
    let device = AutoFreePointer::from(MemoryPointer::allocate(&context, 64).expect("memory"));
    let handle = device.export().expect("device memory has a handle");
    assert_eq!(handle.handle().kind(), IpcKind::Synchronous);
    let host = MemoryPointer::allocate(&context, 8192).expect("fallback memory");
    let host = AutoFreePointer::from(host);
    let part = host.part(4096, 64).expect("within");
    let error = part.export().expect_err("host memory has no handle");
    assert!(
        matches!(&error, Error::Invalid(why) if matches!(**why, Invalid::NotShareable { .. })),
        "{error}"
    );
}

#[test]
fn a_trimmed_ordered_manager_returns_the_memory_of_its_pool() {
    let make = |context: &Context| OrderedManager::with(context, MemoryPoolOptions::default());
    let (_end, context) = in_child!(with(make));
    let manager = context.memory_manager_as::<OrderedManager>();
    let pool = manager.expect("made").expect("the chosen manager").pool();
    let pool = pool.expect("its own pool").clone();
    let threshold = cuda_safe::memory::pool::attribute::RELEASE_THRESHOLD;
    pool.set_attribute(threshold, u64::MAX).expect("set");
    let stream = context.stream().expect("a stream");
    drop(MemoryPointer::allocate_on(&stream, 1 << 20).expect("memory"));
    stream.synchronize().expect("a wait");
    let manager = context.memory_manager_as::<OrderedManager>();
    let manager = manager.expect("made").expect("the chosen manager");
    let reserved =
        || pool.attribute(cuda_safe::memory::pool::attribute::RESERVED_CURRENT).expect("known");
    assert_ne!(reserved(), 0, "the pool keeps freed memory");
    MemoryManager::trim(manager, 0).expect("a trim");
    assert_eq!(reserved(), 0);
}

#[test]
fn a_buffer_of_a_manager_is_not_bound_to_a_stream_without_that_manager() {
    let (_end, context) = in_child!(with(DriverManager::new));
    let stream = context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 64).expect("memory");
    let manager = context.memory_manager().expect("made");
    let without = manager.expect("the chosen manager").base().context();
    let other = without.stream().expect("a stream without a manager");
    let error = buffer.rebind(&other).expect_err("the memory is of the manager");
    assert_eq!(error, Invalid::OtherManager.into());
}

#[test]
fn pinned_memory_of_a_manager_is_not_mapped_on_a_stream_without_that_manager() {
    let (_end, context) = in_child!(with(DriverManager::new));
    let manager = context.memory_manager().expect("made");
    let without = manager.expect("the chosen manager").base().context();
    let stream = without.stream().expect("a stream without a manager");
    let allocated = PinnedBuffer::<u8>::zeroed(&context, 64).expect("pinned");
    let registered = PinnedBuffer::register(&context, vec![0_u8; 64]).expect("pinned");
    for memory in [allocated, registered] {
        let error = MappedBuffer::new(memory, &stream).expect_err("the memory is of the manager");
        assert_eq!(error, Invalid::OtherManager.into());
    }
    let memory = PinnedBuffer::<u8>::zeroed(without, 64).expect("pinned");
    MappedBuffer::new(memory, &stream).expect("the memory is of the driver");
}

#[test]
fn a_manager_pins_no_empty_vector_and_returns_no_vector_that_it_did_not_pin() {
    let (_end, context) = in_child!(with(DriverManager::new));
    let empty = PinnedBuffer::register(&context, Vec::<u64>::with_capacity(9));
    let empty = empty.expect("nothing to pin");
    assert!(empty.unregister().expect("a vector").capacity() >= 9);
    let allocated = PinnedBuffer::<u8>::zeroed(&context, 64).expect("memory");
    let error = allocated.unregister().expect_err("it was allocated");
    assert_eq!(error, Invalid::NotRegistered.into());
}

#[cfg(unix)]
#[test]
fn a_forked_child_runs_no_finalizer_and_drops_no_owner() {
    static FINALIZED: AtomicUsize = AtomicUsize::new(0);
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Owner;
    impl Drop for Owner {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (_end, context) = in_child!(with(DriverManager::new));
    let finalizer = || {
        FINALIZED.fetch_add(1, Ordering::Relaxed);
    };
    // SAFETY: nothing uses the address.
    let memory = unsafe {
        MemoryPointer::from_raw(
            &context,
            0x1000,
            64,
            Some(Box::new(Owner)),
            Some(Box::new(finalizer)),
        )
    };
    let memory = memory.expect("an address");
    let mut memory = Some(memory);
    assert!(common::fork::in_fork(|| {
        drop(memory.take());
        [&FINALIZED, &DROPPED].map(|count| count.load(Ordering::Relaxed)) == [0, 0]
    }));
    drop(memory);
    let of_parent = [&FINALIZED, &DROPPED].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(of_parent, [1, 1]);
}

#[test]
fn a_failed_query_of_a_pointer_is_not_repeated() {
    let (_end, context) = in_child!(with(DriverManager::new));
    let _refused = fail("cuPointerGetAttributes", 1, CUresult::CUDA_ERROR_NOT_PERMITTED);
    let error = context.pointer_info(0x1234).expect_err("it is refused");
    assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_NOT_PERMITTED));
}
