//! Loading compiled code into a context.

use crate::architecture::{Architecture, Target};
use crate::call::{supported_architectures, version};
use crate::compiled::Compiled;
use crate::error::{Error, Invalid, NotLoadable, Result};
use cuda_safe::module::JitOptions;
use cuda_safe::sys::CUresult;
use cuda_safe::sys::image::fat_binary;
use cuda_safe::{Context, Device, Module};

impl Architecture {
    /// Returns the architecture of a device.
    ///
    /// # Errors
    /// Only those of every call of the driver.
    #[inline]
    pub fn of_device(device: &Device) -> Result<Self> {
        let (major, minor) = device.compute_capability()?;
        let architecture = Self::from_number(major.saturating_mul(10).saturating_add(minor));
        // Every architecture that NVIDIA has released has such a number.
        Ok(architecture.unwrap_or(Self::new(u16::MAX, 0)))
    }
}

impl Target {
    /// Returns the target for a device: a cubin for exactly its architecture.
    ///
    /// If NVRTC is older than the device, the target is PTX for the newest architecture that NVRTC supports and
    /// the device can run, which the driver compiles for the device. A cubin is preferred because it also works if
    /// NVRTC has a newer minor version than the driver. A driver rejects the PTX of a newer version.
    ///
    /// # Errors
    /// [`Error::Load`] if NVRTC is not installed; [`Invalid::UnsupportedArchitecture`] if it no longer supports
    /// the device.
    #[inline]
    pub fn of_device(device: &Device) -> Result<Self> {
        let of_device = Architecture::of_device(device)?;
        let supported = supported_architectures()?;
        match supported.iter().rfind(|other| other.runs_ptx_on(of_device)) {
            Some(other) if *other == of_device => Ok(Self::Cubin(of_device)),
            Some(older) => Ok(Self::Ptx(*older)),
            None => Err(Invalid::UnsupportedArchitecture {
                architecture: of_device,
                supported,
                version: version()?,
            }
            .into()),
        }
    }
}

impl Compiled {
    /// Loads the code into a context: the cubin if the device can run it, otherwise the PTX.
    ///
    /// The driver gets both, as a fat binary, if there are both. A software driver that executes PTX only can run it.
    ///
    /// # Errors
    /// [`Error::NotLoadable`] if the code is for other devices, or needs a newer driver; [`Error::Driver`] with
    /// the errors of [`Module::from_ptx`]; [`Invalid::NoCode`] for LTO-IR.
    #[inline]
    pub fn load(&self, context: &Context) -> Result<Module> {
        self.load_with(context, &JitOptions::default())
    }

    /// Loads the code into a context, with options for the compiler of the driver, which it uses for PTX. See
    /// [`load`](Self::load).
    ///
    /// # Errors
    /// See [`load`](Self::load) and [`Module::from_ptx_with`].
    #[inline]
    pub fn load_with(&self, context: &Context, options: &JitOptions) -> Result<Module> {
        if self.cubin.is_none() && self.ptx.is_none() {
            return Err(Invalid::NoCode {
                operation: "loading",
                needed: "a cubin or PTX",
                target: self.target.to_string(),
            }
            .into());
        }
        let device = Architecture::of_device(&context.device())?;
        let architecture = self.target.architecture();
        let mut not_loadable = NotLoadable {
            target: self.target,
            device,
            driver: cuda_safe::version()?,
            cubin: None,
            ptx: None,
        };
        if let Some(cubin) = self.cubin.as_ref().filter(|_| architecture.runs_cubin_on(device)) {
            let both = self
                .ptx
                .as_ref()
                .and_then(|ptx| fat_binary(cubin, ptx, architecture.suffix()).ok());
            let image = both.as_deref().unwrap_or(cubin);
            // SAFETY: NVIDIA's compiler or linker has made the code, and nothing has changed it.
            match unsafe { Module::from_image_with(context, image, options) } {
                Err(error) if is_of_another_driver(&error) => not_loadable.cubin = Some(error),
                result => return Ok(result?),
            }
        }
        if let Some(ptx) = self.ptx.as_ref().filter(|_| architecture.runs_ptx_on(device)) {
            match Module::from_ptx_with(context, ptx, options) {
                Err(error @ cuda_safe::Error::PtxTooNew { .. }) => not_loadable.ptx = Some(error),
                result => return Ok(result?),
            }
        }
        Err(Error::NotLoadable(Box::new(not_loadable)))
    }
}

/// Returns whether an error says that a driver does not know the format or the architecture of a cubin.
#[inline]
fn is_of_another_driver(error: &cuda_safe::Error) -> bool {
    matches!(
        error.code(),
        Some(
            CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU
                | CUresult::CUDA_ERROR_INVALID_IMAGE
                | CUresult::CUDA_ERROR_INVALID_SOURCE
                | CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION
        )
    )
}
