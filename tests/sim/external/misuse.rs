//! The codes of raw calls, and what a real driver accepts although it is wrong.

use crate::prelude::*;
use cuda_sim::external::{ExternalSemaphore, memory};
use std::fs::File;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

const SIZE: u64 = 1 << 20;
const UNKNOWN: CUresult = CUresult::CUDA_ERROR_UNKNOWN;

fn memory_description(kind: u32, descriptor: c_int, size: u64) -> CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
    let mut description = CUDA_EXTERNAL_MEMORY_HANDLE_DESC::zeroed();
    description.type_ = CUexternalMemoryHandleType(kind);
    description.handle.fd = descriptor;
    description.size = size;
    description
}

fn semaphore_description(kind: u32, descriptor: c_int) -> CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
    let mut description = CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC::zeroed();
    description.type_ = CUexternalSemaphoreHandleType(kind);
    description.handle.fd = descriptor;
    description
}

fn duplicate(file: &File) -> c_int {
    OwnedFd::from(file.try_clone().expect("a duplicate")).into_raw_fd()
}

/// Imports a file that is memory of this size, as the program says.
fn import(file: &File, size: u64, flags: u32) -> CUexternalMemory {
    let mut description = memory_description(1, duplicate(file), size);
    description.flags = flags;
    out!(cuImportExternalMemory(&raw const description))
}

pub(crate) fn import_semaphore(kind: u32, descriptor: OwnedFd) -> CUexternalSemaphore {
    let description = semaphore_description(kind, descriptor.into_raw_fd());
    out!(cuImportExternalSemaphore(&raw const description))
}

fn range(offset: u64, size: u64) -> CUDA_EXTERNAL_MEMORY_BUFFER_DESC {
    let mut range = CUDA_EXTERNAL_MEMORY_BUFFER_DESC::zeroed();
    (range.offset, range.size) = (offset, size);
    range
}

fn map(memory: CUexternalMemory, offset: u64, size: u64) -> u64 {
    out!(cuExternalMemoryGetMappedBuffer(memory, from_ref(&range(offset, size))))
}

pub(crate) fn signal(semaphore: CUexternalSemaphore, value: u64, stream: CUstream) {
    let mut parameters = CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS::zeroed();
    parameters.params.fence.value = value;
    let (its, from) = (&raw const semaphore, &raw const parameters);
    succeeds!(cuSignalExternalSemaphoresAsync(its, from, 1, stream));
}

#[test]
fn imports_of_memory_have_the_codes_of_an_h200() {
    let _bench = in_child!(without_misuse());
    let file = memory(SIZE).expect("memory");
    let raw = duplicate(&file);
    let mut made: CUexternalMemory = null_mut();
    let place = &raw mut made;
    let with = |kind, descriptor, size| memory_description(kind, descriptor, size);
    for kind in [2, 3, 4, 8] {
        refused!(UNSUPPORTED, cuImportExternalMemory(place, from_ref(&with(kind, raw, SIZE))));
    }
    for kind in [0, 5, 6, 7, 10] {
        refused!(INVALID, cuImportExternalMemory(place, from_ref(&with(kind, raw, SIZE))));
    }
    refused!(INVALID, cuImportExternalMemory(place, from_ref(&with(1, raw, 0))));
    refused!(INVALID, cuImportExternalMemory(null_mut(), from_ref(&with(1, raw, SIZE))));
    refused!(INVALID, cuImportExternalMemory(place, null()));
    refused!(UNKNOWN, cuImportExternalMemory(place, from_ref(&with(1, -1, SIZE))));
    let null_file = File::open("/dev/null").expect("open");
    let other = duplicate(&null_file);
    refused!(UNKNOWN, cuImportExternalMemory(place, from_ref(&with(1, other, SIZE))));
    // Measured: a descriptor that is not one of memory is closed, and other errors leave it to the program.
    let is_open = |its| std::fs::symlink_metadata(format!("/proc/self/fd/{its}")).is_ok();
    assert!(is_open(raw) && !is_open(other));
    // SAFETY: the descriptor is open, and this test owns it.
    drop(unsafe { OwnedFd::from_raw_fd(raw) });
    let dedicated = import(&file, SIZE, 1);
    let wanted = range(4096, 4096);
    refused!(INVALID, cuExternalMemoryGetMappedBuffer(&mut 0, dedicated, &raw const wanted));
    succeeds!(cuDestroyExternalMemory(dedicated));
    let memory = import(&file, SIZE, 0);
    for (offset, size) in [(0, 0), (0, SIZE + 1), (SIZE, 1), (u64::MAX, 2)] {
        let wanted = range(offset, size);
        let place = &mut 0;
        refused!(INVALID, cuExternalMemoryGetMappedBuffer(place, memory, &raw const wanted));
    }
    let address = map(memory, SIZE - 4, 4);
    succeeds!(cuDestroyExternalMemory(memory));
    succeeds!(cuMemFree_v2(address));
}

#[test]
fn an_exported_allocation_is_no_dma_buf() {
    let _bench = in_child!(without_misuse());
    let wanted = crate::virtual_memory::shareable();
    let handle: u64 = out!(cuMemCreate(PAGE, &raw const wanted, 0));
    let kind = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    let mut descriptor: c_int = -1;
    let place = (&raw mut descriptor).cast();
    succeeds!(cuMemExportToShareableHandle(place, handle, kind, 0));
    let description = memory_description(9, descriptor, PAGE as u64);
    let mut made: CUexternalMemory = null_mut();
    refused!(UNSUPPORTED, cuImportExternalMemory(&raw mut made, &raw const description));
    let description = memory_description(1, descriptor, PAGE as u64);
    let memory: CUexternalMemory = out!(cuImportExternalMemory(&raw const description));
    succeeds!(cuMemRelease(handle));
    let address = map(memory, 0, 4);
    assert_eq!(read::<1>(address), [0]);
    succeeds!(cuMemFree_v2(address));
    succeeds!(cuDestroyExternalMemory(memory));
}

#[test]
fn a_size_that_is_too_large_is_found() {
    let _bench =
        in_child!(misused("2097152 bytes of external memory are imported from memory of 1048576"));
    let file = memory(SIZE).expect("memory");
    let memory = import(&file, 2 * SIZE, 0);
    let address = map(memory, SIZE - 4, 4);
    let place = &mut 0;
    refused!(INVALID, cuExternalMemoryGetMappedBuffer(place, memory, from_ref(&range(SIZE, 4))));
    succeeds!(cuMemFree_v2(address));
    succeeds!(cuDestroyExternalMemory(memory));
}

#[test]
fn a_mapping_that_is_used_after_the_memory_is_found() {
    let _bench = in_child!(misused("used after their external memory was destroyed"));
    let file = memory(SIZE).expect("memory");
    file.write_all_at(&[5], 8).expect("written");
    let memory = import(&file, SIZE, 0);
    let address = map(memory, 8, 4);
    succeeds!(cuDestroyExternalMemory(memory));
    // Measured: the mapping keeps the memory.
    assert_eq!(read::<1>(address), [5]);
    succeeds!(cuMemFree_v2(address));
}

#[test]
fn memory_that_was_destroyed_is_not_mapped() {
    let _bench = in_child!(misused("external memory is used after it was destroyed"));
    let file = memory(SIZE).expect("memory");
    let memory = import(&file, SIZE, 0);
    succeeds!(cuDestroyExternalMemory(memory));
    let place = &mut 0;
    refused!(INVALID, cuExternalMemoryGetMappedBuffer(place, memory, from_ref(&range(0, 4))));
}

#[test]
fn an_image_in_memory_that_is_not_dedicated_has_an_offset() {
    let _bench = in_child!(without_misuse());
    let file = memory(SIZE).expect("memory");
    let mut image = CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC::zeroed();
    image.offset = 512;
    image.arrayDesc.Width = 4;
    image.arrayDesc.Height = 4;
    image.arrayDesc.Format = CUarray_format::CU_AD_FORMAT_FLOAT;
    image.arrayDesc.NumChannels = 1;
    image.numLevels = 1;
    let plain = import(&file, SIZE, 0);
    let array: CUmipmappedArray =
        out!(cuExternalMemoryGetMappedMipmappedArray(plain, &raw const image));
    succeeds!(cuMipmappedArrayDestroy(array));
    let dedicated = import(&file, SIZE, 1);
    let mut array: CUmipmappedArray = null_mut();
    let place = &raw mut array;
    refused!(INVALID, cuExternalMemoryGetMappedMipmappedArray(place, dedicated, &raw const image));
    succeeds!(cuDestroyExternalMemory(plain));
    succeeds!(cuDestroyExternalMemory(dedicated));
}

#[test]
fn memory_that_is_imported_as_a_semaphore_is_found() {
    let bench = &in_child!(misused("the descriptor of memory is imported as a semaphore"));
    let file = memory(SIZE).expect("memory");
    let semaphore = import_semaphore(1, file.try_clone().expect("a duplicate").into());
    signal(semaphore, 0, bench.stream);
    succeeds!(cuStreamSynchronize(bench.stream));
    // Measured: the signal writes the memory.
    let mut word = [0; 8];
    file.read_exact_at(&mut word, 0).expect("read");
    assert_eq!(word, [1, 0, 0, 0, 0, 0, 0, 0]);
    succeeds!(cuDestroyExternalSemaphore(semaphore));
}

#[test]
fn a_semaphore_of_another_type_is_found() {
    let bench = &in_child!(misused("a semaphore is imported as one of another type"));
    let theirs = ExternalSemaphore::timeline(0).expect("a semaphore");
    // Measured: the driver accepts it.
    let semaphore = import_semaphore(1, theirs.export().expect("a descriptor"));
    signal(semaphore, 0, bench.stream);
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(theirs.value().expect("a value"), 1);
    succeeds!(cuDestroyExternalSemaphore(semaphore));
}

#[test]
fn a_semaphore_that_is_imported_as_memory_is_found() {
    let _bench = in_child!(misused("the descriptor of a semaphore is imported as memory"));
    let theirs = ExternalSemaphore::timeline(3).expect("a semaphore");
    let descriptor = theirs.export().expect("a descriptor").into_raw_fd();
    let description = memory_description(1, descriptor, 8);
    // Measured: the driver accepts it.
    let memory: CUexternalMemory = out!(cuImportExternalMemory(&raw const description));
    let address = map(memory, 0, 8);
    assert_eq!(read::<2>(address), [3, 0]);
    succeeds!(cuMemFree_v2(address));
    succeeds!(cuDestroyExternalMemory(memory));
}

#[test]
fn a_semaphore_that_is_destroyed_too_early_is_found() {
    let bench = &in_child!(misused("destroyed before its signals and waits are complete"));
    let theirs = ExternalSemaphore::binary().expect("a semaphore");
    theirs.signal(1).expect("signaled");
    let semaphore = import_semaphore(1, theirs.export().expect("a descriptor"));
    let wait = CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS::zeroed();
    let its = &raw const semaphore;
    succeeds!(cuWaitExternalSemaphoresAsync(its, &raw const wait, 1, bench.stream));
    succeeds!(cuDestroyExternalSemaphore(semaphore));
}

#[test]
fn a_value_that_decreases_is_found() {
    let bench = &in_child!(misused("signaled with 3, although it has reached 4"));
    let theirs = ExternalSemaphore::timeline(2).expect("a semaphore");
    let semaphore = import_semaphore(9, theirs.export().expect("a descriptor"));
    signal(semaphore, 4, bench.stream);
    signal(semaphore, 3, bench.stream);
    succeeds!(cuStreamSynchronize(bench.stream));
    succeeds!(cuDestroyExternalSemaphore(semaphore));
}

#[test]
fn two_signals_of_a_binary_semaphore_are_found() {
    let bench = &in_child!(misused("a binary semaphore is signaled twice without a wait"));
    let theirs = ExternalSemaphore::binary().expect("a semaphore");
    let semaphore = import_semaphore(1, theirs.export().expect("a descriptor"));
    signal(semaphore, 0, bench.stream);
    signal(semaphore, 0, bench.stream);
    succeeds!(cuStreamSynchronize(bench.stream));
    succeeds!(cuDestroyExternalSemaphore(semaphore));
}

#[test]
fn the_other_api_cannot_signal_what_is_signaled() {
    in_child!();
    let binary = ExternalSemaphore::binary().expect("a semaphore");
    assert!(binary.signal(2).is_err());
    binary.signal(1).expect("signaled");
    assert!(binary.signal(1).is_err());
    assert!(binary.take().expect("a wait"));
    assert!(!binary.take().expect("not signaled"));
    let timeline = ExternalSemaphore::timeline(5).expect("a semaphore");
    assert!(timeline.signal(5).is_err());
    timeline.signal(6).expect("signaled");
    assert_eq!(timeline.value().expect("a value"), 6);
}
