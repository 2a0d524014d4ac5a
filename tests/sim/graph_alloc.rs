//! Memory that nodes of a graph allocate: when it is freed, and what it counts.

use crate::on;
use crate::releases::leaking;
use cuda_safe::graph::{AllocOptions, GraphMemoryUsage, InstantiateOptions};
use cuda_safe::sys::{CUresult, cuMemFreeAsync};
use cuda_safe::{
    CaptureMode, Context, Device, DeviceBuffer, Error, ExecutableGraph, Graph, GraphAllocation,
    Invalid, MemoryAccess, MemoryLocation, Result, Stream, deferred_releases,
};
use cuda_sim::Profile;
use cuda_sim::fault::{Fault, Scope};

/// Retries deferred releases.
fn drain(context: &Context) {
    drop(context.event().expect("an event"));
}

fn invalid<T>(result: Result<T>) -> Invalid {
    match result.map(drop) {
        Err(Error::Invalid(why)) => *why,
        other => panic!("{other:?}"),
    }
}

fn is_alive(result: Result<()>) -> bool {
    matches!(invalid(result), Invalid::AllocationAlive { .. })
}

/// Returns a graph that keeps four elements with the value 7, and its memory.
fn keeping(context: &Context) -> (Graph, GraphAllocation<i32>) {
    let mut graph = Graph::new(context).expect("a graph");
    let options = AllocOptions::default();
    let (node, mut memory) = graph.add_alloc(&[], 4, &options).expect("a node");
    graph
        .add_fill(&[node.id()], &mut memory, 7)
        .expect("a node");
    (graph, memory)
}

fn with_auto_free(graph: &Graph) -> ExecutableGraph {
    let options = InstantiateOptions {
        auto_free_on_launch: true,
        ..InstantiateOptions::default()
    };
    graph.instantiate_with(&options).expect("a graph")
}

fn streams(context: &Context) -> [Stream; 2] {
    [context.stream(), context.stream()].map(|its| its.expect("a stream"))
}

fn count(function: &str) -> usize {
    let calls = cuda_sim::calls();
    calls.iter().filter(|its| its.function == function).count()
}

#[test]
fn a_drop_frees_kept_memory_in_stream_order_without_a_wait() {
    on(Profile::h200(), |context| {
        let stream = context.stream().expect("a stream");
        let (graph, _memory) = keeping(&context);
        let executable = graph.instantiate().expect("an executable graph");
        executable.launch(&stream).expect("a launch");
        cuda_sim::clear_calls();
        drop(executable);
        assert_eq!(count("cuMemFreeAsync"), 1);
        let waits = |call: &cuda_sim::Call| call.function.contains("Synchronize");
        assert!(!cuda_sim::calls().iter().any(waits));
        drop(graph);
        stream.synchronize().expect("a wait");
        assert_eq!(cuda_sim::alive().device_allocations, 0);
        drain(&context);
    });
}

#[test]
fn memory_of_launches_on_several_streams_is_freed_after_all_of_them() {
    on(Profile::h200().with_seed(3), |context| {
        for _ in 0..8 {
            let [one, other] = streams(&context);
            let (graph, _memory) = keeping(&context);
            let executable = with_auto_free(&graph);
            executable.launch(&one).expect("a launch");
            executable.launch(&other).expect("a launch");
            executable.launch(&one).expect("a launch");
            cuda_sim::clear_calls();
            drop(executable);
            assert_eq!(count("cuMemFreeAsync"), 0, "both streams are busy");
            let executable = graph.instantiate().expect("another executable graph");
            assert!(is_alive(executable.launch(&one)));
            context.synchronize().expect("a wait");
            executable.launch(&one).expect("the deferred release ran");
            assert_eq!(count("cuMemFreeAsync"), 1);
            drop(executable);
            context.synchronize().expect("a wait");
            drain(&context);
        }
    });
}

#[test]
fn a_drop_during_a_capture_frees_kept_memory_later() {
    on(Profile::h200(), |context| {
        let [stream, other] = streams(&context);
        let (graph, memory) = keeping(&context);
        let mut executable = graph.instantiate().expect("an executable graph");
        executable.launch(&stream).expect("a launch");
        let buffer = executable.take_allocation(&memory, &stream).expect("kept");
        stream.synchronize().expect("a wait");
        let captured = stream.capture::<Error>(CaptureMode::default(), |_| {
            drop(buffer);
            assert!(deferred_releases() > 0);
            assert!(is_alive(executable.launch(&other)));
            Ok(())
        });
        drop(captured.expect("a valid capture"));
        executable.launch(&other).expect("the deferred release ran");
        let captured = other.capture::<Error>(CaptureMode::default(), |_| {
            drop(executable);
            assert!(deferred_releases() > 0);
            Ok(())
        });
        drop(captured.expect("a valid capture"));
        drain(&context);
        context.synchronize().expect("a wait");
        drain(&context);
        assert_eq!(deferred_releases(), 0);
    });
}

#[test]
fn a_drop_in_a_host_function_frees_kept_memory_later() {
    on(Profile::h200(), |context| {
        let [stream, other] = streams(&context);
        let (graph, memory) = keeping(&context);
        let executable = graph.instantiate().expect("an executable graph");
        executable.launch(&stream).expect("a launch");
        other
            .launch_host_function(move || drop((graph, memory, executable)))
            .expect("a function");
        context.synchronize().expect("a wait");
        drain(&context);
        stream.synchronize().expect("a wait");
        drain(&context);
        assert_eq!(deferred_releases(), 0);
    });
}

#[test]
fn a_launch_that_fails_keeps_no_memory() {
    on(Profile::h200(), |context| {
        let [stream, other] = streams(&context);
        let (graph, memory) = keeping(&context);
        let mut executable = graph.instantiate().expect("an executable graph");
        executable.launch(&other).expect("a launch");
        let mut buffer = executable.take_allocation(&memory, &other).expect("kept");
        buffer.fill(1).expect("a fill");
        drop(buffer);
        for function in ["cuStreamWaitEvent", "cuEventCreate", "cuGraphLaunch"] {
            let fault = Fault::of_function(function).inject(Scope::Thread);
            executable.launch(&stream).expect_err("the fault");
            drop(fault);
            let refused = executable.take_allocation(&memory, &stream);
            let why = invalid(refused);
            assert!(matches!(why, Invalid::AllocationNotAlive { .. }), "{why}");
        }
        executable.launch(&stream).expect("a launch");
        let buffer = executable.take_allocation(&memory, &stream).expect("kept");
        assert_eq!(buffer.to_vec().expect("a copy"), [7; 4]);
        drop(buffer);
        drop(executable);
        context.synchronize().expect("a wait");
        drain(&context);
    });
}

#[test]
fn too_much_memory_is_an_error_of_each_launch() {
    on(Profile::h200(), |context| {
        let stream = context.stream().expect("a stream");
        let mut graph = Graph::new(&context).expect("a graph");
        let options = AllocOptions::default();
        let added = graph.add_alloc::<u8>(&[], 200 << 30, &options);
        let (_node, memory) = added.expect("a node");
        let mut executable = graph.instantiate().expect("an executable graph");
        for _ in 0..2 {
            let refused = executable.launch(&stream).expect_err("too much");
            assert_eq!(refused.code(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        }
        let refused = executable.take_allocation(&memory, &stream);
        assert!(matches!(
            invalid(refused),
            Invalid::AllocationNotAlive { .. }
        ));
    });
}

#[test]
fn launches_come_after_the_frees_of_buffers_on_other_streams() {
    on(Profile::h200().with_seed(3), |context| {
        for _ in 0..8 {
            let [stream, other] = streams(&context);
            let (graph, memory) = keeping(&context);
            let mut executable = with_auto_free(&graph);
            for _ in 0..4 {
                executable.launch(&stream).expect("a launch");
                executable.launch(&other).expect("a launch");
                let buffer = executable.take_allocation(&memory, &other).expect("kept");
                drop(buffer);
                executable.launch(&stream).expect("a launch");
                let mut buffer = executable.take_allocation(&memory, &stream).expect("kept");
                buffer.rebind(&other).expect("the same context");
                assert_eq!(buffer.to_vec().expect("a copy"), [7; 4]);
            }
            context.synchronize().expect("a wait");
        }
    });
}

#[test]
fn a_buffer_that_is_released_as_raw_memory_prevents_later_launches() {
    leaking(|context| {
        let stream = context.stream().expect("a stream");
        let (graph, memory) = keeping(&context);
        let mut executable = graph.instantiate().expect("an executable graph");
        executable.launch(&stream).expect("a launch");
        let buffer = executable.take_allocation(&memory, &stream).expect("kept");
        let (address, _) = buffer.into_raw();
        // SAFETY: the address is that of the memory, which nothing uses after the free.
        let freed = unsafe { cuMemFreeAsync(address, stream.as_raw()) };
        assert!(freed.is_success());
        assert!(is_alive(executable.launch(&stream)));
        stream.synchronize().expect("a wait");
    });
}

#[test]
fn a_moved_child_graph_allocates_memory_that_its_parent_uses() {
    on(Profile::h200(), |context| {
        let stream = context.stream().expect("a stream");
        let (child, mut memory) = keeping(&context);
        let mut parent = Graph::new(&context).expect("a graph");
        let buffer = DeviceBuffer::<i32>::zeroed(&stream, 4).expect("memory");
        let mut data = parent.own(buffer).expect("the graph owns it");
        let early = parent.add_empty(&[]).expect("a node");
        let child = parent.add_child_moved(&[], child).expect("a node");
        let copy = parent.add_copy(&[child.id()], &mut data, &memory);
        let copy = copy.expect("a node");
        assert!(matches!(
            invalid(parent.remove(early)),
            Invalid::MemoryNodes { .. }
        ));
        let free = parent.add_free(&[copy.id()], &mut memory).expect("a node");
        let mut executable = parent.instantiate().expect("an executable graph");
        for _ in 0..2 {
            executable.launch(&stream).expect("a launch");
        }
        let access = executable.access(&mut data, &stream).expect("access");
        assert_eq!(access.as_slice().to_vec().expect("a copy"), [7; 4]);
        drop(access);
        drop(executable);
        parent
            .add_fill(&[free.id()], &mut memory, 1)
            .expect("a node");
        assert!(matches!(
            invalid(parent.instantiate()),
            Invalid::UnallocatedAccess { .. }
        ));
    });
}

#[test]
fn other_devices_are_given_access_to_the_memory() {
    on(Profile::h200().with_devices(2), |context| {
        let peer = Device::get(1).expect("a device");
        let mut graph = Graph::new(&context).expect("a graph");
        let options = AllocOptions {
            access: &[(peer, MemoryAccess::Read)],
            ..AllocOptions::default()
        };
        let (node, _) = graph.add_alloc::<u8>(&[], 4, &options).expect("a node");
        let parameters = graph.alloc_parameters(node).expect("a query");
        let there = Some(MemoryLocation::Device(peer));
        assert_eq!(parameters.access, [(there, MemoryAccess::Read)]);
    });
}

#[test]
fn the_memory_of_the_graphs_of_a_device_is_counted() {
    on(Profile::h200(), |context| {
        let stream = context.stream().expect("a stream");
        let device = context.device();
        let usage = || device.graph_memory().expect("a query");
        let mut graph = Graph::new(&context).expect("a graph");
        let options = AllocOptions::default();
        let added = graph.add_alloc::<u64>(&[], 8 << 20, &options);
        let (node, mut memory) = added.expect("a node");
        graph.add_free(&[node.id()], &mut memory).expect("a node");
        let executable = graph.instantiate().expect("an executable graph");
        executable.launch(&stream).expect("a launch");
        stream.synchronize().expect("a wait");
        let size = 64 << 20;
        let GraphMemoryUsage { used, reserved, .. } = usage();
        assert_eq!((used, reserved), (size, size));
        drop(executable);
        device.trim_graph_memory().expect("a trim");
        let GraphMemoryUsage {
            used,
            used_high,
            reserved,
            reserved_high,
            ..
        } = usage();
        assert_eq!((used, reserved), (0, 0));
        assert_eq!((used_high, reserved_high), (size, size));
        device.reset_graph_memory_high().expect("a reset");
        let GraphMemoryUsage {
            used_high,
            reserved_high,
            ..
        } = usage();
        assert_eq!((used_high, reserved_high), (0, 0));
    });
}
