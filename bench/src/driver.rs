//! The driver that the benchmark uses: the machine's, or one that does nothing.

use crate::Fallible;
use cuda_safe::Device;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::c_void;
use std::path::Path;

/// The compiled `null.c`.
static NULL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libcuda-null.so"));

pub(crate) struct Driver {
    /// A description of the driver. `None` for the driver that does nothing.
    real: Option<String>,
    /// The handle for `dlsym`.
    pub(crate) handle: *mut c_void,
}

impl Driver {
    pub(crate) fn is_null(&self) -> bool {
        self.real.is_none()
    }

    pub(crate) fn name(&self) -> &str {
        let null = "no GPU: a driver that does nothing, so only the layers are measured";
        self.real.as_deref().unwrap_or(null)
    }
}

/// Opens the machine's driver, or the driver that does nothing if there is none or if `null` is set.
pub(crate) fn open(null: bool) -> Fallible<Driver> {
    let mut driver = open_unseen(null)?;
    if let Some(real) = &mut driver.real {
        let version = cuda_sys::driver_version()?;
        let name = Device::get(0)?.name()?;
        *real = format!("{name}, driver for CUDA {version}");
    }
    Ok(driver)
}

/// The same as [`open`], without querying the driver's name and version.
pub(crate) fn open_unseen(null: bool) -> Fallible<Driver> {
    // SAFETY: the library is the driver.
    let real = unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW | RTLD_GLOBAL) };
    if let (Ok(library), false) = (real, null) {
        // SAFETY: the library has the system's name of the driver.
        unsafe { cuda_sys::load_from("libcuda.so.1") }?;
        return Ok(Driver { real: Some(String::new()), handle: library.into_raw() });
    }
    let path = std::env::temp_dir().join(format!("libcuda-null-{}.so", std::process::id()));
    std::fs::write(&path, NULL)?;
    let opened = open_null(&path);
    // The library stays open.
    std::fs::remove_file(&path)?;
    Ok(Driver { real: None, handle: opened? })
}

/// Opens the driver that does nothing. Its soname is `libcuda.so`, so a library that later opens that
/// name, as cudarc does, gets this driver.
fn open_null(path: &Path) -> Fallible<*mut c_void> {
    // SAFETY: the library was built from null.c and runs no code when it is opened.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }?;
    // SAFETY: its functions have the ABI of the driver's functions, for the arguments that they use.
    unsafe { cuda_sys::load_from(path) }?;
    Ok(library.into_raw())
}
