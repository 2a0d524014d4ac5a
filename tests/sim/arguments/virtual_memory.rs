//! Virtual memory: reservations, physical memory, mappings and their access.

use super::{Row, Stage, field, value};
use crate::prelude::*;
use cuda_safe::memory::pool::MemoryAccess;
use cuda_safe::virtual_memory::ReservationOptions;

const SIZE: usize = 2 << 20;

fn options(s: &Stage) -> PhysicalOptions {
    PhysicalOptions::new(s.context.device())
}

fn mapping(s: &Stage) -> Result<Mapping> {
    let space = Reservation::new(4 * SIZE)?;
    space.map(SIZE, PhysicalMemory::new(s.context.device(), SIZE)?)
}

/// Physical memory with changed options.
fn made<T: PartialEq + Debug + 'static>(
    name: &str,
    change: fn(&mut PhysicalOptions),
    find: fn(&CUmemAllocationProp) -> T,
    raw: T,
) -> Row {
    let act = move |s: &Stage| {
        let mut options = options(s);
        change(&mut options);
        PhysicalMemory::with(SIZE, &options).map(drop)
    };
    Row::new(name, act, "cuMemCreate", field("properties", find), raw)
}

/// A call of a function with a value of one of its arguments.
fn call<T: PartialEq + Debug + Copy + 'static>(
    function: &'static str,
    act: impl Fn(&Stage) -> Result<()> + 'static,
    argument: &'static str,
    raw: T,
) -> Row {
    Row::new(function, act, function, value(argument), raw)
}

fn options_of_memory() -> Vec<Row> {
    let device = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    let numa = CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA;
    let none = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE;
    let descriptor = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    let fabric = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC;
    let location = "CUmemAllocationProp::location";
    let handles = "CUmemAllocationProp::requestedHandleTypes";
    let flags = "CUmemAllocationProp::allocFlags";
    vec![
        made(location, |_| (), |its| its.location.type_, device),
        made(
            location,
            |its| its.location = MemoryLocation::HostNuma(0),
            |its| its.location.type_,
            numa,
        ),
        made(handles, |_| (), |its| its.requestedHandleTypes, none),
        made(
            handles,
            |its| its.shareable = Shareable::Descriptor,
            |its| its.requestedHandleTypes,
            descriptor,
        ),
        // The software driver has no fabric.
        made(
            "CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC",
            |its| its.shareable = Shareable::Fabric,
            |its| its.requestedHandleTypes,
            fabric,
        )
        .refused(),
        made(
            handles,
            |its| its.shareable = Shareable::DescriptorOrFabric,
            |its| its.requestedHandleTypes,
            descriptor | fabric,
        )
        .refused(),
        made(flags, |its| its.compressible = true, |its| its.allocFlags.compressionType, 1),
        made(flags, |its| its.gpu_direct_rdma = true, |its| its.allocFlags.gpuDirectRDMACapable, 1),
    ]
}

fn reservations() -> Vec<Row> {
    let reserve = |options| move |_: &Stage| Reservation::with(SIZE, &options).map(drop);
    let aligned = ReservationOptions { alignment: 1 << 30, ..ReservationOptions::default() };
    let wished = ReservationOptions { address: 1 << 40, ..ReservationOptions::default() };
    let parameter = |name, options, argument, raw: usize| {
        Row::new(name, reserve(options), "cuMemAddressReserve", value(argument), raw)
    };
    vec![
        parameter("cuMemAddressReserve.alignment", aligned, "alignment", 1 << 30),
        Row::of("cuMemAddressReserve.addr", reserve(wished))
            .calls("cuMemAddressReserve")
            .with(value("hint"), 1_u64 << 40),
        call("cuMemAddressFree", reserve(aligned), "size", SIZE),
    ]
}

/// A call of a function with a handle of physical memory.
fn with_handle(function: &'static str, act: impl Fn(&Stage) -> Result<()> + 'static) -> Row {
    let is_handle = |call: &Call| value::<u64>("handle")(call).map(|handle| handle != 0);
    Row::new(function, act, function, is_handle, true)
}

fn mappings() -> Vec<Row> {
    let made = |s: &Stage| mapping(s).map(drop);
    let read = |s: &Stage| mapping(s)?.set_access(s.context.device(), MemoryAccess::Read);
    let set = |act: fn(&Stage) -> Result<()>, raw| {
        let flags = field("access", |its: &CUmemAccessDesc| its.flags);
        Row::new("cuMemSetAccess", act, "cuMemSetAccess", flags, raw)
    };
    let get = |s: &Stage| mapping(s)?.access(s.context.device()).map(drop);
    let device = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    let its_type = field("location", |its: &CUmemLocation| its.type_);
    let granularity = |s: &Stage| options(s).recommended_granularity().map(drop);
    let recommended = CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
    let function = "cuMemGetAllocationGranularity";
    vec![
        call("cuMemMap", made, "size", SIZE),
        call("cuMemUnmap", made, "size", SIZE),
        with_handle("cuMemRelease", made),
        set(made, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
        set(read, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ),
        Row::new("cuMemGetAccess", get, "cuMemGetAccess", its_type, device),
        call(function, granularity, "option", recommended),
    ]
}

fn handles() -> Vec<Row> {
    let properties = |s: &Stage| mapping(s)?.memory().properties().map(drop);
    let retain = |s: &Stage| {
        let mapping = mapping(s)?;
        // SAFETY: the mapping has this size, and nothing is mapped to the returned memory.
        unsafe { PhysicalMemory::retain(mapping.address(), SIZE) }.map(drop)
    };
    let is_address = |call: &Call| value::<*mut c_void>("address")(call).map(|its| !its.is_null());
    let function = "cuMemRetainAllocationHandle";
    let mut rows = vec![
        with_handle("cuMemGetAllocationPropertiesFromHandle", properties),
        Row::new(function, retain, function, is_address, true),
    ];
    #[cfg(unix)]
    rows.extend(shared());
    rows
}

#[cfg(unix)]
fn shared() -> Vec<Row> {
    let descriptor = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    let share = |s: &Stage| {
        let options = options(s).shareable(Shareable::Descriptor);
        let exported = PhysicalMemory::with(SIZE, &options)?.export()?;
        // SAFETY: the memory has this size, and nothing is mapped to it.
        unsafe { PhysicalMemory::import(&exported, SIZE) }.map(drop)
    };
    vec![
        call("cuMemExportToShareableHandle", share, "kind", descriptor),
        call("cuMemImportFromShareableHandle", share, "kind", descriptor),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = options_of_memory();
    rows.extend(reservations());
    rows.extend(mappings());
    rows.extend(handles());
    rows
}
