//! Memory pools: creation, attributes, access and sharing.

use crate::arguments::{Act, Row, Stage, array, field, value};
use crate::prelude::*;
use cuda_safe::memory::pool::attribute::{self, PoolAttribute, PoolValue};

const DEVICE: CUmemLocationType = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
const NUMA: CUmemLocationType = CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA;
const PINNED: CUmemAllocationType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
const MANAGED: CUmemAllocationType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED;

fn place(location: &CUmemLocation) -> (CUmemLocationType, i32) {
    // SAFETY: the field is a number, for which any bits are valid.
    (location.type_, unsafe { location.__bindgen_anon_1.id })
}

fn pool(s: &Stage) -> Result<MemoryPool> {
    MemoryPool::new(&s.context, MemoryPoolOptions::default())
}

fn made<T: PartialEq + Debug + 'static>(
    name: &str,
    options: MemoryPoolOptions,
    find: fn(&CUmemPoolProps) -> T,
    raw: T,
) -> Row {
    let act = move |s: &Stage| MemoryPool::new(&s.context, options).map(drop);
    Row::new(name, act, "cuMemPoolCreate", field("props", find), raw)
}

fn options() -> Vec<Row> {
    let plain = MemoryPoolOptions::default();
    let shareable = MemoryPoolOptions { shareable: true, ..plain };
    let managed = MemoryPoolOptions { managed: true, ..plain };
    let small = MemoryPoolOptions { max_size: 4 << 20, ..plain };
    let compressed = MemoryPoolOptions { hw_decompress: true, ..plain };
    let rdma = MemoryPoolOptions { gpu_direct_rdma: true, ..plain };
    let numa = MemoryPoolOptions { location: Some(MemoryLocation::HostNuma(0)), ..plain };
    let handles = |name: &str, options, raw| {
        let name = format!("CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_{name}");
        made(&name, options, |props| props.handleTypes, raw)
    };
    let none = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE;
    let descriptor = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    let kind = |name: &str, options, raw| {
        let name = format!("CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_{name}");
        made(&name, options, |props| props.allocType, raw)
    };
    let usage = "CU_MEM_POOL_CREATE_USAGE::CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS";
    vec![
        made("CUmemPoolProps::allocType", managed, |props| props.allocType, MANAGED),
        made("CUmemPoolProps::allocType", plain, |props| props.allocType, PINNED),
        kind("PINNED", plain, PINNED),
        kind("MANAGED", managed, MANAGED),
        made("CUmemPoolProps::handleTypes", shareable, |props| props.handleTypes, descriptor),
        handles("NONE", plain, none),
        handles("POSIX_FILE_DESCRIPTOR", shareable, descriptor),
        made("CUmemPoolProps::location", plain, |props| place(&props.location), (DEVICE, 0)),
        made("CUmemPoolProps::location", numa, |props| place(&props.location), (NUMA, 0)),
        made("CUmemPoolProps::maxSize", small, |props| props.maxSize, 4 << 20),
        made("CUmemPoolProps::usage", compressed, |props| props.usage, 2),
        made("CUmemPoolProps::usage", plain, |props| props.usage, 0),
        made(usage, compressed, |props| props.usage, 2),
        made("CUmemPoolProps::gpuDirectRDMACapable", rdma, |props| props.gpuDirectRDMACapable, 1),
        made("CUmemPoolProps::gpuDirectRDMACapable", plain, |props| props.gpuDirectRDMACapable, 0),
    ]
}

fn name_of(name: &str) -> (String, CUmemPool_attribute) {
    let name = format!("CU_MEMPOOL_ATTR_{name}");
    let raw = CUmemPool_attribute::from_name(&name).expect("a C name");
    (format!("CUmemPool_attribute::{name}"), raw)
}

fn asked<T: PoolValue + 'static, A: 'static>(name: &str, attribute: PoolAttribute<T, A>) -> Row {
    let (name, raw) = name_of(name);
    let act = move |s: &Stage| pool(s)?.attribute(attribute).map(drop);
    Row::new(&name, act, "cuMemPoolGetAttribute", value("attribute"), raw)
}

/// A row for an attribute that is set, with the bytes that the driver reads.
fn set(name: &str, act: fn(&MemoryPool) -> Result<()>, bytes: &[u8]) -> Row {
    let (name, raw) = name_of(name);
    Row::of(&name, move |s| act(&pool(s)?)).calls("cuMemPoolSetAttribute").with(
        |call| Some((value("attribute")(call)?, array("value")(call)?)),
        (raw, bytes.to_vec()),
    )
}

fn attributes() -> Vec<Row> {
    let on = 1_i32.to_ne_bytes();
    let off = 0_i32.to_ne_bytes();
    vec![
        asked("REUSE_FOLLOW_EVENT_DEPENDENCIES", attribute::REUSE_FOLLOW_EVENT_DEPENDENCIES),
        asked("REUSE_ALLOW_OPPORTUNISTIC", attribute::REUSE_ALLOW_OPPORTUNISTIC),
        asked("REUSE_ALLOW_INTERNAL_DEPENDENCIES", attribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES),
        asked("RELEASE_THRESHOLD", attribute::RELEASE_THRESHOLD),
        asked("RESERVED_MEM_CURRENT", attribute::RESERVED_CURRENT),
        asked("RESERVED_MEM_HIGH", attribute::RESERVED_HIGH),
        asked("USED_MEM_CURRENT", attribute::USED_CURRENT),
        asked("USED_MEM_HIGH", attribute::USED_HIGH),
        asked("ALLOCATION_TYPE", attribute::ALLOCATION_TYPE),
        asked("EXPORT_HANDLE_TYPES", attribute::EXPORT_HANDLE_TYPES),
        asked("LOCATION_ID", attribute::LOCATION_ID),
        asked("LOCATION_TYPE", attribute::LOCATION_TYPE),
        asked("MAX_POOL_SIZE", attribute::MAX_POOL_SIZE),
        asked("HW_DECOMPRESS_ENABLED", attribute::HW_DECOMPRESS_ENABLED),
        asked("LOCALITY_DOMAIN_ID", attribute::LOCALITY_DOMAIN_ID).refused(),
        set(
            "REUSE_FOLLOW_EVENT_DEPENDENCIES",
            |pool| pool.set_attribute(attribute::REUSE_FOLLOW_EVENT_DEPENDENCIES, false),
            &off,
        ),
        set(
            "REUSE_ALLOW_OPPORTUNISTIC",
            |pool| pool.set_attribute(attribute::REUSE_ALLOW_OPPORTUNISTIC, true),
            &on,
        ),
        set(
            "REUSE_ALLOW_INTERNAL_DEPENDENCIES",
            |pool| pool.set_attribute(attribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES, true),
            &on,
        ),
        set(
            "RELEASE_THRESHOLD",
            |pool| pool.set_attribute(attribute::RELEASE_THRESHOLD, 5 << 33),
            &(5_u64 << 33).to_ne_bytes(),
        ),
        set(
            "RESERVED_MEM_HIGH",
            |pool| pool.reset_high_water(attribute::RESERVED_HIGH),
            &0_u64.to_ne_bytes(),
        ),
        set(
            "USED_MEM_HIGH",
            |pool| pool.reset_high_water(attribute::USED_HIGH),
            &0_u64.to_ne_bytes(),
        ),
    ]
}

fn access() -> Vec<Row> {
    let of_peer = |access| {
        move |s: &Stage| {
            let pool = pool(s)?;
            // SAFETY: no memory of the pool is in use.
            unsafe { pool.set_access(&s.peer, access) }
        }
    };
    let row = |name: &str, access, raw| {
        let name = format!("CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_{name}");
        let found = field("map", |its: &CUmemAccessDesc| its.flags);
        Row::new(&name, of_peer(access), "cuMemPoolSetAccess", found, raw)
    };
    let both = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    let grant = |s: &Stage| pool(s)?.grant_access(&s.peer);
    vec![
        row("NONE", MemoryAccess::None, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE),
        row("READ", MemoryAccess::Read, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ),
        row("READWRITE", MemoryAccess::ReadWrite, both),
        Row::of("CUmemAccessDesc::flags", grant)
            .calls("cuMemPoolSetAccess")
            .with(field("map", |its: &CUmemAccessDesc| its.flags), both),
        Row::of("CUmemAccessDesc::location", grant)
            .calls("cuMemPoolSetAccess")
            .with(field("map", |its: &CUmemAccessDesc| place(&its.location)), (DEVICE, 1)),
        Row::of("cuMemPoolGetAccess", |s| pool(s)?.access(&s.peer))
            .calls("cuMemPoolGetAccess")
            .with(field("location", place), (DEVICE, 1)),
    ]
}

/// The pools of locations, for managed and for other memory.
fn places() -> impl Iterator<Item = Row> {
    [(false, PINNED), (true, MANAGED)].into_iter().flat_map(|(managed, raw)| {
        let there = |s: &Stage| MemoryLocation::Device(s.peer);
        let here = |s: &Stage| MemoryLocation::Device(s.device);
        let default =
            move |s: &Stage| MemoryPool::default_at(&s.context, there(s), managed).map(drop);
        let current =
            move |s: &Stage| MemoryPool::current_at(&s.context, there(s), managed).map(drop);
        // The pool that the location already has.
        let set =
            move |s: &Stage| MemoryPool::default_of(&s.context)?.set_current_at(here(s), managed);
        let acts: [(_, Act, _); 3] = [
            ("cuMemGetDefaultMemPool", Box::new(default), 1),
            ("cuMemGetMemPool", Box::new(current), 1),
            ("cuMemSetMemPool", Box::new(set), 0),
        ];
        acts.map(|(function, act, id)| {
            let find = |call: &_| Some((value("kind")(call)?, field("location", place)(call)?));
            let row = Row::new(function, act, function, find, (raw, (DEVICE, id)));
            // The default pool of a device has no managed memory.
            match function {
                "cuMemSetMemPool" if managed => row.refused(),
                _ => row,
            }
        })
    })
}

fn calls() -> Vec<Row> {
    let buffer = |s: &Stage| DeviceBuffer::<u8>::uninit_from_pool(&pool(s)?, &s.stream, 48);
    vec![
        Row::of("cuMemPoolTrimTo.minBytesToKeep", |s| pool(s)?.trim_to(12_345))
            .calls("cuMemPoolTrimTo")
            .with(value("keep"), 12_345_usize),
        Row::call("cuMemPoolDestroy", pool),
        Row::of("cuMemAllocFromPoolAsync", buffer)
            .calls("cuMemAllocFromPoolAsync")
            .with(value("size"), 48_usize),
        Row::call("cuDeviceGetDefaultMemPool", |s| MemoryPool::default_of(&s.context)),
        Row::call("cuDeviceGetMemPool", |s| s.device.memory_pool()),
        Row::of("cuDeviceSetMemPool", |s| {
            let pool = MemoryPool::default_of(&s.context)?;
            s.device.set_memory_pool(&pool)?;
            Ok(pool.as_raw())
        })
        .calls("cuDeviceSetMemPool")
        .with_told(value("pool")),
    ]
}

#[cfg(unix)]
fn shared() -> Vec<Row> {
    use cuda_safe::manager::IpcHandle;
    use cuda_safe::memory::ImportedPool;
    use cuda_sim::{pool_memory_shared_by_another, pool_shared_by_another};

    let shareable = |s: &Stage| {
        let options = MemoryPoolOptions { shareable: true, ..Default::default() };
        MemoryPool::new(&s.context, options)
    };
    let handle = move |s: &Stage| {
        let pool = shareable(s)?;
        let buffer = DeviceBuffer::<u8>::uninit_from_pool(&pool, &s.stream, 64)?;
        pool.handle_of(&buffer)
    };
    let import = move |s: &Stage| {
        let descriptor = pool_shared_by_another().expect("a file");
        let mut bytes = handle(s)?.to_bytes();
        bytes[..64].copy_from_slice(&pool_memory_shared_by_another(&descriptor, 64));
        // SAFETY: the software driver acts as the other process.
        let pool = unsafe { ImportedPool::import(&s.context, &descriptor) }?;
        // SAFETY: as above.
        unsafe { pool.open_memory(&IpcHandle::from_bytes(&bytes)) }.map(drop)
    };
    let name = "CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR";
    let kind = || value("kind");
    let descriptor = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    vec![
        Row::of(name, move |s| shareable(s)?.export())
            .calls("cuMemPoolExportToShareableHandle")
            .with(kind(), descriptor),
        Row::new(name, import, "cuMemPoolImportFromShareableHandle", kind(), descriptor),
        Row::call("cuMemPoolExportPointer", handle),
        Row::call("cuMemPoolImportPointer", import),
    ]
}

#[cfg(not(unix))]
fn shared() -> Vec<Row> {
    Vec::new()
}

pub(in crate::arguments) fn rows() -> Vec<Row> {
    let mut rows = options();
    rows.extend(attributes());
    rows.extend(access());
    rows.extend(places());
    rows.extend(calls());
    rows.extend(shared());
    rows
}
