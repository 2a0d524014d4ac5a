//! Measures common calls on one thread and on several, each with its own stream, event and graph.

use crate::graphs::safe::{Chain, Kernel, objects};
use crate::raw::{KIB4, NO_TIMING, NON_BLOCKING, call, launch_three};
use crate::time::{Spread, together};
use crate::work::ok;
use crate::{Fallible, driver, graphs};
use cuda_safe::{DeviceBuffer, Event, ExecutableGraph, LaunchConfig, Stream};
use cuda_sys::{CUdeviceptr, CUevent, CUfunction, CUgraphExec, CUstream};
use std::ptr::null_mut;

/// The number of calls before a wait, less than a queue of the driver holds.
const CALLS: usize = 256;
/// The number of events that are created and destroyed. They occupy no queue, and a thread prepares its
/// cache of events at the first.
const EVENTS: usize = 4096;
const CONFIG: LaunchConfig = LaunchConfig::linear(1, 32);
const MIB: usize = 1 << 20;

/// An operation, with functions of `cuda-sys`, which call the driver as C does, and with `cuda-safe`.
struct Operation {
    name: &'static str,
    calls: usize,
    raw: fn(&Raw),
    safe: fn(&mut Safe),
}

impl Operation {
    const fn new(name: &'static str, calls: usize, raw: fn(&Raw), safe: fn(&mut Safe)) -> Self {
        Self { name, calls, raw, safe }
    }
}

const OPERATIONS: [Operation; 7] = [
    Operation::new("launch, 3 arguments", CALLS, Raw::launch, Safe::launch),
    Operation::new("event create, destroy", EVENTS, Raw::create_event, Safe::create_event),
    Operation::new("event record", CALLS, Raw::record, Safe::record),
    Operation::new("stream waits for an event", CALLS, Raw::wait, Safe::wait),
    Operation::new("allocate, free 1 MiB in stream order", CALLS, Raw::allocate, Safe::allocate),
    Operation::new("memset 4 KiB", CALLS, Raw::fill, Safe::fill),
    Operation::new("graph: launch 1 node", CALLS, Raw::launch_graph, Safe::launch_graph),
];

/// The objects of one thread.
struct Thread {
    raw: Raw,
    safe: Safe,
}

struct Raw {
    stream: CUstream,
    event: CUevent,
    waited: CUevent,
    three: CUfunction,
    buffers: [CUdeviceptr; 2],
    executable: CUgraphExec,
}

// SAFETY: the handles live until the process exits, and the driver accepts them from any thread.
unsafe impl Send for Raw {}

struct Safe {
    stream: Stream,
    kernel: Kernel,
    from: DeviceBuffer<f32>,
    to: DeviceBuffer<f32>,
    bytes: DeviceBuffer<u8>,
    event: Event,
    waited: Event,
    executable: ExecutableGraph,
}

impl Raw {
    fn new(three: CUfunction) -> Self {
        let (mut stream, mut events, mut buffers) = (null_mut(), [null_mut(); 2], [0; 2]);
        call!(cuStreamCreateWithPriority(&raw mut stream, NON_BLOCKING, 0));
        for event in &mut events {
            call!(cuEventCreate(event, NO_TIMING));
            call!(cuEventRecord(*event, stream));
        }
        for buffer in &mut buffers {
            call!(cuMemAllocAsync(buffer, KIB4, stream));
        }
        let ([event, waited], graph) = (events, graphs::raw::empty());
        graphs::raw::add(three, graph, null_mut(), buffers);
        let executable = graphs::raw::instantiate(graph);
        Self { stream, event, waited, three, buffers, executable }
    }

    fn launch(&self) {
        (0..CALLS).for_each(|_| launch_three(self.three, self.buffers, self.stream));
    }

    fn create_event(&self) {
        for _ in 0..EVENTS {
            let mut made = null_mut();
            call!(cuEventCreate(&raw mut made, NO_TIMING));
            call!(cuEventDestroy_v2(made));
        }
    }

    fn record(&self) {
        (0..CALLS).for_each(|_| call!(cuEventRecord(self.event, self.stream)));
    }

    fn wait(&self) {
        (0..CALLS).for_each(|_| call!(cuStreamWaitEvent(self.stream, self.waited, 0)));
    }

    fn allocate(&self) {
        for _ in 0..CALLS {
            let mut made = 0;
            call!(cuMemAllocAsync(&raw mut made, MIB, self.stream));
            call!(cuMemFreeAsync(made, self.stream));
        }
    }

    fn fill(&self) {
        (0..CALLS).for_each(|_| call!(cuMemsetD8Async(self.buffers[0], 0, KIB4, self.stream)));
    }

    fn launch_graph(&self) {
        (0..CALLS).for_each(|_| call!(cuGraphLaunch(self.executable, self.stream)));
    }
}

impl Safe {
    fn new(stream: Stream, kernel: Kernel) -> Fallible<Self> {
        let events = (stream.context().event()?, stream.context().event()?);
        events.1.record(&stream)?;
        Ok(Self {
            from: DeviceBuffer::zeroed(&stream, 1024)?,
            to: DeviceBuffer::zeroed(&stream, 1024)?,
            bytes: DeviceBuffer::zeroed(&stream, KIB4)?,
            event: events.0,
            waited: events.1,
            executable: Chain::new(&stream, &kernel, 1)?.launched(&stream)?,
            stream,
            kernel,
        })
    }

    fn launch(&mut self) {
        for _ in 0..CALLS {
            let arguments = (&self.from, &mut self.to, 8);
            // SAFETY: the kernel does nothing.
            ok(unsafe { self.kernel.launch(&self.stream, CONFIG, arguments) });
        }
    }

    fn create_event(&mut self) {
        (0..EVENTS).for_each(|_| drop(ok(self.stream.context().event())));
    }

    fn record(&mut self) {
        (0..CALLS).for_each(|_| ok(self.event.record(&self.stream)));
    }

    fn wait(&mut self) {
        (0..CALLS).for_each(|_| ok(self.stream.wait_event(&self.waited)));
    }

    fn allocate(&mut self) {
        (0..CALLS).for_each(|_| drop(ok(DeviceBuffer::<u8>::uninit(&self.stream, MIB))));
    }

    fn fill(&mut self) {
        (0..CALLS).for_each(|_| ok(self.bytes.fill(0)));
    }

    fn launch_graph(&mut self) {
        (0..CALLS).for_each(|_| ok(self.executable.launch(&self.stream)));
    }
}

pub(crate) fn run(rounds: usize, count: usize, null: bool) -> Fallible<()> {
    let driver = driver::open(null)?;
    println!("{}\n", driver.name());
    let (stream, kernel) = objects()?;
    let context = stream.context().clone();
    context.bind_to_thread()?;
    let mut threads = Vec::new();
    for _ in 0..count {
        let raw = Raw::new(kernel.kernel().as_raw());
        threads.push(Thread { raw, safe: Safe::new(context.stream()?, kernel.clone())? });
    }
    context.synchronize()?;
    println!("| ns per operation | C, 1 thread | `cuda-safe` | C, {count} threads | `cuda-safe` |");
    println!("|---|--:|--:|--:|--:|");
    for operation in &OPERATIONS {
        let mut times: [Vec<f64>; 4] = Default::default();
        // Alternately, so that other load on the machine affects all of them equally.
        for round in 0..rounds.min(51) + 1 {
            for (place, times) in times.iter_mut().enumerate() {
                let threads = if place < 2 { &mut threads[..1] } else { &mut threads[..] };
                let time = together(&context, operation.calls, threads, |its: &mut Thread| {
                    match place % 2 {
                        0 => (operation.raw)(&its.raw),
                        _ => (operation.safe)(&mut its.safe),
                    }
                })?;
                context.synchronize()?;
                if round != 0 {
                    times.push(time);
                }
            }
        }
        let [raw, safe, all_raw, all_safe] = times.map(Spread::of);
        let beside = |safe: Spread, raw: Spread| {
            format!("{:.0} ({:.2})", safe.median, safe.median / raw.median)
        };
        println!(
            "| {} | {:.0} | {} | {:.0} | {} |",
            operation.name,
            raw.median,
            beside(safe, raw),
            all_raw.median,
            beside(all_safe, all_raw),
        );
    }
    println!("\nC: functions of `cuda-sys`. In brackets: multiple of C.");
    // Until the process exits, as in the other modes: the operations use raw handles.
    std::mem::forget(threads);
    Ok(())
}
