//! Multicast objects, logical endpoints, fabric cliques and locality domains.

use super::{Row, Stage, array, field, value};
use crate::prelude::*;
use cuda_safe::virtual_memory::{
    EndpointDevices, EndpointIds, EndpointOptions, FabricCopyBatch, LogicalEndpoint,
    PendingEndpoint,
};

const SIZE: usize = 2 << 20;

fn memory(device: Device) -> Result<PhysicalMemory> {
    PhysicalMemory::new(device, SIZE)
}

fn mapping(device: Device) -> Result<Mapping> {
    Reservation::new(SIZE)?.map(0, memory(device)?)
}

/// The creation of a multicast object.
fn object<T: PartialEq + Debug + 'static>(
    name: &str,
    options: MulticastOptions,
    find: fn(&CUmulticastObjectProp) -> T,
    raw: T,
) -> Row {
    let act = move |_: &Stage| MulticastTeam::new(&options).map(drop);
    Row::new(name, act, "cuMulticastCreate", field("properties", find), raw)
}

/// Makes all calls on a multicast object and its bindings.
fn bind_to_object(s: &Stage) -> Result<()> {
    let mut team = MulticastTeam::new(&MulticastOptions::new(2, 2 * SIZE))?;
    team.add(&s.device)?;
    team.add(&s.peer)?;
    let object = team.complete()?;
    let bound = object.bind(s.device, SIZE, memory(s.device)?)?;
    drop(object.bind(s.peer, 0, mapping(s.peer)?)?);
    bound.unbind().map(drop)
}

fn objects() -> Vec<Row> {
    let options = MulticastOptions::new(2, 2 * SIZE);
    let shared = options.shareable(Shareable::Descriptor);
    let recommended = CUmulticastGranularity_flags::CU_MULTICAST_GRANULARITY_RECOMMENDED;
    let granularity = move |_: &Stage| options.recommended_granularity().map(drop);
    let bound = |name: &str, function, argument, raw: usize| {
        Row::new(name, bind_to_object, function, value(argument), raw)
    };
    vec![
        object("CUmulticastObjectProp::numDevices", options, |its| its.numDevices, 2),
        object("CUmulticastObjectProp::size", options, |its| its.size, 2 * SIZE),
        object("CUmulticastObjectProp::handleTypes", shared, |its| its.handleTypes, 1),
        object("cuMulticastCreate", options, |its| its.flags, 0),
        Row::of("cuMulticastGetGranularity", granularity)
            .calls("cuMulticastGetGranularity")
            .with(value("option"), recommended),
        Row::of("cuMulticastAddDevice", bind_to_object)
            .calls("cuMulticastAddDevice")
            .with(value("device"), 1),
        bound("cuMulticastBindMem", "cuMulticastBindMem_v2", "offset", SIZE),
        bound("cuMulticastBindAddr", "cuMulticastBindAddr_v2", "size", SIZE),
        bound("cuMulticastUnbind", "cuMulticastUnbind", "offset", SIZE),
    ]
}

fn unicast(s: &Stage) -> EndpointOptions {
    EndpointOptions::new(EndpointDevices::Unicast(s.device), 2 * SIZE)
}

fn multicast(_: &Stage) -> EndpointOptions {
    EndpointOptions::new(EndpointDevices::Multicast(2), SIZE)
}

fn pending(options: &EndpointOptions) -> Result<PendingEndpoint> {
    EndpointIds::reserve(1)?.create(0, options)
}

fn finish(mut pending: PendingEndpoint) -> Result<LogicalEndpoint> {
    loop {
        match pending.finish()? {
            Ok(endpoint) => return Ok(endpoint),
            Err(again) => pending = again,
        }
    }
}

/// Makes all calls on an endpoint of one device and its bindings.
fn bind_to_endpoint(s: &Stage) -> Result<()> {
    let endpoint = finish(pending(&unicast(s))?)?;
    let bound = endpoint.bind(s.device, SIZE, memory(s.device)?)?;
    drop(endpoint.bind(s.device, 0, mapping(s.device)?)?);
    bound.unbind().map(drop)
}

/// Copies to the second page of an endpoint.
fn copy_to_endpoint(s: &Stage) -> Result<()> {
    let endpoint = finish(pending(&unicast(s))?)?;
    let bound = endpoint.bind(s.device, SIZE, memory(s.device)?)?;
    let source = DeviceBuffer::<u32>::zeroed(&s.stream, 3)?;
    let mut batch = FabricCopyBatch::new(&s.stream);
    batch.push_to_endpoint(&endpoint, SIZE, &source)?;
    // SAFETY: memory is bound there until the copy has completed, and nothing else uses it.
    unsafe { batch.enqueue() }?;
    s.stream.synchronize()?;
    drop(bound);
    Ok(())
}

/// The creation of an endpoint.
fn endpoint<T: PartialEq + Debug + 'static>(
    name: &str,
    options: fn(&Stage) -> EndpointOptions,
    find: fn(&CUlogicalEndpointProp) -> T,
    raw: T,
) -> Row {
    let act = move |s: &Stage| pending(&options(s)).map(drop);
    Row::new(name, act, "cuLogicalEndpointCreate", field("properties", find), raw)
}

fn shareable(s: &Stage) -> EndpointOptions {
    let mut options = unicast(s);
    options.shareable = true;
    options
}

fn counted(s: &Stage) -> EndpointOptions {
    let mut options = unicast(s);
    options.counted = true;
    options
}

fn endpoints() -> Vec<Row> {
    let one = CUlogicalEndpointType::CU_LOGICAL_ENDPOINT_TYPE_UNICAST;
    let several = CUlogicalEndpointType::CU_LOGICAL_ENDPOINT_TYPE_MULTICAST;
    let size = SIZE as u64;
    let add = |s: &Stage| pending(&multicast(s))?.add(&s.peer);
    let bound = |function, argument, raw: u64| {
        Row::new(function, bind_to_endpoint, function, value(argument), raw)
    };
    let called = |function| Row::call(function, bind_to_endpoint);
    vec![
        endpoint("CUlogicalEndpointProp_struct::type_", unicast, |its| its.type_, one),
        endpoint(
            "CUlogicalEndpointType::CU_LOGICAL_ENDPOINT_TYPE_UNICAST",
            unicast,
            |its| its.type_,
            one,
        ),
        endpoint(
            "CUlogicalEndpointType::CU_LOGICAL_ENDPOINT_TYPE_MULTICAST",
            multicast,
            |its| its.type_,
            several,
        ),
        endpoint("CUlogicalEndpointProp_struct::size", unicast, |its| its.size, 2 * size),
        endpoint(
            "CUlogicalEndpointProp_struct::ipcHandleTypes",
            shareable,
            |its| its.ipcHandleTypes,
            1,
        ),
        endpoint("CUlogicalEndpointProp_struct::flags", counted, |its| its.flags, 1),
        called("cuLogicalEndpointCreate"),
        called("cuLogicalEndpointGetLimits"),
        called("cuLogicalEndpointQuery"),
        called("cuLogicalEndpointDestroy"),
        Row::of("cuLogicalEndpointIdReserve", bind_to_endpoint)
            .calls("cuLogicalEndpointIdReserve")
            .with(value("count"), 1_u32),
        Row::of("cuLogicalEndpointIdRelease", bind_to_endpoint)
            .calls("cuLogicalEndpointIdRelease")
            .with(value("count"), 1_u32),
        Row::of("cuLogicalEndpointAddDevice", add)
            .calls("cuLogicalEndpointAddDevice")
            .with(value("device"), 1),
        bound("cuLogicalEndpointBindMem", "offset", size),
        bound("cuLogicalEndpointBindAddr", "size", size),
        bound("cuLogicalEndpointUnbind", "offset", size),
    ]
}

fn places() -> Vec<Row> {
    let cliques = |s: &Stage| s.device.fabric_cliques().map(drop);
    let cluster = |s: &Stage| s.device.fabric_cluster().map(drop);
    let localized = |s: &Stage| {
        let device = s.device;
        let location = MemoryLocation::LocalityDomain { device, domain: 0 };
        PhysicalMemory::new(location, SIZE).map(drop)
    };
    let its_type = field("properties", |its: &CUmemAllocationProp| its.location.type_);
    let domain = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN;
    vec![
        Row::call("cuDeviceGetCliqueCount", cliques),
        Row::call("cuDeviceGetCliqueInfo", cliques),
        Row::of("cuDeviceGetFabricClusterUuid", cluster)
            .calls("cuDeviceGetFabricClusterUuid")
            .with(value::<c_int>("device"), 0),
        Row::of("CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN", localized)
            .calls("cuMemCreate")
            .with(its_type, domain),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = objects();
    rows.extend(endpoints());
    rows.extend(places());
    rows.extend(copies());
    rows
}

/// The rows of copies over the fabric.
fn copies() -> Vec<Row> {
    let function = "cuFabricCpyBatchAsync";
    let first = |call: &Call| {
        let copies = array::<CUDA_FABRIC_COPY_BATCH_OP>("copies")(call)?;
        copies.first().copied()
    };
    let kinds = [
        ("LOGICAL_ENDPOINT", CUfabricCpyOperandType::CU_FABRIC_COPY_OPERAND_TYPE_LOGICAL_ENDPOINT),
        ("POINTER", CUfabricCpyOperandType::CU_FABRIC_COPY_OPERAND_TYPE_POINTER),
    ];
    let mut rows = vec![
        Row::call(function, copy_to_endpoint),
        Row::of("CUDA_FABRIC_COPY_BATCH_OP::size", copy_to_endpoint)
            .calls(function)
            .with(move |call| Some(first(call)?.size), 12_usize),
    ];
    for (place, (name, kind)) in ["dst", "src"].into_iter().zip(kinds) {
        let operand = move |call: &Call| {
            let copy = first(call)?;
            Some(if place == "dst" { copy.dst } else { copy.src }.type_)
        };
        let names = [
            format!("CUDA_FABRIC_COPY_BATCH_OP::{place}"),
            format!("CUfabricCpyOperandType::CU_FABRIC_COPY_OPERAND_TYPE_{name}"),
        ];
        rows.extend(names.map(|name| Row::new(&name, copy_to_endpoint, function, operand, kind)));
    }
    rows
}
