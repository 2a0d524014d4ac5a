//! Managed memory of `cuMemAllocManaged` and of managed pools. Memory does not migrate; advice and prefetches
//! are stored and returned by queries.
//!
//! The codes and the values of attributes are those of an H200 with driver 580.

use crate::api::prelude::*;
use crate::exec::Work;
use crate::memory::{Attached, HostKind, Kind, PAGE, Page, Pages};
use crate::thread;
use cuda_sys::{
    CU_DEVICE_CPU, CU_DEVICE_INVALID, CUmem_advise, CUmem_range_attribute, CUmemAttach_flags,
    CUmemLocation, CUmemLocation_st__bindgen_ty_1, CUmemLocationType,
};

use std::ops::Range;

/// A location as the driver's attributes return it: type and number.
type Place = (u32, i32);

/// The value of bytes that were discarded.
const DISCARDED: u8 = 0x5a;

pub(crate) fn allocate(
    world: &mut World,
    address: Out<CUdeviceptr>,
    size: usize,
    flags: c_uint,
) -> Answer {
    let attached = match CUmemAttach_flags(flags) {
        CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL => Attached::Global,
        CUmemAttach_flags::CU_MEM_ATTACH_HOST => Attached::Host,
        _ => return Err(INVALID),
    };
    if size == 0 {
        address.set(0);
        return Err(INVALID);
    }
    let home = world.home()?;
    world.forbidden_in_capture()?;
    // If host and device may access the memory at the same time, attaching has no effect.
    let attached = match world.settings.profile.concurrent_managed_access {
        true => Attached::Global,
        false => attached,
    };
    let start = world.objects.memory.manage(size, attached, flags, home)?;
    address.put(start as CUdeviceptr)
}

/// Frees managed memory for `cuMemFree`, after all work. Returns whether the address was managed memory.
pub(crate) fn free(world: &mut World, address: CUdeviceptr) -> Answer<bool> {
    let start = usize::try_from(address).map_err(|_| INVALID)?;
    let is_managed = |kind: &HostKind| matches!(kind, HostKind::Managed(..));
    if !world.objects.memory.host_at(start).is_some_and(|(_, host)| is_managed(&host.kind)) {
        return Ok(false);
    }
    world.run_all()?;
    if world.objects.memory.forget_host(start, is_managed) {
        return Ok(true);
    }
    misuse("cuMemFree of an address inside managed memory");
    Err(INVALID)
}

/// Returns the start of the memory of `cuMemAllocManaged` that contains the whole range.
fn managed(world: &World, address: CUdeviceptr, size: usize) -> Answer<usize> {
    let address = usize::try_from(address).map_err(|_| INVALID)?;
    match world.objects.memory.host_at(address) {
        Some((start, host)) if host.is_managed() && size <= host.len - (address - start) => {
            Ok(start)
        }
        _ => Err(INVALID),
    }
}

pub(crate) fn attach(
    world: &mut World,
    stream: CUstream,
    address: CUdeviceptr,
    size: usize,
    flags: c_uint,
) -> Answer {
    // Measured for the handle of the legacy default stream: only null is refused.
    let is_null = stream.is_null();
    let stream = world.stream(stream.addr())?;
    world.forbidden_on_capturing(stream)?;
    let start = managed(world, address, size)?;
    let whole = world.objects.memory.host_at(start).map_or(0, |(_, host)| host.len);
    let attached = match CUmemAttach_flags(flags) {
        CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL => Attached::Global,
        CUmemAttach_flags::CU_MEM_ATTACH_HOST => Attached::Host,
        CUmemAttach_flags::CU_MEM_ATTACH_SINGLE if !is_null => Attached::Stream(stream),
        _ => return Err(INVALID),
    };
    fail_if(start as u64 != address || (size != 0 && size != whole), INVALID)?;
    let attached = match world.settings.profile.concurrent_managed_access {
        true => Attached::Global,
        false => attached,
    };
    world.give_or_capture(stream, Work::Attach(start, attached))
}

/// Returns the pages of managed memory, and those that a range overlaps.
fn pages(
    world: &mut World,
    address: CUdeviceptr,
    size: usize,
) -> Answer<(&mut Pages, Range<usize>)> {
    fail_if(size == 0, INVALID)?;
    let range = |first: usize| first / PAGE..(first + size).div_ceil(PAGE);
    if let Ok(start) = managed(world, address, size) {
        let first = usize::try_from(address).map_err(|_| INVALID)? - start;
        let host = world.objects.memory.host_at_mut(start).ok_or(INVALID)?.1;
        return Ok((&mut host.managed().ok_or(INVALID)?.pages, range(first)));
    }
    let holder = world.objects.memory.containing(address).map(|(_, its)| its.kind);
    if matches!(holder, Some(Kind::Ordered { freed: true, .. })) {
        misuse(format!("{size} bytes at {address:#x} are used after their free was enqueued"));
    }
    let found = world.objects.memory.pages_of_pool(address, size);
    let (start, pages) = found.ok_or(INVALID)?;
    let first = usize::try_from(address - start).map_err(|_| INVALID)?;
    Ok((pages, range(first)))
}

/// Converts a location that the driver accepts for managed memory.
fn place(world: &World, location: CUmemLocation) -> Answer<Place> {
    // SAFETY: both members of the union are integers.
    let id = unsafe { location.__bindgen_anon_1.id };
    match location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => {
            world.device(id)?;
            if !world.settings.profile.concurrent_managed_access {
                return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
            }
            Ok((location.type_.0, id))
        }
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST => Ok((location.type_.0, id)),
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Ok((location.type_.0, 0)),
        // There is only one NUMA node.
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA if id == 0 => Ok((location.type_.0, id)),
        _ => Err(INVALID),
    }
}

/// Like [`place`], for the functions that ignore the id of the host.
fn place_of_one(world: &World, location: CUmemLocation) -> Answer<Place> {
    let place = place(world, location)?;
    Ok(match place.0 == CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST.0 {
        true => (place.0, CU_DEVICE_CPU),
        false => place,
    })
}

/// Converts the device number that older functions use to a location.
fn location(device: CUdevice) -> CUmemLocation {
    let kind = match device {
        CU_DEVICE_CPU => CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST,
        _ => CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
    };
    CUmemLocation { type_: kind, __bindgen_anon_1: CUmemLocation_st__bindgen_ty_1 { id: device } }
}

/// Converts a location to the device number that older functions use.
fn device((kind, id): Place) -> CUdevice {
    match CUmemLocationType(kind) {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => id,
        _ => CU_DEVICE_CPU,
    }
}

/// Measured: unlike the older function and a prefetch, fails with `CUDA_ERROR_INVALID_VALUE` for an unknown device.
pub(crate) fn advise(
    world: &mut World,
    address: CUdeviceptr,
    size: usize,
    advice: CUmem_advise,
    location: CUmemLocation,
) -> Answer {
    // SAFETY: both members of the union are integers.
    let is_known = world.device(unsafe { location.__bindgen_anon_1.id }).is_ok();
    advise_at(world, address, size, advice, location).map_err(|code| match code {
        CUresult::CUDA_ERROR_INVALID_DEVICE if !is_known => INVALID,
        code => code,
    })
}

fn advise_at(
    world: &mut World,
    address: CUdeviceptr,
    size: usize,
    advice: CUmem_advise,
    location: CUmemLocation,
) -> Answer {
    world.current()?;
    world.forbidden_in_capture()?;
    let names_a_processor = matches!(
        advice,
        CUmem_advise::CU_MEM_ADVISE_SET_ACCESSED_BY | CUmem_advise::CU_MEM_ADVISE_UNSET_ACCESSED_BY
    );
    let is_preference = advice == CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
    let place = match names_a_processor || is_preference {
        true => Some(place_of_one(world, location)?),
        false => None,
    };
    // Measured: other advice ignores the number of the location, but not its type.
    let is_known = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE
        ..=CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    fail_if(!is_known.contains(&location.type_), INVALID)?;
    let is_processor = matches!(
        location.type_,
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE
            | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST
    );
    fail_if(names_a_processor && !is_processor, INVALID)?;
    if size != 0 && world.objects.memory.is_managed_of_pool(address, size) {
        // Memory of a pool takes no advice. Advice for a NUMA node is accepted and has no effect, also if it
        // needs no location.
        return match location.type_ {
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA => Ok(()),
            _ => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        };
    }
    let (pages, range) = pages(world, address, size)?;
    match advice {
        CUmem_advise::CU_MEM_ADVISE_SET_READ_MOSTLY => {
            pages.change(range, |page| page.read_mostly = true);
        }
        CUmem_advise::CU_MEM_ADVISE_UNSET_READ_MOSTLY => {
            pages.change(range, |page| page.read_mostly = false);
        }
        CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION => {
            pages.change(range, |page| page.preferred = place);
        }
        CUmem_advise::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION => {
            pages.change(range, |page| page.preferred = None);
        }
        CUmem_advise::CU_MEM_ADVISE_SET_ACCESSED_BY => {
            pages.change(range, |page| page.accessed_by.extend(place.map(device)));
        }
        CUmem_advise::CU_MEM_ADVISE_UNSET_ACCESSED_BY => {
            let others = |its: &i32| place.map(device) != Some(*its);
            pages.change(range, |page| page.accessed_by.retain(others));
        }
        _ => return Err(INVALID),
    }
    Ok(())
}

pub(crate) fn advise_device(
    world: &mut World,
    address: CUdeviceptr,
    size: usize,
    advice: CUmem_advise,
    device: CUdevice,
) -> Answer {
    advise_at(world, address, size, advice, location(device))
}

pub(crate) fn prefetch(
    world: &mut World,
    address: CUdeviceptr,
    size: usize,
    location: CUmemLocation,
    flags: c_uint,
    stream: CUstream,
) -> Answer {
    fail_if(flags != 0, INVALID)?;
    let stream = world.stream(stream.addr())?;
    let place = place_of_one(world, location)?;
    pages(world, address, size)?;
    cannot_be_captured(world, stream)?;
    let (pages, range) = pages(world, address, size)?;
    pages.change(range, |page| page.last_prefetch = Some(place));
    world.give(stream, Work::Nothing, Vec::new());
    Ok(())
}

pub(crate) fn prefetch_device(
    world: &mut World,
    address: CUdeviceptr,
    size: usize,
    device: CUdevice,
    stream: CUstream,
) -> Answer {
    prefetch(world, address, size, location(device), 0, stream)
}

/// Fails if the stream is capturing, and invalidates the capture.
fn cannot_be_captured(world: &mut World, stream: usize) -> Answer {
    match world.recording(stream)? {
        Some(_) => world.forbidden_on_capturing(stream),
        None => Ok(()),
    }
}

/// Returns the stream of a batch, which is not the legacy default stream.
fn stream_of_batch(world: &mut World, stream: CUstream) -> Answer<usize> {
    let is_per_thread = stream.is_null() && thread::has_per_thread_default();
    fail_if(stream.addr() <= cuda_sys::CU_STREAM_LEGACY.addr() && !is_per_thread, INVALID)?;
    world.stream(stream.addr())
}

/// Returns the ranges of a batch.
fn ranges(
    world: &mut World,
    addresses: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
) -> Answer<Vec<(CUdeviceptr, usize)>> {
    let mut ranges = Vec::new();
    for (address, size) in list(addresses, count)?.into_iter().zip(list(sizes, count)?) {
        pages(world, address, size)?;
        ranges.push((address, size));
    }
    Ok(ranges)
}

/// Returns a list that the caller passed, which must not be empty.
fn list<T: Copy>(first: *const T, count: usize) -> Answer<Vec<T>> {
    fail_if(first.is_null() || count == 0, INVALID)?;
    // SAFETY: the caller passes `count` values.
    Ok(unsafe { core::slice::from_raw_parts(first, count) }.to_vec())
}

/// Returns the location of each of `count` ranges. A location applies to the ranges from its first one
/// up to that of the next location.
fn places(
    world: &World,
    locations: *mut CUmemLocation,
    firsts: *mut usize,
    location_count: usize,
    count: usize,
) -> Answer<Vec<Place>> {
    let firsts = list(firsts, location_count)?;
    let rising = firsts.windows(2).all(|pair| pair[0] < pair[1]);
    fail_if(firsts[0] != 0 || !rising || firsts[location_count - 1] >= count, INVALID)?;
    let mut places = Vec::new();
    for (index, location) in list(locations, location_count)?.into_iter().enumerate() {
        let end = firsts.get(index + 1).copied().unwrap_or(count);
        let place = place(world, location)?;
        places.resize(end, place);
    }
    Ok(places)
}

pub(crate) fn prefetch_batch(
    world: &mut World,
    addresses: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    locations: *mut CUmemLocation,
    firsts: *mut usize,
    location_count: usize,
    flags: c_ulonglong,
    stream: CUstream,
) -> Answer {
    fail_if(flags != 0, INVALID)?;
    let stream = stream_of_batch(world, stream)?;
    let ranges = ranges(world, addresses, sizes, count)?;
    let places = places(world, locations, firsts, location_count, count)?;
    cannot_be_captured(world, stream)?;
    for ((address, size), place) in ranges.into_iter().zip(places) {
        let (pages, range) = pages(world, address, size)?;
        pages.change(range, |page| page.last_prefetch = Some(place));
    }
    world.give(stream, Work::Nothing, Vec::new());
    Ok(())
}

pub(crate) fn discard_batch(
    world: &mut World,
    addresses: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    flags: c_ulonglong,
    stream: CUstream,
) -> Answer {
    fail_if(flags != 0, INVALID)?;
    let stream = stream_of_batch(world, stream)?;
    let ranges = ranges(world, addresses, sizes, count)?;
    cannot_be_captured(world, stream)?;
    for (at, count) in ranges {
        let pattern = vec![DISCARDED];
        world.give(stream, Work::Fill { at, pattern, count }, Vec::new());
    }
    Ok(())
}

pub(crate) fn discard_and_prefetch_batch(
    world: &mut World,
    addresses: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    locations: *mut CUmemLocation,
    firsts: *mut usize,
    location_count: usize,
    flags: c_ulonglong,
    stream: CUstream,
) -> Answer {
    places(world, locations, firsts, location_count, count)?;
    discard_batch(world, addresses, sizes, count, flags, stream)?;
    prefetch_batch(world, addresses, sizes, count, locations, firsts, location_count, flags, stream)
}

/// Writes as many values as fit, and fills the rest with `CU_DEVICE_INVALID`.
fn write(data: *mut c_void, size: usize, values: &[i32]) -> Answer {
    fail_if(data.is_null() || size == 0 || size % 4 != 0, INVALID)?;
    for index in 0..size / 4 {
        let value = values.get(index).copied().unwrap_or(CU_DEVICE_INVALID);
        // SAFETY: the caller passes `size` bytes, and these 4 are among them.
        let place = unsafe { data.cast::<i32>().add(index) };
        // SAFETY: the caller passes `size` bytes, and these 4 are among them.
        unsafe { place.write(value) };
    }
    Ok(())
}

pub(crate) fn attributes(
    world: &mut World,
    data: *mut *mut c_void,
    sizes: *mut usize,
    attributes: *mut CUmem_range_attribute,
    count: usize,
    address: CUdeviceptr,
    size: usize,
) -> Answer {
    world.current()?;
    let (data, sizes) = (list(data, count)?, list(sizes, count)?);
    let newer = world.settings.profile.driver >= cuda_sys::CudaVersion::new(12, 2);
    let (pages, range) = pages(world, address, size)?;
    let pages: Vec<&Page> = pages.of(range).collect();
    let first = pages[0];
    // The result is the value that all pages have in common.
    let common = |place: fn(&Page) -> Option<Place>| {
        place(first).filter(|its| pages.iter().all(|page| place(page) == Some(*its)))
    };
    let (preferred, prefetched) = (common(|its| its.preferred), common(|its| its.last_prefetch));
    let kind = |place: Option<Place>| place.map_or(0, |(kind, _)| i32::try_from(kind).unwrap_or(0));
    let id = |place: Option<Place>| place.map_or(CU_DEVICE_INVALID, |(_, id)| id);
    for (index, attribute) in list(attributes, count)?.into_iter().enumerate() {
        let values = match attribute {
            CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY => {
                vec![i32::from(pages.iter().all(|page| page.read_mostly))]
            }
            CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION => {
                vec![preferred.map_or(CU_DEVICE_INVALID, device)]
            }
            CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY => {
                let by_all = |its: &&i32| pages.iter().all(|page| page.accessed_by.contains(its));
                let its = first.accessed_by.iter().filter(by_all).copied();
                // Measured: the CPU is after the devices.
                let (host, mut devices): (Vec<i32>, Vec<i32>) =
                    its.partition(|its| *its == CU_DEVICE_CPU);
                devices.extend(host);
                devices
            }
            CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION => {
                vec![prefetched.map_or(CU_DEVICE_INVALID, device)]
            }
            _ if !newer => return Err(INVALID),
            CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE => {
                vec![kind(preferred)]
            }
            CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID => {
                vec![id(preferred)]
            }
            CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE => {
                vec![kind(prefetched)]
            }
            CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID => {
                vec![id(prefetched)]
            }
            _ => return Err(INVALID),
        };
        write(data[index], sizes[index], &values)?;
    }
    Ok(())
}

pub(crate) fn attribute(
    world: &mut World,
    mut data: *mut c_void,
    mut data_size: usize,
    mut attribute: CUmem_range_attribute,
    address: CUdeviceptr,
    size: usize,
) -> Answer {
    let (data, sizes) = (&raw mut data, &raw mut data_size);
    attributes(world, data, sizes, &raw mut attribute, 1, address, size)
}

/// Returns the most common location of each part of a range. A page is where it was prefetched, and has no
/// location before. Of equally common locations, returns the first.
pub(crate) fn locations(
    world: &mut World,
    address: CUdeviceptr,
    size: usize,
    part: usize,
    sample: usize,
    locations: *mut CUmemLocation,
) -> Answer {
    let is_part = (1..=size).contains(&part) && sample <= part;
    fail_if(!is_part || locations.is_null(), INVALID)?;
    fail_if(!world.settings.profile.concurrent_managed_access, CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
    let sample = if sample == 0 { PAGE.min(part) } else { sample };
    for (index, start) in (0..size).step_by(part).enumerate() {
        let mut found: Vec<(Place, usize)> = Vec::new();
        for offset in (start..size.min(start + part)).step_by(sample) {
            let (pages, range) = pages(world, address + offset as u64, 1)?;
            let page = pages.at(range.start);
            let place = page.and_then(|its| its.last_prefetch).unwrap_or((0, 0));
            match found.iter_mut().find(|(its, _)| *its == place) {
                Some((_, count)) => *count += 1,
                None => found.push((place, 1)),
            }
        }
        let most = found.iter().map(|(_, count)| *count).max();
        let place = found.iter().find(|(_, count)| Some(*count) == most);
        let (kind, id) = place.map_or((0, 0), |(place, _)| *place);
        let location = CUmemLocation {
            type_: CUmemLocationType(kind),
            __bindgen_anon_1: CUmemLocation_st__bindgen_ty_1 { id },
        };
        let place = locations.wrapping_add(index);
        // SAFETY: the caller passes a place for each part.
        unsafe { place.write(location) };
    }
    Ok(())
}
