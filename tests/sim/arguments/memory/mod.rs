//! Memory of the host and of devices: allocation, pinning, queries and sharing.

pub(super) mod batches;
pub(super) mod copies;
pub(super) mod decompression;
pub(super) mod managed;
pub(super) mod pool;

use super::{Row, Stage, array, value};
use crate::prelude::*;

/// Options that correspond to none of the flags.
fn pinned_without_flags() -> PinnedOptions {
    PinnedOptions { portable: false, mapped: false, write_combined: false, ..Default::default() }
}

/// As above.
fn registered_without_flags() -> RegisterOptions {
    RegisterOptions { portable: false, mapped: false, ..Default::default() }
}

fn pinned() -> impl Iterator<Item = Row> {
    let portable = PinnedOptions { portable: true, ..pinned_without_flags() };
    let mapped = PinnedOptions { mapped: true, ..pinned_without_flags() };
    let combined = PinnedOptions { write_combined: true, ..pinned_without_flags() };
    [
        ("PORTABLE", portable, 1_u32),
        ("PORTABLE", PinnedOptions::default(), 1),
        ("DEVICEMAP", mapped, 2),
        ("WRITECOMBINED", combined, 4),
    ]
    .into_iter()
    .map(|(name, options, flags)| {
        let name = format!("CU_MEMHOSTALLOC::CU_MEMHOSTALLOC_{name}");
        let act =
            move |s: &Stage| PinnedBuffer::<u8>::zeroed_with(&s.context, 64, options).map(drop);
        Row::new(&name, act, "cuMemHostAlloc", value("flags"), flags)
    })
}

fn registered() -> impl Iterator<Item = Row> {
    let portable = RegisterOptions { portable: true, ..registered_without_flags() };
    let mapped = RegisterOptions { mapped: true, ..registered_without_flags() };
    [
        ("PORTABLE", portable, 1_u32),
        ("PORTABLE", RegisterOptions::default(), 1),
        ("DEVICEMAP", mapped, 2),
    ]
    .into_iter()
    .map(|(name, options, flags)| {
        let name = format!("CU_MEMHOSTREGISTER::CU_MEMHOSTREGISTER_{name}");
        let act = move |s: &Stage| {
            PinnedBuffer::register_with(&s.context, vec![0_u8; 64], options).map(drop)
        };
        Row::new(&name, act, "cuMemHostRegister_v2", value("flags"), flags)
    })
}

fn info(s: &Stage) -> Result<()> {
    let buffer = DeviceBuffer::<u8>::zeroed_sync(&s.stream, 64)?;
    s.context.pointer_info(buffer.as_raw()).map(drop)
}

fn attributes() -> Vec<Row> {
    let names = [
        "CONTEXT",
        "MEMORY_TYPE",
        "DEVICE_POINTER",
        "HOST_POINTER",
        "SYNC_MEMOPS",
        "BUFFER_ID",
        "IS_MANAGED",
        "DEVICE_ORDINAL",
        "IS_LEGACY_CUDA_IPC_CAPABLE",
        "RANGE_START_ADDR",
        "RANGE_SIZE",
        "MAPPED",
        "ALLOWED_HANDLE_TYPES",
        "IS_GPU_DIRECT_RDMA_CAPABLE",
        "ACCESS_FLAGS",
        "MEMPOOL_HANDLE",
        "MAPPING_SIZE",
        "MAPPING_BASE_ADDR",
        "MEMORY_BLOCK_ID",
        "LOCALITY_DOMAIN_ORDINAL",
        "IS_HW_DECOMPRESS_CAPABLE",
    ];
    let mut rows: Vec<Row> = names
        .into_iter()
        .map(|name| {
            let name = format!("CU_POINTER_ATTRIBUTE_{name}");
            let raw = CUpointer_attribute::from_name(&name).expect("a C name");
            let found = array::<CUpointer_attribute>("attributes");
            let found = move |call: &_| Some(found(call)?.contains(&raw));
            let name = format!("CUpointer_attribute::{name}");
            Row::new(&name, info, "cuPointerGetAttributes", found, true)
        })
        .collect();
    for on in [true, false] {
        let act =
            move |s: &Stage| DeviceBuffer::<u8>::zeroed_sync(&s.stream, 64)?.set_sync_memops(on);
        let raw = CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
        rows.push(
            Row::of("CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS", act)
                .calls("cuPointerSetAttribute")
                .with(
                    |call| Some((value("attribute")(call)?, array::<u8>("value")(call)?)),
                    (raw, u32::from(on).to_ne_bytes().to_vec()),
                ),
        );
    }
    rows
}

fn shared(s: &Stage) -> Result<IpcHandle> {
    let mut bytes = [0; IpcHandle::BYTES];
    bytes[..64].copy_from_slice(&cuda_sim::shared_by_another(4096));
    bytes[72..80].copy_from_slice(&4096_u64.to_le_bytes());
    bytes[80..96].copy_from_slice(&s.device.uuid()?.0);
    Ok(IpcHandle::from_bytes(&bytes))
}

fn open(s: &Stage) -> Result<()> {
    let handle = shared(s)?;
    // SAFETY: the software driver acts as the other process.
    unsafe { s.context.open_memory(&handle) }.map(drop)
}

fn plain(s: &Stage) -> Result<DeviceBuffer<u8>> {
    DeviceBuffer::zeroed_sync(&s.stream, 64)
}

fn calls() -> Vec<Row> {
    let peers = |s: &Stage| {
        let peer = Context::primary(&s.peer)?;
        s.context.enable_peer_access(&peer)?;
        // SAFETY: no work uses memory of the peer.
        unsafe { s.context.disable_peer_access(&peer) }?;
        Ok(peer.as_raw())
    };
    let pitched = |s: &Stage| PitchedBuffer::<u32>::zeroed(&s.stream, 10, 3).map(drop);
    vec![
        Row::of("CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS", open)
            .calls("cuIpcOpenMemHandle_v2")
            .with(value("flags"), 1_u32),
        Row::call("cuIpcCloseMemHandle", open),
        Row::call("cuIpcGetMemHandle", |s| {
            let buffer = plain(s)?;
            let block = Block { address: buffer.as_raw(), size: 64, token: Default::default() };
            IpcHandle::of(&s.context, &block)
        }),
        Row::new("cuMemAlloc_v2", |s| plain(s).map(drop), "cuMemAlloc_v2", value("size"), 64_usize),
        Row::call("cuMemFree_v2", plain),
        Row::of("cuMemAllocAsync", |s| DeviceBuffer::<u16>::uninit(&s.stream, 9))
            .calls("cuMemAllocAsync")
            .with(value("size"), 18_usize),
        Row::call("cuMemFreeAsync", |s| DeviceBuffer::<u16>::uninit(&s.stream, 9)),
        Row::of("cuMemAllocPitch_v2", pitched).calls("cuMemAllocPitch_v2").with(
            |call| Some((value("width")(call)?, value("height")(call)?, value("element")(call)?)),
            (40_usize, 3_usize, 4_u32),
        ),
        Row::call("cuMemFreeHost", |s| PinnedBuffer::<u8>::zeroed(&s.context, 64)),
        Row::call("cuMemHostGetFlags", |s| PinnedBuffer::<u8>::zeroed(&s.context, 64)?.flags()),
        Row::call("cuMemHostGetDevicePointer_v2", |s| {
            let options = PinnedOptions { mapped: true, ..Default::default() };
            let memory = PinnedBuffer::<u8>::zeroed_with(&s.context, 64, options)?;
            MappedBuffer::new(memory, &s.stream)
        }),
        Row::call("cuMemHostUnregister", |s| PinnedBuffer::register(&s.context, vec![0_u8; 64])),
        Row::call("cuMemGetAddressRange_v2", |s| s.context.address_range(plain(s)?.as_raw())),
        Row::of("cuCtxEnablePeerAccess", peers)
            .calls("cuCtxEnablePeerAccess")
            .with_told(value("peer")),
        Row::of("cuCtxDisablePeerAccess", peers)
            .calls("cuCtxDisablePeerAccess")
            .with_told(value("peer")),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = pinned().chain(registered()).collect();
    rows.extend(attributes());
    rows.extend(calls());
    rows
}
