//! The works of `plain.c`.

use crate::driver::Driver;
use crate::operations::PTX;
use crate::work::{Work, Works};
use cuda_safe::sys::{CUevent, CUstream};
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::null_mut;

macro_rules! plain {
    ($($function:ident $($name:literal)+,)*) => {
        unsafe extern "C" {
            $(safe fn $function(n: usize);)*
        }
        /// Each may be called at any time after the setup.
        const WORKS: &[(&str, extern "C" fn(usize))] = &[$($(($name, $function)),*),*];
    };
}

plain! {
    plain_current
        "make current, current already"
        "bind to the thread, bound already",
    plain_guard "make current and back",
    plain_event_record "event record",
    plain_event_wait "stream waits for an event",
    plain_event_query "event query",
    plain_event_create "event create, destroy",
    plain_event_create_bare "the same, where no context is current",
    plain_stream_create "stream create, destroy",
    plain_launch_none "launch, no argument",
    plain_launch_three
        "launch, 3 arguments"
        "launch, 3 arguments of run-time types",
    plain_launch_sixteen "launch, 16 arguments",
    plain_launch_attributes "launch, 2 attributes",
    plain_allocate
        "allocate, free 1 MiB in stream order"
        "the same, after the handle of another stream was taken",
    plain_allocate_beside_captures "the same, where others capture",
    plain_to_device "copy 4 KiB to the device",
    plain_from_device "copy 4 KiB from the device",
    plain_to_device_several "copy to the device, 4 streams",
    plain_from_device_several "copy from the device, 4 streams",
    plain_on_device "copy 4 KiB on the device",
    plain_memset "memset 4 KiB",
    plain_grow "grow by 2 MiB, shrink",
    plain_green_split "green: split",
    plain_green_create "green: create, destroy",
    plain_green_way "green: split to stream, and back",
    plain_green_stream "green: stream create, destroy",
}

unsafe extern "C" {
    fn plain_setup(library: *mut c_void, ptx: *const c_char) -> c_int;
    fn plain_first(library: *mut c_void, ptx: *const c_char);
    fn plain_lend(streams: *mut CUstream, events: *mut CUevent);
    safe fn plain_wait();
    safe fn plain_make_current(yes: c_int);
}

/// Returns the streams and the events of the C code, after its setup.
pub(crate) fn lent() -> ([CUstream; 4], [CUevent; 2]) {
    let (mut streams, mut events) = ([null_mut(); 4], [null_mut(); 2]);
    // SAFETY: the pointers refer to as many elements as the C code has streams and events.
    unsafe { plain_lend(streams.as_mut_ptr(), events.as_mut_ptr()) };
    (streams, events)
}

/// Waits for the device.
pub(crate) fn wait() {
    plain_wait();
}

/// Makes the primary context current on this thread, or makes no context current.
pub(crate) fn make_current(yes: bool) {
    plain_make_current(yes.into());
}

/// Makes one launch, with all its preparation.
pub(crate) fn first(driver: &Driver) {
    let ptx = CString::new(PTX).unwrap_or_default();
    // SAFETY: the handle belongs to an open driver, and the text is NUL-terminated.
    unsafe { plain_first(driver.handle, ptx.as_ptr()) };
}

/// Creates the objects of the C code. Returns whether the driver supports green contexts.
pub(crate) fn setup(driver: &Driver) -> bool {
    let ptx = CString::new(PTX).unwrap_or_default();
    // SAFETY: the handle belongs to an open driver, and the text is NUL-terminated.
    unsafe { plain_setup(driver.handle, ptx.as_ptr()) != 0 }
}

/// Returns the works twice.
pub(crate) fn works(driver: &Driver) -> (Works, Works) {
    let green = setup(driver);
    let works = || {
        // C has no caching pool. These are the calls that the pool saves.
        let pooled = ("the same, by a caching pool", plain_allocate as extern "C" fn(usize));
        let there =
            WORKS.iter().chain([&pooled]).filter(|(name, _)| green || !name.starts_with("green"));
        there.map(|&(name, function)| (name, Work::batch(move |n| function(n)))).collect()
    };
    (works(), works())
}
