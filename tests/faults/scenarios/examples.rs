//! Small versions of the examples.

use super::{SMID, VECTOR, if_there_is, raw, scale};
use crate::scenarios::graph::graphs::elements;
use crate::trace::Trace;
use cuda_safe::capture::CaptureMode;
use cuda_safe::device::attribute;
use cuda_safe::graph::kind;
use cuda_safe::green::{GreenContext, GreenPool, GreenPoolOptions, PartitionRequest};
use cuda_safe::green::{PartitionSize, SmResource, SplitByCount, SplitFlags};
use cuda_safe::{Context, Device, DeviceBuffer, LaunchConfig, Module, Result, StreamOptions};
use std::collections::BTreeSet;

pub(super) fn devices(_: &mut Trace) -> Result<()> {
    cuda_safe::version()?;
    for device in Device::all()? {
        device.compute_capability()?;
        device.name()?;
        device.uuid()?;
        device.total_memory()?;
        for attribute in [
            attribute::PCI_DOMAIN_ID,
            attribute::PCI_BUS_ID,
            attribute::PCI_DEVICE_ID,
            attribute::MULTIPROCESSOR_COUNT,
            attribute::CLOCK_RATE,
            attribute::L2_CACHE_SIZE,
            attribute::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
            attribute::MAX_THREADS_PER_BLOCK,
            attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        ] {
            device.attribute(attribute)?;
        }
        device.attribute(attribute::MEMORY_POOLS_SUPPORTED)?;
        device.attribute(attribute::ECC_ENABLED)?;
        if_there_is(SmResource::of_device(&device))?;
    }
    Ok(())
}

pub(super) fn vector_add(trace: &mut Trace) -> Result<()> {
    const N: u16 = 100;
    let device = Device::get(0)?;
    let context = Context::primary(&device)?;
    let stream = context.stream()?;
    let add =
        Module::from_ptx(&context, VECTOR)?
            .kernel("add")?
            .typed::<(&[f32], &[f32], &mut [f32], u32)>()?;
    let a: Vec<f32> = (0..N).map(f32::from).collect();
    let b: Vec<f32> = (0..N).map(|i| 2.0 * f32::from(i)).collect();
    let device_a = DeviceBuffer::from_slice(&stream, &a)?;
    let device_b = DeviceBuffer::from_slice(&stream, &b)?;
    let mut device_sum = DeviceBuffer::zeroed(&stream, a.len())?;
    let config = LaunchConfig::for_elements(a.len(), 256)?;
    let arguments = (&device_a, &device_b, &mut device_sum, u32::from(N));
    // SAFETY: `add` accesses the first N elements of the buffers, which have N.
    unsafe { add.launch(&stream, config, arguments) }?;
    let right: Vec<f32> = (0..N).map(|i| 3.0 * f32::from(i)).collect();
    assert_eq!(device_sum.to_vec()?, right);
    trace.drops_from_here()
}

/// Runs a kernel that records its SMs on two halves of the device, on both at the same time.
pub(super) fn partition(trace: &mut Trace) -> Result<()> {
    let device = Device::get(0)?;
    let resource = SmResource::of_device(&device)?;
    let mut min = resource.sm_count() / 2;
    while resource.count_groups(min, SplitFlags::empty())? < 2 {
        min -= 1;
    }
    let split = resource.split_by_count(SplitByCount {
        min,
        max_groups: Some(2),
        label: "the example".to_owned(),
        ..Default::default()
    })?;
    let context = Context::primary(&device)?;
    let module = Module::from_ptx(&context, SMID)?;
    let record = module.kernel("record_smid")?.typed::<(&mut [u32], u32)>()?;

    let mut running = Vec::new();
    for group in split.groups {
        let green = GreenContext::new([group])?;
        let stream = green.stream()?;
        let blocks = 2 * green.sm_count();
        let mut smids = DeviceBuffer::<u32>::zeroed(&stream, blocks as usize)?;
        let config = LaunchConfig::linear(blocks, 32);
        // SAFETY: the kernel writes one element for each of its blocks, and the buffer has that
        // many.
        unsafe { record.launch(&stream, config, (&mut smids, 100)) }?;
        trace.drop(stream);
        let given = green.sm_count();
        trace.drop(green);
        running.push((given, smids));
    }
    let mut seen = BTreeSet::new();
    for (given, smids) in running {
        let sms: BTreeSet<u32> = smids.to_vec()?.into_iter().collect();
        assert_eq!(sms.len(), given as usize);
        assert!(seen.is_disjoint(&sms));
        seen.extend(sms);
        trace.drop(smids);
    }
    trace.drops_from_here()
}

/// Runs a short kernel next to other work, in partitions and with priorities.
pub(super) fn isolation(trace: &mut Trace) -> Result<()> {
    let device = Device::get(0)?;
    let context = Context::primary(&device)?;
    let module = Module::from_ptx(&context, VECTOR)?;
    let nothing = module.kernel("nothing")?.typed::<()>()?;
    let priorities = context.stream_priorities()?;
    let resource = SmResource::of_device(&device)?;
    let unit = resource.granularity()?.min;
    let partitions = resource.partition(&PartitionRequest {
        sizes: vec![PartitionSize::Sms(unit), PartitionSize::Rest],
        label: "the example".to_owned(),
        ..Default::default()
    })?;
    let mut streams = Vec::new();
    let both = [*priorities.start(), *priorities.end()];
    for (part, priority) in partitions.parts.into_iter().zip(both) {
        let green = part.create()?;
        let options = StreamOptions { priority, ..Default::default() };
        streams.push(green.stream_with(options)?);
        trace.drop(green);
    }
    let event = context.event()?;
    for _ in 0..2 {
        for stream in &streams {
            // SAFETY: the kernel does nothing.
            unsafe { nothing.launch(stream, LaunchConfig::linear(1, 1), ()) }?;
        }
        event.record(&streams[1])?;
        streams[0].synchronize()?;
    }
    event.synchronize()?;
    trace.drops_from_here()
}

/// Switches between two partitionings of a pool.
pub(super) fn switch(trace: &mut Trace) -> Result<()> {
    let device = Device::get(0)?;
    let context = Context::primary(&device)?;
    let module = Module::from_ptx(&context, VECTOR)?;
    let nothing = module.kernel("nothing")?.typed::<()>()?;
    let unit = SmResource::of_device(&device)?.granularity()?.min;
    let pool = GreenPool::new(&device, GreenPoolOptions::default())?;
    for round in 0..4 {
        let lease = pool.try_lease(&PartitionRequest {
            sizes: vec![PartitionSize::Sms(unit * (1 + round % 2)), PartitionSize::Rest],
            ..Default::default()
        })?;
        let stream = lease[0].stream()?;
        // SAFETY: the kernel does nothing.
        unsafe { nothing.launch(&stream, LaunchConfig::linear(1, 1), ()) }?;
        stream.synchronize()?;
        trace.drop((stream, lease));
    }
    assert!(pool.stats()?.created <= 2);
    trace.drops_from_here()
}

/// Captures a chain, extends it by hand, launches it, and changes a kernel.
pub(super) fn graphs(trace: &mut Trace) -> Result<()> {
    const N: u32 = 100;
    let config = LaunchConfig::linear(1, 128);
    let context = Context::primary(&Device::get(0)?)?;
    let (stream, other) = (context.stream()?, context.stream()?);
    let scale = scale(&context)?;
    let complete = context.event()?;
    let mut samples = DeviceBuffer::<i32>::zeroed(&stream, N as usize)?;
    raw::may_stay_captured(&stream);
    let mut graph = stream.capture(CaptureMode::default(), |stream| {
        samples.fill(1)?;
        // SAFETY: the kernel accesses the first N elements of the buffer, which has N.
        unsafe { scale.launch(stream, config, (&mut samples, 2, 0, N)) }
    })?;
    let (nodes, edges) = (graph.nodes()?, graph.edges()?);
    let last = graph.typed::<kind::Kernel>(edges[0].to)?;
    graph.kernel_config(last)?;
    graph.fill_parameters(graph.typed(nodes[0])?)?;
    graph.add_event_record(&[last.id()], &complete)?;
    let mut samples = graph.own(samples)?;
    // SAFETY: the captured work uses the buffer only, and `scale` keeps the kernel loaded.
    unsafe { graph.assume_owned() };
    let mut executable = graph.instantiate()?;
    executable.launch(&stream)?;
    complete.synchronize()?;
    assert_eq!(elements(trace, &mut executable, &mut samples, &stream)?, [2; N as usize]);
    let mut nodes = executable.nodes(&graph)?;
    // SAFETY: the kernel accesses the first N elements of the buffer, after the fill.
    unsafe { nodes.set_kernel(last, &context, &scale, config, (&mut samples, 5, 0, N)) }?;
    executable.launch(&other)?;
    assert_eq!(elements(trace, &mut executable, &mut samples, &stream)?, [5; N as usize]);
    trace.drops_from_here()
}
