//! What a kernel can be asked, and what it can be set to, each with its type.
//!
//! ```no_run
//! use cuda_safe::{Context, Device, Module, attribute, kernel_attribute};
//!
//! # let ptx = "";
//! let device = Device::get(0)?;
//! let kernel = Module::from_ptx(&Context::primary(&device)?, ptx)?.kernel("gemm")?;
//! println!("{} registers a thread", kernel.attribute(kernel_attribute::REGISTERS)?);
//!
//! // A block may have more than 48 KiB of shared memory if the kernel is set to it.
//! let most = device.attribute(attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
//! let own = kernel.attribute(kernel_attribute::STATIC_SHARED_BYTES)?;
//! kernel.set_attribute(kernel_attribute::MAX_DYNAMIC_SHARED_BYTES, most - own)?;
//! # Ok::<_, cuda_safe::Error>(())
//! ```

use super::Kernel;
use crate::call::{answer, without_current};
use crate::context::CachePreference;
use crate::device::attribute::explain_newer;
use crate::error::Result;
use cuda_sys::{
    CUclusterSchedulingPolicy, CUfunction_attribute, CUfunctionLoadingState, CUsharedMemoryMode,
    CudaVersion,
};
use std::fmt;
use std::marker::PhantomData;

/// A kernel's attribute whose value is a `T`, and whether it can be set. The constants of
/// [this module](self) are all there are.
pub struct KernelAttribute<T, const SETTABLE: bool = false> {
    raw: CUfunction_attribute,
    name: &'static str,
    /// 0 where every driver that these bindings know has it.
    since: i32,
    value: PhantomData<fn(T) -> T>,
}

impl<T, const SETTABLE: bool> KernelAttribute<T, SETTABLE> {
    /// The driver's number for it.
    pub fn raw(&self) -> CUfunction_attribute {
        self.raw
    }

    /// The name of its constant.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The first CUDA version that knows it; none for those of 11.7 and before.
    pub fn since(&self) -> Option<CudaVersion> {
        (self.since != 0).then_some(CudaVersion::from_number(self.since))
    }
}

impl<T, const SETTABLE: bool> Clone for KernelAttribute<T, SETTABLE> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const SETTABLE: bool> Copy for KernelAttribute<T, SETTABLE> {}

impl<T, const SETTABLE: bool> fmt::Debug for KernelAttribute<T, SETTABLE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// How much of the on-chip memory is to be shared memory rather than L1 cache: a hint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Carveout {
    /// The driver's choice.
    #[default]
    Default,
    /// So many percent of what can be shared memory at most; the driver takes the next possible.
    Percent(u8),
    /// What a newer driver answered, by its number.
    Other(i32),
}

/// A type that attributes of kernels have. Sealed: the driver takes and gives all of them as an
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

/// The types of attributes, and how each is read and written.
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
    // More than an `int` holds is more than any device has: the driver says so.
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

/// The rows become constants.
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
    /// Threads of a block, at most: what the kernel's registers leave room for on this device.
    MAX_THREADS_PER_BLOCK: u32, false = CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0;
    /// Shared memory that the kernel's own variables take in each block, in bytes.
    STATIC_SHARED_BYTES: u32, false = CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 0;
    /// Constant memory of the program's that the kernel needs, in bytes.
    CONST_BYTES: u32, false = CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, 0;
    /// Local memory of each thread, in bytes: what has no room in registers.
    LOCAL_BYTES: u32, false = CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 0;
    /// Registers of each thread.
    REGISTERS: u32, false = CU_FUNC_ATTRIBUTE_NUM_REGS, 0;
    /// The virtual architecture that it was compiled for, as ten times the major version and the
    /// minor: 80 for `compute_80`.
    PTX_VERSION: u32, false = CU_FUNC_ATTRIBUTE_PTX_VERSION, 0;
    /// The architecture of the code that runs, counted in the same way: 90 on an H200.
    BINARY_VERSION: u32, false = CU_FUNC_ATTRIBUTE_BINARY_VERSION, 0;
    /// Whether it was compiled to cache global loads in L1 (`-dlcm=ca`).
    CACHE_MODE_CA: bool, false = CU_FUNC_ATTRIBUTE_CACHE_MODE_CA, 0;
    /// Dynamic shared memory that a launch may give a block, in bytes: 48 KiB less its own
    /// variables unless set to more. With those it stays within
    /// [`MAX_SHARED_MEMORY_PER_BLOCK_OPTIN`](crate::attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
    /// of the device.
    MAX_DYNAMIC_SHARED_BYTES: u32, true = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 0;
    /// The preferred share of shared memory in the on-chip memory.
    CARVEOUT: Carveout, true = CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 0;
    /// Whether a launch has to name the size of its clusters.
    CLUSTER_SIZE_MUST_BE_SET: bool, false = CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, 11080;
    /// Blocks of a cluster along x; 0 where none are required. Set all three, or none; the driver
    /// checks them at a launch, and refuses to change what was compiled in
    /// (`CUDA_ERROR_NOT_PERMITTED`).
    REQUIRED_CLUSTER_WIDTH: u32, true = CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 11080;
    /// Blocks of a cluster along y, as [`REQUIRED_CLUSTER_WIDTH`].
    REQUIRED_CLUSTER_HEIGHT: u32, true = CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, 11080;
    /// Blocks of a cluster along z, as [`REQUIRED_CLUSTER_WIDTH`].
    REQUIRED_CLUSTER_DEPTH: u32, true = CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, 11080;
    /// Whether clusters may be larger than every device with clusters has them: a launch may then
    /// work on some devices only.
    NON_PORTABLE_CLUSTER_SIZE_ALLOWED: bool, true =
        CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 11080;
    /// How blocks of clusters are spread over the multiprocessors: a preference.
    CLUSTER_SCHEDULING_POLICY: CUclusterSchedulingPolicy, true =
        CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, 11080;
    /// Whether kernels may change its node in a graph.
    DEVICE_NODE_UPDATE_SUPPORTED: bool, false =
        CU_FUNC_ATTRIBUTE_DEVICE_NODE_UPDATE_SUPPORTED, 13030;
    /// Whether blocks may have more shared memory than every device of the architecture has.
    SHARED_MEMORY_MODE: CUsharedMemoryMode, true = CU_FUNC_ATTRIBUTE_SHARED_MEMORY_MODE, 13040;
}

impl Kernel {
    /// `cuFuncGetAttribute(&value, attribute, kernel)`: one of the [`kernel_attribute`](self)s.
    ///
    /// # Errors
    /// [`Invalid::UnknownAttribute`](crate::Invalid::UnknownAttribute) where the driver is older
    /// than the attribute.
    ///
    /// Since CUDA 2.2. Raw: [`cuFuncGetAttribute`](fn@cuda_sys::cuFuncGetAttribute).
    #[doc(alias = "cuFuncGetAttribute")]
    pub fn attribute<T: KernelAttributeValue, const SETTABLE: bool>(
        &self,
        attribute: KernelAttribute<T, SETTABLE>,
    ) -> Result<T> {
        let mut value = 0;
        let place = &raw mut value;
        without_current(self.context(), || {
            // SAFETY: the function is alive, and the pointer is to a local.
            unsafe { answer!(cuFuncGetAttribute(place, attribute.raw, self.as_raw())) }
        })
        .map_err(|error| explain_newer(error, attribute.name, attribute.since()))?;
        Ok(T::from_raw(value))
    }

    /// `cuFuncSetAttribute(kernel, attribute, value)`: sets one of the
    /// [`kernel_attribute`](self)s that can be set.
    ///
    /// It is a property of the kernel in its context: for all clones, for other handles of the
    /// same kernel, and for what any thread launches after. (So it is for whoever shares a kernel
    /// to agree; nothing worse comes of it than a launch that is refused or runs in other
    /// clusters, which the promise of a launch includes.)
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for more than the device has;
    /// [`Invalid::UnknownAttribute`](crate::Invalid::UnknownAttribute) as for
    /// [`attribute`](Self::attribute).
    ///
    /// Since CUDA 9.0. Raw: [`cuFuncSetAttribute`](fn@cuda_sys::cuFuncSetAttribute).
    ///
    /// ```compile_fail,E0308
    /// # fn f(kernel: cuda_safe::Kernel) {
    /// // What the compiler decided cannot be set.
    /// let _ = kernel.set_attribute(cuda_safe::kernel_attribute::REGISTERS, 32);
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
            // SAFETY: the function is alive; two numbers.
            unsafe { answer!(cuFuncSetAttribute(self.as_raw(), attribute.raw, value)) }
        })
        .map_err(|error| explain_newer(error, attribute.name, attribute.since()))
    }

    /// `cuFuncSetCacheConfig(kernel, config)`: the kernel's own preference, for all who launch it;
    /// [none](CachePreference::None) is the context's
    /// ([`Context::set_cache_preference`](crate::Context::set_cache_preference)).
    /// [`CARVEOUT`] says the same in percent.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for an [other](CachePreference::Other) one that the driver does not know.
    ///
    /// Since CUDA 3.0. Raw: [`cuFuncSetCacheConfig`](fn@cuda_sys::cuFuncSetCacheConfig).
    #[doc(alias = "cuFuncSetCacheConfig")]
    pub fn set_cache_preference(&self, preference: CachePreference) -> Result<()> {
        without_current(self.context(), || {
            // SAFETY: the function is alive; a number.
            unsafe { answer!(cuFuncSetCacheConfig(self.as_raw(), preference.raw())) }
        })
    }

    /// `cuFuncLoad(kernel)`: loads the kernel's code onto the device now, where it is loaded
    /// [lazily](crate::LoadingMode): then its first launch does not have to.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`; the driver is older.
    ///
    /// Since CUDA 12.4. Raw: [`cuFuncLoad`](fn@cuda_sys::cuFuncLoad).
    #[doc(alias = "cuFuncLoad")]
    pub fn load(&self) -> Result<()> {
        without_current(self.context(), || {
            // SAFETY: the function is alive.
            unsafe { answer!(cuFuncLoad(self.as_raw())) }
        })
    }

    /// `cuFuncIsLoaded(&state, kernel)`: whether the kernel's code is on the device.
    ///
    /// # Errors
    /// The driver is older.
    ///
    /// Since CUDA 12.4. Raw: [`cuFuncIsLoaded`](fn@cuda_sys::cuFuncIsLoaded).
    #[doc(alias = "cuFuncIsLoaded")]
    pub fn is_loaded(&self) -> Result<bool> {
        let mut state = CUfunctionLoadingState::default();
        let place = &raw mut state;
        without_current(self.context(), || {
            // SAFETY: the function is alive, and the pointer is to a local.
            unsafe { answer!(cuFuncIsLoaded(place, self.as_raw())) }
        })?;
        Ok(state == CUfunctionLoadingState::CU_FUNCTION_LOADING_STATE_LOADED)
    }
}
