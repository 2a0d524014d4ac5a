//! Operations in graphs, and streams of green contexts.

use crate::machine::{all, communicators};
use cuda_nccl::{Communicator, Config, Error, Invalid, ReduceOp, capture_group, group};
use cuda_safe::capture::CaptureMode;
use cuda_safe::green::{GreenContext, SmResource, SplitByCount};
use cuda_safe::{Context, Device, DeviceBuffer};

#[test]
fn a_captured_operation_runs_in_each_launch() {
    let all = or_skip!(all());
    let ranks = all.len() as u64;
    let ones = |its: &Communicator| DeviceBuffer::from_slice(its.stream(), &[1_u64; 16]);
    let mut buffers: Vec<_> = all.iter().map(ones).collect::<Result<_, _>>().expect("memory");
    // Connections are created before a capture.
    let sum = |buffers: &mut Vec<DeviceBuffer<u64>>| {
        group(|group| {
            for (its, buffer) in all.iter().zip(buffers) {
                group.all_reduce_in_place(its, buffer, ReduceOp::Sum)?;
            }
            Ok(())
        })
    };
    sum(&mut buffers).expect("a sum");
    let mode = CaptureMode::ThreadLocal;
    let captures: Vec<_> =
        all.iter().map(|its| its.stream().begin_capture(mode).expect("a capture")).collect();
    // SAFETY: the buffers outlive the graphs, only these launches use them, and nothing is aborted.
    let captured = unsafe {
        capture_group(|group| {
            for (its, buffer) in all.iter().zip(&mut buffers) {
                group.all_reduce_in_place(its, buffer, ReduceOp::Sum)?;
            }
            Ok(())
        })
    };
    captured.expect("a captured sum");
    // All captures of the thread end before one of the graphs is instantiated.
    let graphs: Vec<_> =
        captures.into_iter().map(|capture| capture.end().expect("a graph")).collect();
    let graphs: Vec<_> =
        graphs.into_iter().map(|graph| graph.instantiate().expect("an executable graph")).collect();
    for launch in 0..3 {
        for (graph, its) in graphs.iter().zip(&all) {
            // SAFETY: the buffers and the communicators are alive, and only work on these streams uses them.
            unsafe { graph.launch_unchecked(its.stream()) }.expect("a launch");
        }
        for buffer in &buffers {
            let expected = ranks.pow(launch + 2);
            assert_eq!(buffer.to_vec().expect("a copy"), [expected; 16], "launch {launch}");
        }
    }
}

#[test]
fn an_operation_outside_of_capture_group_is_refused_on_a_captured_stream() {
    let its = or_skip!(communicators(1)).remove(0);
    let mut buffer = DeviceBuffer::<u8>::zeroed(its.stream(), 4).expect("memory");
    let capture = its.stream().begin_capture(CaptureMode::ThreadLocal).expect("a capture");
    let answer = its.all_reduce_in_place(&mut buffer, ReduceOp::Sum);
    assert!(
        matches!(&answer, Err(Error::Invalid(its)) if matches!(**its, Invalid::Captured)),
        "{answer:?}"
    );
    let answer = group(|group| group.all_reduce_in_place(&its, &mut buffer, ReduceOp::Sum));
    assert!(
        matches!(&answer, Err(Error::Invalid(its)) if matches!(**its, Invalid::Captured)),
        "{answer:?}"
    );
    drop(capture);
    its.all_reduce_in_place(&mut buffer, ReduceOp::Sum).expect("after the capture");
}

/// A graph keeps its communicator alive.
#[test]
fn a_graph_outlives_the_communicator_object() {
    let its = or_skip!(communicators(1)).remove(0);
    let stream = its.stream().clone();
    let mut buffer = DeviceBuffer::from_slice(&stream, &[5_u32; 4]).expect("memory");
    let capture = stream.begin_capture(CaptureMode::ThreadLocal).expect("a capture");
    // SAFETY: the buffer outlives the graph, and nothing is aborted.
    unsafe {
        capture_group(|group| {
            group.all_reduce_in_place(&its, &mut buffer, cuda_nccl::Reduction::ScaledSum(3))
        })
    }
    .expect("a captured sum");
    let graph = capture.end().expect("a graph").instantiate().expect("an executable graph");
    let abort = its.abort_handle();
    drop(its);
    assert!(abort.error().is_none());
    // SAFETY: the buffer is alive, and only work on this stream uses it.
    unsafe { graph.launch_unchecked(&stream) }.expect("a launch");
    assert_eq!(buffer.to_vec().expect("a copy"), [15; 4]);
    drop(graph);
}

/// Creates a green context with few SMs on each of some devices.
fn partitions(devices: &[Device]) -> Vec<GreenContext> {
    let of = |device: &Device| {
        let all = SmResource::of_device(device).expect("the SMs");
        let split = all.split_by_count(SplitByCount { min: 16, ..Default::default() });
        let group = split.expect("groups of SMs").groups.remove(0);
        GreenContext::new([group]).expect("a green context")
    };
    devices.iter().map(of).collect()
}

#[test]
fn a_communicator_works_on_streams_of_green_contexts() {
    let count = or_skip!(all()).len();
    or_skip!(crate::common::since(12, 5));
    let devices = Device::all().expect("devices");
    let greens = partitions(&devices[..count]);
    let streams: Vec<_> = greens.iter().map(|its| its.stream().expect("a stream")).collect();
    // NCCL must not need more SMs than the partition has.
    let config = Config { max_ctas: Some(8), ..Default::default() };
    let all = Communicator::init_all(&streams, &config).expect("communicators");
    let beside: Vec<_> = devices[..count]
        .iter()
        .map(|device| Context::primary(device).and_then(|context| context.stream()))
        .collect::<Result<_, _>>()
        .expect("streams");
    let ones = streams.iter().map(|stream| DeviceBuffer::from_slice(stream, &[1_u32; 1 << 16]));
    let mut buffers: Vec<_> = ones.collect::<Result<_, _>>().expect("memory");
    let mut others = Vec::new();
    for stream in &beside {
        others.push(DeviceBuffer::<u8>::zeroed(stream, 1 << 20).expect("memory"));
    }
    group(|group| {
        for (its, buffer) in all.iter().zip(&mut buffers) {
            group.all_reduce_in_place(its, buffer, ReduceOp::Sum)?;
        }
        Ok(())
    })
    .expect("a sum");
    for buffer in &buffers {
        assert_eq!(buffer.to_vec().expect("a copy"), vec![count as u32; 1 << 16]);
    }
}
