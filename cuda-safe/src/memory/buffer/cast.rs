//! Device memory reinterpreted as elements of another type.

use crate::call::{Invalid, Rejected, Result};
use crate::memory::{DeviceBuffer, DeviceSlice, DeviceSliceMut};
use bytemuck::{AnyBitPattern, NoUninit};
use cuda_sys::CUdeviceptr;

impl<'a, T: NoUninit> DeviceSlice<'a, T> {
    /// Reinterprets the memory as elements of `U`, without a copy.
    ///
    /// The rules are those of [`bytemuck::try_cast_slice`]: the size in bytes must be a multiple of
    /// the size of `U`, and the address must be aligned for `U`. The result has as many elements as
    /// fit.
    ///
    /// # Errors
    /// [`Invalid::Cast`] if the size or the alignment does not fit.
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, DeviceBuffer};
    ///
    /// let stream = Context::primary(&Device::get(0)?)?.stream()?;
    /// let buffer = DeviceBuffer::from_slice(&stream, &[1.0f32, -2.0])?;
    /// let bits = buffer.as_slice().cast::<u32>()?.to_vec()?;
    /// assert_eq!(bits, [0x3f80_0000, 0xc000_0000]);
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    pub fn cast<U: AnyBitPattern>(self) -> Result<DeviceSlice<'a, U>> {
        let len = length_as::<T, U>(self.as_raw(), self.len())?;
        Ok(DeviceSlice::new(self.as_raw(), len, self.stream()))
    }
}

impl<'a, T: NoUninit + AnyBitPattern> DeviceSliceMut<'a, T> {
    /// Reinterprets the memory as elements of `U`, without a copy.
    ///
    /// See [`DeviceSlice::cast`]. What is written as `U` is also read as `T`, so both types must
    /// have neither padding nor invalid bit patterns, as every [`Pod`](bytemuck::Pod) type does.
    ///
    /// # Errors
    /// [`Invalid::Cast`] if the size or the alignment does not fit.
    pub fn cast<U: NoUninit + AnyBitPattern>(self) -> Result<DeviceSliceMut<'a, U>> {
        let len = length_as::<T, U>(self.as_raw(), self.len())?;
        Ok(DeviceSliceMut::new(self.as_raw(), len, self.stream()))
    }
}

impl<T: NoUninit> DeviceBuffer<T> {
    /// Reinterprets the buffer as elements of `U`, without a copy. The buffer stays bound to its
    /// stream and is freed in the same way.
    ///
    /// See [`DeviceSlice::cast`].
    ///
    /// # Errors
    /// [`Invalid::Cast`] if the size or the alignment does not fit. The buffer is then dropped.
    /// [`try_cast`](Self::try_cast) returns it with the error.
    pub fn cast<U: AnyBitPattern>(self) -> Result<DeviceBuffer<U>> {
        Ok(self.try_cast()?)
    }

    /// Does the same as [`cast`](Self::cast), but returns the unchanged buffer with the error.
    ///
    /// # Errors
    /// See [`cast`](Self::cast).
    pub fn try_cast<U: AnyBitPattern>(self) -> Result<DeviceBuffer<U>, Rejected<Self>> {
        let len = length_as::<T, U>(self.as_raw(), self.len());
        let (len, buffer) = Rejected::unless(len, self)?;
        Ok(DeviceBuffer::of_allocation(buffer.into_allocation(), len))
    }
}

/// Returns the number of elements of `U` in the memory of `len` elements of `T`.
fn length_as<T, U>(address: CUdeviceptr, len: usize) -> Result<usize> {
    let (size, element, align) = (len * size_of::<T>(), size_of::<U>(), align_of::<U>());
    let fits = if size_of::<T>() == element {
        Some(len)
    } else if size == 0 {
        Some(0)
    } else {
        (element != 0 && size % element == 0).then(|| size / element)
    };
    match fits {
        Some(len) if address % align as u64 == 0 => Ok(len),
        _ => Err(Invalid::Cast { address, size, element, align }.into()),
    }
}
