//! Launches of kernels: their order, their arguments, and refusals.

pub(crate) mod attributes;
pub(crate) mod builder;
pub(crate) mod limits;
pub(crate) mod occupancy;
pub(crate) mod packed;

use crate::common;
use crate::module::kernels::{Scale, VECTOR, nothing, vector};
use cuda_safe::launch::Value;
use cuda_safe::module::Library;
use cuda_safe::{DeviceBuffer, Invalid, LaunchConfig};

#[test]
fn a_kernel_adds_two_vectors() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let add = vector(&context).kernel("add").expect("a kernel");
    let add = add.typed::<(&[f32], &[f32], &mut [f32], u32)>().expect("its parameters");
    const COUNT: u16 = if cfg!(miri) { 100 } else { 10_000 };
    let a: Vec<f32> = (0..COUNT).map(f32::from).collect();
    let b: Vec<f32> = (0..COUNT).map(|i| 2.0 * f32::from(i)).collect();
    let device_a = DeviceBuffer::from_slice(&stream, &a).expect("a copy");
    let device_b = DeviceBuffer::from_slice(&stream, &b).expect("a copy");
    let mut sum = DeviceBuffer::zeroed(&stream, a.len()).expect("memory");
    let config = LaunchConfig::for_elements(a.len(), 192).expect("a shape");
    // SAFETY: the kernel accesses the first elements of buffers that have that many.
    unsafe { add.launch(&stream, config, (&device_a, &device_b, &mut sum, u32::from(COUNT))) }
        .expect("a launch");
    let right: Vec<f32> = (0..COUNT).map(|i| 3.0 * f32::from(i)).collect();
    assert_eq!(sum.to_vec().expect("a copy"), right);
}

#[test]
fn launches_on_a_stream_run_in_order() {
    const LEN: usize = if cfg!(miri) { 40 } else { 1000 };
    let (context, stream) = or_skip!(common::context_and_stream());
    let scale = Scale::new(&context);
    let mut x = DeviceBuffer::from_slice(&stream, &[1; LEN]).expect("a copy");
    for _ in 0..5 {
        scale.run(&stream, &mut x, 2, 0).expect("a launch");
        scale.run(&stream, &mut x, 1, 1).expect("a launch");
    }
    assert_eq!(x.to_vec().expect("a copy"), [63; LEN]);
}

#[test]
fn a_kernel_of_a_library_runs_in_any_context() {
    let (primary, other) = or_skip!(common::two_contexts());
    or_skip!(common::since(12, 0));
    let library = Library::from_ptx(VECTOR).expect("the test kernels");
    for context in [primary, other] {
        let stream = context.stream().expect("a stream");
        let kernel = library.kernel(&context, "scale").expect("a kernel");
        let kernel = kernel
            .typed::<(&mut [i32], i32, Value<[u16; 2]>, u32)>()
            .expect("the value and the parameter have 4 bytes");
        let mut x = DeviceBuffer::from_slice(&stream, &[5; 10]).expect("a copy");
        let config = LaunchConfig::linear(1, 32);
        // SAFETY: the kernel accesses 10 elements, and the memory has 10; any 4 bytes are a valid
        // i32.
        unsafe { kernel.launch(&stream, config, (&mut x, 3, Value([2, 0]), 10)) }
            .expect("a launch");
        assert_eq!(x.to_vec().expect("a copy"), [17; 10]);
    }
}

#[test]
fn a_kernel_without_parameters_is_launched_with_none() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let nothing = nothing(&context);
    let config = LaunchConfig::new([2, 3, 4], [5, 6, 7]).with_shared_bytes(1024);
    // SAFETY: the kernel does nothing.
    unsafe { nothing.launch(&stream, config, ()) }.expect("a launch");
    stream.synchronize().expect("a wait");
}

#[test]
fn arguments_of_a_wrong_number_or_size_are_refused() {
    let context = or_skip!(common::context_since(12, 4));
    let scale = vector(&context).kernel("scale").expect("a kernel");
    let kernel = || "scale".to_owned();
    let one_too_few = scale.typed::<(&mut [i32], i32, i32)>();
    let count = Invalid::ArgumentCount { kernel: kernel(), parameters: 4, given: 3 };
    assert_eq!(common::invalid(one_too_few), count);
    let an_i64 = scale.typed::<(&mut [i32], i64, i32, u32)>();
    let size = Invalid::ArgumentSize { kernel: kernel(), index: 1, parameter: 4, given: 8 };
    assert_eq!(common::invalid(an_i64), size);
}

#[test]
fn a_buffer_of_another_stream_is_refused_as_an_argument() {
    let (context, [a, b]) = or_skip!(common::context_and_streams());
    let mut x = DeviceBuffer::<i32>::zeroed(&a, 10).expect("memory");
    let error = Scale::new(&context).run(&b, &mut x, 1, 1).expect_err("another stream");
    let text = error.to_string();
    let [a, b] = [&a, &b].map(|stream| format!("{:p}", stream.as_raw()));
    for part in ["argument 0 (zero-based) of kernel \"scale\"", &a, &b] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(x.to_vec().expect("a copy"), [0; 10], "nothing ran");
}

#[test]
fn a_stream_of_another_context_is_refused() {
    let (primary, other) = or_skip!(common::two_contexts());
    let stream = other.stream().expect("a stream");
    let mut x = DeviceBuffer::<i32>::zeroed(&stream, 10).expect("memory");
    let invalid = common::invalid(Scale::new(&primary).run(&stream, &mut x, 1, 1));
    assert!(matches!(invalid, Invalid::OtherContext { what: "the kernel", .. }), "{invalid}");
}

#[test]
fn launch_shapes_with_a_zero_dimension_are_refused() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let nothing = nothing(&context);
    let shapes = [
        LaunchConfig::linear(0, 32),
        LaunchConfig::linear(1, 0),
        LaunchConfig::new([1, 1, 0], [1, 1, 1]),
        LaunchConfig::new([1, 1, 1], [1 << 16, 1 << 16, 1]),
    ];
    for config in shapes {
        // SAFETY: the kernel does nothing.
        let invalid = common::invalid(unsafe { nothing.launch(&stream, config, ()) });
        assert!(matches!(invalid, Invalid::LaunchConfig { .. }), "{invalid}");
    }
    assert!(LaunchConfig::for_elements(0, 128).is_err());
    assert!(LaunchConfig::for_elements(10, 0).is_err());
    assert!(LaunchConfig::for_elements(usize::MAX, 1).is_err());
}

mod provoked {
    //! The driver checks the limits of the device.

    use super::*;

    #[test]
    fn a_block_too_large_for_the_device_is_a_launch_error() {
        let (context, stream) = or_skip!(common::context_and_stream());
        let nothing = nothing(&context);
        // SAFETY: the kernel does nothing.
        let error = unsafe { nothing.launch(&stream, LaunchConfig::linear(1, 4096), ()) };
        let text = error.expect_err("4096 threads").to_string();
        assert!(text.starts_with("cuLaunchKernel: CUDA_ERROR_INVALID_VALUE"), "{text}");
        stream.synchronize().expect("no error");
    }
}
