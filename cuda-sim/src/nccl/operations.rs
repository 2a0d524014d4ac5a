//! The functions of operations.

#![allow(non_snake_case, reason = "the names are those of C")]

use super::communicators::usable;
use super::groups::{self, Queued};
use super::outcome::{INVALID_ARGUMENT, Outcome, SUCCESS, call, refuse};
use super::{Functions, table};
use crate::call::Class;
use crate::state::World;
use crate::state::nccl::arithmetic;
use crate::state::nccl::operation::{Factor, Kind, Op, Part};
use core::ffi::{c_int, c_void};

pub(super) const FUNCTIONS: Functions = table![
    ncclAllReduce,
    ncclReduce,
    ncclReduceScatter,
    ncclBroadcast,
    ncclBcast,
    ncclAllGather,
    ncclAlltoAll,
    ncclGather,
    ncclScatter,
    ncclSend,
    ncclRecv,
    ncclRedOpCreatePreMulSum,
    ncclRedOpDestroy,
];

/// The numbers of the operations that programs create begin here.
const FIRST_CREATED: u32 = 1000;

type Pointer = *const c_void;

/// The arguments that all operations have.
struct Arguments {
    name: &'static str,
    send: u64,
    receive: u64,
    count: usize,
    data_type: c_int,
    communicator: usize,
    stream: usize,
}

/// Enqueues an operation, or adds it to the group of this thread.
fn operation(arguments: &Arguments, kind: impl Fn(&mut World) -> Outcome<Kind>) -> c_int {
    let Arguments { name, send, receive, count, data_type, communicator, stream } = *arguments;
    groups::note(call(Class::Usual, name, |world| {
        usable(world, communicator)?;
        let data_type = data_type as u32;
        if arithmetic::size(data_type).is_none() {
            return refuse(INVALID_ARGUMENT, "no such type");
        }
        let kind = kind(world)?;
        let is_alone = usable(world, communicator)?.board.ranks == 1;
        if is_alone && kind.has_factor() && arithmetic::is_of_8_bits(data_type) {
            return refuse(
                INVALID_ARGUMENT,
                "one rank does not multiply numbers of 8 bits (measured)",
            );
        }
        let stream = world.stream(stream)?;
        let part = Part { kind, count, data_type, send, receive };
        let queued = Queued { communicator, stream, part };
        match groups::is_open() {
            true => groups::add_operation(queued),
            false => groups::enqueue(world, vec![queued])?,
        }
        Ok(SUCCESS)
    }))
}

/// Checks the rank of another communicator.
fn peer(world: &mut World, communicator: usize, rank: c_int) -> Outcome<u32> {
    let ranks = usable(world, communicator)?.board.ranks;
    match u32::try_from(rank) {
        Ok(rank) if rank < ranks => Ok(rank),
        _ => refuse(INVALID_ARGUMENT, "no such rank"),
    }
}

/// Finds the operation of a reduction.
fn reduction(world: &mut World, communicator: usize, op: c_int) -> Outcome<Op> {
    let op = op as u32;
    if op <= arithmetic::AVERAGE {
        return Ok(Op::Plain(op));
    }
    match usable(world, communicator)?.factors.get(&op) {
        Some(factor) => Ok(Op::Scaled(factor.clone())),
        None => refuse(INVALID_ARGUMENT, "no such operation"),
    }
}

/// Defines the functions of operations. Each has the arguments between the type and the communicator, and the kind of
/// operation that follows from them.
macro_rules! operations {
    ($(
        $name:ident($($argument:ident: $ty:ty),*; $($more:ident),*)
        from $send:ident to $receive:ident as |$world:ident, $its:ident| $kind:expr;
    )*) => {$(
        #[allow(clippy::too_many_arguments, reason = "those of C")]
        #[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
        unsafe extern "C" fn $name(
            $($argument: $ty,)*
            count: usize,
            data_type: c_int,
            $($more: c_int,)*
            communicator: *mut c_void,
            stream: *mut c_void,
        ) -> c_int {
            let none: Pointer = core::ptr::null();
            let _ = none;
            let arguments = Arguments {
                name: stringify!($name),
                send: $send.addr() as u64,
                receive: $receive.addr() as u64,
                count,
                data_type,
                communicator: communicator.addr(),
                stream: stream.addr(),
            };
            let $its = arguments.communicator;
            operation(&arguments, |$world| Ok($kind))
        }
    )*};
}

operations! {
    ncclAllReduce(send: Pointer, receive: Pointer; op) from send to receive
        as |world, its| Kind::AllReduce(reduction(world, its, op)?);
    ncclReduce(send: Pointer, receive: Pointer; op, root) from send to receive
        as |world, its| Kind::Reduce(reduction(world, its, op)?, peer(world, its, root)?);
    ncclReduceScatter(send: Pointer, receive: Pointer; op) from send to receive
        as |world, its| Kind::ReduceScatter(reduction(world, its, op)?);
    ncclBroadcast(send: Pointer, receive: Pointer; root) from send to receive
        as |world, its| Kind::Broadcast(peer(world, its, root)?);
    ncclBcast(buffer: Pointer; root) from buffer to buffer
        as |world, its| Kind::Broadcast(peer(world, its, root)?);
    ncclAllGather(send: Pointer, receive: Pointer; ) from send to receive
        as |_world, _its| Kind::AllGather;
    ncclAlltoAll(send: Pointer, receive: Pointer; ) from send to receive
        as |_world, _its| Kind::AllToAll;
    ncclGather(send: Pointer, receive: Pointer; root) from send to receive
        as |world, its| Kind::Gather(peer(world, its, root)?);
    ncclScatter(send: Pointer, receive: Pointer; root) from send to receive
        as |world, its| Kind::Scatter(peer(world, its, root)?);
    ncclSend(send: Pointer; peer_rank) from send to send
        as |world, its| Kind::Send(peer(world, its, peer_rank)?);
    ncclRecv(receive: Pointer; peer_rank) from receive to receive
        as |world, its| Kind::Receive(peer(world, its, peer_rank)?);
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclRedOpCreatePreMulSum(
    op: *mut c_int,
    scalar: Pointer,
    data_type: c_int,
    residence: c_int,
    communicator: *mut c_void,
) -> c_int {
    groups::note(call(Class::Usual, "ncclRedOpCreatePreMulSum", |world| {
        usable(world, communicator.addr())?;
        let Some(width) = arithmetic::size(data_type as u32) else {
            return refuse(INVALID_ARGUMENT, "no such type");
        };
        if op.is_null() || scalar.is_null() {
            return refuse(INVALID_ARGUMENT, "the operation or the factor is null");
        }
        let factor = match residence {
            0 => Factor::At(scalar.addr() as u64),
            _ => {
                // SAFETY: the caller passes a factor of this type on the host.
                let bytes = unsafe { core::slice::from_raw_parts(scalar.cast::<u8>(), width) };
                Factor::Value(bytes.to_vec())
            }
        };
        let its = usable(world, communicator.addr())?;
        let number = FIRST_CREATED + its.next_factor;
        its.next_factor += 1;
        its.factors.insert(number, factor);
        // SAFETY: the caller passes a place for an operation.
        unsafe { op.write(number as i32) };
        Ok(SUCCESS)
    }))
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclRedOpDestroy(op: c_int, communicator: *mut c_void) -> c_int {
    groups::note(call(Class::Usual, "ncclRedOpDestroy", |world| {
        let its = usable(world, communicator.addr())?;
        match its.factors.remove(&(op as u32)) {
            Some(_) => Ok(SUCCESS),
            None => refuse(INVALID_ARGUMENT, "no such operation"),
        }
    }))
}
