//! Contexts of one's own.

use super::end::Origin;
use super::guard;
use super::{Context, ContextFlags};
use crate::call::{call, newest_or};
use crate::device::Device;
use crate::error::Result;
use crate::hold::Hold;
use crate::release;
use core::ffi::c_void;
use cuda_sys::{
    CUcigDataType, CUctxCigParam, CUctxCreateParams, CUexecAffinityParam,
    CUexecAffinityParam_st__bindgen_ty_1, CUexecAffinitySmCount, CUexecAffinityType,
};

/// What a graphics client shares with a context that works in it (CIG: CUDA in graphics).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GraphicsClient {
    /// An `ID3D12CommandQueue*`.
    D3d12CommandQueue(*mut c_void),
    /// Data that another of NVIDIA's interfaces gave.
    NvBlob(*mut c_void),
}

impl Context {
    /// `cuCtxCreate(&context, flags, device)`: a context of one's own, apart from the primary one.
    /// It floats: the driver pushes it on the thread's stack, and it is popped again.
    ///
    /// Some 150 ms to make and to destroy; its memory, modules and streams are apart from those of
    /// other contexts, so a library is better served by the primary context: see
    /// [what drivers do wrong](crate#what-drivers-do-wrong), too.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`, `CUDA_ERROR_INVALID_VALUE` for flags that exclude each other.
    ///
    /// Since CUDA 3.2 (from 12.5 on through `cuCtxCreate_v4`). Raw:
    /// [`cuCtxCreate_v4`](fn@cuda_sys::cuCtxCreate_v4), [`cuCtxDestroy_v2`](fn@cuda_sys::cuCtxDestroy_v2).
    #[doc(alias = "cuCtxCreate")]
    #[doc(alias = "cuCtxDestroy")]
    pub fn create(device: &Device, flags: ContextFlags) -> Result<Self> {
        Self::create_by(device, Origin::Other(Hold::Owned), |raw| {
            let (flags, number) = (flags.bits(), device.as_raw());
            let plain = std::ptr::null_mut();
            newest_or(
                // SAFETY: no parameters is a plain context; the other pointer is to a local.
                unsafe { call!(cuCtxCreate_v4(raw, plain, flags, number)) },
                // SAFETY: the pointer is to a local.
                || unsafe { call!(abi::cuCtxCreate_v2(raw, flags, number)) },
            )
        })
    }

    /// `cuCtxCreate(&context, {sm_count}, flags, device)`: as [`create`](Self::create), for a client
    /// of NVIDIA's multi-process service (MPS): work of the context runs on about so many
    /// multiprocessors. [`execution_affinity`](Self::execution_affinity) tells how many those are.
    ///
    /// Within one process, [green contexts](crate::green) do this and more.
    ///
    /// # Errors
    /// As for [`create`](Self::create); `CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY` where
    /// [`Device::supports_execution_affinity`] says no; the driver is older.
    ///
    /// Since CUDA 11.4 (from 12.5 on through `cuCtxCreate_v4`). Raw:
    /// [`cuCtxCreate_v4`](fn@cuda_sys::cuCtxCreate_v4).
    #[doc(alias = "cuCtxCreate")]
    pub fn create_with_affinity(
        device: &Device,
        flags: ContextFlags,
        sm_count: u32,
    ) -> Result<Self> {
        let mut affinity = CUexecAffinityParam {
            type_: CUexecAffinityType::CU_EXEC_AFFINITY_TYPE_SM_COUNT,
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
        Self::create_by(device, Origin::Other(Hold::Owned), |raw| {
            let (flags, number) = (flags.bits(), device.as_raw());
            newest_or(
                // SAFETY: the pointers are to locals; there is one parameter.
                unsafe { call!(cuCtxCreate_v4(raw, params, flags, number)) },
                // SAFETY: as above.
                || unsafe { call!(abi::cuCtxCreate_v3(raw, affinity, 1, flags, number)) },
            )
        })
    }

    /// `cuCtxCreate(&context, {client}, flags, device)`: as [`create`](Self::create), for work that
    /// runs among that of a graphics client.
    ///
    /// # Errors
    /// As for [`create`](Self::create); `CUDA_ERROR_NOT_SUPPORTED` where the driver or the system has
    /// no such thing; the driver is older.
    ///
    /// # Safety
    /// The client is what its kind says, of this device, and stays alive until the last clone of
    /// the context, and everything made in it, is gone. (What cannot be released in that moment is
    /// leaked and reported, as for [`borrow_raw`](Self::borrow_raw).)
    ///
    /// Since CUDA 12.5. Raw: [`cuCtxCreate_v4`](fn@cuda_sys::cuCtxCreate_v4).
    #[doc(alias = "cuCtxCreate")]
    pub unsafe fn create_for_graphics(
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
        let mut cig = CUctxCigParam {
            sharedDataType: kind,
            sharedData: data,
        };
        let mut params = CUctxCreateParams {
            execAffinityParams: std::ptr::null_mut(),
            numExecAffinityParams: 0,
            cigParams: &raw mut cig,
        };
        let params = &raw mut params;
        Self::create_by(device, Origin::Client, |raw| {
            let (flags, number) = (flags.bits(), device.as_raw());
            // SAFETY: the pointers are to locals; the client is the caller's promise.
            unsafe { call!(cuCtxCreate_v4(raw, params, flags, number)) }
        })
    }

    /// Makes a context float that `create` makes, and pushes.
    fn create_by(
        device: &Device,
        origin: Origin,
        create: impl FnOnce(*mut cuda_sys::CUcontext) -> Result<()>,
    ) -> Result<Self> {
        release::drain();
        let mut raw = std::ptr::null_mut();
        create(&raw mut raw)?;
        let context = Self::own(raw, *device, origin);
        // Creating has pushed it.
        if let Err(error) = guard::pop(raw) {
            guard::leak_on_stack(&context);
            return Err(error);
        }
        Ok(context)
    }

    /// `cuCtxGetExecAffinity(&affinity, SM_COUNT)`: on how many multiprocessors work of the context
    /// runs at most: for one of [`create_with_affinity`](Self::create_with_affinity) as many as it was
    /// made with, or more; else all.
    ///
    /// # Errors
    /// Those of the driver.
    ///
    /// Since CUDA 11.4. Raw: [`cuCtxGetExecAffinity`](fn@cuda_sys::cuCtxGetExecAffinity).
    #[doc(alias = "cuCtxGetExecAffinity")]
    pub fn execution_affinity(&self) -> Result<u32> {
        let mut affinity = CUexecAffinityParam {
            type_: CUexecAffinityType::CU_EXEC_AFFINITY_TYPE_SM_COUNT,
            param: CUexecAffinityParam_st__bindgen_ty_1 {
                smCount: CUexecAffinitySmCount { val: 0 },
            },
        };
        let kind = affinity.type_;
        let _current = self.enter()?;
        // SAFETY: the pointer is to a local, and the current context is this one.
        unsafe { call!(cuCtxGetExecAffinity(&raw mut affinity, kind)) }?;
        // SAFETY: the union has one member, which was set before and by the driver.
        let count = unsafe { affinity.param.smCount };
        Ok(count.val)
    }
}

impl Device {
    /// `cuDeviceGetExecAffinitySupport(&can, SM_COUNT, device)`: whether contexts can be
    /// [created with an affinity](Context::create_with_affinity): for clients of MPS.
    ///
    /// # Errors
    /// Only those that any call may have: see [`Error`](crate::Error).
    ///
    /// Since CUDA 11.4. Raw:
    /// [`cuDeviceGetExecAffinitySupport`](fn@cuda_sys::cuDeviceGetExecAffinitySupport).
    #[doc(alias = "cuDeviceGetExecAffinitySupport")]
    pub fn supports_execution_affinity(&self) -> Result<bool> {
        let mut can = 0;
        let kind = CUexecAffinityType::CU_EXEC_AFFINITY_TYPE_SM_COUNT;
        // SAFETY: the pointer is to a local.
        unsafe {
            call!(cuDeviceGetExecAffinitySupport(
                &raw mut can,
                kind,
                self.as_raw()
            ))
        }?;
        Ok(can != 0)
    }
}
