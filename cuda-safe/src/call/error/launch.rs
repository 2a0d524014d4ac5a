//! Launches that the driver rejected because they exceed a limit.

use super::DriverError;
use crate::call::texts::texts;
use std::fmt;

/// A launch that the driver rejected because it exceeds a limit of the device or the kernel.
///
/// This is the content of [`Error::Launch`](super::Error::Launch). A rejected launch that exceeds none of
/// the known limits is [`Error::Driver`](super::Error::Driver).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchError {
    /// The error of the launching function.
    pub error: DriverError,
    /// The kernel's name in its module.
    pub kernel: String,
    /// The limit that the launch exceeds. If it exceeds several limits, this is one of them.
    pub limit: LaunchLimit,
}

texts! {
    /// A limit of a device or a kernel, with the values of a launch that exceeds it.
    pub enum LaunchLimit {
        /// A dimension of the block exceeds the limit of the device. `axis` is `'x'`, `'y'` or `'z'`.
        BlockDimension {
            /// The axis of the dimension.
            axis: char,
            /// The number of threads along the axis.
            given: u32,
            /// The limit of the device.
            max: u32,
        } => "the block has {given} threads along {axis}, but the device supports at most {max}";
        /// A dimension of the grid exceeds the limit of the device. `axis` is `'x'`, `'y'` or `'z'`.
        GridDimension {
            /// The axis of the dimension.
            axis: char,
            /// The number of blocks along the axis.
            given: u32,
            /// The limit of the device.
            max: u32,
        } => "the grid has {given} blocks along {axis}, but the device supports at most {max}";
        /// A block has more threads than the device supports.
        DeviceThreads {
            /// The number of threads along x, y and z.
            block: [u32; 3],
            /// The number of threads in the block.
            threads: u64,
            /// The limit of the device.
            max: u32,
        } => "a block of {} has {threads} threads, but the device supports at most {max}", extents(*block);
        /// A block has more threads than the kernel supports, because of its registers or its launch bounds.
        KernelThreads {
            /// The number of threads in the block.
            threads: u64,
            /// The limit of the kernel on this device.
            max: u32,
            /// The number of registers per thread.
            registers: u32,
        } =>
            "the block has {threads} threads, but the kernel supports at most {max} on this device, because of its \
             {registers} registers per thread or its launch bounds (__launch_bounds__)";
        /// The dynamic shared memory of a block exceeds the limit that is set for the kernel. All values are
        /// in bytes.
        DynamicSharedMemory {
            /// The dynamic shared memory of a block.
            given: u32,
            /// The limit of the kernel: its attribute
            /// [`MAX_DYNAMIC_SHARED_BYTES`](crate::module::attribute::MAX_DYNAMIC_SHARED_BYTES).
            max: u32,
            /// The largest value that the attribute can have on this device.
            settable: u32,
        } =>
            "the block has {given} bytes of dynamic shared memory, but the kernel's limit is {max} bytes{}",
            way_out(*given, *settable);
        /// The device does not support clusters.
        NoClusters {
            /// The cluster size in blocks along x, y and z.
            cluster: [u32; 3],
        } => "the launch has clusters of {} blocks, but the device does not support clusters", extents(*cluster);
        /// The kernel requires a cluster size at each launch, and the launch has none.
        ClusterMissing =>
            "the kernel needs a cluster size: set LaunchAttributes::cluster, or the required cluster size of the kernel";
        /// The kernel requires another cluster size.
        RequiredCluster {
            /// The cluster size of the launch, in blocks along x, y and z.
            cluster: [u32; 3],
            /// The cluster size that the kernel requires.
            required: [u32; 3],
        } =>
            "the launch has clusters of {} blocks, but the kernel requires clusters of {}", extents(*cluster),
            extents(*required);
        /// The cluster size does not divide the grid.
        ClusterDivision {
            /// The number of blocks along x, y and z.
            grid: [u32; 3],
            /// The cluster size in blocks along x, y and z.
            cluster: [u32; 3],
        } => "a grid of {} blocks cannot be divided into clusters of {}", extents(*grid), extents(*cluster);
        /// A cluster has too many blocks.
        ClusterSize {
            /// The number of blocks in a cluster.
            blocks: u64,
            /// The limit for this launch.
            max: u32,
        } =>
            "a cluster has {blocks} blocks, but this launch supports at most {max} \
             (kernel_attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED may raise the limit)";
        /// The device does not support cooperative launches.
        NoCooperativeLaunch => "the device does not support cooperative launches";
        /// A cooperative launch has more blocks than can run at the same time.
        CooperativeBlocks {
            /// The number of blocks in the grid.
            blocks: u128,
            /// The number of blocks that can run at the same time.
            max: u64,
            /// The number of blocks that fit on one multiprocessor.
            per_sm: u32,
            /// The number of multiprocessors on which the launch may run.
            sm_count: u32,
        } =>
            "the cooperative launch has {blocks} blocks, but at most {max} can run at the same time ({per_sm} on each \
             of {sm_count} SMs)";
    }
}

impl fmt::Display for LaunchError {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { error, kernel, limit } = self;
        write!(f, "{error}; kernel \"{kernel}\": {limit}")
    }
}

impl std::error::Error for LaunchError {}

/// Returns three extents as text.
#[inline]
fn extents([x, y, z]: [u32; 3]) -> String {
    format!("{x} x {y} x {z}")
}

/// Returns how to raise the limit of dynamic shared memory, or that this is not possible.
#[inline]
fn way_out(given: u32, settable: u32) -> String {
    if given > settable {
        return format!(", and the device supports at most {settable}");
    }
    format!(": raise it with kernel_attribute::MAX_DYNAMIC_SHARED_BYTES (to at most {settable})")
}
