//! Kernels whose blocks communicate without locks, on the driver.

#[path = "../kernels/lockfree/cases.rs"]
pub(crate) mod cases;

use cases::Case;
use cuda_safe::{Context, DeviceBuffer, LaunchConfig, Module};

/// Launches the kernel of a module, and compares its result.
pub(crate) fn run(context: &Context, ptx: &str, case: Case) {
    let stream = context.stream().expect("a stream");
    let module = Module::from_ptx(context, ptx).expect("the kernels");
    let kernel = module.kernel(case.kernel).expect("found");
    let array = |elements: &&[u32]| DeviceBuffer::from_slice(&stream, elements).expect("memory");
    let mut arrays: Vec<DeviceBuffer<u32>> = case.arrays.iter().map(array).collect();
    let mut builder = kernel.launch_builder(&stream);
    for array in &mut arrays {
        builder.arg(array);
    }
    for number in case.numbers {
        builder.arg(*number);
    }
    let config = LaunchConfig::linear(case.shape.0, case.shape.1);
    // SAFETY: the arguments have the types of the parameters. The arrays have the sizes that the kernel expects for this
    // shape.
    unsafe { builder.launch(config) }.expect("a launch");
    drop(builder);
    let (index, expected) = case.result;
    assert_eq!(arrays[index].to_vec().expect("a copy"), expected, "{}", case.kernel);
}
