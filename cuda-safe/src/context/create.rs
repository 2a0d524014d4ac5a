//! Creation of contexts other than the primary context.

use super::handle::Origin;
use super::{Context, ContextFlags};
use crate::call::{Ownership, Result, call, leak_on_stack, newest_or, out, pop};
use crate::device::Device;
use crate::release::create;
use core::ffi::c_void;
use cuda_sys::{
    CUcigDataType, CUctxCigParam, CUctxCreateParams, CUexecAffinityParam,
    CUexecAffinityParam_st__bindgen_ty_1, CUexecAffinitySmCount, CUexecAffinityType, VdpDevice,
    VdpGetProcAddress,
};

/// The graphics client of a context (CIG, CUDA in Graphics). See [`Context::with_graphics_client`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GraphicsClient {
    /// An `ID3D12CommandQueue*`.
    D3d12CommandQueue(*mut c_void),
    /// Data from another NVIDIA interface.
    NvBlob(*mut c_void),
}

const SM_COUNT: CUexecAffinityType = CUexecAffinityType::CU_EXEC_AFFINITY_TYPE_SM_COUNT;

impl Context {
    /// Creates a context that is separate from the primary context. Calls `cuCtxCreate`.
    ///
    /// The driver pushes the new context onto the context stack of the thread, and this function pops it
    /// again, so that the context is floating.
    ///
    /// Creating and destroying a context takes about 150 ms. Its memory, modules and streams are
    /// separate from those of other contexts, so a library should use the primary context. See also the
    /// [known driver bugs](crate::reference::driver_bugs).
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`, `CUDA_ERROR_INVALID_VALUE` for flags that exclude each other.
    ///
    /// Since CUDA 3.2 (from 12.5 on through `cuCtxCreate_v4`). Raw:
    /// [`cuCtxCreate_v4`](fn@cuda_sys::cuCtxCreate_v4),
    /// [`cuCtxDestroy_v2`](fn@cuda_sys::cuCtxDestroy_v2).
    #[doc(alias = "cuCtxCreate", alias = "cuCtxDestroy")]
    #[inline]
    pub fn new(device: &Device, flags: ContextFlags) -> Result<Self> {
        Self::create_and_pop(device, Origin::Other(Ownership::Owned), |raw| {
            let (flags, number) = (flags.bits(), device.as_raw());
            let no_params = std::ptr::null_mut();
            newest_or(
                // SAFETY: null parameters are allowed, and the other pointer is to a local.
                unsafe { call!(cuCtxCreate_v4(raw, no_params, flags, number)) },
                // SAFETY: the pointer is to a local.
                || unsafe { call!(abi::cuCtxCreate_v2(raw, flags, number)) },
            )
        })
    }

    /// Creates a context whose work runs on about `sm_count` SMs. Calls `cuCtxCreate` with an execution
    /// affinity.
    ///
    /// This is for clients of the NVIDIA Multi-Process Service (MPS).
    /// [`execution_affinity`](Self::execution_affinity) returns the actual number of SMs. Within one
    /// process, [green contexts](crate::green) have the same effect and more features.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new); `CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY` if
    /// [`Device::supports_execution_affinity`] returns false; [`Error::Missing`](crate::Error::Missing).
    ///
    /// Since CUDA 11.4 (from 12.5 on through `cuCtxCreate_v4`). Raw:
    /// [`cuCtxCreate_v4`](fn@cuda_sys::cuCtxCreate_v4).
    #[doc(alias = "cuCtxCreate")]
    #[inline]
    pub fn with_affinity(device: &Device, flags: ContextFlags, sm_count: u32) -> Result<Self> {
        let mut affinity = CUexecAffinityParam {
            type_: SM_COUNT,
            param: CUexecAffinityParam_st__bindgen_ty_1 {
                smCount: CUexecAffinitySmCount { val: sm_count },
            },
        };
        let affinity = &raw mut affinity;
        let mut params = CUctxCreateParams {
            execAffinityParams: affinity,
            numExecAffinityParams: 1,
            cigParams: std::ptr::null_mut(),
        };
        let params = &raw mut params;
        Self::create_and_pop(device, Origin::Other(Ownership::Owned), |raw| {
            let (flags, number) = (flags.bits(), device.as_raw());
            newest_or(
                // SAFETY: the pointers refer to locals; there is one parameter.
                unsafe { call!(cuCtxCreate_v4(raw, params, flags, number)) },
                // SAFETY: as above.
                || unsafe { call!(abi::cuCtxCreate_v3(raw, affinity, 1, flags, number)) },
            )
        })
    }

    /// Creates a context whose work runs in a graphics client. Calls `cuCtxCreate` with CIG parameters.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new); `CUDA_ERROR_NOT_SUPPORTED` if the driver or the system
    /// does not support this; [`Error::Missing`](crate::Error::Missing).
    ///
    /// # Safety
    /// The client has the type that its variant names, and belongs to `device`. It stays alive until
    /// the last clone of the context and every object in it is dropped. (Objects that cannot be
    /// released at that moment are leaked and reported, as described for
    /// [`borrow_raw`](Self::borrow_raw).)
    ///
    /// Since CUDA 12.5. Raw: [`cuCtxCreate_v4`](fn@cuda_sys::cuCtxCreate_v4).
    #[doc(alias = "cuCtxCreate")]
    #[inline]
    pub unsafe fn with_graphics_client(
        device: &Device,
        flags: ContextFlags,
        client: GraphicsClient,
    ) -> Result<Self> {
        let (kind, data) = match client {
            GraphicsClient::D3d12CommandQueue(queue) => {
                (CUcigDataType::CIG_DATA_TYPE_D3D12_COMMAND_QUEUE, queue)
            }
            GraphicsClient::NvBlob(data) => (CUcigDataType::CIG_DATA_TYPE_NV_BLOB, data),
        };
        let mut cig = CUctxCigParam { sharedDataType: kind, sharedData: data };
        let mut params = CUctxCreateParams {
            execAffinityParams: std::ptr::null_mut(),
            numExecAffinityParams: 0,
            cigParams: &raw mut cig,
        };
        let params = &raw mut params;
        Self::create_and_pop(device, Origin::Client, |raw| {
            let (flags, number) = (flags.bits(), device.as_raw());
            // SAFETY: the pointers refer to locals, and the caller guarantees that the client is valid.
            unsafe { call!(cuCtxCreate_v4(raw, params, flags, number)) }
        })
    }

    /// Creates a context for surfaces of VDPAU. Calls `cuVDPAUCtxCreate`. Unverified (from documentation).
    ///
    /// # Errors
    /// Errors of the driver.
    ///
    /// # Safety
    /// `vdpau` is a device of VDPAU, and `get_proc_address` is its function. It exists until the last clone of the context
    /// and everything that was created with it have been dropped.
    ///
    /// Since CUDA 3.1 (through `cuVDPAUCtxCreate_v2` since 3.2). Raw:
    /// [`cuVDPAUCtxCreate_v2`](fn@cuda_sys::cuVDPAUCtxCreate_v2).
    #[doc(alias = "cuVDPAUCtxCreate")]
    #[inline]
    pub unsafe fn with_vdpau(
        device: &Device,
        flags: ContextFlags,
        vdpau: VdpDevice,
        get_proc_address: VdpGetProcAddress,
    ) -> Result<Self> {
        Self::create_and_pop(device, Origin::Client, |raw| {
            let (flags, number) = (flags.bits(), device.as_raw());
            // SAFETY: the pointer refers to a local, and the caller guarantees that the device is valid.
            unsafe { call!(cuVDPAUCtxCreate_v2(raw, flags, number, vdpau, get_proc_address)) }
        })
    }

    /// Calls `create`, which creates and pushes a context, and then pops the context.
    fn create_and_pop(
        device: &Device,
        origin: Origin,
        call: impl FnOnce(*mut cuda_sys::CUcontext) -> Result<()>,
    ) -> Result<Self> {
        let raw = create(call)?;
        let context = Self::from_parts(raw, *device, origin);
        // The driver has pushed the new context.
        if let Err(error) = pop(raw) {
            leak_on_stack(&context);
            return Err(error);
        }
        Ok(context)
    }

    /// Returns the maximum number of SMs that run work of the context. Calls `cuCtxGetExecAffinity`.
    ///
    /// For a context of [`with_affinity`](Self::with_affinity) this is at least the number
    /// that was requested. For other contexts it is the number of all SMs.
    ///
    /// # Errors
    /// The errors of the driver call.
    ///
    /// Since CUDA 11.4. Raw: [`cuCtxGetExecAffinity`](fn@cuda_sys::cuCtxGetExecAffinity).
    #[doc(alias = "cuCtxGetExecAffinity")]
    #[inline]
    pub fn execution_affinity(&self) -> Result<u32> {
        let _current = self.enter()?;
        // SAFETY: `out` passes a valid pointer, and the current context is this one.
        let affinity = out(|place| unsafe { call!(cuCtxGetExecAffinity(place, SM_COUNT)) })?;
        // SAFETY: the union has one member, which the driver has set.
        let count = unsafe { affinity.param.smCount };
        Ok(count.val)
    }
}

impl Device {
    /// Returns whether contexts can be [created with an affinity](Context::with_affinity), which
    /// only clients of MPS can do. Calls `cuDeviceGetExecAffinitySupport`.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// Since CUDA 11.4. Raw:
    /// [`cuDeviceGetExecAffinitySupport`](fn@cuda_sys::cuDeviceGetExecAffinitySupport).
    #[doc(alias = "cuDeviceGetExecAffinitySupport")]
    #[inline]
    pub fn supports_execution_affinity(&self) -> Result<bool> {
        // SAFETY: `out` passes a valid pointer.
        let is_supported = out(|place| unsafe {
            call!(cuDeviceGetExecAffinitySupport(place, SM_COUNT, self.as_raw()))
        })?;
        Ok(is_supported != 0)
    }
}
