//! Pointer attributes.

use crate::api::prelude::*;
use crate::memory::{Kind, device_of, domain_of, is_of_host};
use cuda_sys::{CUmemorytype, CUpointer_attribute as Attribute, CudaVersion};

/// The memory that contains an address.
struct Known {
    /// 0 for stream-ordered memory, memory of graphs and mapped memory, which belong to the device.
    context: usize,
    device: usize,
    memory_type: CUmemorytype,
    /// The device address and the host address of the queried address.
    device_address: u64,
    host_address: Option<u64>,
    managed: bool,
    /// The start of the memory, in the same address space as the queried address.
    start: u64,
    size: u64,
    id: u64,
    /// `None` if the memory is not from a pool.
    pool: Option<usize>,
    hw_decompress: bool,
    is_synchronous: bool,
    /// `None` if the memory is not in a reservation.
    mapped: Option<Mapped>,
}

/// A mapping in a reservation.
struct Mapped {
    start: u64,
    size: u64,
    /// The handle of the physical memory.
    physical: usize,
    locality_domain: Option<u32>,
    handle_types: u32,
    access: u32,
    /// Whether access was set.
    is_accessible: bool,
}

/// Measured on an H200: the range is that of the whole reservation, and no context owns the memory.
fn known_mapping(world: &World, address: CUdeviceptr) -> Option<Known> {
    let virtual_memory = &world.objects.memory.virtual_memory;
    let (start, reservation) = virtual_memory.reservation(address)?;
    let (first, mapping) = virtual_memory.mapping(address)?;
    let its = virtual_memory.properties_of(mapping.physical)?;
    let is_of_host = is_of_host(&its.location);
    Some(Known {
        context: 0,
        device: device_of(&its.location).unwrap_or(0),
        memory_type: match is_of_host {
            true => CUmemorytype::CU_MEMORYTYPE_HOST,
            false => CUmemorytype::CU_MEMORYTYPE_DEVICE,
        },
        device_address: address,
        host_address: is_of_host.then_some(address),
        managed: false,
        start,
        size: reservation.size,
        id: mapping.id,
        pool: None,
        hw_decompress: false,
        is_synchronous: false,
        mapped: Some(Mapped {
            start: first,
            size: mapping.size,
            physical: mapping.physical,
            // A device with one domain has no parts.
            locality_domain: domain_of(&its.location)
                .filter(|_| world.settings.profile.gpu.locality_domains > 1),
            handle_types: its.handle_types,
            is_accessible: !mapping.access.is_empty(),
            access: mapping.access.values().copied().max().unwrap_or(0),
        }),
    })
}

fn known(world: &World, address: CUdeviceptr) -> Option<Known> {
    if let Some((start, its)) = world.objects.memory.containing(address) {
        return Some(Known {
            context: match its.kind {
                Kind::Plain => its.context,
                Kind::Ordered { .. } => 0,
            },
            device: its.device,
            memory_type: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            device_address: address,
            host_address: its.managed.as_ref().map(|_| address),
            managed: its.managed.is_some(),
            start,
            size: its.bytes.len() as u64,
            id: its.id,
            pool: its.pool,
            hw_decompress: crate::api::memory::decompress::is_capable(world, address),
            is_synchronous: its.is_synchronous,
            mapped: None,
        });
    }
    if world.objects.memory.is_virtual(address) {
        return known_mapping(world, address);
    }
    let (start, host, its) = world.objects.memory.host_around(address)?;
    Some(Known {
        context: its.context,
        device: its.device,
        memory_type: its.memory_type(),
        device_address: host as u64 + its.distance,
        host_address: Some(host as u64),
        managed: its.is_managed(),
        start: address - (host - start) as u64,
        size: its.len as u64,
        id: its.id,
        pool: None,
        hw_decompress: false,
        is_synchronous: false,
        mapped: None,
    })
}

/// An attribute's value with its C type.
enum Value {
    Address(u64),
    Long(u64),
    Int(u32),
    Flag(bool),
}

fn value(its: Option<&Known>, attribute: Attribute, driver: CudaVersion) -> Answer<Value> {
    let of = |value: fn(&Known) -> u64| its.map_or(0, value);
    let is = |value: fn(&Known) -> bool| its.is_some_and(value);
    let mapped = its.and_then(|its| its.mapped.as_ref());
    Ok(match attribute {
        Attribute::CU_POINTER_ATTRIBUTE_CONTEXT => Value::Address(of(|its| its.context as u64)),
        Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => {
            Value::Int(its.map_or(0, |its| its.memory_type.0))
        }
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER => {
            Value::Address(of(|its| its.device_address))
        }
        Attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER => {
            Value::Address(of(|its| its.host_address.unwrap_or(0)))
        }
        Attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => Value::Flag(is(|its| its.is_synchronous)),
        Attribute::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE => Value::Flag(false),
        Attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID => Value::Long(of(|its| its.id)),
        Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED => Value::Flag(is(|its| its.managed)),
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => {
            let none = cuda_sys::CU_DEVICE_INVALID;
            let ordinal = its.map_or(none, |its| c_int::try_from(its.device).unwrap_or(none));
            #[allow(clippy::cast_sign_loss, reason = "the same bits")]
            Value::Int(ordinal as u32)
        }
        Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => {
            Value::Flag(is(|its| its.host_address.is_none() && its.context != 0))
        }
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => Value::Address(of(|its| its.start)),
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE => Value::Long(of(|its| its.size)),
        Attribute::CU_POINTER_ATTRIBUTE_MAPPED => Value::Flag(its.is_some()),
        Attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => {
            Value::Long(mapped.map_or(0, |its| its.handle_types.into()))
        }
        Attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => {
            let usual = its.map_or(0, |_| 3);
            Value::Int(mapped.map_or(usual, |its| its.access))
        }
        // Of other memory the whole allocation. Unverified (from documentation).
        Attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE => {
            Value::Long(mapped.map_or(of(|its| its.size), |its| its.size))
        }
        Attribute::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => {
            Value::Address(mapped.map_or(of(|its| its.start), |its| its.start))
        }
        // Unverified (from documentation).
        Attribute::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => {
            Value::Long(mapped.map_or(of(|its| its.id), |its| its.physical as u64))
        }
        Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => {
            Value::Address(its.and_then(|its| its.pool).unwrap_or(0) as u64)
        }
        Attribute::CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE
            if driver >= CudaVersion::new(12, 8) =>
        {
            Value::Flag(is(|its| its.hw_decompress))
        }
        // Unverified (from documentation).
        Attribute::CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL
            if driver >= CudaVersion::new(13, 4) =>
        {
            let domain = mapped.and_then(|its| its.locality_domain);
            Value::Int(domain.unwrap_or(u32::MAX))
        }
        _ => return Err(INVALID),
    })
}

/// For an unknown address all values are zero. Unverified (from documentation).
pub(crate) fn attributes(
    world: &mut World,
    count: c_uint,
    attributes: *mut Attribute,
    data: *mut *mut c_void,
    address: CUdeviceptr,
) -> Answer {
    fail_if(attributes.is_null() || data.is_null(), INVALID)?;
    let known = known(world, address);
    let driver = world.settings.profile.driver;
    for index in 0..count as usize {
        // SAFETY: the caller passes `count` attributes.
        let attribute = unsafe { attributes.add(index) };
        // SAFETY: the caller passes `count` attributes.
        let attribute = unsafe { attribute.read() };
        // SAFETY: the caller passes `count` places for values.
        let place = unsafe { data.add(index) };
        // SAFETY: the caller passes `count` places for values.
        let place = unsafe { place.read() };
        fail_if(place.is_null(), INVALID)?;
        match value(known.as_ref(), attribute, driver)? {
            Value::Address(value) | Value::Long(value) => {
                // SAFETY: the place is for a value of the attribute's type.
                unsafe { place.cast::<c_ulonglong>().write(value) };
            }
            // SAFETY: the place is for a value of the attribute's type.
            Value::Int(value) => unsafe { place.cast::<c_uint>().write(value) },
            // SAFETY: the place is for a value of the attribute's type.
            Value::Flag(value) => unsafe { place.cast::<bool>().write(value) },
        }
    }
    Ok(())
}

/// For an unknown address the call fails, and for the host address of memory that has none, as on an H200.
pub(crate) fn attribute(
    world: &mut World,
    data: *mut c_void,
    attribute: Attribute,
    address: CUdeviceptr,
) -> Answer {
    let its = known(world, address).ok_or(INVALID)?;
    let is_host_pointer = attribute == Attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER;
    fail_if(is_host_pointer && its.host_address.is_none(), INVALID)?;
    if attribute == Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER {
        world.current().map_err(|_| CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    }
    let (mut attribute, mut data) = (attribute, data);
    attributes(world, 1, &raw mut attribute, &raw mut data, address)
}

pub(crate) fn set_attribute(
    world: &mut World,
    value: *const c_void,
    attribute: Attribute,
    address: CUdeviceptr,
) -> Answer {
    fail_if(value.is_null() || attribute != Attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, INVALID)?;
    world.forbidden_in_capture()?;
    match known(world, address) {
        Some(its) if its.mapped.is_some() => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        // Measured: managed memory accepts the setting, that of pools too. Other pool memory does not have it
        // (unverified, from documentation).
        Some(its) if its.pool.is_none() || its.managed => {
            // SAFETY: the caller passes a number of one byte or more, of which the first one is the lowest.
            let value = unsafe { value.cast::<u8>().read() };
            if let Some(allocation) = world.objects.memory.starts_at(its.start) {
                allocation.is_synchronous = value != 0;
            }
            Ok(())
        }
        _ => Err(INVALID),
    }
}

pub(crate) fn range(
    world: &mut World,
    start: Out<CUdeviceptr>,
    size: Out<usize>,
    address: CUdeviceptr,
) -> Answer {
    world.current()?;
    let ready = |kind| !matches!(kind, Kind::Ordered { freed: true, .. });
    let is_there = world.objects.memory.containing(address).is_none_or(|(_, its)| ready(its.kind));
    match known(world, address) {
        // Measured: mapped memory is known once access to it was set.
        Some(its) if is_there && its.mapped.as_ref().is_none_or(|its| its.is_accessible) => {
            let whole = (its.start, its.size);
            let (first, len) = its.mapped.map_or(whole, |its| (its.start, its.size));
            start.set(first);
            size.set(usize::try_from(len).unwrap_or(usize::MAX));
            Ok(())
        }
        _ => Err(CUresult::CUDA_ERROR_NOT_FOUND),
    }
}
