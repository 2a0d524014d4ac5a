//! Releases of objects that are not memory.

use super::pairs::Operation;
use super::{LEN, Part, Stage, VECTOR, part};
use cuda_safe::array::{Array, ArrayShape, ReadMode, Sampler, Texture};
use cuda_safe::capture::CaptureMode;
use cuda_safe::green::{
    GreenContext, GreenPool, GreenPoolOptions, PartitionRequest, PartitionSize, SmResource,
    SplitByCount,
};
use cuda_safe::module::Library;
use cuda_safe::{Context, ContextFlags, DeviceBuffer, Graph, Module};

pub(super) const OPERATIONS: &[Operation] = &[
    Operation::new("destroy-event", destroy_event),
    Operation::new("destroy-stream", destroy_stream),
    Operation::new("destroy-stream-with-memory", destroy_stream_with_memory),
    Operation::new("unload-module", unload_module),
    Operation::new("unload-library", unload_library),
    Operation::new("load-module", load_module).stopping_others(),
    Operation::new("destroy-graph", destroy_graph),
    Operation::new("destroy-executable-graph", destroy_executable_graph),
    Operation::new("destroy-green-context", destroy_green_context),
    Operation::new("return-lease", return_lease),
    Operation::new("destroy-context", destroy_context),
    Operation::new("destroy-texture", destroy_texture),
    Operation::new("destroy-array", destroy_array).stopping_others(),
];

fn destroy_event(stage: &Stage) -> Part {
    let event = stage.context.event().expect("an event");
    event.record(&stage.stream).expect("a record");
    let clone = event.clone();
    part(move || {
        drop(event);
        drop(clone);
    })
}

fn destroy_stream(stage: &Stage) -> Part {
    let stream = stage.context.stream().expect("a stream");
    part(move || drop(stream))
}

fn destroy_stream_with_memory(stage: &Stage) -> Part {
    let stream = stage.context.stream().expect("a stream");
    let buffer = DeviceBuffer::<u32>::zeroed(&stream, LEN).expect("memory");
    part(move || {
        drop(stream);
        drop(buffer);
    })
}

fn unload_module(stage: &Stage) -> Part {
    let module = Module::from_ptx(&stage.context, VECTOR).expect("a module");
    part(move || drop(module))
}

fn unload_library(_: &Stage) -> Part {
    let library = Library::from_ptx(VECTOR).expect("a library");
    part(move || drop(library))
}

fn load_module(stage: &Stage) -> Part {
    let context = stage.context.clone();
    part(move || drop(Module::from_ptx(&context, VECTOR)))
}

/// Returns a graph of another stream.
fn graph(stage: &Stage) -> Graph {
    let stream = stage.context.stream().expect("a stream");
    let graph = stream.capture::<cuda_safe::Error>(CaptureMode::ThreadLocal, |_| Ok(()));
    graph.expect("a graph")
}

fn destroy_graph(stage: &Stage) -> Part {
    let graph = graph(stage);
    part(move || drop(graph))
}

fn destroy_executable_graph(stage: &Stage) -> Part {
    let graph = graph(stage).instantiate().expect("an executable graph");
    part(move || drop(graph))
}

pub(super) fn green(context: &Context) -> GreenContext {
    let resource = SmResource::of_device(&context.device()).expect("the device has SMs");
    let split = resource.split_by_count(SplitByCount { max_groups: Some(1), ..Default::default() });
    let group = split.expect("a split").groups.pop().expect("a group");
    GreenContext::new([group]).expect("a green context")
}

fn destroy_green_context(stage: &Stage) -> Part {
    let green = green(&stage.context);
    let stream = green.stream().expect("a stream");
    part(move || {
        drop(green);
        drop(stream);
    })
}

fn return_lease(stage: &Stage) -> Part {
    let pool = GreenPool::new(&stage.context.device(), GreenPoolOptions::default());
    let pool = pool.expect("a pool");
    part(move || {
        let partitioning =
            PartitionRequest { sizes: vec![PartitionSize::Sms(16)], ..Default::default() };
        if let Ok(lease) = pool.lease(&partitioning) {
            for partition in lease.into_partitions() {
                if let Ok(stream) = partition.stream() {
                    drop(DeviceBuffer::<u32>::zeroed(&stream, LEN));
                }
            }
        }
    })
}

const LINE: ArrayShape = ArrayShape::OneD { width: LEN };

/// The stream of the stage has work when the texture is dropped, and the array is on a stream without.
fn destroy_texture(stage: &Stage) -> Part {
    let buffer = DeviceBuffer::<u32>::zeroed(&stage.stream, LEN).expect("memory");
    let texture = Texture::linear(buffer, ReadMode::Element).expect("a texture");
    let other = stage.context.stream().expect("a stream");
    let array = Array::<u32>::new(&other, LINE).expect("an array");
    let second = Texture::new(&array, &Sampler::default()).map(drop);
    second.expect("a texture");
    part(move || {
        drop(texture);
        drop(Texture::new(&array, &Sampler::default()));
    })
}

fn destroy_array(stage: &Stage) -> Part {
    let mut array = Array::<u32>::new(&stage.stream, LINE).expect("an array");
    array.copy_from_slice(&[1; LEN]).expect("a copy");
    part(move || drop(array))
}

fn destroy_context(stage: &Stage) -> Part {
    let context = Context::new(&stage.context.device(), ContextFlags::empty());
    let context = context.expect("a context");
    let stream = context.stream().expect("a stream");
    part(move || {
        drop(context);
        drop(stream);
    })
}
