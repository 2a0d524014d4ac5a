//! Measures how fast the software driver fills and copies memory, in GB/s. `memcpy` of the C library is in the
//! first row, for comparison.
//!
//! - `cargo bench -p cuda-sim --bench bandwidth`
//! - `cargo bench -p cuda-sim --bench bandwidth --profile dev`: without optimization, as tests use the driver

#[path = "alive/calls.rs"]
#[allow(dead_code, reason = "the other benchmark uses the rest")]
mod calls;

use calls::{
    array, call, free, free_ordered, free_pinned, memory, number, ordered, pinned, stream,
    synchronize,
};
use core::ptr::with_exposed_provenance_mut;
use cuda_sys::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUarray, CUdeviceptr, CUmemorytype as Type, CUstream, Zeroable,
};
use std::hint::black_box;
use std::time::Instant;

/// The size of each copy, in a line and as a square.
const SIZE: usize = 16 << 20;
const SIDE: usize = 4 << 10;
/// The pitch of squares with a gap after each row.
const PITCH: usize = SIDE + 512;

/// Prints the speed of an operation on [`SIZE`] bytes: the best of several times.
fn row(name: &str, mut operation: impl FnMut()) {
    const TIMES: usize = 20;
    let mut least = f64::INFINITY;
    for _ in 0..TIMES {
        let start = Instant::now();
        operation();
        least = least.min(start.elapsed().as_secs_f64());
    }
    println!("{name:60}{:8.2}", SIZE as f64 / 1e9 / least);
}

/// One side of a copy of a square.
#[derive(Clone, Copy)]
enum Side {
    Host(usize),
    Device(CUdeviceptr),
    Array(CUarray),
}

impl Side {
    fn kind(self) -> Type {
        match self {
            Self::Host(_) => Type::CU_MEMORYTYPE_HOST,
            Self::Device(_) => Type::CU_MEMORYTYPE_DEVICE,
            Self::Array(_) => Type::CU_MEMORYTYPE_ARRAY,
        }
    }
}

/// Copies a square. The pitch applies to sides that are no arrays.
fn square(from: Side, to: Side, pitch: usize, stream: CUstream) {
    let mut copy = CUDA_MEMCPY2D::zeroed();
    (copy.srcMemoryType, copy.dstMemoryType) = (from.kind(), to.kind());
    (copy.srcPitch, copy.dstPitch) = (pitch, pitch);
    (copy.WidthInBytes, copy.Height) = (SIDE, SIDE);
    match from {
        Side::Host(start) => copy.srcHost = with_exposed_provenance_mut(start),
        Side::Device(start) => copy.srcDevice = start,
        Side::Array(array) => copy.srcArray = array,
    }
    match to {
        Side::Host(start) => copy.dstHost = with_exposed_provenance_mut(start),
        Side::Device(start) => copy.dstDevice = start,
        Side::Array(array) => copy.dstArray = array,
    }
    call!(cuMemcpy2DAsync_v2(&raw const copy, stream));
    synchronize(stream);
}

/// Copies a cube between two places on the device.
fn cube(from: CUdeviceptr, to: CUdeviceptr, stream: CUstream) {
    let mut copy = CUDA_MEMCPY3D::zeroed();
    copy.srcMemoryType = Type::CU_MEMORYTYPE_DEVICE;
    copy.dstMemoryType = Type::CU_MEMORYTYPE_DEVICE;
    (copy.srcDevice, copy.dstDevice) = (from, to);
    (copy.srcPitch, copy.dstPitch) = (512, 512);
    (copy.srcHeight, copy.dstHeight) = (256, 256);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (512, 256, SIZE / 512 / 256);
    call!(cuMemcpy3DAsync_v2(&raw const copy, stream));
    synchronize(stream);
}

fn fills(name: &str, at: CUdeviceptr, own: CUstream) {
    // These calls need not wait for the memset.
    row(&format!("{name}: memset D8"), || {
        call!(cuMemsetD8_v2(at, 1, SIZE));
        call!(cuCtxSynchronize());
    });
    row(&format!("{name}: memset D16"), || {
        call!(cuMemsetD16_v2(at, 0x0102, SIZE / 2));
        call!(cuCtxSynchronize());
    });
    row(&format!("{name}: memset D32"), || {
        call!(cuMemsetD32_v2(at, 0x0102_0304, SIZE / 4));
        call!(cuCtxSynchronize());
    });
    row(&format!("{name}: memset D32, asynchronous"), || {
        call!(cuMemsetD32Async(at, 0x0102_0304, SIZE / 4, own));
        synchronize(own);
    });
    row(&format!("{name}: memset 2D D8"), || {
        call!(cuMemsetD2D8_v2(at, PITCH, 1, SIDE, SIDE));
        call!(cuCtxSynchronize());
    });
    row(&format!("{name}: memset 2D D32, asynchronous"), || {
        call!(cuMemsetD2D32Async(at, PITCH, 0x0102_0304, SIDE / 4, SIDE, own));
        synchronize(own);
    });
}

fn lines(name: &str, at: CUdeviceptr, host: usize, own: CUstream) {
    let start = with_exposed_provenance_mut(host);
    row(&format!("{name}: copy from the host"), || {
        call!(cuMemcpyHtoD_v2(at, start, SIZE));
    });
    row(&format!("{name}: copy from the host, asynchronous"), || {
        call!(cuMemcpyHtoDAsync_v2(at, start, SIZE, own));
        synchronize(own);
    });
    row(&format!("{name}: copy to the host"), || {
        call!(cuMemcpyDtoH_v2(start, at, SIZE));
    });
    row(&format!("{name}: copy to the host, asynchronous"), || {
        call!(cuMemcpyDtoHAsync_v2(start, at, SIZE, own));
        synchronize(own);
    });
}

fn main() {
    // `cargo test --benches` also runs this program, but does not need measurements.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    calls::start();
    let own = stream();
    let room = PITCH * SIDE;
    println!("{:60}{:>8}", "", "GB/s");
    let (source, mut target) = (vec![1_u8; SIZE], vec![2_u8; SIZE]);
    row("memcpy", || black_box(&mut target).copy_from_slice(black_box(&source)));
    drop((source, target));

    row("allocation of 16 MiB, first memset, free", || {
        let new = memory(SIZE);
        call!(cuMemsetD8_v2(new, 1, SIZE));
        // Runs the memset first.
        free(new);
    });
    let (plain, other) = (memory(room), memory(room));
    let pooled = ordered(room, own);
    fills("allocation", plain, own);
    fills("stream-ordered allocation", pooled, own);
    let mut host = vec![0_u8; room];
    let pageable = number(host.as_mut_ptr().cast());
    let locked = pinned(room);
    let locked = number(locked);
    lines("pageable memory", plain, pageable, own);
    lines("pinned memory", plain, locked, own);
    row("copy on the device", || {
        call!(cuMemcpyDtoD_v2(other, plain, SIZE));
        call!(cuCtxSynchronize());
    });
    row("copy on the device to a stream-ordered allocation", || {
        call!(cuMemcpyDtoDAsync_v2(pooled, plain, SIZE, own));
        synchronize(own);
    });
    let arrays = [array(SIDE, SIDE), array(SIDE, SIDE)].map(Side::Array);
    let (plain_side, other_side) = (Side::Device(plain), Side::Device(other));
    for (name, from, to, pitch) in [
        ("copy 2D from pinned memory", Side::Host(locked), plain_side, PITCH),
        ("copy 2D from pageable memory", Side::Host(pageable), plain_side, PITCH),
        ("copy 2D to pinned memory", plain_side, Side::Host(locked), PITCH),
        ("copy 2D to pageable memory", plain_side, Side::Host(pageable), PITCH),
        ("copy 2D on the device", plain_side, other_side, PITCH),
        ("copy 2D to an array", plain_side, arrays[0], PITCH),
        ("copy 2D between arrays", arrays[0], arrays[1], PITCH),
        ("copy 2D from an array to pinned memory", arrays[1], Side::Host(locked), PITCH),
    ] {
        row(name, || square(from, to, pitch, own));
    }
    row("copy 3D with rows of 512 bytes", || cube(plain, other, own));
    for array in arrays {
        if let Side::Array(array) = array {
            call!(cuArrayDestroy(array));
        }
    }
    free_pinned(with_exposed_provenance_mut(locked));
    free_ordered(pooled, own);
    free(plain);
    free(other);
    synchronize(own);
    calls::destroy_stream(own);
}
