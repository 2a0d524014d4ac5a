//! Events, order between streams, and work.

use super::objects::green;
use super::pairs::{Operation, expect_contents};
use super::{LEN, Part, Stage, VECTOR, keeping, part};
use cuda_safe::green::SmProbe;
use cuda_safe::{DeviceBuffer, LaunchConfig, Module};

pub(super) const OPERATIONS: &[Operation] = &[
    Operation::new("launch", launch),
    Operation::new("probe", probe),
    Operation::new("record", record),
    Operation::new("record-external", record_external),
    Operation::new("wait", wait),
    Operation::new("wait-external", wait_external),
    Operation::new("rebind-from", rebind_from),
    Operation::new("rebind-to", rebind_to),
    Operation::new("share", share),
    Operation::new("reader", reader),
    Operation::new("context-record", context_record),
    Operation::new("context-wait", context_wait),
    Operation { with_host_function: false, ..Operation::new("green-record", green_record) },
    Operation { with_host_function: false, ..Operation::new("green-wait", green_wait) },
    Operation::new("host-function", host_function),
    Operation::new("host-function-with-memory", host_function_with_memory),
    Operation::new("done", done),
    Operation::new("synchronize", synchronize),
    Operation::new("synchronize-context", synchronize_context),
    Operation::new("capture", capture),
];

/// In a capture the kernel becomes a node of the graph, which retains the objects that the kernel
/// uses.
fn launch(stage: &Stage) -> Part {
    let module = Module::from_ptx(&stage.context, VECTOR).expect("a module");
    let kernel = module.kernel("scale").expect("a kernel");
    let kernel = kernel.typed::<(&mut [u32], i32, i32, u32)>();
    let kernel = kernel.expect("its types");
    let mut buffer = DeviceBuffer::<u32>::zeroed(&stage.stream, LEN).expect("memory");
    let stream = stage.stream.clone();
    keeping(move || {
        let config = LaunchConfig::linear(1, 32);
        // SAFETY: the kernel writes as many elements as the last argument says.
        let _ = unsafe { kernel.launch(&stream, config, (&mut buffer, 1, 1, LEN as u32)) };
        (kernel, buffer)
    })
}

fn probe(stage: &Stage) -> Part {
    let probe = SmProbe::new(&stage.context).expect("a probe");
    let stream = stage.stream.clone();
    part(move || {
        if let Ok(trace) = probe.trace(&stream) {
            assert!(trace.sms.len() > 1, "wrong contents after a probe: {trace:?}");
        }
    })
}

fn record(stage: &Stage) -> Part {
    let event = stage.context.event().expect("an event");
    let stream = stage.stream.clone();
    part(move || {
        let _ = event.record(&stream);
    })
}

fn record_external(stage: &Stage) -> Part {
    let event = stage.context.event().expect("an event");
    let stream = stage.stream.clone();
    part(move || {
        let _ = event.record_external(&stream);
    })
}

fn wait(stage: &Stage) -> Part {
    let event = stage.context.event().expect("an event");
    event.record(&stage.context.stream().expect("a stream")).expect("a record");
    let stream = stage.stream.clone();
    part(move || {
        let _ = stream.wait_event(&event);
    })
}

fn wait_external(stage: &Stage) -> Part {
    let event = stage.context.event().expect("an event");
    let stream = stage.stream.clone();
    part(move || {
        let _ = stream.wait_external(&event);
    })
}

fn rebind_from(stage: &Stage) -> Part {
    let mut buffer = DeviceBuffer::from_slice(&stage.stream, &[7u32; LEN]).expect("memory");
    let (target, done) = (stage.context.stream().expect("a stream"), stage.done.clone());
    part(move || {
        if buffer.rebind(&target).is_ok() {
            done.wait();
            expect_contents("rebind", buffer.to_vec(), 7);
        }
    })
}

fn rebind_to(stage: &Stage) -> Part {
    let source = stage.context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::from_slice(&source, &[7u32; LEN]).expect("memory");
    let (target, done) = (stage.stream.clone(), stage.done.clone());
    part(move || {
        if buffer.rebind(&target).is_ok() {
            done.wait();
            expect_contents("rebind", buffer.to_vec(), 7);
        }
    })
}

fn share(stage: &Stage) -> Part {
    let buffer = DeviceBuffer::<u32>::zeroed(&stage.stream, LEN).expect("memory");
    part(move || drop(buffer.share()))
}

fn reader(stage: &Stage) -> Part {
    let home = stage.context.stream().expect("a stream");
    let buffer = DeviceBuffer::from_slice(&home, &[7u32; LEN]).expect("memory");
    let shared = buffer.share().expect("shared memory");
    let stream = stage.stream.clone();
    let mut copy = DeviceBuffer::<u32>::zeroed(&stream, LEN).expect("memory");
    keeping(move || {
        if let Ok(reader) = shared.on(&stream) {
            let _ = copy.copy_from(&reader);
        }
        copy
    })
}

fn context_record(stage: &Stage) -> Part {
    let event = stage.context.event().expect("an event");
    let context = stage.context.clone();
    part(move || {
        let _ = context.record_event(&event);
    })
}

fn context_wait(stage: &Stage) -> Part {
    let event = stage.context.event().expect("an event");
    event.record(&stage.context.stream().expect("a stream")).expect("a record");
    let context = stage.context.clone();
    part(move || {
        let _ = context.wait_event(&event);
    })
}

/// The stream of the partition may be captured by another thread through a wait.
fn green_record(stage: &Stage) -> Part {
    let green = green(&stage.context);
    let stream = green.stream().expect("a stream");
    let event = stage.context.event().expect("an event");
    let other = stage.stream.clone();
    part(move || {
        let _ = event.record(&other);
        let _ = stream.wait_event(&event);
        let _ = green.record_event(&event);
    })
}

fn green_wait(stage: &Stage) -> Part {
    let green = green(&stage.context);
    let event = stage.context.event().expect("an event");
    let other = stage.stream.clone();
    part(move || {
        let _ = event.record(&other);
        let _ = green.wait_event(&event);
    })
}

/// The host function waits for the capturing thread.
fn host_function(stage: &Stage) -> Part {
    let (stream, done) = (stage.stream.clone(), stage.done.clone());
    part(move || {
        let _ = stream.launch_host_function(move || done.wait());
        let _ = stream.synchronize();
    })
}

/// The host function owns memory, which is lost if the function never runs.
fn host_function_with_memory(stage: &Stage) -> Part {
    let home = stage.context.stream().expect("a stream");
    let buffer = DeviceBuffer::<u32>::zeroed(&home, LEN).expect("memory");
    let stream = stage.stream.clone();
    part(move || {
        let _ = stream.launch_host_function(move || drop(buffer));
    })
}

fn done(stage: &Stage) -> Part {
    let stream = stage.stream.clone();
    part(move || drop(stream.completion()))
}

fn synchronize(stage: &Stage) -> Part {
    let stream = stage.stream.clone();
    part(move || {
        let _ = stream.is_complete();
        let _ = stream.synchronize();
    })
}

fn synchronize_context(stage: &Stage) -> Part {
    let context = stage.context.clone();
    part(move || {
        let _ = context.synchronize();
    })
}

/// A capture of the same stream by another thread.
fn capture(stage: &Stage) -> Part {
    let stream = stage.stream.clone();
    part(move || {
        if let Ok(capture) = stream.begin_capture(Default::default()) {
            let _ = capture.end();
        }
    })
}
