//! Virtual memory that is shared with other processes and drivers, on the software driver. The codes are
//! those of an H200 with driver 580.
#![cfg(target_os = "linux")]

use crate::prelude::*;
use crate::virtual_memory::{READ, create, map_new, set_access, shareable};
use std::os::fd::{FromRawFd, OwnedFd};

#[test]
fn a_descriptor_shares_memory_with_another_process() {
    let _bench = in_child!(without_misuse());
    let kind = CUmemAllocationHandleType(1);
    let wanted = shareable();
    let handle: u64 = out!(cuMemCreate(PAGE, &raw const wanted, 0));
    let mut descriptor: c_int = -1;
    let place = (&raw mut descriptor).cast();
    succeeds!(cuMemExportToShareableHandle(place, handle, kind, 0));
    // SAFETY: the descriptor is new, so nothing else owns it.
    let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let start = reserve(2 * PAGE);
    succeeds!(cuMemMap(start, PAGE, 0, handle, 0));
    set_access(start, PAGE, READ_WRITE);
    succeeds!(cuMemsetD8_v2(start, 1, 8));

    let number = core::ptr::without_provenance_mut(descriptor as usize);
    let use_import = || {
        let imported = out!(cuMemImportFromShareableHandle(number, kind));
        assert_ne!(imported, handle);
        let shown: CUmemAllocationProp = out!(cuMemGetAllocationPropertiesFromHandle(imported));
        assert_eq!(shown.requestedHandleTypes.0, 0);
        assert_eq!(shown.allocFlags.compressionType, 0);
        let at = start + PAGE as u64;
        refused!(UNSUPPORTED, cuMemMap(at, 2 * PAGE, 0, imported, 0));
        succeeds!(cuMemMap(at, PAGE, 0, imported, 0));
        set_access(at, PAGE, READ_WRITE);
        let [before] = read::<1>(at);
        let after = before + 1;
        succeeds!(cuMemcpyHtoD_v2(at, (&raw const after).cast(), 4));
        // An import cannot be exported again.
        let mut other: c_int = -1;
        let place = (&raw mut other).cast();
        refused!(INVALID, cuMemExportToShareableHandle(place, imported, kind, 0));
        succeeds!(cuMemUnmap(at, PAGE));
        succeeds!(cuMemRelease(imported));
        before == 0x0101_0101
    };
    // In the same process, and in another one.
    assert!(use_import());
    assert_eq!(read::<1>(start), [0x0101_0102]);
    succeeds!(cuMemsetD8_v2(start, 1, 8));
    read::<1>(start);
    assert!(common::fork::in_fork(use_import));
    assert_eq!(read::<1>(start), [0x0101_0102]);

    // The descriptor keeps the memory.
    succeeds!(cuMemUnmap(start, PAGE));
    succeeds!(cuMemRelease(handle));
    let again = out!(cuMemImportFromShareableHandle(number, kind));
    succeeds!(cuMemMap(start, PAGE, 0, again, 0));
    set_access(start, PAGE, READ);
    assert_eq!(read::<1>(start), [0x0101_0102]);
    succeeds!(cuMemUnmap(start, PAGE));
    succeeds!(cuMemRelease(again));
    succeeds!(cuMemAddressFree(start, 2 * PAGE));
    drop(owned);
}

#[test]
fn exports_and_imports_check_types_and_descriptors() {
    let _bench = in_child!(without_misuse());
    let kind = CUmemAllocationHandleType;
    let wanted = shareable();
    let (plain, shared) = (create(PAGE), out!(cuMemCreate(PAGE, &raw const wanted, 0)));
    let mut place: c_int = -1;
    let to = (&raw mut place).cast();
    refused!(INVALID, cuMemExportToShareableHandle(to, plain, kind(1), 0));
    refused!(INVALID, cuMemExportToShareableHandle(to, shared, kind(8), 0));
    refused!(INVALID, cuMemExportToShareableHandle(to, shared, kind(1), 1));
    let null_device = std::fs::File::open("/dev/null").expect("it exists");
    let mut handle = 0;
    let unknown = CUresult::CUDA_ERROR_UNKNOWN;
    for number in [std::os::fd::AsRawFd::as_raw_fd(&null_device), -1, 900] {
        let number = core::ptr::without_provenance_mut(number as usize);
        refused!(unknown, cuMemImportFromShareableHandle(&raw mut handle, number, kind(1)));
        refused!(UNSUPPORTED, cuMemImportFromShareableHandle(&raw mut handle, number, kind(8)));
    }
    succeeds!(cuMemRelease(plain));
    succeeds!(cuMemRelease(shared));
}

#[test]
fn a_range_of_whole_pages_has_a_descriptor_for_other_drivers() {
    let _bench = in_child!(without_misuse());
    let kind = CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    let start = reserve(4 * PAGE);
    map_new(start, PAGE);
    map_new(start + PAGE as u64, PAGE);
    let mut descriptor: c_int = -1;
    let place: *mut c_void = (&raw mut descriptor).cast();
    succeeds!(cuMemGetHandleForAddressRange(place, start, 2 * PAGE, kind, 0));
    // SAFETY: the descriptor is new, so nothing else owns it.
    drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
    for (address, size) in [(start, 3 * PAGE), (start + 8, 4096), (start, 100), (start, 0)] {
        refused!(INVALID, cuMemGetHandleForAddressRange(place, address, size, kind, 0));
    }
    refused!(INVALID, cuMemGetHandleForAddressRange(place, start, PAGE, kind, 2));
    succeeds!(cuMemUnmap(start, 2 * PAGE));
    succeeds!(cuMemAddressFree(start, 4 * PAGE));
}
