//! Splits into groups of given sizes: unverified (from documentation).

use super::Out;
use super::green::{Group, bits};
use crate::sms::granularity;
use crate::world::{Answer, World};
use core::ffi::c_uint;
use cuda_sys::{
    CU_DEV_SM_RESOURCE_GROUP_PARAMS as Params, CUdevResource, CUdevSmResourceGroup_flags as Flags,
    CUresult, CudaVersion,
};

/// The one locality domain that there is.
const DOMAIN: u32 = 0;
const ANY_DOMAIN: u32 = !0;

/// What a request comes to: its group's size and how many SMs run clusters together.
fn size(world: &World, left: u32, request: &Params) -> Answer<(u32, u32)> {
    let wrong = CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    let profile = &world.profile;
    let since = |major, minor| profile.driver >= CudaVersion::new(major, minor);
    let clusters = profile.gpu.capability.0 >= 9;
    let usual = granularity(profile, false).multiple.max(2);
    let together = match request.coscheduledSmCount {
        0 => usual,
        asked => asked,
    };
    let most = if clusters { 32 } else { 2 };
    if together % 2 != 0 || together > most {
        return Err(wrong);
    }
    let mut known = Flags::CU_DEV_SM_RESOURCE_GROUP_BACKFILL.0;
    if since(13, 4) {
        known |= Flags::CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_ID.0;
    }
    if since(13, 5) {
        known |= Flags::CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_SUPPLEMENTAL_SMS.0;
    }
    if request.flags & !known != 0 || request.reserved.iter().any(|word| *word != 0) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let pinned = request.flags & Flags::CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_ID.0 != 0;
    let any = since(13, 5) && request.localityDomainId == ANY_DOMAIN;
    if pinned && request.localityDomainId != DOMAIN && !any {
        return Err(wrong);
    }
    // Filling up makes the co-scheduling a hint.
    let backfill = request.flags & Flags::CU_DEV_SM_RESOURCE_GROUP_BACKFILL.0 != 0;
    let unit = if backfill { 2 } else { together };
    let size = match request.smCount {
        0 => left - left % unit,
        asked if asked % 2 != 0 || asked > left => return Err(wrong),
        asked if asked % together != 0 && request.coscheduledSmCount != 0 => return Err(wrong),
        asked if asked % unit != 0 => return Err(wrong),
        asked => asked,
    };
    if size == 0 || (size < together && !backfill) {
        return Err(wrong);
    }
    Ok((size, together))
}

pub(super) fn exact(
    world: &mut World,
    groups: *mut CUdevResource,
    count: c_uint,
    input: *const CUdevResource,
    remainder: &mut Out<CUdevResource>,
    flags: c_uint,
    requests: *mut Params,
) -> Answer {
    // SAFETY: the caller has a resource there, or null.
    let input = unsafe { input.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let input = Group::of(input)?;
    if flags != 0 || count == 0 || requests.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let mut taken = 0;
    let mut sizes = Vec::new();
    for index in 0..count as usize {
        // SAFETY: the caller has `count` requests there.
        let place = unsafe { requests.add(index) };
        // SAFETY: as above.
        let mut request = unsafe { place.read() };
        let (size, together) = size(world, input.count - taken, &request)?;
        request.smCount = size;
        request.coscheduledSmCount = together;
        // SAFETY: as above.
        unsafe { place.write(request) };
        sizes.push((taken, size));
        taken += size;
    }
    if groups.is_null() {
        return Ok(());
    }
    world.splits += 1;
    let part = |first: u32, count: u32| Group {
        split: world.splits,
        count,
        sms: bits(input.sms().skip(first as usize).take(count as usize)),
        ..input
    };
    for (index, (first, size)) in sizes.iter().enumerate() {
        let group = part(*first, *size).resource(world, false);
        // SAFETY: the caller has room for `count` resources there.
        let place = unsafe { groups.add(index) };
        // SAFETY: as above.
        unsafe { place.write(group) };
    }
    remainder.set(match input.count - taken {
        0 => CUdevResource::default(),
        rest => part(taken, rest).resource(world, false),
    });
    Ok(())
}
