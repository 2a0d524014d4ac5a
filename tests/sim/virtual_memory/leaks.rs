//! Mappings of virtual memory that the driver does not unmap.

use crate::capture::errors::reports;
use crate::prelude::*;
use cuda_safe::leaked;
use cuda_safe::virtual_memory::unmap_after_work;

const PAGE: usize = 2 << 20;
const REFUSED: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// The driver refuses to free a range that contains a mapping, so that this would be a second leak.
#[test]
fn a_reservation_with_a_leaked_mapping_is_not_freed() {
    let (_end, context) = in_child!(leaking());
    let reports = reports();
    let memory = || PhysicalMemory::new(context.device(), PAGE).expect("memory");
    let space = Reservation::new(2 * PAGE).expect("addresses");
    let first = space.map(0, memory()).expect("a mapping");
    let second = space.map(PAGE, memory()).expect("a mapping");
    drop(space);
    {
        let _fails = fail("cuMemUnmap", 1, REFUSED);
        drop(first);
    }
    // The mapping, its memory and its addresses.
    assert_eq!(leaked(), 3);
    assert_eq!(calls(|| drop(second)), ["cuMemUnmap", "cuMemRelease"]);
    assert_eq!(leaked(), 3);
    let reports = reports.lock().expect("no panic");
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(reports[0].contains("a mapping of virtual memory"));
}

#[test]
fn a_reservation_whose_only_mapping_has_leaked_is_not_freed() {
    let (_end, context) = in_child!(leaking());
    let memory = PhysicalMemory::new(context.device(), PAGE).expect("memory");
    let space = Reservation::new(PAGE).expect("addresses");
    let mapping = space.map(0, memory).expect("a mapping");
    drop(space);
    let _fails = fail("cuMemUnmap", 1, REFUSED);
    drop(mapping);
    assert_eq!(leaked(), 3);
}

/// A failed unmapping that is repeated successfully is no leak.
#[test]
fn a_reservation_is_freed_if_a_second_attempt_unmaps() {
    let (_end, context) = in_child!(leaking());
    let memory = PhysicalMemory::new(context.device(), PAGE).expect("memory");
    let space = Reservation::new(PAGE).expect("addresses");
    let mapping = space.map(0, memory).expect("a mapping");
    drop(space);
    let _fails = fail("cuMemUnmap", 1, REFUSED);
    let called = calls(|| drop(mapping.unmap().expect_err("the fault")));
    assert_eq!(called.last(), Some(&"cuMemAddressFree"), "{called:?}");
    assert_eq!(leaked(), 0);
}

#[test]
fn memory_is_unmapped_after_the_work_of_the_contexts() {
    let (_end, context, stream) = in_child!(on_stream());
    let granularity = PhysicalOptions::new(context.device()).granularity().expect("known");
    let memory = PhysicalMemory::new(context.device(), granularity).expect("physical memory");
    let space = Reservation::new(granularity).expect("a reservation");
    let mapping = space.map(0, memory).expect("a mapping");
    let ran = Arc::new(AtomicBool::new(false));
    let runs = Arc::clone(&ran);
    stream.launch_host_function(move || runs.store(true, Ordering::SeqCst)).expect("launched");
    assert_eq!(count("cuMemUnmap", || unmap_after_work(vec![context.clone()], vec![mapping])), 1);
    assert!(ran.load(Ordering::SeqCst));
}
