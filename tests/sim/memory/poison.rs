//! Bytes that a library makes inaccessible within its allocations.

use crate::prelude::*;
use cuda_sim::{poison, unpoison};

const SIZE: usize = 4096;

/// The objects that the tests use.
struct Bench {
    stream: CUstream,
    /// An allocation of [`SIZE`] bytes, which are zero.
    pool: u64,
    /// `scale(u32 *x, u32 factor, u32 offset, u32 n)`
    scale: CUfunction,
}

impl Bench {
    /// Starts the driver. The stream does not wait for the legacy default stream.
    fn new(profile: Profile) -> Self {
        start(profile);
        succeeds!(cuInit(0));
        let context: CUcontext = out!(cuDevicePrimaryCtxRetain(0));
        succeeds!(cuCtxSetCurrent(context));
        let image = CString::new(VECTOR).expect("PTX");
        let module: CUmodule = out!(cuModuleLoadData(image.as_ptr().cast()));
        let bench = Self {
            stream: out!(cuStreamCreate(1)),
            pool: out!(cuMemAlloc_v2(SIZE)),
            scale: out!(cuModuleGetFunction(module, c"scale".as_ptr())),
        };
        succeeds!(cuMemsetD8_v2(bench.pool, 0, SIZE));
        succeeds!(cuCtxSynchronize());
        bench
    }

    /// Launches a kernel that adds 1 to `count` integers from a byte of the pool on.
    fn add_one(&self, offset: u64, count: u32) {
        let (at, factor, one) = (self.pool + offset, 1_u32, 1_u32);
        let mut arguments: [*mut c_void; 4] = [
            from_ref(&at).cast_mut().cast(),
            from_ref(&factor).cast_mut().cast(),
            from_ref(&one).cast_mut().cast(),
            from_ref(&count).cast_mut().cast(),
        ];
        let arguments = arguments.as_mut_ptr();
        succeeds!(cuLaunchKernel(
            self.scale,
            1,
            1,
            1,
            32,
            1,
            1,
            0,
            self.stream,
            arguments,
            null_mut()
        ));
    }

    fn poison(&self, offset: u64, size: usize) {
        poison(self.pool + offset, size, Some(self.stream)).expect("memory of the driver");
    }

    fn unpoison(&self, offset: u64, size: usize) {
        unpoison(self.pool + offset, size, Some(self.stream)).expect("memory of the driver");
    }

    fn synchronize(&self) -> CUresult {
        code!(cuStreamSynchronize(self.stream))
    }
}

/// Returns the number of misuses that an access causes, which must all name the byte `offset` of the pool.
#[track_caller]
fn misuses_of(bench: &Bench, offset: u64, access: impl FnOnce()) -> usize {
    let before = cuda_sim::misuses().len();
    access();
    succeeds!(cuStreamSynchronize(bench.stream));
    let new = cuda_sim::misuses().split_off(before);
    let words = format!(
        "poisoned from the byte {offset} of {SIZE} bytes of device memory at {:#x} on; its bytes 100 to 127 were poisoned \
         on the stream with id",
        bench.pool
    );
    assert!(new.iter().all(|its| its.contains(&words)), "{words:?} is not in {new:?}");
    new.len()
}

#[test]
fn every_access_to_poisoned_bytes_fails_and_names_them() {
    let bench = in_child!(Bench::new(Profile::h200().with_lenient_misuse()));
    let Bench { stream, pool, .. } = bench;
    bench.poison(100, 28);
    let host: *mut c_void = out!(cuMemAllocHost_v2(64));
    // The bytes on both sides.
    let correct = misuses_of(&bench, 0, || {
        bench.add_one(0, 25);
        bench.add_one(128, 10);
        succeeds!(cuMemsetD8Async(pool + 36, 1, 64, stream));
        succeeds!(cuMemcpyDtoDAsync_v2(pool + 128, pool + 36, 64, stream));
        succeeds!(cuMemcpyHtoDAsync_v2(pool + 128, host, 64, stream));
        succeeds!(cuMemcpyDtoHAsync_v2(host, pool + 36, 64, stream));
        succeeds!(cuStreamWriteValue32_v2(stream, pool + 96, 5, 0));
        succeeds!(cuStreamWaitValue32_v2(stream, pool + 96, 5, 1));
    });
    assert_eq!(correct, 0);
    let failing: [(u64, &dyn Fn()); 8] = [
        (100, &|| bench.add_one(0, 26)),
        (124, &|| bench.add_one(124, 1)),
        (100, &|| succeeds!(cuMemsetD8Async(pool + 37, 1, 64, stream))),
        (127, &|| succeeds!(cuMemsetD8Async(pool + 127, 1, 1, stream))),
        (120, &|| succeeds!(cuMemcpyDtoDAsync_v2(pool + 300, pool + 120, 64, stream))),
        (100, &|| succeeds!(cuMemcpyDtoDAsync_v2(pool + 90, pool + 300, 64, stream))),
        (110, &|| succeeds!(cuMemcpyHtoDAsync_v2(pool + 110, host, 2, stream))),
        (110, &|| succeeds!(cuMemcpyDtoHAsync_v2(host, pool + 110, 2, stream))),
    ];
    for (number, (offset, access)) in failing.into_iter().enumerate() {
        assert_ne!(misuses_of(&bench, offset, access), 0, "{number}");
    }
    succeeds!(cuStreamWriteValue32_v2(stream, pool + 100, 5, 0));
    succeeds!(cuStreamSynchronize(stream));
    assert!(cuda_sim::misuses().last().expect("one").contains("from the byte 100"));
    // A synchronous copy returns the error itself.
    refused!(INVALID, cuMemcpyDtoH_v2(host, pool + 127, 2));
    assert!(cuda_sim::misuses().last().expect("one").contains("from the byte 127"));
    bench.unpoison(0, SIZE);
    for (_, access) in failing {
        assert_eq!(misuses_of(&bench, 0, access), 0);
    }
}

#[test]
fn a_kernel_that_reads_poisoned_bytes_fails_as_beyond_an_allocation() {
    let bench = in_child!(Bench::new(Profile::h200()));
    bench.poison(100, 28);
    bench.add_one(0, 26);
    assert_eq!(bench.synchronize(), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    found("kernel \"scale\"");
    found("they are poisoned from the byte 100 of 4096 bytes");
}

#[test]
fn a_registered_kernel_is_checked_too() {
    let bench = in_child!(Bench::new(Profile::h200()));
    kernel::register("scale", |launch| launch.update::<u32>(0, 26, |_, x| x + 1));
    bench.poison(100, 28);
    bench.add_one(0, 26);
    assert_eq!(bench.synchronize(), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    found(&format!("104 bytes at {:#x} are poisoned from the byte 100", bench.pool));
}

#[test]
fn bytes_are_poisoned_in_the_order_of_their_stream() {
    let bench = in_child!(Bench::new(Profile::h200()));
    let other: CUstream = out!(cuStreamCreate(1));
    let event: CUevent = out!(cuEventCreate(2));
    for _ in 0..3 {
        bench.add_one(0, 32);
        bench.poison(0, 128);
        // The last operation before both is not complete.
        bench.unpoison(0, 64);
        bench.add_one(0, 16);
        succeeds!(cuEventRecord(event, bench.stream));
        succeeds!(cuStreamWaitEvent(other, event, 0));
        unpoison(bench.pool + 64, 64, Some(other)).expect("memory of the driver");
        succeeds!(cuMemsetD8Async(bench.pool, 1, 128, other));
        succeeds!(cuStreamSynchronize(other));
    }
    assert_eq!(cuda_sim::misuses(), [""; 0]);
    bench.add_one(0, 32);
    bench.poison(0, 128);
    bench.add_one(0, 1);
    assert_eq!(bench.synchronize(), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(cuda_sim::misuses().len(), 1);
}

#[test]
fn a_poison_on_the_legacy_default_stream_comes_after_the_blocking_streams() {
    let bench = in_child!(Bench::new(Profile::h200()));
    let blocking: CUstream = out!(cuStreamCreate(0));
    let bench = Bench { stream: blocking, ..bench };
    bench.add_one(0, 32);
    // No context needs to be current, since the memory has one.
    let context: CUcontext = out!(cuCtxPopCurrent_v2());
    poison(bench.pool, 128, Some(null_mut())).expect("memory of the driver");
    succeeds!(cuCtxPushCurrent_v2(context));
    assert!(bench.synchronize().is_success());
    assert_eq!(cuda_sim::misuses(), [""; 0]);
    bench.add_one(0, 1);
    assert_eq!(bench.synchronize(), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn a_mark_is_no_work_of_its_stream() {
    let bench = in_child!(Bench::new(Profile::h200()));
    bench.poison(0, 128);
    succeeds!(cuStreamQuery(bench.stream));
    bench.add_one(128, 1);
    let event: CUevent = out!(cuEventCreate(2));
    succeeds!(cuEventRecord(event, bench.stream));
    bench.unpoison(0, 128);
    succeeds!(cuEventSynchronize(event));
    succeeds!(cuStreamQuery(bench.stream));
    succeeds!(cuMemsetD8_v2(bench.pool, 0, SIZE));
    succeeds!(cuCtxSynchronize());
    assert_eq!(cuda_sim::misuses(), [""; 0]);
}

#[test]
fn a_change_without_a_stream_takes_effect_at_once_and_undoes_what_waits() {
    let bench = in_child!(Bench::new(Profile::h200()));
    bench.add_one(0, 32);
    bench.poison(0, 256);
    unpoison(bench.pool, 128, None).expect("memory of the driver");
    bench.add_one(0, 32);
    assert!(bench.synchronize().is_success());
    poison(bench.pool, 4, None).expect("memory of the driver");
    bench.add_one(0, 32);
    assert_eq!(bench.synchronize(), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    found("its bytes 0 to 3 were poisoned on the host");
}

#[test]
fn a_captured_stream_poisons_nothing() {
    let bench = in_child!(Bench::new(Profile::h200()));
    bench.poison(0, 128);
    succeeds!(cuStreamBeginCapture_v2(
        bench.stream,
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED
    ));
    bench.unpoison(0, 128);
    bench.add_one(0, 32);
    bench.poison(0, 128);
    let mut graph = null_mut();
    succeeds!(cuStreamEndCapture(bench.stream, &raw mut graph));
    let executable: CUgraphExec = out!(cuGraphInstantiateWithFlags(graph, 0));
    succeeds!(cuGraphLaunch(executable, bench.stream));
    succeeds!(cuGraphLaunch(executable, bench.stream));
    assert!(bench.synchronize().is_success());
}

#[test]
fn freed_and_unmapped_memory_has_no_poisoned_bytes() {
    let bench = in_child!(Bench::new(Profile::h200()));
    // The free of the memory waits for no event, and the poison would take effect after it.
    let memory: u64 = out!(cuMemAllocAsync(1000, bench.stream));
    bench.add_one(0, 32);
    poison(memory, 1000, Some(bench.stream)).expect("memory of the driver");
    succeeds!(cuMemFreeAsync(memory, bench.stream));
    assert!(bench.synchronize().is_success());
    assert_eq!(poison(memory, 1000, None), Err(INVALID));
    let refusals = [(bench.pool, SIZE + 1), (bench.pool - 1, 1), (bench.pool + 4000, 97), (64, 1)];
    for (address, size) in refusals {
        assert_eq!(poison(address, size, None), Err(INVALID), "{address:#x}");
    }
    let unknown = without_provenance_mut(0x1234);
    let refused = poison(bench.pool, 1, Some(unknown));
    assert_eq!(refused, Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
}

#[cfg(target_os = "linux")]
#[test]
fn mapped_memory_can_be_poisoned() {
    in_child!(start(Profile::h200().with_lenient_misuse()));
    let context = context();
    let device = context.device();
    let stream = context.stream().expect("a stream");
    let reservation = Reservation::new(2 * PAGE).expect("addresses");
    let at = reservation.address();
    for _ in 0..2 {
        let memory = PhysicalMemory::new(device, PAGE).expect("memory");
        let mut mapping = reservation.map(0, memory).expect("mapped");
        mapping.set_access(device, MemoryAccess::ReadWrite).expect("access");
        succeeds!(cuMemsetD8Async(at, 1, PAGE, stream.as_raw()));
        stream.synchronize().expect("all of it");
        poison(at + 512, 512, Some(stream.as_raw())).expect("mapped memory");
        assert_eq!(poison(at + 512, PAGE, None), Err(INVALID));
        succeeds!(cuMemsetD8Async(at, 1, 512, stream.as_raw()));
        succeeds!(cuMemsetD8Async(at, 1, 513, stream.as_raw()));
        stream.synchronize().expect("a misuse only");
        found(&format!("from the byte 512 of {PAGE} bytes of mapped memory at {at:#x}"));
        drop(mapping.unmap().expect("unmapped"));
    }
    assert_eq!(cuda_sim::misuses().len(), 2);
}

#[test]
fn a_report_names_the_place_of_the_poison_if_places_are_noted() {
    if !crate::leaks::has_symbols() {
        return crate::common::skip("the binary has no symbols");
    }
    let bench = in_child!(Bench::new(Profile::h200().with_leak_sites()));
    bench.poison(0, 8);
    bench.add_one(0, 1);
    assert_eq!(bench.synchronize(), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    found("its bytes 0 to 7 were poisoned on the stream with id");
    found("memory::poison::Bench");
}
