//! Measures the enqueueing of operations of NCCL through pointers to its C functions and through `cuda-nccl`, on one
//! rank, and operations of two GPUs beside kernels. It needs NCCL and a GPU.

mod partition;

use crate::Fallible;
use crate::compile::row_after;
use cuda_nccl::sys::{NCCL, ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclResult_t};
use cuda_nccl::{Communicator, Config, ReduceOp, group};
use cuda_safe::sys::CUstream;
use cuda_safe::{Context, Device, DeviceBuffer};
use std::ffi::{CStr, c_int, c_void};
use std::ptr::without_provenance_mut;

/// The number of operations between two waits.
const CALLS: usize = 100;
/// The elements of an operation: 4 KiB.
const LEN: usize = 1024;
const SENDS: usize = 16;

type AllReduce = unsafe extern "C" fn(
    *const c_void,
    *mut c_void,
    usize,
    ncclDataType_t,
    ncclRedOp_t,
    ncclComm_t,
    CUstream,
) -> ncclResult_t;
type Send = unsafe extern "C" fn(
    *const c_void,
    usize,
    ncclDataType_t,
    c_int,
    ncclComm_t,
    CUstream,
) -> ncclResult_t;
type Receive = unsafe extern "C" fn(
    *mut c_void,
    usize,
    ncclDataType_t,
    c_int,
    ncclComm_t,
    CUstream,
) -> ncclResult_t;
type Group = unsafe extern "C" fn() -> ncclResult_t;

/// Finds a function of the library.
///
/// # Safety
/// `F` is the type of the function.
unsafe fn function<F: Copy>(name: &CStr) -> Fallible<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let address = NCCL.symbol(name)?.as_ptr();
    // SAFETY: the caller's promise.
    Ok(unsafe { std::mem::transmute_copy(&address) })
}

#[track_caller]
fn check(code: ncclResult_t) {
    assert_eq!(code, ncclResult_t::ncclSuccess);
}

pub(crate) fn run(rounds: usize) -> Fallible<()> {
    let context = Context::primary(&Device::get(0)?)?;
    let stream = context.stream()?;
    let its = Communicator::init_all(std::slice::from_ref(&stream), &Config::default())?.remove(0);
    println!("NCCL {}, one rank, {CALLS} calls\n", cuda_nccl::version()?);
    println!("| | C, µs | C again | `cuda-nccl` |\n|---|--:|--:|--:|");
    // SAFETY: this is the type of the function.
    let all_reduce: AllReduce = unsafe { function(c"ncclAllReduce") }?;
    // SAFETY: as above.
    let send: Send = unsafe { function(c"ncclSend") }?;
    // SAFETY: as above.
    let receive: Receive = unsafe { function(c"ncclRecv") }?;
    // SAFETY: as above.
    let start: Group = unsafe { function(c"ncclGroupStart") }?;
    // SAFETY: as above.
    let end: Group = unsafe { function(c"ncclGroupEnd") }?;

    let source = DeviceBuffer::<f32>::zeroed(&stream, LEN)?;
    let mut target = DeviceBuffer::<f32>::zeroed(&stream, LEN)?;
    let mut raw = std::ptr::null_mut();
    its.with_raw(|comm| raw = comm)?;
    let (ty, op, on) = (ncclDataType_t::ncclFloat32, ncclRedOp_t::ncclSum, stream.as_raw());
    let from: *mut c_void = without_provenance_mut(source.as_raw() as usize);
    let to: *mut c_void = without_provenance_mut(target.as_raw() as usize);
    let wait = || stream.synchronize().expect("complete work");
    // The current context as in a program of one device.
    context.with_current(|_| {
        let mut c = || {
            for _ in 0..CALLS {
                // SAFETY: both buffers have this length, and the communicator is alive.
                check(unsafe { all_reduce(from, to, LEN, ty, op, raw, on) });
            }
        };
        let mut safe = || {
            for _ in 0..CALLS {
                its.all_reduce(&source, &mut target, ReduceOp::Sum).expect("a sum");
            }
        };
        row_after("all_reduce of 4 KiB", rounds, &wait, [&mut c, &mut safe]);
        let mut in_place = DeviceBuffer::<f32>::zeroed(&stream, LEN).expect("memory");
        let at: *mut c_void = without_provenance_mut(in_place.as_raw() as usize);
        let mut c = || {
            for _ in 0..CALLS {
                // SAFETY: as above.
                check(unsafe { all_reduce(at, at, LEN, ty, op, raw, on) });
            }
        };
        let mut safe = || {
            for _ in 0..CALLS {
                its.all_reduce_in_place(&mut in_place, ReduceOp::Sum).expect("a sum");
            }
        };
        row_after(
            "all_reduce of 4 KiB in place, which one rank does not enqueue",
            rounds,
            &wait,
            [&mut c, &mut safe],
        );

        let sources: Vec<_> = (0..SENDS)
            .map(|_| DeviceBuffer::<f32>::zeroed(&stream, LEN).expect("memory"))
            .collect();
        let mut targets: Vec<_> = (0..SENDS)
            .map(|_| DeviceBuffer::<f32>::zeroed(&stream, LEN).expect("memory"))
            .collect();
        let addresses: Vec<(usize, usize)> = sources
            .iter()
            .zip(&targets)
            .map(|(from, to)| (from.as_raw() as usize, to.as_raw() as usize))
            .collect();
        let mut c = || {
            for _ in 0..CALLS / 10 {
                // SAFETY: the group ends below.
                check(unsafe { start() });
                for (from, to) in &addresses {
                    // SAFETY: the buffers have this length.
                    check(unsafe { send(without_provenance_mut(*from), LEN, ty, 0, raw, on) });
                    // SAFETY: as above.
                    check(unsafe { receive(without_provenance_mut(*to), LEN, ty, 0, raw, on) });
                }
                // SAFETY: the group was started above.
                check(unsafe { end() });
            }
        };
        let mut safe = || {
            for _ in 0..CALLS / 10 {
                group(|group| {
                    for (source, target) in sources.iter().zip(&mut targets) {
                        group.send(&its, source, 0)?;
                        group.receive(&its, target, 0)?;
                    }
                    Ok(())
                })
                .expect("a group");
            }
        };
        row_after(
            "10 groups of 16 sends and 16 receipts of 4 KiB",
            rounds,
            &wait,
            [&mut c, &mut safe],
        );
    })?;
    stream.synchronize()?;
    partition::run(rounds.min(11))
}
