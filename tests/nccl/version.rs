//! The version of the library.

use crate::machine::streams;
use cuda_nccl::NcclVersion;

#[test]
fn the_library_is_recent_enough() {
    or_skip!(streams(1));
    let version = cuda_nccl::version().expect("a library");
    println!("NCCL {version}, bindings of {}", NcclVersion::BINDINGS);
    assert!(version >= NcclVersion::new(2, 18, 1), "{version}");
}
