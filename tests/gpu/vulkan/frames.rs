//! Frames of a shader and a kernel in turn, ordered by semaphores. The host waits only at the end.

use super::{LEN, Scale, Stage, check, frame_of, gpu_stage, or_skip};
use ash::vk;
use cuda_safe::external::{BinarySemaphore, TimelineSemaphore};
use cuda_safe::{Graph, LaunchConfig};

const FRAMES: u64 = 1000;

/// Returns what the frames make of a value.
fn frames_of(value: i32) -> i32 {
    (0..FRAMES).fold(value, |value, _| frame_of(value))
}

fn timeline(stage: &Stage) -> (vk::Semaphore, TimelineSemaphore) {
    let made = stage.vulkan.semaphore(vk::SemaphoreType::TIMELINE);
    let (theirs, descriptor) = made.expect("a semaphore");
    // SAFETY: the descriptor is that of a timeline semaphore.
    let ours = unsafe { TimelineSemaphore::import(&stage.context, descriptor) };
    (theirs, ours.expect("imported"))
}

fn binary(stage: &Stage) -> (vk::Semaphore, BinarySemaphore) {
    let made = stage.vulkan.semaphore(vk::SemaphoreType::BINARY);
    let (theirs, descriptor) = made.expect("a semaphore");
    // SAFETY: the descriptor is that of a binary semaphore.
    let ours = unsafe { BinarySemaphore::import(&stage.context, descriptor) };
    (theirs, ours.expect("imported"))
}

#[test]
fn a_timeline_semaphore_orders_frames() {
    let stage = or_skip!(gpu_stage());
    let (theirs, mut ours) = stage.shared();
    let (semaphore, mut timeline) = timeline(&stage);
    let frame = stage.frame(theirs.resource);
    let scale = Scale::new(&stage.context);
    ours.fill(3).expect("a fill");
    stage.stream.signal_timeline(&mut timeline, 1).expect("a signal");
    for number in 0..FRAMES {
        let at = 2 * number + 1;
        let signal = Some((semaphore, at + 1));
        stage.vulkan.submit(frame, Some((semaphore, at)), signal).expect("submitted");
        stage.stream.wait_timeline(&timeline, at + 1).expect("a wait");
        scale.run(&stage.stream, &mut ours);
        stage.stream.signal_timeline(&mut timeline, at + 2).expect("a signal");
    }
    check(&ours, |_| frames_of(3));
    // SAFETY: the semaphore is alive.
    let value = unsafe { stage.vulkan.device.get_semaphore_counter_value(semaphore) };
    assert_eq!(value, Ok(2 * FRAMES + 1));
    stage.vulkan.wait().expect("a wait");
}

#[test]
fn a_wait_is_enqueued_before_the_signal() {
    let stage = or_skip!(gpu_stage());
    let (theirs, mut ours) = stage.shared();
    let (semaphore, timeline) = timeline(&stage);
    let frame = stage.frame(theirs.resource);
    let scale = Scale::new(&stage.context);
    // The first launch loads the kernel, which would wait for the stream.
    scale.run(&stage.stream, &mut ours);
    ours.fill(3).expect("a fill");
    stage.stream.synchronize().expect("a wait");
    stage.stream.wait_timeline(&timeline, 5).expect("a wait");
    scale.run(&stage.stream, &mut ours);
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert!(!stage.stream.is_complete().expect("a query"));
    stage.vulkan.submit(frame, None, Some((semaphore, 5))).expect("submitted");
    stage.stream.synchronize().expect("a wait");
    // The host of Vulkan signals too.
    stage.stream.wait_timeline(&timeline, 8).expect("a wait");
    scale.run(&stage.stream, &mut ours);
    assert!(!stage.stream.is_complete().expect("a query"));
    let info = vk::SemaphoreSignalInfo::default().semaphore(semaphore).value(8);
    // SAFETY: the semaphore is alive, and the value grows.
    unsafe { stage.vulkan.device.signal_semaphore(&info) }.expect("signaled");
    check(&ours, |_| 5 * frame_of(3) + 2);
    stage.vulkan.wait().expect("a wait");
}

#[test]
fn binary_semaphores_order_frames() {
    let stage = or_skip!(gpu_stage());
    let (theirs, mut ours) = stage.shared();
    let (their_ready, mut ready) = binary(&stage);
    let (their_done, mut done) = binary(&stage);
    let frame = stage.frame(theirs.resource);
    let scale = Scale::new(&stage.context);
    ours.fill(3).expect("a fill");
    stage.stream.signal_binary(&mut done).expect("a signal");
    for _ in 0..FRAMES {
        stage
            .vulkan
            .submit(frame, Some((their_done, 0)), Some((their_ready, 0)))
            .expect("submitted");
        done.wait_submitted().expect("in turn");
        ready.signal_submitted().expect("in turn");
        stage.stream.wait_binary(&mut ready).expect("a wait");
        scale.run(&stage.stream, &mut ours);
        stage.stream.signal_binary(&mut done).expect("a signal");
    }
    check(&ours, |_| frames_of(3));
    stage.vulkan.wait().expect("a wait");
}

#[test]
fn nodes_of_a_graph_order_frames() {
    let stage = or_skip!(gpu_stage());
    let (theirs, mut ours) = stage.shared();
    let (semaphore, mut timeline) = timeline(&stage);
    let frame = stage.frame(theirs.resource);
    ours.fill(3).expect("a fill");
    stage.stream.signal_timeline(&mut timeline, 1).expect("a signal");
    let mut graph = Graph::new(&stage.context).expect("a graph");
    let mut ours = graph.own(ours).expect("the graph owns the buffer");
    // SAFETY: the semaphore is dropped after the launches.
    let wait = unsafe { graph.add_semaphore_waits(&[], &[timeline.graph_wait(2)]) };
    let wait = wait.expect("a node");
    let scale = Scale::new(&stage.context).0;
    let config = LaunchConfig::for_elements(LEN, 128).expect("a configuration");
    let arguments = (&mut ours, 5, 2, LEN as u32);
    // SAFETY: the kernel accesses the elements of the buffer.
    let kernel =
        unsafe { graph.add_kernel(&[wait.id()], &stage.context, &scale, config, arguments) };
    let after = [kernel.expect("a node").id()];
    // SAFETY: as for the wait.
    let signal = unsafe { graph.add_semaphore_signals(&after, &[timeline.graph_signal(3)]) };
    let signal = signal.expect("a node");
    let mut executable = graph.instantiate().expect("instantiated");
    for number in 0..FRAMES {
        let at = 2 * number + 1;
        let end = Some((semaphore, at + 1));
        stage.vulkan.submit(frame, Some((semaphore, at)), end).expect("submitted");
        let mut nodes = executable.nodes(&graph).expect("its nodes");
        let (waits, signals) = ([timeline.graph_wait(at + 1)], [timeline.graph_signal(at + 2)]);
        // SAFETY: as above.
        unsafe { nodes.set_semaphore_waits(wait, &waits) }.expect("changed");
        // SAFETY: as above.
        unsafe { nodes.set_semaphore_signals(signal, &signals) }.expect("changed");
        executable.launch(&stage.stream).expect("a launch");
    }
    let access = executable.access(&mut ours, &stage.stream).expect("an access");
    let found = access.as_slice().to_vec().expect("a copy");
    assert!(found.iter().all(|its| *its == frames_of(3)));
    drop(access);
    drop((executable, graph));
    stage.vulkan.wait().expect("a wait");
}
