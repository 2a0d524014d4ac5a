//! Copies and fills of lines, planes and volumes.

use crate::arguments::{On, Row, Stage, array, field, value};
use crate::prelude::*;

const ROOM: usize = 512;

/// A part of a volume, in which every number is different.
const DEVICE: Region = Region { offset: 3, pitch: 11, rows: 7 };
const HOST: Region = Region { offset: 5, pitch: 13, rows: 8 };
const PLANE: Extent = Extent::new_2d(4, 2);
const VOLUME: Extent = Extent::new_3d(4, 2, 3);

/// The start addresses of a copy, on the host and on the device.
type Sides = (usize, CUdeviceptr);

fn sides(host: *const u32, device: &DeviceBuffer<u32>) -> Sides {
    let start = device.as_raw() + 4 * DEVICE.offset as u64;
    (host.addr() + 4 * HOST.offset, start)
}

fn copy_in(s: &Stage, extent: Extent) -> Result<Sides> {
    let host = vec![1; ROOM];
    let mut device = DeviceBuffer::<u32>::zeroed(&s.stream, ROOM)?;
    device.as_mut_slice().copy_3d_from_slice(extent, DEVICE, &host, HOST)?;
    Ok(sides(host.as_ptr(), &device))
}

fn copy_out(s: &Stage, extent: Extent) -> Result<Sides> {
    let mut host = vec![1; ROOM];
    let device = DeviceBuffer::<u32>::zeroed(&s.stream, ROOM)?;
    device.as_slice().copy_3d_to_slice(extent, DEVICE, &mut host, HOST)?;
    Ok(sides(host.as_ptr(), &device))
}

fn copy_between(s: &Stage, extent: Extent) -> Result<[CUmemorytype; 2]> {
    let from = DeviceBuffer::<u32>::zeroed(&s.stream, ROOM)?;
    let mut to = DeviceBuffer::<u32>::zeroed(&s.stream, ROOM)?;
    to.as_mut_slice().copy_3d_from(extent, DEVICE, &from, HOST)?;
    Ok([CUmemorytype::CU_MEMORYTYPE_DEVICE; 2])
}

/// The rows of a structure whose fields have the same names for planes and volumes.
macro_rules! boxes {
    ($ty:ident, $extent:ident, $in:literal, $out:literal) => {{
        let row = |name: &str, is_in: bool, find: fn(&$ty) -> usize, number: usize| {
            let name = format!(concat!(stringify!($ty), "::{}"), name);
            let found = field("copy", find);
            match is_in {
                true => Row::new(&name, |s| copy_in(s, $extent).map(drop), $in, found, number),
                false => Row::new(&name, |s| copy_out(s, $extent).map(drop), $out, found, number),
            }
        };
        let kind = |name: &str, is_in: bool, find: fn(&$ty) -> CUmemorytype| {
            let is_host = name.starts_with("src") == is_in;
            let number = if is_host { 1 } else { 2 };
            let name = format!(concat!(stringify!($ty), "::{}"), name);
            let found = field("copy", find);
            let number = CUmemorytype(number);
            match is_in {
                true => Row::new(&name, |s| copy_in(s, $extent).map(drop), $in, found, number),
                false => Row::new(&name, |s| copy_out(s, $extent).map(drop), $out, found, number),
            }
        };
        let place = |name: &str, is_in: bool, find: fn(&$ty) -> Sides| {
            let name = format!(concat!(stringify!($ty), "::{}"), name);
            match is_in {
                true => Row::of(&name, |s| copy_in(s, $extent))
                    .calls($in)
                    .with_told(field("copy", find)),
                false => Row::of(&name, |s| copy_out(s, $extent))
                    .calls($out)
                    .with_told(field("copy", find)),
            }
        };
        vec![
            kind("srcMemoryType", true, |its| its.srcMemoryType),
            kind("dstMemoryType", true, |its| its.dstMemoryType),
            kind("srcMemoryType", false, |its| its.srcMemoryType),
            kind("dstMemoryType", false, |its| its.dstMemoryType),
            place("srcHost", true, |its| (its.srcHost.addr(), its.dstDevice)),
            place("dstDevice", true, |its| (its.srcHost.addr(), its.dstDevice)),
            place("dstHost", false, |its| (its.dstHost.addr(), its.srcDevice)),
            place("srcDevice", false, |its| (its.dstHost.addr(), its.srcDevice)),
            row("srcPitch", true, |its| its.srcPitch, 4 * HOST.pitch),
            row("dstPitch", true, |its| its.dstPitch, 4 * DEVICE.pitch),
            row("srcPitch", false, |its| its.srcPitch, 4 * DEVICE.pitch),
            row("dstPitch", false, |its| its.dstPitch, 4 * HOST.pitch),
            row("WidthInBytes", true, |its| its.WidthInBytes, 4 * $extent.width),
            row("WidthInBytes", false, |its| its.WidthInBytes, 4 * $extent.width),
            row("Height", true, |its| its.Height, $extent.height),
            row("Height", false, |its| its.Height, $extent.height),
        ]
    }};
}

fn boxes() -> Vec<Row> {
    let mut rows = boxes!(CUDA_MEMCPY2D, PLANE, "cuMemcpy2DAsync_v2", "cuMemcpy2D_v2");
    rows.extend(boxes!(CUDA_MEMCPY3D, VOLUME, "cuMemcpy3DAsync_v2", "cuMemcpy3D_v2"));
    let volume = |name: &str, find: fn(&CUDA_MEMCPY3D) -> usize, number| {
        let name = format!("CUDA_MEMCPY3D::{name}");
        let act = |s: &Stage| copy_in(s, VOLUME).map(drop);
        Row::new(&name, act, "cuMemcpy3DAsync_v2", field("copy", find), number)
    };
    rows.extend([
        volume("srcHeight", |its| its.srcHeight, HOST.rows),
        volume("dstHeight", |its| its.dstHeight, DEVICE.rows),
        volume("Depth", |its| its.Depth, VOLUME.depth),
        Row::of("CUmemorytype::CU_MEMORYTYPE_DEVICE", |s| copy_between(s, PLANE))
            .calls("cuMemcpy2DAsync_v2")
            .with_told(field("copy", |its: &CUDA_MEMCPY2D| [its.srcMemoryType, its.dstMemoryType])),
        Row::of("CUmemorytype::CU_MEMORYTYPE_DEVICE", |s| copy_between(s, VOLUME))
            .calls("cuMemcpy3DAsync_v2")
            .with_told(field("copy", |its: &CUDA_MEMCPY3D| [its.srcMemoryType, its.dstMemoryType])),
        Row::of("CUmemorytype::CU_MEMORYTYPE_HOST", |s| copy_in(s, PLANE))
            .calls("cuMemcpy2DAsync_v2")
            .with(
                field("copy", |its: &CUDA_MEMCPY2D| its.srcMemoryType),
                CUmemorytype::CU_MEMORYTYPE_HOST,
            ),
    ]);
    rows
}

/// Two copies in one call: destinations, sources, and byte counts.
fn batch(s: &Stage) -> Result<(Vec<u64>, Vec<u64>, Vec<usize>)> {
    let from = DeviceBuffer::<u8>::zeroed(&s.stream, 64)?;
    let mut to = DeviceBuffer::<u8>::zeroed(&s.stream, 64)?;
    let start = to.as_raw();
    {
        let (first, second) = to.as_mut_slice().split_at(24)?;
        let mut batch = CopyBatch::new(&s.stream);
        batch.push(first, from.slice(..24)?)?;
        batch.push(second, from.slice(24..)?)?;
        batch.enqueue()?;
    }
    let other = from.as_raw();
    Ok((vec![start, start + 24], vec![other, other + 24], vec![24, 40]))
}

fn batches() -> Vec<Row> {
    let stream = CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    let order = || field("attributes", |its: &CUmemcpyAttributes| its.srcAccessOrder);
    let lists = |call: &_| Some((array("to")(call)?, array("from")(call)?, array("sizes")(call)?));
    let function = "cuMemcpyBatchAsync_v2";
    let act = |s: &Stage| batch(s).map(drop);
    let name = "CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM";
    vec![
        Row::new(name, act, function, order(), stream),
        Row::new("CUmemcpyAttributes::srcAccessOrder", act, function, order(), stream),
        Row::of(function, batch).calls(function).with_told(lists),
    ]
}

/// A fill of 6 elements, and its pattern.
fn fill<T>(element: T) -> impl Fn(&Stage) -> Result<()>
where
    T: cuda_safe::bytemuck::Pod,
{
    move |s| DeviceBuffer::<T>::zeroed(&s.stream, 6)?.fill(element)
}

fn fill_3d<T>(element: T) -> impl Fn(&Stage) -> Result<()>
where
    T: cuda_safe::bytemuck::Pod,
{
    move |s| {
        let mut buffer = DeviceBuffer::<T>::zeroed(&s.stream, ROOM)?;
        buffer.as_mut_slice().fill_3d(PLANE, DEVICE, element)
    }
}

fn lines() -> Vec<Row> {
    /// The checks of a fill of a line.
    macro_rules! line {
        ($function:literal, $value:expr) => {
            Row::of($function, fill($value)).calls($function).with(
                |call| Some((value("value")(call)?, value("count")(call)?)),
                ($value, 6_usize),
            )
        };
    }
    /// The checks of a fill of a plane.
    macro_rules! plane {
        ($function:literal, $value:expr) => {
            Row::of($function, fill_3d($value)).calls($function).with(
                |call| {
                    let extent: (usize, usize) = (value("width")(call)?, value("height")(call)?);
                    Some((value("value")(call)?, extent, value("pitch")(call)?))
                },
                ($value, (PLANE.width, PLANE.height), DEVICE.pitch * size_of_val(&$value)),
            )
        };
    }
    let peer = |s: &Stage| {
        let other = Context::primary(&s.peer)?.stream()?;
        let reader = DeviceBuffer::<u8>::zeroed(&other, 16)?.share()?.on_peer(&s.stream)?;
        DeviceBuffer::<u8>::zeroed(&s.stream, 16)?.copy_from_peer(&reader)?;
        s.stream.synchronize()?;
        Ok((s.context.as_raw(), other.context().as_raw(), 16))
    };
    let buffer = |s: &Stage| DeviceBuffer::<u8>::zeroed(&s.stream, 16);
    let pinned = |s: &Stage| PinnedBuffer::<u8>::zeroed(&s.context, 16);
    vec![
        line!("cuMemsetD8Async", 0x21_u8),
        line!("cuMemsetD16Async", 0x2122_u16),
        line!("cuMemsetD32Async", 0x2122_2324_u32),
        plane!("cuMemsetD2D8Async", 0x31_u8),
        plane!("cuMemsetD2D16Async", 0x3132_u16),
        plane!("cuMemsetD2D32Async", 0x3132_3334_u32),
        Row::of("cuMemcpyPeerAsync", peer).calls("cuMemcpyPeerAsync").with_told(|call| {
            Some((value("its")(call)?, value("others")(call)?, value::<usize>("size")(call)?))
        }),
        Row::call("cuMemcpyDtoDAsync_v2", move |s| buffer(s)?.copy_from(&buffer(s)?)),
        Row::call("cuMemcpyDtoH_v2", move |s| buffer(s)?.to_vec()),
        Row::call("cuMemcpyHtoDAsync_v2", move |s| {
            buffer(s)?.copy_from_pinned(pinned(s)?)?.synchronize()
        }),
        Row::call("cuMemcpyDtoHAsync_v2", move |s| {
            buffer(s)?.copy_to_pinned(pinned(s)?)?.synchronize()
        }),
        // The copy of a slice is made at once if no work is pending.
        Row::call("cuMemcpyHtoDAsync_v2", move |s| buffer(s)?.copy_from_slice(&[1; 16])),
        Row::call("cuMemcpyBatchAsync_v2", batch),
        Row::call("cuMemcpyDtoDAsync_v2", batch).on(On::Oldest),
    ]
}

pub(in crate::arguments) fn rows() -> Vec<Row> {
    let mut rows = boxes();
    rows.extend(batches());
    rows.extend(lines());
    rows
}
