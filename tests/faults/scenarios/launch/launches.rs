//! Kernel launches, typed and built.

use crate::scenarios::{HOPPER, VECTOR, expect, invalid, primary_and_streams};
use crate::trace::Trace;
use cuda_safe::launch::{LaunchAttributes, ProgrammaticEvent, Value};
use cuda_safe::module::Library;
use cuda_safe::{
    CUresult, DeviceBuffer, Invalid, LaunchConfig, Module, Result, Stream, TypedKernel,
};

pub(crate) fn run(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let module = Module::from_ptx(&context, VECTOR)?;
    let scale = module.kernel("scale")?;
    let x = typed(&stream, &scale.typed()?)?;
    let too_few = scale.typed::<(&mut [i32], i32)>();
    expect(too_few, invalid(|why| matches!(why, Invalid::ArgumentCount { .. })))?;

    let library = Library::from_ptx(VECTOR)?;
    let by_value =
        library.kernel(&context, "scale")?.typed::<(&mut [i32], i32, Value<[u16; 2]>, u32)>()?;
    let mut y = DeviceBuffer::from_slice(&stream, &[5; 10])?;
    let arguments = (&mut y, 3, Value([2, 0]), 10);
    // SAFETY: the kernel accesses 10 elements, and the memory has 10; any 4 bytes are a valid i32.
    unsafe { by_value.launch(&stream, LaunchConfig::linear(1, 32), arguments) }?;

    let built = module.kernel("scale")?;
    let mut launch = built.launch_builder(&stream);
    launch.arg(&mut y).arg(1_i32).arg(1_i32).arg(10_u32);
    // SAFETY: the kernel accesses 10 elements, and the memory has 10.
    unsafe { launch.launch(LaunchConfig::linear(1, 32)) }?;

    let nothing = module.kernel("nothing")?;
    let shape = LaunchConfig::new([2, 3, 4], [5, 6, 7]).with_shared_bytes(1024);
    // SAFETY: the kernel has no parameters and does nothing.
    unsafe { nothing.launch_builder(&stream).launch(shape) }?;
    // Code and memory are dropped before the kernels that use them have run.
    trace.drop((module, scale, built, nothing, by_value, library));
    assert_eq!(y.to_vec()?, [18; 10]);
    assert_eq!(x.to_vec()?, [7; 10]);
    stream.synchronize()?;
    trace.drops_from_here()
}

type Scale = TypedKernel<(&'static mut [i32], i32, i32, u32)>;

fn typed(stream: &Stream, scale: &Scale) -> Result<DeviceBuffer<i32>> {
    let mut x = DeviceBuffer::from_slice(stream, &[1; 10])?;
    let config = LaunchConfig::for_elements(10, 4)?;
    for _ in 0..2 {
        // SAFETY: the kernel accesses 10 elements, and the memory has 10.
        unsafe { scale.launch(stream, config, (&mut x, 2, 1, 10)) }?;
    }
    Ok(x)
}

pub(crate) fn with_attributes(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let module = Module::from_ptx(&context, HOPPER)?;
    let ranks = module.kernel("cluster_ranks")?.typed::<(&mut [u32],)>()?;
    let event = context.event()?;
    let attributes = LaunchAttributes {
        cooperative: true,
        cluster: Some([2, 1, 1]),
        completion_event: Some(&event),
        programmatic_event: Some(ProgrammaticEvent { event: &event, at_block_start: true }),
        priority: Some(0),
        carveout: None,
        ..Default::default()
    };
    let mut out = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    let config = LaunchConfig::linear(4, 32);
    // SAFETY: the kernel writes one element for each of 4 blocks.
    unsafe { ranks.launch_with(&stream, config, &attributes, (&mut out,)) }?;
    event.synchronize()?;
    let pairs = [0x2_0000, 0x2_0001, 0x2_0000, 0x2_0001];
    assert_eq!(out.to_vec()?, pairs);

    let far = LaunchConfig::linear(1 << 20, 1024);
    // After the refusal, the driver is queried for the limit that the error names.
    let refused = trace.provoke(|| {
        // SAFETY: the grid is too large, so the launch is refused.
        unsafe { ranks.launch_with(&stream, far, &attributes, (&mut out,)) }
    });
    let is_too_large = CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    expect(refused, |error| error.code() == Some(is_too_large))?;
    let newer = LaunchAttributes { carveout: Some(101), ..Default::default() };
    // SAFETY: the value is invalid, so the launch is refused.
    let refused = unsafe { ranks.launch_with(&stream, config, &newer, (&mut out,)) };
    expect(refused, invalid(|why| matches!(why, Invalid::LaunchAttribute { .. })))?;
    trace.drop((module, ranks, event));
    stream.synchronize()?;
    trace.drops_from_here()
}
