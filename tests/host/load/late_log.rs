//! A driver that writes into the compiler log of a library long after loading it: when a context
//! needs the code, which may happen as long as the library is not unloaded.

use crate::common::child::in_child;
use crate::fakes::{NOWHERE, VARIABLE};
use core::ffi::{CStr, c_uint, c_void};
use cuda_safe::module::Library;
use cuda_sys::{CUjit_option, CUlibrary, CUlibraryOption, CUresult};
use std::ptr::{NonNull, null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The option values of the loading call: a buffer and its size.
static VALUES: AtomicPtr<*mut c_void> = AtomicPtr::new(null_mut());

unsafe extern "C" fn init(_: c_uint) -> CUresult {
    CUresult::CUDA_SUCCESS
}

unsafe extern "C" fn load(
    library: *mut CUlibrary,
    _code: *const c_void,
    _keys: *mut CUjit_option,
    values: *mut *mut c_void,
    count: c_uint,
    _library_keys: *mut CUlibraryOption,
    _library_values: *mut *mut c_void,
    _library_count: c_uint,
) -> CUresult {
    assert_eq!(count, 2);
    VALUES.store(values, Ordering::Relaxed);
    // SAFETY: the caller passes a valid pointer to a library handle.
    unsafe { library.write(NonNull::dangling().as_ptr()) };
    CUresult::CUDA_SUCCESS
}

unsafe extern "C" fn unload(_: CUlibrary) -> CUresult {
    compile();
    CUresult::CUDA_ERROR_UNKNOWN
}

/// Does what the driver does when a context needs the code.
fn compile() {
    let values = VALUES.load(Ordering::Relaxed);
    // SAFETY: the driver may use the options while the library is loaded, and there are two.
    let log = unsafe { values.read() }.cast::<u8>();
    // SAFETY: as above.
    let size = unsafe { values.add(1) };
    // SAFETY: as above, and the log has room for more than these bytes.
    unsafe { log.write_bytes(b'x', 8) };
    // SAFETY: as above.
    unsafe { size.write(std::ptr::without_provenance_mut(8)) };
}

fn find(name: &CStr) -> *const c_void {
    match name.to_bytes() {
        b"cuInit" => init as *const c_void,
        b"cuLibraryLoadData" => load as *const c_void,
        b"cuLibraryUnload" => unload as *const c_void,
        _ => null(),
    }
}

#[test]
fn the_log_of_a_library_lives_until_the_library_is_unloaded() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        // SAFETY: the functions have the types that belong to their names.
        unsafe { cuda_sys::install(find) }.expect("the process has no driver");
        let ptx = ".version 7.0\n.target sm_50\n.address_size 64\n";
        let library = Library::from_ptx(ptx).expect("is loaded");
        compile();
        drop(library);
        assert_eq!(cuda_safe::leaked(), 1);
        // If the log were freed, a sanitizer would report this write.
        compile();
    });
}
