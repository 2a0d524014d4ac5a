//! Devices: their attributes, and their relations to each other.

use super::{Row, Stage, array, value};
use crate::prelude::*;
use cuda_safe::device::attribute;
use cuda_safe::device::{AtomicOperation, PeerAttribute};

macro_rules! attributes {
    ($($name:ident)*) => {
        vec![$(Row::of(concat!("CUdevice_attribute::CU_DEVICE_ATTRIBUTE_", stringify!($name)), |s| s.device.attribute(attribute::$name)).calls("cuDeviceGetAttribute").with(value("attribute"), raw(concat!("CU_DEVICE_ATTRIBUTE_", stringify!($name))))),*]
    };
}

fn raw(name: &str) -> CUdevice_attribute {
    CUdevice_attribute::from_name(name).expect("a C name")
}

#[rustfmt::skip]
fn attributes() -> Vec<Row> {
    let mut rows = attributes! {
        MAX_THREADS_PER_BLOCK MAX_BLOCK_DIM_X MAX_BLOCK_DIM_Y MAX_BLOCK_DIM_Z MAX_GRID_DIM_X
        MAX_GRID_DIM_Y MAX_GRID_DIM_Z MAX_SHARED_MEMORY_PER_BLOCK TOTAL_CONSTANT_MEMORY
        WARP_SIZE MAX_PITCH MAX_REGISTERS_PER_BLOCK CLOCK_RATE TEXTURE_ALIGNMENT GPU_OVERLAP
        MULTIPROCESSOR_COUNT KERNEL_EXEC_TIMEOUT INTEGRATED CAN_MAP_HOST_MEMORY COMPUTE_MODE
        MAXIMUM_TEXTURE1D_WIDTH MAXIMUM_TEXTURE2D_WIDTH MAXIMUM_TEXTURE2D_HEIGHT
        MAXIMUM_TEXTURE3D_WIDTH MAXIMUM_TEXTURE3D_HEIGHT MAXIMUM_TEXTURE3D_DEPTH
        MAXIMUM_TEXTURE2D_LAYERED_WIDTH MAXIMUM_TEXTURE2D_LAYERED_HEIGHT
        MAXIMUM_TEXTURE2D_LAYERED_LAYERS SURFACE_ALIGNMENT CONCURRENT_KERNELS ECC_ENABLED
        PCI_BUS_ID PCI_DEVICE_ID TCC_DRIVER MEMORY_CLOCK_RATE GLOBAL_MEMORY_BUS_WIDTH
        L2_CACHE_SIZE MAX_THREADS_PER_MULTIPROCESSOR ASYNC_ENGINE_COUNT UNIFIED_ADDRESSING
        MAXIMUM_TEXTURE1D_LAYERED_WIDTH MAXIMUM_TEXTURE1D_LAYERED_LAYERS CAN_TEX2D_GATHER
        MAXIMUM_TEXTURE2D_GATHER_WIDTH MAXIMUM_TEXTURE2D_GATHER_HEIGHT
        MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE
        MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE PCI_DOMAIN_ID TEXTURE_PITCH_ALIGNMENT
        MAXIMUM_TEXTURECUBEMAP_WIDTH MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH
        MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS MAXIMUM_SURFACE1D_WIDTH MAXIMUM_SURFACE2D_WIDTH
        MAXIMUM_SURFACE2D_HEIGHT MAXIMUM_SURFACE3D_WIDTH MAXIMUM_SURFACE3D_HEIGHT
        MAXIMUM_SURFACE3D_DEPTH MAXIMUM_SURFACE1D_LAYERED_WIDTH MAXIMUM_SURFACE1D_LAYERED_LAYERS
        MAXIMUM_SURFACE2D_LAYERED_WIDTH MAXIMUM_SURFACE2D_LAYERED_HEIGHT
        MAXIMUM_SURFACE2D_LAYERED_LAYERS MAXIMUM_SURFACECUBEMAP_WIDTH
        MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS
        MAXIMUM_TEXTURE1D_LINEAR_WIDTH MAXIMUM_TEXTURE2D_LINEAR_WIDTH
        MAXIMUM_TEXTURE2D_LINEAR_HEIGHT MAXIMUM_TEXTURE2D_LINEAR_PITCH
        MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT
        COMPUTE_CAPABILITY_MAJOR COMPUTE_CAPABILITY_MINOR MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH
        STREAM_PRIORITIES_SUPPORTED GLOBAL_L1_CACHE_SUPPORTED LOCAL_L1_CACHE_SUPPORTED
        MAX_SHARED_MEMORY_PER_MULTIPROCESSOR MAX_REGISTERS_PER_MULTIPROCESSOR MANAGED_MEMORY
        MULTI_GPU_BOARD MULTI_GPU_BOARD_GROUP_ID HOST_NATIVE_ATOMIC_SUPPORTED
        SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO PAGEABLE_MEMORY_ACCESS CONCURRENT_MANAGED_ACCESS
        COMPUTE_PREEMPTION_SUPPORTED CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        CAN_USE_STREAM_MEM_OPS_V1 CAN_USE_64_BIT_STREAM_MEM_OPS_V1
        CAN_USE_STREAM_WAIT_VALUE_NOR_V1 COOPERATIVE_LAUNCH COOPERATIVE_MULTI_DEVICE_LAUNCH
        MAX_SHARED_MEMORY_PER_BLOCK_OPTIN CAN_FLUSH_REMOTE_WRITES HOST_REGISTER_SUPPORTED
        PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES DIRECT_MANAGED_MEM_ACCESS_FROM_HOST
        VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
        HANDLE_TYPE_WIN32_HANDLE_SUPPORTED HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED
        MAX_BLOCKS_PER_MULTIPROCESSOR GENERIC_COMPRESSION_SUPPORTED MAX_PERSISTING_L2_CACHE_SIZE
        MAX_ACCESS_POLICY_WINDOW_SIZE GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
        RESERVED_SHARED_MEMORY_PER_BLOCK SPARSE_CUDA_ARRAY_SUPPORTED
        READ_ONLY_HOST_REGISTER_SUPPORTED TIMELINE_SEMAPHORE_INTEROP_SUPPORTED
        MEMORY_POOLS_SUPPORTED GPU_DIRECT_RDMA_SUPPORTED GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS
        GPU_DIRECT_RDMA_WRITES_ORDERING MEMPOOL_SUPPORTED_HANDLE_TYPES CLUSTER_LAUNCH
        DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED CAN_USE_64_BIT_STREAM_MEM_OPS
        CAN_USE_STREAM_WAIT_VALUE_NOR DMA_BUF_SUPPORTED IPC_EVENT_SUPPORTED
        MEM_SYNC_DOMAIN_COUNT TENSOR_MAP_ACCESS_SUPPORTED HANDLE_TYPE_FABRIC_SUPPORTED
        UNIFIED_FUNCTION_POINTERS NUMA_CONFIG MULTICAST_SUPPORTED MPS_ENABLED
        D3D12_CIG_SUPPORTED MEM_DECOMPRESS_ALGORITHM_MASK MEM_DECOMPRESS_MAXIMUM_LENGTH
        VULKAN_CIG_SUPPORTED GPU_PCI_DEVICE_ID HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        HOST_NUMA_MEMORY_POOLS_SUPPORTED HOST_NUMA_MULTINODE_IPC_SUPPORTED
        HOST_MEMORY_POOLS_SUPPORTED HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        HOST_ALLOC_DMA_BUF_SUPPORTED ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED
        LOCALITY_DOMAIN_COUNT LOCALITY_DOMAIN_MULTIPROCESSOR_COUNT ATOMIC_REDUCTION_SUPPORTED
        NUMA_ID HOST_NUMA_ID GPU_PCI_SUBSYSTEM_ID
    };
    // The software driver has no answer for these.
    let others: Vec<Row> = attributes! {
        MAX_OVERSIZED_SHARED_MEMORY_PER_BLOCK D3D12_CIG_STREAMS_SUPPORTED DMA_BUF_MMAP_SUPPORTED
        LOGICAL_ENDPOINT_UNICAST_SUPPORTED LOGICAL_ENDPOINT_MULTICAST_SUPPORTED
        LOGICAL_ENDPOINT_COUNTED_OPS_SUPPORTED
        LOGICAL_ENDPOINT_UNICAST_ACCESS_ON_OWNER_DEVICE_SUPPORTED
        LOGICAL_ENDPOINT_SUPPORTED_HANDLE_TYPES VULKAN_CIG_STREAMS_SUPPORTED
        TENSOR_MAP_LARGE_TENSOR_MIN_SIZE GPU_DIRECT_RDMA_WITH_LOCALIZED_MEMORY_SUPPORTED
    };
    rows.extend(others.into_iter().map(Row::refused));
    rows
}

fn peers() -> impl Iterator<Item = Row> {
    [
        ("PERFORMANCE_RANK", PeerAttribute::PerformanceRank, 1),
        ("ACCESS_SUPPORTED", PeerAttribute::AccessSupported, 2),
        ("NATIVE_ATOMIC_SUPPORTED", PeerAttribute::NativeAtomicSupported, 3),
        ("CUDA_ARRAY_ACCESS_SUPPORTED", PeerAttribute::ArrayAccessSupported, 4),
        (
            "ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED",
            PeerAttribute::OnlyPartialNativeAtomicSupported,
            5,
        ),
    ]
    .into_iter()
    .map(|(name, attribute, raw)| {
        let name = format!("CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_{name}");
        let act = move |s: &Stage| s.device.peer_attribute(attribute, &s.peer).map(drop);
        let raw = CUdevice_P2PAttribute(raw);
        Row::new(&name, act, "cuDeviceGetP2PAttribute", value("attribute"), raw)
    })
}

fn atomics() -> impl Iterator<Item = Row> {
    [
        ("INTEGER_ADD", AtomicOperation::IntegerAdd, 0),
        ("INTEGER_MIN", AtomicOperation::IntegerMin, 1),
        ("INTEGER_MAX", AtomicOperation::IntegerMax, 2),
        ("INTEGER_INCREMENT", AtomicOperation::IntegerIncrement, 3),
        ("INTEGER_DECREMENT", AtomicOperation::IntegerDecrement, 4),
        ("AND", AtomicOperation::And, 5),
        ("OR", AtomicOperation::Or, 6),
        ("XOR", AtomicOperation::Xor, 7),
        ("EXCHANGE", AtomicOperation::Exchange, 8),
        ("CAS", AtomicOperation::CompareAndSwap, 9),
        ("FLOAT_ADD", AtomicOperation::FloatAdd, 10),
        ("FLOAT_MIN", AtomicOperation::FloatMin, 11),
        ("FLOAT_MAX", AtomicOperation::FloatMax, 12),
    ]
    .into_iter()
    .flat_map(|(name, operation, raw)| {
        let name = format!("CUatomicOperation::CU_ATOMIC_OPERATION_{name}");
        let peer = move |s: &Stage| s.device.peer_atomics(operation, &s.peer).map(drop);
        let host = move |s: &Stage| s.device.host_atomics(operation).map(drop);
        let raw = vec![CUatomicOperation(raw)];
        let found = || array("operations");
        [
            Row::new(&name, peer, "cuDeviceGetP2PAtomicCapabilities", found(), raw.clone()),
            Row::new(&name, host, "cuDeviceGetHostAtomicCapabilities", found(), raw),
        ]
    })
}

fn calls() -> Vec<Row> {
    let both = |s: &Stage| s.device.can_access_peer(&s.peer).map(drop);
    let device = |argument| value::<CUdevice>(argument);
    vec![
        Row::call("cuDeviceGetCount", |_| Device::count()),
        Row::of("cuDeviceGet", |_| Device::get(1))
            .calls("cuDeviceGet")
            .with(value("ordinal"), 1_i32),
        Row::call("cuDeviceGetName", |s| s.device.name()),
        Row::call("cuDeviceGetUuid_v2", |s| s.device.uuid()),
        Row::call("cuDeviceGetByPCIBusId", |s| {
            let domain = s.peer.attribute(attribute::PCI_DOMAIN_ID)?;
            let bus = s.peer.attribute(attribute::PCI_BUS_ID)?;
            let device = s.peer.attribute(attribute::PCI_DEVICE_ID)?;
            Device::by_pci_bus_id(&format!("{domain:04x}:{bus:02x}:{device:02x}.0"))
        }),
        Row::of("cuDeviceTotalMem_v2", |s| s.peer.total_memory())
            .calls("cuDeviceTotalMem_v2")
            .with(device("device"), 1),
        Row::new("cuDeviceCanAccessPeer", both, "cuDeviceCanAccessPeer", device("device"), 0),
        Row::new("cuDeviceCanAccessPeer", both, "cuDeviceCanAccessPeer", device("peer"), 1),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = attributes();
    rows.extend(peers());
    rows.extend(atomics());
    rows.extend(calls());
    rows
}
