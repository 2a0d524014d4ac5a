//! Batches of copies, and copies with attributes. When a source is read, and when a call waits, was
//! measured on an H200 with driver 580. The functions for one copy with attributes are unverified (from
//! documentation): they are taken to be batches of one.

use crate::api::memory::copy::host_bytes;
use crate::api::memory::{check_access, check_given};
use crate::api::prelude::*;
use crate::exec::Work;
use crate::memory::{Kind, Use};
use cuda_sys::{
    CUDA_MEMCPY3D_BATCH_OP, CUmemcpy3DOperand, CUmemcpy3DOperandType, CUmemcpyAttributes,
    CUmemcpyFlags, CUmemcpySrcAccessOrder as Order,
};

/// Pageable memory up to this size is staged before the call returns. Measured: 64 KiB are and 256 KiB are
/// not.
const STAGED: usize = 64 << 10;

/// The value that says that an error belongs to no copy.
const NO_COPY: usize = usize::MAX;

/// Where one side of a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Device,
    /// Host memory that devices can access, at this host address.
    Pinned(usize),
    Pageable(usize),
}

/// Finds the memory of one side of a copy. An address that the driver does not know is taken for host
/// memory.
pub(crate) fn place(world: &World, address: u64, len: usize, wanted: Use) -> Answer<Place> {
    fail_if(address == 0, INVALID)?;
    let memory = &world.objects.memory;
    if memory.is_virtual(address) {
        crate::api::virtual_memory::check_mapped(world, None, address, len, wanted)?;
        return Ok(Place::Device);
    }
    if let Some((_, its)) = memory.containing(address) {
        if matches!(its.kind, Kind::Ordered { freed: true, .. }) {
            check_given(world, address, len, wanted)?;
        }
        let (start, size) = memory
            .containing(address)
            .map_or((0, 0), |(start, its)| (start, its.bytes.len() as u64));
        let fits = start + size - address >= len as u64;
        return if fits { Ok(Place::Device) } else { Err(INVALID) };
    }
    if let Some((_, host, _)) = memory.host_around(address) {
        let fits = memory.is_pinned(host, len);
        return if fits { Ok(Place::Pinned(host)) } else { Err(INVALID) };
    }
    if memory.is_of_device(address) {
        misuse(format!(
            "{len} bytes at {address:#x} are not allocated; a real driver takes them for host memory \
             and crashes"
        ));
        return Err(INVALID);
    }
    let host = usize::try_from(address).map_err(|_| INVALID)?;
    Ok(Place::Pageable(host))
}

/// Returns whether all bytes of a range are in live memory that devices can access.
pub(crate) fn is_in_memory(world: &World, address: u64, len: usize) -> bool {
    let memory = &world.objects.memory;
    let is_alive = |kind| !matches!(kind, Kind::Ordered { freed: true, .. });
    match memory.containing(address) {
        Some((start, its)) => {
            is_alive(its.kind) && start + its.bytes.len() as u64 - address >= len as u64
        }
        None if memory.is_virtual(address) => {
            memory.check_virtual(address, len, None, Use::Read).is_ok()
        }
        None => memory.host_reached(address, len).is_some(),
    }
}

/// The work of a call.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) work: Vec<Work>,
    /// Whether the call waits for the work.
    pub(crate) waits: bool,
}

impl Plan {
    /// Adds a copy of `len` bytes on a stream.
    pub(crate) fn add(
        &mut self,
        world: &World,
        stream: usize,
        [to, from]: [u64; 2],
        len: usize,
        order: Order,
    ) -> Answer {
        let target = place(world, to, len, Use::Write)?;
        let source = place(world, from, len, Use::Read)?;
        for (address, wanted) in [(to, Use::Write), (from, Use::Read)] {
            check_access(world, stream, address, len, wanted)?;
        }
        let is_during = order == Order::CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
        let is_in_order = order == Order::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        let work = match (source, target) {
            (Place::Device, Place::Device) => Work::CopyOnDevice { from, to, len },
            (Place::Pinned(from), Place::Device) => {
                self.waits |= is_during;
                Work::CopyInPinned { to, from, len }
            }
            (Place::Pageable(from), Place::Device) => {
                self.waits |= is_in_order;
                if len <= STAGED || world.runs.executor.is_idle(stream) {
                    let from = core::ptr::with_exposed_provenance(from);
                    let bytes = host_bytes(from, len)?;
                    Work::CopyIn { to, bytes }
                } else {
                    // Even if it was to be read during the call.
                    Work::CopyInHost { to, from, len }
                }
            }
            (Place::Device, Place::Pinned(to)) => Work::CopyOut { from, to, len },
            (Place::Device, Place::Pageable(to)) => {
                self.waits |= is_during;
                Work::CopyOutHost { from, to, len }
            }
            // Which of these wait is unverified.
            (
                Place::Pinned(from) | Place::Pageable(from),
                Place::Pinned(to) | Place::Pageable(to),
            ) => {
                self.waits = true;
                Work::CopyOnHost { from, to, len, must_be_pinned: false }
            }
        };
        self.work.push(work);
        Ok(())
    }

    /// Enqueues the work. Returns the operation if the call waits for it.
    pub(crate) fn give(self, world: &mut World, stream: usize) -> Option<u64> {
        let id = world.give(stream, Work::All(self.work), Vec::new());
        self.waits.then_some(id)
    }
}

/// Returns the stream of a batch. The legacy default stream accepts none, and other streams accept them
/// only while a context is current. A capture is kept.
fn stream_of(world: &mut World, stream: CUstream) -> Answer<usize> {
    let is_legacy = stream.addr() <= cuda_sys::CU_STREAM_LEGACY.addr();
    fail_if(is_legacy || world.current().is_err(), INVALID)?;
    world.stream(stream.addr())
}

pub(crate) fn not_capturing(world: &World, stream: usize) -> Answer {
    let its = world.objects.streams.get(stream);
    match its.is_some_and(|its| its.capture.is_some()) {
        true => Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
        false => Ok(()),
    }
}

fn check_attributes(order: Order, flags: c_uint) -> Answer {
    let is_order = matches!(
        order,
        Order::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
            | Order::CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL
            | Order::CU_MEMCPY_SRC_ACCESS_ORDER_ANY
    );
    if !is_order || flags > CUmemcpyFlags::CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE.0 {
        return Err(INVALID);
    }
    Ok(())
}

/// # Safety
/// `array` has an element at `index`.
unsafe fn element<T: Copy>(array: *const T, index: usize) -> T {
    let place = array.wrapping_add(index);
    // SAFETY: the caller guarantees that the array has this element.
    unsafe { place.read() }
}

/// Returns the order of each copy.
fn orders(
    count: usize,
    attributes: *const CUmemcpyAttributes,
    firsts: *const usize,
    sets: usize,
) -> Answer<Vec<Order>> {
    fail_if(attributes.is_null() || firsts.is_null() || sets == 0 || sets > count, INVALID)?;
    let mut orders = vec![Order::CU_MEMCPY_SRC_ACCESS_ORDER_INVALID; count];
    let mut before = None;
    for index in 0..sets {
        // SAFETY: the caller passes `sets` sets of attributes.
        let set = unsafe { element(attributes, index) };
        // SAFETY: the caller passes an index for each set.
        let first = unsafe { element(firsts, index) };
        check_attributes(set.srcAccessOrder, set.flags)?;
        let is_next = before.map_or(first == 0, |before| first > before);
        fail_if(!is_next || first >= count, INVALID)?;
        orders[first..].fill(set.srcAccessOrder);
        before = Some(first);
    }
    Ok(orders)
}

/// A real driver crashes if a batch on a stream of a green context uses stream-ordered memory.
fn check_green(world: &World, stream: usize, sides: [u64; 2]) -> Answer {
    let is_green = world.objects.streams.get(stream).is_some_and(|its| its.green.is_some());
    let is_ordered = |address: u64| {
        let holder = world.objects.memory.containing(address);
        holder.is_some_and(|(_, its)| matches!(its.kind, Kind::Ordered { .. }))
    };
    if is_green && sides.into_iter().any(is_ordered) {
        misuse(
            "a batch of copies on a stream of a green context uses stream-ordered memory; a real driver \
             crashes",
        );
        return Err(INVALID);
    }
    Ok(())
}

/// Enqueues a batch. `add` adds one of `count` copies. If one cannot be added, the copies before it are
/// made (measured), and its index is returned with the error.
fn enqueue(
    world: &mut World,
    stream: usize,
    count: usize,
    add: impl Fn(&World, &mut Plan, usize) -> Answer,
) -> Result<(), (CUresult, usize)> {
    let mut failed = None;
    let done = world.wait_for(|world| {
        let mut plan = Plan::default();
        for index in 0..count {
            if let Err(code) = add(world, &mut plan, index) {
                failed = Some((code, index));
                plan.waits = false;
                break;
            }
        }
        Ok(plan.give(world, stream))
    });
    match failed {
        Some(failed) => Err(failed),
        None => done.map_err(|code| (code, NO_COPY)),
    }
}

fn copy(
    world: &mut World,
    to: *const CUdeviceptr,
    from: *const CUdeviceptr,
    sizes: *const usize,
    count: usize,
    attributes: *const CUmemcpyAttributes,
    firsts: *const usize,
    sets: usize,
    stream: CUstream,
) -> Result<(), (CUresult, usize)> {
    let of_no_copy = |code| (code, NO_COPY);
    let stream = stream_of(world, stream).map_err(of_no_copy)?;
    if count == 0 || to.is_null() || from.is_null() || sizes.is_null() {
        return Err(of_no_copy(INVALID));
    }
    let orders = orders(count, attributes, firsts, sets).map_err(of_no_copy)?;
    not_capturing(world, stream).map_err(of_no_copy)?;
    enqueue(world, stream, count, |world, plan, index| {
        // SAFETY: the caller passes `count` targets.
        let to = unsafe { element(to, index) };
        // SAFETY: the caller passes `count` sources.
        let from = unsafe { element(from, index) };
        // SAFETY: the caller passes `count` sizes.
        let len = unsafe { element(sizes, index) };
        fail_if(len == 0, INVALID)?;
        check_green(world, stream, [to, from])?;
        plan.add(world, stream, [to, from], len, orders[index])
    })
}

pub(crate) fn copy_batch(
    world: &mut World,
    to: *mut CUdeviceptr,
    from: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    firsts: *mut usize,
    sets: usize,
    stream: CUstream,
) -> Answer {
    copy(world, to, from, sizes, count, attributes, firsts, sets, stream).map_err(|(code, _)| code)
}

/// The older function, which returns the index of a copy that failed.
pub(crate) fn copy_batch_telling(
    world: &mut World,
    to: *mut CUdeviceptr,
    from: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    firsts: *mut usize,
    sets: usize,
    failed: Out<usize>,
    stream: CUstream,
) -> Answer {
    let done = copy(world, to, from, sizes, count, attributes, firsts, sets, stream);
    failed.set(done.map_or_else(|(_, index)| index, |()| NO_COPY));
    done.map_err(|(code, _)| code)
}

pub(crate) fn copy_with_attributes(
    world: &mut World,
    to: CUdeviceptr,
    from: CUdeviceptr,
    size: usize,
    attributes: *mut CUmemcpyAttributes,
    stream: CUstream,
) -> Answer {
    let first = 0;
    let sizes = &raw const size;
    copy(world, &raw const to, &raw const from, sizes, 1, attributes, &raw const first, 1, stream)
        .map_err(|(code, _)| code)
}

/// The rows of one side of a 3-D copy, in bytes.
struct Rows {
    start: u64,
    /// Bytes from a row to the next, and rows from a slice to the next.
    pitch: usize,
    height: usize,
}

impl Rows {
    /// Finds the rows of a side, whose elements have `size` bytes.
    fn of(
        world: &World,
        operand: &CUmemcpy3DOperand,
        [width, height, depth]: [usize; 3],
        size: usize,
    ) -> Answer<Self> {
        if operand.type_ == CUmemcpy3DOperandType::CU_MEMCPY_OPERAND_TYPE_ARRAY {
            return Self::of_array(world, operand, [width, height, depth]);
        }
        fail_if(operand.type_ != CUmemcpy3DOperandType::CU_MEMCPY_OPERAND_TYPE_POINTER, INVALID)?;
        // SAFETY: the operand has the type of a pointer.
        let its = unsafe { operand.op.ptr };
        let or = |given: usize, least: usize| if given == 0 { least } else { given };
        let (pitch, rows) = (or(its.rowLength, width), or(its.layerHeight, height));
        fail_if(pitch < width || (depth > 1 && rows < height), INVALID)?;
        Ok(Self { start: its.ptr, pitch: pitch.checked_mul(size).ok_or(INVALID)?, height: rows })
    }

    /// Finds the texels of an array. That an extent beyond the array is refused is unverified (from
    /// documentation).
    fn of_array(world: &World, operand: &CUmemcpy3DOperand, extent: [usize; 3]) -> Answer<Self> {
        // SAFETY: the operand has the type of an array.
        let its = unsafe { operand.op.array };
        let texels = world.array(its.array.addr())?.texels();
        let at = [its.offset.x, its.offset.y, its.offset.z];
        for ((at, len), all) in at.into_iter().zip(extent).zip(texels.extent) {
            let fits = at.checked_add(len).is_some_and(|end| end <= all.max(1));
            fail_if(!fits, INVALID)?;
        }
        let [x, y, z] = at;
        let offset = z * texels.slice + y * texels.pitch + x * texels.format.bytes;
        Ok(Self {
            start: texels.address + offset as u64,
            pitch: texels.pitch,
            height: texels.slice / texels.pitch.max(1),
        })
    }

    fn row(&self, y: usize, z: usize) -> Option<u64> {
        let row = z.checked_mul(self.height)?.checked_add(y)?;
        let offset = row.checked_mul(self.pitch)?;
        self.start.checked_add(offset as u64)
    }
}

/// Returns the size of an element of an operand, or `None` for a pointer.
fn element_size(world: &World, operand: &CUmemcpy3DOperand) -> Answer<Option<usize>> {
    if operand.type_ != CUmemcpy3DOperandType::CU_MEMCPY_OPERAND_TYPE_ARRAY {
        return Ok(None);
    }
    // SAFETY: the operand has the type of an array.
    let array = unsafe { operand.op.array }.array;
    let format = world.array(array.addr())?.texels().format;
    match format.block {
        1 => Ok(Some(format.bytes)),
        // What the elements of such arrays are is unknown.
        _ => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
    }
}

fn add_volume(
    world: &World,
    plan: &mut Plan,
    stream: usize,
    copy: &CUDA_MEMCPY3D_BATCH_OP,
) -> Answer {
    check_attributes(copy.srcAccessOrder, copy.flags)?;
    let extent = [copy.extent.width, copy.extent.height, copy.extent.depth];
    fail_if(extent.contains(&0), INVALID)?;
    // Between pointers, an element is one byte.
    let size = match (element_size(world, &copy.src)?, element_size(world, &copy.dst)?) {
        (Some(from), Some(to)) if from != to => return Err(INVALID),
        (from, to) => from.or(to).unwrap_or(1),
    };
    let [width, height, depth] = extent;
    let to = Rows::of(world, &copy.dst, extent, size)?;
    let from = Rows::of(world, &copy.src, extent, size)?;
    let len = width.checked_mul(size).ok_or(INVALID)?;
    for z in 0..depth {
        for y in 0..height {
            let to = to.row(y, z).ok_or(INVALID)?;
            let from = from.row(y, z).ok_or(INVALID)?;
            check_green(world, stream, [to, from])?;
            plan.add(world, stream, [to, from], len, copy.srcAccessOrder)?;
        }
    }
    Ok(())
}

fn copy_volumes(
    world: &mut World,
    count: usize,
    copies: *const CUDA_MEMCPY3D_BATCH_OP,
    flags: c_ulonglong,
    stream: CUstream,
) -> Result<(), (CUresult, usize)> {
    let of_no_copy = |code| (code, NO_COPY);
    let stream = stream_of(world, stream).map_err(of_no_copy)?;
    if count == 0 || copies.is_null() || flags != 0 {
        return Err(of_no_copy(INVALID));
    }
    not_capturing(world, stream).map_err(of_no_copy)?;
    enqueue(world, stream, count, |world, plan, index| {
        // SAFETY: the caller passes `count` copies.
        let copy = unsafe { element(copies, index) };
        // The rows of a copy that cannot be made are not copied.
        let before = plan.work.len();
        let added = add_volume(world, plan, stream, &copy);
        if added.is_err() {
            plan.work.truncate(before);
        }
        added
    })
}

pub(crate) fn copy_volume_batch(
    world: &mut World,
    count: usize,
    copies: *mut CUDA_MEMCPY3D_BATCH_OP,
    flags: c_ulonglong,
    stream: CUstream,
) -> Answer {
    copy_volumes(world, count, copies, flags, stream).map_err(|(code, _)| code)
}

/// The older function, which returns the index of a copy that failed.
pub(crate) fn copy_volume_batch_telling(
    world: &mut World,
    count: usize,
    copies: *mut CUDA_MEMCPY3D_BATCH_OP,
    failed: Out<usize>,
    flags: c_ulonglong,
    stream: CUstream,
) -> Answer {
    let done = copy_volumes(world, count, copies, flags, stream);
    failed.set(done.map_or_else(|(_, index)| index, |()| NO_COPY));
    done.map_err(|(code, _)| code)
}

pub(crate) fn copy_volume_with_attributes(
    world: &mut World,
    copy: *mut CUDA_MEMCPY3D_BATCH_OP,
    flags: c_ulonglong,
    stream: CUstream,
) -> Answer {
    copy_volume_batch(world, 1, copy, flags, stream)
}
