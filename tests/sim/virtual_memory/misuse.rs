//! Misuses of virtual memory that kill the context on a real driver, crash it, or pass unnoticed.
#![cfg(target_os = "linux")]

use crate::prelude::*;
use crate::virtual_memory::{READ, append, create, map_new, set_access};

const ILLEGAL: CUresult = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;

#[test]
fn a_kernel_on_a_range_that_is_not_mapped_is_fatal() {
    let bench = &in_child!(misused("not mapped"));
    let start = reserve(PAGE);
    append(bench, start, 1, bench.stream);
    refused!(ILLEGAL, cuStreamSynchronize(bench.stream));
}

#[test]
fn a_kernel_without_rights_is_fatal() {
    let bench = &in_child!(misused("are mapped, but may not be"));
    let start = reserve(PAGE);
    succeeds!(cuMemMap(start, PAGE, 0, create(PAGE), 0));
    append(bench, start, 1, bench.stream);
    refused!(ILLEGAL, cuStreamSynchronize(bench.stream));
}

#[test]
fn taking_rights_away_under_a_queued_kernel_is_fatal() {
    let bench = &in_child!(misused("may not be written"));
    let start = reserve(PAGE);
    map_new(start, PAGE);
    append(bench, start, 1, bench.stream);
    set_access(start, PAGE, READ);
    refused!(ILLEGAL, cuStreamSynchronize(bench.stream));
}

#[test]
fn unmapping_under_queued_work_is_fatal() {
    let bench = &in_child!(misused("were unmapped"));
    let start = reserve(PAGE);
    map_new(start, PAGE);
    succeeds!(cuMemsetD32Async(start, 1, 1, bench.stream));
    succeeds!(cuMemUnmap(start, PAGE));
    refused!(ILLEGAL, cuStreamSynchronize(bench.stream));
}

#[test]
fn mapping_other_memory_under_queued_work_is_reported() {
    let bench = &in_child!(misused("mapped again under queued work"));
    let start = reserve(PAGE);
    map_new(start, PAGE);
    succeeds!(cuMemsetD32Async(start, 1, 1, bench.stream));
    succeeds!(cuMemUnmap(start, PAGE));
    map_new(start, PAGE);
    refused!(ILLEGAL, cuStreamSynchronize(bench.stream));
}

#[test]
fn work_may_be_queued_before_its_memory_is_mapped() {
    let bench = &in_child!(crate::graph::calls::without_misuse());
    let start = reserve(PAGE);
    append(bench, start, 8, bench.stream);
    map_new(start, PAGE);
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(read::<2>(start), [1, 8]);
    succeeds!(cuMemUnmap(start, PAGE));
    succeeds!(cuMemAddressFree(start, PAGE));
}

#[test]
fn a_mapping_past_the_end_of_a_reservation_is_reported() {
    let _bench = in_child!(misused("past the end of the reservation"));
    let start = reserve(PAGE);
    refused!(INVALID, cuMemMap(start, 2 * PAGE, 0, create(2 * PAGE), 0));
}

#[test]
fn mapping_a_released_handle_is_reported() {
    let _bench = in_child!(misused("after it was released"));
    let (start, handle) = (reserve(PAGE), create(PAGE));
    succeeds!(cuMemRelease(handle));
    refused!(INVALID, cuMemMap(start, PAGE, 0, handle, 0));
}

#[test]
fn releasing_a_handle_twice_is_reported() {
    let _bench = in_child!(misused("after it was released"));
    let handle = create(PAGE);
    succeeds!(cuMemRelease(handle));
    refused!(INVALID, cuMemRelease(handle));
}

#[test]
fn querying_a_released_handle_of_mapped_memory_is_reported() {
    let _bench = in_child!(misused("after it was released"));
    let (start, handle) = (reserve(PAGE), create(PAGE));
    succeeds!(cuMemMap(start, PAGE, 0, handle, 0));
    set_access(start, PAGE, READ_WRITE);
    succeeds!(cuMemRelease(handle));
    let mut shown = CUmemAllocationProp::zeroed();
    refused!(INVALID, cuMemGetAllocationPropertiesFromHandle(&raw mut shown, handle));
}

#[test]
fn releasing_a_value_that_is_not_a_handle_is_reported() {
    let _bench = in_child!(misused("not a handle"));
    refused!(INVALID, cuMemRelease(12345));
}

#[test]
fn a_fatal_error_ends_all_streams() {
    let bench = &in_child!(misused("not mapped"));
    append(bench, reserve(PAGE), 1, bench.stream);
    refused!(ILLEGAL, cuStreamSynchronize(bench.stream));
    refused!(ILLEGAL, cuStreamSynchronize(null_mut()));
}
