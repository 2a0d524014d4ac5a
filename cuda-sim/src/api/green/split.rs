//! `cuDevSmResourceSplit`, which splits SMs into groups of given sizes. Unverified (from documentation).

use crate::api::green::bits;
use crate::api::prelude::*;
use crate::profile::sms::granularity;
use crate::state::green::Group;
use cuda_sys::{
    CU_DEV_SM_RESOURCE_GROUP_PARAMS as Params, CUdevResource, CUdevSmResourceGroup_flags as Flags,
    CudaVersion,
};

const ANY_DOMAIN: u32 = !0;

/// The SMs that were selected for a request.
struct Found {
    sms: Vec<u32>,
    /// The co-scheduled SM count: the number of SMs that are guaranteed to be co-scheduled.
    together: u32,
    domain: u32,
}

/// Selects SMs for a request from the SMs that are `free`. With `only_asking` (the caller passed no
/// memory for the groups), the group may be empty or too small.
fn find(world: &World, free: &[u32], request: &Params, only_asking: bool) -> Answer<Found> {
    let wrong = CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    let profile = &world.settings.profile;
    let clusters = profile.gpu.capability.0 >= 9;
    let usual = granularity(profile, false).multiple.max(2);
    let together = match request.coscheduledSmCount {
        0 => usual,
        asked => asked,
    };
    let most = if clusters { 32 } else { 2 };
    fail_if(together % 2 != 0 || together > most, wrong)?;
    check_flags(world, request)?;
    // With the backfill flag, the other parameters are only hints.
    let has = |flag: Flags| request.flags & flag.0 != 0;
    let backfill = has(Flags::CU_DEV_SM_RESOURCE_GROUP_BACKFILL);
    let (mut sms, mut domain) = (free.to_vec(), 0);
    if has(Flags::CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_ID) {
        let home = |sm: &u32| profile.gpu.domain_of(*sm);
        domain = match request.localityDomainId {
            // Selects the domain with the most free SMs, or the first of several such domains.
            ANY_DOMAIN => {
                let left = |domain: &u32| free.iter().filter(|sm| home(sm) == *domain).count();
                let domains = (0..profile.gpu.locality_domains).rev();
                domains.max_by_key(left).unwrap_or(0)
            }
            asked => asked,
        };
        sms.retain(|sm| home(sm) == domain);
        fail_if(sms.is_empty(), wrong)?;
        if backfill || has(Flags::CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_SUPPLEMENTAL_SMS) {
            sms.extend(free.iter().filter(|sm| home(sm) != domain));
        }
    }
    let left = u32::try_from(sms.len()).unwrap_or(u32::MAX);
    let unit = if backfill { 2 } else { together };
    let size = match request.smCount {
        0 => left - left % unit,
        asked if asked % 2 != 0 || asked > left || asked % unit != 0 => return Err(wrong),
        asked => asked,
    };
    fail_if((size == 0 || (size < together && !backfill)) && !only_asking, wrong)?;
    sms.truncate(size as usize);
    Ok(Found { sms, together, domain })
}

fn check_flags(world: &World, request: &Params) -> Answer {
    let since = |major, minor| world.settings.profile.driver >= CudaVersion::new(major, minor);
    let mut known = Flags::CU_DEV_SM_RESOURCE_GROUP_BACKFILL.0;
    if since(13, 4) {
        known |= Flags::CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_ID.0;
    }
    if since(13, 5) {
        known |= Flags::CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_SUPPLEMENTAL_SMS.0;
    }
    let any = request.localityDomainId == ANY_DOMAIN;
    let pinned = request.flags & Flags::CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_ID.0 != 0;
    fail_if(pinned && any && !since(13, 5), CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION)?;
    fail_if(request.flags & !known != 0 || request.reserved.iter().any(|word| *word != 0), INVALID)
}

pub(crate) fn exact(
    world: &mut World,
    groups: *mut CUdevResource,
    count: c_uint,
    input: &CUdevResource,
    remainder: Out<CUdevResource>,
    flags: c_uint,
    requests: *mut Params,
) -> Answer {
    let input = Group::of(input)?;
    fail_if(flags != 0 || count == 0 || requests.is_null(), INVALID)?;
    // According to the documentation, only the remainder of a split can be split again.
    if input.split != 0 && !input.is_remainder {
        return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    }
    let mut free: Vec<u32> = input.sms().collect();
    let mut found = Vec::new();
    for index in 0..count as usize {
        // SAFETY: the caller passes `count` requests.
        let place = unsafe { requests.add(index) };
        // SAFETY: the caller passes `count` requests.
        let mut request = unsafe { place.read() };
        let group = find(world, &free, &request, groups.is_null())?;
        request.smCount = u32::try_from(group.sms.len()).unwrap_or(u32::MAX);
        request.coscheduledSmCount = group.together;
        // SAFETY: the caller passes `count` requests.
        unsafe { place.write(request) };
        free.retain(|sm| !group.sms.contains(sm));
        found.push((group, request.flags));
    }
    if groups.is_null() {
        return Ok(());
    }
    world.objects.splits += 1;
    let part = |sms: &[u32]| Group {
        split: world.objects.splits,
        count: u32::try_from(sms.len()).unwrap_or(u32::MAX),
        is_remainder: false,
        sms: bits(sms.iter().copied()),
        ..input
    };
    for (index, (group, flags)) in found.iter().enumerate() {
        let group = Group {
            alignment: group.together,
            flags: *flags,
            domain: group.domain,
            ..part(&group.sms)
        };
        // SAFETY: the caller passes room for `count` resources.
        let place = unsafe { groups.add(index) };
        // SAFETY: the caller passes room for `count` resources.
        unsafe { place.write(group.resource(world)) };
    }
    remainder.put(if free.is_empty() {
        CUdevResource::default()
    } else {
        part(&free).remainder().resource(world)
    })
}
