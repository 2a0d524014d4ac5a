//! Where the nodes of a graph run: on the SMs of the streams that they were recorded on.

use crate::common;
use crate::green::{alone, resource, smallest};
use crate::kernels::{SMID, kernel};
use crate::need;
use cuda_safe::green::{GreenContext, SmProbe};
use cuda_safe::{CaptureMode, Context, DeviceBuffer, LaunchConfig, Stream};
use std::collections::BTreeSet;

/// As many as fill every SM of the device.
const BLOCKS: u32 = 64 * 132;

/// The SMs that a kernel ran on that was recorded on the one stream and launched into the other.
fn sms_of_graph(context: &Context, recorded: &Stream, launched: &Stream) -> BTreeSet<u32> {
    let record = kernel::<(&'static mut [u32], u32)>(context, SMID, "record_smid");
    let mut smids = DeviceBuffer::<u32>::zeroed(recorded, BLOCKS as usize).expect("memory");
    recorded.synchronize().expect("a wait");
    let graph = recorded.capture(CaptureMode::ThreadLocal, |stream| {
        let config = LaunchConfig::linear(BLOCKS, 32);
        // SAFETY: the kernel writes an element for each block, and there are as many.
        unsafe { record.launch(stream, config, (&mut smids, 50_000)) }
    });
    let graph = graph.expect("a graph").instantiate().expect("is launched");
    // SAFETY: the buffer and the kernel are alive until the wait, and nobody else uses them.
    unsafe { graph.launch(launched) }.expect("a launch");
    launched.synchronize().expect("a wait");
    smids.to_vec().expect("a copy").into_iter().collect()
}

#[test]
fn a_graph_runs_on_the_sms_of_the_streams_that_it_was_recorded_on() {
    // A process of its own: a wait for the context breaks the captures of all threads.
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

        // Recorded outside: launching it into the partition does not confine it.
        let outside = sms_of_graph(&context, &plain, &own);
        assert_eq!(outside.len() as u32, all, "{outside:?}");
        // Recorded on a stream of the partition: confined, wherever it is launched into.
        for launched in [&own, &plain] {
            let inside = sms_of_graph(&context, &own, launched);
            assert_eq!(inside, partition);
        }
    });
}
