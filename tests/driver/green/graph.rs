//! The SMs that the nodes of a graph run on: those of the streams that the nodes were captured on.

use crate::common;
use crate::green::{alone, partition, resource, resource_alone};
use crate::module::kernels::{FILLING, SHORT, SMID, VECTOR, WARP, kernel};
use cuda_safe::capture::CaptureMode;
use cuda_safe::graph::{NodeContext, NodeId};
use cuda_safe::green::{GreenContext, SmProbe};
use cuda_safe::{
    Context, DeviceBuffer, Error, Graph, Invalid, LaunchConfig, Result, Stream, TypedKernel, sys,
};
use std::collections::BTreeSet;

/// Returns the SMs that a kernel ran on when it was captured on one stream and launched into
/// another, and whether the launch was refused because the kernel would leave the partition. It is then
/// repeated without this crate.
fn sms_of_graph(context: &Context, recorded: &Stream, launched: &Stream) -> (BTreeSet<u32>, bool) {
    let record = kernel::<(&'static mut [u32], u32)>(context, SMID, "record_smid");
    let mut smids = DeviceBuffer::<u32>::zeroed(recorded, FILLING as usize).expect("memory");
    recorded.synchronize().expect("a wait");
    let graph = recorded.capture(CaptureMode::ThreadLocal, |stream| {
        let config = LaunchConfig::linear(FILLING, WARP);
        // SAFETY: the kernel writes one element for each block, and the buffer has that many.
        unsafe { record.launch(stream, config, (&mut smids, SHORT)) }
    });
    let graph = graph.expect("a graph").instantiate().expect("an executable graph");
    // SAFETY: the buffer and the kernel are alive until the wait, and nothing else uses them.
    let made = unsafe { graph.launch_unchecked(launched) };
    let is_refused = match made {
        Ok(()) => false,
        Err(Error::Invalid(why)) if matches!(*why, Invalid::OtherPartition { .. }) => true,
        Err(error) => panic!("{error}"),
    };
    if is_refused {
        // SAFETY: as above.
        let code = unsafe { sys::cuGraphLaunch(graph.as_raw(), launched.as_raw()) };
        assert!(code.is_success(), "{code}");
    }
    launched.synchronize().expect("a wait");
    let smids = smids.to_vec().expect("a copy");
    (smids.into_iter().collect(), is_refused)
}

#[test]
fn a_graph_runs_on_the_sms_of_the_streams_it_was_captured_on() {
    // In a child process, because a wait for the context invalidates the captures of all threads.
    common::child::in_child(&[], || {
        let (_alone, resource) = or_skip!(resource_alone());
        let all = resource.sm_count();
        let context = Context::primary(&resource.device()).expect("a primary context");
        let green = partition(resource);
        let (plain, own) = (context.stream(), green.stream());
        let (plain, own) = (plain.expect("a stream"), own.expect("a stream"));
        let probe = SmProbe::new(&context).expect("a probe");
        let partition = probe.sms(&own).expect("a probe");
        assert_eq!(partition.len() as u32, green.sm_count());

        // The graph was captured outside of the partition, so a launch into the partition does not
        // confine it, and is refused.
        let (outside, is_refused) = sms_of_graph(&context, &plain, &own);
        assert_eq!(outside.len() as u32, all, "{outside:?}");
        assert!(is_refused);
        // The graph was captured on a stream of the partition, so it is confined wherever it is
        // launched.
        for launched in [&own, &plain] {
            let (inside, is_refused) = sms_of_graph(&context, &own, launched);
            assert_eq!(inside, partition);
            assert!(!is_refused);
        }
    });
}

/// A kernel that does nothing, and a green context.
fn stage() -> Option<(Context, GreenContext, TypedKernel<()>)> {
    let resource = resource()?;
    let context = Context::primary(&resource.device()).expect("a primary context");
    let green = partition(resource);
    let nothing = kernel(&context, VECTOR, "nothing");
    Some((context, green, nothing))
}

/// Adds a kernel after another node.
fn add(
    graph: &mut Graph,
    after: NodeId,
    context: &impl NodeContext,
    kernel: &TypedKernel<()>,
) -> NodeId {
    let config = LaunchConfig::linear(1, 1);
    // SAFETY: the kernel accesses no memory.
    let node = unsafe { graph.add_kernel(&[after], context, kernel, config, ()) };
    node.expect("a node").id()
}

fn is_other_partition(launched: Result<()>) -> bool {
    match launched {
        Ok(()) => false,
        Err(Error::Invalid(why)) => matches!(*why, Invalid::OtherPartition { .. }),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_graph_without_kernels_in_a_partition_is_refused_on_its_streams() {
    // A wait for the context invalidates the captures of other tests.
    if !crate::common::child::entered(&[]) {
        return;
    }
    let _alone = alone();
    let (context, green, nothing) = or_skip!(stage());
    let (plain, own) = (context.stream(), green.stream());
    let (plain, own) = (plain.expect("a stream"), own.expect("a stream"));

    let mut graph = Graph::new(&context).expect("a graph");
    let first = graph.add_host_function(&[], || ()).expect("a node").id();
    let executable = graph.instantiate().expect("an executable graph");
    executable.launch(&own).expect("it has no kernels");

    let second = add(&mut graph, first, &context, &nothing);
    let outside = graph.instantiate().expect("an executable graph");
    assert!(is_other_partition(outside.launch(&own)));
    outside.launch(&plain).expect("a launch");
    let mut parent = Graph::new(&context).expect("a graph");
    parent.add_child(&[], &mut graph).expect("a node");
    let of_parent = parent.instantiate().expect("an executable graph");
    assert!(is_other_partition(of_parent.launch(&own)));

    add(&mut graph, second, &green, &nothing);
    let mut both = graph.instantiate().expect("an executable graph");
    both.launch(&own).expect("one kernel runs there");
    both.launch(&plain).expect("a launch");
    context.synchronize().expect("a wait");
    drop(parent);

    // An update is checked too, at the first launch on another stream.
    let mut same = Graph::new(&context).expect("a graph");
    let first = same.add_host_function(&[], || ()).expect("a node").id();
    let second = add(&mut same, first, &context, &nothing);
    add(&mut same, second, &green, &nothing);
    both.update(&same).expect("the same nodes");
    let other = green.stream().expect("a stream");
    both.launch(&other).expect("one kernel runs there");
    context.synchronize().expect("a wait");
}

#[test]
fn the_refusal_names_both_contexts_and_the_way_out() {
    let _alone = alone();
    let (context, green, nothing) = or_skip!(stage());
    let own = green.stream().expect("a stream");
    let mut graph = Graph::new(&context).expect("a graph");
    let first = graph.add_empty(&[]).expect("a node").id();
    add(&mut graph, first, &context, &nothing);
    let executable = graph.instantiate().expect("an executable graph");
    let refused = executable.launch(&own).expect_err("no kernel runs there");
    let text = refused.to_string();
    let sms = format!("{} SMs", green.sm_count());
    let primary = context.to_string();
    for part in [sms.as_str(), &primary, "Context::stream"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}
