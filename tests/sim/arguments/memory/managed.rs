//! Managed memory: attachment, advice, prefetches and locations.

use crate::arguments::{On, Row, Stage, array, value};
use crate::prelude::*;
use cuda_safe::memory::{Advice, ManagedRange};

fn buffer(s: &Stage) -> Result<ManagedBuffer<u32>> {
    ManagedBuffer::zeroed(&s.stream, 32)
}

/// The kind of a location and its id.
type Place = (CUmemLocationType, i32);

fn numbers(location: &CUmemLocation) -> Place {
    // SAFETY: the field is an integer, so all bit patterns are valid.
    (location.type_, unsafe { location.__bindgen_anon_1.id })
}

const DEVICE: CUmemLocationType = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;

fn attachment() -> Vec<Row> {
    let row = |name, act: fn(&mut ManagedBuffer<u32>) -> Result<()>, flags: u32| {
        let name = format!("CUmemAttach_flags::CU_MEM_ATTACH_{name}");
        let act = move |s: &Stage| act(&mut buffer(s)?);
        Row::new(&name, act, "cuStreamAttachMemAsync", value("flags"), flags)
            .on(On::WithoutConcurrentAccess)
    };
    let allocate = |s: &Stage| buffer(s).map(drop);
    let global = "CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL";
    let host = "CUmemAttach_flags::CU_MEM_ATTACH_HOST";
    vec![
        Row::new(global, allocate, "cuMemAllocManaged", value("flags"), 1_u32),
        Row::new(host, allocate, "cuMemAllocManaged", value("flags"), 2_u32)
            .on(On::WithoutConcurrentAccess),
        row("HOST", |buffer| buffer.host().map(drop), 2),
        row("SINGLE", |buffer| buffer.device().map(drop), 4),
    ]
}

fn advice() -> Vec<Row> {
    let there = |s: &Stage| MemoryLocation::Device(s.peer);
    let row = |name, advice: fn(MemoryLocation) -> Advice, place: Option<Place>| {
        let name = format!("CU_MEM_ADVISE_{name}");
        let raw = CUmem_advise::from_name(&name).expect("a C name");
        let act = move |s: &Stage| {
            buffer(s)?.range(8..24)?.advise(advice(there(s)))?;
            s.stream.synchronize()?;
            Ok((raw, 64_usize, place))
        };
        let found = move |call: &_| {
            let location = numbers(&value("location")(call)?);
            let location = place.map(|_| location);
            Some((value("advice")(call)?, value("size")(call)?, location))
        };
        Row::of(&format!("CUmem_advise::{name}"), act).calls("cuMemAdvise_v2").with_told(found)
    };
    let peer = Some((DEVICE, 1));
    let mut rows = vec![
        row("SET_READ_MOSTLY", |_| Advice::ReadMostly, None),
        row("UNSET_READ_MOSTLY", |_| Advice::NotReadMostly, None),
        row("SET_PREFERRED_LOCATION", Advice::PreferredLocation, peer),
        row("UNSET_PREFERRED_LOCATION", |_| Advice::NoPreferredLocation, None),
        row("SET_ACCESSED_BY", Advice::AccessedBy, peer),
        row("UNSET_ACCESSED_BY", Advice::NotAccessedBy, peer),
    ];
    rows.push(
        Row::of("CUmem_advise::CU_MEM_ADVISE_SET_ACCESSED_BY", move |s| {
            buffer(s)?.range(..)?.advise(Advice::AccessedBy(there(s)))?;
            s.stream.synchronize()
        })
        .calls("cuMemAdvise")
        .with(
            |call| Some((value("advice")(call)?, value::<i32>("device")(call)?)),
            (CUmem_advise::CU_MEM_ADVISE_SET_ACCESSED_BY, 1),
        )
        .on(On::Oldest),
    );
    rows
}

fn locations() -> Vec<Row> {
    let row = |name, location: fn(&Stage) -> MemoryLocation, id: i32| {
        let name = format!("CU_MEM_LOCATION_TYPE_{name}");
        let raw = CUmemLocationType::from_name(&name).expect("a C name");
        let act = move |s: &Stage| buffer(s)?.range(..)?.prefetch(location(s));
        let found = |call: &_| Some(numbers(&value("location")(call)?));
        let name = format!("CUmemLocationType::{name}");
        Row::new(&name, act, "cuMemPrefetchAsync_v2", found, (raw, id))
    };
    let here = |s: &Stage| buffer(s)?.range(..)?.prefetch(MemoryLocation::Device(s.device));
    let to_host = |s: &Stage| buffer(s)?.range(..)?.prefetch(MemoryLocation::Host);
    vec![
        row("DEVICE", |s| MemoryLocation::Device(s.device), 0),
        row("HOST", |_| MemoryLocation::Host, 0),
        row("HOST_NUMA", |_| MemoryLocation::HostNuma(0), 0),
        row("HOST_NUMA_CURRENT", |_| MemoryLocation::HostNumaCurrent, 0),
        Row::of("CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE", here)
            .calls("cuMemPrefetchAsync")
            .with(value("device"), 0_i32)
            .on(On::Oldest),
        Row::of("CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST", to_host)
            .calls("cuMemPrefetchAsync")
            .with(value("device"), -1_i32)
            .on(On::Oldest),
    ]
}

fn attributes() -> impl Iterator<Item = Row> {
    [
        ("READ_MOSTLY", On::Newest),
        ("ACCESSED_BY", On::Newest),
        ("PREFERRED_LOCATION_TYPE", On::Newest),
        ("PREFERRED_LOCATION_ID", On::Newest),
        ("LAST_PREFETCH_LOCATION_TYPE", On::Newest),
        ("LAST_PREFETCH_LOCATION_ID", On::Newest),
        ("PREFERRED_LOCATION", On::Oldest),
        ("LAST_PREFETCH_LOCATION", On::Oldest),
    ]
    .into_iter()
    .map(|(name, on)| {
        let name = format!("CU_MEM_RANGE_ATTRIBUTE_{name}");
        let raw = CUmem_range_attribute::from_name(&name).expect("a C name");
        let act = |s: &Stage| buffer(s)?.range(..)?.info().map(drop);
        let found = array::<CUmem_range_attribute>("attributes");
        let found = move |call: &_| Some(found(call)?.contains(&raw));
        let name = format!("CUmem_range_attribute::{name}");
        Row::new(&name, act, "cuMemRangeGetAttributes", found, true).on(on)
    })
}

/// Calls `give` with two ranges, one for the device and one for the host, and returns their sizes in
/// bytes.
fn in_two<R>(
    s: &Stage,
    give: impl FnOnce([(ManagedRange<'_>, MemoryLocation); 2]) -> Result<R>,
) -> Result<Vec<usize>> {
    let buffer = buffer(s)?;
    let ranges = [
        (buffer.range(..4)?, MemoryLocation::Device(s.device)),
        (buffer.range(8..20)?, MemoryLocation::Host),
    ];
    give(ranges)?;
    s.stream.synchronize()?;
    Ok(vec![16, 48])
}

fn batches() -> Vec<Row> {
    let sizes = || array::<usize>("sizes");
    let places = |call: &_| {
        let locations = array::<CUmemLocation>("locations")(call)?;
        Some(locations.iter().map(numbers).collect::<Vec<_>>())
    };
    let both = vec![(DEVICE, 0), (CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST, 0)];
    let prefetch = |s: &Stage| in_two(s, |ranges| s.stream.prefetch_batch(&ranges));
    let discard = |s: &Stage| {
        in_two(s, |its| {
            let ranges = its.map(|(range, _)| range);
            // SAFETY: nothing reads the memory.
            unsafe { s.stream.discard_batch(&ranges) }
        })
    };
    let move_there = |s: &Stage| {
        in_two(s, |its| {
            // SAFETY: nothing reads the memory.
            unsafe { s.stream.discard_and_prefetch_batch(&its) }
        })
    };
    let (first, last) = ("cuMemPrefetchBatchAsync", "cuMemDiscardAndPrefetchBatchAsync");
    vec![
        Row::of(first, prefetch).calls(first).with_told(sizes()),
        Row::new(first, move |s| prefetch(s).map(drop), first, places, both.clone()),
        Row::of("cuMemDiscardBatchAsync", discard)
            .calls("cuMemDiscardBatchAsync")
            .with_told(sizes()),
        Row::of(last, move_there).calls(last).with_told(sizes()),
        Row::new(last, move |s| move_there(s).map(drop), last, places, both),
    ]
}

pub(in crate::arguments) fn rows() -> Vec<Row> {
    let mut rows = attachment();
    rows.extend(advice());
    rows.extend(locations());
    rows.extend(attributes());
    rows.extend(batches());
    rows
}
