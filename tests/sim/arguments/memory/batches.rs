//! Batches of copies with host memory, attributes and regions, and copies of regions between contexts.

use crate::arguments::{On, Row, Stage, array, field, value};
use crate::prelude::*;
use cuda_safe::memory::{CopyAttributes, SourceOrder};

/// A part of a volume, in which every number is different.
const PLACE: Region = Region { offset: 3, pitch: 11, rows: 7 };
const OTHER: Region = Region { offset: 5, pitch: 13, rows: 8 };
const VOLUME: Extent = Extent::new_3d(4, 2, 3);
const BATCH: &str = "cuMemcpyBatchAsync_v2";
const VOLUMES: &str = "cuMemcpy3DBatchAsync_v2";
const PEER: &str = "cuMemcpy3DPeerAsync";

fn hints() -> CopyAttributes {
    CopyAttributes {
        pinned_source: SourceOrder::Any,
        source_location: Some(MemoryLocation::HostNuma(5)),
        target_location: Some(MemoryLocation::HostNuma(6)),
        overlap_with_compute: true,
        ..CopyAttributes::default()
    }
}

/// Copies of pinned memory and of slices, with and without attributes.
fn lines(s: &Stage) -> Result<()> {
    let mut pinned = PinnedBuffer::<u8>::zeroed(&s.context, 16)?;
    let mut other = PinnedBuffer::<u8>::zeroed(&s.context, 16)?;
    let mut buffer = DeviceBuffer::<u8>::zeroed(&s.stream, 64)?;
    let (first, rest) = buffer.as_mut_slice().split_at(16)?;
    let (second, rest) = rest.split_at(16)?;
    let (third, fourth) = rest.split_at(16)?;
    let mut batch = CopyBatch::new(&s.stream);
    batch.push_from_pinned(first, &mut pinned)?;
    batch.push_from_slice(second, &[1; 16])?;
    batch.push_from_slice(third, &[1; 16])?;
    batch.set_attributes(hints());
    batch.push_from_pinned(fourth, &mut other)?;
    batch.enqueue()
}

/// The orders of the sets of attributes of [`lines`], and the first copy of each set.
fn orders() -> (Vec<CUmemcpySrcAccessOrder>, usize) {
    let orders = [
        CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
        CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL,
        CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_ANY,
    ];
    (orders.to_vec(), 4)
}

fn order_row(name: &str) -> Row {
    let find = |call: &_| {
        let sets = array::<CUmemcpyAttributes>("attributes")(call)?;
        let orders = sets.iter().map(|set| set.srcAccessOrder).collect();
        Some((orders, value("count")(call)?))
    };
    Row::new(name, lines, BATCH, find, orders())
}

/// The row of a field of the last set of attributes.
fn hint<T: PartialEq + Debug + 'static>(
    name: &str,
    find: impl Fn(&CUmemcpyAttributes) -> T + 'static,
    expected: T,
) -> Row {
    let last = move |call: &_| {
        let sets = array::<CUmemcpyAttributes>("attributes")(call)?;
        sets.last().map(&find)
    };
    Row::new(name, lines, BATCH, last, expected)
}

/// Two volumes: from the device to the device, and from a slice.
fn volumes(s: &Stage) -> Result<[u64; 2]> {
    let from = DeviceBuffer::<u32>::zeroed(&s.stream, 512)?;
    let mut to = DeviceBuffer::<u32>::zeroed(&s.stream, 512)?;
    let mut other = DeviceBuffer::<u32>::zeroed(&s.stream, 512)?;
    let addresses = [from.as_raw() + 4 * 3, to.as_raw() + 4 * 5];
    let slice = vec![1; 512];
    let mut batch = CopyBatch::new(&s.stream);
    batch.set_attributes(hints());
    batch.push_3d(VOLUME, &mut to, OTHER, &from, PLACE)?;
    batch.push_3d_from_slice(VOLUME, &mut other, OTHER, &slice, PLACE)?;
    batch.enqueue()?;
    Ok(addresses)
}

type Texels = (usize, [usize; 3], [usize; 3], (u64, usize, usize));

/// Returns the array, the offset, the extent and the source of a copy to texels, in elements.
fn texels(s: &Stage) -> Result<Texels> {
    let from = DeviceBuffer::<u32>::zeroed(&s.stream, 512)?;
    let shape = ArrayShape::ThreeD { width: 8, height: 6, depth: 5 };
    let (mut first, mut second) = (Array::new(&s.stream, shape)?, Array::new(&s.stream, shape)?);
    let raw = first.as_ref().as_raw().addr();
    let mut batch = CopyBatch::new(&s.stream);
    let part = first.as_mut().part([1, 2, 0], VOLUME)?;
    batch.push_to_array(part, &from, PLACE)?;
    let part = second.as_mut().part([1, 2, 0], VOLUME)?;
    batch.push_to_array(part, &from, PLACE)?;
    batch.enqueue()?;
    Ok((raw, [1, 2, 0], [4, 2, 3], (from.as_raw() + 4 * 3, 11, 7)))
}

/// The address, the row length and the layer height of an operand.
fn place(operand: &CUmemcpy3DOperand) -> (u64, usize, usize) {
    // SAFETY: the callers pass operands that are pointers.
    let its = unsafe { operand.op.ptr };
    (its.ptr, its.rowLength, its.layerHeight)
}

fn volume<T: PartialEq + Debug + 'static>(
    name: &str,
    find: impl Fn(&CUDA_MEMCPY3D_BATCH_OP) -> T + 'static,
    expected: T,
) -> Row {
    let first = move |call: &_| {
        let copies = array::<CUDA_MEMCPY3D_BATCH_OP>("copies")(call)?;
        copies.first().map(&find)
    };
    Row::new(name, |s| volumes(s).map(drop), VOLUMES, first, expected)
}

fn volume_rows() -> Vec<Row> {
    let stream = CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    let overlap = CUmemcpyFlags::CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE.0;
    let pointer = CUmemcpy3DOperandType::CU_MEMCPY_OPERAND_TYPE_POINTER;
    let side = |name: &str, find: fn(&CUDA_MEMCPY3D_BATCH_OP) -> &CUmemcpy3DOperand, which| {
        let act = move |s: &Stage| {
            let start = volumes(s)?[which];
            let [pitch, rows] = [[44, 7], [52, 8]][which];
            Ok((start, pitch, rows))
        };
        Row::of(name, act).calls(VOLUMES).with_told(move |call| {
            let copies = array::<CUDA_MEMCPY3D_BATCH_OP>("copies")(call)?;
            copies.first().map(|copy| place(find(copy)))
        })
    };
    vec![
        side("CUDA_MEMCPY3D_BATCH_OP::src", |copy| &copy.src, 0),
        side("CUDA_MEMCPY3D_BATCH_OP::dst", |copy| &copy.dst, 1),
        volume(
            "CUDA_MEMCPY3D_BATCH_OP::extent",
            |copy| [copy.extent.width, copy.extent.height, copy.extent.depth],
            [16, 2, 3],
        ),
        volume("CUDA_MEMCPY3D_BATCH_OP::srcAccessOrder", |copy| copy.srcAccessOrder, stream),
        volume("CUDA_MEMCPY3D_BATCH_OP::flags", |copy| copy.flags, overlap),
        volume(
            "CUmemcpy3DOperandType::CU_MEMCPY_OPERAND_TYPE_POINTER",
            |copy| [copy.src.type_, copy.dst.type_],
            [pointer; 2],
        ),
        Row::of("CUmemcpy3DOperandType::CU_MEMCPY_OPERAND_TYPE_ARRAY", texels)
            .calls(VOLUMES)
            .with_told(|call| {
                let copies = array::<CUDA_MEMCPY3D_BATCH_OP>("copies")(call)?;
                let copy = copies.first()?;
                let kind = CUmemcpy3DOperandType::CU_MEMCPY_OPERAND_TYPE_ARRAY;
                if copy.dst.type_ != kind {
                    return None;
                }
                // SAFETY: the operand has the type of an array.
                let its = unsafe { copy.dst.op.array };
                let offset = [its.offset.x, its.offset.y, its.offset.z];
                let extent = [copy.extent.width, copy.extent.height, copy.extent.depth];
                Some((its.array.addr(), offset, extent, place(&copy.src)))
            }),
        Row::call(VOLUMES, volumes),
        Row::call("cuMemcpy3DAsync_v2", volumes).on(On::Oldest),
    ]
}

fn single_rows() -> Vec<Row> {
    let line = |s: &Stage| {
        let mut buffer = DeviceBuffer::<u8>::zeroed(&s.stream, 16)?;
        let mut batch = CopyBatch::new(&s.stream);
        batch.push_from_slice(&mut buffer, &[1; 16])?;
        batch.enqueue()
    };
    let during = CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    let volume = |s: &Stage| {
        let from = DeviceBuffer::<u32>::zeroed(&s.stream, 512)?;
        let mut to = DeviceBuffer::<u32>::zeroed(&s.stream, 512)?;
        let mut batch = CopyBatch::new(&s.stream);
        batch.push_3d(VOLUME, &mut to, OTHER, &from, PLACE)?;
        batch.enqueue()
    };
    let stream = CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    vec![
        Row::of("cuMemcpyWithAttributesAsync", line).calls("cuMemcpyWithAttributesAsync").with(
            |call| {
                let attributes = field("attributes", |its: &CUmemcpyAttributes| its.srcAccessOrder);
                Some((attributes(call)?, value::<usize>("size")(call)?))
            },
            (during, 16),
        ),
        Row::of("cuMemcpy3DWithAttributesAsync", volume)
            .calls("cuMemcpy3DWithAttributesAsync")
            .with(field("copy", |its: &CUDA_MEMCPY3D_BATCH_OP| its.srcAccessOrder), stream),
    ]
}

type Peers = (u64, usize, usize, usize);

/// Returns the source, the target and the extent of a copy between contexts.
fn peer(s: &Stage) -> Result<(Peers, Peers, [usize; 3])> {
    let other = Context::primary(&s.peer)?.stream()?;
    let reader = DeviceBuffer::<u32>::zeroed(&other, 512)?.share()?.on_peer(&s.stream)?;
    let mut target = DeviceBuffer::<u32>::zeroed(&s.stream, 512)?;
    target.as_mut_slice().copy_3d_from_peer(VOLUME, OTHER, &reader, PLACE)?;
    s.stream.synchronize()?;
    // SAFETY: no kernel reads the slice, whose address alone is used.
    let from = unsafe { reader.as_slice() }.as_raw();
    Ok((
        (from + 12, other.context().as_raw().addr(), 44, 7),
        (target.as_raw() + 20, s.context.as_raw().addr(), 52, 8),
        [16, 2, 3],
    ))
}

pub(in crate::arguments) fn rows() -> Vec<Row> {
    let numa = |location: &CUmemLocation| {
        // SAFETY: every bit pattern is a number.
        (location.type_.0, unsafe { location.__bindgen_anon_1.id })
    };
    let overlap = CUmemcpyFlags::CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE.0;
    let mut rows = vec![
        order_row("CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL"),
        order_row("CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_ANY"),
        hint("CUmemcpyAttributes::srcLocHint", move |its| numa(&its.srcLocHint), (3, 5)),
        hint("CUmemcpyAttributes::dstLocHint", move |its| numa(&its.dstLocHint), (3, 6)),
        hint("CUmemcpyAttributes::flags", |its| its.flags, overlap),
        hint("CUmemcpyFlags::CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE", |its| its.flags, overlap),
        Row::of(PEER, peer).calls(PEER).with_told(|call| {
            let device = CUmemorytype::CU_MEMORYTYPE_DEVICE;
            field("copy", |its: &CUDA_MEMCPY3D_PEER| {
                assert_eq!([its.srcMemoryType, its.dstMemoryType], [device; 2]);
                let context = its.srcContext.addr();
                let from = (its.srcDevice, context, its.srcPitch, its.srcHeight);
                let context = its.dstContext.addr();
                let to = (its.dstDevice, context, its.dstPitch, its.dstHeight);
                (from, to, [its.WidthInBytes, its.Height, its.Depth])
            })(call)
        }),
    ];
    rows.extend(volume_rows());
    rows.extend(single_rows());
    rows
}
