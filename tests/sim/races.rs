//! The detection of races: what orders two operations, what a report says, and random programs.

mod host_writes;
mod oracle;
mod safe;
mod threads;

use crate::prelude::*;
use cuda_sim::races;
use cuda_sim::races::Access;

const NON_BLOCKING: u32 = 1;
const LEGACY: CUstream = null_mut();

/// Two streams that nothing orders, and memory that both use.
struct Bench {
    a: CUstream,
    b: CUstream,
    /// Whose work was recorded on `a` where a test calls [`Bench::record`].
    event: CUevent,
    memory: CUdeviceptr,
    /// Memory for the other side of copies.
    scratch: CUdeviceptr,
}

const SIZE: usize = 256;

impl Bench {
    fn new(profile: Profile) -> Self {
        cuda_sim::install(profile).expect("nothing was called before");
        succeeds!(cuInit(0));
        let context: CUcontext = out!(cuDevicePrimaryCtxRetain(0));
        succeeds!(cuCtxSetCurrent(context));
        let scratch = memory(SIZE);
        Self {
            a: out!(cuStreamCreate(NON_BLOCKING)),
            b: out!(cuStreamCreate(NON_BLOCKING)),
            event: out!(cuEventCreate(0)),
            memory: memory(SIZE),
            scratch,
        }
    }

    fn write(&self, stream: CUstream) {
        succeeds!(cuMemsetD8Async(self.memory, 1, SIZE, stream));
    }

    /// Reads bytes 16 to 48.
    fn read(&self, stream: CUstream) {
        let (to, from) = (self.scratch, self.memory + 16);
        succeeds!(cuMemcpyDtoDAsync_v2(to, from, 32, stream));
    }

    fn record(&self) {
        succeeds!(cuEventRecord(self.event, self.a));
    }

    fn synchronize(&self) {
        succeeds!(cuStreamSynchronize(self.b));
        succeeds!(cuStreamSynchronize(self.a));
    }
}

/// Starts the software driver with the detection of races. At the end, that many must have been found.
fn detecting(expected: usize) -> (Bench, AtEnd) {
    let end = AtEnd::new(move || {
        succeeds!(cuCtxSynchronize());
        let found = races();
        assert_eq!(found.len(), expected, "{found:#?}");
        assert_eq!(cuda_sim::misuses().len(), expected);
    });
    (Bench::new(Profile::h200().with_race_detection()), end)
}

#[test]
fn a_read_that_no_event_orders_after_a_write_is_a_race() {
    let (bench, _end) = &in_child!(detecting(1));
    bench.write(bench.a);
    bench.read(bench.b);
    bench.synchronize();
    let race = &races()[0];
    let (first, second) = (&race.first, &race.second);
    assert_eq!(first.function, "cuMemsetD8Async");
    assert_eq!(second.function, "cuMemcpyDtoDAsync_v2");
    assert_eq!((first.access, second.access), (Access::Write, Access::Read));
    let is_stream = |place| matches!(place, Place::Stream(_));
    assert!(is_stream(first.place) && is_stream(second.place));
    assert_ne!(first.place, second.place);
    let its = bench.memory;
    assert_eq!(first.bytes, its..its + 256);
    assert_eq!(second.bytes, its + 16..its + 48);
    assert_eq!(race.overlap, second.bytes);
    assert_eq!((race.memory.start, race.memory.size), (its, 256));
    let text = race.to_string();
    for part in [
        "race on 256 bytes of device memory",
        "a fill (cuMemsetD8Async) writes bytes 0..256 on the stream with id ",
        "a copy (cuMemcpyDtoDAsync_v2) reads bytes 16..48 on the stream with id ",
        "cuStreamWaitEvent",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert_eq!(cuda_sim::misuses(), [text]);
}

#[test]
fn a_race_is_found_with_every_seed() {
    const SEED: &str = "CUDA_TESTS_SEED";
    for seed in 0..8 {
        common::child::in_child(&[(SEED, &seed.to_string())], || {
            let seed = std::env::var(SEED).expect("it is set").parse().expect("a number");
            let bench = Bench::new(Profile::h200().with_race_detection().with_seed(seed));
            for round in 1..=12 {
                // Memory of this round, because a race is listed once for each allocation.
                let its = Bench { memory: memory(SIZE), ..bench };
                its.write(its.a);
                its.read(its.b);
                its.synchronize();
                assert_eq!(races().len(), round, "seed {seed}");
            }
        });
        if std::env::var_os(SEED).is_some() {
            return;
        }
    }
}

#[test]
fn a_detector_that_is_off_reports_nothing() {
    in_child!();
    let bench = Bench::new(Profile::h200());
    bench.write(bench.a);
    bench.read(bench.b);
    bench.synchronize();
    assert_eq!(races(), []);
    assert_eq!(cuda_sim::misuses(), [""; 0]);
}

#[test]
fn accesses_to_different_bytes_and_two_reads_are_no_race() {
    let (bench, _end) = &in_child!(detecting(0));
    succeeds!(cuMemsetD8Async(bench.memory, 1, 16, bench.a));
    bench.read(bench.b);
    let other = memory(SIZE);
    succeeds!(cuMemcpyDtoDAsync_v2(other, bench.memory + 16, 32, bench.a));
}

#[test]
fn an_event_orders_what_comes_before_its_record() {
    let (bench, _end) = &in_child!(detecting(1));
    bench.write(bench.a);
    bench.record();
    succeeds!(cuStreamWaitEvent(bench.b, bench.event, 0));
    bench.read(bench.b);
    // The record does not order this.
    bench.write(bench.a);
}

#[test]
fn an_event_orders_transitively() {
    let (bench, _end) = &in_child!(detecting(0));
    let third: CUstream = out!(cuStreamCreate(NON_BLOCKING));
    bench.write(bench.a);
    bench.record();
    succeeds!(cuStreamWaitEvent(third, bench.event, 0));
    succeeds!(cuEventRecord(bench.event, third));
    succeeds!(cuStreamWaitEvent(bench.b, bench.event, 0));
    bench.read(bench.b);
}

#[test]
fn waits_and_successful_queries_of_the_host_order() {
    let (bench, _end) = &in_child!(detecting(0));
    let start: CUevent = out!(cuEventCreate(0));
    let waits: [&dyn Fn(); 6] = [
        &|| succeeds!(cuStreamSynchronize(bench.a)),
        &|| succeeds!(cuEventSynchronize(bench.event)),
        &|| succeeds!(cuCtxSynchronize()),
        &|| {
            while code!(cuStreamQuery(bench.a)) == CUresult::CUDA_ERROR_NOT_READY {}
        },
        &|| {
            while code!(cuEventQuery(bench.event)) == CUresult::CUDA_ERROR_NOT_READY {}
        },
        &|| {
            let mut time = 0.0;
            let mut elapsed = || code!(cuEventElapsedTime_v2(&raw mut time, start, bench.event));
            while !elapsed().is_success() {
                let _ = code!(cuStreamQuery(bench.a));
            }
        },
    ];
    for wait in waits {
        succeeds!(cuEventRecord(start, bench.a));
        bench.write(bench.a);
        bench.record();
        wait();
        bench.read(bench.b);
        // Orders the next write after this read.
        succeeds!(cuStreamSynchronize(bench.b));
    }
}

#[test]
fn work_that_is_complete_although_nothing_waited_for_it_is_not_ordered() {
    let (bench, _end) = &in_child!(detecting(1));
    bench.write(bench.a);
    // Runs the work of `a` without telling the host that it is complete.
    while code!(cuStreamQuery(bench.a)) != CUresult::CUDA_ERROR_NOT_READY {}
    bench.read(bench.b);
}

#[test]
fn the_legacy_default_stream_is_ordered_with_blocking_streams_only() {
    let (bench, _end) = &in_child!(detecting(1));
    let blocking: CUstream = out!(cuStreamCreate(0));
    bench.write(blocking);
    bench.read(LEGACY);
    bench.write(blocking);
    succeeds!(cuStreamSynchronize(blocking));
    bench.write(LEGACY);
    bench.read(bench.a);
}

#[test]
fn the_legacy_default_stream_is_ordered_after_the_work_of_a_destroyed_blocking_stream() {
    let (bench, _end) = &in_child!(detecting(0));
    let blocking: CUstream = out!(cuStreamCreate(0));
    bench.write(blocking);
    succeeds!(cuStreamDestroy_v2(blocking));
    bench.read(LEGACY);
    // Only the read is waited for, which needs the write.
    succeeds!(cuStreamSynchronize(LEGACY));
}

#[test]
fn the_legacy_default_stream_is_ordered_after_complete_work_of_a_destroyed_blocking_stream() {
    let (bench, _end) = &in_child!(detecting(0));
    let blocking: CUstream = out!(cuStreamCreate(0));
    bench.write(blocking);
    // The write runs, but the host does not learn that it is complete.
    assert_eq!(code!(cuStreamQuery(blocking)), CUresult::CUDA_ERROR_NOT_READY);
    succeeds!(cuStreamDestroy_v2(blocking));
    bench.read(LEGACY);
}

#[test]
fn a_synchronous_copy_races_with_a_stream_that_does_not_block() {
    let (bench, _end) = &in_child!(detecting(1));
    let mut host = [0u8; 8];
    bench.write(bench.a);
    let to: *mut c_void = host.as_mut_ptr().cast();
    succeeds!(cuMemcpyDtoH_v2(to, bench.memory, 8));
    // The fill may run only now.
    succeeds!(cuStreamSynchronize(bench.a));
    let race = &races()[0];
    assert_eq!(race.second.function, "cuMemcpyDtoH_v2");
    assert!(matches!(race.second.place, Place::LegacyStream(_)));
}

#[test]
fn a_copy_races_with_the_use_of_its_pinned_memory_by_another_copy() {
    let (bench, _end) = &in_child!(detecting(1));
    let mut pinned: *mut c_void = null_mut();
    succeeds!(cuMemAllocHost_v2(&raw mut pinned, SIZE));
    succeeds!(cuMemcpyDtoHAsync_v2(pinned, bench.memory, SIZE, bench.a));
    let to = bench.scratch;
    succeeds!(cuMemcpyHtoD_v2(to, pinned, SIZE));
    succeeds!(cuStreamSynchronize(bench.a));
    assert_eq!(races()[0].memory.kind, "pinned memory");
    succeeds!(cuMemcpyHtoDAsync_v2(to, pinned, SIZE, bench.a));
}

#[test]
fn a_host_function_orders_what_comes_before_it() {
    unsafe extern "C" fn nothing(_: *mut c_void) {}
    let (bench, _end) = &in_child!(detecting(0));
    bench.write(bench.a);
    succeeds!(cuLaunchHostFunc(bench.a, Some(nothing), null_mut()));
    // Runs the host function, which could have told this thread.
    while code!(cuStreamQuery(bench.a)) == CUresult::CUDA_ERROR_NOT_READY {}
    bench.read(bench.b);
}

#[test]
fn a_wait_for_a_value_is_ordered_after_the_write_of_the_value() {
    let (bench, _end) = &in_child!(detecting(0));
    let word = memory(4);
    bench.write(bench.a);
    succeeds!(cuStreamWriteValue32_v2(bench.a, word, 1, 0));
    succeeds!(cuStreamWaitValue32_v2(bench.b, word, 1, 1));
    bench.read(bench.b);
}

#[test]
fn nodes_of_a_graph_without_an_edge_race_and_launches_do_not() {
    let (bench, _end) = &in_child!(detecting(1));
    let graph = graph();
    let first = fill_node(graph, &[], &fill(bench.memory, 1, 4));
    fill_node(graph, &[first], &fill(bench.memory, 2, 4));
    let executable = instantiate(graph);
    succeeds!(cuGraphLaunch(executable, bench.a));
    succeeds!(cuGraphLaunch(executable, bench.a));
    succeeds!(cuStreamSynchronize(bench.a));
    assert_eq!(races(), []);
    destroy_executable(executable);
    fill_node(graph, &[], &fill(bench.memory, 3, 4));
    let executable = instantiate(graph);
    succeeds!(cuGraphLaunch(executable, bench.a));
    succeeds!(cuStreamSynchronize(bench.a));
    let race = &races()[0];
    assert_eq!(race.first.function, "cuGraphLaunch");
    assert!(race.to_string().contains("between the two nodes"), "{race}");
    destroy_executable(executable);
    destroy(graph);
}

#[test]
fn a_kernel_that_reads_what_it_has_written_has_written_it() {
    let (bench, _end) = &in_child!(detecting(1));
    let image = b"\x7fELF-planted";
    kernel::register_image(image, &[("twice", &[8])]);
    kernel::register("twice", |launch| {
        launch.update::<u32>(0, 1, |_, _| 1)?;
        launch.read::<u32>(0, 1).map(drop)
    });
    let module: CUmodule = out!(cuModuleLoadData(image.as_ptr().cast()));
    let function: CUfunction = out!(cuModuleGetFunction(module, c"twice".as_ptr()));
    let mut place = bench.memory;
    let mut arguments = [(&raw mut place).cast::<c_void>()];
    let arguments = arguments.as_mut_ptr();
    succeeds!(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, bench.a, arguments, null_mut()));
    // Runs the kernel without telling the host that it is complete.
    while code!(cuStreamQuery(bench.a)) != CUresult::CUDA_ERROR_NOT_READY {}
    succeeds!(cuMemcpyDtoDAsync_v2(bench.scratch, bench.memory, 4, bench.b));
    bench.synchronize();
    assert_eq!((races()[0].first.access, races()[0].second.access), (Access::Write, Access::Read));
    succeeds!(cuModuleUnload(module));
}

#[test]
fn an_external_event_of_a_graph_orders() {
    let (bench, _end) = &in_child!(detecting(0));
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    succeeds!(cuStreamBeginCapture_v2(bench.a, mode));
    bench.write(bench.a);
    succeeds!(cuEventRecordWithFlags(bench.event, bench.a, 1));
    let mut graph = null_mut();
    succeeds!(cuStreamEndCapture(bench.a, &raw mut graph));
    let executable = instantiate(graph);
    succeeds!(cuGraphLaunch(executable, bench.a));
    succeeds!(cuStreamWaitEvent(bench.b, bench.event, 0));
    bench.read(bench.b);
    succeeds!(cuCtxSynchronize());
    destroy_executable(executable);
    destroy(graph);
}

#[test]
fn memory_that_is_used_before_its_allocation_on_another_stream_is_a_race() {
    in_child!();
    let bench = Bench::new(Profile::h200().with_race_detection().with_lenient_misuse());
    let mut its = 0;
    succeeds!(cuMemAllocAsync(&raw mut its, 64, bench.a));
    succeeds!(cuMemsetD8Async(its, 1, 64, bench.b));
    succeeds!(cuStreamSynchronize(bench.b));
    succeeds!(cuStreamSynchronize(bench.a));
    let race = &races()[0];
    assert_eq!(race.first.function, "cuMemAllocAsync");
    assert_eq!(race.first.access, Access::Allocate);
    assert_eq!(race.second.function, "cuMemsetD8Async");
    assert_eq!(race.memory.size, 64);
    assert_eq!(races().len(), 1);
    // The fill had its effect.
    let mut host = [0u8; 64];
    succeeds!(cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), its, 64));
    assert_eq!(host, [1; 64]);
}

#[test]
fn memory_that_is_freed_on_another_stream_than_it_is_used_on_is_a_race() {
    // With and without poisoning: whether the fill or the free runs first depends on the seed.
    const SEED: &str = "CUDA_TESTS_SEED";
    for seed in 0..4 {
        common::child::in_child(&[(SEED, &seed.to_string())], || {
            let seed = std::env::var(SEED).expect("it is set").parse().expect("a number");
            let profile = Profile::h200().with_race_detection().with_seed(seed);
            let bench = Bench::new(profile.with_lenient_misuse());
            let mut its = 0;
            succeeds!(cuMemAllocAsync(&raw mut its, 64, bench.a));
            succeeds!(cuStreamSynchronize(bench.a));
            succeeds!(cuMemsetD8Async(its, 1, 64, bench.b));
            succeeds!(cuMemFreeAsync(its, bench.a));
            bench.synchronize();
            let found = races();
            assert_eq!(found.len(), 1, "{found:#?}");
            assert_eq!(found[0].second.access, Access::Free);
            assert_eq!(found[0].first.function, "cuMemsetD8Async");
        });
        if std::env::var_os(SEED).is_some() {
            return;
        }
    }
}

#[test]
fn memory_of_a_graph_must_be_used_before_the_next_launch_allocates_it_again() {
    let (bench, _end) = &in_child!(detecting(3));
    succeeds!(cuStreamBeginCapture_v2(bench.a, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL));
    let memory: CUdeviceptr = out!(cuMemAllocAsync(SIZE, bench.a));
    succeeds!(cuMemsetD8Async(memory, 1, SIZE, bench.a));
    let mut graph: CUgraph = null_mut();
    succeeds!(cuStreamEndCapture(bench.a, &raw mut graph));
    let frees_first = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let flags = u64::from(frees_first.0);
    let executable: CUgraphExec = out!(cuGraphInstantiateWithFlags(graph, flags));
    succeeds!(cuGraphLaunch(executable, bench.a));
    succeeds!(cuMemcpyDtoDAsync_v2(bench.scratch, memory, SIZE, bench.a));
    succeeds!(cuGraphLaunch(executable, bench.b));
    succeeds!(cuCtxSynchronize());
    // With the free, the allocation and the fill of the second launch.
    for race in races() {
        assert_eq!(race.first.access, Access::Read);
        let (first, second) = (race.first.place, race.second.place);
        let text = race.to_string();
        let remedy =
            format!("after the operation on {first} (cuEventRecord), and let {second} wait");
        assert!(text.contains(&remedy), "{text}");
    }
}

#[test]
fn an_illegal_access_does_not_fail_later_calls_in_the_lenient_mode() {
    in_child!();
    let bench = Bench::new(Profile::h200().with_lenient_misuse());
    let its: CUdeviceptr = out!(cuMemAlloc_v2(64));
    let graph = graph();
    fill_node(graph, &[], &fill(its, 1, 4));
    let executable = instantiate(graph);
    succeeds!(cuMemFree_v2(its));
    succeeds!(cuGraphLaunch(executable, bench.a));
    succeeds!(cuStreamSynchronize(bench.a));
    let misuses = cuda_sim::misuses();
    assert_eq!(misuses.len(), 1, "{misuses:?}");
    bench.write(bench.a);
    succeeds!(cuStreamSynchronize(bench.a));
}

#[test]
fn the_environment_turns_the_modes_on() {
    let environment = [("CUDA_SIM_RACES", "1"), ("CUDA_SIM_LENIENT", "0")];
    common::child::in_child(&environment, || {
        let on = Profile::h200().with_race_detection();
        assert_eq!(Profile::h200().with_environment(), Ok(on));
    });
}

#[test]
fn a_mode_of_the_environment_that_is_not_valid_is_an_error() {
    common::child::in_child(&[("CUDA_SIM_RACES", "typo")], || {
        let why = Profile::h200().with_environment().expect_err("no mode");
        assert_eq!(why.to_string(), "CUDA_SIM_RACES: \"typo\" is neither \"0\" nor \"1\"");
    });
}

#[test]
fn a_value_that_a_stream_writes_for_the_host_orders_what_comes_before_it() {
    let (bench, _end) = &in_child!(detecting(0));
    let mut pinned: *mut c_void = null_mut();
    succeeds!(cuMemAllocHost_v2(&raw mut pinned, 4));
    // SAFETY: the memory has 4 bytes, and the stream writes it atomically.
    let value = unsafe { AtomicU32::from_ptr(pinned.cast()) };
    value.store(0, Ordering::Relaxed);
    let place: CUdeviceptr = out!(cuMemHostGetDevicePointer_v2(pinned, 0));
    bench.write(bench.a);
    succeeds!(cuStreamWriteValue32_v2(bench.a, place, 1, 0));
    // This stays incomplete, so that the query of the stream does not order anything.
    let other = memory(4);
    succeeds!(cuStreamWaitValue32_v2(bench.a, other, 1, 1));
    while value.load(Ordering::Acquire) == 0 {
        let code = code!(cuStreamQuery(bench.a));
        assert_eq!(code, CUresult::CUDA_ERROR_NOT_READY);
    }
    bench.read(bench.b);
    succeeds!(cuStreamWriteValue32_v2(bench.b, other, 1, 0));
    succeeds!(cuCtxSynchronize());
    succeeds!(cuMemFreeHost(pinned));
}
