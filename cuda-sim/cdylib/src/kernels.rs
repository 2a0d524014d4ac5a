//! The C functions that register kernels. `include/cuda_sim.h` documents them.

#![allow(non_snake_case, reason = "the names follow the driver's")]

use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use cuda_sim::kernel::{self, Launch};
use cuda_sys::CUresult;
use std::ffi::CString;

/// `CUsimLaunch`: what the function of a kernel gets.
#[repr(C)]
struct CUsimLaunch {
    name: *const c_char,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    cluster: [c_uint; 3],
    shared_bytes: c_uint,
    argument_count: usize,
    arguments: *const *const c_void,
    argument_sizes: *const usize,
}

/// `CUsimKernel`. A C++ exception from it unwinds to the driver, which catches it in `cuda_sim::kernel` and ends the
/// process.
type Kernel = unsafe extern "C-unwind" fn(*mut CUsimLaunch, *mut c_void);

/// The launch that this thread is running.
#[derive(Clone, Copy)]
struct Running {
    /// The address that the kernel's function got. It is compared and never dereferenced.
    shown: *const CUsimLaunch,
    launch: *mut Launch<'static>,
    /// The first failure.
    failure: *mut Option<String>,
}

thread_local! {
    static RUNNING: Cell<Option<Running>> = const { Cell::new(None) };
}

/// The pointer that the program passes to each call of its function.
struct User(*mut c_void);

// SAFETY: this library only passes the pointer on. The header says that the function runs on any thread.
unsafe impl Send for User {}
// SAFETY: see the implementation of `Send`.
unsafe impl Sync for User {}

impl User {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

const INVALID: c_int = CUresult::CUDA_ERROR_INVALID_VALUE.0 as c_int;
const NOT_FOUND: c_int = CUresult::CUDA_ERROR_NOT_FOUND.0 as c_int;

/// Registers a kernel.
///
/// # Safety
/// `name` is null or a C string. `kernel` may be called with `user` on any thread.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuSimRegisterKernel(
    name: *const c_char,
    kernel: Option<Kernel>,
    user: *mut c_void,
) -> c_int {
    // SAFETY: the caller passes null or a C string.
    let Some(name) = (unsafe { text(name) }) else {
        return INVALID;
    };
    let Some(function) = kernel else {
        return INVALID;
    };
    let user = User(user);
    kernel::register(&name, move |launch| run(launch, function, user.get()));
    0
}

fn run(launch: &mut Launch<'_>, function: Kernel, user: *mut c_void) -> Result<(), String> {
    let name = CString::new(launch.name()).unwrap_or_default();
    let count = launch.arguments();
    let mut sizes = Vec::with_capacity(count);
    // Words of 16 bytes, which align the values.
    let mut values: Vec<Vec<u128>> = Vec::with_capacity(count);
    for argument in 0..count {
        let bytes = launch.value_bytes(argument)?;
        sizes.push(bytes.len());
        let words = bytes.chunks(size_of::<u128>()).map(|chunk| {
            let mut word = [0; size_of::<u128>()];
            word[..chunk.len()].copy_from_slice(chunk);
            u128::from_ne_bytes(word)
        });
        values.push(words.collect());
    }
    let arguments: Vec<*const c_void> = values.iter().map(|its| its.as_ptr().cast()).collect();
    let mut shown = CUsimLaunch {
        name: name.as_ptr(),
        grid: launch.grid(),
        block: launch.block(),
        cluster: launch.cluster(),
        shared_bytes: launch.shared_bytes(),
        argument_count: count,
        arguments: arguments.as_ptr(),
        argument_sizes: sizes.as_ptr(),
    };
    let shown = &raw mut shown;
    let mut failure = None;
    let running =
        Running { shown, launch: core::ptr::from_mut(launch).cast(), failure: &raw mut failure };
    RUNNING.set(Some(running));
    // SAFETY: the program registered the function for such calls, and the launch lives during the call.
    unsafe { function(shown, user) };
    RUNNING.set(None);
    failure.map_or(Ok(()), Err)
}

/// Calls `f` with the launch that this thread is running, if `shown` is that launch. The first error is the
/// failure of the launch.
fn with(shown: *mut CUsimLaunch, f: impl FnOnce(&mut Launch<'_>) -> Result<(), String>) -> c_int {
    let running = RUNNING.get();
    let Some(running) = running.filter(|running| running.shown == shown.cast_const()) else {
        return INVALID;
    };
    // SAFETY: `run` has set the pointer, and is still on this thread's stack, in the call of the kernel's
    // function. It does not use the launch during this call, and `f` does not call into this module.
    let launch = unsafe { &mut *running.launch };
    let Err(what) = f(launch) else { return 0 };
    // SAFETY: the same, for the failure.
    let failure = unsafe { &mut *running.failure };
    failure.get_or_insert(what);
    INVALID
}

/// Copies from device memory.
///
/// # Safety
/// `to` has room for `size` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuSimRead(
    launch: *mut CUsimLaunch,
    address: c_ulonglong,
    to: *mut c_void,
    size: usize,
) -> c_int {
    if to.is_null() && size != 0 {
        return INVALID;
    }
    with(launch, |launch| {
        let bytes = launch.read_at::<u8>(address, size)?;
        if size != 0 {
            // SAFETY: `read_at` returned `size` bytes, and the caller has room for them.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), size) };
        }
        Ok(())
    })
}

/// Copies to device memory.
///
/// # Safety
/// `from` has `size` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuSimWrite(
    launch: *mut CUsimLaunch,
    address: c_ulonglong,
    from: *const c_void,
    size: usize,
) -> c_int {
    if from.is_null() && size != 0 {
        return INVALID;
    }
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(size).is_err() {
        return INVALID;
    }
    // A copy, because the target may be host memory that overlaps the source.
    bytes.resize(size, 0);
    if size != 0 {
        // SAFETY: the caller passes `size` bytes, and the vector has as many.
        unsafe { core::ptr::copy_nonoverlapping(from.cast(), bytes.as_mut_ptr(), size) };
    }
    with(launch, |launch| launch.update_at::<u8>(address, size, |at, _| bytes[at]))
}

/// Finds a variable of the kernel's module.
///
/// # Safety
/// `name` is null or a C string. The other pointers are null or places for their values.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuSimVariable(
    launch: *mut CUsimLaunch,
    name: *const c_char,
    address: *mut c_ulonglong,
    size: *mut usize,
) -> c_int {
    // SAFETY: the caller passes null or a C string.
    let Some(name) = (unsafe { text(name) }) else {
        return INVALID;
    };
    let mut found = None;
    let code = with(launch, |launch| {
        found = launch.variable_range(&name);
        Ok(())
    });
    if code != 0 {
        return code;
    }
    let Some((start, length)) = found else {
        return NOT_FOUND;
    };
    if !address.is_null() {
        // SAFETY: the pointer is not null, and therefore a place for an address.
        unsafe { address.write(start) };
    }
    if !size.is_null() {
        // SAFETY: the pointer is not null, and therefore a place for a size.
        unsafe { size.write(length) };
    }
    0
}

/// Makes a launch fail.
///
/// # Safety
/// `message` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuSimFail(launch: *mut CUsimLaunch, message: *const c_char) -> c_int {
    // SAFETY: the caller passes null or a C string.
    let message = unsafe { text(message) }.unwrap_or_else(|| "failed".to_owned());
    let mut is_running = false;
    with(launch, |_| {
        is_running = true;
        Err(message)
    });
    if is_running { 0 } else { INVALID }
}

/// Returns a C string, or `None` for null.
///
/// # Safety
/// `text` is null or a C string.
unsafe fn text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller passes a C string, which is not null here.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}
