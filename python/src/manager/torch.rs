//! Memory for PyTorch: the two functions of C that its pluggable allocator calls, and one for streams that
//! it notes.
//!
//! It knows memory by its address, and so does the table here: what was given back is no more in it, and
//! an address that is not in it is reported, and otherwise nothing.
//!
//! PyTorch says on which stream memory is used at first, and says the same stream when it gives it back.
//! That may be destroyed by then, if it was not PyTorch's own: those are never destroyed, and PyTorch's
//! Python half says here which they are. So memory is in the order of a stream if that is a default one or
//! one of these, and otherwise in nobody's.
//!
//! PyTorch calls without the GIL where it allocates, and with it where a tensor goes. So nothing here may
//! wait for it, and a free must not wait for work of the device (a host function may need the GIL): with a
//! manager of which frees wait they are done when something is allocated next.

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

/// What PyTorch has, by address, in parts that threads rarely share.
static TABLE: [Mutex<BTreeMap<usize, Held>>; 16] = [const { Mutex::new(BTreeMap::new()) }; 16];

/// PyTorch's own streams, each with its device.
static STREAMS: RwLock<BTreeSet<(u32, usize)>> = RwLock::new(BTreeSet::new());

/// What is given back when something is allocated.
static LATER: Mutex<Vec<Held>> = Mutex::new(Vec::new());

struct Held {
    memory: MemoryPointer,
    /// The stream in whose order it is.
    stream: Option<usize>,
    /// Whether PyTorch has used it on another stream, too.
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

/// A default stream of the context, of which there is one: 0 and 1 are the same, and 2 is another in
/// each thread.
fn is_legacy(stream: usize) -> bool {
    stream <= sys::CU_STREAM_LEGACY.addr()
}

fn is_own(device: u32, stream: usize) -> bool {
    let streams = STREAMS.read().unwrap_or_else(PoisonError::into_inner);
    streams.contains(&(device, stream))
}

/// Whether a stream, which is alive, is captured.
fn is_captured(context: &Context, stream: usize) -> Result<bool> {
    if is_legacy(stream) {
        // It never is.
        return Ok(false);
    }
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // The stream may be the thread's own in the current context.
    let code = context.with_current(|_| {
        // SAFETY: the stream is alive, as whoever asks says; the pointer is to a local.
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
            "the stream is captured: memory of a CUDA graph is not kept for it here, so capture graphs \
             with PyTorch's own allocator",
        ));
    }
    let lasting = (is_legacy(stream) || is_own(device, stream)).then_some(stream);
    let order = match lasting {
        // SAFETY: a default stream of the manager's context, or one of PyTorch's in that context, which
        // stays to the end of the process, as the manager does. It is not captured: it was asked, or
        // cannot be.
        Some(stream) => unsafe { Order::lasting(handle(stream)) },
        None => Order::NONE,
    };
    let memory = MemoryPointer::allocate_in(&context, size, order)?;
    // PyTorch makes accesses of it.
    let address = usize::try_from(memory.as_raw())
        .map_err(|_| Failure::invalid("an address that is too large"))?;
    let held = Held {
        memory,
        stream: lasting,
        is_shared: false,
    };
    let before = table(address).insert(address, held);
    // There is none, as it would not have been handed out again.
    drop(before);
    Ok(address)
}

/// Gives back what was put off.
pub(super) fn settle() {
    if cuda_safe::init().is_err() {
        // In a forked child the lock may be another thread's for ever.
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
            // SAFETY: PyTorch has given all work that uses it.
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
            "PyTorch gives back memory at {address:#x}, which it was not given here, or has given back"
        ));
    };
    match held.memory.context().memory_manager_as::<Caching>() {
        // Its frees wait for nothing.
        Ok(Some(_)) => held.free(),
        _ => lock(&LATER).push(held),
    }
}

/// Nobody could be told in another way.
fn tell(what: &str) {
    // Where nobody reads it, so be it.
    let _ = writeln!(std::io::stderr(), "cuda_safe: {what}");
}

/// Memory for PyTorch's `CUDAPluggableAllocator`; what goes wrong is thrown as an exception of C++, which
/// PyTorch makes a `RuntimeError` of. (Where there is no library of C++, it is written to stderr, and the
/// answer is null.)
///
/// # Safety
/// It is called by C++ that lets exceptions through. `stream` is a default stream, by its handle 0, 1 or
/// 2, or a stream of the device's that is alive.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn cuda_safe_torch_allocate(
    size: usize,
    device: c_int,
    stream: CUstream,
) -> *mut c_void {
    let mut outcome = Outcome {
        address: 0,
        throw: None,
        message: [0; MESSAGE],
    };
    attempt(size, device, stream, &mut outcome);
    if let Some(throw) = outcome.throw {
        // SAFETY: it is `std::__throw_runtime_error`, which copies the text, whose last byte is 0, and
        // throws. The exception leaves through this frame alone, by the unwinder of C++'s library, which
        // need not be the one that Rust was linked with here (zig brings its own), and the two do not know
        // each other's frames. So nothing of Rust's may have to run on the way: this function has nothing
        // to drop and catches nothing, and what it calls before does not unwind ("C", which aborts). Then
        // it has neither a landing pad nor a personality, and is passed as a frame of C. (The tests have
        // the wheel throw.)
        unsafe { throw(outcome.message.as_ptr()) };
    }
    std::ptr::with_exposed_provenance_mut(outcome.address)
}

/// What became of an allocation. There is nothing in it to be dropped.
struct Outcome {
    address: usize,
    /// What to call with the message.
    throw: Option<Throw>,
    message: [c_char; MESSAGE],
}

/// Allocates: all of it that has something to drop, or may panic, in a frame that is gone before anything
/// is thrown.
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
        Err(_) => "a bug in cuda_safe: it panicked".to_owned(),
    };
    outcome.throw = thrower();
    match outcome.throw {
        Some(_) => write(&mut outcome.message, &said),
        None => tell(&said),
    }
}

/// Takes memory back. What is not PyTorch's is reported on stderr, and otherwise nothing happens.
///
/// # Safety
/// PyTorch has given all work that uses the memory to the device, that of other streams than its own after
/// [`cuda_safe_torch_record_stream`].
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn cuda_safe_torch_free(
    memory: *mut c_void,
    _size: usize,
    _device: c_int,
    _stream: CUstream,
) {
    let address = memory.addr();
    if catch_unwind(|| free(address)).is_err() {
        tell("a bug: it panicked, and memory is leaked");
    }
}

/// Notes that memory is used on another stream, too: it is used again behind all work of the device.
///
/// # Safety
/// None is needed; the type is PyTorch's.
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

/// The addresses of the functions that PyTorch is given: to allocate, to free, to note a stream.
#[pyfunction]
pub(crate) fn _torch_functions() -> (usize, usize, usize) {
    (
        (cuda_safe_torch_allocate as *const ()).expose_provenance(),
        (cuda_safe_torch_free as *const ()).expose_provenance(),
        (cuda_safe_torch_record_stream as *const ()).expose_provenance(),
    )
}

/// These streams are PyTorch's own, and are never destroyed.
#[pyfunction]
pub(crate) fn _torch_streams(device: u32, streams: Vec<usize>) {
    let mut known = STREAMS.write().unwrap_or_else(PoisonError::into_inner);
    known.extend(streams.into_iter().map(|stream| (device, stream)));
}

/// What PyTorch's users look for in it comes first.
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

/// As C has texts; cut where it is too long.
fn write(message: &mut [c_char; MESSAGE], text: &str) {
    let bytes = text.bytes().filter(|byte| *byte != 0);
    for (place, byte) in message[..MESSAGE - 1].iter_mut().zip(bytes) {
        *place = c_char::from_ne_bytes([byte]);
    }
}

/// `std::__throw_runtime_error`.
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
        // SAFETY: the text ends with a 0. It is not loaded, if it is not there; and it is never unloaded.
        let library = unsafe { dlopen(c"libstdc++.so.6".as_ptr(), LAZY_AND_THERE) };
        if library.is_null() {
            return None;
        }
        // SAFETY: the library is there, and the text ends with a 0.
        let function = unsafe { dlsym(library, c"_ZSt21__throw_runtime_errorPKc".as_ptr()) };
        // SAFETY: the mangled name says the type of what is not null, which may unwind.
        (!function.is_null()).then(|| unsafe { transmute::<*mut c_void, Throw>(function) })
    })
}

#[cfg(not(target_os = "linux"))]
fn thrower() -> Option<Throw> {
    None
}
