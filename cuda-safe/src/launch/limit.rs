//! The limit that a rejected launch exceeds.
//!
//! A launch checks no limits itself, because each check would cost a driver call. This module asks the
//! driver for the limits after it has rejected a launch.

use super::{LaunchAttributes, LaunchConfig};
use crate::call::{Error, LaunchError, LaunchLimit, Result};
use crate::device::attribute;
use crate::launch::occupancy::OccupancyOptions;
use crate::module::{Kernel, kernel_attribute};
use crate::stream::Stream;
use cuda_sys::CUresult;

/// Returns the error of a launch, with the limit that the launch exceeds if the driver rejected it
/// because of one.
#[cold]
#[inline(never)]
pub(super) fn explain(
    error: Error,
    kernel: &Kernel,
    stream: &Stream,
    config: LaunchConfig,
    attributes: Option<&LaunchAttributes<'_>>,
) -> Error {
    let Error::Driver(driver_error) = &error else { return error };
    let is_rejection = matches!(
        driver_error.code,
        CUresult::CUDA_ERROR_INVALID_VALUE
            | CUresult::CUDA_ERROR_NOT_SUPPORTED
            | CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
            | CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
            | CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE
    );
    if !is_rejection {
        return error;
    }
    let launch = Launch { kernel, stream, config, attributes };
    // A limit that the driver does not report is not a reason to hide the error of the launch.
    match launch.exceeded() {
        Some(limit) => Error::Launch(Box::new(LaunchError {
            error: driver_error.clone(),
            kernel: kernel.name().to_owned(),
            limit,
        })),
        None => error,
    }
}

/// A rejected launch.
struct Launch<'a> {
    kernel: &'a Kernel,
    stream: &'a Stream,
    config: LaunchConfig,
    attributes: Option<&'a LaunchAttributes<'a>>,
}

const AXES: [char; 3] = ['x', 'y', 'z'];

impl Launch<'_> {
    /// Returns a limit that the launch exceeds.
    #[inline]
    fn exceeded(&self) -> Option<LaunchLimit> {
        // A query that fails does not prevent the next check.
        let checks = [
            Self::block,
            Self::kernel_threads,
            Self::grid,
            Self::shared_memory,
            Self::cluster,
            Self::cooperative,
        ];
        checks.iter().find_map(|check| check(self).unwrap_or_default())
    }

    #[inline]
    fn threads(&self) -> u64 {
        // `LaunchConfig::check` has ensured that the product fits in 32 bits.
        self.config.block.map(u64::from).iter().product()
    }

    #[inline]
    fn block(&self) -> Result<Option<LaunchLimit>> {
        let device = self.kernel.context().device();
        let max = device.attribute(attribute::MAX_THREADS_PER_BLOCK)?;
        let (block, threads) = (self.config.block, self.threads());
        if threads > u64::from(max) {
            return Ok(Some(LaunchLimit::DeviceThreads { block, threads, max }));
        }
        let limits =
            [attribute::MAX_BLOCK_DIM_X, attribute::MAX_BLOCK_DIM_Y, attribute::MAX_BLOCK_DIM_Z];
        for ((axis, given), limit) in AXES.into_iter().zip(block).zip(limits) {
            let max = device.attribute(limit)?;
            if given > max {
                return Ok(Some(LaunchLimit::BlockDimension { axis, given, max }));
            }
        }
        Ok(None)
    }

    #[inline]
    fn grid(&self) -> Result<Option<LaunchLimit>> {
        let device = self.kernel.context().device();
        let limits =
            [attribute::MAX_GRID_DIM_X, attribute::MAX_GRID_DIM_Y, attribute::MAX_GRID_DIM_Z];
        for ((axis, given), limit) in AXES.into_iter().zip(self.config.grid).zip(limits) {
            let max = device.attribute(limit)?;
            if given > max {
                return Ok(Some(LaunchLimit::GridDimension { axis, given, max }));
            }
        }
        Ok(None)
    }

    #[inline]
    fn kernel_threads(&self) -> Result<Option<LaunchLimit>> {
        let max = self.kernel.attribute(kernel_attribute::MAX_THREADS_PER_BLOCK)?;
        let threads = self.threads();
        if threads <= u64::from(max) {
            return Ok(None);
        }
        Ok(Some(LaunchLimit::KernelThreads {
            threads,
            max,
            registers: self.kernel.attribute(kernel_attribute::REGISTERS)?,
        }))
    }

    #[inline]
    fn shared_memory(&self) -> Result<Option<LaunchLimit>> {
        let kernel = self.kernel;
        let given = self.config.shared_bytes;
        let max = kernel.attribute(kernel_attribute::MAX_DYNAMIC_SHARED_BYTES)?;
        if given <= max {
            return Ok(None);
        }
        let device = kernel.context().device();
        let opt_in = device.attribute(attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let own = kernel.attribute(kernel_attribute::STATIC_SHARED_BYTES)?;
        Ok(Some(LaunchLimit::DynamicSharedMemory {
            given,
            max,
            settable: opt_in.saturating_sub(own),
        }))
    }

    #[inline]
    fn cluster(&self) -> Result<Option<LaunchLimit>> {
        let kernel = self.kernel;
        let given = self.attributes.and_then(|attributes| attributes.cluster);
        let device = kernel.context().device();
        if !device.attribute(attribute::CLUSTER_LAUNCH)? {
            return Ok(given.map(|cluster| LaunchLimit::NoClusters { cluster }));
        }
        let required = [
            kernel.attribute(kernel_attribute::REQUIRED_CLUSTER_WIDTH)?,
            kernel.attribute(kernel_attribute::REQUIRED_CLUSTER_HEIGHT)?,
            kernel.attribute(kernel_attribute::REQUIRED_CLUSTER_DEPTH)?,
        ];
        let required = (!required.contains(&0)).then_some(required);
        let cluster = match (given, required) {
            (Some(cluster), Some(required)) if cluster != required => {
                return Ok(Some(LaunchLimit::RequiredCluster { cluster, required }));
            }
            (Some(cluster), _) | (None, Some(cluster)) => cluster,
            (None, None) => {
                let is_missing = kernel.attribute(kernel_attribute::CLUSTER_SIZE_MUST_BE_SET)?;
                return Ok(is_missing.then_some(LaunchLimit::ClusterMissing));
            }
        };
        let grid = self.config.grid;
        let divides = |(grid, cluster): (u32, u32)| grid.checked_rem(cluster) == Some(0);
        if !grid.into_iter().zip(cluster).all(divides) {
            return Ok(Some(LaunchLimit::ClusterDivision { grid, cluster }));
        }
        let blocks = cluster.map(u64::from).into_iter().fold(1, u64::saturating_mul);
        let max = self.largest_cluster()?;
        Ok((blocks > u64::from(max)).then_some(LaunchLimit::ClusterSize { blocks, max }))
    }

    /// Returns the number of blocks in the largest cluster that this launch could have.
    #[inline]
    fn largest_cluster(&self) -> Result<u32> {
        // The query rejects what the launch rejects, so it gets a grid of one cluster and no attribute
        // but the one that it needs.
        let attributes = LaunchAttributes {
            portable_cluster_mode: self
                .attributes
                .and_then(|attributes| attributes.portable_cluster_mode),
            ..Default::default()
        };
        let config = LaunchConfig { grid: [1; 3], ..self.config };
        self.kernel.max_cluster_size_on(self.stream, config, &attributes)
    }

    #[inline]
    fn cooperative(&self) -> Result<Option<LaunchLimit>> {
        if !self.attributes.is_some_and(|its| its.cooperative) {
            return Ok(None);
        }
        let device = self.kernel.context().device();
        if !device.attribute(attribute::COOPERATIVE_LAUNCH)? {
            return Ok(Some(LaunchLimit::NoCooperativeLaunch));
        }
        let threads = u32::try_from(self.threads()).unwrap_or(u32::MAX);
        let options = OccupancyOptions {
            shared_bytes: self.config.shared_bytes as usize,
            ..Default::default()
        };
        let per_sm = self.kernel.max_active_blocks(threads, options)?;
        let sm_count = match self.stream.partition() {
            Some(partition) => partition.sm_count(),
            None => device.attribute(attribute::MULTIPROCESSOR_COUNT)?,
        };
        let blocks = self.config.grid.map(u128::from).into_iter().product();
        let max = u64::from(per_sm) * u64::from(sm_count);
        Ok((blocks > u128::from(max)).then_some(LaunchLimit::CooperativeBlocks {
            blocks,
            max,
            per_sm,
            sm_count,
        }))
    }
}
