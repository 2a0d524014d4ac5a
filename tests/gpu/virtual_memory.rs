//! Virtual memory on a real GPU: many cycles, large reservations, the time of an append beside the raw
//! calls, and memory that two processes share.

use crate::common::{self, child};
use crate::or_skip;
use cuda_safe::sys::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationProp, CUmemAllocationType, CUmemLocation,
    CUmemLocationType, Zeroable, cuMemAddressFree, cuMemAddressReserve, cuMemCreate, cuMemMap,
    cuMemRelease, cuMemSetAccess, cuMemUnmap,
};
use cuda_safe::virtual_memory::{
    GrowableBuffer, PhysicalMemory, PhysicalOptions, Reservation, Shareable,
};
use cuda_safe::{Context, Stream, attempt_deferred_releases};
use std::time::{Duration, Instant};

const GIB: usize = 1 << 30;

fn stage() -> Option<(Context, Stream, usize)> {
    common::real_gpu()?;
    let context = common::context()?;
    let stream = context.stream().expect("a stream");
    let options = PhysicalOptions::new(context.device());
    let granularity = options.granularity().expect("the granularity");
    Some((context, stream, granularity))
}

/// Repeats deferred releases until none is left.
fn settle(stream: &Stream) {
    stream.synchronize().expect("a wait");
    for _ in 0..1000 {
        attempt_deferred_releases();
        if cuda_safe::deferred_releases() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("releases are still deferred");
}

#[test]
fn device_memory_is_flat_over_ten_thousand_cycles() {
    child::in_child(&[], || {
        let (context, stream, granularity) = or_skip!(stage());
        let mut buffer = GrowableBuffer::<u8>::new(&stream, GIB).expect("a buffer");
        let free = |buffer: &mut GrowableBuffer<u8>| {
            buffer.truncate(0).expect("shorter");
            settle(&stream);
            assert_eq!(buffer.mapped_bytes(), 0);
            context.memory_info().expect("known").free
        };
        buffer.resize_zeroed(4 * granularity).expect("memory");
        let before = free(&mut buffer);
        for _ in 0..10_000 {
            buffer.resize_zeroed(4 * granularity).expect("memory");
            buffer.truncate(granularity).expect("shorter");
        }
        // Other tests and processes use the device too.
        let after = free(&mut buffer);
        assert!(after + GIB > before, "{before} to {after} bytes");
        assert_eq!(cuda_safe::leaked(), 0);
    });
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Appends with the raw calls. Returns the time of each.
fn raw_appends(context: &Context, step: usize, count: usize) -> Vec<Duration> {
    let _current = context.make_current().expect("current");
    let mut location = CUmemLocation::zeroed();
    location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    location.__bindgen_anon_1.id = context.device().as_raw();
    let properties = CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        location,
        ..CUmemAllocationProp::zeroed()
    };
    let access =
        CUmemAccessDesc { location, flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    let (mut start, mut handles, mut times) = (0, Vec::new(), Vec::new());
    // SAFETY: the pointer refers to a local variable.
    let code = unsafe { cuMemAddressReserve(&raw mut start, 1 << 40, 0, 0, 0) };
    assert!(code.is_success(), "{code:?}");
    for number in 0..count {
        let address = start + (number * step) as u64;
        let mut handle = 0;
        let begin = Instant::now();
        // SAFETY: the pointers refer to local variables.
        let created = unsafe { cuMemCreate(&raw mut handle, step, &raw const properties, 0) };
        // SAFETY: the handle was created, and nothing is mapped to the address.
        let mapped = unsafe { cuMemMap(address, step, 0, handle, 0) };
        // SAFETY: the range is one mapping, and the pointer refers to a local variable.
        let set = unsafe { cuMemSetAccess(address, step, &raw const access, 1) };
        times.push(begin.elapsed());
        assert!(created.is_success() && mapped.is_success() && set.is_success());
        handles.push(handle);
    }
    for (number, handle) in handles.into_iter().enumerate() {
        let address = start + (number * step) as u64;
        // SAFETY: the range is one mapping, which nothing uses.
        let unmapped = unsafe { cuMemUnmap(address, step) };
        // SAFETY: the handle is released once.
        let released = unsafe { cuMemRelease(handle) };
        assert!(unmapped.is_success() && released.is_success());
    }
    // SAFETY: nothing is mapped to the range.
    let freed = unsafe { cuMemAddressFree(start, 1 << 40) };
    assert!(freed.is_success(), "{freed:?}");
    times
}

#[test]
fn an_append_to_a_terabyte_takes_as_long_as_the_raw_calls() {
    child::in_child(&[], || {
        let (context, stream, granularity) = or_skip!(stage());
        // 64 GiB, or most of a smaller device.
        let free = context.memory_info().expect("known").free;
        let count = (64 * GIB).min(free / 4 * 3) / granularity;
        let raw = raw_appends(&context, granularity, count);
        let mut buffer = GrowableBuffer::<u8>::new(&stream, 1 << 40).expect("a buffer");
        let mut times = Vec::new();
        for number in 1..=count {
            let begin = Instant::now();
            buffer.grow(number * granularity).expect("memory");
            times.push(begin.elapsed());
        }
        assert_eq!(buffer.mapped_bytes(), count * granularity);
        let mut last = buffer.as_mut_slice().slice((count - 1) * granularity..);
        let last = last.as_mut().expect("within");
        last.fill(7).expect("a fill");
        stream.synchronize().expect("the fill");
        let (first, late) = (median(times[..1000].to_vec()), median(times.clone()));
        let (ours, theirs) = (median(times), median(raw));
        eprintln!("note: {count} appends: {ours:?} each, with the raw calls {theirs:?}");
        // The granularity is queried too, which takes less than 1 µs.
        assert!(ours < theirs.mul_f64(1.2), "{ours:?}, {theirs:?}");
        assert!(late < first.mul_f64(1.5), "{first:?} at first, then {late:?}");
    });
}

#[test]
fn unmapping_beside_a_running_kernel_does_not_wait() {
    child::in_child(&[], || {
        let (context, stream, granularity) = or_skip!(stage());
        let other = context.stream().expect("a stream");
        let mut buffer = GrowableBuffer::<u8>::new(&other, 8 * granularity).expect("a buffer");
        buffer.resize_zeroed(8 * granularity).expect("memory");
        other.synchronize().expect("the fill");
        let probe = cuda_safe::green::SmProbe::new(&context).expect("a probe");
        let running = probe.start(&stream).expect("a kernel");
        for _ in 0..100 {
            buffer.truncate(0).expect("shorter");
            attempt_deferred_releases();
            buffer.resize_zeroed(8 * granularity).expect("memory");
        }
        drop(running);
        stream.synchronize().expect("the kernel");
        other.synchronize().expect("the fills");
    });
}

const SECOND: &str = "CUDA_TESTS_VIRTUAL_MEMORY_SECOND";

/// The second process: the descriptor is its standard input. It reads the first half of the memory, and
/// writes the second half.
#[cfg(unix)]
fn second() {
    let (context, stream, granularity) = stage().expect("a GPU");
    // SAFETY: the first process exported memory of this size, and waits.
    let memory = unsafe { PhysicalMemory::import(&std::io::stdin(), granularity) };
    let memory = memory.expect("the memory of the first process");
    let location = memory.properties().expect("known").location;
    assert_eq!(location, Some(context.device().into()));
    let space = Reservation::new(granularity).expect("addresses");
    let mapping = space.map(0, memory).expect("a mapping");
    let mut buffer = mapping.into_buffer::<u8>(&stream).expect("a buffer");
    let half = granularity / 2;
    let (first, mut last) = buffer.as_mut_slice().split_at(half).expect("within");
    let read = first.as_slice().to_vec().expect("a copy");
    assert!(read.iter().all(|byte| *byte == 7));
    last.fill(9).expect("a fill");
    stream.synchronize().expect("the fill");
}

#[test]
#[cfg(unix)]
fn two_processes_share_memory_by_a_descriptor() {
    use std::process::{Command, Stdio};

    if std::env::var_os(SECOND).is_some() {
        return second();
    }
    let (context, stream, granularity) = or_skip!(stage());
    let options = PhysicalOptions::new(context.device()).shareable(Shareable::Descriptor);
    let memory = match PhysicalMemory::with(granularity, &options) {
        Ok(memory) => memory,
        Err(error) => return common::skip(&format!("no file descriptors of memory: {error}")),
    };
    let descriptor = memory.export().expect("a descriptor");
    let space = Reservation::new(granularity).expect("addresses");
    let mapping = space.map(0, memory).expect("a mapping");
    let mut buffer = mapping.into_buffer::<u8>(&stream).expect("a buffer");
    buffer.fill(7).expect("a fill");
    stream.synchronize().expect("the fill");
    let name = "virtual_memory::two_processes_share_memory_by_a_descriptor";
    let status = Command::new(std::env::current_exe().expect("the test binary"))
        .args([name, "--exact", "--test-threads=1"])
        .env(SECOND, "1")
        .stdin(Stdio::from(descriptor))
        .status()
        .expect("the second process");
    assert!(status.success(), "{status}");
    let half = granularity / 2;
    let elements = buffer.to_vec().expect("a copy");
    assert!(elements[..half].iter().all(|byte| *byte == 7));
    assert!(elements[half..].iter().all(|byte| *byte == 9));
}
