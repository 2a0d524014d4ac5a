//! The version of the library.

use crate::common::child::in_child;
use crate::machine::streams;
use core::ffi::{CStr, c_int, c_void};
use cuda_nccl::{Communicator, Config, Error, Invalid, NcclVersion, sys};
use cuda_safe::{Context, Device};

#[test]
fn the_library_is_recent_enough() {
    or_skip!(streams(1));
    let version = cuda_nccl::version().expect("a library");
    println!("NCCL {version}, bindings of {}", NcclVersion::BINDINGS);
    assert!(version >= NcclVersion::new(2, 23, 0), "{version}");
}

#[test]
fn a_library_whose_ranks_write_without_a_check_of_sizes_is_refused() {
    unsafe extern "C" fn version(place: *mut c_int) -> c_int {
        // SAFETY: the caller passes a place for a number.
        unsafe { place.write(22_203) };
        0
    }
    fn symbol(name: &CStr) -> *const c_void {
        match name == c"ncclGetVersion" {
            true => version as *const c_void,
            false => cuda_sim::nccl::symbol(name),
        }
    }
    in_child(&[], || {
        cuda_sim::install(cuda_sim::Profile::h200()).expect("nothing was called before");
        // SAFETY: the functions have the signatures of NCCL, and are part of this program.
        unsafe { sys::NCCL.install(symbol) }.expect("nothing was called before");
        let context = Context::primary(&Device::get(0).expect("a device")).expect("a context");
        let stream = context.stream().expect("a stream");
        let error = Communicator::init_all(&[stream], &Config::default()).expect_err("it is old");
        let (version, oldest) = (NcclVersion::new(2, 22, 3), NcclVersion::new(2, 23, 0));
        assert!(
            matches!(error, Error::Invalid(its) if *its == Invalid::OldLibrary { version, oldest })
        );
    });
}
