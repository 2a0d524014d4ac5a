//! Kernels whose blocks communicate without locks, with a result of each.

use cuda_safe::{Context, DeviceBuffer, LaunchConfig, Module};

/// The kernels. Tests replace lines to plant errors.
pub(crate) const PTX: &str = include_str!("../kernels/lockfree.ptx");

/// A launch of a kernel with arrays and numbers.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    kernel: &'static str,
    /// The number of blocks, and of threads of each.
    shape: (u32, u32),
    arrays: &'static [&'static [u32]],
    numbers: &'static [u32],
    /// The index of an array, and its elements after the launch.
    result: (usize, &'static [u32]),
}

pub(crate) const SCAN: Case = Case {
    kernel: "scan",
    shape: (4, 2),
    arrays: &[&[1, 2, 4, 8, 16, 32, 64, 128], &[0; 8], &[0; 4], &[0; 4], &[0; 4], &[0]],
    numbers: &[],
    result: (1, &[1, 3, 7, 15, 31, 63, 127, 255]),
};

pub(crate) const QUEUE: Case = Case {
    kernel: "queue",
    shape: (8, 1),
    arrays: &[&[0, 1], &[9, 9], &[0, 0], &[0; 10]],
    numbers: &[],
    // Wrong values are counted too.
    result: (3, &[1, 1, 1, 1, 0, 0, 0, 0, 0, 0]),
};

pub(crate) const EXCHANGE: Case = Case {
    kernel: "exchange",
    shape: (3, 2),
    arrays: &[&[0; 6], &[0], &[0; 6]],
    numbers: &[2],
    // The phases 0 and 2, and twice the number of the other thread.
    result: (2, &[6, 8, 10, 12, 2, 4]),
};

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
