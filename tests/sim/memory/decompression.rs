//! Batches of decompressions. No real driver that was tested has an engine.

use crate::prelude::*;
use cuda_safe::device::attribute;
use cuda_safe::memory::{CompressionFormat, DecompressBatch};

/// A profile with an engine.
const WITH_ENGINE: &str = "b200@12.9";

const LZ4: [u8; 7] = [0x1f, b'a', 1, 0, 0, 0x10, b'b'];
const SNAPPY: [u8; 6] = [4, 0, b'a', 2 << 2 | 2, 1, 0];
const STORED: [u8; 8] = [1, 3, 0, 0xfc, 0xff, b'a', b'b', b'c'];

fn sync(stream: &Stream, bytes: &[u8]) -> DeviceBuffer<u8> {
    let mut memory = DeviceBuffer::<u8>::zeroed_sync(stream, bytes.len()).expect("memory");
    memory.copy_from_slice(bytes).expect("a copy");
    memory
}

fn sizes(stream: &Stream, count: usize) -> DeviceBuffer<u32> {
    DeviceBuffer::zeroed_sync(stream, count).expect("memory")
}

/// Decompresses `source`, and returns the result of the call.
fn decompress(stream: &Stream, source: &DeviceBuffer<u8>) -> Result<(Vec<u8>, u32)> {
    let mut target = DeviceBuffer::<u8>::zeroed_sync(stream, 32)?;
    let mut written = DeviceBuffer::<u32>::zeroed_sync(stream, 1)?;
    let mut batch = DecompressBatch::new(stream);
    batch.push(CompressionFormat::Lz4, &mut target, source, &mut written)?;
    // SAFETY: the sources of the tests are valid, and have at most 32 bytes when they are decompressed.
    unsafe { batch.enqueue() }?;
    Ok((target.to_vec()?, written.to_vec()?[0]))
}

#[test]
fn a_batch_decompresses_all_formats_in_stream_order() {
    let (_end, context) = in_child!(on(WITH_ENGINE.parse().expect("a profile")));
    let formats = context.device().attribute(attribute::MEM_DECOMPRESS_ALGORITHM_MASK);
    let formats = formats.expect("known");
    let stream = context.stream().expect("a stream");
    let mut target = sync(&stream, &[9; 32]);
    let mut written = sizes(&stream, 3);
    let sources = [
        (CompressionFormat::Lz4, sync(&stream, &LZ4)),
        (CompressionFormat::Snappy, sync(&stream, &[0; SNAPPY.len()])),
        (CompressionFormat::Deflate, sync(&stream, &STORED)),
    ];
    let info = context.pointer_info(target.as_raw()).expect("an answer");
    assert_eq!(info.expect("known").hw_decompress, Some(true));
    let mut sources = sources;
    // Earlier work on the stream.
    sources[1].1.copy_from_slice(&SNAPPY).expect("a copy");
    {
        let mut batch = DecompressBatch::new(&stream);
        let (first, rest) = target.as_mut_slice().split_at(24).expect("a part");
        let (second, third) = rest.split_at(4).expect("a part");
        let targets = [first, second, third];
        let places = written.chunks_exact_mut(1).expect("words");
        for (((format, source), target), place) in sources.iter().zip(targets).zip(places) {
            assert!(formats.contains(format.mask()));
            batch.push(*format, target, source, place).expect("added");
        }
        assert_eq!((batch.len(), batch.is_empty()), (3, false));
        assert!(format!("{batch:?}").contains("len: 3"));
        // SAFETY: the sources are valid, and fit into their targets when they are decompressed.
        unsafe { batch.enqueue() }.expect("enqueued");
    }
    let expected = [&[b'a'; 20][..], b"b", &[9; 3], b"aaaa", b"abc", &[9]].concat();
    assert_eq!(target.to_vec().expect("a copy"), expected);
    assert_eq!(written.to_vec().expect("a copy"), [21, 4, 3]);
}

#[test]
fn memory_that_the_engine_cannot_access_is_refused() {
    let (_end, context) = in_child!(on(WITH_ENGINE.parse().expect("a profile")));
    let stream = context.stream().expect("a stream");
    let with = |hw_decompress| {
        let options = MemoryPoolOptions { hw_decompress, ..MemoryPoolOptions::default() };
        MemoryPool::new(&context, options).expect("a pool")
    };
    for (pool, is_capable) in [(with(false), false), (with(true), true)] {
        let source = DeviceBuffer::<u8>::zeroed_from_pool(&pool, &stream, LZ4.len());
        let mut source = source.expect("memory");
        source.copy_from_slice(&LZ4).expect("a copy");
        match decompress(&stream, &source) {
            Ok((found, size)) => {
                assert!(is_capable);
                assert_eq!((&found[..22], size), (&b"aaaaaaaaaaaaaaaaaaaab\0"[..], 21));
            }
            Err(error) => {
                assert!(!is_capable, "{error}");
                assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_INVALID_VALUE));
            }
        }
    }
}

#[test]
fn a_source_longer_than_the_maximum_is_refused() {
    let (_end, context) = in_child!(on(WITH_ENGINE.parse().expect("a profile")));
    let stream = context.stream().expect("a stream");
    let maximum = context.device().attribute(attribute::MEM_DECOMPRESS_MAXIMUM_LENGTH);
    let source = DeviceBuffer::<u8>::zeroed_sync(&stream, maximum.expect("known") as usize + 1);
    let refused = decompress(&stream, &source.expect("memory")).expect_err("it is too long");
    assert_eq!(refused.code(), Some(CUresult::CUDA_ERROR_INVALID_VALUE));
}

#[test]
fn a_device_without_an_engine_refuses_a_batch() {
    let (_end, context) = in_child!(on("h200".parse().expect("a profile")));
    let stream = context.stream().expect("a stream");
    let refused = decompress(&stream, &sync(&stream, &LZ4)).expect_err("there is no engine");
    assert_eq!(refused.code(), Some(CUresult::CUDA_ERROR_NOT_SUPPORTED));
    let empty = DecompressBatch::new(&stream);
    // SAFETY: nothing is decompressed.
    unsafe { empty.enqueue() }.expect("no call");
}

#[test]
fn the_memory_of_a_decompression_is_checked() {
    let (_end, context) = in_child!(on(WITH_ENGINE.parse().expect("a profile")));
    let stream = context.stream().expect("a stream");
    let other = context.stream().expect("a stream");
    let source = sync(&stream, &LZ4);
    let (mut target, mut written) = (sync(&stream, &[0; 32]), sizes(&stream, 2));
    let elsewhere = sync(&other, &LZ4);
    let (mut part, mut word) = (sync(&stream, &[0]), sizes(&stream, 1));
    let mut batch = DecompressBatch::new(&stream);
    let format = CompressionFormat::Lz4;
    let what = invalid(batch.push(format, &mut target, &source, &mut written));
    assert!(matches!(what, Invalid::Lengths { .. }), "{what}");
    let what = invalid(batch.push(format, &mut part, &elsewhere, &mut word));
    assert!(matches!(what, Invalid::OtherStream { .. }), "{what}");
    assert!(batch.is_empty());
}

#[test]
fn data_that_is_not_valid_is_a_misuse() {
    in_child!();
    start(WITH_ENGINE.parse().expect("a profile"));
    let stream = crate::context().stream().expect("a stream");
    let source = sync(&stream, &LZ4[..3]);
    decompress(&stream, &source).expect_err("an illegal address");
    let misuses = cuda_sim::misuses();
    assert!(misuses.iter().any(|what| what.contains("not valid Lz4 data")), "{misuses:?}");
}
