//! Releases during a launch of a graph.

use crate::common;
use cuda_safe::capture::CaptureMode;
use cuda_safe::{Context, DeviceBuffer, Event, LaunchConfig, Module, Stream, TypedKernel};
use std::time::Duration;

/// Returns a context on a real device, or reports a skip.
fn context() -> Option<Context> {
    let context = Context::primary(&common::real_gpu()?);
    Some(context.expect("a context"))
}

fn streams(context: &Context) -> (Stream, Stream) {
    let stream = || context.stream().expect("a stream");
    (stream(), stream())
}

fn event(context: &Context) -> Event {
    context.event().expect("an event")
}

#[test]
fn the_event_of_a_running_launch_is_not_mistaken_for_another() {
    let Some(context) = context() else { return };
    let (stream, watched) = streams(&context);
    let busy = Busy::new(&context);
    for round in 0..8 {
        let executable = {
            let event = event(&context);
            let graph =
                stream.capture(CaptureMode::default(), |stream| event.record_external(stream));
            graph.expect("a graph").instantiate().expect("an executable graph")
        };
        busy.run(&stream, 20);
        // SAFETY: the graph uses no memory.
        unsafe { executable.launch_unchecked(&stream) }.expect("a launch");
        // This drops the event, which is not recorded yet.
        drop(executable);
        busy.run(&watched, 60);
        let others: Vec<Event> = (0..64).map(|_| event(&context)).collect();
        for other in &others {
            other.record(&watched).expect("a record");
        }
        stream.synchronize().expect("a wait");
        let early = |event: &&Event| event.is_complete().expect("a query");
        let early = others.iter().filter(early).count();
        assert!(early == 0 || watched.is_complete().expect("a query"), "{early} are complete");
        watched.synchronize().expect("a wait");
        // This was seen once in some hundred rounds and is unexplained, so the message contains all
        // available information.
        let late = not_done(&others);
        if !late.is_empty() {
            std::thread::sleep(Duration::from_secs(1));
            let still = not_done(&others);
            panic!(
                "round {round}: events {late:?} are incomplete after a wait for their stream, and a second \
                 later {still:?}"
            );
        }
    }
}

/// Returns the indices of the incomplete events.
fn not_done(events: &[Event]) -> Vec<usize> {
    let is_late = |place: &usize| !events[*place].is_complete().expect("a query");
    (0..events.len()).filter(is_late).collect()
}

/// A kernel that keeps one SM busy for a while.
struct Busy(TypedKernel<(&'static mut [u32], u32)>);

impl Busy {
    fn new(context: &Context) -> Self {
        let module = Module::from_ptx(context, include_str!("../kernels/smid.ptx"));
        let kernel = module.and_then(|module| module.kernel("record_smid"));
        Self(kernel.and_then(|kernel| kernel.typed()).expect("the test kernel"))
    }

    /// Runs for about this many milliseconds at 2 GHz.
    fn run(&self, stream: &Stream, milliseconds: u32) {
        let mut out = DeviceBuffer::zeroed(stream, 1).expect("memory");
        let (config, cycles) = (LaunchConfig::linear(1, 32), milliseconds * 2_000_000);
        // SAFETY: the kernel writes one element for each block, and there is one block.
        unsafe { self.0.launch(stream, config, (&mut out, cycles)) }.expect("a launch");
    }
}
