//! The SMs that the nodes of a graph run on: those of the streams that the nodes were captured on.

use crate::common;
use crate::green::{alone, resource, smallest};
use crate::kernels::{SMID, kernel};
use crate::need;
use cuda_safe::green::{GreenContext, SmProbe};
use cuda_safe::{CaptureMode, Context, DeviceBuffer, LaunchConfig, Stream};
use std::collections::BTreeSet;

/// Enough blocks to fill every SM of the device.
const BLOCKS: u32 = 64 * 132;

/// Returns the SMs that a kernel ran on when it was captured on one stream and launched into
/// another.
fn sms_of_graph(context: &Context, recorded: &Stream, launched: &Stream) -> BTreeSet<u32> {
    let record = kernel::<(&'static mut [u32], u32)>(context, SMID, "record_smid");
    let mut smids = DeviceBuffer::<u32>::zeroed(recorded, BLOCKS as usize).expect("memory");
    recorded.synchronize().expect("a wait");
    let graph = recorded.capture(CaptureMode::ThreadLocal, |stream| {
        let config = LaunchConfig::linear(BLOCKS, 32);
        // SAFETY: the kernel writes one element for each block, and the buffer has that many.
        unsafe { record.launch(stream, config, (&mut smids, 50_000)) }
    });
    let graph = graph
        .expect("a graph")
        .instantiate()
        .expect("an executable graph");
    // SAFETY: the buffer and the kernel are alive until the wait, and nothing else uses them.
    unsafe { graph.launch_unchecked(launched) }.expect("a launch");
    launched.synchronize().expect("a wait");
    smids.to_vec().expect("a copy").into_iter().collect()
}

#[test]
fn a_graph_runs_on_the_sms_of_the_streams_it_was_captured_on() {
    // In a child process, because a wait for the context invalidates the captures of all threads.
    need!(common::gpu());
    common::child::in_child(&[], || {
        let _alone = alone();
        let resource = need!(resource());
        let all = resource.sm_count();
        let context = Context::primary(&resource.device()).expect("a primary context");
        let group = smallest(resource).groups.remove(0);
        let green = GreenContext::new([group]).expect("a green context");
        let (plain, own) = (context.stream(), green.stream());
        let (plain, own) = (plain.expect("a stream"), own.expect("a stream"));
        let probe = SmProbe::new(&context).expect("a probe");
        let partition = probe.sms(&own).expect("a probe");
        assert_eq!(partition.len() as u32, green.sm_count());

        // The graph was captured outside of the partition, so a launch into the partition does not
        // confine it.
        let outside = sms_of_graph(&context, &plain, &own);
        assert_eq!(outside.len() as u32, all, "{outside:?}");
        // The graph was captured on a stream of the partition, so it is confined wherever it is
        // launched.
        for launched in [&own, &plain] {
            let inside = sms_of_graph(&context, &own, launched);
            assert_eq!(inside, partition);
        }
    });
}
