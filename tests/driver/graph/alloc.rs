//! Memory that nodes of a graph allocate and free.

use crate::common::{self, invalid};
use crate::graph::{ONE, build, launched, own, scale};
use cuda_safe::device::attribute::MEMORY_POOLS_SUPPORTED;
use cuda_safe::graph::GraphAllocation;
use cuda_safe::graph::{AllocOptions, InstantiateOptions, Node, NodeId, kind};
use cuda_safe::memory::MemoryLocation;
use cuda_safe::sys::{CUresult, cuGraphAddMemFreeNode};
use cuda_safe::{
    Context, DeviceBuffer, Error, ExecutableGraph, Graph, Invalid, PinnedBuffer, Result, Stream,
};
use std::sync::atomic::{AtomicUsize, Ordering};

fn stage() -> Option<(Context, Stream, Graph)> {
    let (context, stream, graph) = build::stage()?;
    common::has(&context.device(), MEMORY_POOLS_SUPPORTED, "needs memory pools")?;
    Some((context, stream, graph))
}

/// Adds an allocation.
fn alloc(graph: &mut Graph, len: usize) -> (Node<kind::Alloc>, GraphAllocation<i32>) {
    let options = AllocOptions::default();
    graph.add_alloc(&[], len, &options).expect("a node")
}

/// Makes a graph keep four elements with the value 7. Returns its memory.
fn keep(graph: &mut Graph) -> GraphAllocation<i32> {
    let (node, mut memory) = alloc(graph, 4);
    graph.add_fill(&[node.id()], &mut memory, 7).expect("a node");
    memory
}

/// Like [`stage`], with a graph that keeps four elements with the value 7, and its memory.
fn keeping() -> Option<(Context, Stream, Graph, GraphAllocation<i32>)> {
    let (context, stream, mut graph) = stage()?;
    let memory = keep(&mut graph);
    Some((context, stream, graph, memory))
}

fn with_auto_free(graph: &Graph) -> ExecutableGraph {
    let options = InstantiateOptions { auto_free_on_launch: true, ..InstantiateOptions::default() };
    graph.instantiate_with(&options).expect("a graph")
}

/// After the idea of NVIDIA's sample graphMemoryNodes: temporary memory within a graph, of which a later
/// allocation reuses the memory of an earlier one.
#[test]
fn a_pipeline_allocates_its_temporary_memory_in_the_graph() {
    let (context, stream, graph) = or_skip!(stage());
    pipeline(&context, &stream, graph).expect("no error");
}

fn pipeline(context: &Context, stream: &Stream, mut graph: Graph) -> Result<()> {
    let (scale, options) = (scale(context), AllocOptions::default());
    let mut input = graph.own_pinned(PinnedBuffer::<i32>::zeroed(context, 4)?);
    let mut output = graph.own_pinned(PinnedBuffer::<i32>::zeroed(context, 4)?);
    let mut result = graph.own(DeviceBuffer::<i32>::zeroed(stream, 4)?)?;
    let (node, mut a) = graph.add_alloc::<i32>(&[], 4, &options)?;
    let up = graph.add_copy(&[node.id()], &mut a, &input)?;
    // SAFETY: the kernel accesses the four elements.
    let scaled = unsafe { graph.add_kernel(&[up.id()], context, &scale, ONE, (&mut a, 3, 1, 4)) }?;
    let copied = graph.add_copy(&[scaled.id()], &mut result, &a)?;
    let freed = graph.add_free(&[copied.id()], &mut a)?;
    let (node, mut b) = graph.add_alloc::<i32>(&[freed.id()], 4, &options)?;
    let back = graph.add_copy(&[node.id()], &mut b, &result)?;
    let down = graph.add_copy(&[back.id()], &mut output, &b)?;
    graph.add_free(&[down.id()], &mut b)?;
    let mut executable = graph.instantiate()?;
    for round in 0..3 {
        let first = [round, round + 1, round + 2, round + 3];
        executable.host(&mut input)?.copy_from_slice(&first);
        executable.launch(stream)?;
        let expected = first.map(|its| its * 3 + 1);
        assert_eq!(executable.host(&mut output)?, expected);
    }
    // The software driver uses each address once, to detect stale ones.
    assert!(common::is_software() || a.as_raw() == b.as_raw());
    Ok(())
}

#[test]
fn uses_outside_of_the_lifetime_of_the_memory_are_refused() {
    let (context, _stream, _) = or_skip!(stage());
    let scale = scale(&context);
    let new = || Graph::new(&context).expect("a graph");
    // The driver does not look at the arguments of a kernel.
    let add = |graph: &mut Graph, after: &[NodeId], memory: &mut GraphAllocation<i32>| {
        // SAFETY: the kernel accesses the four elements.
        unsafe { graph.add_kernel(after, &context, &scale, ONE, (memory, 2, 0, 4)) }
            .expect("a node")
    };
    let found = |graph: &Graph| match invalid(graph.instantiate()) {
        Invalid::UnorderedAccess { .. } => "unordered",
        Invalid::UnallocatedAccess { node, problem, .. } => {
            assert!(node.contains("scale"), "{node}");
            problem
        }
        why => panic!("{why}"),
    };

    let mut graph = new();
    let (node, mut memory) = alloc(&mut graph, 4);
    let kernel = add(&mut graph, &[], &mut memory);
    assert_eq!(found(&graph), "unordered");
    graph.add_dependency(kernel, node).expect("an edge");
    assert_eq!(found(&graph), "its allocation node comes later");

    let mut graph = new();
    let (node, mut memory) = alloc(&mut graph, 4);
    let free = graph.add_free(&[node.id()], &mut memory).expect("a node");
    let kernel = add(&mut graph, &[node.id()], &mut memory);
    assert_eq!(found(&graph), "unordered");
    graph.add_dependency(free, kernel).expect("an edge");
    assert_eq!(found(&graph), "a free node comes earlier");
}

#[test]
fn parts_are_used_by_copies_fills_and_kernels() {
    let (context, stream, mut graph) = or_skip!(stage());
    let scale = scale(&context);
    let (node, mut memory) = alloc(&mut graph, 8);
    let (low, high) = memory.as_mut_slice().split_at(4).expect("two parts");
    let one = graph.add_fill(&[node.id()], low, 1).expect("a node");
    let two = graph.add_fill(&[node.id()], high, 2).expect("a node");
    let part = memory.slice_mut(2..6).expect("a part");
    let after = [one.id(), two.id()];
    // SAFETY: the kernel accesses the four elements.
    unsafe { graph.add_kernel(&after, &context, &scale, ONE, (part, 10, 1, 4)) }.expect("a node");
    let mut executable = launched(&graph, &stream);
    let buffer = executable.take_allocation(&memory, &stream).expect("kept");
    assert_eq!(buffer.to_vec().expect("a copy"), [1, 1, 11, 11, 21, 21, 2, 2]);
}

#[test]
fn a_graph_with_memory_nodes_is_not_copied_and_loses_nothing() {
    let (context, _stream, mut graph) = or_skip!(stage());
    let (node, mut memory) = alloc(&mut graph, 4);
    let fill = graph.add_fill(&[node.id()], &mut memory, 1).expect("a node");
    for refused in [graph.remove(fill), graph.remove_dependency(node, fill)] {
        assert!(matches!(invalid(refused), Invalid::MemoryNodes { .. }));
    }
    let refused = graph.try_clone();
    assert!(matches!(invalid(refused), Invalid::GraphOwnsMemory { .. }));
    let mut parent = Graph::new(&context).expect("a graph");
    let refused = parent.add_child(&[], &mut graph);
    assert!(matches!(invalid(refused), Invalid::GraphOwnsMemory { .. }));
    let options = InstantiateOptions { device_launch: true, ..InstantiateOptions::default() };
    assert!(matches!(invalid(graph.instantiate_with(&options)), Invalid::MemoryNodes { .. }));
    let mut executable = graph.instantiate().expect("an executable graph");
    assert!(matches!(invalid(graph.instantiate()), Invalid::SecondExecutable { .. }));
    let mut nodes = executable.nodes(&graph).expect("its graph");
    nodes.set_fill(fill, &mut memory, 2).expect("a change");
    nodes.set_enabled(node, false).expect_err("only kernels, copies and fills can be disabled");
}

#[test]
fn memory_that_a_launch_keeps_must_be_freed_before_the_next_launch() {
    let (_context, stream, graph, memory) = or_skip!(keeping());
    let mut executable = graph.instantiate().expect("an executable graph");
    for _ in 0..3 {
        executable.launch(&stream).expect("a launch");
        for _ in 0..2 {
            let refused = executable.launch(&stream);
            let why = Invalid::AllocationAlive { allocation: memory.number(), is_taken: false };
            assert_eq!(invalid(refused), why);
        }
        let buffer = executable.take_allocation(&memory, &stream).expect("kept");
        assert_eq!(buffer.as_raw(), memory.as_raw());
        assert_eq!(buffer.to_vec().expect("a copy"), [7; 4]);
        assert!(matches!(
            invalid(executable.launch(&stream)),
            Invalid::AllocationAlive { is_taken: true, .. }
        ));
        drop(buffer);
    }
    // SAFETY: the launch is complete before the executable graph is dropped.
    unsafe { executable.launch_unchecked(&stream) }.expect("a launch");
    // SAFETY: as above.
    let refused = unsafe { executable.launch_unchecked(&stream) };
    assert!(matches!(invalid(refused), Invalid::AllocationAlive { .. }));
    stream.synchronize().expect("a wait");
}

#[test]
fn memory_is_taken_once_after_a_launch_that_keeps_it() {
    let (context, stream, mut graph, memory) = or_skip!(keeping());
    let (node, mut freed) = alloc(&mut graph, 4);
    graph.add_free(&[node.id()], &mut freed).expect("a node");
    let theirs = keep(&mut Graph::new(&context).expect("a graph"));
    let mut executable = graph.instantiate().expect("an executable graph");
    let refused = |executable: &mut ExecutableGraph, its: &GraphAllocation<i32>| {
        let why = Invalid::AllocationNotAlive { allocation: its.number() };
        assert_eq!(invalid(executable.take_allocation(its, &stream)), why);
    };
    refused(&mut executable, &memory);
    executable.launch(&stream).expect("a launch");
    refused(&mut executable, &freed);
    refused(&mut executable, &theirs);
    let buffer = executable.take_allocation(&memory, &stream).expect("kept");
    refused(&mut executable, &memory);
    drop(buffer);
    refused(&mut executable, &memory);
}

#[test]
fn a_launch_frees_memory_of_the_launch_before_but_not_of_a_buffer() {
    let (context, stream, graph, memory) = or_skip!(keeping());
    let other = context.stream().expect("a stream");
    let mut executable = with_auto_free(&graph);
    for _ in 0..3 {
        executable.launch(&stream).expect("a launch");
        executable.launch(&other).expect("a launch");
    }
    let buffer = executable.take_allocation(&memory, &stream).expect("kept");
    for stream in [&stream, &other] {
        assert!(matches!(
            invalid(executable.launch(stream)),
            Invalid::AllocationAlive { is_taken: true, .. }
        ));
    }
    assert_eq!(buffer.to_vec().expect("a copy"), [7; 4]);
    drop(buffer);
    executable.launch(&other).expect("a launch");
}

#[test]
fn a_dropped_executable_graph_frees_the_memory_that_it_keeps() {
    // A wait for the context invalidates the captures of other tests.
    if !crate::common::child::entered(&[]) {
        return;
    }
    let (context, stream, graph, memory) = or_skip!(keeping());
    for auto_free in [false, true, false] {
        let mut executable = match auto_free {
            false => graph.instantiate().expect("an executable graph"),
            true => with_auto_free(&graph),
        };
        executable.launch(&stream).expect("freed before");
        drop(executable.take_allocation(&memory, &stream).expect("kept"));
        executable.launch(&stream).expect("freed before");
        drop(executable);
    }
    context.synchronize().expect("a wait");
}

#[test]
fn a_buffer_outlives_the_graphs_that_allocated_it() {
    let (context, stream, graph, memory) = or_skip!(keeping());
    let mut executable = launched(&graph, &stream);
    let mut buffer = executable.take_allocation(&memory, &stream).expect("kept");
    drop(executable);
    let executable = graph.instantiate().expect("another executable graph");
    assert!(matches!(invalid(executable.launch(&stream)), Invalid::AllocationAlive { .. }));
    drop((executable, graph, memory));
    let other = context.stream().expect("a stream");
    buffer.rebind(&other).expect("the same context");
    buffer.fill(5).expect("a fill");
    assert_eq!(buffer.to_vec().expect("a copy"), [5; 4]);
}

#[test]
fn a_free_node_that_is_added_later_does_not_free_the_memory_of_a_buffer() {
    let (context, stream, mut child, mut memory) = or_skip!(keeping());
    let mut executable = launched(&child, &stream);
    let mut buffer = executable.take_allocation(&memory, &stream).expect("kept");
    buffer.fill(9).expect("a fill");
    drop(executable);
    // Measured with driver 580: after an instantiation, the graph of the allocation node cannot get the free
    // node. The parent of the moved graph can.
    let refused = child.add_free(&[], &mut memory).expect_err("the graph was instantiated");
    assert_eq!(refused.code(), Some(CUresult::CUDA_ERROR_INVALID_VALUE));
    let mut graph = Graph::new(&context).expect("a graph");
    or_skip!(common::since(12, 9));
    let child = graph.add_child_moved(&[], child).expect("a node");
    graph.add_free(&[child.id()], &mut memory).expect("a node");
    for instantiate in [|graph: &Graph| graph.instantiate().expect("a graph"), with_auto_free] {
        let executable = instantiate(&graph);
        let refused = executable.launch(&stream);
        assert!(matches!(invalid(refused), Invalid::AllocationAlive { is_taken: true, .. }));
    }
    assert_eq!(buffer.to_vec().expect("a copy"), [9; 4]);
    drop(buffer);
    let executable = graph.instantiate().expect("an executable graph");
    for _ in 0..3 {
        executable.launch(&stream).expect("the memory is free");
    }
    stream.synchronize().expect("a wait");
}

/// Measured with driver 580.
#[test]
fn the_driver_accepts_a_free_node_in_another_graph_only_once() {
    let (context, _, mut graph) = or_skip!(stage());
    let (_, memory) = alloc(&mut graph, 4);
    let other = Graph::new(&context).expect("a graph");
    let free = |graph: &Graph| {
        let mut node = std::ptr::null_mut();
        let (graph, address) = (graph.as_raw(), memory.as_raw());
        // SAFETY: the graphs are alive, and the node is a local variable. No graph is launched.
        unsafe { cuGraphAddMemFreeNode(&raw mut node, graph, std::ptr::null(), 0, address) }
    };
    assert_eq!(free(&other), CUresult::CUDA_SUCCESS);
    for graph in [&graph, &other] {
        assert_eq!(free(graph), CUresult::CUDA_ERROR_INVALID_VALUE);
    }
}

#[test]
fn a_launch_comes_after_the_free_of_the_buffer() {
    let (context, stream, graph, memory) = or_skip!(keeping());
    let mut executable = graph.instantiate().expect("an executable graph");
    for _ in 0..if cfg!(miri) { 2 } else { 8 } {
        let other = context.stream().expect("a stream");
        executable.launch(&stream).expect("a launch");
        let mut buffer = executable.take_allocation(&memory, &other).expect("kept");
        for value in 0..64 {
            buffer.fill(value).expect("a fill");
        }
        drop((buffer, other));
        executable.launch(&stream).expect("a launch");
        let buffer = executable.take_allocation(&memory, &stream).expect("kept");
        assert_eq!(buffer.to_vec().expect("a copy"), [7; 4]);
    }
}

#[test]
fn a_buffer_that_is_freed_on_a_borrowed_stream_permits_the_next_launch() {
    let (context, stream, graph, memory) = or_skip!(keeping());
    let mut executable = launched(&graph, &stream);
    let other = context.stream().expect("a stream");
    // SAFETY: `other` outlives the borrowed stream.
    let borrowed = unsafe { Stream::borrow_raw(other.as_raw(), &context) }.expect("a stream");
    drop(executable.take_allocation(&memory, &borrowed).expect("kept"));
    drop((borrowed, other));
    executable.launch(&stream).expect("a launch");
}

#[test]
fn a_launch_that_keeps_memory_needs_an_owned_stream() {
    let (context, stream, graph, memory) = or_skip!(keeping());
    let executable = graph.instantiate().expect("an executable graph");
    // SAFETY: `stream` outlives the borrowed stream.
    let borrowed = unsafe { Stream::borrow_raw(stream.as_raw(), &context) }.expect("a stream");
    // SAFETY: nothing is launched.
    let refused = unsafe { executable.launch_unchecked(&borrowed) };
    let why = Invalid::AllocationOnBorrowedStream { allocation: memory.number() };
    assert_eq!(invalid(refused), why);
}

#[test]
fn of_concurrent_launches_one_keeps_the_memory() {
    let (context, stream, graph, memory) = or_skip!(keeping());
    let mut executable = graph.instantiate().expect("an executable graph");
    for _ in 0..if cfg!(miri) { 3 } else { 16 } {
        let launched = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let own = context.stream().expect("a stream");
                    match executable.launch(&own) {
                        Ok(()) => drop(launched.fetch_add(1, Ordering::Relaxed)),
                        refused => {
                            let why = invalid(refused);
                            assert!(matches!(why, Invalid::AllocationAlive { .. }), "{why}");
                        }
                    }
                });
            }
        });
        assert_eq!(launched.into_inner(), 1);
        let buffer = executable.take_allocation(&memory, &stream).expect("kept");
        assert_eq!(buffer.to_vec().expect("a copy"), [7; 4]);
    }
}

#[test]
fn wrong_allocations_and_frees_are_refused() {
    let (context, _stream, mut graph) = or_skip!(stage());
    let options = AllocOptions::default();
    let refused = graph.add_alloc::<i32>(&[], 0, &options);
    assert!(matches!(invalid(refused), Invalid::EmptyNode { .. }));
    let refused = graph.add_alloc::<()>(&[], 8, &options);
    assert!(matches!(invalid(refused), Invalid::EmptyNode { .. }));
    let refused = graph.add_alloc::<u64>(&[], usize::MAX, &options);
    assert!(matches!(invalid(refused), Invalid::TooLarge { .. }));
    graph.try_clone().expect("the graph owns no memory");
    // After this, a real driver does not clone the graph.
    let refused = graph.add_alloc::<u8>(&[], 1 << 50, &options);
    assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");

    let (node, mut memory) = alloc(&mut graph, 4);
    let mut other = Graph::new(&context).expect("a graph");
    let refused = other.add_free(&[], &mut memory);
    assert!(matches!(invalid(refused), Invalid::BufferOfOtherGraph { .. }));
    let refused = other.add_fill(&[], &mut memory, 1);
    assert!(matches!(invalid(refused), Invalid::BufferOfOtherGraph { .. }));
    graph.add_free(&[node.id()], &mut memory).expect("a node");
    let refused = graph.add_free(&[node.id()], &mut memory);
    let why = Invalid::FreedTwice { allocation: memory.number() };
    assert_eq!(invalid(refused), why);
    graph.instantiate().expect("one free node");
}

#[test]
fn a_free_node_that_is_refused_can_be_added_again() {
    let (_context, _stream, mut graph) = or_skip!(stage());
    let (node, mut memory) = alloc(&mut graph, 4);
    let refused = graph.add_free(&[node.id(), node.id()], &mut memory);
    assert!(matches!(invalid(refused), Invalid::RepeatedDependency { .. }));
    graph.add_free(&[node.id()], &mut memory).expect("a node");
}

#[test]
fn an_older_executable_graph_cannot_use_the_memory_of_a_newer_node() {
    let (_context, stream, mut graph) = or_skip!(stage());
    let mut data = own(&mut graph, &stream, &[0; 4]);
    let fill = graph.add_fill(&[], &mut data, 1).expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    let (_node, mut memory) = alloc(&mut graph, 4);
    let mut nodes = executable.nodes(&graph).expect("its graph");
    let refused = nodes.set_fill(fill, &mut memory, 2);
    assert!(matches!(invalid(refused), Invalid::UnallocatedAccess { .. }));
    executable.launch(&stream).expect("a launch");
}

#[test]
fn an_update_takes_memory_nodes_from_its_own_graph_only() {
    let (context, stream, graph, memory) = or_skip!(keeping());
    let mut other = Graph::new(&context).expect("a graph");
    let _theirs = keep(&mut other);
    let mut executable = graph.instantiate().expect("an executable graph");
    assert!(matches!(invalid(executable.update(&other)), Invalid::MemoryNodes { .. }));
    let empty = Graph::new(&context).expect("a graph");
    assert!(matches!(invalid(executable.update(&empty)), Invalid::MemoryNodes { .. }));
    executable.update(&graph).expect("its own graph");
    executable.launch(&stream).expect("a launch");
    let buffer = executable.take_allocation(&memory, &stream).expect("kept");
    assert_eq!(buffer.to_vec().expect("a copy"), [7; 4]);
}

#[test]
fn the_parameters_of_memory_nodes_are_returned() {
    let (context, _stream, mut graph) = or_skip!(stage());
    let device = context.device();
    let (node, mut memory) = alloc(&mut graph, 4);
    let free = graph.add_free(&[node.id()], &mut memory).expect("a node");
    let parameters = graph.alloc_parameters(node).expect("a query");
    assert_eq!(parameters.address, memory.as_raw());
    assert_eq!(parameters.size_bytes, 16);
    assert_eq!(parameters.location, Some(MemoryLocation::Device(device)));
    assert_eq!(parameters.access, []);
    assert_eq!(graph.free_parameters(free).expect("a query"), memory.as_raw());
    assert!(matches!(invalid(graph.typed::<kind::Free>(node.id())), Invalid::NodeKind { .. }));
}

#[test]
fn a_graph_runs_again_after_its_memory_was_trimmed() {
    let (context, stream, mut graph) = or_skip!(stage());
    let device = context.device();
    let (node, mut memory) = alloc(&mut graph, 1 << 20);
    let fill = graph.add_fill(&[node.id()], &mut memory, 1);
    graph.add_free(&[fill.expect("a node").id()], &mut memory).expect("a node");
    let executable = graph.instantiate().expect("an executable graph");
    // Other tests use graphs at the same time.
    for _ in 0..3 {
        executable.launch(&stream).expect("a launch");
        stream.synchronize().expect("a wait");
        device.trim_graph_memory().expect("a trim");
        let usage = device.graph_memory().expect("a query");
        assert!(usage.used_high >= 4 << 20, "{usage:?}");
        assert!(usage.reserved_high >= usage.used_high, "{usage:?}");
    }
}
