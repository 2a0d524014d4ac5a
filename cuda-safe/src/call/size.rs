//! Sizes and addresses of memory, checked.

use crate::call::error::Result;
use crate::call::invalid::Invalid;
use cuda_sys::CUdeviceptr;

/// Returns the size of `len` elements of `T` in bytes, or an error if no allocation can be that
/// large.
pub(crate) fn bytes_of<T>(len: usize) -> Result<usize> {
    // The driver aligns its allocations to 256 bytes, and pool memory and host pages to more.
    const { assert!(align_of::<T>() <= 256, "alignment above 256 is unsupported") };
    len.checked_mul(size_of::<T>())
        .filter(|bytes| isize::try_from(*bytes).is_ok())
        .ok_or_else(|| Invalid::TooLarge { len, size: size_of::<T>() }.into())
}

/// Checks the memory of other code, in the constructors `from_raw`, `borrow_raw` and `from_foreign`.
///
/// # Errors
/// [`Invalid::TooLarge`]; [`Invalid::Handle`] if the address is 0 and the elements have bytes.
pub(crate) fn expect_memory<T>(address: CUdeviceptr, len: usize) -> Result<()> {
    let bytes = bytes_of::<T>(len)?;
    if address == 0 && bytes != 0 {
        let what = "device address";
        return Err(Invalid::Handle { what, value: 0 }.into());
    }
    Ok(())
}
