//! Initialization, driver version and devices.

pub(crate) mod peer;

use crate::api::prelude::*;
use crate::memory::HAS_VIRTUAL_MEMORY;
use cuda_sys::{
    CUGPUDirectRDMAWritesOrdering, CUcliqueInfo, CUcliqueType, CUdevice_attribute as Attribute,
    CUdeviceNumaConfig, CUflushGPUDirectRDMAWritesOptions, CUmemAllocationHandleType,
    CUmemDecompressAlgorithm, CUuuid, CudaVersion,
};

pub(crate) fn init(world: &mut World, flags: c_uint) -> Answer {
    fail_if(flags != 0, INVALID)?;
    fail_if(world.objects.primaries.is_empty(), CUresult::CUDA_ERROR_NO_DEVICE)?;
    world.settings.initialised = true;
    Ok(())
}

pub(crate) fn version(world: &mut World) -> Answer<c_int> {
    Ok(world.settings.profile.driver.number())
}

pub(crate) fn count(world: &mut World) -> Answer<c_int> {
    Ok(c_int::try_from(world.objects.primaries.len()).unwrap_or(0))
}

pub(crate) fn get(world: &mut World, ordinal: c_int) -> Answer<CUdevice> {
    world.device(ordinal)?;
    Ok(ordinal)
}

pub(crate) fn name(world: &mut World, name: *mut c_char, len: c_int, device: CUdevice) -> Answer {
    world.device(device)?;
    write_text(world.settings.profile.gpu.name, name, len)
}

/// Returns the bus id, whose bus number is the number of the device.
pub(crate) fn bus_id(world: &mut World, id: *mut c_char, len: c_int, device: CUdevice) -> Answer {
    let number = world.device(device)?;
    write_text(&format!("0000:{number:02X}:00.0"), id, len)
}

/// Writes as much of a text as a buffer of `len` bytes has room for, with a NUL at its end.
fn write_text(text: &str, place: *mut c_char, len: c_int) -> Answer {
    let room = usize::try_from(len).unwrap_or(0);
    fail_if(place.is_null() || room == 0, INVALID)?;
    let bytes = text.as_bytes();
    let fits = bytes.len().min(room - 1);
    // SAFETY: the caller passes a buffer of `len` bytes, more than are copied.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), place, fits) };
    // SAFETY: the buffer has more than `fits` bytes, so this is at most its last byte.
    let end = unsafe { place.add(fits) };
    // SAFETY: the buffer has more than `fits` bytes, so this is at most its last byte.
    unsafe { end.write(0) };
    Ok(())
}

pub(crate) fn capability(
    world: &mut World,
    major: Out<c_int>,
    minor: Out<c_int>,
    device: CUdevice,
) -> Answer {
    world.device(device)?;
    major.required()?;
    minor.required()?;
    let number = |part| c_int::try_from(part).unwrap_or(0);
    let (first, second) = world.settings.profile.gpu.capability;
    major.set(number(first));
    minor.put(number(second))
}

/// The kinds of cliques of a device whose links reach other devices.
const CLIQUES: [CUcliqueType; 2] =
    [CUcliqueType::CU_CLIQUE_TYPE_UNICAST_POINTER, CUcliqueType::CU_CLIQUE_TYPE_MULTICAST_POINTER];

/// Returns the cliques of a device: several devices are linked, and are one clique of each kind. Unverified
/// (from documentation).
fn cliques_of(world: &World, device: CUdevice) -> Answer<&'static [CUcliqueType]> {
    world.device(device)?;
    match world.settings.profile.devices > 1 {
        true => Ok(&CLIQUES),
        false => Ok(&[]),
    }
}

pub(crate) fn clique_count(world: &mut World, device: CUdevice) -> Answer<usize> {
    Ok(cliques_of(world, device)?.len())
}

pub(crate) fn cliques(
    world: &mut World,
    cliques: *mut CUcliqueInfo,
    count: *mut usize,
    device: CUdevice,
) -> Answer {
    let its = cliques_of(world, device)?;
    // SAFETY: the caller passes null or a pointer to a count.
    let count = unsafe { count.as_mut() }.ok_or(INVALID)?;
    fail_if(cliques.is_null(), INVALID)?;
    *count = its.len().min(*count);
    for (place, kind) in its.iter().take(*count).enumerate() {
        let info = CUcliqueInfo { type_: *kind, id: 1 };
        // SAFETY: the caller passes an array of `count` entries.
        let place = unsafe { cliques.add(place) };
        // SAFETY: as above.
        unsafe { place.write(info) };
    }
    Ok(())
}

/// One device has no fabric.
pub(crate) fn fabric_cluster(world: &mut World, device: CUdevice) -> Answer<CUuuid> {
    fail_if(cliques_of(world, device)?.is_empty(), CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
    Ok(CUuuid { bytes: [1; 16] })
}

pub(crate) fn uuid(world: &mut World, uuid: Out<CUuuid>, device: CUdevice) -> Answer {
    let number = world.device(device)?;
    uuid.required()?;
    let mut bytes = [0; 16];
    // Not the UUID of a real device. The first bytes identify this driver and the last byte the device.
    bytes[..8].copy_from_slice(&b"cudasim0".map(|byte| byte as c_char));
    bytes[15] = c_char::try_from(number % 100).unwrap_or(0);
    uuid.put(CUuuid { bytes })
}

pub(crate) fn total_memory(world: &mut World, bytes: Out<usize>, device: CUdevice) -> Answer {
    world.device(device)?;
    bytes.required()?;
    bytes.put(usize::try_from(world.settings.profile.gpu.memory).unwrap_or(usize::MAX))
}

/// The attributes that an H200 returned.
const RECORDED: &str = include_str!("../../../data/nvidia-h200-13.0/attributes.txt");

/// Returns a recorded attribute.
fn recorded(attribute: Attribute) -> Option<u32> {
    let name = attribute.name()?.strip_prefix("CU_DEVICE_ATTRIBUTE_")?;
    let value = RECORDED.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    // An attribute may have several names for one number.
    let of_another_name = || {
        let mut lines = RECORDED.lines().filter_map(|line| line.split_once(": "));
        let is_attribute = |name: &str| {
            Attribute::from_name(&format!("CU_DEVICE_ATTRIBUTE_{name}")) == Some(attribute)
        };
        lines.find(|(its, _)| is_attribute(its)).map(|(_, value)| value)
    };
    match value.or_else(of_another_name)? {
        "true" => Some(1),
        "false" => Some(0),
        value => value.parse().ok().or_else(|| value.split(" | ").map(constant).sum()),
    }
}

/// Returns the value of a constant of one of the types that attributes have.
fn constant(name: &str) -> Option<u32> {
    CUmemAllocationHandleType::from_name(name)
        .map(|value| value.0)
        .or_else(|| CUdeviceNumaConfig::from_name(name).map(|value| value.0))
        .or_else(|| CUmemDecompressAlgorithm::from_name(name).map(|value| value.0))
        .or_else(|| CUGPUDirectRDMAWritesOrdering::from_name(name).map(|value| value.0))
        .or_else(|| CUflushGPUDirectRDMAWritesOptions::from_name(name).map(|value| value.0))
}

/// Returns a device attribute: first those that differ between GPUs, then those that an H200 returned.
/// Other attributes are unknown, and the call fails as with a real driver.
pub(crate) fn attribute(
    world: &mut World,
    value: Out<c_int>,
    attribute: Attribute,
    device: CUdevice,
) -> Answer {
    let number = world.device(device)?;
    value.required()?;
    let gpu = world.settings.profile.gpu;
    let has_engine = crate::api::memory::decompress::has_engine(world)
        && world.settings.profile.driver >= CudaVersion::new(12, 8);
    let has_domains = world.settings.profile.driver >= CudaVersion::new(13, 4);
    let answer = match attribute {
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => gpu.shared_opt_in(),
        Attribute::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK => gpu.shared_reserved(),
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR => gpu.threads_per_sm,
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR => gpu.blocks_per_sm,
        Attribute::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH => u32::from(gpu.capability.0 >= 9),
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => {
            gpu.shared_memory_per_sm
        }
        Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE => gpu.clock,
        // Nonzero only if several devices are linked (measured).
        Attribute::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED => {
            u32::from(crate::api::virtual_memory::multicast::is_supported(world))
        }
        Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        | Attribute::CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED
            if !HAS_VIRTUAL_MEMORY =>
        {
            0
        }
        Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => gpu.sms,
        Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => gpu.capability.0,
        Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => gpu.capability.1,
        Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE => gpu.l2,
        Attribute::CU_DEVICE_ATTRIBUTE_ECC_ENABLED => u32::from(gpu.capability.1 == 0),
        Attribute::CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED => 1,
        Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS => {
            u32::from(world.settings.profile.concurrent_managed_access)
        }
        Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM => {
            u32::from(!world.settings.profile.disjoint_host_addresses)
        }
        Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE
        | Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID => 0,
        Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => u32::try_from(number).unwrap_or(0),
        // Measured on an H200: the machine has one node, which has no memory of a device.
        Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID => 0,
        Attribute::CU_DEVICE_ATTRIBUTE_NUMA_ID => {
            value.set(-1);
            return Ok(());
        }
        // That of an H200.
        Attribute::CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID => 0x18bf_10de,
        // Unverified (from documentation).
        Attribute::CU_DEVICE_ATTRIBUTE_ATOMIC_REDUCTION_SUPPORTED
            if world.settings.profile.driver >= CudaVersion::new(13, 1) =>
        {
            u32::from(crate::api::stream::memory_op::has_reductions(world))
        }
        // Unverified (from documentation).
        Attribute::CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK if has_engine => 7,
        Attribute::CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH if has_engine => {
            crate::api::memory::decompress::MAXIMUM
        }
        Attribute::CU_DEVICE_ATTRIBUTE_LOCALITY_DOMAIN_COUNT if has_domains => gpu.locality_domains,
        Attribute::CU_DEVICE_ATTRIBUTE_LOCALITY_DOMAIN_MULTIPROCESSOR_COUNT if has_domains => {
            gpu.sms / gpu.locality_domains
        }
        other => recorded(other).ok_or(INVALID)?,
    };
    value.put(c_int::try_from(answer).unwrap_or(c_int::MAX))
}

/// This driver plays Linux, where devices have no such identifier. Unverified: the code.
pub(crate) fn luid(
    world: &mut World,
    _luid: *mut c_char,
    _mask: Out<c_uint>,
    device: CUdevice,
) -> Answer {
    world.device(device)?;
    Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
}
