//! Launches and kernel nodes that take their arguments as one buffer (`extra`), in raw calls.

use crate::call::raw::succeeds;
use crate::common;
use crate::module::kernels::ARGUMENTS;
use core::ffi::c_void;
use cuda_safe::capture::CaptureMode;
use cuda_safe::sys::{
    CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END,
    CUDA_KERNEL_NODE_PARAMS, CUlaunchConfig, CUresult, CUstream, Zeroable, cuGraphAddKernelNode_v2,
    cuGraphCreate, cuGraphDestroy, cuGraphExecDestroy, cuGraphInstantiateWithFlags,
    cuGraphKernelNodeGetParams_v2, cuGraphLaunch, cuLaunchKernel, cuLaunchKernelEx,
};
use cuda_safe::{Context, DeviceBuffer, Kernel, Module, Stream};
use std::ptr::{null, null_mut};

/// The results of [`packed`].
const RESULTS: [u32; 7] = [1, 1, 0x4020_0000, 3, 4, 5, 6];

/// Returns the places of the parameters of the kernel `by_value` in a buffer: the address of the results, a flag, options
/// with a float as second word, a map of 16 words, and three words. How far some of them are aligned depends on the
/// device.
fn places(kernel: &Kernel) -> [usize; 5] {
    let parameters = kernel.parameters().expect("the layout");
    let parameters = parameters.expect("the driver knows the layout");
    let places: Vec<usize> = parameters.iter().map(|its| its.offset).collect();
    places.try_into().expect("five parameters")
}

/// Returns a buffer of arguments. The gaps have bytes too, which no parameter may get.
fn packed(kernel: &Kernel, out: &DeviceBuffer<u32>) -> Vec<u8> {
    let [address, flag, options, map, wide] = places(kernel);
    let mut bytes = vec![0xee; wide + 24];
    let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    put(address, out.as_raw());
    put(map, 3);
    put(map + 15 * 8, 4);
    put(wide, 5);
    put(wide + 2 * 8, 6);
    // Booleans.
    (bytes[flag], bytes[options]) = (1, 1);
    bytes[options + 4..options + 8].copy_from_slice(&2.5_f32.to_ne_bytes());
    bytes
}

fn list(bytes: &mut [u8], size: &mut usize) -> [*mut c_void; 5] {
    [
        CU_LAUNCH_PARAM_BUFFER_POINTER,
        bytes.as_mut_ptr().cast(),
        CU_LAUNCH_PARAM_BUFFER_SIZE,
        (&raw mut *size).cast(),
        CU_LAUNCH_PARAM_END,
    ]
}

/// The kernel, memory for its results, and a buffer with its arguments.
struct Setup {
    context: Context,
    stream: Stream,
    kernel: Kernel,
    out: DeviceBuffer<u32>,
    bytes: Vec<u8>,
}

impl Setup {
    fn since(major: u16, minor: u16) -> Option<Self> {
        let context = common::context_since(major, minor)?;
        let stream = context.stream().expect("a stream");
        let module = Module::from_ptx(&context, &common::alone(ARGUMENTS, "by_value"));
        let kernel = module.expect("the test kernels").kernel("by_value").expect("a kernel");
        let out = DeviceBuffer::zeroed(&stream, RESULTS.len()).expect("memory");
        let bytes = packed(&kernel, &out);
        Some(Self { context, stream, kernel, out, bytes })
    }
}

/// Returns the shape of a launch of one thread.
pub(crate) fn one_thread(stream: CUstream) -> CUlaunchConfig {
    CUlaunchConfig {
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        hStream: stream,
        ..Default::default()
    }
}

/// Launches the kernel with one thread.
fn launch(kernel: &Kernel, stream: &Stream, bytes: &mut [u8]) -> CUresult {
    let mut size = bytes.len();
    let mut extra = list(bytes, &mut size);
    let (kernel, stream) = (kernel.as_raw(), stream.as_raw());
    let extra = extra.as_mut_ptr();
    // SAFETY: the list has a buffer with the parameters of the kernel, which the driver copies. The kernel writes
    // seven numbers to memory that has as many.
    unsafe { cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, null_mut(), extra) }
}

#[test]
fn a_launch_takes_its_arguments_as_one_buffer() {
    let Setup { context, stream, kernel, mut out, mut bytes } = or_skip!(Setup::since(12, 4));
    let _current = context.make_current().expect("current");
    succeeds(launch(&kernel, &stream, &mut bytes));
    // The driver has copied the arguments.
    bytes.fill(0);
    assert_eq!(out.to_vec().expect("a copy"), RESULTS);

    out.fill(0).expect("a fill");
    let mut bytes = packed(&kernel, &out);
    let mut size = bytes.len();
    let mut extra = list(&mut bytes, &mut size);
    // Of the pairs, the length may be the first.
    extra.swap(0, 2);
    extra.swap(1, 3);
    let config = one_thread(stream.as_raw());
    let extra = extra.as_mut_ptr();
    // SAFETY: as in `launch`.
    succeeds(unsafe { cuLaunchKernelEx(&raw const config, kernel.as_raw(), null_mut(), extra) });
    assert_eq!(out.to_vec().expect("a copy"), RESULTS);
}

#[test]
fn a_captured_launch_keeps_the_arguments_of_its_buffer() {
    let Setup { context, stream, kernel, out, mut bytes } = or_skip!(Setup::since(12, 4));
    let current = context.make_current().expect("current");
    let graph = stream.capture(CaptureMode::ThreadLocal, |stream| {
        succeeds(launch(&kernel, stream, &mut bytes));
        Ok(())
    });
    drop(current);
    bytes.fill(0);
    let graph = graph.and_then(|graph| graph.instantiate()).expect("an executable graph");
    // SAFETY: the module is loaded and the buffer is alive until the work is done.
    unsafe { graph.launch_unchecked(&stream) }.expect("a launch");
    assert_eq!(out.to_vec().expect("a copy"), RESULTS);
}

#[test]
fn a_kernel_node_keeps_the_arguments_of_its_buffer_and_shows_them_as_a_buffer() {
    let Setup { context, stream, kernel, out, mut bytes } = or_skip!(Setup::since(12, 4));
    let _current = context.make_current().expect("current");
    let (mut graph, mut node, mut executable) = (null_mut(), null_mut(), null_mut());
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuGraphCreate(&raw mut graph, 0) });
    let mut size = bytes.len();
    let mut extra = list(&mut bytes, &mut size);
    let params = CUDA_KERNEL_NODE_PARAMS {
        func: kernel.as_raw(),
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        extra: extra.as_mut_ptr(),
        ..CUDA_KERNEL_NODE_PARAMS::zeroed()
    };
    let (params, place) = (&raw const params, &raw mut node);
    // SAFETY: as in `launch`. The graph is alive, and the node depends on no other.
    succeeds(unsafe { cuGraphAddKernelNode_v2(place, graph, null(), 0, params) });
    bytes.fill(0);
    let mut shown = CUDA_KERNEL_NODE_PARAMS::zeroed();
    // SAFETY: the pointer refers to a local variable, and the node is alive.
    succeeds(unsafe { cuGraphKernelNodeGetParams_v2(node, &raw mut shown) });
    assert!(shown.kernelParams.is_null() && !shown.extra.is_null());
    // SAFETY: the driver's list has two keys with values, and ends.
    let list = unsafe { shown.extra.cast::<[*mut c_void; 5]>().read() };
    let [size_key, length, buffer_key, buffer, end] = list;
    assert_eq!(size_key, CU_LAUNCH_PARAM_BUFFER_SIZE);
    assert_eq!((buffer_key, end), (CU_LAUNCH_PARAM_BUFFER_POINTER, null_mut()));
    // SAFETY: the value of this key points to a length.
    assert_eq!(unsafe { length.cast::<usize>().read() }, bytes.len());
    // SAFETY: the buffer has this length, and begins with the address of the results.
    assert_eq!(unsafe { buffer.cast::<u64>().read_unaligned() }, out.as_raw());
    // SAFETY: the pointer refers to a local variable, and the graph is alive.
    succeeds(unsafe { cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) });
    // SAFETY: the kernel and its memory are alive until the results are copied.
    succeeds(unsafe { cuGraphLaunch(executable, stream.as_raw()) });
    assert_eq!(out.to_vec().expect("a copy"), RESULTS);
    // SAFETY: the work is done, and the graph is not used afterwards.
    succeeds(unsafe { cuGraphExecDestroy(executable) });
    // SAFETY: the graph is not used afterwards.
    succeeds(unsafe { cuGraphDestroy(graph) });
}

mod provoked {
    use super::*;

    #[test]
    fn a_buffer_that_is_longer_than_the_parameters_is_refused() {
        let Setup { context, stream, kernel, out, mut bytes } = or_skip!(Setup::since(13, 0));
        bytes.push(0);
        let current = context.make_current().expect("current");
        let code = super::launch(&kernel, &stream, &mut bytes);
        assert_eq!(code, CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
        assert_eq!(out.to_vec().expect("a copy"), [0; 7]);
        let graph: cuda_safe::Result<_> =
            stream.capture(super::CaptureMode::ThreadLocal, |stream| {
                let code = super::launch(&kernel, stream, &mut bytes);
                assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
                Ok(())
            });
        drop(current);
        graph.expect("an empty graph");
    }

    #[test]
    fn arguments_in_both_forms_are_refused() {
        let Setup { context, stream, kernel, out, mut bytes } = or_skip!(Setup::since(12, 4));
        let mut size = bytes.len();
        let mut extra = list(&mut bytes, &mut size);
        // Another borrow of the bytes would invalidate the pointer in the list.
        let buffer = extra[1];
        let mut pointers = super::places(&kernel).map(|at| buffer.wrapping_byte_add(at));
        let _current = context.make_current().expect("current");
        let (kernel, stream) = (kernel.as_raw(), stream.as_raw());
        let launch = |params, extra| {
            // SAFETY: both lists have all parameters, which the driver copies, and the kernel writes to memory that
            // is alive.
            unsafe { cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, extra) }
        };
        let (params, extra) = (pointers.as_mut_ptr(), extra.as_mut_ptr());
        assert_eq!(launch(params, extra), CUresult::CUDA_ERROR_INVALID_VALUE);
        assert!(launch(params, null_mut()).is_success());
        assert!(launch(null_mut(), extra).is_success());
        assert_eq!(out.to_vec().expect("a copy"), super::RESULTS);
    }
}
