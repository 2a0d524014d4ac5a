//! The driver that is played: started by the first call of any function.

use crate::{errors, exports, lookup};
use core::ffi::c_void;
use core::mem::transmute;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use cuda_sim::Profile;
use cuda_sys::{CudaVersion, Function};
use std::sync::LazyLock;

/// A function of any type, to be called as what it is.
pub(crate) type Entry = unsafe extern "C" fn();

pub(crate) struct Driver {
    pub(crate) version: CudaVersion,
    /// By the functions' places: what plays each, if this driver has it.
    played: Vec<Option<Entry>>,
    /// By the functions' places: what this library exports under its name.
    exported: Vec<Option<Entry>>,
}

static DRIVER: LazyLock<Driver> = LazyLock::new(start);

/// What `CUDA_SIM` asks for.
pub(crate) static PROFILE: LazyLock<Profile> = LazyLock::new(profile);

/// After so many calls the account of them starts anew.
const CALLS: u32 = 1 << 16;

fn start() -> Driver {
    let version = PROFILE.driver();
    if let Err(why) = cuda_sim::install(PROFILE.clone()) {
        // Every function is then missing: this library's own copy of the crates cannot be in use.
        eprintln!("cuda-sim: {why}");
    }
    let played = |function: Function| {
        let address = match own(function.symbol()) {
            Some(own) if function.since() <= version => own,
            Some(_) => return None,
            None => function.address().ok()?,
        };
        Some(entry_of(address))
    };
    let mut exported = vec![None; Function::all().len()];
    for (index, address) in exports::all() {
        exported[index] = NonNull::new(address.cast_mut()).map(entry_of);
    }
    Driver {
        version,
        played: Function::all().map(played).collect(),
        exported,
    }
}

fn profile() -> Profile {
    let Some(name) = std::env::var_os("CUDA_SIM") else {
        return Profile::h200();
    };
    name.to_string_lossy().parse().unwrap_or_else(|why| {
        eprintln!("cuda-sim: CUDA_SIM: {why}; there is no device");
        Profile::h200().with_devices(0)
    })
}

fn entry_of(address: NonNull<c_void>) -> Entry {
    // SAFETY: all addresses here are those of functions, and an entry is called only as the type
    // of its symbol, which is what each of them is.
    unsafe { transmute::<NonNull<c_void>, Entry>(address) }
}

pub(crate) fn driver() -> &'static Driver {
    &DRIVER
}

/// What plays the function, or nothing if the driver does not have it.
pub(crate) fn entry(index: usize) -> Option<Entry> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // Nobody asks for the account of calls here, and programs may make very many.
    if COUNT.fetch_add(1, Ordering::Relaxed) % CALLS == CALLS - 1 {
        cuda_sim::clear_calls();
    }
    DRIVER.played[index]
}

impl Driver {
    /// What `dlsym` gives for the function.
    pub(crate) fn exported(&self, index: usize) -> Option<Entry> {
        self.exported[index]
    }
}

/// The functions that are played here and not in `cuda-sim`.
pub(crate) fn own(symbol: &str) -> Option<NonNull<c_void>> {
    // Each cast to the type of the symbol holds the signature.
    let function = match symbol {
        "cuGetErrorName" => errors::name as cuda_sys::cuGetErrorName as *const c_void,
        "cuGetErrorString" => errors::text as cuda_sys::cuGetErrorString as *const c_void,
        "cuGetProcAddress" => lookup::by_name as cuda_sys::abi::cuGetProcAddress as *const c_void,
        "cuGetProcAddress_v2" => {
            lookup::by_name_v2 as cuda_sys::cuGetProcAddress_v2 as *const c_void
        }
        _ => return None,
    };
    NonNull::new(function.cast_mut())
}
