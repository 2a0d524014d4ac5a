//! The driver that everything here calls: the machine's, or one that does nothing.

use crate::Fallible;
use cuda_safe::Device;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::c_void;
use std::path::Path;

/// `null.c`, compiled.
static NULL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libcuda-null.so"));

pub(crate) struct Driver {
    /// What it is, for people; none of the one that does nothing.
    real: Option<String>,
    /// For `dlsym`.
    pub(crate) handle: *mut c_void,
}

impl Driver {
    pub(crate) fn is_null(&self) -> bool {
        self.real.is_none()
    }

    pub(crate) fn name(&self) -> &str {
        let null = "no GPU: a driver that does nothing, so that only the layers themselves cost";
        self.real.as_deref().unwrap_or(null)
    }
}

/// Opens the machine's driver, unless there is none, or `null` is asked for.
pub(crate) fn open(null: bool) -> Fallible<Driver> {
    let mut driver = open_unseen(null)?;
    if let Some(real) = &mut driver.real {
        let version = cuda_sys::driver_version()?;
        let name = Device::get(0)?.name()?;
        *real = format!("{name}, driver for CUDA {version}");
    }
    Ok(driver)
}

/// The same without a look at what it has.
pub(crate) fn open_unseen(null: bool) -> Fallible<Driver> {
    // SAFETY: this is the driver's library.
    let real = unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW | RTLD_GLOBAL) };
    if let (Ok(library), false) = (real, null) {
        // SAFETY: opened by the system's name of the driver.
        unsafe { cuda_sys::load_from("libcuda.so.1") }?;
        return Ok(Driver {
            real: Some(String::new()),
            handle: library.into_raw(),
        });
    }
    let path = std::env::temp_dir().join(format!("libcuda-null-{}.so", std::process::id()));
    std::fs::write(&path, NULL)?;
    let opened = open_null(&path);
    // It stays open.
    std::fs::remove_file(&path)?;
    Ok(Driver {
        real: None,
        handle: opened?,
    })
}

/// Its soname is `libcuda.so`: whoever opens that by name later (cudarc does) gets this one.
fn open_null(path: &Path) -> Fallible<*mut c_void> {
    // SAFETY: the library was made from null.c, and runs nothing when it is opened.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }?;
    // SAFETY: its functions have the ABI of the driver's, as far as they look at arguments.
    unsafe { cuda_sys::load_from(path) }?;
    Ok(library.into_raw())
}
