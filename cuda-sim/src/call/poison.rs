//! Bytes that a library makes inaccessible within its allocations.

use crate::account::refuse_in_kernel;
use crate::state::{Answer, with};
use core::ffi::{CStr, c_int, c_void};
use cuda_sys::{CUdeviceptr, CUresult, CUstream};

/// The value of `CU_SIM_AT_ONCE` in `cuda_sim.h`.
const AT_ONCE: usize = usize::MAX;

/// Makes `size` bytes at `address` inaccessible from now on in the order of `stream`, or at once for `None`.
///
/// A library that allocates blocks from a larger allocation calls this for the bytes that no block contains, and for a
/// block that it has freed. An access by a kernel, a copy or a fill then fails as one beyond an allocation does: with
/// `CUDA_ERROR_ILLEGAL_ADDRESS` and a [misuse](crate::misuses) that names the allocation, the byte and the stream of the
/// poison. With [`Profile::with_leak_sites`](crate::Profile::with_leak_sites), it also names the function that called
/// this one.
///
/// Work that was enqueued on the stream before is not affected, nor is work that runs before it on other streams. A stream
/// without work stays without work. A call on a stream that is being captured has no effect.
///
/// A default stream is that of the context which owns the memory; for mapped memory it is that of the current context.
/// When the memory is freed or unmapped, the bytes are forgotten. Accesses through another mapping of the same memory are not
/// checked. A `multimem` instruction counts as an access through the first mapping of each device's memory.
///
/// ```
/// # let check = |code: cuda_sys::CUresult| assert!(code.is_success());
/// # cuda_sim::install(cuda_sim::Profile::h200())?;
/// # let (mut context, mut pool, mut word) = (core::ptr::null_mut(), 0, 0_u32);
/// # let stream = core::ptr::null_mut();
/// # // SAFETY: the pointers refer to local variables, and the copies are within the memory.
/// # unsafe {
/// # check(cuda_sys::cuInit(0));
/// # check(cuda_sys::cuDevicePrimaryCtxRetain(&raw mut context, 0));
/// # check(cuda_sys::cuCtxSetCurrent(context));
/// check(cuda_sys::cuMemAlloc_v2(&raw mut pool, 4096));
/// // A block of 100 bytes, and 28 bytes that no access may reach.
/// cuda_sim::poison(pool + 100, 28, Some(stream)).expect("memory of the driver");
/// check(cuda_sys::cuMemsetD8_v2(pool, 0, 100));
/// let read = cuda_sys::cuMemcpyDtoH_v2((&raw mut word).cast(), pool + 98, 4);
/// # assert!(!read.is_success());
/// assert!(cuda_sim::misuses()[0].starts_with(
///     "4 bytes at 0x70000000000062 are poisoned from the byte 100 of 4096 bytes of device memory"
/// ));
/// # }
/// # Ok::<_, cuda_sys::InstallError>(())
/// ```
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` if the bytes are not all in one allocation of device memory or in mapped memory;
/// `CUDA_ERROR_INVALID_HANDLE` for a stream that does not exist; `CUDA_ERROR_NOT_PERMITTED` in a
/// [kernel](mod@crate::kernel); the errors of default streams.
pub fn poison(address: CUdeviceptr, size: usize, stream: Option<CUstream>) -> Result<(), CUresult> {
    change((address, size), stream, true)
}

/// Makes `size` bytes at `address` accessible again, in the order of `stream`, or at once for `None`.
///
/// Accessible bytes stay accessible. At once, poisons that were enqueued before and have not taken effect are undone too.
/// On a stream that is being captured, the bytes become accessible at once.
///
/// # Errors
/// See [`poison`].
pub fn unpoison(
    address: CUdeviceptr,
    size: usize,
    stream: Option<CUstream>,
) -> Result<(), CUresult> {
    change((address, size), stream, false)
}

fn change(bytes: (CUdeviceptr, usize), stream: Option<CUstream>, is_poisoned: bool) -> Answer {
    if refuse_in_kernel("cuda_sim::poison or cuda_sim::unpoison") {
        return Err(CUresult::CUDA_ERROR_NOT_PERMITTED);
    }
    let stream = stream.map(|stream| stream.addr());
    let done = with(|world| world.poison(bytes, stream, is_poisoned));
    done.unwrap_or(Err(CUresult::CUDA_ERROR_NOT_INITIALIZED))
}

/// Converts the arguments and the result of the functions of C.
fn change_from_c(bytes: (CUdeviceptr, usize), stream: CUstream, is_poisoned: bool) -> c_int {
    let stream = (stream.addr() != AT_ONCE).then_some(stream);
    let code = change(bytes, stream, is_poisoned).err().unwrap_or(CUresult::CUDA_SUCCESS);
    c_int::try_from(code.0).unwrap_or(c_int::MAX)
}

/// `cuSimPoison` of the shared library.
#[doc(hidden)]
pub extern "C" fn poison_from_c(address: CUdeviceptr, size: usize, stream: CUstream) -> c_int {
    change_from_c((address, size), stream, true)
}

/// `cuSimUnpoison` of the shared library.
#[doc(hidden)]
pub extern "C" fn unpoison_from_c(address: CUdeviceptr, size: usize, stream: CUstream) -> c_int {
    change_from_c((address, size), stream, false)
}

/// Returns the address of a function that `cuda_sim.h` declares and that a library calls which also runs on real drivers,
/// or null.
///
/// The shared library exports these functions, so that a library finds them in the same way in a process that has
/// installed this crate.
pub(crate) fn extension(name: &CStr) -> *const c_void {
    type Change = extern "C" fn(CUdeviceptr, usize, CUstream) -> c_int;
    let function: Change = match name.to_bytes() {
        b"cuSimPoison" => poison_from_c,
        b"cuSimUnpoison" => unpoison_from_c,
        _ => return core::ptr::null(),
    };
    function as *const c_void
}
