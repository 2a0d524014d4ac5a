//! Launches whose arguments are added one by one, and parameters that are passed by value.

use crate::common;
use crate::module::kernels::{ARGUMENTS, MEET, nothing, vector};
use cuda_safe::capture::CaptureMode;
use cuda_safe::interop::{ArrayView, ArrayViewMut};
use cuda_safe::launch::{KernelValue, LaunchArgument, LaunchAttributes, Value};
use cuda_safe::sys::CUtensorMap;
use cuda_safe::{Context, DeviceBuffer, DeviceSlice, Invalid, Kernel};
use cuda_safe::{LaunchConfig, Module};

const ONE: LaunchConfig = LaunchConfig::linear(1, 1);

fn kernel(context: &Context, name: &str) -> Kernel {
    let module =
        Module::from_ptx(context, &common::alone(ARGUMENTS, name)).expect("the test kernels");
    module.kernel(name).expect("is in the module")
}

#[test]
fn a_builder_takes_a_list_of_buffers() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let add = vector(&context).kernel("add").expect("is in the module");
    let inputs = [[1.0_f32; 1000], [2.0; 1000]]
        .map(|elements| DeviceBuffer::from_slice(&stream, &elements).expect("a copy"));
    let mut sum = DeviceBuffer::<f32>::zeroed(&stream, 1000).expect("memory");
    let mut launch = add.launch_builder(&stream);
    for input in &inputs {
        launch.arg(input);
    }
    launch.arg(&mut sum).arg(1000_u32);
    let config = LaunchConfig::for_elements(1000, 128).expect("a shape");
    // SAFETY: the kernel accesses the first 1000 elements of buffers that have that many.
    unsafe { launch.launch(config) }.expect("a launch");
    // The builder does not use the buffer after its last launch.
    assert_eq!(sum.to_vec().expect("a copy"), [3.0; 1000]);
}

#[test]
fn a_builder_launches_several_times() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let scale = vector(&context).kernel("scale").expect("is in the module");
    let mut x = DeviceBuffer::from_slice(&stream, &[1; 10]).expect("a copy");
    let mut launch = scale.launch_builder(&stream);
    launch.arg(x.as_mut_slice()).arg(2_i32).arg(1_i32);
    launch.arg_bytes(&[10, 0, 0, 0]);
    for _ in 0..3 {
        // SAFETY: the kernel accesses 10 elements, and the memory has 10.
        unsafe { launch.launch(LaunchConfig::linear(1, 32)) }.expect("a launch");
    }
    assert_eq!(x.to_vec().expect("a copy"), [15; 10]);
}

/// A type of other code that is passed as its device memory.
struct Vector {
    elements: DeviceBuffer<f32>,
}

impl<'a> From<&'a Vector> for DeviceSlice<'a, f32> {
    fn from(vector: &'a Vector) -> Self {
        vector.elements.as_slice()
    }
}

impl LaunchArgument for &Vector {
    type Param = &'static [f32];
}

#[test]
fn a_builder_takes_views_and_types_that_convert_to_slices() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let add = vector(&context).kernel("add").expect("is in the module");
    let [a, b] = [[1.0_f32; 6], [2.0; 6]]
        .map(|elements| DeviceBuffer::from_slice(&stream, &elements).expect("a copy"));
    let (a, b) = (Vector { elements: a }, ArrayView::new(&b, &[2, 3]).expect("a view"));
    let mut sum = DeviceBuffer::<f32>::zeroed(&stream, 6).expect("memory");
    let mut out = ArrayViewMut::new(&mut sum, &[6]).expect("a view");
    let mut launch = add.launch_builder(&stream);
    launch.arg(&a).arg(&b).arg(&mut out).arg(6_u32);
    // SAFETY: the kernel accesses the first 6 elements of memory that has as many.
    unsafe { launch.launch(LaunchConfig::linear(1, 32)) }.expect("a launch");
    assert_eq!(sum.to_vec().expect("a copy"), [3.0; 6]);
}

#[test]
fn a_captured_launch_of_a_builder_runs_at_each_launch_of_the_graph() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let scale = vector(&context).kernel("scale").expect("is in the module");
    let mut x = DeviceBuffer::from_slice(&stream, &[1; 10]).expect("a copy");
    let graph = stream.capture(CaptureMode::ThreadLocal, |stream| {
        // The first launch queries the parameters of the kernel during the capture.
        for _ in 0..2 {
            let mut launch = scale.launch_builder(stream);
            launch.arg(&mut x).arg(2_i32).arg(1_i32).arg(10_u32);
            // SAFETY: the kernel accesses 10 elements, and the memory has 10.
            unsafe { launch.launch(LaunchConfig::linear(1, 32)) }?;
        }
        Ok(())
    });
    let graph = graph.and_then(|graph| graph.instantiate()).expect("an executable graph");
    for _ in 0..2 {
        // SAFETY: the module is loaded and the buffer is alive until the work is done.
        unsafe { graph.launch_unchecked(&stream) }.expect("a launch");
    }
    assert_eq!(x.to_vec().expect("a copy"), [31; 10]);
}

#[test]
fn a_builder_takes_more_arguments_than_it_stores_inline() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let sum = kernel(&context, "sum_of_nineteen");
    let mut out = DeviceBuffer::<u32>::zeroed(&stream, 1).expect("memory");
    let mut launch = sum.launch_builder(&stream);
    launch.arg(&mut out);
    for index in 1..20_u32 {
        launch.arg(index);
    }
    // A builder may be moved.
    let launch = Box::new(launch);
    // SAFETY: the kernel writes one element.
    unsafe { launch.launch(ONE) }.expect("a launch");
    let right = (1..20).map(|index| index * index).sum::<u32>();
    assert_eq!(out.to_vec().expect("a copy"), [right]);
}

#[test]
fn a_typed_kernel_has_more_than_sixteen_parameters() {
    let (context, stream) = or_skip!(common::context_and_stream());
    type Sum<A, N> = (A, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N);
    let sum = kernel(&context, "sum_of_nineteen");
    let sum = sum.typed::<Sum<&mut [u32], u32>>().expect("its parameters");
    let mut out = DeviceBuffer::<u32>::zeroed(&stream, 1).expect("memory");
    let arguments = (&mut out, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19);
    // SAFETY: the kernel writes one element.
    unsafe { sum.launch(&stream, ONE, arguments) }.expect("a launch");
    let right = (1..20).map(|index| index * index).sum::<u32>();
    assert_eq!(out.to_vec().expect("a copy"), [right]);
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Options {
    transposed: bool,
    scale: f32,
}

// SAFETY: the struct is `repr(C)`, and has the fields of the struct in arguments.cu.
unsafe impl KernelValue for Options {}

const OPTIONS: Value<Options> = Value(Options { transposed: true, scale: 2.5 });

/// Returns 128 bytes that the kernel does not interpret.
fn map() -> CUtensorMap {
    let mut map = CUtensorMap { opaque: [0; 16] };
    (map.opaque[0], map.opaque[15]) = (70, 71);
    map
}

/// What the kernel `by_value` writes.
fn written() -> [u32; 7] {
    [1, 1, 2.5_f32.to_bits(), 70, 71, 80, 82]
}

type ByValue = (&'static mut [u32], bool, Value<Options>, CUtensorMap, Value<[u64; 3]>);

#[test]
fn structs_with_padding_and_tensor_maps_are_typed_parameters() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let by_value = kernel(&context, "by_value").typed::<ByValue>().expect("its parameters");
    let wide = Value([80, 81, 82]);
    let mut out = DeviceBuffer::<u32>::zeroed(&stream, 7).expect("memory");
    // SAFETY: the kernel writes 7 elements.
    unsafe { by_value.launch(&stream, ONE, (&mut out, true, OPTIONS, map(), wide)) }
        .expect("a launch");
    assert_eq!(out.to_vec().expect("a copy"), written());
}

#[test]
fn a_builder_takes_structs_and_tensor_maps_by_value() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let by_value = kernel(&context, "by_value");
    let mut out = DeviceBuffer::<u32>::zeroed(&stream, 7).expect("memory");
    let mut launch = by_value.launch_builder(&stream);
    launch.arg(&mut out).arg(true).arg(OPTIONS).arg(map());
    launch.arg(Value([80_u64, 81, 82]));
    // SAFETY: the kernel writes 7 elements.
    unsafe { launch.launch(ONE) }.expect("a launch");
    assert_eq!(out.to_vec().expect("a copy"), written());
}

#[test]
fn a_builder_launches_with_attributes() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let module = Module::from_ptx(&context, MEET).expect("the test kernels");
    let meet = module.kernel("meet").expect("is in the module");
    let mut arrived = DeviceBuffer::<u32>::zeroed(&stream, 1).expect("memory");
    let attributes = LaunchAttributes { cooperative: true, ..Default::default() };
    let mut launch = meet.launch_builder(&stream);
    launch.arg(&mut arrived);
    // SAFETY: the kernel adds to one element, and both blocks run at the same time.
    unsafe { launch.launch_with(LaunchConfig::linear(2, 1), &attributes) }.expect("a launch");
    assert_eq!(arrived.to_vec().expect("a copy"), [2]);
}

#[test]
fn a_builder_without_arguments_launches_a_kernel_without_parameters() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let nothing = nothing(&context);
    // SAFETY: the kernel does nothing.
    unsafe { nothing.kernel().launch_builder(&stream).launch(ONE) }.expect("a launch");
    stream.synchronize().expect("a wait");
}

#[test]
fn wrong_arguments_of_a_builder_name_the_kernel_and_the_index() {
    let (context, stream) = or_skip!(common::context_and_stream());
    or_skip!(common::since(12, 4));
    let scale = vector(&context).kernel("scale").expect("is in the module");
    let x = DeviceBuffer::from_slice(&stream, &[1; 10]).expect("a copy");

    let mut launch = scale.launch_builder(&stream);
    launch.arg(&x).arg(2_i64).arg(true).arg(10_u32);
    for _ in 0..2 {
        // SAFETY: nothing is launched.
        let an_i64 = unsafe { launch.launch(ONE) };
        let kernel = "scale".to_owned();
        let size = Invalid::ArgumentSize { kernel, index: 1, parameter: 4, given: 8 };
        assert_eq!(common::invalid(an_i64), size, "the first error");
    }

    for given in [3, 5] {
        let mut launch = scale.launch_builder(&stream);
        launch.arg(&x);
        for _ in 1..given {
            launch.arg(1_u32);
        }
        // SAFETY: nothing is launched.
        let another_number = unsafe { launch.launch(ONE) };
        let kernel = "scale".to_owned();
        let count = Invalid::ArgumentCount { kernel, parameters: 4, given };
        assert_eq!(common::invalid(another_number), count);
    }
    assert_eq!(x.to_vec().expect("a copy"), [1; 10], "nothing ran");
}

#[test]
fn a_builder_refuses_buffers_of_other_streams_and_streams_of_other_contexts() {
    let (context, other) = or_skip!(common::two_contexts());
    let [a, b] = common::streams(&context);
    let scale = vector(&context).kernel("scale").expect("is in the module");
    let mut x = DeviceBuffer::<i32>::zeroed(&a, 10).expect("memory");
    let mut launch = scale.launch_builder(&b);
    launch.arg(&mut x).arg(1_i32).arg(1_i32).arg(10_u32);
    // SAFETY: nothing is launched.
    let invalid = common::invalid(unsafe { launch.launch(ONE) });
    let text = invalid.to_string();
    for part in ["argument 0 (zero-based)", "\"scale\"", &b.to_string()] {
        assert!(text.contains(part), "{text}");
    }
    assert!(matches!(invalid, Invalid::OtherStream { .. }));

    let stream = other.stream().expect("a stream");
    let mut x = DeviceBuffer::<i32>::zeroed(&stream, 10).expect("memory");
    let mut launch = scale.launch_builder(&stream);
    launch.arg(&mut x).arg(1_i32).arg(1_i32).arg(10_u32);
    // SAFETY: nothing is launched.
    let invalid = common::invalid(unsafe { launch.launch(ONE) });
    assert!(matches!(invalid, Invalid::OtherContext { .. }));
}
