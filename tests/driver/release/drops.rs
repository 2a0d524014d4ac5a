//! Drops in any order, on any thread, with any context current.

use crate::common::{self, child};
use crate::module::kernels::{Busy, LONG, RecordSmid, SMID, Scale, VECTOR, kernel, vector};
use cuda_safe::capture::CaptureMode;
use cuda_safe::{
    Context, ContextFlags, DeviceBuffer, Event, ExecutableGraph, LaunchConfig, PinnedBuffer, Stream,
};
use std::any::Any;

/// One object of each type, all created in one context.
struct All {
    context: Option<Context>,
    stream: Option<Stream>,
    event: Option<Event>,
    buffer: Option<DeviceBuffer<i32>>,
    plain: Option<DeviceBuffer<i32>>,
    pinned: Option<PinnedBuffer<i32>>,
    scale: Option<Scale>,
}

impl All {
    const COUNT: usize = 7;

    fn new(context: Context) -> Self {
        let stream = context.stream().expect("a stream");
        let scale = Scale::new(&context);
        let mut buffer = DeviceBuffer::from_slice(&stream, &[1; 100]).expect("a copy");
        let mut plain = DeviceBuffer::zeroed_sync(&stream, 100).expect("memory");
        let event = context.event().expect("an event");
        // Leaves pending work on the stream.
        scale.run(&stream, &mut buffer, 2, 1).expect("a launch");
        plain.copy_from(&buffer).expect("a copy");
        event.record(&stream).expect("a record");
        Self {
            pinned: Some(PinnedBuffer::zeroed(&context, 100).expect("pinned memory")),
            stream: Some(stream),
            event: Some(event),
            buffer: Some(buffer),
            plain: Some(plain),
            scale: Some(scale),
            context: Some(context),
        }
    }

    fn drop_one(&mut self, index: usize) {
        match index {
            0 => drop(self.context.take()),
            1 => drop(self.stream.take()),
            2 => drop(self.event.take()),
            3 => drop(self.buffer.take()),
            4 => drop(self.plain.take()),
            5 => drop(self.pinned.take()),
            _ => drop(self.scale.take()),
        }
    }
}

/// Returns every permutation of the first `n` numbers (Heap's algorithm).
fn permutations(n: usize) -> Vec<Vec<usize>> {
    fn walk(k: usize, order: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
        if k <= 1 {
            all.push(order.clone());
            return;
        }
        for i in 0..k {
            walk(k - 1, order, all);
            order.swap(if k % 2 == 0 { i } else { 0 }, k - 1);
        }
    }
    let mut all = Vec::new();
    walk(n, &mut (0..n).collect(), &mut all);
    all
}

/// Runs `body` in a child process, because other tests leak on purpose and leaks are counted per
/// process.
fn without_leaks(body: impl FnOnce(Context)) {
    child::in_child(&[], || {
        cuda_safe::set_report_hook(|report| eprintln!("note: {report}"));
        body(or_skip!(common::context()));
        assert_eq!(cuda_safe::leaked(), 0);
    });
}

#[test]
fn objects_can_be_dropped_in_any_order() {
    without_leaks(|context| {
        let orders = permutations(All::COUNT);
        assert_eq!(orders.len(), 5040);
        // Every 30th permutation. Miri executes a few.
        for order in orders.iter().step_by(if cfg!(miri) { 1500 } else { 30 }) {
            let mut all = All::new(context.clone());
            for index in order {
                all.drop_one(*index);
            }
        }
        context.synchronize().expect("no error");
    });
}

#[test]
fn objects_can_be_dropped_with_another_context_current_and_on_another_thread() {
    without_leaks(|context| {
        let create = || Context::new(&context.device(), ContextFlags::empty());
        let (own, other) = (create().expect("a context"), create().expect("a context"));
        let everything = All::new(own.clone());
        other.with_current(|_| drop(everything)).expect("current");
        let everything = All::new(own);
        std::thread::spawn(move || drop(everything)).join().expect("no panic");
        other.synchronize().expect("no error");
    });
}

#[test]
fn dropping_streams_events_graphs_and_stream_ordered_memory_does_not_wait() {
    child::with_context(|context| {
        let graph = fill_in_a_graph(&context);
        let watched = context.stream().expect("a stream");
        let work = Busy::new(&context, &watched);
        let stream = context.stream().expect("a stream");
        let event = context.event().expect("an event");
        let buffer = DeviceBuffer::<u8>::uninit(&stream, 1 << 20).expect("memory");
        event.record(&stream).expect("a record");
        drop((graph, buffer, event, stream));
        assert!(!watched.is_complete().expect("a query"), "no drop waited for work");
        watched.synchronize().expect("a wait");
        drop(work);
    });
}

/// Captures work into an executable graph, and returns the memory that it uses.
fn fill_in_a_graph(context: &Context) -> (ExecutableGraph, DeviceBuffer<u8>) {
    let stream = context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::zeroed(&stream, 64).expect("memory");
    let graph = stream.capture(CaptureMode::default(), |_| buffer.fill(1));
    let graph = graph.expect("a graph").instantiate().expect("an executable graph");
    (graph, buffer)
}

#[test]
fn an_executable_graph_can_be_dropped_while_its_launch_runs() {
    child::with_context(|context| {
        let [stream, watched] = common::streams(&context);
        let kernel = kernel::<(&mut [u32], u32)>(&context, SMID, "record_smid");
        let mut smids = DeviceBuffer::from_slice(&stream, &[u32::MAX]).expect("a copy");
        let graph = stream.capture(CaptureMode::default(), |_| {
            let config = LaunchConfig::linear(1, 32);
            // SAFETY: the kernel writes one element for its one block.
            unsafe { kernel.launch(&stream, config, (&mut smids, LONG)) }
        });
        let graph = graph.expect("a graph").instantiate().expect("an executable graph");
        // SAFETY: the kernel and the memory are alive, and nothing else uses the memory before the
        // wait.
        unsafe { graph.launch_unchecked(&watched) }.expect("a launch");
        drop(graph);
        assert!(!watched.is_complete().expect("a query"), "nothing waited");
        watched.synchronize().expect("a wait");
        assert_ne!(smids.to_vec().expect("a copy"), [u32::MAX], "it ran");
    });
}

#[test]
fn releases_that_wait_for_the_device_wait_for_all_streams() {
    child::with_context(|context| {
        let [watched, stream] = common::streams(&context);
        let record = RecordSmid::new(&context);
        let registered = PinnedBuffer::register(&context, vec![1u8; 64]);
        let plain = DeviceBuffer::<u8>::zeroed_sync(&stream, 64);
        let mut things: Vec<(&str, Box<dyn Any>)> = vec![
            ("pinned memory", Box::new(PinnedBuffer::<u8>::zeroed(&context, 64).expect("memory"))),
            ("a registered vector", Box::new(registered.expect("registered"))),
            ("synchronous memory", Box::new(plain.expect("memory"))),
            ("a module", Box::new(vector(&context))),
        ];
        if common::offers(12, 0) {
            let library = cuda_safe::module::Library::from_ptx(VECTOR).expect("code");
            // If nothing of the library was loaded, its drop does not wait.
            drop(library.kernel(&context, "nothing").expect("a kernel"));
            things.push(("a library", Box::new(library)));
        }
        stream.synchronize().expect("a wait");
        for (name, thing) in things {
            let work = record.run(&watched, 1, LONG);
            drop(thing);
            assert!(watched.is_complete().expect("a query"), "{name} waits");
            drop(work);
        }
    });
}

#[test]
fn forgotten_objects_only_leak() {
    // A wait for the context invalidates the captures of other tests.
    if !crate::common::child::entered(&[]) {
        return;
    }
    let context = or_skip!(common::context());
    std::mem::forget(context.stream().expect("a stream"));
    std::mem::forget(context.event().expect("an event"));
    let its = context.clone();
    let forgets = move || std::mem::forget(its.make_current().expect("current"));
    std::thread::spawn(forgets).join().expect("no panic");
    context.synchronize().expect("no error");
}
