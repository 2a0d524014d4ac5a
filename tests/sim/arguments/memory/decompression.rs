//! Batches of decompressions. The device has no engine, so that it refuses them.

use crate::arguments::{Row, Stage, array, value};
use crate::prelude::*;
use cuda_safe::memory::{CompressionFormat, DecompressBatch};

const BATCH: &str = "cuMemBatchDecompressAsync";

fn decompress(s: &Stage, format: CompressionFormat) -> Result<()> {
    let source = DeviceBuffer::<u8>::zeroed(&s.stream, 7)?;
    let mut target = DeviceBuffer::<u8>::zeroed(&s.stream, 32)?;
    let mut written = DeviceBuffer::<u32>::zeroed(&s.stream, 1)?;
    let mut batch = DecompressBatch::new(&s.stream);
    batch.push(format, &mut target, &source, &mut written)?;
    // SAFETY: the device refuses the call.
    unsafe { batch.enqueue() }
}

fn first<T>(find: impl Fn(&CUmemDecompressParams) -> T) -> impl Fn(&Call) -> Option<T> {
    move |call| array::<CUmemDecompressParams>("operations")(call)?.first().map(&find)
}

/// The row of a field of the operation.
fn field<T: PartialEq + Debug + 'static>(
    name: &str,
    find: impl Fn(&CUmemDecompressParams) -> T + 'static,
    expected: T,
) -> Row {
    let name = format!("CUmemDecompressParams::{name}");
    let act = |s: &Stage| decompress(s, CompressionFormat::Lz4);
    Row::new(&name, act, BATCH, first(find), expected).refused()
}

pub(in crate::arguments) fn rows() -> Vec<Row> {
    let format = |name: &str, format, raw: CUmemDecompressAlgorithm| {
        let name = format!("CUmemDecompressAlgorithm::CU_MEM_DECOMPRESS_ALGORITHM_{name}");
        let act = move |s: &Stage| decompress(s, format);
        Row::new(&name, act, BATCH, first(|its| its.algo), raw).refused()
    };
    let algorithm = |bit| CUmemDecompressAlgorithm(bit);
    let act = |s: &Stage| decompress(s, CompressionFormat::Lz4);
    vec![
        format("DEFLATE", CompressionFormat::Deflate, algorithm(1)),
        format("SNAPPY", CompressionFormat::Snappy, algorithm(2)),
        format("LZ4", CompressionFormat::Lz4, algorithm(4)),
        field("srcNumBytes", |its| its.srcNumBytes, 7),
        field("dstNumBytes", |its| its.dstNumBytes, 32),
        field("algo", |its| its.algo, algorithm(4)),
        field("src", |its| its.src.is_null(), false),
        field("dst", |its| its.dst.is_null(), false),
        field("dstActBytes", |its| its.dstActBytes.is_null(), false),
        Row::new(BATCH, act, BATCH, value("count"), 1_usize).refused(),
    ]
}
