//! Kernels that copy through tensor maps. Each test runs in a child process, because a copy that the device
//! rejects ends all contexts of a process.

use crate::common;
use crate::common::child::in_child;
use cuda_safe::device::attribute;
use cuda_safe::sys::CUtensorMap;
use cuda_safe::tensor_map::{
    GraphTensorMap, TensorDataType, TensorLayout, TensorMap, TensorMapOptions, TiledBox,
};
use cuda_safe::{
    Context, DeviceBuffer, DeviceSlice, Graph, LaunchConfig, Module, Result, Stream, TypedKernel,
};

const TENSOR: &str = include_str!("../../kernels/tensor.ptx");

/// A matrix of 10 rows of 20 floats, in rows of 96 bytes.
const COLUMNS: u64 = 20;
const ROWS: u64 = 10;
const PITCH: u64 = 24;

const LAYOUT: TensorLayout<'_> =
    TensorLayout { data_type: TensorDataType::F32, dims: &[COLUMNS, ROWS], strides: &[4 * PITCH] };
const SHAPE: TiledBox<'_> = TiledBox::new(&[8, 4]);

type Load = TypedKernel<(CUtensorMap, &'static mut [f32], i32, i32)>;

/// Returns the context of a device with tensor maps, or reports a skip. For child processes.
fn context() -> Option<Context> {
    let context = common::context_since(12, 0)?;
    let tensor_maps = attribute::TENSOR_MAP_ACCESS_SUPPORTED;
    common::has(&context.device(), tensor_maps, "needs a device with tensor maps")?;
    Some(context)
}

fn element(column: u64, row: u64) -> f32 {
    (row * PITCH + column) as f32
}

fn matrix(stream: &Stream) -> DeviceBuffer<f32> {
    let elements: Vec<f32> = (0..ROWS * PITCH).map(|index| index as f32).collect();
    DeviceBuffer::from_slice(stream, &elements).expect("a copy")
}

/// What a kernel finds in the box at a place: zeros outside of the matrix.
fn expected(x: i32, y: i32) -> Vec<f32> {
    let places = (0..4).flat_map(|row| (0..8).map(move |column| (x + column, y + row)));
    let at = |(column, row): (i32, i32)| match (u64::try_from(column), u64::try_from(row)) {
        (Ok(column), Ok(row)) if column < COLUMNS && row < ROWS => element(column, row),
        _ => 0.0,
    };
    places.map(at).collect()
}

fn load(kernel: &Load, map: &TensorMap<'_>, x: i32, y: i32) -> Result<Vec<f32>> {
    let mut out = DeviceBuffer::<f32>::zeroed(map.stream(), 32)?;
    let config = LaunchConfig::linear(1, 32);
    // SAFETY: the kernel reads a box through the map, and writes 32 elements.
    unsafe { kernel.launch(map.stream(), config, (map, &mut out, x, y)) }?;
    out.to_vec()
}

fn load_kernel(context: &Context) -> Load {
    let module = Module::from_ptx(context, TENSOR).expect("a module");
    let kernel = module.kernel("load_box").and_then(|kernel| kernel.typed());
    kernel.expect("a kernel")
}

type Store = TypedKernel<(CUtensorMap, i32, i32)>;

fn store_kernel(context: &Context) -> Store {
    let module = Module::from_ptx(context, TENSOR).expect("a module");
    let kernel = module.kernel("store_box").and_then(|kernel| kernel.typed());
    kernel.expect("a kernel")
}

#[test]
fn a_kernel_loads_a_whole_tensor() {
    in_child(&[], || {
        let context = or_skip!(context());
        let stream = context.stream().expect("a stream");
        let elements: Vec<f32> = (0..32).map(|index| index as f32).collect();
        let memory = DeviceBuffer::from_slice(&stream, &elements).expect("a copy");
        let layout = TensorLayout { data_type: TensorDataType::F32, dims: &[8, 4], strides: &[32] };
        let options = TensorMapOptions::default();
        let map = TensorMap::new(&memory, layout, SHAPE, options).expect("a map");
        let found = load(&load_kernel(&context), &map, 0, 0).expect("a load");
        assert_eq!(found, elements);
    });
}

#[test]
fn a_kernel_loads_boxes_inside_and_outside_of_a_tensor() {
    in_child(&[], || {
        let context = or_skip!(context());
        let stream = context.stream().expect("a stream");
        let memory = matrix(&stream);
        let options = TensorMapOptions::default();
        let map = TensorMap::new(&memory, LAYOUT, SHAPE, options).expect("a map");
        let kernel = load_kernel(&context);
        // The first coordinate is at a multiple of 16 bytes, the other one is arbitrary.
        for (x, y) in [(0, 0), (4, 3), (16, 8), (-4, -3), (100, 100)] {
            let found = load(&kernel, &map, x, y);
            let found = found.unwrap_or_else(|error| panic!("{x}, {y}: {error}"));
            assert_eq!(found, expected(x, y), "{x}, {y}");
        }
    });
}

#[test]
fn a_kernel_loads_from_memory_that_was_replaced() {
    in_child(&[], || {
        let context = or_skip!(context());
        let stream = context.stream().expect("a stream");
        let zeros = (ROWS * PITCH) as usize;
        let first = DeviceBuffer::<f32>::zeroed(&stream, zeros).expect("memory");
        let second = matrix(&stream);
        let options = TensorMapOptions::default();
        let mut map = TensorMap::new(&first, LAYOUT, SHAPE, options).expect("a map");
        let kernel = load_kernel(&context);
        assert_eq!(load(&kernel, &map, 4, 3).expect("a load"), [0.0; 32]);
        map.replace_memory(&second).expect("a new address");
        assert_eq!(load(&kernel, &map, 4, 3).expect("a load"), expected(4, 3));
    });
}

#[test]
fn a_kernel_loads_from_a_part_of_a_buffer() {
    in_child(&[], || {
        let context = or_skip!(context());
        let stream = context.stream().expect("a stream");
        let elements: Vec<f32> = (0..64).map(|index| index as f32).collect();
        let memory = DeviceBuffer::from_slice(&stream, &elements).expect("a copy");
        // The right half of each row.
        let layout = TensorLayout { data_type: TensorDataType::F32, dims: &[8, 4], strides: &[64] };
        let options = TensorMapOptions::default();
        let part: DeviceSlice<'_, f32> = memory.slice(8..).expect("a part");
        let map = TensorMap::new(part, layout, SHAPE, options).expect("a map");
        let found = load(&load_kernel(&context), &map, 0, 0).expect("a load");
        let rows = (0..4).flat_map(|row| (0..8).map(move |column| (8 + row * 16 + column) as f32));
        assert_eq!(found, rows.collect::<Vec<_>>());
    });
}

#[test]
fn a_builder_passes_a_tensor_map() {
    in_child(&[], || {
        let context = or_skip!(context());
        let stream = context.stream().expect("a stream");
        let memory = matrix(&stream);
        let mut out = DeviceBuffer::<f32>::zeroed(&stream, 32).expect("memory");
        let options = TensorMapOptions::default();
        let map = TensorMap::new(&memory, LAYOUT, SHAPE, options).expect("a map");
        let kernel = load_kernel(&context);
        let mut builder = kernel.kernel().launch_builder(&stream);
        builder.arg(&map).arg(&mut out).arg(4_i32).arg(3_i32);
        // SAFETY: the kernel reads a box through the map, and writes 32 elements.
        unsafe { builder.launch(LaunchConfig::linear(1, 32)) }.expect("a launch");
        assert_eq!(out.to_vec().expect("a copy"), expected(4, 3));
    });
}

#[test]
fn a_kernel_stores_boxes_through_a_tensor_map() {
    in_child(&[], || {
        let context = or_skip!(context());
        let stream = context.stream().expect("a stream");
        let mut memory = matrix(&stream);
        let options = TensorMapOptions::default();
        let map = TensorMap::new_mut(&mut memory, LAYOUT, SHAPE, options).expect("a map");
        assert!(map.is_writable());
        let (kernel, config) = (store_kernel(&context), LaunchConfig::linear(1, 32));
        // SAFETY: the kernel writes a box through the map, which is writable. Elements outside of the
        // matrix are not written.
        unsafe { kernel.launch(&stream, config, (&map, 16, 8)) }.expect("a launch");
        check_stored(&memory.to_vec().expect("a copy"));
    });
}

/// Checks that the box at (16, 8) was stored, and nothing outside of the matrix.
#[track_caller]
fn check_stored(found: &[f32]) {
    for row in 0..ROWS {
        for column in 0..PITCH {
            let is_in_box = (16..COLUMNS).contains(&column) && row >= 8;
            let expected = if is_in_box {
                (100 + (row - 8) * 8 + column - 16) as f32
            } else {
                element(column, row)
            };
            assert_eq!(found[(row * PITCH + column) as usize], expected, "{column}, {row}");
        }
    }
}

#[test]
fn a_graph_stores_boxes_through_a_tensor_map() {
    in_child(&[], || {
        let context = or_skip!(context());
        or_skip!(common::since(12, 3));
        let stream = context.stream().expect("a stream");
        let mut graph = Graph::new(&context).expect("a graph");
        let mut data = graph.own(matrix(&stream)).expect("memory of the graph");
        let options = TensorMapOptions::default();
        let map = GraphTensorMap::new_mut(data.as_mut_slice(), LAYOUT, SHAPE, options);
        let arguments = (map.expect("a map"), 16, 8);
        let (kernel, config) = (store_kernel(&context), LaunchConfig::linear(1, 32));
        // SAFETY: the kernel writes a box through the map, which is writable.
        unsafe { graph.add_kernel(&[], &context, &kernel, config, arguments) }.expect("a node");
        let mut executable = graph.instantiate().expect("an executable graph");
        executable.launch(&stream).expect("a launch");
        let access = executable.access(&mut data, &stream).expect("access");
        check_stored(&access.as_slice().to_vec().expect("a copy"));
    });
}

mod provoked {
    //! The device rejects a copy.

    use super::{
        LAYOUT, SHAPE, TensorMap, TensorMapOptions, context, in_child, load, load_kernel, matrix,
    };
    use cuda_safe::sys::CUresult;

    #[test]
    fn a_copy_that_starts_between_multiples_of_16_bytes_is_fatal() {
        in_child(&[], || {
            let context = or_skip!(context());
            let stream = context.stream().expect("a stream");
            let memory = matrix(&stream);
            let options = TensorMapOptions::default();
            let map = TensorMap::new(&memory, LAYOUT, SHAPE, options).expect("a map");
            let error = load(&load_kernel(&context), &map, -3, 0).expect_err("misaligned");
            assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION), "{error}");
            assert!(error.is_fatal());
        });
    }
}
