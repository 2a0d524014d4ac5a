//! One operation of a communicator: its arguments, checked, and the call of NCCL.

use crate::call::{Progress, int, nccl, result};
use crate::communicator::Communicator;
use crate::element::Element;
use crate::error::{Error, Invalid, Result};
use crate::reduction::Reduction;
use crate::sys::{
    self, ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclScalarResidence_t,
};
use cuda_safe::bytemuck::bytes_of;
use cuda_safe::sys::CUdeviceptr;
use cuda_safe::{DeviceSlice, DeviceSliceMut, Stream};
use cuda_sys::SymbolError;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;

/// An operation with its buffers, which are borrowed until it is enqueued.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    pub(crate) communicator: &'a Communicator,
    kind: Kind,
    /// Elements that each rank sends or receives.
    count: usize,
    data_type: ncclDataType_t,
    /// The size of an element.
    size: usize,
    send: CUdeviceptr,
    receive: CUdeviceptr,
    buffers: PhantomData<DeviceSliceMut<'a, u8>>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    AllReduce(Combination),
    Reduce(Combination, c_int),
    ReduceScatter(Combination),
    Broadcast(c_int),
    AllGather,
    AllToAll,
    Gather(c_int),
    Scatter(c_int),
    Send(c_int),
    Receive(c_int),
}

/// The operation of a reduction.
#[derive(Clone, Copy, Debug)]
enum Combination {
    Op(ncclRedOp_t),
    /// The bytes of a factor.
    Factor([u8; 8]),
    /// The address of a factor.
    FactorAt(CUdeviceptr),
}

/// A slice of device memory as an operation sees it.
#[derive(Clone, Copy)]
struct Side {
    address: CUdeviceptr,
    len: usize,
}

impl<'a> Operation<'a> {
    fn new<T: Element>(communicator: &'a Communicator, kind: Kind, count: usize) -> Self {
        Self {
            communicator,
            kind,
            count,
            data_type: T::DATA_TYPE,
            size: size_of::<T>(),
            send: 0,
            receive: 0,
            buffers: PhantomData,
        }
    }

    #[inline]
    fn between(self, send: CUdeviceptr, receive: CUdeviceptr) -> Self {
        Self { send, receive, ..self }
    }

    pub(crate) fn all_reduce<T: Element>(
        communicator: &'a Communicator,
        send: DeviceSlice<'a, T>,
        receive: DeviceSliceMut<'a, T>,
        op: Reduction<'a, T>,
    ) -> Result<Self> {
        let send = source(communicator, send)?;
        let receive = target(communicator, receive)?;
        same_length("the target", receive, send.len)?;
        let kind = Kind::AllReduce(combination(communicator, op)?);
        Ok(Self::new::<T>(communicator, kind, send.len).between(send.address, receive.address))
    }

    pub(crate) fn all_reduce_in_place<T: Element>(
        communicator: &'a Communicator,
        buffer: DeviceSliceMut<'a, T>,
        op: Reduction<'a, T>,
    ) -> Result<Self> {
        let its = target(communicator, buffer)?;
        let kind = Kind::AllReduce(combination(communicator, op)?);
        Ok(Self::new::<T>(communicator, kind, its.len).between(its.address, its.address))
    }

    pub(crate) fn reduce<T: Element>(
        communicator: &'a Communicator,
        send: DeviceSlice<'a, T>,
        receive: Option<DeviceSliceMut<'a, T>>,
        op: Reduction<'a, T>,
        root: u32,
    ) -> Result<Self> {
        let send = source(communicator, send)?;
        let receive = target_of_root(communicator, root, receive, send.len)?;
        let kind =
            Kind::Reduce(combination(communicator, op)?, peer(communicator, "the root", root)?);
        Ok(Self::new::<T>(communicator, kind, send.len).between(send.address, receive))
    }

    pub(crate) fn reduce_in_place<T: Element>(
        communicator: &'a Communicator,
        buffer: DeviceSliceMut<'a, T>,
        op: Reduction<'a, T>,
        root: u32,
    ) -> Result<Self> {
        let its = target(communicator, buffer)?;
        let kind =
            Kind::Reduce(combination(communicator, op)?, peer(communicator, "the root", root)?);
        Ok(Self::new::<T>(communicator, kind, its.len).between(its.address, its.address))
    }

    pub(crate) fn reduce_scatter<T: Element>(
        communicator: &'a Communicator,
        send: DeviceSlice<'a, T>,
        receive: DeviceSliceMut<'a, T>,
        op: Reduction<'a, T>,
    ) -> Result<Self> {
        let send = source(communicator, send)?;
        let receive = target(communicator, receive)?;
        same_length("the target", receive, part(communicator, "the source", send)?)?;
        let kind = Kind::ReduceScatter(combination(communicator, op)?);
        Ok(Self::new::<T>(communicator, kind, receive.len).between(send.address, receive.address))
    }

    pub(crate) fn reduce_scatter_in_place<T: Element>(
        communicator: &'a Communicator,
        buffer: DeviceSliceMut<'a, T>,
        op: Reduction<'a, T>,
    ) -> Result<Self> {
        let its = target(communicator, buffer)?;
        let count = part(communicator, "the buffer", its)?;
        let kind = Kind::ReduceScatter(combination(communicator, op)?);
        let own = own_part::<T>(communicator, its, count);
        Ok(Self::new::<T>(communicator, kind, count).between(its.address, own))
    }

    pub(crate) fn broadcast<T: Element>(
        communicator: &'a Communicator,
        send: Option<DeviceSlice<'a, T>>,
        receive: DeviceSliceMut<'a, T>,
        root: u32,
    ) -> Result<Self> {
        let receive = target(communicator, receive)?;
        let send = source_of_root(communicator, root, send, receive.len)?;
        // NCCL does not read the source of another rank.
        let send = send.unwrap_or(receive.address);
        let kind = Kind::Broadcast(peer(communicator, "the root", root)?);
        Ok(Self::new::<T>(communicator, kind, receive.len).between(send, receive.address))
    }

    pub(crate) fn broadcast_in_place<T: Element>(
        communicator: &'a Communicator,
        buffer: DeviceSliceMut<'a, T>,
        root: u32,
    ) -> Result<Self> {
        let its = target(communicator, buffer)?;
        let kind = Kind::Broadcast(peer(communicator, "the root", root)?);
        Ok(Self::new::<T>(communicator, kind, its.len).between(its.address, its.address))
    }

    pub(crate) fn all_gather<T: Element>(
        communicator: &'a Communicator,
        send: DeviceSlice<'a, T>,
        receive: DeviceSliceMut<'a, T>,
    ) -> Result<Self> {
        let send = source(communicator, send)?;
        let receive = target(communicator, receive)?;
        same_length("the source", send, part(communicator, "the target", receive)?)?;
        Ok(Self::new::<T>(communicator, Kind::AllGather, send.len)
            .between(send.address, receive.address))
    }

    pub(crate) fn all_gather_in_place<T: Element>(
        communicator: &'a Communicator,
        buffer: DeviceSliceMut<'a, T>,
    ) -> Result<Self> {
        let its = target(communicator, buffer)?;
        let count = part(communicator, "the buffer", its)?;
        let own = own_part::<T>(communicator, its, count);
        Ok(Self::new::<T>(communicator, Kind::AllGather, count).between(own, its.address))
    }

    pub(crate) fn all_to_all<T: Element>(
        communicator: &'a Communicator,
        send: DeviceSlice<'a, T>,
        receive: DeviceSliceMut<'a, T>,
    ) -> Result<Self> {
        let send = source(communicator, send)?;
        let receive = target(communicator, receive)?;
        same_length("the target", receive, send.len)?;
        let count = part(communicator, "the source", send)?;
        Ok(Self::new::<T>(communicator, Kind::AllToAll, count)
            .between(send.address, receive.address))
    }

    pub(crate) fn gather<T: Element>(
        communicator: &'a Communicator,
        send: DeviceSlice<'a, T>,
        receive: Option<DeviceSliceMut<'a, T>>,
        root: u32,
    ) -> Result<Self> {
        let send = source(communicator, send)?;
        let all = whole(communicator, send.len)?;
        let receive = target_of_root(communicator, root, receive, all)?;
        let kind = Kind::Gather(peer(communicator, "the root", root)?);
        Ok(Self::new::<T>(communicator, kind, send.len).between(send.address, receive))
    }

    pub(crate) fn scatter<T: Element>(
        communicator: &'a Communicator,
        send: Option<DeviceSlice<'a, T>>,
        receive: DeviceSliceMut<'a, T>,
        root: u32,
    ) -> Result<Self> {
        let receive = target(communicator, receive)?;
        let all = whole(communicator, receive.len)?;
        let send = source_of_root(communicator, root, send, all)?.unwrap_or(0);
        let kind = Kind::Scatter(peer(communicator, "the root", root)?);
        Ok(Self::new::<T>(communicator, kind, receive.len).between(send, receive.address))
    }

    pub(crate) fn send<T: Element>(
        communicator: &'a Communicator,
        send: DeviceSlice<'a, T>,
        to: u32,
    ) -> Result<Self> {
        let send = source(communicator, send)?;
        let kind = Kind::Send(peer(communicator, "the receiver", to)?);
        Ok(Self::new::<T>(communicator, kind, send.len).between(send.address, 0))
    }

    pub(crate) fn receive<T: Element>(
        communicator: &'a Communicator,
        receive: DeviceSliceMut<'a, T>,
        from: u32,
    ) -> Result<Self> {
        let receive = target(communicator, receive)?;
        let kind = Kind::Receive(peer(communicator, "the sender", from)?);
        Ok(Self::new::<T>(communicator, kind, receive.len).between(0, receive.address))
    }
}

fn source<T>(communicator: &Communicator, slice: DeviceSlice<'_, T>) -> Result<Side> {
    same_stream("the source", slice.stream(), communicator)?;
    Ok(Side { address: slice.as_raw(), len: slice.len() })
}

fn target<T>(communicator: &Communicator, slice: DeviceSliceMut<'_, T>) -> Result<Side> {
    same_stream("the target", slice.stream(), communicator)?;
    Ok(Side { address: slice.as_raw(), len: slice.len() })
}

/// Checks that a buffer is bound to the stream of the communicator.
#[inline]
fn same_stream(what: &'static str, its: &Stream, communicator: &Communicator) -> Result<()> {
    match its == communicator.stream() {
        true => Ok(()),
        false => Err(other_stream(what, its, communicator)),
    }
}

#[cold]
#[inline(never)]
fn other_stream(what: &'static str, its: &Stream, communicator: &Communicator) -> Error {
    let (its, communicator) = (its.to_string(), communicator.stream().to_string());
    Invalid::OtherStream { what, its, communicator }.into()
}

#[inline]
fn same_length(what: &'static str, side: Side, expected: usize) -> Result<()> {
    match side.len == expected {
        true => Ok(()),
        false => Err(Invalid::Length { what, len: side.len, expected }.into()),
    }
}

/// Returns the length of the part of one rank.
#[inline]
fn part(communicator: &Communicator, what: &'static str, side: Side) -> Result<usize> {
    let (ranks, len) = (communicator.ranks(), side.len);
    match len % ranks as usize {
        0 => Ok(len / ranks as usize),
        _ => Err(Invalid::NotDivisible { what, len, ranks }.into()),
    }
}

/// Returns the length of the parts of all ranks.
#[inline]
fn whole(communicator: &Communicator, part: usize) -> Result<usize> {
    let whole = part.checked_mul(communicator.ranks() as usize);
    whole.ok_or_else(|| {
        Invalid::TooLarge { what: "the number of elements of all ranks", value: part as u64 }.into()
    })
}

/// Returns the address of the own part in a buffer with the parts of all ranks.
#[inline]
fn own_part<T>(communicator: &Communicator, whole: Side, count: usize) -> CUdeviceptr {
    whole.address + (communicator.rank() as usize * count * size_of::<T>()) as u64
}

/// Checks the source, which only the root must have.
fn source_of_root<T>(
    communicator: &Communicator,
    root: u32,
    buffer: Option<DeviceSlice<'_, T>>,
    expected: usize,
) -> Result<Option<CUdeviceptr>> {
    match buffer {
        Some(buffer) => {
            let its = source(communicator, buffer)?;
            same_length("the source", its, expected)?;
            Ok(Some(its.address))
        }
        None if communicator.rank() == root => Err(Invalid::NoBuffer { what: "a source" }.into()),
        None => Ok(None),
    }
}

/// Checks the target, which only the root must have.
fn target_of_root<T>(
    communicator: &Communicator,
    root: u32,
    buffer: Option<DeviceSliceMut<'_, T>>,
    expected: usize,
) -> Result<CUdeviceptr> {
    match buffer {
        Some(buffer) => {
            let its = target(communicator, buffer)?;
            same_length("the target", its, expected)?;
            Ok(its.address)
        }
        None if communicator.rank() == root => Err(Invalid::NoBuffer { what: "a target" }.into()),
        None => Ok(0),
    }
}

/// Checks the rank of another communicator.
#[inline]
fn peer(communicator: &Communicator, what: &'static str, rank: u32) -> Result<c_int> {
    match rank < communicator.ranks() {
        true => int(what, rank),
        false => Err(Invalid::Rank { what, rank, ranks: communicator.ranks() }.into()),
    }
}

fn combination<T: Element>(
    communicator: &Communicator,
    op: Reduction<'_, T>,
) -> Result<Combination> {
    Ok(match op {
        Reduction::Op(op) => Combination::Op(op.raw()),
        Reduction::ScaledSum(factor) => {
            let mut bytes = [0; 8];
            let factor = bytes_of(&factor);
            if let Some(place) = bytes.get_mut(..factor.len()) {
                place.copy_from_slice(factor);
            }
            Combination::Factor(bytes)
        }
        Reduction::ScaledSumOf(factor) => {
            same_stream("the factor", factor.stream(), communicator)?;
            let len = factor.len();
            if len != 1 {
                return Err(Invalid::Length { what: "the factor", len, expected: 1 }.into());
            }
            Combination::FactorAt(factor.as_raw())
        }
    })
}

#[inline]
fn pointer(address: CUdeviceptr) -> *mut c_void {
    core::ptr::without_provenance_mut(address as usize)
}

/// The operation of a reduction in NCCL, and whether it must be destroyed.
struct Op {
    raw: ncclRedOp_t,
    is_own: bool,
}

impl Op {
    /// # Safety
    /// The communicator is alive.
    #[inline]
    unsafe fn new(
        comm: ncclComm_t,
        combination: &Combination,
        data_type: ncclDataType_t,
    ) -> Result<Self> {
        let (scalar, residence) = match combination {
            Combination::Op(raw) => return Ok(Self { raw: *raw, is_own: false }),
            Combination::Factor(bytes) => (
                core::ptr::from_ref(bytes).cast_mut().cast(),
                ncclScalarResidence_t::ncclScalarHostImmediate,
            ),
            Combination::FactorAt(address) => {
                (pointer(*address), ncclScalarResidence_t::ncclScalarDevice)
            }
        };
        let mut raw = ncclRedOp_t::default();
        let place = &raw mut raw;
        // SAFETY: the caller promises that the communicator is alive. A factor on the host is read during the call;
        // one on the device when the operation runs, and stream order keeps it alive.
        unsafe { nccl!(ncclRedOpCreatePreMulSum(place, scalar, data_type, residence, comm)) }?;
        Ok(Self { raw, is_own: true })
    }

    /// # Safety
    /// The communicator is alive.
    #[inline]
    unsafe fn end(self, comm: ncclComm_t) -> Result<()> {
        if self.is_own {
            // SAFETY: the operation was created by `new`. Calls that use it were made.
            unsafe { nccl!(ncclRedOpDestroy(self.raw, comm)) }?;
        }
        Ok(())
    }
}

impl Operation<'_> {
    /// Enqueues the operation. Inside of a group, NCCL does so when the group ends.
    ///
    /// # Safety
    /// The communicator is alive and locked, and its primary context is current. The buffers are used only in the order
    /// of the stream.
    #[inline]
    pub(crate) unsafe fn enqueue(&self, comm: ncclComm_t) -> Result<Progress> {
        let Self { count, data_type, .. } = *self;
        let (send, receive) = (pointer(self.send), pointer(self.receive));
        let stream = self.communicator.stream().as_raw();
        let reduced = |combination: &Combination,
                       call: &dyn Fn(ncclRedOp_t) -> Result<Progress>| {
            // SAFETY: the caller's promise.
            let op = unsafe { Op::new(comm, combination, data_type) }?;
            let called = call(op.raw);
            // SAFETY: the caller's promise.
            let ended = unsafe { op.end(comm) };
            called.and_then(|progress| ended.map(|()| progress))
        };
        match &self.kind {
            Kind::AllReduce(combination) => reduced(combination, &|op| {
                // SAFETY: the caller's promise; both buffers have `count` elements.
                unsafe { nccl!(ncclAllReduce(send, receive, count, data_type, op, comm, stream)) }
            }),
            Kind::Reduce(combination, root) => reduced(combination, &|op| {
                // SAFETY: as above; only the root writes the target.
                unsafe {
                    nccl!(ncclReduce(send, receive, count, data_type, op, *root, comm, stream))
                }
            }),
            Kind::ReduceScatter(combination) => reduced(combination, &|op| {
                // SAFETY: as above; the source has `count` elements for each rank.
                unsafe {
                    nccl!(ncclReduceScatter(send, receive, count, data_type, op, comm, stream))
                }
            }),
            Kind::Broadcast(root) => {
                // SAFETY: as above; only the root reads the source.
                unsafe {
                    nccl!(ncclBroadcast(send, receive, count, data_type, *root, comm, stream))
                }
            }
            Kind::AllGather => {
                // SAFETY: as above; the target has `count` elements for each rank.
                unsafe { nccl!(ncclAllGather(send, receive, count, data_type, comm, stream)) }
            }
            Kind::Send(to) => {
                // SAFETY: as above; the source has `count` elements.
                unsafe { nccl!(ncclSend(send, count, data_type, *to, comm, stream)) }
            }
            Kind::Receive(from) => {
                // SAFETY: as above; the target has `count` elements.
                unsafe { nccl!(ncclRecv(receive, count, data_type, *from, comm, stream)) }
            }
            Kind::AllToAll => {
                // SAFETY: as above; both buffers have `count` elements for each rank.
                let called =
                    unsafe { sys::ncclAlltoAll(send, receive, count, data_type, comm, stream) };
                // SAFETY: the caller's promise.
                unsafe { self.or_parts("ncclAlltoAll", called, comm) }
            }
            Kind::Gather(root) => {
                // SAFETY: as above; the target of the root has `count` elements for each rank.
                let called = unsafe {
                    sys::ncclGather(send, receive, count, data_type, *root, comm, stream)
                };
                // SAFETY: the caller's promise.
                unsafe { self.or_parts("ncclGather", called, comm) }
            }
            Kind::Scatter(root) => {
                // SAFETY: as above; the source of the root has `count` elements for each rank.
                let called = unsafe {
                    sys::ncclScatter(send, receive, count, data_type, *root, comm, stream)
                };
                // SAFETY: the caller's promise.
                unsafe { self.or_parts("ncclScatter", called, comm) }
            }
        }
    }

    /// Returns the result of a call. If NCCL does not have the function (before 2.28), enqueues sends and receipts of
    /// the parts, as a group.
    ///
    /// # Safety
    /// See [`enqueue`](Self::enqueue).
    #[inline(never)]
    unsafe fn or_parts(
        &self,
        call: &'static str,
        called: Result<ncclResult_t, SymbolError>,
        comm: ncclComm_t,
    ) -> Result<Progress> {
        match called {
            Err(SymbolError::Missing(_)) => {}
            called => return result(call, called),
        }
        // SAFETY: the group ends below.
        unsafe { nccl!(ncclGroupStart()) }?;
        // SAFETY: the caller's promise.
        let parts = unsafe { self.enqueue_parts(comm) };
        // SAFETY: the group was started above.
        let ended = unsafe { nccl!(ncclGroupEnd()) };
        parts.and(ended)
    }

    /// # Safety
    /// See [`enqueue`](Self::enqueue).
    #[inline]
    unsafe fn enqueue_parts(&self, comm: ncclComm_t) -> Result<()> {
        let Self { count, data_type, size, communicator, .. } = *self;
        let (own, ranks) = (communicator.rank(), communicator.ranks());
        let stream = communicator.stream().as_raw();
        let part =
            |base: CUdeviceptr, rank: u32| pointer(base + (rank as usize * count * size) as u64);
        for rank in 0..ranks {
            let peer = rank as i32;
            let (sends, receives) = match self.kind {
                Kind::Gather(root) => (
                    (peer == root).then(|| pointer(self.send)),
                    ((own as i32) == root).then(|| part(self.receive, rank)),
                ),
                Kind::Scatter(root) => (
                    ((own as i32) == root).then(|| part(self.send, rank)),
                    (peer == root).then(|| pointer(self.receive)),
                ),
                _ => (Some(part(self.send, rank)), Some(part(self.receive, rank))),
            };
            if let Some(source) = sends {
                // SAFETY: the caller's promise; the part has `count` elements.
                unsafe { nccl!(ncclSend(source, count, data_type, peer, comm, stream)) }?;
            }
            if let Some(target) = receives {
                // SAFETY: the caller's promise; the part has `count` elements.
                unsafe { nccl!(ncclRecv(target, count, data_type, peer, comm, stream)) }?;
            }
        }
        Ok(())
    }

    /// Enqueues one operation, and waits until NCCL has enqueued it.
    #[inline]
    pub(crate) fn run(&self) -> Result<()> {
        let shared = &self.communicator.shared;
        let mut handle = shared.lock()?;
        outside_capture(self.communicator, || {
            let comm = handle.raw();
            // SAFETY: the communicator is locked, and the context is current. The buffers are bound to the stream:
            // safe code uses and frees them in its order.
            let progress = shared.primary.with_current(|_| unsafe { self.enqueue(comm) })??;
            shared.complete(&mut handle, progress)
        })
    }
}

/// Enqueues work unless the stream is captured. No capture begins on the stream meanwhile.
#[inline]
pub(crate) fn outside_capture(
    communicator: &Communicator,
    enqueue: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let is_captured = std::cell::Cell::new(false);
    let objects = || {
        is_captured.set(true);
        Vec::new()
    };
    communicator.stream().enqueue_retaining(objects, || match is_captured.get() {
        true => Err(Invalid::Captured.into()),
        false => enqueue(),
    })?
}
