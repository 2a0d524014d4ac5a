//! Attributes of kernels, each with its type. Some can be set.
//!
//! ```no_run
//! use cuda_safe::{Context, Device, Module};
//! use cuda_safe::device::attribute;
//! use cuda_safe::module::attribute as kernel_attribute;
//!
//! # let ptx = "";
//! let device = Device::get(0)?;
//! let kernel = Module::from_ptx(&Context::primary(&device)?, ptx)?.kernel("gemm")?;
//! println!("{} registers per thread", kernel.attribute(kernel_attribute::REGISTERS)?);
//!
//! // Allow blocks with more than 48 KiB of shared memory.
//! let most = device.attribute(attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
//! let own = kernel.attribute(kernel_attribute::STATIC_SHARED_BYTES)?;
//! kernel.set_attribute(kernel_attribute::MAX_DYNAMIC_SHARED_BYTES, most - own)?;
//! # Ok::<_, cuda_safe::Error>(())
//! ```

use super::Kernel;
use crate::call::{Result, answer, copy, debug, out_without_current, without_current};
use crate::context::CachePreference;
use crate::device::attribute::explain_newer;
use cuda_sys::{
    CUclusterSchedulingPolicy, CUfunction_attribute, CUfunctionLoadingState, CUsharedMemoryMode,
    CudaVersion,
};
use std::fmt;
use std::marker::PhantomData;

/// A kernel attribute whose value has the type `T`. `SETTABLE` tells whether it can be set. The
/// constants in [this module](self) are the only values of this type.
pub struct KernelAttribute<T, const SETTABLE: bool = false> {
    raw: CUfunction_attribute,
    name: &'static str,
    /// The version that introduced the attribute, or 0 if every driver that these bindings support has
    /// it.
    since: i32,
    value: PhantomData<fn(T) -> T>,
}

impl<T, const SETTABLE: bool> KernelAttribute<T, SETTABLE> {
    /// Returns the driver's number for the attribute.
    pub fn as_raw(&self) -> CUfunction_attribute {
        self.raw
    }

    /// Returns the name of the constant.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the CUDA version that introduced the attribute, or `None` for CUDA 11.7 and earlier.
    pub fn since(&self) -> Option<CudaVersion> {
        (self.since != 0).then_some(CudaVersion::from_number(self.since))
    }
}

copy! { [T, const SETTABLE: bool] KernelAttribute<T, SETTABLE> }

debug! { [T, const SETTABLE: bool] KernelAttribute<T, SETTABLE> |its, f| f.write_str(its.name) }

/// The preferred fraction of on-chip memory to use as shared memory rather than L1 cache. This is a
/// hint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Carveout {
    /// The driver's default.
    #[default]
    Default,
    /// A percentage of the maximum shared memory. The driver uses the next possible value.
    Percent(u8),
    /// A value that only a newer driver knows, by its number.
    Other(i32),
}

/// The type of a kernel attribute's value. This trait is sealed. The driver represents all values as an
/// `int`.
pub trait KernelAttributeValue: sealed::Sealed + fmt::Debug {
    #[doc(hidden)]
    fn from_raw(value: i32) -> Self;
    #[doc(hidden)]
    fn into_raw(self) -> i32;
}

mod sealed {
    pub trait Sealed {}
}

/// Implements the attribute value types, with the conversions from and to `int`.
macro_rules! values {
    ($($ty:ty: |$raw:ident| $read:expr, |$value:ident| $write:expr;)*) => {$(
        impl sealed::Sealed for $ty {}
        #[allow(clippy::cast_sign_loss, reason = "the driver's enums are of unsigned numbers")]
        impl KernelAttributeValue for $ty {
            fn from_raw($raw: i32) -> Self {
                $read
            }
            fn into_raw(self) -> i32 {
                let $value = self;
                $write
            }
        }
    )*};
}

values! {
    bool: |raw| raw != 0, |value| i32::from(value);
    // A value above the range of `int` exceeds the limits of every device, and the driver returns an
    // error.
    u32: |raw| raw as Self, |value| i32::try_from(value).unwrap_or(i32::MAX);
    Carveout: |raw| match raw {
        -1 => Self::Default,
        raw => u8::try_from(raw).map_or(Self::Other(raw), Self::Percent),
    }, |value| match value {
        Self::Default => -1,
        Self::Percent(percent) => percent.into(),
        Self::Other(raw) => raw,
    };
    CUclusterSchedulingPolicy: |raw| Self(raw as u32), |value| value.0 as i32;
    CUsharedMemoryMode: |raw| Self(raw as u32), |value| value.0 as i32;
}

/// Defines one constant per row.
macro_rules! attributes {
    ($($(#[$meta:meta])* $name:ident: $ty:ty, $settable:literal = $c:ident, $since:literal;)*) => {$(
        $(#[$meta])*
        #[doc = ""]
        #[doc = concat!("`", stringify!($c), "`.")]
        pub const $name: KernelAttribute<$ty, $settable> = KernelAttribute {
            raw: CUfunction_attribute::$c,
            name: stringify!($name),
            since: $since,
            value: PhantomData,
        };
    )*};
}

attributes! {
    /// The maximum number of threads per block, as limited by the kernel's registers on this device.
    MAX_THREADS_PER_BLOCK: u32, false = CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0;
    /// The static shared memory per block, in bytes.
    STATIC_SHARED_BYTES: u32, false = CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 0;
    /// The constant memory that the kernel requires, in bytes.
    CONST_BYTES: u32, false = CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, 0;
    /// The local memory per thread, in bytes. It holds data that does not fit into registers.
    LOCAL_BYTES: u32, false = CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 0;
    /// The number of registers per thread.
    REGISTERS: u32, false = CU_FUNC_ATTRIBUTE_NUM_REGS, 0;
    /// The virtual architecture for which the kernel was compiled, as ten times the major version plus
    /// the minor version: 80 for `compute_80`.
    PTX_VERSION: u32, false = CU_FUNC_ATTRIBUTE_PTX_VERSION, 0;
    /// The architecture of the binary code, in the same format: 90 on an H200.
    BINARY_VERSION: u32, false = CU_FUNC_ATTRIBUTE_BINARY_VERSION, 0;
    /// Whether the kernel was compiled to cache global loads in L1 (`-dlcm=ca`).
    CACHE_MODE_CA: bool, false = CU_FUNC_ATTRIBUTE_CACHE_MODE_CA, 0;
    /// The maximum dynamic shared memory per block of a launch, in bytes. The default is 48 KiB minus
    /// the static shared memory. Static and dynamic shared memory together must not exceed the device's
    /// [`MAX_SHARED_MEMORY_PER_BLOCK_OPTIN`](crate::device::attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN).
    MAX_DYNAMIC_SHARED_BYTES: u32, true = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 0;
    /// The preferred shared memory carveout.
    CARVEOUT: Carveout, true = CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 0;
    /// Whether a launch must specify a cluster size.
    CLUSTER_SIZE_MUST_BE_SET: bool, false = CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, 11080;
    /// The required cluster size in blocks along x, or 0 if none is required. Set all three dimensions
    /// or none. The driver checks them at a launch, and refuses to change a size that was set at
    /// compile time (`CUDA_ERROR_NOT_PERMITTED`).
    REQUIRED_CLUSTER_WIDTH: u32, true = CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 11080;
    /// The required cluster size in blocks along y. See [`REQUIRED_CLUSTER_WIDTH`].
    REQUIRED_CLUSTER_HEIGHT: u32, true = CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, 11080;
    /// The required cluster size in blocks along z. See [`REQUIRED_CLUSTER_WIDTH`].
    REQUIRED_CLUSTER_DEPTH: u32, true = CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, 11080;
    /// Whether clusters may be larger than the size that every device with clusters supports. A launch
    /// may then work only on some devices.
    NON_PORTABLE_CLUSTER_SIZE_ALLOWED: bool, true =
        CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 11080;
    /// How the blocks of clusters are distributed over the SMs. This is a preference.
    CLUSTER_SCHEDULING_POLICY: CUclusterSchedulingPolicy, true =
        CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, 11080;
    /// Whether device code may update the kernel's node in a graph.
    DEVICE_NODE_UPDATE_SUPPORTED: bool, false =
        CU_FUNC_ATTRIBUTE_DEVICE_NODE_UPDATE_SUPPORTED, 13030;
    /// Whether blocks may have more shared memory than every device of the architecture supports.
    SHARED_MEMORY_MODE: CUsharedMemoryMode, true = CU_FUNC_ATTRIBUTE_SHARED_MEMORY_MODE, 13040;
}

impl Kernel {
    /// Returns a [`kernel_attribute`](self). Calls `cuFuncGetAttribute`.
    ///
    /// # Errors
    /// [`Invalid::UnknownAttribute`](crate::Invalid::UnknownAttribute) if the driver is older than the
    /// attribute.
    ///
    /// Since CUDA 2.2. Raw: [`cuFuncGetAttribute`](fn@cuda_sys::cuFuncGetAttribute).
    #[doc(alias = "cuFuncGetAttribute")]
    pub fn attribute<T: KernelAttributeValue, const SETTABLE: bool>(
        &self,
        attribute: KernelAttribute<T, SETTABLE>,
    ) -> Result<T> {
        // SAFETY: the function is alive, and `out` passes a valid pointer.
        let value = out_without_current(self.context(), |place| unsafe {
            answer!(cuFuncGetAttribute(place, attribute.raw, self.as_raw()))
        })
        .map_err(|error| explain_newer(error, attribute.name, attribute.since()))?;
        Ok(T::from_raw(value))
    }

    /// Sets a [`kernel_attribute`](self) that can be set. Calls `cuFuncSetAttribute`.
    ///
    /// The value applies to the kernel in its context: to all clones, to other handles of the same
    /// kernel, and to later launches on any thread. Code that shares a kernel must therefore agree on
    /// the value. At worst, a launch fails or uses other clusters, which the safety conditions of a
    /// launch cover.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if the value exceeds the device's limits;
    /// [`Invalid::UnknownAttribute`](crate::Invalid::UnknownAttribute) if the driver is older than the
    /// attribute.
    ///
    /// Since CUDA 9.0. Raw: [`cuFuncSetAttribute`](fn@cuda_sys::cuFuncSetAttribute).
    ///
    /// ```compile_fail,E0308
    /// # fn f(kernel: cuda_safe::Kernel) {
    /// // The compiler chose the number of registers, so it cannot be set.
    /// let _ = kernel.set_attribute(cuda_safe::module::attribute::REGISTERS, 32);
    /// # }
    /// ```
    #[doc(alias = "cuFuncSetAttribute")]
    pub fn set_attribute<T: KernelAttributeValue>(
        &self,
        attribute: KernelAttribute<T, true>,
        value: T,
    ) -> Result<()> {
        let value = value.into_raw();
        without_current(self.context(), || {
            // SAFETY: the function is alive. The other arguments are numbers.
            unsafe { answer!(cuFuncSetAttribute(self.as_raw(), attribute.raw, value)) }
        })
        .map_err(|error| explain_newer(error, attribute.name, attribute.since()))
    }

    /// Sets the cache preference of the kernel. Calls `cuFuncSetCacheConfig`.
    ///
    /// The value applies to all launches of the kernel. [`CachePreference::None`] selects the
    /// preference of the context
    /// ([`Context::set_cache_preference`](crate::Context::set_cache_preference)). [`CARVEOUT`]
    /// expresses the same in percent.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for an [other](CachePreference::Other) value that the driver does not
    /// know.
    ///
    /// Since CUDA 3.0. Raw: [`cuFuncSetCacheConfig`](fn@cuda_sys::cuFuncSetCacheConfig).
    #[doc(alias = "cuFuncSetCacheConfig")]
    #[inline]
    pub fn set_cache_preference(&self, preference: CachePreference) -> Result<()> {
        without_current(self.context(), || {
            // SAFETY: the function is alive. The other argument is a number.
            unsafe { answer!(cuFuncSetCacheConfig(self.as_raw(), preference.raw())) }
        })
    }

    /// Loads the kernel's code onto the device now. Calls `cuFuncLoad`.
    ///
    /// With [lazy loading](crate::module::LoadingMode), the first launch then does not have to load it.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`; the driver is too old.
    ///
    /// Since CUDA 12.4. Raw: [`cuFuncLoad`](fn@cuda_sys::cuFuncLoad).
    #[doc(alias = "cuFuncLoad")]
    #[inline]
    pub fn load(&self) -> Result<()> {
        without_current(self.context(), || {
            // SAFETY: the function is alive.
            unsafe { answer!(cuFuncLoad(self.as_raw())) }
        })
    }

    /// Returns whether the kernel's code is loaded on the device. Calls `cuFuncIsLoaded`.
    ///
    /// # Errors
    /// The driver is too old.
    ///
    /// Since CUDA 12.4. Raw: [`cuFuncIsLoaded`](fn@cuda_sys::cuFuncIsLoaded).
    #[doc(alias = "cuFuncIsLoaded")]
    #[inline]
    pub fn is_loaded(&self) -> Result<bool> {
        // SAFETY: the function is alive, and `out` passes a valid pointer.
        let state = out_without_current(self.context(), |place| unsafe {
            answer!(cuFuncIsLoaded(place, self.as_raw()))
        })?;
        Ok(state == CUfunctionLoadingState::CU_FUNCTION_LOADING_STATE_LOADED)
    }
}
