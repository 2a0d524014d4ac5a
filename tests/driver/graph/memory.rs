//! Memory that graphs own: copies, fills, kernels, and access from outside.

use crate::common::{self, invalid};
use crate::graph::build::stage;
use crate::graph::{ONE, add_scale, elements, launched, own, scale};
use cuda_safe::graph::{EdgeKind, GraphBuffer};
use cuda_safe::memory::{Extent, Region};
use cuda_safe::{DeviceBuffer, ExecutableGraph, Graph, Invalid, PinnedBuffer};

#[test]
fn a_chain_of_copies_and_fills_runs_at_each_launch() {
    let (context, stream, mut graph) = or_skip!(stage());
    let host = PinnedBuffer::<i32>::zeroed(&context, 4).expect("memory");
    let mut host = graph.own_pinned(host);
    let mut a = own(&mut graph, &stream, &[0; 4]);
    let mut b = own(&mut graph, &stream, &[0; 8]);
    let up = graph.add_copy(&[], &mut a, &host).expect("a node");
    let fill = graph.add_fill(&[], b.slice_mut(4..).expect("a part"), -1).expect("a node");
    let across = graph.add_copy(&[up.id(), fill.id()], b.slice_mut(..4).expect("a part"), &a);
    let across = across.expect("a node");
    let down = b.slice(2..6).expect("a part");
    graph.add_copy(&[across.id()], &mut host, down).expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    drop(graph);
    for expected in [[3, 4, -1, -1], [-1, -1, -1, -1]] {
        if expected[0] == 3 {
            let elements = executable.host(&mut host).expect("the elements");
            elements.copy_from_slice(&[1, 2, 3, 4]);
        }
        executable.launch(&stream).expect("a launch");
        assert_eq!(executable.host(&mut host).expect("the elements"), expected);
    }
    let access = executable.access(&mut b, &stream).expect("access");
    assert_eq!(access.as_slice().to_vec().expect("a copy"), [3, 4, -1, -1, -1, -1, -1, -1]);
}

#[test]
fn two_pinned_buffers_are_written_without_an_order() {
    let (context, stream, mut graph) = or_skip!(stage());
    let source = own(&mut graph, &stream, &[5, 6]);
    let pinned = || PinnedBuffer::<i32>::zeroed(&context, 2).expect("memory");
    let [mut first, mut second] = [pinned(), pinned()].map(|its| graph.own_pinned(its));
    for target in [&mut first, &mut second] {
        graph.add_copy(&[], target, &source).expect("a node");
    }
    let mut executable = launched(&graph, &stream);
    for buffer in [&mut first, &mut second] {
        assert_eq!(executable.host(buffer).expect("the elements"), [5, 6]);
    }
    graph.add_copy(&[], &mut first, &source).expect("a node");
    graph.instantiate().expect_err("nothing orders it after the other copy to the buffer");
}

#[test]
fn regions_are_copied_and_filled() {
    let (_context, stream, mut graph) = or_skip!(stage());
    let source = own(&mut graph, &stream, &(0..24).collect::<Vec<_>>());
    let mut target = own(&mut graph, &stream, &[-1; 24]);
    let whole = Region::new(Extent::new_3d(4, 3, 2));
    let extent = Extent::new_3d(2, 2, 2);
    let copy = graph
        .add_copy_3d(&[], extent, &mut target, whole.at(1, 1, 0), &source, whole.at(0, 0, 0))
        .expect("a node");
    let corner = Extent::new_2d(1, 2);
    graph.add_fill_2d(&[copy.id()], corner, &mut target, whole.at(0, 0, 0), 7).expect("a node");
    let outside = graph.add_fill_2d(&[], Extent::new_2d(5, 3), &mut target, whole.at(1, 0, 1), 7);
    assert!(matches!(invalid(outside), Invalid::Region { .. }));
    let volume = graph.add_fill_2d(&[], Extent::new_3d(1, 1, 2), &mut target, whole.at(0, 0, 0), 7);
    assert!(matches!(invalid(volume), Invalid::Region { .. }));
    let mut executable = launched(&graph, &stream);
    let access = executable.access(&mut target, &stream).expect("access");
    assert_eq!(
        access.as_slice().to_vec().expect("a copy"),
        [
            7, -1, -1, -1, 7, 0, 1, -1, -1, 4, 5, -1, //
            -1, -1, -1, -1, -1, 12, 13, -1, -1, 16, 17, -1,
        ]
    );
}

#[test]
fn kernels_run_with_the_arguments_of_their_nodes() {
    let (context, stream, mut graph) = or_skip!(stage());
    let scale = scale(&context);
    let mut data = own(&mut graph, &stream, &[1, 2, 3]);
    // SAFETY: the kernel accesses the first three elements.
    let first = unsafe { graph.add_kernel(&[], &context, &scale, ONE, (&mut data, 2, 1, 3)) };
    let first = first.expect("a node");
    assert_eq!(graph.kernel_config(first).expect("a query"), ONE);
    // SAFETY: as above.
    unsafe { graph.add_kernel(&[first.id()], &stream, &scale, ONE, (&mut data, 10, 0, 3)) }
        .expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    drop((graph, scale));
    executable.launch(&stream).expect("a launch");
    assert_eq!(elements(&mut executable, &mut data, &stream), [30, 50, 70]);
}

#[test]
fn shared_buffers_are_read_by_several_graphs() {
    let (context, stream, mut graph) = or_skip!(stage());
    let other = context.stream().expect("a stream");
    let shared = DeviceBuffer::from_slice(&other, &[1, 2, 3]).expect("memory");
    let shared = shared.share().expect("shared");
    let mut second = Graph::new(&context).expect("a graph");
    for graph in [&mut graph, &mut second] {
        let mut target = own(graph, &stream, &[0; 3]);
        graph.add_copy(&[], &mut target, &shared).expect("a node");
        let mut executable = launched(graph, &stream);
        assert_eq!(elements(&mut executable, &mut target, &stream), [1, 2, 3]);
    }
}

#[test]
fn unordered_writes_are_refused_and_both_nodes_are_named() {
    let (context, stream, mut graph) = or_skip!(stage());
    let scale = scale(&context);
    let mut data = own(&mut graph, &stream, &[1; 32]);
    let fill = graph.add_fill(&[], &mut data, 1).expect("a node");
    let kernel = add_scale(&mut graph, &[], &scale, &mut data, 2);
    match invalid(graph.instantiate()) {
        Invalid::UnorderedAccess { first, second, buffer } => {
            assert_eq!(first, "node 0 (fill)");
            assert_eq!(second, "node 1 (kernel \"scale\")");
            assert_eq!(buffer, data.number());
        }
        why => panic!("{why}"),
    }
    let between = graph.add_empty(&[fill.id()]).expect("a node");
    graph.add_dependency(between, kernel).expect("an edge");
    graph.instantiate().expect("ordered now");
    graph.remove(between).expect("a node");
    assert!(matches!(invalid(graph.instantiate()), Invalid::UnorderedAccess { .. }));
}

#[test]
fn programmatic_edges_do_not_order_accesses() {
    let (context, stream, mut graph) = or_skip!(stage());
    let scale = scale(&context);
    let mut data = own(&mut graph, &stream, &[1; 32]);
    let mut add = |graph: &mut Graph| {
        // SAFETY: the kernel accesses the 32 elements.
        unsafe { graph.add_kernel(&[], &context, &scale, ONE, (&mut data, 2, 0, 32)) }
            .expect("a node")
    };
    let (first, second) = (add(&mut graph), add(&mut graph));
    graph.add_dependency_with(first, second, EdgeKind::Programmatic).expect("an edge");
    assert_eq!(graph.edges().expect("a query")[0].kind, EdgeKind::Programmatic);
    assert!(matches!(invalid(graph.instantiate()), Invalid::UnorderedAccess { .. }));
    graph.remove_dependency(first, second).expect("an edge");
    graph.add_dependency(first, second).expect("an edge");
    graph.instantiate().expect("ordered now");
}

#[test]
fn disjoint_parts_are_written_by_unordered_nodes() {
    let (_context, stream, mut graph) = or_skip!(stage());
    let mut data = own(&mut graph, &stream, &[0; 8]);
    let (low, high) = data.as_mut_slice().split_at(4).expect("two parts");
    graph.add_fill(&[], low, 1).expect("a node");
    graph.add_fill(&[], high, 2).expect("a node");
    let mut executable = launched(&graph, &stream);
    assert_eq!(elements(&mut executable, &mut data, &stream), [1, 1, 1, 1, 2, 2, 2, 2]);
}

#[test]
fn a_graph_that_owns_memory_has_one_executable_graph_and_no_copies() {
    let (context, stream, mut graph) = or_skip!(stage());
    let mut data = own(&mut graph, &stream, &[0; 8]);
    graph.add_fill(&[], &mut data, 1).expect("a node");
    let executable = graph.instantiate().expect("an executable graph");
    assert!(matches!(invalid(graph.instantiate()), Invalid::SecondExecutable { .. }));
    drop(executable);
    graph.instantiate().expect("the other one was dropped");
    assert!(matches!(invalid(graph.try_clone()), Invalid::GraphOwnsMemory { .. }));
    let mut parent = Graph::new(&context).expect("a graph");
    let refused = parent.add_child(&[], &mut graph);
    assert!(matches!(invalid(refused), Invalid::GraphOwnsMemory { .. }));
    or_skip!(common::since(12, 9));
    let child = parent.add_child_moved(&[], graph).expect("a node");
    parent.add_fill(&[], &mut data, 2).expect("the memory moved too");
    assert!(matches!(invalid(parent.instantiate()), Invalid::UnorderedAccess { .. }));
    let fill = parent.nodes().expect("a query")[1];
    parent.add_dependency(child, fill).expect("an edge");
    let mut executable = parent.instantiate().expect("ordered now");
    executable.launch(&stream).expect("a launch");
    assert_eq!(elements(&mut executable, &mut data, &stream), [2; 8]);
}

#[test]
fn memory_of_another_graph_is_refused() {
    let (context, stream, mut graph) = or_skip!(stage());
    let mut other = Graph::new(&context).expect("a graph");
    let mut theirs = own(&mut other, &stream, &[0; 8]);
    let refused = graph.add_fill(&[], &mut theirs, 1);
    assert!(matches!(invalid(refused), Invalid::BufferOfOtherGraph { .. }));
    let mut executable = graph.instantiate().expect("an executable graph");
    let refused = executable.access(&mut theirs, &stream);
    assert!(matches!(invalid(refused), Invalid::BufferOfOtherGraph { .. }));
}

#[test]
fn nodes_without_bytes_are_refused() {
    let (_context, stream, mut graph) = or_skip!(stage());
    let mut empty = own(&mut graph, &stream, &[]);
    let refused = graph.add_fill(&[], &mut empty, 1);
    assert!(matches!(invalid(refused), Invalid::EmptyNode { .. }));
    let other = own(&mut graph, &stream, &[]);
    let refused = graph.add_copy(&[], &mut empty, &other);
    assert!(matches!(invalid(refused), Invalid::EmptyNode { .. }));
    let long = own(&mut graph, &stream, &[1, 2]);
    assert!(matches!(invalid(graph.add_copy(&[], &mut empty, &long)), Invalid::Lengths { .. }));
}

#[test]
fn accesses_from_outside_are_ordered_with_launches() {
    let (context, stream, mut graph) = or_skip!(stage());
    let scale = scale(&context);
    let mut data = own(&mut graph, &stream, &[1, 2, 3]);
    add_scale(&mut graph, &[], &scale, &mut data, 2);
    let mut executable = graph.instantiate().expect("an executable graph");
    let others = [context.stream(), context.stream()].map(|its| its.expect("a stream"));
    for round in 0..4 {
        executable.launch(&others[round % 2]).expect("a launch");
        let outside = &others[(round + 1) % 2];
        let mut access = executable.access(&mut data, outside).expect("access");
        access.as_mut_slice().fill(round as i32).expect("a fill");
        drop(access);
        executable.launch(&stream).expect("a launch");
        let access = executable.access(&mut data, outside).expect("access");
        let expected = [round as i32 * 2; 3];
        assert_eq!(access.as_slice().to_vec().expect("a copy"), expected);
    }
}

#[test]
fn an_access_comes_after_the_earlier_work_on_a_buffer_that_entered_late() {
    let (context, stream, mut graph) = or_skip!(stage());
    let _first = own(&mut graph, &stream, &[1]);
    let mut executable = graph.instantiate().expect("an executable graph");
    let other = context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::<i32>::zeroed(&stream, 8).expect("memory");
    let mut copy = DeviceBuffer::<i32>::zeroed(&other, 8).expect("memory");
    other.synchronize().expect("a wait");
    // The fill waits until the copy could have run.
    stream
        .launch_host_function(|| std::thread::sleep(std::time::Duration::from_millis(30)))
        .expect("a function");
    buffer.fill(7).expect("a fill");
    let late = graph.own(buffer).expect("the graph owns it");
    let access = executable.read_access(&late, &other).expect("access");
    copy.copy_from(&access).expect("a copy");
    drop(access);
    assert_eq!(copy.to_vec().expect("a copy"), [7; 8]);
}

#[test]
fn reads_from_outside_are_ordered_with_launches() {
    let (context, stream, mut graph) = or_skip!(stage());
    let scale = scale(&context);
    let mut data = own(&mut graph, &stream, &[1, 2, 3]);
    add_scale(&mut graph, &[], &scale, &mut data, 2);
    let mut executable = graph.instantiate().expect("an executable graph");
    let other = context.stream().expect("a stream");
    let mut copies = Vec::new();
    for round in 0..4 {
        executable.launch(&stream).expect("a launch");
        let reader = [&stream, &other][round % 2];
        let access = executable.read_access(&data, reader).expect("access");
        assert_eq!(access.stream(), reader);
        let mut copy = DeviceBuffer::<i32>::zeroed(reader, 3).expect("memory");
        copy.copy_from(&access).expect("a copy");
        copies.push(copy);
    }
    for (round, copy) in copies.into_iter().enumerate() {
        let expected = [1, 2, 3].map(|its| its << (round + 1));
        assert_eq!(copy.to_vec().expect("a copy"), expected);
    }
    // A shared borrow of the buffer is enough.
    let read = |executable: &mut ExecutableGraph, data: &GraphBuffer<i32>| {
        let access = executable.read_access(data, &other).expect("access");
        access.as_slice().to_vec().expect("a copy")
    };
    assert_eq!(read(&mut executable, &data), [16, 32, 48]);
    let mut third = Graph::new(&context).expect("a graph");
    let theirs = own(&mut third, &stream, &[0; 8]);
    assert!(matches!(
        invalid(executable.read_access(&theirs, &stream)),
        Invalid::BufferOfOtherGraph { .. }
    ));
}

#[test]
fn the_buffer_is_returned_when_no_graph_uses_it() {
    let (_context, stream, mut graph) = or_skip!(stage());
    let mut data = own(&mut graph, &stream, &[0; 4]);
    graph.add_fill(&[], &mut data, 3).expect("a node");
    let data = data.into_buffer().expect_err("the graph uses it");
    let executable = launched(&graph, &stream);
    drop((graph, executable));
    stream.synchronize().expect("a wait");
    let mut attempt = data.into_buffer();
    // Another thread may be releasing the objects of the launch at this moment.
    for _ in 0..1000 {
        attempt = attempt.or_else(|data| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            data.into_buffer()
        });
    }
    let buffer = attempt.expect("the launch is complete");
    assert_eq!(buffer.to_vec().expect("a copy"), [3; 4]);
}
