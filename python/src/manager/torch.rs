//! Memory for PyTorch: the two C functions of its pluggable allocator, and one that records
//! streams.
//!
//! PyTorch identifies memory by its address, so this module has a table of addresses. A free
//! removes the entry; a free of an unknown address is reported and otherwise ignored.
//!
//! PyTorch passes the stream of the first use to the allocation, and the same stream to the free.
//! This stream may be destroyed by then unless it is one of PyTorch's own streams, which are never
//! destroyed; the Python part of the package registers them here. Therefore memory is ordered with
//! a stream only if it is a default stream or a registered one.
//!
//! PyTorch allocates without the GIL, and frees with it. So this module must never wait for the
//! GIL, and a free must not wait for work of the device (a host function may need the GIL). With a
//! manager whose frees block, frees are done at the next allocation.

use super::{Caching, managed};
use crate::error::{Failure, Result, check};
use core::ffi::{c_char, c_int, c_void};
use cuda_safe::Context;
use cuda_safe::manager::{MemoryPointer, Order, is_out_of_memory};
use cuda_safe::sys::{self, CUstream, CUstreamCaptureStatus};
use pyo3::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::panic::catch_unwind;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

/// The allocations of PyTorch by address, in shards that threads rarely share.
static TABLE: [Mutex<BTreeMap<usize, Held>>; 16] = [const { Mutex::new(BTreeMap::new()) }; 16];

/// The registered streams of PyTorch, each with its device.
static STREAMS: RwLock<BTreeSet<(u32, usize)>> = RwLock::new(BTreeSet::new());

/// Memory to free at the next allocation.
static LATER: Mutex<Vec<Held>> = Mutex::new(Vec::new());

struct Held {
    memory: MemoryPointer,
    /// The stream with which the memory is ordered, if any.
    stream: Option<usize>,
    /// Whether PyTorch has also used the memory on another stream.
    is_shared: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn table(address: usize) -> MutexGuard<'static, BTreeMap<usize, Held>> {
    let mixed = (address >> 9).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    lock(&TABLE[mixed >> (usize::BITS - 4)])
}

fn handle(stream: usize) -> CUstream {
    std::ptr::with_exposed_provenance_mut(stream)
}

/// Returns whether a stream is the legacy default stream: 0 and 1 are the same, and 2 is a
/// different stream on each thread.
fn is_legacy(stream: usize) -> bool {
    stream <= sys::CU_STREAM_LEGACY.addr()
}

fn is_own(device: u32, stream: usize) -> bool {
    let streams = STREAMS.read().unwrap_or_else(PoisonError::into_inner);
    streams.contains(&(device, stream))
}

/// Returns whether a live stream is capturing.
fn is_captured(context: &Context, stream: usize) -> Result<bool> {
    if is_legacy(stream) {
        // The legacy default stream cannot be captured.
        return Ok(false);
    }
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // The stream may be the per-thread stream of the current context.
    let code = context.with_current(|_| {
        // SAFETY: the caller promises that the stream is alive; the pointer refers to a local
        // variable.
        unsafe { sys::cuStreamIsCapturing(handle(stream), &raw mut status) }
    })?;
    check("cuStreamIsCapturing", code)?;
    Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
}

fn allocate(size: usize, device: c_int, stream: usize) -> Result<usize> {
    cuda_safe::init()?;
    settle();
    let device = u32::try_from(device)
        .map_err(|_| Failure::invalid(format!("there is no device {device}")))?;
    let context = managed(device)?;
    if is_captured(&context, stream)? {
        return Err(Failure::invalid(
            "the stream is capturing: this allocator does not keep memory alive for CUDA graphs, so \
             capture graphs with PyTorch's own allocator",
        ));
    }
    let lasting = (is_legacy(stream) || is_own(device, stream)).then_some(stream);
    let order = match lasting {
        // SAFETY: this is a default stream of the manager's context, or one of PyTorch's streams in
        // that context. It stays alive to the end of the process, as the manager does. It is not
        // captured: this was checked, or is not possible.
        Some(stream) => unsafe { Order::persistent(handle(stream)) },
        None => Order::NONE,
    };
    let memory = MemoryPointer::allocate_in(&context, size, order)?;
    // PyTorch creates pointers from the address.
    let address = usize::try_from(memory.as_raw())
        .map_err(|_| Failure::invalid("an address that is too large"))?;
    let held = Held { memory, stream: lasting, is_shared: false };
    let before = table(address).insert(address, held);
    // The table has no such entry, because an address in use is not allocated again.
    drop(before);
    Ok(address)
}

/// Frees the memory whose release was deferred.
pub(super) fn settle() {
    if cuda_safe::init().is_err() {
        // In a forked child, another thread of the parent may hold the lock forever.
        return;
    }
    let later = std::mem::take(&mut *lock(&LATER));
    later.into_iter().for_each(Held::free);
}

impl Held {
    fn free(self) {
        let is_in_order = !self.is_shared
            && self.stream.is_some_and(|stream| {
                matches!(is_captured(self.memory.context(), stream), Ok(false))
            });
        match is_in_order {
            true => drop(self.memory),
            // SAFETY: PyTorch has submitted all work that uses the memory.
            false => unsafe { self.memory.free_in(Order::NONE) },
        }
    }
}

fn free(address: usize) {
    if address == 0 || cuda_safe::init().is_err() {
        return;
    }
    let held = table(address).remove(&address);
    let Some(held) = held else {
        return tell(&format!(
            "PyTorch freed {address:#x}, which was not allocated here or was already freed"
        ));
    };
    match held.memory.context().memory_manager_as::<Caching>() {
        // The frees of this manager do not block.
        Ok(Some(_)) => held.free(),
        _ => lock(&LATER).push(held),
    }
}

/// Reports an error where no caller can receive it.
fn tell(what: &str) {
    // If stderr is closed, the message is lost.
    let _ = writeln!(std::io::stderr(), "cuda_safe: {what}");
}

/// Allocates memory for PyTorch's `CUDAPluggableAllocator`. A failure is thrown as a C++ exception,
/// which PyTorch converts to a `RuntimeError`. (If no C++ library is loaded, the failure is written
/// to stderr, and null is returned.)
///
/// # Safety
/// The caller must be C++ code that lets exceptions pass. `stream` must be a default stream with
/// the handle 0, 1 or 2, or a live stream of the device.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn cuda_safe_torch_allocate(
    size: usize,
    device: c_int,
    stream: CUstream,
) -> *mut c_void {
    let mut outcome = Outcome { address: 0, throw: None, message: [0; MESSAGE] };
    attempt(size, device, stream, &mut outcome);
    if let Some(throw) = outcome.throw {
        // SAFETY: `throw` is `std::__throw_runtime_error`, which copies the text, whose last byte
        // is 0, and throws. The exception leaves through this frame only. It is unwound by the C++
        // library, whose unwinder may be another one than the one linked into this library (zig
        // brings its own), and the two do not know each other's frames. Therefore no Rust code may
        // have to run during the unwinding: this function has nothing to drop and catches nothing,
        // and the function that it calls before does not unwind ("C", which aborts). It then has
        // neither a landing pad nor a personality, and is unwound like a C frame. (The tests let
        // the wheel throw.)
        unsafe { throw(outcome.message.as_ptr()) };
    }
    std::ptr::with_exposed_provenance_mut(outcome.address)
}

/// The result of an allocation. It has nothing to drop.
struct Outcome {
    address: usize,
    /// The function to call with the message.
    throw: Option<Throw>,
    message: [c_char; MESSAGE],
}

/// Allocates. All code that has something to drop or may panic is in this frame, which has returned
/// before an exception is thrown.
#[inline(never)]
extern "C" fn attempt(size: usize, device: c_int, stream: CUstream, outcome: &mut Outcome) {
    if size == 0 {
        return;
    }
    let stream = stream.expose_provenance();
    let said = match catch_unwind(|| allocate(size, device, stream).map_err(|why| text(size, &why)))
    {
        Ok(Ok(address)) => {
            outcome.address = address;
            return;
        }
        Ok(Err(said)) => said,
        Err(_) => "internal error in cuda_safe: the allocation panicked".to_owned(),
    };
    outcome.throw = thrower();
    match outcome.throw {
        Some(_) => write(&mut outcome.message, &said),
        None => tell(&said),
    }
}

/// Frees memory. An unknown address is reported on stderr and otherwise ignored.
///
/// # Safety
/// PyTorch has submitted all work that uses the memory to the device, and work on other streams
/// than the memory's own only after [`cuda_safe_torch_record_stream`].
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn cuda_safe_torch_free(
    memory: *mut c_void,
    _size: usize,
    _device: c_int,
    _stream: CUstream,
) {
    let address = memory.addr();
    if catch_unwind(|| free(address)).is_err() {
        tell("internal error: a free panicked, and its memory is leaked");
    }
}

/// Notes that memory is also used on another stream. It is then reused after all work of the
/// device.
///
/// # Safety
/// There are no conditions; PyTorch's function type requires `unsafe`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn cuda_safe_torch_record_stream(
    memory: *mut c_void,
    stream: CUstream,
) {
    let (address, stream) = (memory.addr(), stream.addr());
    if address == 0 || cuda_safe::init().is_err() {
        return;
    }
    if let Some(held) = table(address).get_mut(&address) {
        let is_same =
            held.stream == Some(stream) || held.stream.is_some_and(is_legacy) && is_legacy(stream);
        held.is_shared |= !is_same;
    }
}

/// Returns the addresses of the functions for PyTorch: allocate, free, and record a stream.
#[pyfunction]
pub(crate) fn _torch_functions() -> (usize, usize, usize) {
    (
        (cuda_safe_torch_allocate as *const ()).expose_provenance(),
        (cuda_safe_torch_free as *const ()).expose_provenance(),
        (cuda_safe_torch_record_stream as *const ()).expose_provenance(),
    )
}

/// Registers PyTorch's own streams, which are never destroyed.
#[pyfunction]
pub(crate) fn _torch_streams(device: u32, streams: Vec<usize>) {
    let mut known = STREAMS.write().unwrap_or_else(PoisonError::into_inner);
    known.extend(streams.into_iter().map(|stream| (device, stream)));
}

/// Returns the message. An out-of-memory message begins with the text that PyTorch's users search
/// for.
fn text(size: usize, failure: &Failure) -> String {
    let what = failure.text();
    match failure {
        Failure::Cuda(error) if is_out_of_memory(error) => {
            format!("CUDA out of memory: tried to allocate {size} bytes: {what}")
        }
        _ => format!("cuda_safe: {what}"),
    }
}

const MESSAGE: usize = 512;

/// Writes a C string, truncated if it is too long.
fn write(message: &mut [c_char; MESSAGE], text: &str) {
    let bytes = text.bytes().filter(|byte| *byte != 0);
    for (place, byte) in message[..MESSAGE - 1].iter_mut().zip(bytes) {
        *place = c_char::from_ne_bytes([byte]);
    }
}

/// The C++ function `std::__throw_runtime_error`.
type Throw = unsafe extern "C-unwind" fn(*const c_char);

#[cfg(target_os = "linux")]
fn thrower() -> Option<Throw> {
    use core::mem::transmute;

    unsafe extern "C" {
        fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
        fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    }
    const LAZY_AND_THERE: c_int = 1 | 4;
    static THROW: OnceLock<Option<Throw>> = OnceLock::new();
    *THROW.get_or_init(|| {
        // SAFETY: the name is a C string. The library is not loaded if it is not yet present, and
        // is never unloaded.
        let library = unsafe { dlopen(c"libstdc++.so.6".as_ptr(), LAZY_AND_THERE) };
        if library.is_null() {
            return None;
        }
        // SAFETY: the library is loaded, and the name is a C string.
        let function = unsafe { dlsym(library, c"_ZSt21__throw_runtime_errorPKc".as_ptr()) };
        // SAFETY: a symbol with this mangled name has this type, and may unwind.
        (!function.is_null()).then(|| unsafe { transmute::<*mut c_void, Throw>(function) })
    })
}

#[cfg(not(target_os = "linux"))]
fn thrower() -> Option<Throw> {
    None
}
