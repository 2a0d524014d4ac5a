//! The simulated driver. The first call of any function starts it.

use crate::{account, errors, exports, lookup};
use core::ffi::c_void;
use core::mem::transmute;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use cuda_sim::environment::Environment;
use cuda_sim::fault::Scope;
use cuda_sys::{CudaVersion, Function};
use std::io::Write;
use std::sync::LazyLock;

/// A function of unknown type. It must be cast to its type before it is called.
pub(crate) type Entry = unsafe extern "C" fn();

pub(crate) struct Driver {
    pub(crate) version: CudaVersion,
    /// By function index: the implementation, if this driver has the function.
    played: Vec<Option<Entry>>,
    /// By function index: the function that this library exports under the name.
    exported: Vec<Option<Entry>>,
}

static DRIVER: LazyLock<Driver> = LazyLock::new(start);

/// The settings that the environment selects.
pub(crate) static SETTINGS: LazyLock<Environment> = LazyLock::new(settings);

/// The record of calls is cleared after this number of calls.
const CALLS: u32 = 1 << 16;

/// Reads the environment. A value that is not valid is reported, and the driver then has no devices, so that no
/// test passes with other settings than the ones it names.
fn settings() -> Environment {
    let mut its = Environment::read();
    for why in &its.invalid {
        // Does not panic if stderr is closed: this runs when the library is loaded.
        let _ = writeln!(std::io::stderr(), "cuda-sim: {why}; the driver reports no devices");
    }
    if !its.invalid.is_empty() {
        its.profile = its.profile.with_devices(0);
    }
    its
}

fn start() -> Driver {
    let version = SETTINGS.profile.driver();
    let profile = SETTINGS.profile.clone().with_driver_thread();
    account::count_races(profile.detects_races());
    cuda_sim::name_options();
    if let Err(why) = cuda_sim::install(profile) {
        // All functions are then missing. This cannot happen unless this library's copy of the crates is
        // already in use.
        eprintln!("cuda-sim: {why}");
    }
    for fault in &SETTINGS.faults {
        // Active until the process ends.
        std::mem::forget(fault.clone().inject(Scope::Process));
    }
    if let Some(place) = &SETTINGS.account {
        account::begin(place);
    }
    let played = |function: Function| {
        if function.since() > version {
            return None;
        }
        let address = match own(function.symbol()) {
            Some(own) => own,
            None => function.address().ok()?,
        };
        Some(entry_of(address))
    };
    let mut exported = vec![None; Function::all().len()];
    for (index, address) in exports::all() {
        exported[index] = NonNull::new(address.cast_mut()).map(entry_of);
    }
    Driver { version, played: Function::all().map(played).collect(), exported }
}

fn entry_of(address: NonNull<c_void>) -> Entry {
    // SAFETY: all addresses here are those of functions, and an entry is called only with the type of
    // its symbol, which is the type of the function.
    unsafe { transmute::<NonNull<c_void>, Entry>(address) }
}

pub(crate) fn driver() -> &'static Driver {
    &DRIVER
}

/// Returns the implementation of a function, or `None` if the driver does not have it.
pub(crate) fn entry(index: usize) -> Option<Entry> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // Nothing reads the record of calls in this library, and a program may make a large number of calls.
    if COUNT.fetch_add(1, Ordering::Relaxed) % CALLS == CALLS - 1 {
        cuda_sim::clear_calls();
    }
    DRIVER.played[index]
}

impl Driver {
    /// Returns the address that `dlsym` returns for the function.
    pub(crate) fn exported(&self, index: usize) -> Option<Entry> {
        self.exported[index]
    }
}

/// Returns the functions that are implemented here rather than in `cuda-sim`.
pub(crate) fn own(symbol: &str) -> Option<NonNull<c_void>> {
    // Each cast to the type of the symbol checks the signature.
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
