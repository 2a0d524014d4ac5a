//! Out-parameters: functions that return a value through a pointer.

use crate::bindings::{CUresult, Zeroable};

/// Calls a function that writes its result through a pointer, and returns what it wrote.
///
/// `call` receives a pointer to a zeroed `T`. The pointer is valid for reads and writes until `call`
/// returns.
///
/// ```no_run
/// use cuda_sys::{CUdevice, CUresult, cuDeviceGet, cuInit, cuMemGetInfo_v2, out};
///
/// # fn main() -> Result<(), CUresult> {
/// // SAFETY: `cuInit` takes no pointer.
/// unsafe { cuInit(0) }.ok()?;
/// // SAFETY: `out` passes a valid pointer.
/// let device: CUdevice = out(|place| unsafe { cuDeviceGet(place, 0) })?;
///
/// // A function with several results needs one variable for each further result.
/// let mut total = 0;
/// // SAFETY: `out` passes a valid pointer, and the other one is to a variable.
/// let free = out(|place| unsafe { cuMemGetInfo_v2(place, &raw mut total) })?;
/// # let (_, _): (CUdevice, usize) = (device, free);
/// # Ok(())
/// # }
/// ```
///
/// The function is safe because a `T` of zeros is valid, even if `call` succeeds without writing it. Do not
/// use it for asynchronous functions, which write through the pointer after they returned.
///
/// # Errors
/// `call` returns an error code.
#[inline]
pub fn out<T: Zeroable>(call: impl FnOnce(*mut T) -> CUresult) -> Result<T, CUresult> {
    let mut value = T::zeroed();
    call(&raw mut value).ok()?;
    Ok(value)
}
