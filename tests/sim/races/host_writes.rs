//! Writes of the program to the pinned source of a copy that has not run.

use super::Bench;
use super::{SIZE, detecting};
use crate::prelude::*;
use crate::stream::callbacks::one_misuse;
use cuda_sim::races;
use cuda_sim::races::Access;
use std::sync::mpsc::Receiver;

/// Mapped pinned memory, which both the program and the device access.
#[derive(Clone, Copy)]
struct Host(*mut u8);

// SAFETY: threads of these tests take turns.
unsafe impl Send for Host {}

impl Host {
    fn new() -> Self {
        let host: *mut c_void = out!(cuMemHostAlloc(SIZE, CU_MEMHOSTALLOC_DEVICEMAP));
        Self(host.cast())
    }

    fn set(self, at: usize, value: u8) {
        assert!(at < SIZE);
        // SAFETY: the byte is in the memory.
        let place = unsafe { self.0.add(at) };
        // SAFETY: the byte is in the memory. The software driver is not inside a call, or reads the byte with an
        // atomic load.
        unsafe { place.write_volatile(value) };
    }

    /// Enqueues a copy of all bytes to the device.
    fn copy(self, bench: &Bench) {
        succeeds!(cuMemcpyHtoDAsync_v2(bench.memory, self.0.cast(), SIZE, bench.a));
    }

    fn device(self) -> u64 {
        out!(cuMemHostGetDevicePointer_v2(self.0.cast(), 0))
    }
}

#[test]
fn a_write_of_the_program_before_the_copy_has_run_is_a_race() {
    let (bench, _end) = &in_child!(detecting(1));
    let host = Host::new();
    host.copy(bench);
    for at in [16, 17, 40] {
        host.set(at, 9);
    }
    bench.synchronize();
    let races = races();
    let (first, second) = (&races[0].first, &races[0].second);
    let start = host.0.addr() as u64;
    assert_eq!(first.function, "cuMemcpyHtoDAsync_v2");
    assert!(matches!(first.place, Place::Stream(_)));
    assert_eq!((first.access, &first.bytes), (Access::Read, &(start..start + SIZE as u64)));
    assert_eq!((second.function, second.place), ("", Place::Host));
    assert_eq!((second.access, &second.bytes), (Access::Write, &(start + 16..start + 18)));
    assert_eq!(races[0].memory.kind, "pinned memory");
    let Place::Stream(id) = first.place else { unreachable!() };
    one_misuse(&format!(
        "a copy (cuMemcpyHtoDAsync_v2) reads bytes 0..256 on the stream with id {id}, and the program writes \
         bytes 16..18 on the host; nothing orders the two. Wait on the host"
    ));
}

#[test]
fn a_write_before_a_copy_of_rows_or_of_a_graph_has_run_is_a_race() {
    let (bench, _end) = &in_child!(detecting(2));
    let host = Host::new();
    let rows = CUDA_MEMCPY2D {
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
        srcHost: host.0.cast(),
        srcPitch: 64,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstDevice: bench.memory,
        dstPitch: 64,
        WidthInBytes: 32,
        Height: 4,
        ..cuda_safe::sys::Zeroable::zeroed()
    };
    succeeds!(cuMemcpy2DAsync_v2(&raw const rows, bench.a));
    // Between two rows, and in the third row.
    host.set(40, 1);
    host.set(130, 1);
    bench.synchronize();
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    succeeds!(cuStreamBeginCapture_v2(bench.a, mode));
    host.copy(bench);
    let mut graph = null_mut();
    succeeds!(cuStreamEndCapture(bench.a, &raw mut graph));
    let executable = instantiate(graph);
    host.set(3, 7);
    succeeds!(cuGraphLaunch(executable, bench.a));
    host.set(5, 7);
    bench.synchronize();
    let races = races();
    let places = races.iter().map(|its| its.second.bytes.start - host.0.addr() as u64);
    assert!(places.eq([130, 5]));
    assert_eq!(races[1].first.function, "cuGraphLaunch");
}

#[test]
fn writes_before_the_call_after_the_copy_and_of_equal_bytes_are_no_races() {
    let (bench, _end) = &in_child!(detecting(0));
    let host = Host::new();
    for value in 0..3 {
        host.set(value, 9);
        host.copy(bench);
        host.set(value, 9);
        bench.synchronize();
    }
    host.copy(bench);
    while !is_idle(bench) {}
    host.set(0, 77);
    host.copy(bench);
    bench.synchronize();
}

/// Returns whether the first stream is idle.
fn is_idle(bench: &Bench) -> bool {
    crate::graph::calls::code!(cuStreamQuery(bench.a)).is_success()
}

#[test]
fn writes_of_earlier_work_are_no_races() {
    let (bench, _end) = &in_child!(detecting(0));
    let host = Host::new();
    // On the same stream, by a copy to the host and by a fill through the device address.
    bench.write(bench.a);
    succeeds!(cuMemcpyDtoHAsync_v2(host.0.cast(), bench.memory, 32, bench.a));
    succeeds!(cuMemsetD8Async(host.device() + 64, 3, 32, bench.a));
    host.copy(bench);
    bench.synchronize();
    // On another stream, before an event.
    succeeds!(cuMemsetD8Async(host.device(), 5, SIZE, bench.b));
    succeeds!(cuEventRecord(bench.event, bench.b));
    succeeds!(cuStreamWaitEvent(bench.a, bench.event, 0));
    host.copy(bench);
    bench.synchronize();
}

#[test]
fn a_write_to_bytes_that_earlier_work_does_not_write_is_a_race() {
    let (bench, _end) = &in_child!(detecting(1));
    let host = Host::new();
    succeeds!(cuMemsetD8Async(host.device(), 3, 32, bench.a));
    host.copy(bench);
    host.set(8, 9);
    host.set(32, 9);
    bench.synchronize();
    let start = host.0.addr() as u64;
    assert_eq!(races()[0].second.bytes, start + 32..start + 33);
}

/// A host function that writes memory, and lets another thread write it and waits for that.
struct Writer {
    host: Host,
    asks: Sender<Host>,
    done: Mutex<Receiver<()>>,
}

unsafe extern "C" fn write(data: *mut c_void) {
    // SAFETY: the data is a `Writer` that outlives the test.
    let writer = unsafe { data.cast::<Writer>().as_ref() }.expect("data");
    writer.host.set(1, 11);
    writer.asks.send(writer.host).expect("received");
    writer.done.lock().expect("no panic").recv().expect("sent");
}

#[test]
fn writes_of_an_earlier_host_function_and_before_a_value_is_set_are_no_races() {
    let (bench, _end) = &in_child!(detecting(0));
    let host = Host::new();
    let (asks, asked) = channel::<Host>();
    let (tells, done) = channel();
    let helper = std::thread::spawn(move || {
        while let Ok(host) = asked.recv() {
            host.set(2, 22);
            tells.send(()).expect("received");
        }
    });
    let writer = Writer { host, asks, done: Mutex::new(done) };
    let data = (&raw const writer).cast_mut().cast();
    succeeds!(cuLaunchHostFunc(bench.a, Some(write), data));
    host.copy(bench);
    bench.synchronize();
    drop(writer);
    helper.join().expect("no panic");

    let flag = Host::new();
    succeeds!(cuStreamWaitValue32_v2(bench.a, flag.device(), 1, 1));
    host.copy(bench);
    host.set(3, 33);
    flag.set(0, 1);
    bench.synchronize();
}
